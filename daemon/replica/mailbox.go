package replica

import "sync"

// mailbox is a queue whose put never blocks, so that a worker can always hand back and the loop can
// always hand out. It is bounded at the doors (bytes of client writes, bytes of peer messages,
// raft's bounds on uncommitted and applying bytes), not here: a bound here could deadlock loop and
// worker against each other.
type mailbox[T any] struct {
	// wake has capacity 1 and holds a token whenever something was put since the last receive. Two
	// mailboxes of one owner may share it.
	wake chan struct{}

	mu struct {
		sync.Mutex
		in     []T
		closed bool
	}
}

func newMailbox[T any](wake chan struct{}) *mailbox[T] { return &mailbox[T]{wake: wake} }

// put hands over v and reports whether the mailbox was open; v is dropped when it was not.
func (m *mailbox[T]) put(v ...T) bool {
	m.mu.Lock()
	if m.mu.closed {
		m.mu.Unlock()
		return false
	}
	m.mu.in = append(m.mu.in, v...)
	m.mu.Unlock()
	poke(m.wake)
	return true
}

// take returns everything that was put, in order, and keeps spare, whose contents it clears, as the
// next buffer. The caller passes what the previous take returned.
func (m *mailbox[T]) take(spare []T) []T {
	clear(spare)
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.mu.in
	m.mu.in = spare[:0]
	return out
}

// close refuses every later put and returns what was never taken.
func (m *mailbox[T]) close() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.closed = true
	out := m.mu.in
	m.mu.in = nil
	return out
}

// poke leaves a token in wake, a channel of capacity 1, unless one is there.
func poke(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
