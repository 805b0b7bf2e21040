package api

import "time"

// Health levels, worst last.
const (
	HealthOK       = "ok"
	HealthDegraded = "degraded"
	HealthCritical = "critical"
	HealthUnknown  = "unknown"
)

// Roles of a member.
const (
	RoleVoter   = "voter"
	RoleLearner = "learner"
	RoleLeaving = "leaving" // is being replaced, and votes until that is done
	RoleRemoved = "removed"
)

// Status is the body of GET /cluster/status: the cluster as one member sees it, every roster member
// a row.
type Status struct {
	Leader    *string `json:"leader"` // null: none known
	Term      uint64  `json:"term"`
	ClusterID string  `json:"cluster_id"` // empty while the cluster is being born
	// RelayLogLen is the leader's last index; null: never heard. RelayLogAgeMS is its age when the
	// leader itself did not answer.
	RelayLogLen   *uint64 `json:"relay_log_len"`
	RelayLogAgeMS *int64  `json:"relay_log_age_ms"`
	Observer      string  `json:"observer"`
	// Consistent is false when members that answered name different leaders.
	Consistent bool `json:"consistent"`
	// Views are the sides of a cluster that is split: one entry a leader named, newest term first, and last
	// the members that name none, where one is cut off from a leader that others name. Absent: one side.
	Views  []View    `json:"views,omitempty"`
	At     time.Time `json:"at"`
	Health Health    `json:"health"`
	Quorum Quorum    `json:"quorum"`
	// Settling is a change of the voters that is not finished, as the leader sees it; null: none is known.
	Settling *Settling `json:"settling"`
	// Tombstones are the members that were removed and do not know it yet, as far as is known here.
	Tombstones []Tombstone `json:"tombstones"`
	Regions    []Region    `json:"regions"`
}

// View is one side of a split: the members that name the same leader, or that name none.
type View struct {
	Leader  *string  `json:"leader"`
	Term    uint64   `json:"term"`
	Members []string `json:"members"`
}

// Health is the verdict, with its reasons, worst first.
type Health struct {
	Level   string   `json:"level"`
	Reasons []Reason `json:"reasons"`
}

// Reason is one finding. Codes, worst first: no_leader, no_quorum, member_quarantined,
// member_unreachable, member_partitioned, divergence_unresolved, disk_full, leaders_disagree, fault_injected, clock_skew, member_not_ready,
// member_behind.
type Reason struct {
	Code   string `json:"code"`
	Member string `json:"member,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// Quorum counts voters. Spare is how many more may be lost before writes stop; never negative.
type Quorum struct {
	Voters int `json:"voters"`
	Up     int `json:"up"`
	Needed int `json:"needed"`
	Spare  int `json:"spare"`
}

// Region is one member's row.
type Region struct {
	Name     string `json:"name"`
	ID       string `json:"id"` // decimal; empty while it has none
	Role     string `json:"role"`
	IsLeader bool   `json:"is_leader"`
	// AppliedEvents, LagEvents and Partitioned are the worst case for a member that does not answer:
	// 0, the leader's last index, true. LagEvents is null where no leader was ever heard.
	AppliedEvents uint64    `json:"applied_events"`
	LagEvents     *uint64   `json:"lag_events"`
	Partitioned   bool      `json:"partitioned"`
	Reachable     bool      `json:"reachable"`
	Error         *RowError `json:"error,omitempty"`
	// LastSeen is when anybody that answers last heard from the member; null: nobody did since it started. A
	// member that answers is seen now.
	LastSeen *time.Time `json:"last_seen"`

	GRPCAddr     string      `json:"grpc_addr"`
	HTTPAddr     string      `json:"http_addr"`
	Term         *uint64     `json:"term"`
	LastIndex    *uint64     `json:"last_index"`
	DurableIndex *uint64     `json:"durable_index"`
	CommitIndex  *uint64     `json:"commit_index"`
	AppliedIndex *uint64     `json:"applied_index"`
	AgeMS        *int64      `json:"age_ms"` // since it last heard the leader; 0 on the leader
	Ready        *bool       `json:"ready"`
	Quarantine   *Quarantine `json:"quarantine"`
	// ReseedRequired is true while the replica waits to be installed again from another member, or is
	// being; Reseed says why, Install how far it is.
	ReseedRequired bool     `json:"reseed_required"`
	Reseed         *Reseed  `json:"reseed"`
	Install        *Install `json:"install"`
	Digest         *string  `json:"digest"` // hex, of the state at the newest check reported; null: none was
	Check          *Digest  `json:"check"`  // how the state stands; null: the replica is closed
	Scrub          *Scrub   `json:"scrub"`
	Kept           []Kept   `json:"kept"` // null: not known
	// PromotionPending is why a learner is no voter yet, as the leader sees it; null: it votes, or no leader
	// says.
	PromotionPending *Pending `json:"promotion_pending"`
	Disk             *Disk    `json:"disk"`
	// ClockSkewMS is how far its clock is ahead of most members' clocks, as the leader measured them;
	// null: not known.
	ClockSkewMS  *int64   `json:"clock_skew_ms"`
	Version      *string  `json:"version"`
	Capabilities []string `json:"capabilities"`
	BootEpoch    *uint64  `json:"boot_epoch"`
	Incarnation  *string  `json:"incarnation"`
	UptimeMS     *int64   `json:"uptime_ms"`
	Outbox       *Outbox  `json:"outbox"`
	// TookMS is how long the row's answer took.
	TookMS *int64 `json:"took_ms"`
	// Faults are those that the member keeps up for a drill; null: not known.
	Faults []Fault `json:"faults"`
}

// RowError says why a row did not answer. Codes: timeout, refused, unresolved, wrong_member (somebody
// else answers at that address), error.
type RowError struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// Quarantine says why a replica's data must not be served.
type Quarantine struct {
	Cause  string    `json:"cause"` // tidalctl explain lists them
	Detail string    `json:"detail"`
	Since  time.Time `json:"since"`
	// Votes says that it still votes and acknowledges: its log is sound.
	Votes    bool      `json:"votes"`
	Evidence *Evidence `json:"evidence"` // of a divergent state; null: of another cause, or before this boot
}

// Disk is the room on the disk of a member's data directory.
type Disk struct {
	TotalBytes   uint64 `json:"total_bytes"`
	FreeBytes    uint64 `json:"free_bytes"`
	ReserveBytes uint64 `json:"reserve_bytes"` // with less than this free, the member takes no client writes
	Full         bool   `json:"full"`          // it takes none now
	Exhausted    bool   `json:"exhausted"`     // it takes nothing from the leader either, and falls behind
}

// LocalStatus is the body of GET /cluster/status/local: one member's own view.
type LocalStatus struct {
	Name         string    `json:"name"`
	ID           string    `json:"id"`
	ClusterID    string    `json:"cluster_id"`
	Incarnation  string    `json:"incarnation"`
	BootEpoch    uint64    `json:"boot_epoch"`
	Version      string    `json:"version"`
	Capabilities []string  `json:"capabilities"`
	PID          int       `json:"pid"`
	StartedAt    time.Time `json:"started_at"`
	UptimeMS     int64     `json:"uptime_ms"`
	GRPCAddr     string    `json:"grpc_addr"`
	HTTPAddr     string    `json:"http_addr"`
	// Phase is what the member is doing: waiting (for the cluster's birth), joining, serving, stopped.
	Phase string `json:"phase"`
	// WaitingFor names the members whose answer the birth waits for.
	WaitingFor []string      `json:"waiting_for"`
	Ready      bool          `json:"ready"`
	Checks     []ReadyCheck  `json:"checks"`
	Groups     []GroupStatus `json:"groups"`
	Disk       *Disk         `json:"disk"` // null: not known
	// HeardMS is how long ago each other member was last heard from, by id; one that never was since the start
	// is not in it.
	HeardMS map[string]int64 `json:"heard_ms,omitempty"`
	// Clocks are those of the other members that answered a ping; ClockLimitMS is how far they may be off.
	Clocks       []Clock `json:"clocks"`
	ClockLimitMS int64   `json:"clock_limit_ms"`
	Roster       *Roster `json:"roster"`
	Outbox       Outbox  `json:"outbox"`
	// Faults are those that the member keeps up for a drill.
	Faults []Fault `json:"faults"`
	// Pending, on the leader: why learners are no voters yet, by id. Settling, there too: a change of the
	// voters that is not finished.
	Pending  map[string]Pending `json:"promotion_pending,omitempty"`
	Settling *Settling          `json:"settling"`
}

// Clock is the clock of another member, as the last ping found it.
type Clock struct {
	ID      string `json:"id"`
	Member  string `json:"member"`
	SkewMS  int64  `json:"skew_ms"` // how far it is ahead of this member's, give or take ErrorMS
	ErrorMS int64  `json:"error_ms"`
}

// GroupStatus is one replica's positions.
type GroupStatus struct {
	Group        string  `json:"group"`
	Role         string  `json:"role"`   // voter, learner
	State        string  `json:"state"`  // leader, follower, candidate, pre_candidate, closed
	Leader       *string `json:"leader"` // id; null: none known
	Term         uint64  `json:"term"`
	FirstIndex   uint64  `json:"first_index"`
	LastIndex    uint64  `json:"last_index"`
	DurableIndex uint64  `json:"durable_index"`
	CommitIndex  uint64  `json:"commit_index"`
	AppliedIndex uint64  `json:"applied_index"`
	// LeaderLast is the newest last index heard from a leader; null: never heard. LeaderAgeMS is how
	// long ago (0 on the leader).
	LeaderLast  *uint64     `json:"leader_last_index"`
	LeaderAgeMS *int64      `json:"leader_age_ms"`
	Quarantine  *Quarantine `json:"quarantine"`

	ReseedRequired bool     `json:"reseed_required"`
	Reseed         *Reseed  `json:"reseed"`  // null: not required
	Install        *Install `json:"install"` // null: nothing is being fetched

	Digest *string `json:"digest"` // hex, of the state at the newest check reported; null: none was
	Check  *Digest `json:"check"`  // how the state stands; null: the replica is closed
	Scrub  *Scrub  `json:"scrub"`
	Kept   []Kept  `json:"kept"`

	Reseeds uint64 `json:"reseeds"` // installs of this replica since the process started
}

// Reseed says why a replica will be installed again from another member.
type Reseed struct {
	// Reason: log_compacted (the leader's log does not reach back far enough), operator, or the cause of a
	// quarantine.
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	Phase  string    `json:"phase"` // find_source, fetch, permit, install; empty: not begun
	// Refused is why it waits: the leader does not permit it now, or an operator has to; null: it does not.
	Refused *string `json:"refused"`
	Failure *string `json:"failure"`  // of the last attempt; null: none, or it is under way
	InARow  int     `json:"in_a_row"` // reseeds since the state was verified last
}

// Install is a snapshot on its way in.
type Install struct {
	Bytes int64  `json:"bytes"`
	Total int64  `json:"total"`  // 0: not known yet
	Rate  int64  `json:"rate"`   // bytes a second
	ETAMS *int64 `json:"eta_ms"` // null: not known
}

// Roster is the membership as applied.
type Roster struct {
	Version uint64   `json:"version"`
	NextID  string   `json:"next_id"`
	Members []Member `json:"members"`
	// Tombstones are members that were removed, oldest first; those that know it are dropped in time.
	Tombstones []Tombstone `json:"tombstones"`
}

// Member is one roster entry.
type Member struct {
	ID           string   `json:"id"`
	Name         string   `json:"name"`
	Incarnation  string   `json:"incarnation"`
	Role         string   `json:"role"`
	GRPCAddr     string   `json:"grpc_addr"`
	HTTPAddr     string   `json:"http_addr"`
	BootEpoch    uint64   `json:"boot_epoch"`
	Capabilities []string `json:"capabilities"`
}

// Members is the body of GET /cluster/members.
type Members struct {
	ClusterID string  `json:"cluster_id"`
	Leader    *string `json:"leader"`
	Term      uint64  `json:"term"`
	Roster
}

// Alive is the body of GET /healthz: the process answers, nothing more is said.
type Alive struct {
	Alive bool `json:"alive"`
}

// Phases of a member.
const (
	PhaseWaiting = "waiting" // for its cluster to be born
	PhaseJoining = "joining" // a cluster that exists
	PhaseServing = "serving"
	PhaseStopped = "stopped"
)

// Ready is the body of GET /readyz.
type Ready struct {
	Ready    bool         `json:"ready"`
	Checks   []ReadyCheck `json:"checks"`
	Warnings []ReadyCheck `json:"warnings"`
}

// ReadyCheck is one line of readiness.
type ReadyCheck struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

// VersionInfo is what a binary says of itself.
type VersionInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
}

// DevReady is the first line that `tidald dev -o json` prints.
type DevReady struct {
	Ready   bool        `json:"ready"`
	Dir     string      `json:"dir"`
	Members []DevMember `json:"members"`
}

// DevMember is one child process of `tidald dev`.
type DevMember struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	HTTP string `json:"http"` // http://127.0.0.1:9501
	GRPC string `json:"grpc"` // 127.0.0.1:9601
	Dir  string `json:"dir"`
}
