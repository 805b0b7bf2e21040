package consensus

import (
	"errors"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Errors of Answer. Each says for certain that the write did not and will not happen.
var (
	// ErrNotLeader: this replica does not lead; nothing was proposed. Role says whom to ask.
	ErrNotLeader = errors.New("not leader")

	// ErrDropped: uncommitted bytes are at their bound, or leadership is moving; nothing was proposed.
	ErrDropped = errors.New("proposal dropped")

	// ErrConfBusy: another membership change is not applied yet; nothing was proposed.
	ErrConfBusy = errors.New("a membership change is in progress")

	// ErrLost: another leader's entry was committed in the place of the proposed one.
	ErrLost = errors.New("entry lost to another leader")
)

// FatalError says that an assertion about the replica's own state failed. It is for quarantine, not
// for retry.
type FatalError struct {
	Term, Commit, Last uint64 // where the machine stood after the Step before
	Cause              error
	Stack              []byte // of a panic inside raft, else nil
}

func (e *FatalError) Error() string {
	return fmt.Sprintf("consensus (term %d, commit %d, last %d): %v", e.Term, e.Commit, e.Last, e.Cause)
}

func (e *FatalError) Unwrap() error { return e.Cause }

// LostEntriesError is a cause of FatalError: a leader knows that this replica acknowledged entries
// that it does not have, so its disk went back in time.
type LostEntriesError struct {
	Leader             ident.MemberID
	Last, Acknowledged uint64
}

func (e *LostEntriesError) Error() string {
	return fmt.Sprintf("leader %d counts on entries up to %d from this replica, whose log ends at %d",
		e.Leader, e.Acknowledged, e.Last)
}

// LogError is a cause of FatalError: what the log holds cannot be read.
type LogError struct{ Err error }

func (e *LogError) Error() string { return fmt.Sprintf("read the log: %v", e.Err) }
func (e *LogError) Unwrap() error { return e.Err }

// BootError says that the log and the state that New was given do not belong together.
type BootError struct {
	Applied     ident.EntryID
	Commit      uint64
	First, Last uint64
	Detail      string
}

func (e *BootError) Error() string {
	return fmt.Sprintf("open consensus: applied %s, commit %d, log [%d, %d]: %s",
		e.Applied, e.Commit, e.First, e.Last, e.Detail)
}

// MessageError says why a received message was not stepped.
type MessageError struct {
	From   ident.MemberID
	Type   pb.MessageType
	Detail string
}

func (e *MessageError) Error() string {
	return fmt.Sprintf("%s from member %d: %s", e.Type, e.From, e.Detail)
}
