package membership

import (
	"fmt"
	"math"
	"strings"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
)

// The reasons for which a learner is not promoted yet. They are part of the HTTP interface.
const (
	PendingNoContact     = "no_contact"
	PendingTLS           = "tls" // no contact, because of a certificate
	PendingInstalling    = "installing"
	PendingCapability    = "capability_missing"
	PendingBehind        = "behind"
	PendingFallingBehind = "falling_behind"
	PendingUnverified    = "unverified"
	PendingQuorum        = "quorum" // too few voters answer for a change
	PendingChange        = "conf_change_in_progress"
)

// Pending is why a learner is no voter yet.
type Pending struct {
	Reason string
	Detail string // for people
	Lag    uint64 // entries behind the leader
	Bytes  uint64 // of the leader's log
	Rate   float64
	// ETA is when it will be close enough at that rate; 0: not known, or never.
	ETA time.Duration
}

// Promotion returns every rule of the promotion of a learner, in the order in which they are told.
func (v View) Promotion(m Member) []Check {
	seen := v.Seen[m.ID]
	lag := v.Last - min(seen.Match, v.Last)
	contact := Check{Code: GateContact, OK: seen.Active || seen.Fetching, Detail: m.Name + " answers the leader"}
	if !contact.OK {
		contact.Detail = m.Name + " has not answered the leader for an election timeout"
		if seen.Unreached != "" {
			contact.Detail += "; it is not reached: " + seen.Unreached
		}
	}
	install := Check{Code: GateInstall, OK: !seen.Installing && !seen.Fetching, Detail: "the leader's log holds what " + m.Name + " needs"}
	switch {
	case seen.Fetching:
		install.Detail = "an artifact is on its way to " + m.Name
	case seen.Installing:
		install.Detail = m.Name + " must install the state first: the leader's log does not reach back far enough"
	}
	capable := Check{Code: GateCapable, OK: m.Capabilities.Has(v.Activated), Detail: m.Name + " understands what the log holds"}
	if !capable.OK {
		capable.Detail = fmt.Sprintf("%s lacks %s", m.Name, v.Activated&^m.Capabilities)
	}
	verified := Check{Code: GateVerified, OK: seen.Unverified == "", Detail: "nothing speaks against the state of " + m.Name}
	if !verified.OK {
		verified.Detail = seen.Unverified
	}
	checks := []Check{
		contact, install, capable,
		{
			Code: GateCaughtUp, OK: v.caughtUp(seen, lag), Measured: lag, Threshold: v.Policy.PromoteLag, Unit: "entries",
			Detail: fmt.Sprintf("%s is %d entries behind the leader, at most %d are allowed; it stayed within a round %d times in a row, %d suffice",
				m.Name, lag, v.Policy.PromoteLag, seen.Pace.InRow, v.Policy.PromoteRounds),
		},
		verified,
	}
	checks = append(checks, v.majorities(v.after(m))...)
	return append(checks, v.settled())
}

// caughtUp: a learner is close enough, or it keeps up with a load under which nobody is ever closer.
func (v View) caughtUp(seen Seen, lag uint64) bool {
	return lag <= v.Policy.PromoteLag || seen.Pace.InRow >= v.Policy.PromoteRounds || mutantPromoteBehind
}

// after returns the voters once a learner is promoted: in the place of the voter of its name, if there
// is one.
func (v View) after(learner Member) []uint64 {
	voters := append([]uint64(nil), uint64(learner.ID))
	old, swap := v.replaced(learner)
	for _, id := range v.Conf.GetVoters() {
		if id != uint64(learner.ID) && (!swap || id != uint64(old.ID)) {
			voters = append(voters, id)
		}
	}
	return voters
}

// replaced returns the voter that a learner takes the place of.
func (v View) replaced(learner Member) (Member, bool) {
	for _, m := range v.Roster.AllNamed(learner.Name) {
		if m.Role == RoleVoter {
			return m, true
		}
	}
	return Member{}, false
}

// Pending says why a learner is not promoted now; ok is false when it may be.
func (v View) Pending(m Member) (p Pending, ok bool) {
	failed, ok := Failed(v.Promotion(m), false)
	if !ok {
		return Pending{}, false
	}
	seen := v.Seen[m.ID]
	p = Pending{Detail: failed.Detail, Lag: v.Last - min(seen.Match, v.Last), Bytes: seen.Bytes, Rate: seen.Pace.Rate()}
	if over := p.Lag - min(v.Policy.PromoteLag, p.Lag); over > 0 && p.Rate > 0 {
		p.ETA = time.Duration(math.Min(float64(over)/p.Rate, float64(24*time.Hour/time.Second)) * float64(time.Second))
	}
	switch failed.Code {
	case GateContact:
		p.Reason = PendingNoContact
		if seen.TLS {
			p.Reason = PendingTLS
		}
	case GateInstall:
		p.Reason = PendingInstalling
	case GateCapable:
		p.Reason = PendingCapability
	case GateCaughtUp:
		p.Reason = PendingBehind
		if p.Rate < 0 {
			p.Reason = PendingFallingBehind
		}
	case GateVerified:
		p.Reason = PendingUnverified
	case GateSettled:
		p.Reason = PendingChange
	default:
		p.Reason = PendingQuorum
	}
	return p, true
}

// Behind says of every learner, by name, how many entries it is behind.
func (v View) Behind() map[string]uint64 {
	behind := map[string]uint64{}
	for _, m := range v.Roster.Members {
		if m.Role == RoleLearner {
			behind[m.Name] = v.Last - min(v.Seen[m.ID].Match, v.Last)
		}
	}
	return behind
}

// Promote makes a learner a voter. Where it replaces a member, that one leaves in the same, joint,
// change, so that there are never fewer voters. Whether it may is Pending's.
func (v View) Promote(m Member) Record {
	next := v.Roster.next()
	m.Role = RoleVoter
	next.set(m)
	steps := []*pb.ConfChangeSingle{step(pb.ConfChangeAddNode, m.ID)}
	var lost []ident.MemberID
	does := "promotion"
	if old, swap := v.replaced(m); swap {
		lost, does = append(lost, old.ID), "replacement"
	}
	conf := v.without(&next, steps, lost...)
	return Record{Roster: next, Conf: conf, Does: does}
}

// Pace follows how a learner gains on the leader. The zero Pace knows nothing.
type Pace struct {
	// InRow counts the rounds in a row that took no longer than a round may. A round is over when the
	// learner has everything that the leader had when it began (Thesis 4.2.1).
	InRow int

	target uint64 // the round under way ends here; 0: none is
	began  time.Time

	// gaps are measured once a second, the newest last; zero times: not yet.
	gaps [paceSamples]gap
}

const (
	paceSamples = 6
	paceEvery   = time.Second
)

type gap struct {
	at  time.Time
	lag uint64
}

// Observe takes note of where a learner stands now. limit is how long a round may take.
func (p Pace) Observe(now time.Time, match, last uint64, limit time.Duration) Pace {
	switch took := now.Sub(p.began); {
	case p.target == 0:
		p.target, p.began = last, now
	case match >= p.target:
		if p.InRow++; took > limit {
			p.InRow = 0
		}
		p.target, p.began = last, now
	case took > limit:
		p.InRow = 0
	}
	if newest := p.gaps[paceSamples-1]; newest.at.IsZero() || now.Sub(newest.at) >= paceEvery {
		copy(p.gaps[:], p.gaps[1:])
		p.gaps[paceSamples-1] = gap{now, last - min(match, last)}
	}
	return p
}

// Rate is by how many entries a second the gap shrinks; negative: it grows. 0 also where nothing is
// known yet.
func (p Pace) Rate() float64 {
	newest := p.gaps[paceSamples-1]
	for _, oldest := range p.gaps {
		if seconds := newest.at.Sub(oldest.at).Seconds(); !oldest.at.IsZero() && seconds > 0 {
			return (float64(oldest.lag) - float64(newest.lag)) / seconds
		}
	}
	return 0
}

// names joins the names of members.
func (v View) names(ids []uint64) string {
	all := make([]string, len(ids))
	for i, id := range ids {
		all[i] = v.name(ident.MemberID(id))
	}
	return strings.Join(all, ", ")
}
