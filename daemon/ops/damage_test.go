package ops

import (
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// What is wrong with a replica is told with what shows it, and with what the way out waits for.
func TestDamage(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)
	names := map[string]string{"1": "us-east", "2": "us-west"}
	for _, tc := range []struct {
		name  string
		group api.GroupStatus
		want  []string // a part of each check
	}{
		{"a sound replica", api.GroupStatus{Group: "0"}, nil},
		{"a divergent state", api.GroupStatus{Group: "0", Quarantine: &api.Quarantine{Cause: "divergent", Since: since, Votes: true,
			Evidence: &api.Evidence{Index: 9, Own: "aa", Right: "bb", Agree: []string{"1", "2", "7"}}}},
			[]string{"group 0, since 2026-11-30T02:00:00Z: divergent; it still votes", "at index 9 its state added up to aa, that of us-east and us-west and 7 to bb"}},
		{"a corrupt log, whose reseed is refused", api.GroupStatus{Group: "0", Quarantine: &api.Quarantine{Cause: "log_corrupt", Since: since},
			Reseed: &api.Reseed{Reason: "log_corrupt", Since: since, Refused: new("not now")}},
			[]string{"log_corrupt; it takes no part", "log_corrupt; not now"}},
		{"a reseed that failed", api.GroupStatus{Reseed: &api.Reseed{Reason: "operator", Since: since, Failure: new("no room")}}, []string{"operator; no room"}},
		{"an artifact under way", api.GroupStatus{Install: &api.Install{Bytes: 3, Total: 9}}, []string{"arrives"}},
	} {
		got := damage(tc.group, func(id string) string {
			if n, ok := names[id]; ok {
				return n
			}
			return id
		})
		if len(got) != len(tc.want) {
			t.Errorf("%s: %+v, want %q", tc.name, got, tc.want)
			continue
		}
		for i, c := range got {
			if c.OK || !strings.Contains(c.Detail, tc.want[i]) {
				t.Errorf("%s: %+v, want %q", tc.name, c, tc.want[i])
			}
		}
	}
}
