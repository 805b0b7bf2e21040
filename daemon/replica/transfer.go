package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
)

// ErrTransferInProgress: leadership is moving already. Nothing was begun.
var ErrTransferInProgress = errors.New("leadership is being transferred already")

// ErrNoTarget: raft does not hand leadership to that member: it is no voter. Nothing changed.
var ErrNoTarget = errors.New("the member is no voter")

// ErrBehind: the member did not catch up within an election timeout, and was not told to stand.
// Nothing changed.
var ErrBehind = errors.New("the member did not catch up in time")

// Handover is a transfer of leadership that arrived.
type Handover struct {
	Term uint64 // that the new leader leads
	// Pause is how long nobody took writes: from the moment this replica began to hold them until it
	// knew the new leader, which took them a message earlier.
	Pause time.Duration
}

// TransferError says that a transfer of leadership did not arrive.
type TransferError struct {
	To ident.MemberID
	// Leader and Term are who leads now, as far as this replica knows; 0: nobody.
	Leader ident.MemberID
	Term   uint64
	// Told says that To was told to stand for leader, so that it may lead yet. Without it nothing
	// changed by this transfer, and nothing will.
	Told  bool
	Pause time.Duration // how long writes were held, at most an election timeout
	Cause error
}

func (e *TransferError) Error() string {
	return fmt.Sprintf("transfer of leadership to member %s: %v", e.To, e.Cause)
}

func (e *TransferError) Unwrap() error { return e.Cause }

// transfer is one call of TransferLeader. The loop owns it from the inbox on until done is closed.
type transfer struct {
	to    ident.MemberID
	term  uint64    // that this replica led when it began
	began time.Time // writes are held since
	held  time.Duration
	told  bool // MsgTimeoutNow left

	done     chan struct{} // closed when the rest is set
	handover Handover
	err      error
}

// endTransfer is what a caller of TransferLeader puts into the inbox that has waited long enough.
type endTransfer struct {
	t     *transfer
	cause error
}

// TransferLeader hands leadership to a voter and returns when it is known to lead. Writes that come
// meanwhile are held, not refused: for an election timeout at most, after which this replica goes on
// leading. When ctx ends, the transfer is called off.
//
// Nothing changed: *NotLeaderError, ErrTransferInProgress, ErrNoTarget, a *TransferError without
// Told, ErrClosed, *FailedError. Otherwise a *TransferError says who leads, if anybody.
func (r *Replica) TransferLeader(ctx context.Context, to ident.MemberID) (Handover, error) {
	t := &transfer{to: to, done: make(chan struct{})}
	if !r.inbox.put(t) {
		return Handover{}, r.cause()
	}
	select {
	case <-t.done:
	case <-ctx.Done():
		r.inbox.put(endTransfer{t, context.Cause(ctx)})
		<-t.done
	}
	return t.handover, t.err
}

// settle answers the caller of t.
func (t *transfer) settle(err error) {
	t.err = err
	close(t.done)
}

// beginTransfer starts t.
func (r *Replica) beginTransfer(t *transfer) {
	role := r.role.Load()
	switch err := r.leads(); {
	case err != nil:
		t.settle(err)
		return
	case t.to == r.opts.Self:
		t.handover.Term = role.Term
		t.settle(nil)
		return
	case r.loop.transfer != nil || r.loop.machine.Transferee() != 0:
		t.settle(ErrTransferInProgress)
		return
	}
	t.term, t.began = role.Term, time.Now()
	r.loop.transfer = t
	r.step(consensus.Input{Transfer: t.to})
	if r.loop.machine.Transferee() == 0 && r.loop.transfer == t && r.leads() == nil {
		r.endTransfer(t, ErrNoTarget)
	}
}

// noteTold keeps whether the target was told to stand.
func (r *Replica) noteTold(sent []*pb.Message) {
	for _, m := range sent {
		if m.GetType() == pb.MsgTimeoutNow {
			r.loop.transfer.told = true
		}
	}
}

// watchTransfer settles the transfer that is under way once its end is known.
func (r *Replica) watchTransfer() {
	t := r.loop.transfer
	if t == nil {
		return
	}
	role := r.role.Load()
	leads := role.State == raft.StateLeader && role.Term == t.term
	holds := leads && r.loop.machine.Transferee() == t.to
	if !holds && t.held == 0 && (leads || role.Leader != 0) {
		t.held = time.Since(t.began)
	}
	switch {
	case r.failed.Load() != nil:
		r.endTransfer(t, r.cause())
	case leads && (holds || t.told): // raft called it off, but the target may have heard
	case leads:
		r.endTransfer(t, ErrBehind)
	case role.Leader == t.to:
		r.loop.transfer = nil
		t.handover = Handover{Term: role.Term, Pause: t.held}
		t.settle(nil)
	case role.Leader != 0:
		r.endTransfer(t, errors.New("another member leads"))
	}
}

// endTransfer settles t, unless that was done, and calls it off where it still holds up writes.
func (r *Replica) endTransfer(t *transfer, cause error) {
	if r.loop.transfer != t {
		return
	}
	r.loop.transfer = nil
	if !r.stopped() && r.loop.machine.Transferee() != 0 {
		r.step(consensus.Input{Transfer: r.opts.Self}) // raft's way to call a transfer off
	}
	if t.held == 0 {
		t.held = time.Since(t.began)
	}
	role := r.role.Load()
	t.settle(&TransferError{To: t.to, Leader: role.Leader, Term: role.Term, Told: t.told, Pause: t.held, Cause: cause})
}
