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
