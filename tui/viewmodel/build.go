package viewmodel

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/words"
)

// rateBars is the width of the sparkline of the rate.
const rateBars = 20

// Build makes the screen.
func Build(s State, c Choices, e Setting) Screen {
	b := builder{State: s, Choices: c, Setting: e}
	b.out = Screen{
		Silent: s.failing > 0, Mode: e.Mode, Every: e.Interval.String(), Message: e.Message,
		Clock: e.Now.UTC().Format("15:04:05Z"), ClockShort: e.Now.UTC().Format("15:04"),
		Order: c.Order.String(), Filter: c.Filter, Typing: c.Filtering, ShowHelp: c.Help, Help: e.Help, Keys: e.Keys,
		LagSpan: lagSpan(e.Interval), Cursor: -1,
		Cluster: words.Unknown, ClusterID: words.Unknown, Level: "UNKNOWN", LevelSeverity: Warn,
		Leader: words.Unknown, LeaderName: words.Unknown, Term: words.Unknown, Commit: words.Unknown, Rate: words.Unknown,
		Quorum: Quorum{Up: words.Unknown, Voters: words.Unknown, Needed: words.Unknown, Spare: words.Unknown},
	}
	b.out.Lock = "locked"
	if left := c.UnlockedUntil.Sub(e.Now); left > 0 {
		b.out.Lock = "unlocked " + words.Age(left)
	}
	if !c.PausedAt.IsZero() {
		b.out.Mode = strings.TrimSpace(e.Mode + " PAUSED " + words.Age(e.Now.Sub(c.PausedAt)))
	}
	b.age()
	b.endpoints()
	b.eventRows()
	if s.Known() {
		b.cluster()
		b.quorum()
		b.sides()
		b.members()
		b.reach()
		b.fields()
		b.out.ShowMore = c.Detail && b.out.Cursor >= 0
	}
	b.out.Next = b.advice()
	return b.out
}

// lagSpan is how far back the bars of lag reach.
func lagSpan(interval time.Duration) string {
	if span := history * interval; span >= 2*time.Minute {
		return fmt.Sprintf("%dm", int(span.Minutes()))
	}
	return fmt.Sprintf("%ds", int((history * interval).Seconds()))
}

// builder is a screen in the making.
type builder struct {
	State
	Choices
	Setting
	out   Screen
	dated time.Duration // age of the good sample
}

// now is the time that ages are told at: a paused screen stands still.
func (b *builder) now() time.Time {
	if !b.PausedAt.IsZero() {
		return b.PausedAt
	}
	return b.Now
}

// age judges how old the data is.
func (b *builder) age() {
	if !b.Known() {
		b.out.From, b.out.FromShort = "connecting", "connecting"
		if b.failing > 0 {
			b.out.From, b.out.FromShort, b.out.FromSeverity = "NO ANSWER"+b.retry(), "NO ANSWER", Crit
		}
		return
	}
	b.dated = max(0, b.now().Sub(b.good.At))
	who, old := words.Or(b.good.Status.Observer), words.Age(b.dated)
	switch {
	case b.dated <= 3*b.Interval:
		b.out.Fresh = Fresh
	case b.dated <= maxAge:
		b.out.Fresh, b.out.FromSeverity = Old, Warn
	default:
		b.out.Fresh, b.out.FromSeverity = Stale, Crit
	}
	b.out.From, b.out.FromShort = "from "+who+" "+old+" ago", who+" "+old
	if b.out.Fresh == Stale {
		b.out.From, b.out.FromShort = "STALE, from "+who+" "+old+" ago", "STALE "+old
	}
	if b.failing > 0 {
		b.out.Fresh = max(b.out.Fresh, Old)
		b.out.FromSeverity, b.out.FromShort = Crit, "NO ANSWER "+old
		b.out.From = "NO ANSWER for " + old + b.retry()
	}
}

func (b *builder) retry() string {
	if left := b.RetryAt.Sub(b.now()); left > 0 {
		return ", retry in " + words.Age(left)
	}
	return ""
}

// endpoints tells what became of each endpoint, while nobody answers or has answered yet.
func (b *builder) endpoints() {
	if b.Known() && b.failing == 0 {
		return
	}
	if b.failing == 0 {
		for _, e := range b.Endpoints {
			b.out.Endpoints = append(b.out.Endpoints, EndpointRow{Endpoint: e, Text: "connecting"})
		}
		return
	}
	for _, f := range b.tried.Failures {
		b.out.Endpoints = append(b.out.Endpoints, EndpointRow{Endpoint: f.Endpoint, Text: f.Code + ": " + f.Detail, Severity: Crit})
	}
}

func (b *builder) eventRows() {
	b.out.Since = b.began.UTC().Format("15:04:05Z")
	for _, e := range b.events {
		row := EventRow{Time: e.At.UTC().Format("15:04:05"), Severity: e.Severity, Member: e.Member, Text: e.Text}
		if e.Member == "" {
			row.Member = "-"
		}
		if e.Times > 1 {
			row.Text += fmt.Sprintf(" (x%d)", e.Times)
		}
		b.out.Events = append(b.out.Events, row)
	}
}

// cluster fills the header and the health line.
func (b *builder) cluster() {
	st := b.good.Status
	b.out.ClusterID = words.Or(st.ClusterID)
	b.out.Cluster = b.out.ClusterID[:min(8, len(b.out.ClusterID))]
	level := strings.ToUpper(words.Or(st.Health.Level))
	b.out.Level, b.out.LevelSeverity = level, levelSeverity(st.Health.Level)
	for _, r := range st.Health.Reasons {
		b.out.Why = append(b.out.Why, b.reason(r))
	}
	if st.Term < b.newestTerm {
		b.out.Why = append(b.out.Why, fmt.Sprintf("%s is in term %d, behind term %d", words.Or(st.Observer), st.Term, b.newestTerm))
	}
	mark := b.mark()
	if st.Term > 0 { // else nobody ever voted
		b.out.Term = mark + fmt.Sprint(st.Term)
	}
	b.out.Leader, b.out.LeaderName = "none", "none"
	if st.Leader != nil {
		b.out.LeaderName = mark + *st.Leader
		b.out.Leader = b.out.LeaderName + " for " + b.span(b.leads.since, b.leads.exact)
	}
	commit := committed(st)
	if commit != nil {
		b.out.Commit = mark + words.Count(*commit)
	}
	if b.out.Fresh == Stale {
		b.out.Was = "was " + level + " at " + b.good.At.UTC().Format("15:04:05Z")
		b.out.Level, b.out.LevelSeverity = "UNKNOWN", Crit
		return
	}
	if perSecond, ok := b.commits.rate(); ok && commit != nil {
		b.out.Rate = mark + Compact(uint64(perSecond+0.5))
	}
	rates := b.commits.rates()
	var top int64
	values := make([]int64, len(rates))
	for i, r := range rates {
		values[i] = int64(min(r, 1<<40))
		top = max(top, values[i])
	}
	b.out.RateBars = bars(values, rateBars, linearLevel(top))
}

// span is how long something has been so: ">" where its beginning was not seen.
func (b *builder) span(since time.Time, exact bool) string {
	age := words.Age(b.now().Sub(since))
	switch {
	case exact:
		return age
	case strings.HasPrefix(age, "<"): // there is nothing to say yet
		return words.Unknown
	}
	return ">" + age
}

// mark stands before numbers that are old.
func (b *builder) mark() string {
	if b.out.Fresh == Fresh {
		return ""
	}
	return "~"
}

// reason is a finding of the status as words.
func (b *builder) reason(r api.Reason) string {
	with := func(text string) string {
		text = r.Member + " " + text
		if r.Detail != "" {
			text += " (" + r.Detail + ")"
		}
		return text
	}
	switch r.Code {
	case "member_quarantined":
		return with("quarantined")
	case "member_unreachable":
		return with("does not answer")
	case "member_partitioned":
		return r.Member + " hears no leader"
	case "disk_full":
		return with("has an almost full disk")
	case "fault_injected":
		for i := range b.good.Status.Regions {
			if x := &b.good.Status.Regions[i]; x.Name == r.Member && len(x.Faults) > 0 {
				f := longest(x.Faults)
				return fmt.Sprintf("fault %s on %s heals itself in %s (%s)", f.ID, r.Member, b.left(f), f.ExpiresAt.UTC().Format("15:04:05Z"))
			}
		}
		return with("keeps up a fault")
	case "member_not_ready":
		return with("not ready")
	case "divergence_unresolved":
		return "voters have different states"
	case "member_behind":
		return r.Member + " " + r.Detail
	}
	if r.Detail != "" {
		return r.Detail
	}
	return strings.TrimSpace(r.Member + " " + r.Code)
}

// takesPart reports whether a voter counts towards the quorum, as the status counts it.
func takesPart(st *api.Status, r *api.Region) bool {
	return r.Reachable && (r.Quarantine == nil || r.Quarantine.Votes) && (!r.Partitioned || st.Leader == nil)
}

func (b *builder) quorum() {
	if b.out.Fresh == Stale {
		return // not known anymore
	}
	st, q := b.good.Status, &b.out.Quorum
	for i := range st.Regions {
		r := &st.Regions[i]
		if r.Role != api.RoleVoter {
			continue
		}
		up := takesPart(st, r)
		q.Cells = append(q.Cells, Voter{Name: r.Name, Up: up})
		if !up {
			q.Missing = append(q.Missing, r.Name)
		}
	}
	if st.Quorum.Voters == 0 { // not known yet
		return
	}
	mark := b.mark()
	q.Up, q.Voters, q.Needed, q.Spare = mark+fmt.Sprint(st.Quorum.Up), fmt.Sprint(st.Quorum.Voters), fmt.Sprint(st.Quorum.Needed), fmt.Sprint(st.Quorum.Spare)
	switch {
	case st.Quorum.Up < st.Quorum.Needed:
		q.Severity = Crit
	case st.Quorum.Spare == 0 && st.Quorum.Voters > 1:
		q.Severity = Warn
	}
}

// sideOf returns the label of the side that a member is on.
func (b *builder) sideOf(name string) string {
	for i, v := range b.good.Status.Views {
		if slices.Contains(v.Members, name) {
			return sideLabel(i)
		}
	}
	return noSide
}

// noSide is the label of who is on no side; it sorts after the capital letters.
const noSide = "none"

func sideLabel(i int) string { return string(rune('A' + i%26)) }

// sides shows members that see different clusters as what they are.
func (b *builder) sides() {
	st := b.good.Status
	if len(st.Views) == 0 {
		return
	}
	b.out.Verdict = "No side holds a quorum: nothing is written."
	for i, v := range st.Views {
		side := Side{Label: sideLabel(i), Members: strings.Join(v.Members, " "), Leader: "no leader", Term: fmt.Sprint(v.Term), Commit: words.Unknown}
		voters := 0
		for _, r := range st.Regions {
			if r.Role == api.RoleVoter && slices.Contains(v.Members, r.Name) {
				voters++
			}
		}
		side.Quorum = st.Quorum.Needed > 0 && voters >= st.Quorum.Needed
		if v.Leader != nil {
			side.Leader = "leader " + *v.Leader
			if !side.Quorum { // it says so and cannot prove it
				side.Leader += "?"
			}
		}
		b.progress(&side, v)
		if side.Quorum {
			b.out.Verdict = fmt.Sprintf("%s holds the quorum (%d of %d voters). Writes to any other side do not commit.", side.Label, voters, st.Quorum.Voters)
		}
		b.out.Sides = append(b.out.Sides, side)
	}
	var faults []api.Fault
	for i := range st.Regions {
		faults = append(faults, st.Regions[i].Faults...)
	}
	if len(faults) > 0 {
		f := longest(faults)
		b.out.Faults = fmt.Sprintf("Fault %s is in force, heals itself in %s (%s).", f.ID, b.left(f), f.ExpiresAt.UTC().Format("15:04:05Z"))
	}
}

// progress tells how far a side has committed: as its leader says or, where none leads, whoever on it has
// heard most.
func (b *builder) progress(side *Side, v api.View) {
	from := v.Members
	if v.Leader != nil {
		from = []string{*v.Leader}
	}
	var best track
	for _, name := range from {
		if t, ok := b.track(name, 0); ok && t.commit > best.commit {
			best = t
		}
	}
	if best.commit == 0 {
		return
	}
	side.Commit, side.Motion = words.Count(best.commit), "advancing"
	if still := b.now().Sub(best.commitMoved); still > 3*b.Interval {
		side.Motion = "still for " + words.Age(still)
	} else if v.Leader == nil {
		side.Motion = ""
	}
}
