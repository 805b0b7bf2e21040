package datadir

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/ident"
)

// Vote is what a member promised in a group: not to go back below Term, and not to vote for anybody
// but Vote in it.
type Vote struct {
	Term uint64
	Vote uint64 // member id; 0: nobody yet
}

type groupVote struct {
	group ident.GroupID
	Vote
}

func compareGroup(v groupVote, g ident.GroupID) int { return cmp.Compare(v.group, g) }

// votes is the content of the file: the promises of all groups. It is a value; with returns another.
//
// The file has two slots, and a write goes to the one that holds the older content, so that there is
// always a whole one:
//
//	0        4096            12288           20480
//	+--------+---------------+---------------+
//	| head   | slot 0        | slot 1        |    head: durable.Format around the incarnation,
//	+--------+---------------+---------------+    then zeros. Written once, with the file.
//
//	slot: 16 sectors of 512 bytes, each
//
//	0     8      9        10      12            28                                   508
//	+-----+------+--------+-------+-------------+------------------------------------+--------+
//	| seq | slot | sector | count | incarnation | 24 × (group u32, term u64,         | crc32c |
//	| u64 | u8   | u8     | u16   | 16          |       vote u64), of which count    | u32    |
//	+-----+------+--------+-------+-------------+------------------------------------+--------+
//
// Little-endian. Write n puts seq n into every sector of slot n%2, with one write and one sync. Each
// sector has its own sequence number and checksum because of what has to be told apart when a slot is
// not whole: the last write torn by a crash, which nobody relied on, so that the other slot holds;
// or damage to the newest promises, where to go back to the other slot is amnesia. Say the other slot
// is whole and has n. Then the promises of n are the newest exactly if write n+1 did not complete,
// and it did not complete if a sound sector of the slot still has n-1. So:
//
//	the other sectors                       is            newest
//	all sound, all n+1                      whole         n+1
//	all sound, some n-1, some n+1           torn          n
//	some damaged, of the sound any n-1      torn, or      n
//	                                        old damage
//	some damaged, the sound all n+1         not known     refused
//	all damaged                             not known     refused
//	anything else                           not ours      refused
//
// A disk that writes sectors whole never leaves the fourth and fifth by a crash. One that does not
// makes a refusal of what could have been used, never the reverse. Not recognised here: a write that
// the disk claimed and never did, and a file that was put back from an old copy. Against both, the
// log's term is compared with the votes when a group is opened.
type votes struct {
	incarnation ident.Incarnation
	seq         uint64
	groups      []groupVote // ascending by group; shared between values, read-only
}

const (
	votesHead      = 4096
	sectorBytes    = 512
	sectorHead     = 28
	voteBytes      = 4 + 8 + 8
	votesPerSector = (sectorBytes - sectorHead - 4) / voteBytes
	slotSectors    = 16
	slotBytes      = slotSectors * sectorBytes
	votesBytes     = votesHead + 2*slotBytes

	// maxGroups is how many groups a member may have.
	maxGroups = slotSectors * votesPerSector
)

func votesFormat() durable.Format { return durable.Format{Magic: "tidalVOT", Version: 1} }

// makeVotes returns the votes of a new directory: none.
func makeVotes(i ident.Incarnation) votes { return votes{incarnation: i, seq: 1} }

func (v votes) of(g ident.GroupID) Vote {
	if at, ok := slices.BinarySearchFunc(v.groups, g, compareGroup); ok {
		return v.groups[at].Vote
	}
	return Vote{}
}

// with returns what is to be written for a promise in g, or why it may not be made.
func (v votes) with(g ident.GroupID, vote Vote) (votes, error) {
	at, ok := slices.BinarySearchFunc(v.groups, g, compareGroup)
	if had := v.of(g); vote.Term < had.Term || vote.Term == had.Term && had.Vote != 0 && vote.Vote != had.Vote {
		return v, fmt.Errorf("vote for %d in term %d of group %s: voted for %d in term %d", vote.Vote, vote.Term, g, had.Vote, had.Term)
	}
	if !ok && len(v.groups) == maxGroups {
		return v, fmt.Errorf("vote in group %s: a member has at most %d groups", g, maxGroups)
	}
	v.seq++
	v.groups = slices.Clone(v.groups)
	if !ok {
		v.groups = slices.Insert(v.groups, at, groupVote{group: g})
	}
	v.groups[at].Vote = vote
	return v, nil
}

// write puts v into its slot of f.
func (v votes) write(f vfs.File) error {
	if _, err := f.WriteAt(v.slot(), slotOffset(v.seq)); err != nil {
		return err
	}
	if mutantVoteNotSynced {
		return nil
	}
	return f.SyncData()
}

func slotOffset(seq uint64) int64 { return votesHead + int64(seq%2)*slotBytes }

// encode returns the content of a file in which v is the newest.
func (v votes) encode() []byte {
	b := make([]byte, votesBytes)
	copy(b, votesFormat().Encode(v.incarnation[:]))
	older := v
	older.seq--
	copy(b[slotOffset(v.seq):], v.slot())
	copy(b[slotOffset(older.seq):], older.slot())
	return b
}

// slot returns the content of one slot.
func (v votes) slot() []byte {
	b := make([]byte, slotBytes)
	rest := v.groups
	for i := range slotSectors {
		s := b[i*sectorBytes:][:sectorBytes]
		here := rest[:min(len(rest), votesPerSector)]
		rest = rest[len(here):]
		binary.LittleEndian.PutUint64(s, v.seq)
		s[8], s[9] = byte(v.seq%2), byte(i)
		binary.LittleEndian.PutUint16(s[10:], uint16(len(here)))
		copy(s[12:], v.incarnation[:])
		for j, g := range here {
			e := s[sectorHead+j*voteBytes:]
			binary.LittleEndian.PutUint32(e, uint32(g.group))
			binary.LittleEndian.PutUint64(e[4:], g.Term)
			binary.LittleEndian.PutUint64(e[12:], g.Vote.Vote)
		}
		binary.LittleEndian.PutUint32(s[sectorBytes-4:], durable.Checksum(s[:sectorBytes-4]))
	}
	return b
}

// decodeVotes reads the content of the file called name and returns the newest promises.
func decodeVotes(name string, b []byte) (votes, error) {
	if len(b) != votesBytes {
		return votes{}, &durable.CorruptError{File: name, Detail: fmt.Sprintf("%d bytes, want %d", len(b), votesBytes)}
	}
	const headBytes = durable.EnvelopeBytes + len(ident.Incarnation{})
	incarnation, err := votesFormat().Decode(name, b[:headBytes])
	if err != nil {
		return votes{}, err
	}
	v, err := parseVotes(ident.Incarnation(incarnation), b)
	if err == nil && slices.ContainsFunc(b[headBytes:votesHead], func(x byte) bool { return x != 0 }) {
		err = errors.New("the head is not followed by zeros")
	}
	if err != nil {
		return votes{}, &durable.CorruptError{File: name, Detail: err.Error()}
	}
	return v, nil
}

func parseVotes(incarnation ident.Incarnation, b []byte) (votes, error) {
	slots := [2]slotRead{readSlot(incarnation, 0, b), readSlot(incarnation, 1, b)}
	newest, err := newestSlot([2]slotSeqs{slots[0].seqs(), slots[1].seqs()})
	if err != nil {
		return votes{}, err
	}
	v := votes{incarnation: incarnation, seq: slots[newest][0].seq}
	for _, s := range slots[newest] {
		v.groups = append(v.groups, s.votes...)
	}
	for i := 1; i < len(v.groups); i++ {
		if v.groups[i].group <= v.groups[i-1].group {
			return votes{}, fmt.Errorf("group %s follows group %s", v.groups[i].group, v.groups[i-1].group)
		}
	}
	return v, nil
}

// slotRead is one slot as it was read.
type slotRead [slotSectors]struct {
	sound bool // everything below was written by us, to this place
	seq   uint64
	votes []groupVote
}

func readSlot(incarnation ident.Incarnation, slot int, file []byte) (r slotRead) {
	for i := range r {
		s := file[votesHead+slot*slotBytes+i*sectorBytes:][:sectorBytes]
		count := int(binary.LittleEndian.Uint16(s[10:]))
		seq := binary.LittleEndian.Uint64(s)
		if durable.Checksum(s[:sectorBytes-4]) != binary.LittleEndian.Uint32(s[sectorBytes-4:]) ||
			int(s[8]) != slot || int(seq%2) != slot || int(s[9]) != i || count > votesPerSector ||
			!bytes.Equal(s[12:sectorHead], incarnation[:]) {
			continue
		}
		r[i].sound, r[i].seq = true, seq
		for j := range count {
			e := s[sectorHead+j*voteBytes:]
			r[i].votes = append(r[i].votes, groupVote{
				group: ident.GroupID(binary.LittleEndian.Uint32(e)),
				Vote:  Vote{Term: binary.LittleEndian.Uint64(e[4:]), Vote: binary.LittleEndian.Uint64(e[12:])},
			})
		}
	}
	return r
}

// seqs returns the sequence numbers of the sound sectors.
func (r slotRead) seqs() slotSeqs {
	s := slotSeqs{damaged: slotSectors}
	for _, sector := range r {
		if sector.sound {
			s.damaged--
			s.sound = append(s.sound, sector.seq)
		}
	}
	return s
}

// slotSeqs is what the choice between slots depends on.
type slotSeqs struct {
	sound   []uint64 // sequence numbers of the sound sectors
	damaged int      // how many are not
}

// whole returns the sequence number of a slot of which nothing is missing.
func (s slotSeqs) whole() (uint64, bool) {
	if s.damaged > 0 || slices.Min(s.sound) != slices.Max(s.sound) {
		return 0, false
	}
	return s.sound[0], true
}

// newestSlot returns the slot that holds the newest promises, by the table above.
func newestSlot(slots [2]slotSeqs) (int, error) {
	for i, slot := range slots {
		n, ok := slot.whole()
		if !ok {
			continue
		}
		other := slots[1-i]
		if newer, ok := other.whole(); ok && newer == n+1 {
			return 1 - i, nil
		}
		for _, seq := range other.sound {
			if seq != n-1 && seq != n+1 {
				return 0, fmt.Errorf("slot %d is of write %d, a sector of slot %d of write %d", i, n, 1-i, seq)
			}
		}
		if !slices.Contains(other.sound, n-1) {
			return 0, fmt.Errorf("slot %d is of write %d, and %d sectors of slot %d are damaged, which may be the newer", i, n, other.damaged, 1-i)
		}
		return i, nil
	}
	return 0, errors.New("neither slot is whole")
}
