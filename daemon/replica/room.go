package replica

import (
	"fmt"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
)

// Room says what the disk under a replica has left. Its owner measures; the replica obeys.
type Room struct {
	// Full: nil while clients may write; else why they may not. Votes, the log of the leader and the
	// flushes of state go on, from the reserve.
	Full *DiskFullError
	// Exhausted: the reserve is going too. Nothing is taken from the leader any more, so that this
	// replica falls behind instead of failing closed. It is still counted in elections.
	Exhausted bool
}

// DiskFullError refuses a write because the disk is almost full. Nothing happened.
type DiskFullError struct {
	FreeBytes, NeedBytes uint64
}

func (e *DiskFullError) Error() string {
	return fmt.Sprintf("the disk is almost full: %d bytes are free, writes need %d", e.FreeBytes, e.NeedBytes)
}

// SetRoom takes effect from the next write and the next message on. What waits to be proposed is
// refused, too, once the disk is full.
func (r *Replica) SetRoom(room Room) {
	was := r.room.Swap(&room)
	if room.Full != nil && (was == nil || was.Full == nil) {
		poke(r.wake)
	}
}

// full returns why clients may not write, or nil.
func (r *Replica) full() error {
	if room := r.room.Load(); room != nil && room.Full != nil {
		return room.Full
	}
	return nil
}

// takes reports whether there is room for what m brings. Raft sends again what was not taken, and
// learns of no acknowledgement meanwhile; heartbeats keep the peace.
func (r *Replica) takes(m *pb.Message) bool {
	if m.GetType() != pb.MsgApp || len(m.GetEntries()) == 0 {
		return true
	}
	room := r.room.Load()
	return room == nil || !room.Exhausted
}

// unsynced remembers when each frame that is not durable yet was handed to the append worker.
type unsynced []time.Time

func (u *unsynced) add(frames int, now time.Time) {
	for range frames {
		*u = append(*u, now)
	}
}

func (u *unsynced) done() {
	*u = (*u)[1:]
	if len(*u) == 0 {
		*u = nil // let go of what lies before
	}
}

// since is when the oldest was handed over; zero: all is durable.
func (u unsynced) since() time.Time {
	if len(u) == 0 {
		return time.Time{}
	}
	return u[0]
}
