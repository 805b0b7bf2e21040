package consensus_test

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
)

// logOf makes a log that begins after base and has entries of the given terms.
func logOf(base ident.EntryID, terms ...uint64) *memLog {
	l := &memLog{base: base}
	for i, term := range terms {
		l.ents = append(l.ents, &pb.Entry{Term: proto.Uint64(term), Index: proto.Uint64(base.Index + uint64(i) + 1)})
	}
	return l
}

func hardState(term, commit uint64) *pb.HardState {
	return &pb.HardState{Term: proto.Uint64(term), Vote: proto.Uint64(0), Commit: proto.Uint64(commit)}
}

// A log and a state that do not belong together are found out before raft panics on them.
func TestNew_RefusesWhatDoesNotBelongTogether(t *testing.T) {
	id := func(term, index uint64) ident.EntryID { return ident.EntryID{Term: term, Index: index} }
	for _, tc := range []struct {
		name    string
		log     *memLog
		hs      *pb.HardState
		applied ident.EntryID
		voters  []uint64
		want    string // of BootError; "" opens
	}{
		{name: "state at the log's base", log: logOf(id(2, 5)), hs: hardState(2, 5), applied: id(2, 5), voters: []uint64{1}},
		{name: "state ahead of commit", log: logOf(id(2, 5), 2, 3, 3), hs: hardState(3, 5), applied: id(3, 8), voters: []uint64{1}},
		{name: "state behind commit", log: logOf(id(2, 5), 2, 3, 3), hs: hardState(3, 8), applied: id(2, 6), voters: []uint64{1}},
		{name: "no voter", log: logOf(id(2, 5)), hs: hardState(2, 5), applied: id(2, 5),
			want: "no voter in the configuration"},
		{name: "hole", log: logOf(id(2, 5), 2), hs: hardState(2, 5), applied: id(2, 4), voters: []uint64{1},
			want: "entries between state and log are missing"},
		{name: "log behind state", log: logOf(id(2, 5), 2), hs: hardState(2, 5), applied: id(2, 7), voters: []uint64{1},
			want: "log ends before what state has applied"},
		{name: "log behind commit", log: logOf(id(2, 5), 2), hs: hardState(2, 7), applied: id(2, 5), voters: []uint64{1},
			want: "log ends before what is committed"},
		{name: "another history", log: logOf(id(2, 5), 2, 4), hs: hardState(4, 5), applied: id(3, 7), voters: []uint64{1},
			want: "the log has term 4 at the applied index"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := consensus.New(consensus.Options{
				ID: 1, Log: tc.log, HardState: tc.hs, Applied: tc.applied, Conf: &pb.ConfState{Voters: tc.voters},
			})
			if tc.want == "" {
				if err != nil {
					t.Fatalf("New: %v", err)
				}
				if s := m.Status(); s.Commit < s.Applied || s.Applied != tc.applied.Index {
					t.Errorf("Status() = %+v, want applied %d and commit not below", s, tc.applied.Index)
				}
				return
			}
			boot, ok := errors.AsType[*consensus.BootError](err)
			if !ok || boot.Detail != tc.want {
				t.Errorf("New: %v, want a BootError %q", err, tc.want)
			}
		})
	}
}

// brokenLog cannot be read once err is set.
type brokenLog struct {
	*memLog
	err error
}

func (l brokenLog) Entries(lo, hi, maxBytes uint64) ([]*pb.Entry, error) {
	if l.err != nil {
		return nil, l.err
	}
	return l.memLog.Entries(lo, hi, maxBytes)
}

// raft panics when its Storage fails. The machine says it with the cause, and does nothing more.
func TestStep_TurnsRaftsPanicIntoFatal(t *testing.T) {
	broken := errors.New("checksum of frame 3")
	m, err := consensus.New(consensus.Options{
		ID: 1, Log: brokenLog{logOf(ident.EntryID{Term: 2, Index: 5}, 2, 3, 3), broken},
		HardState: hardState(3, 8), Applied: ident.EntryID{Term: 2, Index: 5}, Conf: &pb.ConfState{Voters: []uint64{1, 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		fx := m.Step(consensus.Input{Tick: true}) // the committed entries are to be applied
		fatal, ok := errors.AsType[*consensus.FatalError](fx.Fatal)
		if !ok || !errors.Is(fatal, broken) || fatal.Commit != 8 || len(fatal.Stack) == 0 {
			t.Fatalf("Step(tick).Fatal = %v, want a FatalError at commit 8 caused by %q", fx.Fatal, broken)
		}
		if len(fx.Append)+len(fx.Send)+len(fx.Apply)+len(fx.Answer) > 0 || fx.Role != nil {
			t.Errorf("Step(tick) = %+v, want nothing beside Fatal", fx)
		}
	}
	if s := m.Status(); s.Applied != 5 {
		t.Errorf("Status() = %+v, want where the machine stood", s)
	}
}

// A log that cannot be read is not taken for one that was compacted, and is told from a mistake of ours.
func TestStep_ALogThatCannotBeReadIsFatal(t *testing.T) {
	broken := errors.New("checksum of frame 3")
	log := &brokenLog{memLog: logOf(ident.EntryID{Term: 2, Index: 5}, 2, 3, 3)}
	m, err := consensus.New(consensus.Options{
		ID: 1, Log: log, HardState: hardState(3, 8), Applied: ident.EntryID{Term: 3, Index: 8},
		Conf: &pb.ConfState{Voters: []uint64{1, 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	step := func(in consensus.Input) consensus.Effects {
		fx := m.Step(in)
		for queue := fx.Append; len(queue) > 0; queue = queue[1:] {
			log.write(queue[0])
			if fx := m.Step(consensus.Input{Appended: queue[0]}); fx.Fatal != nil {
				return fx
			}
		}
		return fx
	}
	from2 := func(kind pb.MessageType, msg *pb.Message) consensus.Effects {
		msg.Type, msg.From, msg.To, msg.Term = kind.Enum(), proto.Uint64(2), proto.Uint64(1), proto.Uint64(4)
		return step(consensus.Input{Receive: msg})
	}
	step(consensus.Input{Campaign: true})
	from2(pb.MsgPreVoteResp, &pb.Message{})
	from2(pb.MsgVoteResp, &pb.Message{})
	if s := m.Status(); s.State != raft.StateLeader {
		t.Fatalf("Status() = %+v, want a leader", s)
	}
	log.err = broken
	fx := from2(pb.MsgAppResp, &pb.Message{ // it ends at entry 3/7
		Index: proto.Uint64(8), Reject: proto.Bool(true), RejectHint: proto.Uint64(7), LogTerm: proto.Uint64(3),
	})
	if read, ok := errors.AsType[*consensus.LogError](fx.Fatal); !ok || !errors.Is(read, broken) {
		t.Fatalf("Step(reject).Fatal = %v, want a LogError caused by %q", fx.Fatal, broken)
	}
	if len(fx.Send)+len(fx.Stage) > 0 {
		t.Errorf("Step(reject) = %+v, want nothing beside Fatal", fx)
	}
}

// A write costs the machine the same however many wait.
func BenchmarkStep_Write(b *testing.B) {
	log := logOf(ident.EntryID{Term: 1, Index: 1})
	m, err := consensus.New(consensus.Options{
		ID: 1, Log: log, HardState: hardState(1, 1), Applied: log.base, Conf: &pb.ConfState{Voters: []uint64{1}},
	})
	if err != nil {
		b.Fatal(err)
	}
	var todo []consensus.Input
	step := func(in consensus.Input) {
		fx := m.Step(in)
		if fx.Fatal != nil {
			b.Fatal(fx.Fatal)
		}
		for _, a := range fx.Append {
			todo = append(todo, consensus.Input{Appended: a})
		}
		for _, a := range fx.Apply {
			todo = append(todo, consensus.Input{Applied: a})
		}
	}
	run := func() {
		for len(todo) > 0 {
			in := todo[0]
			todo = todo[1:]
			step(in)
		}
	}
	for m.Status().Leader == 0 {
		step(consensus.Input{Tick: true})
		run()
	}
	data := make([]byte, 256)
	token := consensus.Token(0)
	b.ReportAllocs()
	for b.Loop() {
		token++
		step(consensus.Input{Propose: &consensus.Proposal{Token: token, Data: data}})
		run()
	}
}
