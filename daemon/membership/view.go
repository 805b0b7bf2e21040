package membership

import (
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
)

// View is everything that the leader of group 0 decides by: the membership as applied, and what it has
// seen of the members. Every decision of this package is a method of it. Who decides by it changes
// nothing of it.
type View struct {
	Now  time.Time
	Self ident.MemberID // the leader
	// Led is since when it leads: what it has not heard since then, it does not know.
	Led time.Time

	Roster    Roster
	Conf      *pb.ConfState      // in force
	ConfIndex uint64             // of the entry that made it so
	Last      uint64             // of the leader's log
	Activated ident.Capabilities // what the log may hold beyond the first release
	Eager     ident.Capabilities // what it is to hold as soon as everybody understands it

	Seen map[ident.MemberID]Seen // of the leader too; absent: nothing was seen
	// Notices are what became of the notices to removed members since their last record.
	Notices map[ident.MemberID]Notice
	// Approved are the names whose member an operator wants replaced.
	Approved map[string]bool

	Policy Policy
}

// Seen is what the leader has seen of a member in this term.
type Seen struct {
	// Active: its replica has answered within an election timeout, in this term. Of the leader too.
	Active bool
	Heard  time.Time // the last sign of life of any kind; zero: none while this leader leads
	Since  time.Time // when this leader first saw it in a roster

	Match      uint64 // of its durable log
	Bytes      uint64 // of the leader's log behind Match
	Installing bool   // it needs an artifact first
	Fetching   bool   // one is on its way to it, from the leader
	Pace       Pace

	// Applied and Committed are as it last reported: what its state reflects, and up to where its disk
	// knows the log to be committed.
	Applied, Committed uint64

	// Unreached is why the leader's last attempt to reach it failed; empty: it did not. TLS: no waiting will
	// help, certificates stand between the two.
	Unreached string
	TLS       bool

	Unverified string // why its state is not known to be right; empty: it is, or nobody compares
	Said       *Said  // in its last handshake; nil: none since this process runs
}

// Said is what a member says of itself.
type Said struct {
	Incarnation        ident.Incarnation
	BootEpoch          uint64
	Capabilities       ident.Capabilities
	GRPCAddr, HTTPAddr string // empty: an older binary, which does not say
}

// Notice is what became of telling a member that it is removed.
type Notice struct{ Told, Acked bool }

// Policy is the leader's part of the configuration.
type Policy struct {
	PromoteLag    uint64        // entries that a learner may be behind
	PromoteRounds int           // or rounds in a row that it stayed within
	Round         time.Duration // how long such a round may take: an election timeout
	LearnerTTL    time.Duration // a learner that was never heard of expires
	ReplaceGrace  time.Duration // a member heard of within it is not lost
	ReplaceManual bool          // a lost member is replaced only when an operator asks for it
	RemovalGiveup time.Duration // a removed member is told no longer than this
}

// The limit of replacements: a member that loses its disk again and again needs a person.
const (
	replaceLimit  = 3
	replaceWithin = time.Hour
)

// DefaultPolicy is what the configuration file need not say.
func DefaultPolicy() Policy {
	return Policy{
		PromoteLag: 1024, PromoteRounds: 3, Round: time.Second,
		LearnerTTL: 15 * time.Minute, ReplaceGrace: 10 * time.Second, RemovalGiveup: 10 * time.Minute,
	}
}

// The codes of a Check.
const (
	GateContact  = "contact"     // it answers the leader
	GateInstall  = "installed"   // it has the state that the log begins after
	GateCapable  = "capable"     // its binary understands what the log may hold
	GateCaughtUp = "caught_up"   // it is close behind the leader, or keeps up
	GateVerified = "verified"    // its state was compared with the others'
	GateSettled  = "settled"     // no other change is under way
	GateLast     = "other_voter" // a voter stays
	GatePresent  = "present_majority"
	GateNew      = "new_majority"
	GateRest     = "rest_reachable" // no voter that answers goes while one that does not stays
	GateLost     = "lost"           // it was not heard of for a while
)

// Check is one rule, with what was found.
type Check struct {
	Code   string
	OK     bool
	Detail string // for people
	// Measured and Threshold are what the rule compares, in Unit; without a Unit it compares nothing.
	Measured, Threshold uint64
	Unit                string
	Overridable         bool // an operator may insist
}

// Failed returns the first check that fails; with override, the first that cannot be overridden.
func Failed(checks []Check, override bool) (Check, bool) {
	for _, c := range checks {
		if !c.OK && !(override && c.Overridable) {
			return c, true
		}
	}
	return Check{}, false
}

// reachable reports whether a replica answers: the leader's own does.
func (v View) reachable(id ident.MemberID) bool { return id == v.Self || v.Seen[id].Active }

// name is how a member is called in messages.
func (v View) name(id ident.MemberID) string {
	if m, ok := v.Roster.Member(id); ok {
		return m.Name
	}
	return "member " + id.String()
}
