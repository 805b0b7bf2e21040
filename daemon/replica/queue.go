package replica

import (
	"sync"
	"time"

	"github.com/tidaldb/tidal/daemon/consensus"
)

const (
	// waiterBytes is what a waiting caller costs beside its data, so that bounds in bytes also bound
	// the number of callers.
	waiterBytes = 256

	// retryAfter is what an OverloadedError advises: long enough for several batches.
	retryAfter = 100 * time.Millisecond
)

// write is one caller of Write or Propose that waits.
//
// The caller owns it before admit and after it received from done, or after abandon returned true.
// Between these the queue owns it, then the loop. A caller that leaves earlier forgets it.
type write struct {
	data []byte
	ack  consensus.Ack

	// done has capacity 1: exactly one answer is sent, and sending never blocks. result and err are
	// written before and read after.
	done   chan struct{}
	result Result
	err    error

	// next, prev and queued are guarded by the queue's mutex.
	next, prev *write
	queued     bool
}

func (w *write) size() int64 { return int64(len(w.data)) + waiterBytes }

// settle answers w. REQUIRES: w is no longer queued; called once.
func (w *write) settle(res Result, err error) {
	w.result, w.err = res, err
	w.done <- struct{}{}
}

// queue holds the client writes that were admitted and not yet proposed, oldest first, bounded in
// bytes. A doubly linked list: a caller that gives up takes its write out wherever it stands.
type queue struct {
	limit int64 // bytes, waiterBytes included

	mu struct {
		sync.Mutex
		head, tail *write
		bytes      int64
		closed     error // nil: open
	}
}

// admit appends w, or refuses with an *OverloadedError or the reason of close. wake says that the
// queue was empty, so that its owner may be asleep.
func (q *queue) admit(w *write) (wake bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.closed != nil {
		return false, q.mu.closed
	}
	if bytes := q.mu.bytes + w.size(); bytes > q.limit {
		return false, &OverloadedError{Queue: QueueWrites, Bytes: q.mu.bytes, Limit: q.limit, RetryAfter: retryAfter}
	}
	wake = q.mu.head == nil
	w.queued, w.prev, w.next = true, q.mu.tail, nil
	if q.mu.tail == nil {
		q.mu.head = w
	} else {
		q.mu.tail.next = w
	}
	q.mu.tail = w
	q.mu.bytes += w.size()
	return wake, nil
}

// abandon takes w out and reports whether it was still there: then nothing happened, and w is the
// caller's again.
func (q *queue) abandon(w *write) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !w.queued {
		return false
	}
	q.removeLocked(w)
	return true
}

// take appends to into, which is empty, the oldest writes that wait for the same and whose data
// together has at most maxBytes, plus perWrite for each; at least one if there is any.
func (q *queue) take(into []*write, maxBytes, perWrite int) []*write {
	q.mu.Lock()
	defer q.mu.Unlock()
	for w := q.mu.head; w != nil; w = q.mu.head {
		if maxBytes -= len(w.data) + perWrite; len(into) > 0 && (maxBytes < 0 || w.ack != into[0].ack) {
			break
		}
		q.removeLocked(w)
		into = append(into, w)
	}
	return into
}

// refuse answers everything that waits with err: nothing of it was proposed.
func (q *queue) refuse(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refuseLocked(err)
}

// close refuses everything that waits and all that comes, with err. The first reason stays.
func (q *queue) close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.closed == nil {
		q.mu.closed = err
	}
	q.refuseLocked(q.mu.closed)
}

// bytes returns what the waiting writes hold.
func (q *queue) bytes() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.bytes
}

func (q *queue) refuseLocked(err error) {
	for w := q.mu.head; w != nil; w = q.mu.head {
		q.removeLocked(w)
		w.settle(Result{}, err)
	}
}

func (q *queue) removeLocked(w *write) {
	if w.prev == nil {
		q.mu.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.mu.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.queued, w.prev, w.next = false, nil, nil
	q.mu.bytes -= w.size()
}
