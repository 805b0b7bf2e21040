package consensus

import (
	"log/slog"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Options opens a Machine on what the boot sequence recovered.
type Options struct {
	ID  ident.MemberID // of this replica; required
	Log Log            // required; the machine reads it for as long as it lives

	// HardState is the log's. Its commit may be below Applied: frames that only move commit are not
	// synced, state may be durable ahead of them.
	HardState *pb.HardState

	// Applied and Conf are the state's position. The log must contain Applied, or begin right after it.
	Applied ident.EntryID
	Conf    *pb.ConfState // never without a voter

	// ElectionTicks is how long a follower waits for a leader, at least; 0 means 10. HeartbeatTicks
	// is the distance of a leader's heartbeats, below ElectionTicks; 0 means 1.
	ElectionTicks, HeartbeatTicks int

	// Nonce differs at every opening of a replica, within a process too (random, or a durable
	// counter). It keeps late answers to the reads of an earlier life from being taken for ours.
	Nonce uint64

	Limits Limits
	Logger *slog.Logger // raft's lines; nil means none
}

// Limits bounds memory and messages. 0 means the default.
type Limits struct {
	TailBytes        int    // entries kept in memory; 8 MiB
	MessageBytes     uint64 // entries in one append message, at least one entry; 1 MiB
	InflightMessages int    // append messages on the way to one follower; 256
	InflightBytes    uint64 // their bytes; 32 MiB
	UncommittedBytes uint64 // payload proposed and not yet applied; beyond it ErrDropped; 32 MiB
	ApplyBytes       uint64 // entries handed to the apply worker and not yet handed back; 4 MiB
}

// Log is the durable log. *wal.Log implements it. The append worker may be appending meanwhile.
type Log interface {
	// Entries returns [lo, hi), at least one, up to maxBytes; raft.ErrCompacted below FirstIndex.
	Entries(lo, hi, maxBytes uint64) ([]*pb.Entry, error)

	// Term returns the term of entry i in [FirstIndex()-1, LastIndex()]; raft.ErrCompacted below.
	Term(i uint64) (uint64, error)

	FirstIndex() uint64
	LastIndex() uint64
}
