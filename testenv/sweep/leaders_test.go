package sweep

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/wal"
	"github.com/tidaldb/tidal/testenv/simfs"
)

// voter is the real machine on the real log, driven by hand. Its state is two variables that never
// reach the disk, so that a restart goes by the log alone.
type voter struct {
	id      ident.MemberID
	fs      *simfs.FS
	log     *wal.Log
	machine *consensus.Machine
	applied ident.EntryID
	conf    *pb.ConfState
}

// assembly is voters and the messages between them.
type assembly struct {
	t       *testing.T
	voters  map[ident.MemberID]*voter // running
	mail    []*pb.Message
	cut     map[ident.MemberID]int             // the part of the network a voter is in
	leaders map[uint64]map[ident.MemberID]bool // by term
}

var assemblyBirth = ident.EntryID{Term: 1, Index: 1}

func (a *assembly) create(id ident.MemberID, conf *pb.ConfState) *voter {
	fs := simfs.New()
	if err := wal.Create(logOptions(fs), assemblyBirth, nil); err != nil {
		a.t.Fatal(err)
	}
	return a.open(id, fs, conf)
}

// open starts a voter on what is on its disk; its state is that of its birth.
func (a *assembly) open(id ident.MemberID, fs *simfs.FS, conf *pb.ConfState) *voter {
	log, rec, err := wal.Open(logOptions(fs))
	if err != nil {
		a.t.Fatalf("voter %s: %v", id, err)
	}
	v := &voter{id: id, fs: fs, log: log, applied: assemblyBirth, conf: conf}
	v.machine, err = consensus.New(consensus.Options{ID: id, Log: log, HardState: rec.HardState, Applied: v.applied, Conf: conf})
	if err != nil {
		a.t.Fatalf("voter %s: %v", id, err)
	}
	a.voters[id] = v
	return v
}

// step carries out what an input leads to. A voter whose disk has no power any more is gone.
func (a *assembly) step(v *voter, in consensus.Input) {
	inputs := []consensus.Input{in}
	for len(inputs) > 0 && a.voters[v.id] == v {
		fx := v.machine.Step(inputs[0])
		inputs = inputs[1:]
		if fx.Fatal != nil {
			a.t.Fatalf("voter %s: %v", v.id, fx.Fatal)
		}
		for _, f := range fx.Append {
			if err := v.log.Append([]wal.Frame{{HardState: f.HardState, Entries: f.Entries}}, f.Sync()); err != nil {
				delete(a.voters, v.id)
				return
			}
			inputs = append(inputs, consensus.Input{Appended: f})
		}
		a.mail = append(a.mail, fx.Send...)
		for _, run := range fx.Apply {
			for _, e := range run.Entries {
				v.applied = ident.EntryID{Term: e.GetTerm(), Index: e.GetIndex()}
				if e.GetType() == pb.EntryConfChangeV2 {
					run.Conf = append(run.Conf, v.join(a.t, e))
				}
			}
			inputs = append(inputs, consensus.Input{Applied: run})
		}
		if fx.Role != nil && fx.Role.State == raft.StateLeader {
			if a.leaders[fx.Role.Term] == nil {
				a.leaders[fx.Role.Term] = map[ident.MemberID]bool{}
			}
			a.leaders[fx.Role.Term][v.id] = true
		}
	}
}

// join applies a change that adds one voter, the only kind there is here.
func (v *voter) join(t *testing.T, e *pb.Entry) consensus.ConfApplied {
	change := &pb.ConfChangeV2{}
	if err := proto.Unmarshal(e.GetData(), change); err != nil {
		t.Fatal(err)
	}
	v.conf = &pb.ConfState{Voters: append(slices.Clone(v.conf.GetVoters()), change.GetChanges()[0].GetNodeId())}
	return consensus.ConfApplied{Change: change, Want: v.conf}
}

// deliver carries messages until nobody has anything to say.
func (a *assembly) deliver() {
	for len(a.mail) > 0 {
		m := a.mail[0]
		a.mail = a.mail[1:]
		from, to := ident.MemberID(m.GetFrom()), ident.MemberID(m.GetTo())
		if v := a.voters[to]; v != nil && a.voters[from] != nil && a.cut[from] == a.cut[to] {
			a.step(v, consensus.Input{Receive: proto.Clone(m).(*pb.Message)})
		}
	}
}

// tick lets n ticks pass for some, with all their messages carried.
func (a *assembly) tick(n int, ids ...ident.MemberID) {
	for range n {
		for _, id := range ids {
			if v := a.voters[id]; v != nil {
				a.step(v, consensus.Input{Tick: true})
			}
		}
		a.deliver()
	}
}

// elections is enough ticks for one to be called and won.
const elections = 60

// secondLeader is the story of design 3.1. Voters 1, 2, 3; leader 1 adds 4 while 3 is away, then 5; 3
// hears of both changes in one message, which says that the first is committed, and loses power while
// that goes to its disk. The second change is committed without it. Then 2 and 3 cannot hear 1, 4
// and 5, and 1 starts again. A majority of five is 1, 4, 5. If what 3 kept are the changes and not
// the word that the first is committed, 2 and 3 are a majority of the three that it knows.
//
// It returns the terms that had two leaders, and whether the power went off.
func secondLeader(t *testing.T, cut int, class simfs.Crash, seed uint64) (terms []uint64, off bool) {
	three := &pb.ConfState{Voters: []uint64{1, 2, 3}}
	a := &assembly{t: t, voters: map[ident.MemberID]*voter{}, cut: map[ident.MemberID]int{}, leaders: map[uint64]map[ident.MemberID]bool{}}
	defer func() {
		for _, v := range a.voters {
			_ = v.log.Close()
		}
	}()
	for id := range ident.MemberID(3) {
		a.create(id+1, three)
	}
	a.tick(elections, 1)
	leader := a.voters[1]
	if leader.machine.Status().State != raft.StateLeader {
		t.Fatal("voter 1 does not lead")
	}
	add := func(id uint64) {
		a.step(leader, consensus.Input{Propose: &consensus.Proposal{Token: consensus.Token(id), Conf: &pb.ConfChangeV2{
			Changes: []*pb.ConfChangeSingle{{Type: pb.ConfChangeAddNode.Enum(), NodeId: &id}},
		}}})
		a.deliver()
	}
	a.cut[3] = 1
	a.create(4, three)
	add(4)
	a.tick(3, 1)
	if !slices.Contains(leader.conf.GetVoters(), 4) {
		t.Fatal("voter 4 was not added")
	}
	a.cut[2], a.cut[3] = 1, 0
	third := a.voters[3]
	third.fs.CutPowerAt(cut)
	a.create(5, three)
	add(5)
	a.tick(3, 1)
	off = third.fs.Off()
	a.cut[2] = 0
	a.tick(3, 1)
	if !slices.Contains(leader.conf.GetVoters(), 5) {
		t.Fatal("voter 5 was not added")
	}
	if !off {
		return nil, false
	}
	a.cut[2], a.cut[3] = 1, 1
	a.mail = nil
	_ = third.log.Close()
	a.open(3, third.fs.Crash(class, seed), three)
	fs := leader.fs
	_ = leader.log.Close()
	a.open(1, fs, three)
	a.tick(elections, 2, 3)
	a.tick(elections, 4, 1, 5)
	won := false
	for term, who := range a.leaders {
		won = won || term > leader.machine.Status().Term && (who[1] || who[4] || who[5])
	}
	if !won {
		t.Error("the majority of five elected nobody: the story proves nothing")
	}
	for term, who := range a.leaders {
		if len(who) > 1 {
			terms = append(terms, term)
		}
	}
	return terms, true
}

// An entry is never on the disk without the HardState that came with it: otherwise one term has two
// leaders (I1, I5).
func TestLeaders_OneATermAfterTwoQuickChanges(t *testing.T) {
	t.Parallel()
	sound, runs := 0, 0
	for cut := 1; ; cut++ {
		for _, class := range simfs.Crashes() {
			for seed := range uint64(2) {
				terms, off := secondLeader(t, cut, class, seed)
				if !off {
					report(t, "two quick changes: %d of %d stories have one leader a term", sound, runs)
					return
				}
				if runs++; len(terms) > 0 {
					t.Errorf("%s: two leaders in term %v", image{cut, class, seed}, terms)
					continue
				}
				sound++
			}
		}
	}
}
