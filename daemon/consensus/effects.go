package consensus

import (
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Effects is everything one Step asks for. The driver carries the fields out in this order. The
// slices are valid until the next Step; what they point to is valid for ever.
type Effects struct {
	Append []*Append     // to the append worker, in order
	Send   []*pb.Message // to peers, now; waits for nothing but what the machine waited for; read-only
	Apply  []*Apply      // to the apply worker, in order
	Answer []Answer      // to callers

	Role   *Role            // changed
	Reseed *Reseed          // the leader no longer has what this replica needs
	Stage  []ident.MemberID // peers that need an artifact; each ends with Input.SnapDone

	// Refused is a *MessageError: the received message broke the protocol and was not stepped. For
	// a counter and a rate-limited line; nothing else follows from it.
	Refused error

	// Fatal is a *FatalError: the replica's own state cannot be trusted. Every other field is then
	// empty, and so are the Effects of every later Step. The driver closes the replica.
	Fatal error
}

// Answer settles a token. Err is nil, or says precisely what is known of the outcome.
type Answer struct {
	Token Token

	// ID is the entry of a write. Of a read only Index is set: serve it from a state that has
	// applied that index.
	ID ident.EntryID

	// Replicated are the other members, learners included, whose durable log is known to cover the
	// write, sorted. Shared by the answers of a run: read-only. nil for reads, AckLeader, errors,
	// and a write that became applied here after leadership was lost.
	Replicated []ident.MemberID

	Err error
}

// Role is this replica's place in its group.
type Role struct {
	Term   uint64
	Leader ident.MemberID // 0: none known
	State  raft.StateType
}

// Reseed says where the leader stands that has compacted what this replica needs. It is repeated
// when the leader asks again.
type Reseed struct {
	From ident.MemberID
	At   ident.EntryID
}
