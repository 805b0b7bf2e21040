// Package audit reads the data directories of a stopped cluster and says which promises they break.
//
// It looks at what is on the disks alone, and at what clients were told:
//
//	I1  one vote a member and term, in the log and in the votes; one leader a term: its entries begin at
//	    one index, wherever they are found
//	I2  the same (term, index) is the same entry in every log, also where it was overwritten; logs that
//	    agree on one entry agree on all before it; what one member knows as committed, no other
//	    contradicts
//	I3  an acknowledged write is in the committed log exactly once, a refused one never, one of unknown
//	    outcome at most once
//	I4  no state is ahead of what is committed
//	I7  the state is what replaying the log from the birth of the cluster gives at its applied index, key
//	    by key, position included
//
// It changes nothing: stores are opened on a copy in memory. It shares the codecs and package apply
// with what it judges, and nothing else: the loop, raft, the transport and the boot sequence are not in
// it.
//
// Callers: testenv/cluster, after every test; anybody with the directories of a cluster.
package audit

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/state"
	"github.com/tidaldb/tidal/daemon/wal"
)

// Claims is what clients know of the writes they sent. Each carried an id of its own as the user of
// its signal.
type Claims struct {
	Acked   []string
	Refused []string // answered with effect none
	Unknown []string // not answered, or with effect unknown
}

// Finding is one broken promise.
type Finding struct {
	Invariant string // I1 to I7; "disk" where a directory cannot be read
	Member    string // empty: of the cluster
	Detail    string
}

func (f Finding) String() string {
	return strings.Join(slices.DeleteFunc([]string{f.Invariant, f.Member, f.Detail}, func(s string) bool { return s == "" }), ": ")
}

// Report is what an audit has looked at, and what it found.
type Report struct {
	Findings []Finding
	Members  int
	Entries  int // committed
	Terms    int // that have an entry in a log
	// Rebuilt is how many states were compared with a replay, which began with the state at index From:
	// 1 is the birth of the cluster.
	Rebuilt int
	From    uint64
}

func (r *Report) String() string {
	s := fmt.Sprintf("%d members, %d committed entries, %d terms, %d states rebuilt from index %d: %d findings", r.Members, r.Entries, r.Terms, r.Rebuilt, r.From, len(r.Findings))
	for _, f := range r.Findings {
		s += "\n  " + f.String()
	}
	return s
}

// maxFindings bounds a report: whatever breaks one promise a thousand times is said once too often.
const maxFindings = 50

// Run audits group 0 of the members whose data directories are dirs. None of them may be in use.
// Directories that cannot be read are findings. An error says that the audit itself could not be done.
func Run(fs vfs.FS, dirs []string, claims Claims) (*Report, error) {
	a := &auditor{fs: fs, entries: map[ident.EntryID]*pb.Entry{}}
	a.report.Members = len(dirs)
	for _, dir := range dirs {
		m, err := a.load(dir)
		if err != nil {
			a.find("disk", dir, "%v", err)
			continue
		}
		a.members = append(a.members, m)
	}
	if len(a.members) > 0 {
		a.checkVotes()
		a.checkTerms()
		a.checkMatching()
		a.merge()
		if err := a.replay(claims); err != nil {
			return nil, err
		}
	}
	return &a.report, nil
}

type auditor struct {
	fs      vfs.FS
	report  Report
	members []*member

	// entries are all that any log ever held, each once.
	entries map[ident.EntryID]*pb.Entry
	// log is what is committed, from the entry after base on.
	log  []*pb.Entry
	base ident.EntryID
}

// member is what one directory holds.
type member struct {
	name    string
	files   datadir.GroupContents
	genesis membership.Genesis

	base ident.EntryID
	live []*pb.Entry // the log without what was overwritten; shared between members
	hs   *pb.HardState
	// votes are those of its log, by term.
	votes map[uint64]uint64

	applied ident.EntryID
	conf    *pb.ConfState
	store   vfs.FS // a copy of the state, in storeDir
}

const storeDir = "state"

func (m *member) last() uint64 { return m.base.Index + uint64(len(m.live)) }

// commit is how far this member knows the log to be committed. What is applied was committed.
func (m *member) commit() uint64 { return max(m.hs.GetCommit(), m.applied.Index) }

// at returns the live entry i, or nil.
func (m *member) at(i uint64) *pb.Entry {
	if i <= m.base.Index || i > m.last() {
		return nil
	}
	return m.live[i-m.base.Index-1]
}

func (a *auditor) find(invariant, member, format string, args ...any) {
	if len(a.report.Findings) < maxFindings {
		a.report.Findings = append(a.report.Findings, Finding{invariant, member, fmt.Sprintf(format, args...)})
	}
}

func (a *auditor) load(dir string) (*member, error) {
	c, err := datadir.Inspect(a.fs, dir)
	if err != nil {
		return nil, err
	}
	m := &member{name: c.Member.Name, votes: map[uint64]uint64{}}
	if len(c.Groups) == 0 || c.Groups[0].Group != 0 {
		return nil, errors.New("it does not have group 0")
	}
	m.files = c.Groups[0]
	if m.genesis, err = membership.DecodeGenesis(c.Member.Genesis); err != nil {
		return nil, err
	}
	rec, err := wal.Scan(a.fs, m.files.LogDir, 0, func(f wal.FrameInfo) error {
		a.readFrame(m, f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	m.base, m.hs = rec.Base, rec.HardState
	return m, a.loadState(m)
}

func (a *auditor) readFrame(m *member, f wal.FrameInfo) {
	if vote := f.HardState.GetVote(); vote != 0 {
		term := f.HardState.GetTerm()
		if had, ok := m.votes[term]; ok && had != vote {
			a.find("I1", m.name, "voted for %d and for %d in term %d", had, vote, term)
		}
		m.votes[term] = vote
	}
	if len(f.Entries) == 0 {
		return
	}
	if len(m.live) > 0 {
		keep := f.Entries[0].ID.Index - m.live[0].GetIndex()
		m.live = m.live[:keep]
	}
	for _, e := range f.Entries {
		m.live = append(m.live, a.intern(m, e))
	}
}

// intern returns the one copy of an entry, whoever's log it was found in first.
func (a *auditor) intern(m *member, e wal.EntryInfo) *pb.Entry {
	was, ok := a.entries[e.ID]
	if !ok {
		was = &pb.Entry{Term: &e.ID.Term, Index: &e.ID.Index, Type: &e.Type, Data: bytes.Clone(e.Data)}
		a.entries[e.ID] = was
	}
	if was.GetType() == e.Type && bytes.Equal(was.GetData(), e.Data) {
		return was
	}
	a.find("I2", m.name, "entry %s is not the one that another log has: %d bytes of type %s, and %d bytes of type %s",
		e.ID, len(e.Data), e.Type, len(was.GetData()), was.GetType())
	return &pb.Entry{Term: &e.ID.Term, Index: &e.ID.Index, Type: &e.Type, Data: bytes.Clone(e.Data)}
}

// loadState copies the state into memory and reads its position.
func (a *auditor) loadState(m *member) error {
	m.store = vfs.NewMem()
	if _, err := vfs.Clone(a.fs, m.store, m.files.StateDir, storeDir); err != nil {
		return fmt.Errorf("copy the state: %w", err)
	}
	store, err := state.Open(state.Options{FS: m.store, Dir: storeDir})
	if err != nil {
		return err
	}
	pos := store.Position()
	m.applied, m.conf = pos.Applied, pos.Conf
	return store.Close()
}

// checkVotes compares votes and log: the votes are written first, so the log is never ahead.
func (a *auditor) checkVotes() {
	for _, m := range a.members {
		v, term := m.files.Vote, m.hs.GetTerm()
		switch in := m.votes[v.Term]; {
		case v.Term < term:
			a.find("I1", m.name, "its votes are of term %d, its log is of term %d", v.Term, term)
		case in != 0 && in != v.Vote:
			a.find("I1", m.name, "in term %d its votes say %d, its log says %d", v.Term, v.Vote, in)
		}
	}
}

// checkTerms compares where the entries of each term begin. A leader appends behind what it had when
// it was elected; a second one of that term would have begun elsewhere.
func (a *auditor) checkTerms() {
	type start struct {
		index  uint64
		member string
	}
	starts := map[uint64]start{}
	for _, m := range a.members {
		prev := m.base.Term
		for _, e := range m.live {
			term := e.GetTerm()
			if term == prev {
				continue
			}
			prev = term
			if was, ok := starts[term]; ok && was.index != e.GetIndex() {
				a.find("I1", m.name, "term %d begins at index %d, with %s at index %d: two leaders", term, e.GetIndex(), was.member, was.index)
			} else {
				starts[term] = start{e.GetIndex(), m.name}
			}
		}
	}
	a.report.Terms = len(starts)
}

// checkMatching: logs that have one entry in common have all before it in common.
func (a *auditor) checkMatching() {
	for n, x := range a.members {
		for _, y := range a.members[:n] {
			common := false
			for i := min(x.last(), y.last()); i > max(x.base.Index, y.base.Index); i-- {
				same := x.at(i).GetTerm() == y.at(i).GetTerm()
				if common && !same {
					a.find("I2", x.name, "agrees with %s on index %d and has term %d at index %d, where %s has term %d",
						y.name, i+1, x.at(i).GetTerm(), i, y.name, y.at(i).GetTerm())
					break
				}
				common = same
			}
		}
	}
}

// merge makes the committed log out of what the members know as committed.
func (a *auditor) merge() {
	by := slices.SortedFunc(slices.Values(a.members), func(x, y *member) int { return cmp.Compare(y.commit(), x.commit()) })
	a.base = by[0].base
	for _, m := range by {
		if m.base.Index < a.base.Index {
			a.base = m.base // a member that was installed does not have the beginning
		}
		if m.last() < m.commit() {
			a.find("I4", m.name, "state is at index %d, commit at %d, the log ends at %d", m.applied.Index, m.hs.GetCommit(), m.last())
		}
	}
	for i := a.base.Index + 1; i <= by[0].commit(); i++ {
		var e *pb.Entry
		for _, m := range by {
			have := m.at(i)
			switch {
			case have == nil || i > m.commit():
			case e == nil:
				e = have
			case e != have: // entries are interned
				a.find("I2", m.name, "index %d is committed as term %d, elsewhere as term %d or with other content", i, have.GetTerm(), e.GetTerm())
			}
		}
		if e == nil {
			a.find("I4", "", "index %d is committed and in no log", i)
			break
		}
		a.log = append(a.log, e)
	}
	a.report.Entries = len(a.log)
	for _, m := range a.members {
		e := m.at(m.applied.Index)
		switch {
		case m.applied == m.base:
		case e == nil:
			a.find("I4", m.name, "state is at %s, which its log does not have: it ends at %d", m.applied, m.last())
		case e.GetTerm() != m.applied.Term:
			a.find("I4", m.name, "state is at %s, its log has term %d there", m.applied, e.GetTerm())
		}
		if m.genesis.ClusterID() != by[0].genesis.ClusterID() {
			a.find("I1", m.name, "it was born by another genesis than %s", by[0].name)
		}
	}
}
