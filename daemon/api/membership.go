package api

import "time"

// Limits of the verbs of membership.
const (
	DefaultMemberTimeoutMS = 60_000
	MinMemberTimeoutMS     = 100
	MaxMemberTimeoutMS     = 600_000
	MaxAddrBytes           = 512
	MaxSeeds               = 32
)

// Reasons of a pending promotion, as words of the interface.
const (
	PendingNoContact      = "no_contact"              // the learner does not answer the leader
	PendingTLS            = "tls"                     // likewise: one does not take the certificate of the other
	PendingInstalling     = "installing"              // an artifact is on its way to it
	PendingBehind         = "behind"                  // it catches up
	PendingFallingBehind  = "falling_behind"          // writes come faster than it follows
	PendingUnverified     = "unverified"              // its state was not compared with the leader's yet
	PendingChangeInFlight = "conf_change_in_progress" // another change comes first
	PendingCapability     = "capability_missing"      // it does not know what the log holds
	PendingQuorum         = "quorum"                  // too few voters answer for a change
)

// JoinRequest is the body of POST /cluster/join: a member asks to be admitted, as a learner. Asked again by
// the same incarnation it changes nothing.
type JoinRequest struct {
	Name        string `json:"name"`
	Incarnation string `json:"incarnation"` // of its data directory: 32 hexadecimal digits
	GRPCAddr    string `json:"grpc_addr"`   // where the others reach it
	HTTPAddr    string `json:"http_addr"`
	// Capabilities is what its binary understands, as bits; "0": that of the first release.
	Capabilities string `json:"capabilities,omitempty"`
	// Rejoin has it taken although a member of this name was removed.
	Rejoin bool `json:"rejoin,omitempty"`
}

// Joined is the answer of POST /cluster/join.
type Joined struct {
	ID        string `json:"id"` // for ever
	ClusterID string `json:"cluster_id"`
	Role      string `json:"role"`
	Term      uint64 `json:"term"`
	Index     uint64 `json:"index"` // of the roster that holds it
	Leader    Member `json:"leader"`
	Roster    Roster `json:"roster"`
}

// SeedRequest is the body of POST /cluster/seeds: it tells a member that belongs to no cluster yet whom
// to ask.
type SeedRequest struct {
	Seeds  []string `json:"seeds"`            // URLs of members, any
	Rejoin bool     `json:"rejoin,omitempty"` // join although a member of this name was removed
}

// Seeded is the answer of POST /cluster/seeds.
type Seeded struct {
	Name      string `json:"name"`
	Accepted  bool   `json:"accepted"` // false: it belongs to a cluster already, and asks nobody
	Phase     string `json:"phase"`
	ID        string `json:"id"` // empty: none yet
	ClusterID string `json:"cluster_id"`
}

// MemberRequest is the body of POST /cluster/members/promote, /remove and /replace.
type MemberRequest struct {
	Name      string `json:"name"`
	TimeoutMS int64  `json:"timeout_ms,omitempty"` // until the outcome is known; 100 to 600000, default 60000
	DryRun    bool   `json:"dry_run,omitempty"`    // evaluate the checks and change nothing
	NoWait    bool   `json:"no_wait,omitempty"`    // answer 202 with the operation once it has begun
	// Override names checks that may fail; each must be one that says so itself.
	Override []string `json:"override,omitempty"`
	// OperationID makes the verb safe to repeat: 1 to 64 letters, digits, dashes, dots and
	// underscores, made by the caller. Default: one is made.
	OperationID string `json:"operation_id,omitempty"`
}

// MemberChanged is the answer of the verbs of membership.
type MemberChanged struct {
	OK     bool   `json:"ok"` // of a dry run: no check failed that is not overridden
	DryRun bool   `json:"dry_run,omitempty"`
	Op     string `json:"op"`
	Verb   string `json:"verb"` // promote, remove, replace
	Name   string `json:"name"`
	ID     string `json:"id"`   // of the member it was about
	Role   string `json:"role"` // afterwards: voter, learner, removed
	// Index is from which on the change shows; 0: nothing had to change.
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
	// Settled: a majority of the voters has applied it and holds that durably.
	Settled bool    `json:"settled"`
	Checks  []Check `json:"checks"`
}

// Pending says why a learner is no voter yet, and when it may be.
type Pending struct {
	Reason string `json:"reason"`
	Detail string `json:"detail"`
	// Lag is how many entries it lacks, Bytes the log between.
	Lag   *uint64 `json:"lag"`
	Bytes *uint64 `json:"bytes"`
	// Rate is how many entries a second it gains on the leader; negative: it falls behind.
	Rate  *float64 `json:"rate"`
	ETAMS *int64   `json:"eta_ms"` // null: not known, or never
}

// Settling is a change of the voters that is committed and not yet known to a majority of the new ones.
// Until it has settled, no other change begins.
type Settling struct {
	Index  uint64 `json:"index"`
	Joint  bool   `json:"joint"` // both the old and the new voters are needed, until raft has left that
	Voters int    `json:"voters"`
	Have   int    `json:"have"` // voters that reported it applied and its commit durable
	Needed int    `json:"needed"`
	// Missing are the voters that did not.
	Missing []string `json:"missing"`
}

// Tombstone is a member that was removed, until it knows.
type Tombstone struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Incarnation string    `json:"incarnation"`
	RemovedAt   time.Time `json:"removed_at"`
	Told        bool      `json:"told"`  // the notice left
	Acked       bool      `json:"acked"` // the member wrote it down: it takes part in nothing any more
	// Expired: a learner that was never heard of. It may join again.
	Expired bool `json:"expired"`
}

// Questions that Why answers.
const (
	WhyReady  = "ready"  // why does it take no traffic?
	WhyVoter  = "voter"  // why is it no voter?
	WhyLeader = "leader" // why could it not lead?
	WhyRemove = "remove" // why could it not be removed?
)

// Why is the body of GET /cluster/why/{member}: every gate that holds a member back, with what was
// measured.
type Why struct {
	Member    string     `json:"member"`
	ID        string     `json:"id"`
	Role      string     `json:"role"`
	Observer  string     `json:"observer"`
	Leader    *string    `json:"leader"` // null: none known; then the gates that it keeps are not known
	Term      uint64     `json:"term"`
	At        time.Time  `json:"at"`
	Reachable bool       `json:"reachable"`
	Error     *RowError  `json:"error,omitempty"`
	Pending   *Pending   `json:"promotion_pending"`
	Questions []Question `json:"questions"`
	// Unknown names the questions that nobody could answer, with the reason.
	Unknown []Reason `json:"unknown,omitempty"`
}

// Question is one thing that a member may do, and the gates before it.
type Question struct {
	Question string  `json:"question"` // ready, voter, leader, remove
	OK       bool    `json:"ok"`       // no gate is closed
	Detail   string  `json:"detail"`
	Checks   []Check `json:"checks"`
}

// History is the body of GET /cluster/history: changes of leadership and of membership, oldest first.
type History struct {
	Observer string `json:"observer"`
	// Events are those that members which answered remember, since each of them was started; what several
	// saw stands once.
	Events []Event `json:"events"`
	// Missing names the members that did not answer.
	Missing []string `json:"missing"`
}
