package viewmodel

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// State is what the samples so far have taught. The zero value has seen none. It is a value: Add
// returns another one and leaves the first as it was, so a paused screen just keeps its own.
type State struct {
	// good is the newest sample that has a status; its Status is nil before the first.
	good Sample

	// tried is the newest sample, good or not. failing is how many in a row were not, since when.
	tried        Sample
	failing      int
	failingSince time.Time

	began time.Time // the first sample

	// newestTerm is the highest term seen. An answer of an older one comes from a member that was
	// left behind.
	newestTerm uint64

	// leads is who has led since when; exact says that the change itself was seen.
	leads struct {
		name  string
		since time.Time
		exact bool
	}

	commits series // what was committed, as the leader says
	lasts   series // the leader's last index, where the leader itself told it

	// tracks remember each member, in the order of the good sample's rows.
	tracks []track

	past past // the lags, oldest first, at most history

	events []Event // newest first, at most maxEvents
}

// track is what is remembered of one member.
type track struct {
	name string

	// shown is the condition that the row is sorted by: it worsens at once and gets better only
	// calm after it was last seen at shownAt, so that rows do not dance.
	shown   condition
	shownAt time.Time

	now   condition
	since time.Time // when now began
	exact bool      // the change to now was seen

	commit      uint64
	commitMoved time.Time
}

// calm is how long a member must be better before its row moves down.
const calm = 5 * time.Second

// Known reports whether any sample had a status.
func (s State) Known() bool { return s.good.Status != nil }

// Tried returns the newest sample; its time is zero before the first.
func (s State) Tried() Sample { return s.tried }

// Good returns the newest sample that has a status; its Status is nil before the first.
func (s State) Good() Sample { return s.good }

// Failing is how many samples in a row nobody answered.
func (s State) Failing() int { return s.failing }

// Add folds x into the state. Samples come in the order of their times.
func (s State) Add(x Sample) State {
	if s.began.IsZero() {
		s.began = x.At
	}
	if x.Status == nil {
		if s.failing == 0 {
			s.failingSince = x.At
			s = s.tell(unanswered(x)...)
		}
		s.failing++
		s.tried = x
		return s
	}
	x.Status = withRemoved(x.Status)
	before, silent := s.good.Status, s.failing
	if silent > 0 && before != nil {
		s = s.tell(answeredAgain(x, s.failingSince))
	}
	if before != nil {
		s = s.tell(changes(before, x.Status, x.At, s.newestTerm)...)
	}
	s.failing, s.failingSince = 0, time.Time{}
	s.tried, s.good = x, x
	s.newestTerm = max(s.newestTerm, x.Status.Term)
	return s.follow(x, before == nil).measure(x).remember(x, before == nil)
}

// withRemoved adds a row for every member that was removed and does not confirm it, unless another one has
// its name by now.
func withRemoved(st *api.Status) *api.Status {
	if len(st.Tombstones) == 0 {
		return st
	}
	out := *st
	out.Regions = slices.Clone(st.Regions)
	for _, t := range st.Tombstones {
		if !slices.ContainsFunc(out.Regions, func(r api.Region) bool { return r.Name == t.Name }) {
			out.Regions = append(out.Regions, api.Region{Name: t.Name, ID: t.ID, Role: api.RoleRemoved, Partitioned: true})
		}
	}
	return &out
}

// follow keeps who leads since when.
func (s State) follow(x Sample, first bool) State {
	name := ""
	if x.Status.Leader != nil {
		name = *x.Status.Leader
	}
	if first || name != s.leads.name {
		s.leads.name, s.leads.since, s.leads.exact = name, x.At, !first
	}
	return s
}

// measure keeps what rates and delays are made of.
func (s State) measure(x Sample) State {
	st := x.Status
	if st.RelayLogLen != nil && st.RelayLogAgeMS == nil {
		s.lasts = s.lasts.add(point{x.At, *st.RelayLogLen})
	}
	if c := committed(st); c != nil {
		s.commits = s.commits.add(point{x.At, *c})
	}
	return s
}

// committed is what the leader has committed; nil where no leader tells.
func committed(st *api.Status) *uint64 {
	for i := range st.Regions {
		if r := &st.Regions[i]; r.IsLeader && r.Reachable {
			return r.CommitIndex
		}
	}
	return nil
}

// remember keeps the tracks of the members that x has rows for.
func (s State) remember(x Sample, first bool) State {
	found := findings(x.Status)
	tracks := make([]track, len(x.Status.Regions))
	s.past = s.past.add(x.Status)
	for i := range x.Status.Regions {
		r := &x.Status.Regions[i]
		was, known := s.track(r.Name, i)
		tracks[i] = was.add(r, conditionOf(r, found[r.Name]), x.At, known, first)
	}
	s.tracks = tracks
	return s
}

// track finds the track of a member; hint is where it stands when the roster did not change.
func (s State) track(name string, hint int) (track, bool) {
	if hint < len(s.tracks) && s.tracks[hint].name == name {
		return s.tracks[hint], true
	}
	if i := slices.IndexFunc(s.tracks, func(t track) bool { return t.name == name }); i >= 0 {
		return s.tracks[i], true
	}
	return track{}, false
}

func (t track) add(r *api.Region, c condition, at time.Time, known, first bool) track {
	t.name = r.Name
	if !known || c != t.now {
		t.now, t.since, t.exact = c, at, !first
	}
	if !known || c >= t.shown || at.Sub(t.shownAt) >= calm {
		t.shown, t.shownAt = c, at
	}
	if r.CommitIndex != nil && (*r.CommitIndex != t.commit || t.commitMoved.IsZero()) {
		t.commit, t.commitMoved = *r.CommitIndex, at
	}
	return t
}

// Order is how members are sorted.
type Order int

// The orders, in the order in which they are chosen.
const (
	BySeverity Order = iota
	ByName
	ByLag
	ByRole
	orders
)

// Next returns the order after o.
func (o Order) Next() Order { return (o + 1) % orders }

// String names o.
func (o Order) String() string {
	switch o {
	case ByName:
		return "name"
	case ByLag:
		return "lag"
	case ByRole:
		return "role"
	}
	return "severity"
}

// ordered returns the positions of the good sample's rows in order o. The roster's order decides
// between equals.
func (s State) ordered(o Order) []int {
	regions := s.good.Status.Regions
	at := make([]int, len(regions))
	for i := range at {
		at[i] = i
	}
	lag := func(i int) uint64 {
		if n := regions[i].LagEvents; n != nil {
			return *n
		}
		return 1 << 63
	}
	slices.SortStableFunc(at, func(a, b int) int {
		switch o {
		case ByName:
			return cmp.Compare(regions[a].Name, regions[b].Name)
		case ByLag:
			return cmp.Compare(lag(b), lag(a))
		case ByRole:
			return cmp.Compare(roleRank(regions[a]), roleRank(regions[b]))
		}
		return cmp.Compare(s.tracks[b].shown, s.tracks[a].shown)
	})
	return at
}

func roleRank(r api.Region) int {
	switch {
	case r.IsLeader:
		return 0
	case r.Role == api.RoleVoter:
		return 1
	case r.Role == api.RoleLearner:
		return 2
	}
	return 3
}
