package replica_test

import (
	"errors"
	"testing"

	"github.com/tidaldb/tidal/daemon/replica"
)

// A barrier is given by a leader that has committed in its term, covers everything in its log, and is
// given to nobody who has spoken in a later term.
func TestBarrier(t *testing.T) {
	g := three(t)
	leader := leads(t, g.replicas...)
	res, err := leader.Write(deadline(t), signal("a"))
	if err != nil {
		t.Fatal(err)
	}
	term := leader.Status().Term
	for _, mine := range []uint64{1, term} {
		if b, err := leader.Barrier(deadline(t), mine); err != nil || b.Term != term || b.Index < res.ID.Index {
			t.Errorf("Barrier(%d) = %s, %v, want term %d and at least index %d", mine, b, err, term, res.ID.Index)
		}
	}
	refused := func(what string, r *replica.Replica, mine uint64) {
		t.Helper()
		if b, err := r.Barrier(deadline(t), mine); !errors.As(err, new(*replica.NotLeaderError)) {
			t.Errorf("%s: Barrier = %s, %v, want a *NotLeaderError", what, b, err)
		}
	}
	refused("of a lower term", leader, term+1)
	for _, f := range g.others(leader) {
		refused("of a follower", f, 1)
	}
	if err := leader.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := leader.Barrier(deadline(t), 1); err == nil {
		t.Errorf("of a closed replica: %s", b)
	}
}
