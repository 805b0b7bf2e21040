package journal

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Kind is the stable name of a kind of event. Kinds are never renamed or given another meaning.
type Kind string

// The kinds.
const (
	KindStarted       Kind = "started"
	KindStopping      Kind = "stopping"
	KindBorn          Kind = "born"
	KindJoined        Kind = "joined"
	KindRosterApplied Kind = "roster_applied"
	KindLeaderElected Kind = "leader_elected"
	KindLeaderLost    Kind = "leader_lost"
	KindTermRaised    Kind = "term_raised"
	KindStateChanged  Kind = "state_changed"
	KindPeerConnected Kind = "peer_connected"
	KindPeerLost      Kind = "peer_lost"
	KindQuarantined   Kind = "quarantined"
	KindReseed        Kind = "reseed_required"
	KindInstalled     Kind = "installed"
	KindFaultBegun    Kind = "fault_begun"
	KindFaultEnded    Kind = "fault_ended"
	KindMemberAdded   Kind = "member_added"
	KindPromoted      Kind = "member_promoted"
	KindMemberRemoved Kind = "member_removed"
	KindExpired       Kind = "learner_expired"
	KindMoved         Kind = "address_changed"
	KindGivenUp       Kind = "removal_given_up"
	KindRemoved       Kind = "removed"
	KindReconciled    Kind = "reconciled"
	KindActivated     Kind = "feature_activated"

	KindPeerRefused        Kind = "peer_refused"
	KindIdentityDuplicated Kind = "identity_duplicated"
	KindClockSkewed        Kind = "clock_skewed"
	KindRecovered          Kind = "recovered"

	// Those that only a stream has: they are made for one reader and not kept.
	KindHeartbeat  Kind = "heartbeat"
	KindEventsLost Kind = "events_lost"
)

// Level says who must act.
type Level string

// The levels, as in logs.
const (
	LevelInfo  Level = "info"  // nobody
	LevelWarn  Level = "warn"  // nobody yet: degraded, and may recover by itself
	LevelError Level = "error" // a person
)

// Fact is what an event says. Its JSON object holds the fields of the kind.
type Fact interface {
	Kind() Kind
	// Text says it to people in one line, without naming the member that saw it.
	Text() string
	// Same is equal for facts that are one and the same thing, seen by several members. Empty: the
	// fact is about the member that saw it.
	Same() string
}

// Spec is one row of the table of kinds.
type Spec struct {
	Fact  Fact // the zero value: its kind and its fields
	Level Level
	Means string
}

// Kinds returns the whole table, in the order of its document.
func Kinds() []Spec {
	return []Spec{
		{Started{}, LevelInfo, "The process has opened its data directory. The first event of every boot"},
		{Stopping{}, LevelInfo, "The process was told to end. The last event of a boot that was not cut short"},
		{Born{}, LevelInfo, "This member belongs to a cluster from now on"},
		{Joined{}, LevelInfo, "This member was admitted to a cluster that exists, and has installed its data"},
		{RosterApplied{}, LevelInfo, "The membership, as found at the start or as changed by the log"},
		{LeaderElected{}, LevelInfo, "This member knows who leads the term"},
		{LeaderLost{}, LevelWarn, "This member knows of no leader any more"},
		{TermRaised{}, LevelInfo, "The term rose, and nobody is known to lead it yet"},
		{StateChanged{}, LevelInfo, "This member leads, stands for election, or follows"},
		{PeerConnected{}, LevelInfo, "The stream to another member is open"},
		{PeerLost{}, LevelWarn, "The stream to another member broke"},
		{Quarantined{}, LevelError, "A replica serves nothing, because its data must not be served"},
		{QuarantineEnded{}, LevelInfo, "The data of a replica in quarantine was replaced by sound data"},
		{ReseedRequired{}, LevelWarn, "A replica will be installed again from another member. Until then it serves what it has, if that is sound"},
		{Installed{}, LevelInfo, "The data of a replica was replaced by an artifact of another member"},
		{FaultBegun{}, LevelWarn, "For a drill, this member keeps itself from others, or is slow to them, for a time"},
		{FaultEnded{}, LevelInfo, "A fault of a drill is over"},
		{MemberAdded{}, LevelInfo, "The membership has a new member, a learner; with a replacement, in the place of one that is lost"},
		{MemberPromoted{}, LevelInfo, "A learner votes from now on"},
		{MemberRemoved{}, LevelInfo, "A member belongs to the cluster no more"},
		{LearnerExpired{}, LevelWarn, "A learner that was never heard of was taken out again"},
		{AddressChanged{}, LevelInfo, "A member has announced other addresses"},
		{RemovalGivenUp{}, LevelWarn, "A removed member has not acknowledged that in time, and is told no more unless it calls"},
		{FeatureActivated{}, LevelInfo, "The log makes use of what older binaries do not understand: none of them can take part any more"},
		{Removed{}, LevelWarn, "This member was told that it belongs to its cluster no more"},
		{PeerRefused{}, LevelError, "This member will not hear another one, because of what it knows of it. The other one closes its replicas"},
		{IdentityDuplicated{}, LevelError, "Two processes with the identity of one member were alive at once: one runs on a copy. Both are refused"},
		{ClockSkewed{}, LevelWarn, "The clock of another member is further from this one's than clock.max_drift, or is right again"},
		{Recovered{}, LevelError, "The cluster lost its majority for good and goes on from this member's disk"},
		{ReseededAgain{}, LevelWarn, "A replica was installed again before its state was verified: it may go on so for ever"},
		{Unresolved{}, LevelError, "Voters have different states and no majority has the same, so nobody is to blame"},
		{KeptCleared{}, LevelInfo, "The replaced data that quarantines kept was removed, as somebody asked for"},
		{PinEnded{}, LevelWarn, "A log was kept for a member that had fetched an artifact, for as long or as far as it may be; that member has to fetch again"},
		{Reconciled{}, LevelInfo, "This member and another one have exchanged what waits in their outboxes"},
		{Heartbeat{}, LevelInfo, "In a stream alone: nothing happened for a while. Its id is that of the event before"},
		{EventsLost{}, LevelWarn, "In a stream alone: the reader was too slow and has missed events. Its id is where it goes on"},
	}
}

// LevelOf returns the level of a kind.
func LevelOf(k Kind) Level {
	for _, s := range Kinds() {
		if s.Fact.Kind() == k {
			return s.Level
		}
	}
	return LevelInfo
}

// Started is the first event of a boot.
type Started struct {
	Boot    uint64 `json:"boot"`
	Version string `json:"version"`
}

func (Started) Kind() Kind     { return KindStarted }
func (f Started) Text() string { return fmt.Sprintf("started, boot %d, version %s", f.Boot, f.Version) }
func (Started) Same() string   { return "" }

// Stopping is the last event of a boot.
type Stopping struct{}

func (Stopping) Kind() Kind   { return KindStopping }
func (Stopping) Text() string { return "is stopping" }
func (Stopping) Same() string { return "" }

// Born says to which cluster a fresh member belongs now.
type Born struct {
	Cluster string         `json:"cluster"`
	ID      ident.MemberID `json:"id,string"`
	Made    bool           `json:"made"` // this member made the cluster; else it found it
}

func (Born) Kind() Kind { return KindBorn }
func (f Born) Text() string {
	how := "found"
	if f.Made {
		how = "made"
	}
	return fmt.Sprintf("%s cluster %s, is member %s of it", how, f.Cluster, f.ID)
}
func (Born) Same() string { return "" }

// Joined is a member whose data came from another one.
type Joined struct {
	Cluster string         `json:"cluster"`
	ID      ident.MemberID `json:"id,string"`
	Index   uint64         `json:"index"` // of the state that was installed
	Bytes   int64          `json:"bytes"`
	From    ident.MemberID `json:"from,string"`
}

func (Joined) Kind() Kind { return KindJoined }
func (f Joined) Text() string {
	return fmt.Sprintf("joined cluster %s as member %s, with the state at index %d from member %s, %d bytes", f.Cluster, f.ID, f.Index, f.From, f.Bytes)
}
func (Joined) Same() string { return "" }

// RosterApplied is the membership from now on.
type RosterApplied struct {
	Version uint64   `json:"version"`
	Members []string `json:"members"` // names, by id
}

func (RosterApplied) Kind() Kind { return KindRosterApplied }
func (f RosterApplied) Text() string {
	return fmt.Sprintf("roster %d: %s", f.Version, strings.Join(f.Members, ", "))
}
func (f RosterApplied) Same() string { return fmt.Sprintf("%s/%d", KindRosterApplied, f.Version) }

// LeaderElected is the leader of a term.
type LeaderElected struct {
	Group ident.GroupID  `json:"group,string"`
	Term  uint64         `json:"term"`
	ID    ident.MemberID `json:"id,string"`
	Name  string         `json:"name"` // empty: this member's roster does not know the id
}

func (LeaderElected) Kind() Kind { return KindLeaderElected }
func (f LeaderElected) Text() string {
	return fmt.Sprintf("%s leads term %d%s", who(f.ID, f.Name), f.Term, ofGroup(f.Group))
}
func (f LeaderElected) Same() string {
	// With the id: two leaders of one term must never hide each other.
	return fmt.Sprintf("%s/%s/%d/%s", KindLeaderElected, f.Group, f.Term, f.ID)
}

// LeaderLost names who led.
type LeaderLost struct {
	Group ident.GroupID  `json:"group,string"`
	Term  uint64         `json:"term"` // that it led
	ID    ident.MemberID `json:"id,string"`
	Name  string         `json:"name"`
}

func (LeaderLost) Kind() Kind { return KindLeaderLost }
func (f LeaderLost) Text() string {
	return fmt.Sprintf("knows of no leader any more; %s led term %d%s", who(f.ID, f.Name), f.Term, ofGroup(f.Group))
}
func (LeaderLost) Same() string { return "" }

// TermRaised is a term without a leader.
type TermRaised struct {
	Group ident.GroupID `json:"group,string"`
	Term  uint64        `json:"term"`
	Was   uint64        `json:"was"`
}

func (TermRaised) Kind() Kind { return KindTermRaised }
func (f TermRaised) Text() string {
	return fmt.Sprintf("is in term %d, was in %d%s", f.Term, f.Was, ofGroup(f.Group))
}
func (TermRaised) Same() string { return "" }

// StateChanged is this member's own part: leader, candidate, follower.
type StateChanged struct {
	Group ident.GroupID `json:"group,string"`
	Term  uint64        `json:"term"`
	State string        `json:"state"`
	Was   string        `json:"was"`
}

func (StateChanged) Kind() Kind { return KindStateChanged }
func (f StateChanged) Text() string {
	return fmt.Sprintf("is %s in term %d, was %s%s", f.State, f.Term, f.Was, ofGroup(f.Group))
}
func (StateChanged) Same() string { return "" }

// PeerConnected is a member that can be spoken to.
type PeerConnected struct {
	ID   ident.MemberID `json:"id,string"`
	Name string         `json:"name"`
	Addr string         `json:"addr"`
}

func (PeerConnected) Kind() Kind { return KindPeerConnected }
func (f PeerConnected) Text() string {
	return fmt.Sprintf("is connected to %s at %s", who(f.ID, f.Name), f.Addr)
}
func (PeerConnected) Same() string { return "" }

// PeerLost is a member that was connected.
type PeerLost struct {
	ID      ident.MemberID `json:"id,string"`
	Name    string         `json:"name"`
	Addr    string         `json:"addr"`
	Failure string         `json:"failure"` // its class: refused, timeout, …
	Detail  string         `json:"detail"`
}

func (PeerLost) Kind() Kind { return KindPeerLost }
func (f PeerLost) Text() string {
	return fmt.Sprintf("has lost %s at %s: %s", who(f.ID, f.Name), f.Addr, f.Failure)
}
func (PeerLost) Same() string { return "" }

// Quarantined is a replica that was closed.
type Quarantined struct {
	Group  ident.GroupID `json:"group,string"`
	Cause  string        `json:"cause"`
	Detail string        `json:"detail"`
}

func (Quarantined) Kind() Kind { return KindQuarantined }
func (f Quarantined) Text() string {
	return fmt.Sprintf("quarantined group %s (%s): %s", f.Group, f.Cause, f.Detail)
}
func (Quarantined) Same() string { return "" }

// ReseedRequired is a replica that waits to be installed again.
type ReseedRequired struct {
	Group  ident.GroupID `json:"group,string"`
	Reason string        `json:"reason"`
}

func (ReseedRequired) Kind() Kind { return KindReseed }
func (f ReseedRequired) Text() string {
	return fmt.Sprintf("must be installed again (%s)%s", f.Reason, ofGroup(f.Group))
}
func (ReseedRequired) Same() string { return "" }

// Installed is a replica that begins anew from an artifact.
type Installed struct {
	Group ident.GroupID  `json:"group,string"`
	Index uint64         `json:"index"`
	Bytes int64          `json:"bytes"`
	From  ident.MemberID `json:"from,string"`
}

func (Installed) Kind() Kind { return KindInstalled }
func (f Installed) Text() string {
	return fmt.Sprintf("installed the state at index %d from member %s, %d bytes%s", f.Index, f.From, f.Bytes, ofGroup(f.Group))
}
func (Installed) Same() string { return "" }

// Heartbeat keeps a stream alive.
type Heartbeat struct{}

func (Heartbeat) Kind() Kind   { return KindHeartbeat }
func (Heartbeat) Text() string { return "nothing happened" }
func (Heartbeat) Same() string { return "" }

// EventsLost is a hole in a stream: events after After up to Floor.
type EventsLost struct {
	After string `json:"after"`
	Floor string `json:"floor"`
}

func (EventsLost) Kind() Kind { return KindEventsLost }
func (f EventsLost) Text() string {
	return fmt.Sprintf("events after %s up to %s are lost to this reader", f.After, f.Floor)
}
func (EventsLost) Same() string { return "" }

// who names a member, by its number where no name is known.
func who(id ident.MemberID, name string) string {
	if name == "" {
		return "member " + id.String()
	}
	return name
}

// ofGroup names a shard; group 0 is what everybody thinks of anyway.
func ofGroup(g ident.GroupID) string {
	if g == 0 {
		return ""
	}
	return " of group " + g.String()
}

// maxDetail bounds a text that comes from an error, in bytes.
const maxDetail = 512

// Detail shortens the text of an error to what an event keeps.
func Detail(s string) string {
	if len(s) <= maxDetail {
		return s
	}
	cut := maxDetail
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
