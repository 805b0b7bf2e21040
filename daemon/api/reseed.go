package api

import "time"

// Digest is how a member's state stands, as checks of the digests of all members tell.
type Digest struct {
	// State: verified (it is what a majority of the voters has), unverified (too little was reported),
	// divergent (a majority has something else), divergence_unresolved (voters differ and none has a
	// majority: nobody is to blame, tidalctl verify --trust decides).
	State string `json:"state"`
	// Index is the newest check that the member reported, and Sum, in hex, what its state added up to
	// there; null: it reported none since its replica was opened.
	Index   *uint64 `json:"index"`
	Sum     *string `json:"sum"`
	Version uint16  `json:"version"` // of the digest; 0: none was reported
	// VerifiedIndex is the newest check at which it was verified; null: at none that is remembered.
	VerifiedIndex *uint64 `json:"verified_index"`
	// Since is since when it has stood so; null: not known.
	Since *time.Time `json:"since"`
}

// Evidence is what showed that a state is divergent.
type Evidence struct {
	Index uint64   `json:"index"` // of the check
	Own   string   `json:"own"`   // hex: what the state added up to
	Right string   `json:"right"` // what it should have
	Agree []string `json:"agree"` // ids of the members that reported what is right
}

// Scrub is the last pass over everything that a state holds.
type Scrub struct {
	Running bool       `json:"running"`
	Bytes   int64      `json:"bytes"` // read by the pass that runs, or ran last
	At      *time.Time `json:"at"`    // end of the last pass that found nothing wrong; null: none in this boot
	Index   *uint64    `json:"index"` // of the state that it read
}

// Kept is replaced data of a quarantined replica, on the disk of its member until somebody clears it.
type Kept struct {
	Name   string     `json:"name"` // of the directory
	Reason string     `json:"reason"`
	Since  *time.Time `json:"since"` // when the quarantine was latched; null: the name does not say
	Bytes  int64      `json:"bytes"`
}

// Limits of the verbs here.
const (
	DefaultStallTimeoutMS  = 300_000
	MinStallTimeoutMS      = 1_000
	MaxStallTimeoutMS      = 3_600_000
	DefaultVerifyTimeoutMS = 5_000
	MinVerifyTimeoutMS     = 100
	MaxVerifyTimeoutMS     = 60_000
)

// The checks of reseed.
const (
	CheckHeals  = "heals"  // an artifact heals what put the replica into quarantine
	CheckDisk   = "disk"   // the directory that would take the artifact is there
	CheckSource = "source" // another member that is sound answers
)

// ReseedRequest is the body of POST /cluster/reseed.
type ReseedRequest struct {
	Region string `json:"region"`         // name of the member whose data is replaced
	From   string `json:"from,omitempty"` // name of the member to take it from; default: the leader
	// StallTimeoutMS is how long nothing may move before the answer is that it stalled; 1000 to 3600000,
	// default 300000. The reseed stays latched then, and is tried on.
	StallTimeoutMS int64  `json:"stall_timeout_ms,omitempty"`
	DryRun         bool   `json:"dry_run,omitempty"`      // evaluate the checks and change nothing
	NoWait         bool   `json:"no_wait,omitempty"`      // answer 202 with the operation once it has begun
	OperationID    string `json:"operation_id,omitempty"` // as of promote
}

// Reseeded is the answer of POST /cluster/reseed.
type Reseeded struct {
	OK     bool    `json:"ok"` // of a dry run: no check failed
	DryRun bool    `json:"dry_run,omitempty"`
	Op     string  `json:"op"`
	Region string  `json:"region"`
	Checks []Check `json:"checks"`
	Index  uint64  `json:"index"` // applied when the replica was open again; 0 in a dry run
	Bytes  int64   `json:"bytes"` // of the artifact
	TookMS int64   `json:"took_ms"`
}

// Progress is how far an operation is.
type Progress struct {
	Phase  string `json:"phase"`
	Step   int    `json:"step"` // of Of, from 1
	Of     int    `json:"of"`
	Bytes  int64  `json:"bytes"`
	Total  int64  `json:"total"`            // 0: not known yet
	Rate   int64  `json:"rate"`             // bytes a second
	ETAMS  *int64 `json:"eta_ms"`           // of the transfer; null: not known
	Detail string `json:"detail,omitempty"` // why it waits
}

// VerifyRequest is the body of POST /cluster/verify.
type VerifyRequest struct {
	// Trust names the member whose state counts as right, whatever the others have: every other member
	// that differs goes into quarantine and is installed again. Empty: a majority of the voters decides.
	Trust     string `json:"trust,omitempty"`
	TimeoutMS int64  `json:"timeout_ms,omitempty"` // for the members to report; 100 to 60000, default 5000
}

// Verified is the answer of POST /cluster/verify: one row for every member.
type Verified struct {
	OK    bool   `json:"ok"`    // every member has reported the same
	Index uint64 `json:"index"` // of the check that was made
	Trust string `json:"trust,omitempty"`
	// Differs says that some member is divergent, or that it cannot be told who is.
	Differs bool          `json:"differs"`
	Members []VerifiedRow `json:"members"`
}

// VerifiedRow is one member's state.
type VerifiedRow struct {
	Name string `json:"name"`
	ID   string `json:"id"`
	Role string `json:"role"`
	Digest
}

// ClearRequest is the body of POST /cluster/quarantine/clear.
type ClearRequest struct {
	Region      string `json:"region"` // name of the member whose kept data is removed
	DryRun      bool   `json:"dry_run,omitempty"`
	OperationID string `json:"operation_id,omitempty"` // as of promote
}

// Cleared is the answer of POST /cluster/quarantine/clear.
type Cleared struct {
	OK     bool   `json:"ok"`
	DryRun bool   `json:"dry_run,omitempty"`
	Op     string `json:"op"`
	Region string `json:"region"`
	Kept   []Kept `json:"kept"`  // what was removed, or would be
	Bytes  int64  `json:"bytes"` // of it
	// Checks is empty: nothing rests on kept data.
	Checks []Check `json:"checks"`
}
