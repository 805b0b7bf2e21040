package peer

import (
	"sync"
	"time"
)

// logInterval is the pause between two lines about the same thing.
const logInterval = time.Minute

// limiter lets one log line through in every logInterval and counts those it holds back. The zero
// limiter is ready.
type limiter struct {
	mu   sync.Mutex
	next time.Time
	held int
}

// allow reports whether a line may be written now, and how many were held back before it.
func (l *limiter) allow(now time.Time) (held int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.next) {
		l.held++
		return 0, false
	}
	held, l.held = l.held, 0
	l.next = now.Add(logInterval)
	return held, true
}
