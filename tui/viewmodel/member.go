package viewmodel

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/words"
)

// Severity says how much something deserves to be looked at.
type Severity int

// The severities, least first.
const (
	Info Severity = iota
	Warn
	Crit
)

// String returns the word that stands for s where there is no colour.
func (s Severity) String() string {
	switch s {
	case Warn:
		return "warn"
	case Crit:
		return "crit"
	}
	return "info"
}

// slowAnswer is how long a member may take to answer the observer and still be called ok. The
// observer itself gives up after 500 ms.
const slowAnswer = 100 * time.Millisecond

// outboxMoment is how long writes may wait for a leader before it is worth a badge: with one in reach
// they are gone by then.
const outboxMoment = 2 * time.Second

// condition is the one thing that is most wrong with a member, least first.
type condition int

const (
	gone      condition = iota // removed from the roster
	well                       // nothing is wrong
	leading                    // nothing is wrong, and it leads
	promoting                  // a learner that will vote
	slow
	faulty // it keeps up faults of a drill
	stuck  // a learner that will not vote by itself soon
	behind
	notReady
	reseeding
	fullDisk
	cutOff
	downLearner
	down
	quarantined
)

// severity returns how bad a condition is.
func (c condition) severity() Severity {
	switch {
	case c >= cutOff && c != downLearner:
		return Crit
	case c >= slow:
		return Warn
	}
	return Info
}

// conditionOf judges a row. found is what the status itself found about the member, or well.
func conditionOf(r *api.Region, found condition) condition {
	switch {
	case r.Role == api.RoleRemoved:
		return gone
	case r.Quarantine != nil:
		return quarantined
	case !r.Reachable && r.Role == api.RoleLearner:
		return downLearner
	case !r.Reachable:
		return down
	case r.Partitioned:
		return cutOff
	case r.PromotionPending != nil && !catchesUp(r.PromotionPending.Reason):
		return stuck
	case r.PromotionPending != nil:
		return promoting
	case found == fullDisk:
		return fullDisk
	case r.ReseedRequired:
		return reseeding
	case r.Ready != nil && !*r.Ready:
		return notReady
	case found == behind:
		return behind
	case len(r.Faults) > 0:
		return faulty
	case r.TookMS != nil && *r.TookMS > slowAnswer.Milliseconds():
		return slow
	case r.IsLeader:
		return leading
	}
	return well
}

// catchesUp reports whether a learner that is pending for this reason becomes a voter by itself.
func catchesUp(reason string) bool {
	return reason == api.PendingInstalling || reason == api.PendingBehind || reason == api.PendingChangeInFlight
}

// findings returns what the status found about members and their rows alone do not tell.
func findings(s *api.Status) map[string]condition {
	found := map[string]condition{}
	for _, r := range s.Health.Reasons {
		c := gone
		switch r.Code {
		case "disk_full":
			c = fullDisk
		case "member_behind":
			c = behind
		}
		found[r.Member] = max(found[r.Member], c)
	}
	return found
}

// Role is the role of a member in one word; the voter that leads is the leader.
func Role(r api.Region) string {
	if r.IsLeader {
		return "leader"
	}
	return words.Or(r.Role)
}

// Applied hides the 0 that stands for the worst case of a member that does not answer: what it has
// applied is not known.
func Applied(r api.Region) string {
	if !r.Reachable || r.AppliedIndex == nil {
		return words.Unknown
	}
	return words.Count(r.AppliedEvents)
}

// Lag marks the worst case of a member that does not tell what it applied as what it is, an upper
// bound.
func Lag(r api.Region) string {
	if (!r.Reachable || r.AppliedIndex == nil) && r.LagEvents != nil {
		return "<=" + words.Count(*r.LagEvents)
	}
	return words.CountOf(r.LagEvents)
}

// Heard is how long ago a member heard from the leader; the leader itself has no need to.
func Heard(r api.Region) string {
	if r.Reachable && r.IsLeader {
		return "-"
	}
	return words.AgeOf(r.AgeMS)
}

// Seen says how long before at a member that does not answer was last heard from by any other; empty where
// nobody did, or there is no need to.
func Seen(r api.Region, at time.Time) string {
	if r.Reachable || r.LastSeen == nil {
		return ""
	}
	return "last seen " + words.Age(max(at.Sub(*r.LastSeen), 0)) + " ago"
}

// Note says why a member is as it is, in its own words; empty when there is nothing to say.
func Note(r api.Region) string {
	switch {
	case r.Quarantine != nil:
		return r.Quarantine.Cause + ": " + r.Quarantine.Detail
	case r.PromotionPending != nil:
		return "promotion_pending: " + r.PromotionPending.Detail
	case r.Error != nil:
		return r.Error.Code + ": " + r.Error.Detail
	case !r.Reachable:
		return "no answer"
	case r.Reseed != nil:
		return reseedNote(r)
	case len(r.Faults) > 0:
		return Faults(r.Faults)
	case r.Outbox != nil && r.Outbox.Error != nil:
		return *r.Outbox.Error
	case r.Outbox != nil && r.Outbox.Pending > 0:
		return words.Count(uint64(r.Outbox.Pending)) + " writes wait for a leader, the oldest for " + words.AgeOf(r.Outbox.OldestAgeMS)
	}
	return ""
}

// Waiting is the badge of a member whose outbox is not empty and has not been for a moment only.
func Waiting(r api.Region) string {
	if o := r.Outbox; o != nil && o.Pending > 0 && o.OldestAgeMS != nil && *o.OldestAgeMS >= outboxMoment.Milliseconds() {
		return "OUTBOX " + Compact(uint64(o.Pending)) + " " + words.AgeOf(o.OldestAgeMS)
	}
	return ""
}

// Faults says which faults a member keeps up and for how much longer: "fault f-1 against us-east, 12s left".
func Faults(faults []api.Fault) string {
	var ids, peers []string
	left := int64(0)
	for _, f := range faults {
		if !slices.Contains(ids, f.ID) {
			ids = append(ids, f.ID)
		}
		if !slices.Contains(peers, f.Peer) {
			peers = append(peers, f.Peer)
		}
		left = max(left, f.LeftMS)
	}
	return "fault " + strings.Join(ids, ", ") + " against " + strings.Join(peers, ", ") + ", " + words.Age(time.Duration(left)*time.Millisecond) + " left"
}

// reseedNote says why a member is installed again, and how far that is.
func reseedNote(r api.Region) string {
	note := "reseed: " + r.Reseed.Reason
	if i := r.Install; i != nil && i.Total > 0 {
		note += fmt.Sprintf(", %s of %s", words.Bytes(i.Bytes), words.Bytes(i.Total))
		if i.Rate > 0 {
			note += ", " + words.Bytes(i.Rate) + "/s"
		}
		if i.ETAMS != nil {
			note += ", " + words.AgeOf(i.ETAMS) + " left"
		}
	} else if r.Reseed.Phase != "" {
		note += ", " + strings.ReplaceAll(r.Reseed.Phase, "_", " ")
	}
	switch {
	case r.Reseed.Refused != nil:
		note += "; waits: " + *r.Reseed.Refused
	case r.Reseed.Failure != nil:
		note += "; " + *r.Reseed.Failure
	}
	return note
}
