package replica

import (
	"context"
	"fmt"
	"sync"

	"github.com/tidaldb/tidal/daemon/consensus"
)

// waiters counts the callers that wait for anything but a write of theirs, and bounds them.
type waiters struct {
	limit int64 // bytes, waiterBytes a caller

	mu struct {
		sync.Mutex
		bytes int64
	}
}

// enter counts one caller in, or refuses it with an *OverloadedError. Whoever entered leaves.
func (w *waiters) enter() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.bytes+waiterBytes > w.limit {
		return &OverloadedError{Queue: QueueWaiters, Bytes: w.mu.bytes, Limit: w.limit, RetryAfter: retryAfter}
	}
	w.mu.bytes += waiterBytes
	return nil
}

func (w *waiters) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.bytes -= waiterBytes
}

// round is one read index that any number of callers share.
type round struct {
	done  chan struct{} // closed when index and err are set
	index uint64
	err   error
}

// reads gathers the callers of ReadIndex: one round is under way, at most one is gathering. A
// caller joins the one that gathers, never the one under way, because the index of that may be
// older than the caller. The machine asks again what was lost, so a round ends by its answer or by
// the end of the replica.
type reads struct {
	mu struct {
		sync.Mutex
		gathering *round
		closed    error // nil: open
	}

	// current is under way as token; nil: none. The loop owns both.
	current *round
	token   consensus.Token
}

// join returns the round that gathers. wake says that it is new, so that the loop must learn of it.
func (r *reads) join() (rd *round, wake bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed != nil {
		return nil, false, r.mu.closed
	}
	if wake = r.mu.gathering == nil; wake {
		r.mu.gathering = &round{done: make(chan struct{})}
	}
	return r.mu.gathering, wake, nil
}

// begin moves the gathering round under way if none is, and reports whether it did.
func (r *reads) begin() bool {
	if r.current != nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current, r.mu.gathering = r.mu.gathering, nil
	return r.current != nil
}

// answer ends the round under way.
func (r *reads) answer(index uint64) {
	r.current.index = index
	close(r.current.done)
	r.current = nil
}

// close ends both rounds and every later one with err. REQUIRES: the loop has ended, or never ran.
func (r *reads) close(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.closed = err
	for _, rd := range []*round{r.current, r.mu.gathering} {
		if rd != nil {
			rd.err = err
			close(rd.done)
		}
	}
	r.current, r.mu.gathering = nil, nil
}

// ReadIndex returns an index such that a read of state that has applied it sees every write
// acknowledged anywhere before the call. Callers that arrive together share one round to a quorum.
//
// Without a leader it waits for one until ctx ends, and then returns the cause of ctx. Other errors:
// *OverloadedError, ErrClosed, *FailedError.
func (r *Replica) ReadIndex(ctx context.Context) (uint64, error) {
	if err := r.waiters.enter(); err != nil {
		return 0, err
	}
	defer r.waiters.leave()
	rd, wake, err := r.reads.join()
	if err != nil {
		return 0, err
	}
	if wake {
		poke(r.wake)
	}
	select {
	case <-rd.done:
		return rd.index, rd.err
	case <-ctx.Done():
		return 0, fmt.Errorf("read index: %w", context.Cause(ctx))
	}
}

// appliedIndex is how far state has come, and who waits for it to come further.
type appliedIndex struct {
	mu struct {
		sync.Mutex
		index   uint64
		waiting map[*applyWaiter]struct{}
		closed  error // nil: open
	}
}

type applyWaiter struct {
	index uint64
	done  chan struct{} // closed when index is applied or the wait is over; err is set before
	err   error
}

// advance wakes everybody who waits for index or less.
func (a *appliedIndex) advance(index uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.index = index
	for w := range a.mu.waiting {
		if w.index <= index {
			delete(a.mu.waiting, w)
			close(w.done)
		}
	}
}

// wait returns nil if index is applied, else a waiter; or the reason of close.
func (a *appliedIndex) wait(index uint64) (*applyWaiter, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case index <= a.mu.index:
		return nil, nil
	case a.mu.closed != nil:
		return nil, a.mu.closed
	}
	w := &applyWaiter{index: index, done: make(chan struct{})}
	a.mu.waiting[w] = struct{}{}
	return w, nil
}

func (a *appliedIndex) drop(w *applyWaiter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.mu.waiting, w)
}

// close ends every wait, and every later one that would have to wait, with err.
func (a *appliedIndex) close(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.closed = err
	for w := range a.mu.waiting {
		w.err = err
		close(w.done)
	}
	clear(a.mu.waiting)
}

// get returns the highest index that state reflects.
func (a *appliedIndex) get() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.index
}

// WaitApplied returns when state here reflects index: every View taken afterwards does. It returns
// the cause of ctx, *OverloadedError, ErrClosed or *FailedError instead.
func (r *Replica) WaitApplied(ctx context.Context, index uint64) error {
	w, err := r.applied.wait(index)
	if w == nil {
		return err
	}
	defer r.applied.drop(w)
	if err := r.waiters.enter(); err != nil {
		return err
	}
	defer r.waiters.leave()
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return fmt.Errorf("wait for index %d to be applied: %w", index, context.Cause(ctx))
	}
}
