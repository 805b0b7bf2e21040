package member

import (
	"testing"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/peer"
)

// meanwhile is a consumer in whose source something happens once it has begun to send.
type meanwhile struct {
	labTransfer
	happens func()
}

func (m *meanwhile) Header(h peer.SnapshotHeader) error {
	m.happens()
	return m.labTransfer.Header(h)
}

// A replica that is found to be damaged serves nobody, also whom it serves already.
func TestFetchSnapshot_EndsWithAQuarantine(t *testing.T) {
	t.Parallel()
	l := newLone(t)
	l.write("i")
	ask := func(happens func()) {
		t.Helper()
		to := &meanwhile{happens: happens}
		err := l.FetchSnapshot(t.Context(), peer.SnapshotRequest{Hello: l.SelfHello(), Always: true}, to)
		if err == nil || len(to.chunks) > 0 {
			t.Errorf("%d chunks of a state that is divergent, %v", len(to.chunks), err)
		}
	}
	ask(func() { l.quarantine(l.sound(0), CauseDivergent, "its state is not that of the others", nil) })
	ask(func() { t.Error("it begins to send") })
	if c := l.quarantined(); c != CauseDivergent {
		t.Errorf("whoever reads is told of %q", c)
	}
}

// A transfer ends with the term that it began in: whoever leads then says what is needed.
func TestFetchSnapshot_EndsWithItsTerm(t *testing.T) {
	t.Parallel()
	l := newLone(t)
	l.write("i")
	r, err := l.Replica(0)
	if err != nil {
		t.Fatal(err)
	}
	term := r.Status().Term
	to := &meanwhile{happens: func() {
		r.Receive([]*pb.Message{{Type: pb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(term + 1)}})
		r.Drive().Turn()
	}}
	err = l.FetchSnapshot(t.Context(), peer.SnapshotRequest{Hello: l.SelfHello(), Always: true}, to)
	if s := r.Status(); s.Term != term+1 || s.State != raft.StateFollower {
		t.Fatalf("it is in term %d still: the test shows nothing", s.Term)
	}
	if err == nil || len(to.chunks) > 0 {
		t.Errorf("%d chunks in a later term, %v", len(to.chunks), err)
	}
}
