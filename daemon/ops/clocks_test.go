package ops

import (
	"maps"
	"testing"

	"github.com/tidaldb/tidal/daemon/api"
)

func TestSkews(t *testing.T) {
	t.Parallel()
	of := func(skews ...int64) *api.LocalStatus {
		s := &api.LocalStatus{ID: "1"}
		for i, n := range skews {
			s.Clocks = append(s.Clocks, api.Clock{ID: string(rune('2' + i)), SkewMS: n})
		}
		return s
	}
	for _, tc := range []struct {
		name   string
		leader *api.LocalStatus
		want   map[string]int64
	}{
		{"no leader", nil, nil},
		{"a leader that measured nothing", of(), nil},
		{"all right", of(3, -2), map[string]int64{"1": 0, "2": 3, "3": -2}},
		{"a follower is ahead", of(10_000, 1), map[string]int64{"1": -1, "2": 9_999, "3": 0}},
		{"the leader is ahead, so all others seem behind", of(-10_000, -10_002), map[string]int64{"1": 10_000, "2": 0, "3": -2}},
		{"of two nobody knows which is right: the leader's is", of(-10_000), map[string]int64{"1": 0, "2": -10_000}},
		{"of four", of(0, 10_000, 10_000), map[string]int64{"1": 0, "2": 0, "3": 10_000, "4": 10_000}},
	} {
		if got := skews(tc.leader); !maps.Equal(got, tc.want) {
			t.Errorf("%s: skews = %v, want %v", tc.name, got, tc.want)
		}
	}
}
