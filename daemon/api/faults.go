package api

import "time"

// Limits of POST /cluster/partition.
const (
	MinFaultMS = 100
	MaxDelayMS = 60_000
)

// Directions of a fault, as the member that holds it sees them.
const (
	DirectionBoth = "both"
	DirectionIn   = "in"  // what the peer sends
	DirectionOut  = "out" // what is sent to the peer
)

// Effects of a fault.
const (
	FaultDrop  = "drop"
	FaultDelay = "delay"
)

// Words of PartitionRequest.QuorumLoss.
const (
	QuorumLossAllow  = "allow"
	QuorumLossForbid = "forbid"
)

// PartitionRequest is the body of POST /cluster/partition: who is cut off from whom, and for how long. One
// of Region, Members and Split says who.
type PartitionRequest struct {
	Region  string     `json:"region,omitempty"`  // short for Members with this one
	Members []string   `json:"members,omitempty"` // cut off from all others, not from each other
	Split   [][]string `json:"split,omitempty"`   // sides, each cut off from the others; who is on none reaches all
	// Direction is as Members, or the first side of Split, see it: both (default); out, what they send does
	// not arrive; in, what is sent to them does not.
	Direction  string `json:"direction,omitempty" enum:"both,in,out"`
	DurationMS int64  `json:"duration_ms" minimum:"100"`
	// DelayMS holds messages up instead of dropping them.
	DelayMS int64 `json:"delay_ms,omitempty" minimum:"0" maximum:"60000"`
	// QuorumLoss: forbid refuses to leave no side with a majority of the voters. Default: allow.
	QuorumLoss string `json:"quorum_loss,omitempty" enum:"allow,forbid"`
	DryRun     bool   `json:"dry_run,omitempty"`
	// OperationID becomes the id of the faults, and makes the verb safe to repeat. Default: one is made.
	OperationID string `json:"operation_id,omitempty"`
}

// Partitioned is the answer of POST /cluster/partition.
type Partitioned struct {
	OK     bool    `json:"ok"` // every member concerned holds its faults; of a dry run: would
	DryRun bool    `json:"dry_run,omitempty"`
	ID     string  `json:"id"` // of the faults: POST /cluster/heal takes it
	Op     string  `json:"op"`
	Checks []Check `json:"checks"`
	// Acked are the members that hold faults now, Failed those that should and did not say that they do:
	// Errors has why.
	Acked  []string      `json:"acked"`
	Failed []string      `json:"failed"`
	Errors []MemberError `json:"errors"`
	// ExpiresAt is when the last fault ends by itself, at the latest; null: there is none.
	ExpiresAt *time.Time `json:"expires_at"`
}

// The checks of partition.
const (
	CheckQuorum = "quorum" // a side keeps a majority of the voters
	CheckTakes  = "takes"  // every member concerned takes its faults
)

// MemberError says why one of several members did not do its part.
type MemberError struct {
	Member string `json:"member"`
	Code   Code   `json:"code"`
	Detail string `json:"detail"`
	Effect Effect `json:"effect"`
	// Gone: nothing listens where the member should be. No process is there that could keep a fault.
	Gone bool `json:"gone,omitempty"`
}

// HealRequest is the body of POST /cluster/heal.
type HealRequest struct {
	ID          string `json:"id,omitempty"` // of a partition; empty: all faults
	DryRun      bool   `json:"dry_run,omitempty"`
	OperationID string `json:"operation_id,omitempty"`
}

// Healed is the answer of POST /cluster/heal.
type Healed struct {
	OK     bool   `json:"ok"` // no fault that was to be healed can be left
	DryRun bool   `json:"dry_run,omitempty"`
	Op     string `json:"op"`
	// Healed are the faults that were ended; of a dry run: that would be.
	Healed []Fault `json:"healed"`
	Checks []Check `json:"checks"`
	// Acked are the members that have no such fault any more, Failed those that did not answer.
	Acked  []string      `json:"acked"`
	Failed []string      `json:"failed"`
	Errors []MemberError `json:"errors"`
	// FaultsUntil is when the last fault that may be left ends by itself, at the latest; null: none is.
	FaultsUntil *time.Time `json:"faults_until"`
}

// Fault is what a member does, for a drill, to what goes between it and a peer.
type Fault struct {
	ID        string `json:"id"` // of the partition that it belongs to
	Member    string `json:"member"`
	Peer      string `json:"peer"`
	Direction string `json:"direction"` // both, in, out: as the member sees it
	Effect    string `json:"effect"`    // drop, delay
	DelayMS   int64  `json:"delay_ms,omitempty"`
	// LeftMS is how much longer the member keeps it up, by the member's own clock; ExpiresAt is when that is
	// over.
	LeftMS    int64     `json:"left_ms"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Faults is the body of GET /cluster/faults: the faults in force, by their end.
type Faults struct {
	Faults []Fault       `json:"faults"`
	Acked  []string      `json:"acked"`  // the members that answered
	Failed []string      `json:"failed"` // those that did not: what they hold is not known
	Errors []MemberError `json:"errors"`
}
