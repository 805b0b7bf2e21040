package member

import (
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/peer"
)

func TestSkewed(t *testing.T) {
	t.Parallel()
	const ms, limit = time.Millisecond, 500 * time.Millisecond
	for _, tc := range []struct {
		was         bool
		skew, error time.Duration
		want        bool
	}{
		{false, 0, ms, false},
		{false, 500 * ms, ms, false},
		{false, 502 * ms, ms, true},
		{false, -502 * ms, ms, true},
		{false, 900 * ms, 450 * ms, false}, // a slow answer proves nothing
		{false, 10 * time.Second, 450 * ms, true},
		{true, 400 * ms, ms, true}, // not right again before it is well within
		{true, 240 * ms, ms, false},
		{true, 0, 300 * ms, true}, // a slow answer proves nothing
	} {
		if got := skewed(tc.was, peer.Clock{Skew: tc.skew, Error: tc.error}, limit); got != tc.want {
			t.Errorf("skewed(%t, %s give or take %s) = %t, want %t", tc.was, tc.skew, tc.error, got, tc.want)
		}
	}
}
