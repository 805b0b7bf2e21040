package replica

import (
	"cmp"
	"context"
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
)

// Result is what is known of a write.
type Result struct {
	ID ident.EntryID
	// Ack is what was reached, at least what was asked for. With AckLeader nothing else is known yet:
	// Outcome is zero, and the write may still be lost with this member.
	Ack     consensus.Ack
	Outcome command.Outcome

	// Replicated are the other members whose durable log is known to cover the write, sorted. Shared
	// with other results: read-only.
	Replicated []ident.MemberID
}

// Write proposes data, one write encoded by command.EncodeWrite, and returns when it is applied
// here. It must not be changed afterwards. Writes that wait together share an entry.
//
// Nothing happened: *TooLargeError, the errors of command.CheckWrite, *NotLeaderError,
// *OverloadedError, *DiskFullError, *NotProposedError, ErrLost, ErrClosed, *FailedError. It may have
// happened or still happen: *UnknownOutcomeError.
func (r *Replica) Write(ctx context.Context, data []byte) (Result, error) {
	if ctx.Err() != nil {
		return Result{}, &NotProposedError{Cause: context.Cause(ctx)}
	}
	w, err := r.admit(data, consensus.AckQuorum)
	if err != nil {
		return Result{}, err
	}
	return r.await(ctx, w)
}

// Begin is the first half of a Write that is answered as ack says: writes that were begun one after
// the other are put into the log in this order. wait is the other half, to be called once or never;
// an error of Begin says that nothing happened.
func (r *Replica) Begin(data []byte, ack consensus.Ack) (wait func(context.Context) (Result, error), err error) {
	w, err := r.admit(data, ack)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (Result, error) { return r.await(ctx, w) }, nil
}

// admit queues data, or says why nothing happened.
func (r *Replica) admit(data []byte, ack consensus.Ack) (*write, error) {
	if limit := r.opts.Limits.EntryBytes - entryOverhead; len(data) > limit {
		return nil, &TooLargeError{Bytes: len(data), Limit: limit}
	}
	// An entry that cannot be applied would stop every member for good: this is the last door.
	if err := command.CheckWrite(data); err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	if err := cmp.Or(r.leads(), r.full()); err != nil {
		return nil, err
	}
	w := r.writes.Get().(*write)
	w.data, w.ack = data, ack
	wake, err := r.queue.admit(w)
	if err != nil {
		r.recycle(w)
		return nil, err
	}
	if wake {
		poke(r.wake)
	}
	return w, nil
}

// await returns what became of w, which was admitted.
func (r *Replica) await(ctx context.Context, w *write) (Result, error) {
	select {
	case <-w.done:
	case <-ctx.Done():
		if r.queue.abandon(w) {
			r.recycle(w)
			return Result{}, &NotProposedError{Cause: context.Cause(ctx)}
		}
		select {
		case <-w.done: // the answer came too
		default:
			return Result{}, &UnknownOutcomeError{Cause: context.Cause(ctx)} // w is the loop's for ever
		}
	}
	res, err := w.result, w.err
	r.recycle(w)
	return res, err
}

// leads returns nil if this replica takes writes as far as it knows; the loop has the last word.
func (r *Replica) leads() error {
	if f := r.failed.Load(); f != nil {
		return f
	}
	if role := r.role.Load(); role.State != raft.StateLeader {
		return &NotLeaderError{Term: role.Term, Leader: role.Leader}
	}
	return nil
}

func (r *Replica) recycle(w *write) {
	w.data, w.ack, w.result, w.err = nil, consensus.AckQuorum, Result{}, nil
	r.writes.Put(w)
}

// Change is one entry proposed by itself, which waits for its outcome.
type Change struct {
	write *write
	conf  *pb.ConfChangeV2 // nil: write.data is the payload
}

// Done delivers once, when the outcome is known. It may never: only its caller's patience ends then.
func (c *Change) Done() <-chan struct{} { return c.write.done }

// Result is the outcome, as of Propose. REQUIRES: Done has delivered.
func (c *Change) Result() (ident.EntryID, error) { return c.write.result.ID, c.write.err }

// Propose proposes one entry by itself, for what is not a client's write: payload, or a membership
// change whose context is a roster. It returns when the entry is applied here; errors as of Write,
// and ErrChangeInProgress and *ChangeRefusedError.
func (r *Replica) Propose(ctx context.Context, payload []byte, conf *pb.ConfChangeV2) (ident.EntryID, error) {
	if err := r.waiters.enter(); err != nil {
		return ident.EntryID{}, err
	}
	defer r.waiters.leave()
	c, err := r.BeginPropose(payload, conf)
	if err != nil {
		return ident.EntryID{}, err
	}
	select {
	case <-c.Done():
		return c.Result()
	case <-ctx.Done():
		return ident.EntryID{}, &UnknownOutcomeError{Cause: context.Cause(ctx)}
	}
}

// BeginPropose is the first half of Propose, for one that has few of them under way: nobody is counted.
// An error says that nothing happened.
func (r *Replica) BeginPropose(payload []byte, conf *pb.ConfChangeV2) (*Change, error) {
	if err := checkProposal(payload, conf); err != nil {
		return nil, fmt.Errorf("propose: %w", err)
	}
	if err := r.leads(); err != nil {
		return nil, err
	}
	if f := r.stateless.Load(); f != nil {
		return nil, f
	}
	c := &Change{write: &write{data: payload, done: make(chan struct{}, 1)}, conf: conf}
	if !r.inbox.put(c) {
		return nil, r.cause()
	}
	return c, nil
}

// checkProposal returns an error if every member would fail to apply the entry.
func checkProposal(payload []byte, conf *pb.ConfChangeV2) error {
	if conf == nil {
		_, err := command.Decode(payload)
		return err
	}
	if len(conf.GetContext()) == 0 {
		return nil
	}
	_, err := membership.DecodeRoster(conf.GetContext())
	return err
}
