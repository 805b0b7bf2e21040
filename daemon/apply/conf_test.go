package apply

import (
	"fmt"
	"io"
	"log"
	"testing"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/membership"
)

// nextConf decides as raft does: the same configuration, and a refusal where raft would panic.
func TestNextConf_IsRafts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		conf := &pb.ConfState{Voters: []uint64{1, 2, 3}}
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			var change pb.ConfChangeV2
			if err := proto.Unmarshal(drawConfChange(t, membership.Roster{NextID: 1}), &change); err != nil {
				t.Fatal(err)
			}
			change.Transition = pb.ConfChangeTransition(rapid.IntRange(0, 2).Draw(t, "transition")).Enum()
			want, err := raftConf(conf, &change)
			got, refused := nextConf(conf, &change)
			if (refused != nil) != (err != nil) {
				t.Fatalf("%v after %v: refused %v, raft says %v", &change, conf, refused, err)
			}
			if refused != nil {
				continue
			}
			if err := got.Equivalent(want); err != nil {
				t.Fatalf("%v after %v: %v", &change, conf, err)
			}
			conf = got
		}
	})
}

// raftConf asks a raft node that was started with conf.
func raftConf(conf *pb.ConfState, change *pb.ConfChangeV2) (next *pb.ConfState, err error) {
	storage := raft.NewMemoryStorage()
	snapshot := &pb.Snapshot{Metadata: &pb.SnapshotMetadata{ConfState: conf, Index: proto.Uint64(1), Term: proto.Uint64(1)}}
	if err := storage.ApplySnapshot(snapshot); err != nil {
		return nil, err
	}
	node, err := raft.NewRawNode(&raft.Config{
		ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: storage, MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 1,
		Logger: &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)},
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return node.ApplyConfChange(change), nil
}

func TestNextConf_RefusesUnknownTransition(t *testing.T) {
	t.Parallel()
	change := &pb.ConfChangeV2{Transition: pb.ConfChangeTransition(7).Enum()}
	if _, err := nextConf(&pb.ConfState{Voters: []uint64{1}}, change); err == nil || err.Error() != "unknown transition 7" {
		t.Errorf("nextConf = %v", err)
	}
}

func confEntry(t testing.TB, index uint64, cc pb.ConfChangeI) *pb.Entry {
	t.Helper()
	typ, data, err := pb.MarshalConfChange(cc)
	if err != nil {
		t.Fatal(err)
	}
	e := entry(index, data)
	e.Type = &typ
	return e
}

func single(typ pb.ConfChangeType, id uint64) *pb.ConfChangeSingle {
	return &pb.ConfChangeSingle{Type: &typ, NodeId: &id}
}

// The life of a replacement: a learner joins, takes the place of a voter in one joint change, and
// raft leaves the joint state by its own empty entry. Roster and configuration move together.
func TestMachine_ConfChangesCarryTheRoster(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	defer g.close()
	roster := genesis().Roster()
	version := func(v uint64) []byte {
		roster.Version = v
		return roster.Encode()
	}
	learner := &pb.ConfChange{Type: pb.ConfChangeAddLearnerNode.Enum(), NodeId: proto.Uint64(4), Context: version(2)}
	swap := &pb.ConfChangeV2{
		Changes: []*pb.ConfChangeSingle{single(pb.ConfChangeAddNode, 4), single(pb.ConfChangeRemoveNode, 1)},
		Context: version(3),
	}
	stale := &pb.ConfChangeV2{Changes: []*pb.ConfChangeSingle{single(pb.ConfChangeAddLearnerNode, 5)}, Context: version(2)}
	everyone := &pb.ConfChangeV2{
		Changes: []*pb.ConfChangeSingle{single(pb.ConfChangeRemoveNode, 1), single(pb.ConfChangeRemoveNode, 2), single(pb.ConfChangeRemoveNode, 3)},
		Context: version(3),
	}
	run := &Run{Entries: []*pb.Entry{
		confEntry(t, 2, nil), // leave-joint outside a joint state
		confEntry(t, 3, learner),
		confEntry(t, 4, stale),
		confEntry(t, 5, everyone),
		confEntry(t, 6, swap),
		confEntry(t, 7, nil),
	}}
	if err := g.m.Apply([]*Run{run}); err != nil {
		t.Fatal(err)
	}
	want := []struct {
		conf    *pb.ConfState
		refused string
	}{
		{&pb.ConfState{Voters: []uint64{1, 2, 3}}, "can't leave a non-joint config"},
		{&pb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}}, ""},
		{&pb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}}, "roster version 2 does not follow 2"},
		{&pb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}}, "removed all voters"},
		{&pb.ConfState{Voters: []uint64{2, 3, 4}, VotersOutgoing: []uint64{1, 2, 3}, AutoLeave: proto.Bool(true)}, ""},
		{&pb.ConfState{Voters: []uint64{2, 3, 4}}, ""},
	}
	for i, w := range want {
		c := run.Conf[i]
		if c.Index != uint64(i)+2 || c.Detail != w.refused || c.Refused != (w.refused != "") {
			t.Errorf("change %d = %+v, want refused %q", i, c, w.refused)
		}
		if err := c.State.Equivalent(w.conf); err != nil {
			t.Errorf("change %d: %v", i, err)
		}
	}
	if run.Roster == nil || run.Roster.Version != 3 {
		t.Errorf("roster %+v, want version 3", run.Roster)
	}
	if err := g.store.Position().Conf.Equivalent(want[5].conf); err != nil {
		t.Errorf("stored: %v", err)
	}
	if run.Outcomes[0] != nil || len(run.Outcomes) != 6 {
		t.Errorf("outcomes %v, want six times none", run.Outcomes)
	}
}
