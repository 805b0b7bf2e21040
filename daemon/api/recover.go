package api

import "time"

// EntryRef names an entry of a log.
type EntryRef struct {
	Term  uint64 `json:"term"`
	Index uint64 `json:"index"`
}

// RecoverView is how far the disk of one member goes: the body of GET /cluster/recover of a running
// member, and what `tidald inspect` prints of a stopped one.
type RecoverView struct {
	Name        string `json:"name"`
	ID          string `json:"id"`
	ClusterID   string `json:"cluster_id"`
	Incarnation string `json:"incarnation"`
	BootEpoch   uint64 `json:"boot_epoch"`
	Group       string `json:"group"`
	// Running is false where the directory of a stopped member was read.
	Running bool     `json:"running"`
	Leader  *string  `json:"leader"` // name, or id; null: none is known
	Term    uint64   `json:"term"`
	Last    EntryRef `json:"last"` // of the log
	// CommitIndex is how far the member knows the log to be committed; the rest may be.
	CommitIndex  uint64 `json:"commit_index"`
	AppliedIndex uint64 `json:"applied_index"`
	// LeaderLast is the last index that a leader was heard to have; null: not in this life.
	LeaderLast *uint64 `json:"leader_last_index"`
	Digest     *string `json:"digest"` // of the state at the applied index; null: none is kept
	History    string  `json:"history"`
	// Roster is the membership at the end of the log, committed or not.
	Roster Roster `json:"roster"`
}

// RecoverMember is a member in a plan.
type RecoverMember struct {
	Name        string `json:"name"`
	ID          string `json:"id"`
	Incarnation string `json:"incarnation"`
	Role        string `json:"role"`
	GRPCAddr    string `json:"grpc_addr"`
	HTTPAddr    string `json:"http_addr"`
	Why         string `json:"why"` // kept, or given up
}

// RecoverPlan is the body of POST /cluster/recover: how a cluster that lost its majority for good goes
// on from the disk of one member. It is made by `tidalctl recover plan`, read by a person, and refused
// where anything is otherwise than it says.
type RecoverPlan struct {
	Schema    string    `json:"schema"` // RecoverPlanSchema
	MadeAt    time.Time `json:"made_at"`
	ClusterID string    `json:"cluster_id"`
	Group     string    `json:"group"`

	// The survivor, and how far its disk goes.
	Survivor      RecoverMember `json:"survivor"`
	Term          uint64        `json:"term"`
	Last          EntryRef      `json:"last"`
	RosterVersion uint64        `json:"roster_version"`

	HistoryWas string `json:"history_was"`
	History    string `json:"history"` // from then on
	// AboveTerm is the highest term of any member that is kept: the new term is above it.
	AboveTerm uint64 `json:"above_term"`

	Keeps   []RecoverMember `json:"keeps"` // beside the survivor
	GivesUp []RecoverMember `json:"gives_up"`
	MayLose []string        `json:"may_lose"` // for people
}

// RecoverPlanSchema is what a plan of this version says it is.
const RecoverPlanSchema = "tidal.recover-plan/v1"

// MaxRecoverPlanBytes bounds the body.
const MaxRecoverPlanBytes = 1 << 20

// RecoverAnswer is what a recovery did.
type RecoverAnswer struct {
	Member  string `json:"member"`
	History string `json:"history"`
	// Last is the last entry of the former history; Index the last one that the recovery wrote.
	Last    EntryRef `json:"last"`
	Index   uint64   `json:"index"`
	Already bool     `json:"already"` // it had been carried out before
}
