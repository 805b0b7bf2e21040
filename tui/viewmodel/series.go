package viewmodel

import (
	"slices"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// history is how many samples a State remembers.
const history = 60

// point is an index of the log, and when it was there.
type point struct {
	at    time.Time
	index uint64
}

// series is a run of points, oldest first. Its indexes never fall.
type series []point

// add returns s with p, in memory of its own. An index below the last one belongs to another log, or
// to a leader that has less: what came before says nothing about it and is dropped.
func (s series) add(p point) series {
	if n := len(s); n > 0 && p.index < s[n-1].index {
		s = nil
	}
	if over := len(s) + 1 - history; over > 0 {
		s = s[over:]
	}
	return append(slices.Clip(s), p)
}

// rateWindow is how far back a rate looks: long enough to be steady, short enough to be of now.
const rateWindow = 5 * time.Second

// rate returns entries a second over the last rateWindow; ok is false before there are two points.
func (s series) rate() (perSecond float64, ok bool) {
	if len(s) < 2 {
		return 0, false
	}
	last := s[len(s)-1]
	first := s[len(s)-2]
	for _, p := range slices.Backward(s[:len(s)-2]) {
		if last.at.Sub(p.at) > rateWindow {
			break
		}
		first = p
	}
	took := last.at.Sub(first.at).Seconds()
	if took <= 0 {
		return 0, false
	}
	return float64(last.index-first.index) / took, true
}

// rates returns entries a second between each two neighbours, oldest first.
func (s series) rates() []uint64 {
	var out []uint64
	for i := 1; i < len(s); i++ {
		if took := s[i].at.Sub(s[i-1].at).Seconds(); took > 0 {
			out = append(out, uint64(float64(s[i].index-s[i-1].index)/took))
		}
	}
	return out
}

// delay returns how long before the last point the series passed index: how far behind in time a
// member is that has applied just that much. Between two points it is interpolated. exact is false
// when the series does not reach back that far; the delay is then longer than what is returned.
func (s series) delay(index uint64) (d time.Duration, exact bool) {
	if len(s) == 0 {
		return 0, false
	}
	last := s[len(s)-1]
	if index >= last.index {
		return 0, true
	}
	i, _ := slices.BinarySearchFunc(s, index, func(p point, index uint64) int {
		if p.index <= index {
			return -1
		}
		return 1
	}) // the first point above index
	if i == 0 {
		return last.at.Sub(s[0].at), false
	}
	before, after := s[i-1], s[i]
	part := float64(index-before.index) / float64(after.index-before.index)
	passed := before.at.Add(time.Duration(part * float64(after.at.Sub(before.at))))
	return last.at.Sub(passed), true
}

// past holds the lags of all members at each look, oldest first. A member's own are picked out when
// they are drawn.
type past []lags

// lags are those of one look; names and values go together. The names are shared between looks of the
// same roster.
type lags struct {
	names  []string
	values []int64 // in entries; -1: not known
}

// add returns p with the lags of one look more, in memory of its own.
func (p past) add(st *api.Status) past {
	now := lags{values: make([]int64, len(st.Regions))}
	if n := len(p); n > 0 {
		now.names = p[n-1].names
	}
	same := len(now.names) == len(st.Regions)
	for i := range st.Regions {
		r := &st.Regions[i]
		same = same && now.names[i] == r.Name
		now.values[i] = -1
		if r.Reachable && r.AppliedIndex != nil && r.LagEvents != nil {
			now.values[i] = int64(min(*r.LagEvents, 1<<62))
		}
	}
	if !same {
		now.names = make([]string, len(st.Regions))
		for i := range st.Regions {
			now.names[i] = st.Regions[i].Name
		}
	}
	if over := len(p) + 1 - history; over > 0 {
		p = p[over:]
	}
	return append(slices.Clip(p), now)
}

// of returns the lags of one member, which stood at row in the newest look.
func (p past) of(name string, row int) []int64 {
	values := make([]int64, len(p))
	for i, l := range p {
		at := row
		if at >= len(l.names) || l.names[at] != name {
			at = slices.Index(l.names, name)
		}
		values[i] = -1
		if at >= 0 {
			values[i] = l.values[at]
		}
	}
	return values
}

// unknownLevel is the height of a cell that nothing is known of.
const unknownLevel = -1

// bars makes cells of the newest values, at most n and oldest first; a cell is as high as the largest
// of its values. Values below 0 are not known. level maps a value to a height.
func bars(values []int64, n int, level func(int64) int) []int {
	each := (history + n - 1) / n
	out := make([]int, 0, n)
	for end := len(values); end > 0 && len(out) < n; end -= each {
		out = append(out, level(slices.Max(values[max(0, end-each):end])))
	}
	slices.Reverse(out)
	return out
}

// lagLevel is the height of a lag: one for each power of ten, so that rows can be compared.
func lagLevel(lag int64) int {
	if lag < 0 {
		return unknownLevel
	}
	level := 0
	for ; lag > 0 && level < topLevel; lag /= 10 {
		level++
	}
	return level
}

// topLevel is the highest cell; theme.Levels counts them.
const topLevel = 7

// linearLevel returns the height of a value between 0 and top.
func linearLevel(top int64) func(int64) int {
	return func(v int64) int {
		if top <= 0 || v <= 0 {
			return 0
		}
		return int(1 + (v*(topLevel-1)+top/2)/top)
	}
}
