package member

import (
	"testing"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Whoever holds the lock of the member may ask a keeper, as Status does: a keeper that asked the member back
// while it holds its own lock would stand still with it, and both for ever.
func TestKeeper_AsksTheMemberNothingUnderItsLock(t *testing.T) {
	t.Parallel()
	l := newLone(t)
	k := l.current(0).keeper
	l.mu.Lock()
	defer l.mu.Unlock()
	k.startFetch() // does not return where it does
	k.endFetch()
	k.status()
	k.keptNow()
	k.latchedNow()
	k.reseedText()
	k.checks.status(1, 1)
	k.checks.round(1, []ident.MemberID{1}, l.started)
	k.permits.opened(2)
}
