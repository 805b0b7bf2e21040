package viewmodel

import (
	"fmt"
	"slices"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/words"
)

// Event is one change between two looks.
type Event struct {
	At       time.Time
	Severity Severity
	Member   string // empty: the cluster
	Text     string
	Times    int // how often it came in a row; at least 1
}

// maxEvents is how many events a State keeps.
const maxEvents = 200

// tell puts events, oldest first, on top. One that says what the newest says is counted there.
func (s State) tell(events ...Event) State {
	if len(events) == 0 {
		return s
	}
	list := slices.Clone(s.events)
	for _, e := range events {
		e.Times = 1
		if len(list) > 0 && list[0].Member == e.Member && list[0].Text == e.Text {
			e.Times += list[0].Times
			list = list[1:]
		}
		list = slices.Insert(list, 0, e)
	}
	s.events = list[:min(len(list), maxEvents)]
	return s
}

func unanswered(x Sample) []Event {
	text := "nobody answers"
	if len(x.Failures) > 0 {
		f := x.Failures[0]
		text = fmt.Sprintf("nobody answers, of %d asked: %s %s", len(x.Failures), f.Endpoint, f.Code)
	}
	return []Event{{At: x.At, Severity: Crit, Text: text}}
}

func answeredAgain(x Sample, since time.Time) Event {
	return Event{At: x.At, Member: x.Status.Observer, Text: "answers again, after " + words.Age(x.At.Sub(since)) + " in which nobody did"}
}

// changes tells what differs between two looks: the cluster first, then each member. A look of a term
// below newest comes from a member that was left behind; what it says of the leader is not believed.
func changes(was, now *api.Status, at time.Time, newest uint64) []Event {
	var out []Event
	tell := func(severity Severity, member, format string, args ...any) {
		out = append(out, Event{At: at, Severity: severity, Member: member, Text: fmt.Sprintf(format, args...)})
	}
	if was.Observer != now.Observer {
		tell(Info, now.Observer, "shows the cluster now, %s did before", words.Or(was.Observer))
	}
	if was.ClusterID != now.ClusterID && was.ClusterID != "" {
		tell(Crit, now.Observer, "is of another cluster: %s, was %s", words.Or(now.ClusterID), was.ClusterID)
	}
	if now.Term < newest {
		tell(Warn, now.Observer, "is in term %d, behind term %d", now.Term, newest)
	} else {
		leaderChanges(was, now, tell)
	}
	switch split, whole := len(now.Views) > 0, len(was.Views) == 0; {
	case split && !now.Consistent && (whole || was.Consistent):
		tell(Crit, "", "members disagree about the leader: %d sides", len(now.Views))
	case split && whole:
		tell(Crit, "", "a side is cut off from the leader: %d sides", len(now.Views))
	case !split && !whole:
		tell(Info, "", "members agree about the leader again")
	}
	if was.Quorum.Up != now.Quorum.Up || was.Quorum.Voters != now.Quorum.Voters {
		severity := Info
		if now.Quorum.Spare == 0 && now.Quorum.Up < was.Quorum.Up {
			severity = Crit
		}
		tell(severity, "", "voters up %d of %d, were %d of %d: can lose %d", now.Quorum.Up, now.Quorum.Voters, was.Quorum.Up, was.Quorum.Voters, now.Quorum.Spare)
	}
	if was.Health.Level != now.Health.Level {
		tell(levelSeverity(now.Health.Level), "", "health %s, was %s", words.Or(now.Health.Level), words.Or(was.Health.Level))
	}
	memberChanges(was, now, tell)
	return out
}

func leaderChanges(was, now *api.Status, tell func(Severity, string, string, ...any)) {
	switch {
	case was.Leader != nil && now.Leader == nil:
		tell(Crit, *was.Leader, "leads no more, and nobody does")
	case now.Leader != nil && was.Leader == nil:
		tell(Info, *now.Leader, "elected leader, term %d", now.Term)
	case now.Leader != nil && *now.Leader != *was.Leader:
		tell(Info, *now.Leader, "elected leader, term %d; %s led term %d", now.Term, *was.Leader, was.Term)
	case was.Term != now.Term:
		tell(Info, "", "term %d, was %d", now.Term, was.Term)
	}
}

// memberChanges tells what became of each member, in the roster's order.
func memberChanges(was, now *api.Status, tell func(Severity, string, string, ...any)) {
	foundBefore, foundNow := findings(was), findings(now)
	find := func(list []api.Region, name string, hint int) *api.Region {
		if hint < len(list) && list[hint].Name == name {
			return &list[hint]
		}
		if i := slices.IndexFunc(list, func(r api.Region) bool { return r.Name == name }); i >= 0 {
			return &list[i]
		}
		return nil
	}
	for i := range now.Regions {
		r := &now.Regions[i]
		old := find(was.Regions, r.Name, i)
		if old == nil {
			tell(Info, r.Name, "is a member now, as %s", words.Or(r.Role))
			continue
		}
		if old.Role != r.Role {
			tell(Info, r.Name, "is %s now, was %s", words.Or(r.Role), words.Or(old.Role))
		}
		if old.BootEpoch != nil && r.BootEpoch != nil && *r.BootEpoch > *old.BootEpoch {
			tell(Warn, r.Name, "was restarted: boot %d, was %d", *r.BootEpoch, *old.BootEpoch)
		}
		if before, c := conditionOf(old, foundBefore[r.Name]), conditionOf(r, foundNow[r.Name]); becameOther(before, c) {
			tell(c.severity(), r.Name, "%s", becomes(r, c, before))
		}
	}
	for i := range was.Regions {
		if name := was.Regions[i].Name; find(now.Regions, name, i) == nil {
			tell(Info, name, "is a member no more")
		}
	}
}

// becameOther leaves out what the events about the leader tell already.
func becameOther(before, now condition) bool {
	healthy := func(c condition) bool { return c == well || c == leading || c == slow }
	return before != now && !(healthy(before) && healthy(now))
}

func becomes(r *api.Region, now, before condition) string {
	switch now {
	case quarantined:
		return "quarantined: " + Note(*r)
	case down, downLearner:
		return "does not answer: " + Note(*r)
	case cutOff:
		if len(r.Faults) > 0 {
			return "is cut off: " + Note(*r)
		}
		return "answers but hears no leader"
	case faulty:
		return "keeps up " + Note(*r)
	case fullDisk:
		return "has an almost full disk"
	case reseeding:
		return Note(*r)
	case notReady:
		return "is not ready"
	case behind:
		return "is " + words.CountOf(r.LagEvents) + " entries behind"
	case promoting, stuck:
		return "promotion_pending: " + r.PromotionPending.Reason + ", " + words.CountOf(r.PromotionPending.Lag) + " entries behind"
	case gone:
		return "was removed"
	}
	switch before {
	case down, downLearner:
		return "answers again"
	case cutOff:
		return "hears the leader again"
	case behind, promoting, stuck:
		return "has caught up"
	case faulty:
		return "keeps up no fault any more"
	case reseeding, quarantined:
		return "was installed again"
	}
	return "is ready"
}

func levelSeverity(level string) Severity {
	switch level {
	case api.HealthOK:
		return Info
	case api.HealthDegraded:
		return Warn
	}
	return Crit
}
