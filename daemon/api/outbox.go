package api

import "time"

// Taken is the body of a write with ack=local.
type Taken struct {
	Ack string `json:"ack"` // local
	// Origin and Sequence name the operation that the write became, for as long as it waits: of an array,
	// all its records. They are null if every record of the array was refused.
	Origin   *string `json:"origin"`
	Sequence *uint64 `json:"sequence"`
	// Accepted is how many records were taken; Refused lists the others, by position from 0. What the
	// log refuses later, because the state has changed until then, is counted and told nobody.
	Accepted int       `json:"accepted"`
	Refused  []Refusal `json:"refused"`
}

// Outbox is what waits on a member for the log to take it over.
type Outbox struct {
	Pending int `json:"pending"` // operations that its state does not hold
	Foreign int `json:"foreign"` // those of them that other members took
	// Bytes is about the memory that they take, MaxBytes what this member takes writes up to.
	Bytes    int64      `json:"bytes"`
	MaxBytes int64      `json:"max_bytes"`
	OldestAt *time.Time `json:"oldest_at"` // null: nothing waits
	// OldestAgeMS is how long the oldest one has been waiting.
	OldestAgeMS *int64 `json:"oldest_age_ms"`
	// Forked are origins whose operations contradict what the log has: they are kept and not delivered.
	Forked []string `json:"forked"`
	Error  *string  `json:"error"` // why it takes no writes; null: it does
}

// ReconcileRequest is the body of POST /cluster/reconcile.
type ReconcileRequest struct {
	Region string `json:"region"`            // name of the member to exchange with
	DryRun bool   `json:"dry_run,omitempty"` // say what would be taken over, and change nothing
	// OperationID makes the verb safe to repeat, as in PromoteRequest; repeating without is safe too.
	OperationID string `json:"operation_id,omitempty"`
}

// Reconciled is the answer of POST /cluster/reconcile.
type Reconciled struct {
	OK     bool   `json:"ok"` // nothing contradicts on either side
	Region string `json:"region"`
	DryRun bool   `json:"dry_run,omitempty"`
	Op     string `json:"op"`
	// LocalElapsedMS and RemoteElapsedMS are what each side took to merge, rounded up.
	LocalElapsedMS  int64 `json:"local_elapsed_ms"`
	RemoteElapsedMS int64 `json:"remote_elapsed_ms"`
	// OpsApplied counts the operations that were new: LocalOpsApplied here, RemoteOpsApplied there.
	OpsApplied       int `json:"ops_applied"`
	LocalOpsApplied  int `json:"local_ops_applied"`
	RemoteOpsApplied int `json:"remote_ops_applied"`
	// Forked are origins of which the sides hold operations that contradict each other.
	Forked []string `json:"forked"`
	Checks []Check  `json:"checks"`
}

// ReconcileTimeoutMS is how long a reconcile may take.
const ReconcileTimeoutMS = 30_000

// Exchange is the body of POST /cluster/reconcile/snapshot, and of its answer, where the other fields are
// set: what the sender holds, base64 of the stream of package outbox. Members send and read it as it
// comes, so the snapshot stands first.
type Exchange struct {
	Snapshot   []byte   `json:"snapshot"`
	ElapsedMS  int64    `json:"elapsed_ms,omitempty"`
	OpsApplied int      `json:"ops_applied,omitempty"`
	Forked     []string `json:"forked,omitempty"`
}
