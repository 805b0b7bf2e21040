package consensus

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/ident"
)

// entryOverhead is what an entry weighs in the ring beside its payload.
const entryOverhead = 96

// tail is raft's Storage: the log as far as the machine was told that it is durable. Recent entries
// are in memory; older ones are read from the log.
//
// Reading the log while the append worker writes to it is safe, because raft asks its Storage only
// for entries below its first unstable one, and a frame that replaces a suffix makes raft hold the
// whole suffix as unstable until the frame is durable and the term has not moved on.
//
// Only the machine changes a tail.
type tail struct {
	log Log

	// hs is read once, by raft at opening.
	hs *pb.HardState

	// at is the newest applied entry, and conf the configuration it left. What a snapshot offers.
	// confIndex is the entry that made it so, or a later one: what was applied at opening.
	at        ident.EntryID
	conf      *pb.ConfState
	confIndex uint64

	// base is the entry before the first that may be read. Moved by compact only, so that raft sees
	// the head of the log move between Steps and not within one.
	base ident.EntryID

	// ents are the entries [first, first+len(ents)), at most maxBytes of them or a single one.
	// Elements are never overwritten: slices of ents are on their way to followers.
	ents     []*pb.Entry
	first    uint64
	bytes    int
	maxBytes int
	// left is the weight of what was dropped and is still held by the array before ents.
	left int
}

var _ raft.Storage = (*tail)(nil)

func (t *tail) last() uint64 { return t.first + uint64(len(t.ents)) - 1 }

func (t *tail) InitialState() (*pb.HardState, *pb.ConfState, error) { return t.hs, t.conf, nil }
func (t *tail) LastIndex() (uint64, error)                          { return t.last(), nil }
func (t *tail) FirstIndex() (uint64, error)                         { return t.base.Index + 1, nil }

func (t *tail) Term(i uint64) (uint64, error) {
	switch {
	case i == t.base.Index:
		return t.base.Term, nil
	case i < t.base.Index:
		return 0, raft.ErrCompacted
	case i > t.last():
		return 0, raft.ErrUnavailable
	case i >= t.first:
		return t.ents[i-t.first].GetTerm(), nil
	}
	term, err := t.log.Term(i)
	return term, bare(err)
}

// Entries returns a prefix of [lo, hi) that ends where the ring begins, if it begins in between:
// raft takes that for the size limit and asks again.
func (t *tail) Entries(lo, hi, maxBytes uint64) ([]*pb.Entry, error) {
	switch {
	case lo <= t.base.Index:
		return nil, raft.ErrCompacted
	case hi > t.last()+1:
		return nil, raft.ErrUnavailable
	case lo < t.first:
		ents, err := t.log.Entries(lo, min(hi, t.first), maxBytes)
		if err == nil && len(ents) == 0 {
			err = fmt.Errorf("log returned no entry of [%d, %d)", lo, min(hi, t.first))
		}
		return ents, bare(err)
	}
	s := t.ents[lo-t.first : hi-t.first]
	var size uint64
	for i, e := range s {
		if size += uint64(proto.Size(e)); i > 0 && size > maxBytes {
			s = s[:i]
			break
		}
	}
	return s[:len(s):len(s)], nil
}

// bare unwraps what raft compares with ==. On any other error raft panics.
func bare(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrCompacted):
		return raft.ErrCompacted
	case errors.Is(err, raft.ErrUnavailable):
		return raft.ErrUnavailable
	}
	return &LogError{err}
}

// Snapshot answers with a position only; the data travels as an artifact.
func (t *tail) Snapshot() (*pb.Snapshot, error) {
	return &pb.Snapshot{Metadata: &pb.SnapshotMetadata{
		ConfState: t.conf,
		Index:     proto.Uint64(t.at.Index),
		Term:      proto.Uint64(t.at.Term),
	}}, nil
}

// append takes durable entries; those that start at or below the last index replace the suffix.
func (t *tail) append(ents []*pb.Entry) error {
	if len(ents) == 0 {
		return nil
	}
	lo := ents[0].GetIndex()
	switch {
	case lo > t.last()+1:
		return fmt.Errorf("frame begins at %d, log ends at %d", lo, t.last())
	case lo <= t.at.Index:
		return fmt.Errorf("frame begins at %d, applied is %d", lo, t.at.Index)
	case lo <= t.first: // everything in memory is replaced
		t.ents, t.first, t.bytes, t.left = nil, lo, 0, 0
	case lo <= t.last():
		keep := lo - t.first
		for _, e := range t.ents[keep:] {
			t.bytes -= weight(e)
		}
		t.ents = t.ents[:keep:keep] // the next append moves to a new array
	}
	t.ents = append(t.ents, ents...)
	for _, e := range ents {
		t.bytes += weight(e)
	}
	n := 0
	for ; t.bytes > t.maxBytes && n < len(t.ents)-1; n++ {
		t.bytes -= weight(t.ents[n])
		t.left += weight(t.ents[n])
	}
	t.drop(n)
	return nil
}

// drop forgets the n oldest entries in memory. They stay in the array, which may be read elsewhere; the
// rest moves to another once they weigh more than the bound.
func (t *tail) drop(n int) {
	t.ents, t.first = t.ents[n:], t.first+uint64(n)
	if t.left > t.maxBytes {
		t.ents, t.left = slices.Clone(t.ents), 0
	}
}

func weight(e *pb.Entry) int { return entryOverhead + len(e.GetData()) }

// applied takes note of a run that is in state.
func (t *tail) applied(a *Apply) {
	t.at = entryID(a.Entries[len(a.Entries)-1])
	conf := a.Conf
	for _, e := range a.Entries {
		if e.GetType() == pb.EntryNormal || len(conf) == 0 {
			continue
		}
		if c := conf[0]; !c.Refused {
			t.conf, t.confIndex = c.Want, e.GetIndex()
		}
		conf = conf[1:]
	}
}

// compact makes i the entry before the first. When the log has dropped even more since, its next
// report is on its way and nothing is done.
func (t *tail) compact(i uint64) error {
	switch {
	case i <= t.base.Index:
		return nil
	case i > t.at.Index:
		return fmt.Errorf("log dropped up to %d, applied is %d", i, t.at.Index)
	}
	term, err := t.Term(i)
	if err == raft.ErrCompacted {
		return nil
	}
	if err != nil {
		return fmt.Errorf("term of dropped entry %d: %w", i, err)
	}
	t.base = ident.EntryID{Term: term, Index: i}
	n := 0
	for ; n < len(t.ents) && t.ents[n].GetIndex() <= i; n++ {
		t.bytes -= weight(t.ents[n])
		t.left += weight(t.ents[n])
	}
	t.drop(n)
	t.first = max(t.first, i+1)
	return nil
}

func entryID(e *pb.Entry) ident.EntryID {
	return ident.EntryID{Term: e.GetTerm(), Index: e.GetIndex()}
}
