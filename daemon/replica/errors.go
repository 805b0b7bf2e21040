package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
)

// ErrClosed is the cause of every wait that Close cuts short. On its own it means that nothing
// happened.
var ErrClosed = errors.New("replica closed")

// ErrLost: another entry was committed at the index of the write. Nothing happened; a retry is safe.
var ErrLost = errors.New("another entry took the place of the write")

// ErrChangeInProgress: a membership change was not begun because the previous one has not settled.
// Nothing happened.
var ErrChangeInProgress = errors.New("a membership change is in progress")

// ChangeRefusedError: a membership change, or a roster, was committed and found not to fit the
// membership in force at its index. Nothing changed.
type ChangeRefusedError struct {
	ID     ident.EntryID
	Detail string
}

func (e *ChangeRefusedError) Error() string {
	return fmt.Sprintf("membership change %s refused: %s", e.ID, e.Detail)
}

// NotLeaderError says who to ask instead. Nothing happened. Leader is 0 in an election.
type NotLeaderError struct {
	Term   uint64
	Leader ident.MemberID
}

func (e *NotLeaderError) Error() string {
	if e.Leader == 0 {
		return fmt.Sprintf("no leader in term %d", e.Term)
	}
	return fmt.Sprintf("not leader; term %d is led by member %s", e.Term, e.Leader)
}

// The queues an OverloadedError names. All are measured in bytes; a caller that only waits counts as
// waiterBytes.
const (
	QueueWrites      = "writes"      // client writes admitted and not proposed
	QueueUncommitted = "uncommitted" // entries proposed and not committed; while leadership moves it counts as full
	QueueWaiters     = "waiters"     // callers of Propose, ReadIndex and WaitApplied
)

// OverloadedError refuses a request because a queue is at its bound. Nothing happened.
type OverloadedError struct {
	Queue string
	// Bytes is what the queue holds, Limit what it may hold; 0 where only raft knows them.
	Bytes, Limit int64
	// RetryAfter is when a retry has a fair chance.
	RetryAfter time.Duration
}

func (e *OverloadedError) Error() string {
	if e.Limit == 0 {
		return fmt.Sprintf("queue %s is full", e.Queue)
	}
	return fmt.Sprintf("queue %s is full: %d of %d bytes", e.Queue, e.Bytes, e.Limit)
}

// TooLargeError refuses a write that no entry can hold. Nothing happened.
type TooLargeError struct{ Bytes, Limit int }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("write of %d bytes is above the limit of an entry, %d", e.Bytes, e.Limit)
}

// NotProposedError: the caller gave up before the write was proposed. Nothing happened.
type NotProposedError struct {
	Cause error // of the caller's context
}

func (e *NotProposedError) Error() string { return fmt.Sprintf("not proposed: %v", e.Cause) }
func (e *NotProposedError) Unwrap() error { return e.Cause }

// UnknownOutcomeError: the write was proposed and nobody here knows what became of it. It may still
// commit.
type UnknownOutcomeError struct {
	// Cause is why the wait ended: the cause of the caller's context, ErrClosed or a *FailedError.
	Cause error
}

func (e *UnknownOutcomeError) Error() string { return fmt.Sprintf("outcome unknown: %v", e.Cause) }
func (e *UnknownOutcomeError) Unwrap() error { return e.Cause }

// Stage is where a replica failed.
type Stage string

// The stages. After the first two the log is not to be trusted before it is opened again.
const (
	StageLog     Stage = "log"     // appending to the log, reading it
	StageVotes   Stage = "votes"   // recording a term or a vote
	StageState   Stage = "state"   // applying, flushing, the store's background work; the log is sound
	StageMachine Stage = "machine" // an assertion about the replica's own reasoning
	StageFence   Stage = "fence"   // its peers will not hear it any more
)

// FailedError is why a replica failed closed. On its own, as the answer to a request, it means that
// nothing happened. It is final: only a newly opened replica participates again.
type FailedError struct {
	Stage Stage
	Err   error
}

func (e *FailedError) Error() string { return fmt.Sprintf("replica failed: %s: %v", e.Stage, e.Err) }
func (e *FailedError) Unwrap() error { return e.Err }

// VotesBehindError refuses to open a replica whose votes are older than its log. Votes are written
// first, so these are an old copy, and opening with them could vote twice in one term.
type VotesBehindError struct{ Log, Votes datadir.Vote }

func (e *VotesBehindError) Error() string {
	return fmt.Sprintf("the log says term %d, vote %d; the votes say term %d, vote %d: they are an old copy",
		e.Log.Term, e.Log.Vote, e.Votes.Term, e.Votes.Vote)
}
