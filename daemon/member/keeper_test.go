package member

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/tracker"

	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
)

// A peer that raft waits for, and that nobody serves, is told again within a few rounds: what it was told
// first may have been lost.
func TestKeeper_Overdue(t *testing.T) {
	const rounds = 9
	waits := consensus.Progress{ID: 2, State: tracker.StateSnapshot, Active: true}
	away, follows := waits, waits
	away.Active, follows.State = false, tracker.StateReplicate
	for name, c := range map[string]struct {
		peer   consensus.Progress
		served bool
		want   []int // rounds in which it is told again
	}{
		"told in vain":   {waits, false, []int{3, 6, 9}},
		"fetches":        {waits, true, nil},
		"does not speak": {away, false, nil},
		"follows":        {follows, false, nil},
	} {
		k := &keeper{}
		k.mu.wanting = map[ident.MemberID]int{}
		k.want([]ident.MemberID{2})
		var got []int
		for round := 1; round <= rounds; round++ {
			if len(k.overdue([]consensus.Progress{c.peer}, func(ident.MemberID) bool { return c.served })) > 0 {
				got = append(got, round)
				k.want([]ident.MemberID{2}) // raft tries it, and it is behind as before
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: told again in rounds %v, want %v", name, got, c.want)
		}
	}
}

// After an attempt at a reseed that failed the next beat is waited for, whatever members report meanwhile; what
// may change its outcome is looked at at once.
func TestKeeper_WaitsAfterAReseedThatFailed(t *testing.T) {
	t.Parallel()
	l := newLone(t)
	k := l.current(0).keeper
	for _, step := range []struct {
		what    string
		happens func()
		want    bool
	}{
		{"nothing yet", func() {}, true},
		{"a report", func() { l.Digested(2, nil) }, true},
		{"a failure", func() { k.failed = true }, false},
		{"a report after it", func() { l.Digested(2, nil) }, false},
		{"a check after it", func() { k.checked(nil) }, false},
		{"a message that asks for one", func() { k.ask(consensus.Reseed{}) }, true},
		{"nothing since", func() {}, false},
		{"a refusal", func() { k.fence(&RefusedError{Cause: CauseAmnesia}) }, true},
		{"a quarantine", func() { l.quarantine(l.sound(0), CauseDivergent, "it differs", nil) }, true},
		{"nothing again", func() {}, false},
		{"success", func() { k.failed = false }, true},
	} {
		step.happens()
		if got := k.triesReseed(); got != step.want {
			t.Errorf("%s: tries %t, want %t", step.what, got, step.want)
		}
	}
}
