package viewmodel

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/words"
)

// Choices is what the user chose.
type Choices struct {
	Cursor    string // name of the member; empty: the first row
	Order     Order
	Filter    string // members whose name, role or state contains it; "!x": does not
	Filtering bool   // the filter is being typed
	Help      bool
	Detail    bool

	// PausedAt is when the screen was paused; zero: it is not.
	PausedAt time.Time

	// UnlockedUntil is how long actions are allowed; zero: they are not.
	UnlockedUntil time.Time
}

// Setting is what a screen is shown in.
type Setting struct {
	Now       time.Time
	Interval  time.Duration // between two looks
	Endpoints []string      // that are asked
	RetryAt   time.Time     // the next look, while nobody answers
	Mode      string        // "REPLAY x10", "REC"; empty: live
	Message   string        // the answer to the last key
	Keys      []Key         // that do something now, most useful first
	Help      []Topic
}

// Key is a key and what it does, in a word and in a sentence.
type Key struct{ Key, Word, Does string }

// Topic is one paragraph of the help.
type Topic struct {
	Title string
	Lines []string
}

// Freshness says how far the data may be believed.
type Freshness int

// The grades. Connecting has no data yet. Old is marked as such. Stale is older than maxAge: it says
// nothing about now.
const (
	Connecting Freshness = iota
	Fresh
	Old
	Stale
)

// maxAge is the age above which data says nothing about now, unless the looks are that far apart.
const maxAge = 10 * time.Second

// Screen is everything that a frame shows, as text. What comes from elsewhere is not yet safe for a
// terminal: the view makes it so, in one place.
type Screen struct {
	Fresh  Freshness
	Silent bool // nobody answered the last look

	Cluster, ClusterID string // short and whole
	Lock               string
	Mode               string
	From               string // who shows the cluster, and how old that is: "us-west 0.4s ago"
	FromShort          string
	FromSeverity       Severity
	Every              string
	Clock, ClockShort  string

	Level         string // upper case
	LevelSeverity Severity
	Was           string // the level that old data had, and when: "was DEGRADED at 14:44:13Z"
	Quorum        Quorum
	Leader        string // with how long it has led: "us-east for 41m"
	LeaderName    string
	Term          string
	Commit        string
	Rate          string // "1.8k"; of entries a second
	RateBars      []int

	Why      []string
	Reach    string // who answers the observer
	Slowest  string // and who does not, or only slowly
	Sides    []Side
	Verdict  string // which side is served, where there are sides
	Members  []Member
	Known    int // members before the filter
	Answered int
	Cursor   int // index in Members; -1: none
	Order    string
	Filter   string
	Typing   bool
	LagSpan  string // how far the bars reach back: "60s"
	Events   []EventRow
	Since    string // when the events began
	Next     []Advice

	Endpoints []EndpointRow // while there is no answer to show, or none anymore
	Detail    []Field       // of the member at the cursor
	ShowMore  bool          // the detail was asked for
	ShowHelp  bool
	Help      []Topic
	Keys      []Key
	Message   string
}

// Quorum is the arithmetic of the voters.
type Quorum struct {
	Up, Voters, Needed, Spare string
	Cells                     []Voter // in the roster's order
	Missing                   []string
	Severity                  Severity
}

// Voter is one cell of the quorum bar.
type Voter struct {
	Name string
	Up   bool
}

// Side is one of several groups that name different leaders.
type Side struct {
	Label   string // A, B, …
	Members string
	Leader  string // with "?" when it cannot have a quorum
	Term    string
	Commit  string
	Motion  string // advancing, or frozen for how long
	Quorum  bool
}

// Member is one row.
type Member struct {
	Name, Role, Side string
	Leads            bool
	Reach            string
	Took, Heard      string
	Applied          string
	Lag, LagShort    string
	Delay            string
	Version          string
	State            string
	Severity         Severity
	Dim              bool // old

	past past // and where this member stood last
	row  int
}

// Bars returns the lag over time as at most n heights, oldest first; -1 is not known. It is worked out
// when it is drawn, for most rows of a large cluster are not.
func (m *Member) Bars(n int) []int { return bars(m.past.of(m.Name, m.row), n, lagLevel) }

// EventRow is one event as it is shown.
type EventRow struct {
	Time     string
	Severity Severity
	Member   string
	Text     string
}

// Advice is what to do next, with a command to paste.
type Advice struct{ Text, Command string }

// EndpointRow is what became of one endpoint.
type EndpointRow struct {
	Endpoint, Text string
	Severity       Severity
}

// Field is one line of the detail.
type Field struct {
	Label, Value string
	Severity     Severity
}

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
	case "member_not_ready":
		return with("not ready")
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
	return r.Reachable && r.Quarantine == nil && (!r.Partitioned || st.Leader == nil)
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

// sides shows members that disagree about the leader as what they are.
func (b *builder) sides() {
	st := b.good.Status
	if st.Consistent || len(st.Views) == 0 {
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
			if t, ok := b.track(*v.Leader, 0); ok && t.commit > 0 {
				side.Commit, side.Motion = words.Count(t.commit), "advancing"
				if still := b.now().Sub(t.commitMoved); still > 3*b.Interval {
					side.Motion = "still for " + words.Age(still)
				}
			}
		}
		if side.Quorum {
			b.out.Verdict = fmt.Sprintf("%s holds the quorum (%d of %d voters). Writes to any other side do not commit.", side.Label, voters, st.Quorum.Voters)
		}
		b.out.Sides = append(b.out.Sides, side)
	}
}

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
	m.State = b.state(r, t, c)
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
	case !r.Reachable:
		return "DOWN"
	case r.Partitioned:
		return "cut off"
	case r.TookMS != nil && *r.TookMS > slowAnswer.Milliseconds():
		return "slow"
	}
	return "ok"
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
		return lasting("hears no leader")
	case fullDisk:
		return lasting("DISK FULL")
	case notReady:
		return lasting("not ready")
	case behind:
		return lasting("behind")
	case slow:
		return "answers in " + words.AgeOf(r.TookMS)
	case gone:
		return "removed"
	}
	return ""
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
