package member

import (
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/peer"
)

// An old copy of a disk that hears the others before they have seen what it holds stays as it was found, so
// that they still know it at its next start.
func TestDeliver_WaitsForTheOwnHello(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3")
	l.write()
	victim := l.node("n3")
	if l.leader() == victim {
		victim = l.node("n2")
	}
	l.run(time.Second)
	victim.stop()
	old := victim.fs.Clone()
	victim.start()
	was := victim.dir.Vote(0).Term
	for range 2 { // what it promises from here on, the old copy does not hold
		leader := l.leader()
		l.isolate(leader, true)
		l.until("another leader", func() bool { n := l.leading(); return n != leader })
		l.isolate(leader, false)
		l.write()
	}
	l.run(2 * time.Second)
	later := victim.dir.Vote(0).Term
	if later <= was {
		t.Fatalf("the term of %s is %d, was %d", victim.name, later, was)
	}

	victim.stop()
	victim.fs, victim.mute = old, true
	victim.start()
	l.run(3 * time.Second)
	if now, g := victim.dir.Vote(0).Term, victim.m.current(0); now != was || g.quarantine != nil {
		t.Errorf("before anybody took its hello the old copy, found in term %d, is in term %d; quarantine %+v", was, now, g.quarantine)
	}
	victim.stop()
	victim.mute = false
	victim.start()
	l.until("the old copy is refused", func() bool {
		g := victim.m.current(0)
		return g != nil && g.quarantine != nil && g.quarantine.Cause == CauseAmnesia
	})
}

// Two members that start together hear what the other sent before its hello was taken: the newest of it.
func TestHearing(t *testing.T) {
	t.Parallel()
	var h hearing
	msg := func(i uint64, bytes int) *pb.Message {
		return &pb.Message{Index: proto.Uint64(i), Entries: []*pb.Entry{{Data: make([]byte, bytes)}}}
	}
	indexes := func(id ident.MemberID) (all []uint64) {
		for _, x := range h.accept(id) {
			all = append(all, x.msg.GetIndex())
		}
		return all
	}
	for i := range uint64(2 * heldMessages) {
		if h.admits(2, 0, []*pb.Message{msg(i, 0)}) {
			t.Fatal("heard before the hello was taken")
		}
	}
	if got := indexes(2); len(got) != heldMessages || got[0] != heldMessages || got[heldMessages-1] != 2*heldMessages-1 {
		t.Errorf("%d messages waited, %v, want the newest %d in order", len(got), got, heldMessages)
	}
	if !h.admits(2, 0, []*pb.Message{msg(1, 0)}) || h.admits(3, 0, []*pb.Message{msg(1, 0)}) {
		t.Error("who took the hello is heard, and nobody else")
	}
	h.admits(3, 0, []*pb.Message{msg(2, heldBytes/2), msg(3, heldBytes/2), msg(4, heldBytes/4)})
	if got := indexes(3); len(got) != 2 || got[0] != 3 {
		t.Errorf("%v waited, want 3 and 4: not more than %d bytes", got, heldBytes)
	}
	h.admits(4, 0, []*pb.Message{msg(1, 2*heldBytes)})
	if got := indexes(4); got != nil {
		t.Errorf("%v waited, want nothing of that size", got)
	}
	if h.forget(); h.admits(2, 0, nil) {
		t.Error("heard under an id that the peer was not asked for")
	}
}

// What is remembered of members goes with them: a process may live through any number of them.
func TestApplyRoster_ForgetsWhoIsRemoved(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3")
	leader := l.leader()
	gone := l.other(leader)
	id := gone.id()
	leader.m.PeerClock(id, peer.Clock{})
	remembered := func() []bool {
		m := leader.m
		_, clock := m.mu.clocks[id]
		return []bool{m.mu.connected[id], clock, m.hearing.accepted[id]}
	}
	if got := remembered(); slices.Contains(got, false) {
		t.Fatalf("a member is not remembered: %v", got)
	}
	v := l.do(func(m *Member) (*Verb, error) { return m.BeginRemove(gone.name, RemoveOptions{}) })
	if _, err := v.Change(); err != nil {
		t.Fatal(err)
	}
	l.run(2 * time.Second)
	if got := remembered(); slices.Contains(got, true) {
		t.Errorf("who is removed is remembered: %v", got)
	}
}
