package api

import (
	"encoding/json"
	"time"
)

// Check is one precondition of a verb, as it was measured.
type Check struct {
	Code   string `json:"code"` // of promote: voter, reachable, sound, lag, idle
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	// Measured and Threshold stand together where the check compares a number.
	Measured  *float64 `json:"measured"`
	Threshold *float64 `json:"threshold"`
	Unit      string   `json:"unit,omitempty"`
	// Overridable says whether the verb may be told to go on although the check failed.
	Overridable bool `json:"overridable"`
}

// The checks of promote.
const (
	CheckVoter     = "voter"     // the target votes
	CheckReachable = "reachable" // it answers the leader, as a peer and over HTTP
	CheckSound     = "sound"     // none of its replicas is quarantined
	CheckLag       = "lag"       // it is near enough to catch up within a pause
	CheckIdle      = "idle"      // leadership is not moving already
)

// CheckAgree of a reconcile: what the two sides hold does not contradict each other.
const CheckAgree = "agree"

// Limits of POST /cluster/promote.
const (
	MaxVerbBytes             = 64 << 10 // body of a cluster verb
	MaxOperationIDBytes      = 64
	DefaultPromoteTimeoutMS  = 5_000
	MinPromoteTimeoutMS      = 100
	MaxPromoteTimeoutMS      = 60_000
	MaxTransferLag           = 5_000 // entries
	OperationsKept           = 256   // by each member
	MaxPromoteConfirmationMS = 2_000 // after that a member counts as failed
)

// PromoteRequest is the body of POST /cluster/promote.
type PromoteRequest struct {
	Region    string `json:"region"`               // name of the member that should lead
	TimeoutMS int64  `json:"timeout_ms,omitempty"` // until the outcome is known; 100 to 60000, default 5000
	DryRun    bool   `json:"dry_run,omitempty"`    // evaluate the checks and change nothing
	NoWait    bool   `json:"no_wait,omitempty"`    // answer 202 with the operation once it has begun
	// OperationID makes the verb safe to repeat: 1 to 64 letters, digits, dashes, dots and
	// underscores, made by the caller. Default: one is made.
	OperationID string `json:"operation_id,omitempty"`
}

// Promoted is the answer of POST /cluster/promote.
type Promoted struct {
	OK     bool    `json:"ok"` // of a dry run: no check failed
	DryRun bool    `json:"dry_run,omitempty"`
	Leader *string `json:"leader"` // null: none, in a dry run without one
	Term   uint64  `json:"term"`
	Op     string  `json:"op"`
	Checks []Check `json:"checks"`
	// Transfer is null where nothing had to move.
	Transfer *Transfer `json:"transfer"`
	// Acked are the members that confirmed the new leader within 2 s, Failed the others.
	Acked  []string `json:"acked"`
	Failed []string `json:"failed"`
}

// Transfer says what a change of leader cost.
type Transfer struct {
	TookMS int64 `json:"took_ms"` // from the request until the target was known to lead; rounded up
	// WritePauseMS is how long nobody took writes, rounded up; null where there was no leader before.
	WritePauseMS *int64 `json:"write_pause_ms"`
}

// States of an operation.
const (
	OperationRunning = "running"
	OperationDone    = "done"
	OperationFailed  = "failed"  // Problem says what is left
	OperationUnknown = "unknown" // it may have happened, or happen yet
)

// Operation is the body of GET /cluster/ops/{id}: one verb, as the member knows it that ran it. That
// member keeps it, over restarts too, until OperationsKept newer ones came; of a dry run it remembers
// nothing over a restart.
type Operation struct {
	Op         string     `json:"op"`
	Verb       string     `json:"verb"`
	State      string     `json:"state"`
	Member     string     `json:"member"` // that ran it
	StartedAt  time.Time  `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"` // null while it runs, or where a restart cut it short
	// Progress is how far a long verb is while it runs.
	Progress *Progress       `json:"progress,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`  // what the verb answered, once done
	Problem  *Problem        `json:"problem,omitempty"` // what it answered otherwise
}

// Operations is the body of GET /cluster/ops: the verbs that one member began, newest first.
type Operations struct {
	Operations []Operation `json:"operations"`
}
