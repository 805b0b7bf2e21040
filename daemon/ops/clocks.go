package ops

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/member"
)

// clocks tells of the clocks of others in the words of the wire.
func clocks(all []member.ClockStatus) []api.Clock {
	out := make([]api.Clock, 0, len(all))
	for _, c := range all {
		out = append(out, api.Clock{ID: c.ID.String(), Member: c.Name, SkewMS: c.Skew.Milliseconds(), ErrorMS: c.Error.Milliseconds()})
	}
	return out
}

// skews returns how far the clock of each member, by id, is ahead of most members' clocks, in
// milliseconds: of the middle one. All of them were measured by one member, leader, so every observer
// tells the same. Where two are the middle, it is the one nearer to the leader's. A leader that did not
// answer, or is alone, measures nothing.
func skews(leader *api.LocalStatus) map[string]int64 {
	if leader == nil || len(leader.Clocks) == 0 {
		return nil
	}
	off := map[string]int64{leader.ID: 0}
	sorted := []int64{0}
	for _, c := range leader.Clocks {
		off[c.ID] = c.SkewMS
		sorted = append(sorted, c.SkewMS)
	}
	slices.Sort(sorted)
	n := len(sorted)
	middle := slices.MinFunc(sorted[(n-1)/2:n/2+1], func(a, b int64) int { return cmp.Compare(max(a, -a), max(b, -b)) })
	for id := range off {
		off[id] -= middle
	}
	return off
}

// clockOff says how wrong the clock of a row is; found is false where it is not, give or take what the
// measurement may be wrong by.
func clockOff(r *api.Region, leader *api.LocalStatus) (detail string, found bool) {
	if r.ClockSkewMS == nil || leader == nil {
		return "", false
	}
	var unsure int64 // the leader's own clock is compared with the middle one: as unsure as the worst
	for _, c := range leader.Clocks {
		if c.ID == r.ID || r.ID == leader.ID {
			unsure = max(unsure, c.ErrorMS)
		}
	}
	off, limit := max(*r.ClockSkewMS, -*r.ClockSkewMS), leader.ClockLimitMS
	if off-unsure <= limit {
		return "", false
	}
	way := "ahead of"
	if *r.ClockSkewMS < 0 {
		way = "behind"
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	return fmt.Sprintf("its clock is %s %s most clocks, at most %s are allowed", ms(off), way, ms(limit)), true
}
