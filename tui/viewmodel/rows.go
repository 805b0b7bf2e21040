package viewmodel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/words"
)

func (b *builder) members() {
	st := b.good.Status
	found := findings(st)
	b.out.Known = len(st.Regions)
	order := b.ordered(b.Order)
	if len(b.out.Sides) > 0 { // one side after the other, and last who is on none
		slices.SortStableFunc(order, func(i, j int) int {
			return strings.Compare(b.sideOf(st.Regions[i].Name), b.sideOf(st.Regions[j].Name))
		})
	}
	b.out.Members = make([]Member, 0, len(order))
	for _, i := range order {
		r := &st.Regions[i]
		if r.Reachable {
			b.out.Answered++
		}
		m := b.member(i, conditionOf(r, found[r.Name]))
		if !matches(m, b.Filter) {
			continue
		}
		if m.Name == b.Cursor {
			b.out.Cursor = len(b.out.Members)
		}
		b.out.Members = append(b.out.Members, m)
	}
	if b.out.Cursor < 0 && len(b.out.Members) > 0 {
		b.out.Cursor = 0
	}
}

func (b *builder) member(row int, c condition) Member {
	r, t, mark := &b.good.Status.Regions[row], b.tracks[row], b.mark()
	m := Member{
		Name: words.Or(r.Name), Role: Role(*r), Leads: r.IsLeader,
		Took: words.AgeOf(r.TookMS), Heard: Heard(*r), Version: words.Unknown,
		Applied: Applied(*r), Lag: Lag(*r), LagShort: words.Unknown, Delay: words.Unknown,
		past: b.past, row: row, Severity: c.severity(), Dim: b.out.Fresh != Fresh,
	}
	if r.Version != nil {
		m.Version = words.Or(*r.Version)
	}
	if r.TookMS != nil && r.Name == b.good.Status.Observer {
		m.Took = "-" // it asks itself
	}
	if r.LagEvents != nil {
		m.LagShort = Compact(*r.LagEvents)
		if r.Reachable && r.AppliedIndex != nil {
			m.Delay = b.delay(r)
		} else { // the worst case: how many exactly does not matter
			m.LagShort = "<=" + m.LagShort
			m.Lag = m.LagShort
		}
	}
	m.Reach = reachOf(c, r)
	m.State = joined(b.state(r, t, c), Waiting(*r))
	if len(b.out.Sides) > 0 {
		m.Side = b.sideOf(r.Name)
		if b.leadsSide(r.Name) && !b.holdsQuorum(m.Side) {
			m.Role = "leader?"
		}
		if m.Side != sideLabel(0) {
			mark = "~" // measured against the log of another side
		}
	}
	if b.out.Fresh == Stale {
		m.Lag, m.LagShort, m.Delay = words.Unknown, words.Unknown, words.Unknown
		if m.Reach == "ok" || m.Reach == "slow" {
			m.Reach = words.Unknown
		}
	}
	for _, cell := range []*string{&m.Applied, &m.Lag, &m.LagShort, &m.Delay} {
		if *cell != words.Unknown {
			*cell = mark + *cell
		}
	}
	return m
}

// leadsSide reports whether a side names the member its leader.
func (b *builder) leadsSide(name string) bool {
	return slices.ContainsFunc(b.good.Status.Views, func(v api.View) bool { return v.Leader != nil && *v.Leader == name })
}

func (b *builder) holdsQuorum(label string) bool {
	return slices.ContainsFunc(b.out.Sides, func(s Side) bool { return s.Label == label && s.Quorum })
}

// delay is how far behind in time a member is, from when the leader's log had what it has applied.
func (b *builder) delay(r *api.Region) string {
	if *r.LagEvents == 0 {
		return "0ms"
	}
	d, exact := b.lasts.delay(r.AppliedEvents)
	switch {
	case d == 0 && !exact:
		return words.Unknown
	case !exact:
		return ">" + words.Age(d)
	}
	return words.Age(d)
}

func reachOf(c condition, r *api.Region) string {
	switch {
	case c == gone && !r.Reachable:
		return "-"
	case !r.Reachable:
		return "DOWN"
	case r.Partitioned:
		return "cut off"
	case r.TookMS != nil && *r.TookMS > slowAnswer.Milliseconds():
		return "slow"
	}
	return "ok"
}

// joined puts the parts that are not empty in a row.
func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

// state is the worst thing about a member, with how long it has been so.
func (b *builder) state(r *api.Region, t track, c condition) string {
	lasting := func(text string) string {
		if s := b.span(t.since, t.exact); s != words.Unknown {
			return text + " " + s
		}
		return text
	}
	switch c {
	case quarantined:
		return "QUARANTINE " + words.Age(b.now().Sub(r.Quarantine.Since))
	case down, downLearner:
		if r.Error != nil {
			return lasting(r.Error.Code)
		}
		return lasting("no answer")
	case cutOff:
		if len(r.Faults) > 0 {
			return b.fault(r)
		}
		return lasting("hears no leader")
	case faulty:
		return b.fault(r)
	case fullDisk:
		return lasting("DISK FULL")
	case reseeding:
		if i := r.Install; i != nil && i.Total > 0 {
			return fmt.Sprintf("RESEED %d%%", 100*min(i.Bytes, i.Total)/i.Total)
		}
		return lasting("RESEED")
	case notReady:
		return lasting("not ready")
	case behind:
		return lasting("behind")
	case slow:
		return "answers in " + words.AgeOf(r.TookMS)
	case promoting, stuck:
		return pendingBadge(*r.PromotionPending)
	case gone:
		return removedBadge(b.good.Status, r.ID)
	}
	if s := b.good.Status.Settling; s != nil && slices.Contains(s.Missing, r.Name) {
		return "settling"
	}
	return ""
}

// fault is the badge of a member that keeps up faults: the one that lasts longest, and how much longer.
func (b *builder) fault(r *api.Region) string {
	f := longest(r.Faults)
	return "FAULT " + b.left(f) + " " + f.ID
}

// longest returns the fault that ends last.
func longest(faults []api.Fault) api.Fault {
	return slices.MaxFunc(faults, func(a, b api.Fault) int { return cmp.Compare(a.LeftMS, b.LeftMS) })
}

// left is how much longer a fault lasts, by the clock of whoever keeps it up and the age of the sample.
func (b *builder) left(f api.Fault) string {
	return words.Age(max(time.Duration(f.LeftMS)*time.Millisecond-b.dated, 0))
}

// pendingBadge is why a learner does not vote yet, with what it lacks.
func pendingBadge(p api.Pending) string {
	badge := "PROMO-PEND " + p.Reason
	if p.Lag != nil && *p.Lag > 0 {
		badge += " " + words.Count(*p.Lag)
	}
	if p.ETAMS != nil {
		badge += ", " + words.AgeOf(p.ETAMS)
	}
	return badge
}

// removedBadge is how far a removed member knows of it.
func removedBadge(s *api.Status, id string) string {
	for _, t := range s.Tombstones {
		switch {
		case t.ID != id:
		case t.Expired:
			return "EXPIRED"
		case t.Told:
			return "REMOVED, told"
		default:
			return "REMOVED, not told"
		}
	}
	return "removed"
}

// matches reports whether a row passes the filter.
func matches(m Member, filter string) bool {
	filter, not := strings.CutPrefix(strings.ToLower(filter), "!")
	if filter == "" {
		return true
	}
	text := strings.ToLower(strings.Join([]string{m.Name, m.Role, m.Reach, m.State}, " "))
	return strings.Contains(text, filter) != not
}

// reach sums up who answers the observer.
func (b *builder) reach() {
	if b.out.Fresh == Stale {
		return
	}
	st := b.good.Status
	var slowest *api.Region
	for i := range st.Regions {
		r := &st.Regions[i]
		if r.TookMS != nil && r.Name != st.Observer && (slowest == nil || *r.TookMS > *slowest.TookMS) {
			slowest = r
		}
	}
	b.out.Reach = fmt.Sprintf("%d of %d answer %s", b.out.Answered, b.out.Known, words.Or(st.Observer))
	if silent := b.silent(""); len(silent) > 0 {
		b.out.Slowest = "silent: " + list(silent, 5) + "  "
	}
	if slowest != nil {
		b.out.Slowest += "slowest: " + slowest.Name + " in " + words.AgeOf(slowest.TookMS)
	}
}

// list names at most n of names.
func list(names []string, n int) string {
	if len(names) <= n {
		return strings.Join(names, " ")
	}
	return strings.Join(names[:n], " ") + fmt.Sprintf(" and %d more", len(names)-n)
}

// Compact prints n in at most five characters: 999, 1.8k, 12k, 1.2M.
func Compact(n uint64) string {
	unit := ""
	f := float64(n)
	for _, next := range []string{"k", "M", "G", "T", "P", "E"} {
		if f < 999.5 {
			break
		}
		f, unit = f/1000, next
	}
	if unit != "" && f < 9.95 {
		return fmt.Sprintf("%.1f%s", f, unit)
	}
	return fmt.Sprintf("%.0f%s", f, unit)
}
