package replica_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/replica"
)

// another returns a member that is not r.
func another(g *group, r *replica.Replica) ident.MemberID {
	if r == g.replicas[0] {
		return 2
	}
	return 1
}

func TestTransferLeader_ReturnsWhenTheTargetLeads(t *testing.T) {
	g := three(t)
	old := leads(t, g.replicas...)
	to := another(g, old)
	h, err := old.TransferLeader(deadline(t), to)
	if err != nil {
		t.Fatal(err)
	}
	if h.Term < 3 || h.Pause <= 0 || h.Pause > 20*time.Second {
		t.Errorf("handed over: %+v", h)
	}
	// A busy machine may bring another election at any time: who leads now says the rest.
	eventually(t, "write", func() bool {
		_, err := leads(t, g.replicas...).Write(deadline(t), signal("a"))
		return err == nil
	})
	eventually(t, "answer", func() bool {
		next := leads(t, g.replicas...)
		self := next.Status().Leader
		_, err := g.others(next)[0].TransferLeader(t.Context(), self)
		h, same := next.TransferLeader(t.Context(), self)
		_, nobody := next.TransferLeader(t.Context(), 9)
		return errors.As(err, new(*replica.NotLeaderError)) && same == nil && h.Pause == 0 && errors.Is(nobody, replica.ErrNoTarget)
	})
}

// stall makes a member's disk stand still until the returned function is called, at the latest when the
// test ends.
func (g *group) stall(t *testing.T, id ident.MemberID) (resume func()) {
	g.disks[id].appends.shut()
	resume = sync.OnceFunc(g.disks[id].appends.open)
	t.Cleanup(resume)
	return resume
}

// Writes that come while leadership moves wait: they succeed here when it does not arrive, and learn of
// the new leader when it does.
func TestTransferLeader_HoldsWrites(t *testing.T) {
	g := three(t)
	old := leads(t, g.replicas...)
	to := another(g, old)
	resume := g.stall(t, to) // it lags: it cannot take over before it has caught up
	if _, err := old.Write(deadline(t), signal("before")); err != nil {
		t.Fatal(err)
	}
	moved := make(chan error, 1)
	go func() {
		_, err := old.TransferLeader(context.WithoutCancel(t.Context()), to)
		moved <- err
	}()
	eventually(t, "transfer", func() bool { return old.Status().Transferee == to })
	if _, err := old.TransferLeader(t.Context(), to); !errors.Is(err, replica.ErrTransferInProgress) {
		t.Errorf("a second transfer: %v, want in progress", err)
	}
	held := write(t.Context(), old, "held")
	err := <-moved
	e, ok := errors.AsType[*replica.TransferError](err)
	if !ok || !errors.Is(err, replica.ErrBehind) || e.Told || e.Pause <= 0 {
		t.Errorf("transfer to a member that lags: %+v, want that it stayed behind", err)
	}
	if got := <-held; got.err != nil {
		t.Errorf("the write that was held: %v", got.err)
	}
	resume()
	if _, err := old.TransferLeader(deadline(t), to); err != nil {
		t.Errorf("once it caught up: %v", err)
	}
}

// hashicorp/raft#696: a transfer to a member that lags, cut short by the loss of leadership, left the
// leader refusing proposals when it was elected again.
func TestTransferLeader_CutShortLeavesNothingBehind(t *testing.T) {
	g := three(t)
	old := leads(t, g.replicas...)
	self, to := old.Status().Leader, another(g, old)
	resume := g.stall(t, to)
	if _, err := old.Write(deadline(t), signal("before")); err != nil {
		t.Fatal(err)
	}
	moved := make(chan error, 1)
	go func() {
		_, err := old.TransferLeader(context.WithoutCancel(t.Context()), to)
		moved <- err
	}()
	eventually(t, "transfer", func() bool { return old.Status().Transferee == to })
	g.net.isolate(self, true)
	eventually(t, "step-down", func() bool { return old.Status().State != raft.StateLeader })
	resume()
	next := leads(t, g.others(old)...)
	g.net.isolate(self, false)
	if err := <-moved; err == nil && next.Status().Leader != to {
		t.Errorf("the transfer is said to have arrived at %s, %s leads", to, next.Status().Leader)
	}
	eventually(t, "return", func() bool { // with whatever elections the others have meanwhile
		now := leads(t, g.replicas...)
		if now == old {
			return true
		}
		_, _ = now.TransferLeader(deadline(t), self)
		return old.Status().State == raft.StateLeader
	})
	eventually(t, "write", func() bool {
		_, err := leads(t, g.replicas...).Write(deadline(t), signal("after"))
		return err == nil
	})
}

func TestTransferLeader_EndsWithItsCaller(t *testing.T) {
	g := three(t)
	old := leads(t, g.replicas...)
	to := another(g, old)
	g.stall(t, to)
	if _, err := old.Write(deadline(t), signal("before")); err != nil {
		t.Fatal(err)
	}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := old.TransferLeader(ctx, to); !errors.Is(err, why) {
		t.Errorf("TransferLeader = %v, want %v", err, why)
	}
	if s := old.Status(); s.State != raft.StateLeader || s.Transferee != 0 {
		t.Errorf("after it was called off: %+v", s.Role)
	}
	if _, err := old.Write(deadline(t), signal("after")); err != nil {
		t.Errorf("write after a transfer that was called off: %v", err)
	}
}
