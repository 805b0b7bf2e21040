package httpd

import (
	"testing"
	"time"
)

func TestTimes(t *testing.T) {
	t.Parallel()
	const ms, s = time.Millisecond, time.Second
	for _, tc := range []struct {
		name             string
		left, most       time.Duration
		wantWait, wanted time.Duration
	}{
		{"a caller that gives none", 0, 5 * s, 5 * s, 4500 * ms},
		{"one that gives little", 200 * ms, 5 * s, 1200 * ms, 200 * ms},
		{"one that gives more than there is", 20 * s, 5 * s, 5 * s, 4500 * ms},
		{"one whose time is over", -3 * s, 5 * s, s, ms},
		{"a verb that takes long", 60 * s, 13 * s, 13 * s, 12500 * ms},
		{"little in all", 0, 400 * ms, 400 * ms, 200 * ms},
		{"little in all, and more given", 10 * s, 400 * ms, 400 * ms, 200 * ms},
	} {
		if wait, give := times(tc.left, tc.most); wait != tc.wantWait || give != tc.wanted {
			t.Errorf("%s: times(%s, %s) = %s, %s, want %s, %s", tc.name, tc.left, tc.most, wait, give, tc.wantWait, tc.wanted)
		}
	}
}
