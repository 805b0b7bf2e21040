package member

import (
	"testing"
)

// A replica that is closed for an install when a peer refuses its member is not opened any more, and the next
// start does not open it either.
func TestFence_HoldsForAReplicaThatIsClosed(t *testing.T) {
	t.Parallel()
	l := newLone(t)
	k := l.current(0).keeper
	if _, err := l.closeGroup(0, nil); err != nil {
		t.Fatal(err)
	}
	closed := l.mu.groups[0]
	l.condemn(closed, &RefusedError{Cause: CauseAmnesia, By: "b", Says: "it remembers more"})
	l.admit(l.openGroup(k, l.identity(), nil))
	if c := l.quarantined(); c != CauseAmnesia {
		t.Errorf("opened after it was refused: quarantine %q, want %q", c, CauseAmnesia)
	}
	l.Keep()
	if r, ok, err := k.files.Reseed(); err != nil || !ok || r.Reason != string(CauseAmnesia) {
		t.Errorf("latched %+v, %t, %v", r, ok, err)
	}
	l.restart()
	if c := l.quarantined(); c != CauseAmnesia {
		t.Errorf("after a start: quarantine %q, want %q", c, CauseAmnesia)
	}
}
