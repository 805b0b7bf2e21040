package consensus

import (
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Token names one caller that waits. The driver makes it, never 0 and never twice; the machine only
// hands it back.
type Token uint64

// Input is one thing that happened. Exactly one field is set.
type Input struct {
	Tick     bool           // one tick of the driver's monotonic clock
	Receive  *pb.Message    // from a peer; its sender and group are already checked against the roster
	Propose  *Proposal      // one entry to append
	Appended *Append        // the append worker: this frame is durable; in order, each once
	Applied  *Apply         // the apply worker: this run is in state; in order, each once
	Read     Token          // linearizable read: answered with the index to wait for
	Transfer ident.MemberID // hand leadership to this member; nothing happens on a follower
	LostLead ident.MemberID // this leader's process is gone (stream broken, port refuses): forget it
	Campaign bool           // nobody leads and there is no reason to wait; nothing happens where one is known
	Known    *ident.EntryID // a member has applied this entry: it is committed; nothing happens where a leader is known
	// LastResort has this replica lead only if nobody else does, from now on: it grants votes and
	// acknowledges as ever, ignores Campaign and a leader that hands over to it, and stands only after
	// lastResortTimeouts election timeouts without a leader. One that leads goes on: its owner hands over.
	LastResort bool

	SnapDone *SnapDone // an artifact for a peer of Effects.Stage was installed, or was not

	// Compacted is the last index that the log dropped at its head, at most the durable applied
	// index. The driver drops first, then tells.
	Compacted uint64
}

// Proposal is one entry to append: a batch of client writes, or a membership change. Exactly one of
// Data and Conf is set.
type Proposal struct {
	Token Token

	// Data is the payload, not empty (the empty entry is raft's own). The machine keeps it.
	Data []byte

	// Conf is a membership change that page 4's rules have allowed; its Context is the payload.
	Conf *pb.ConfChangeV2

	Ack Ack
}

// Ack is what a proposal waits for.
type Ack uint8

const (
	AckQuorum Ack = iota // answered when committed and applied here
	AckLeader            // answered when durable on the leader it was proposed to; may be lost with it
)

// Append is one frame for the log: entries and the whole HardState, together or not at all. Entries
// are shared with raft and the senders: read-only. Entries that start at or below the last index of
// the log replace everything from there on.
type Append struct {
	HardState *pb.HardState
	Entries   []*pb.Entry

	// responses leave only when the frame is handed back, in order. The machine may add to them until
	// then; nobody else looks.
	responses []*pb.Message

	sync bool

	// seq numbers the frames of one machine from 1, so that a frame handed back out of order is seen.
	seq uint64
}

// Sync reports whether the frame must reach the disk before it is handed back: it has entries, a term or
// a vote. Responses speak of nothing else, and what they say of earlier frames is durable by then. A
// frame that only moves commit may ride with the next one.
func (a *Append) Sync() bool { return a.sync }

// Apply is one run of committed entries, never empty. The worker fills Conf, in order. Entries are
// read-only.
type Apply struct {
	Entries []*pb.Entry

	// Conf has one element for every configuration entry in Entries.
	Conf []ConfApplied

	response *pb.Message
}

// ConfApplied is what became of one configuration entry.
type ConfApplied struct {
	Change  *pb.ConfChangeV2 // as applied
	Want    *pb.ConfState    // what state now records; raft must arrive at the same
	Refused bool             // apply did not accept the change: raft is not told of it
}

// SnapDone reports the end of one peer's installation of an artifact.
type SnapDone struct {
	Peer ident.MemberID
	OK   bool
}
