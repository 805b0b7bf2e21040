package replica_test

import (
	"errors"
	"testing"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/replica"
)

var full = replica.Room{Full: &replica.DiskFullError{FreeBytes: 10, NeedBytes: 20}}

// A full disk refuses what is not proposed yet, and lets what is on its way arrive.
func TestReplica_FullDiskRefusesWrites(t *testing.T) {
	t.Parallel()
	d := newDisk(1)
	r := single(t, d, func(o *replica.Options) { o.Limits.InflightBatches = 1 })
	before := r.Status().Last
	d.appends.shut()
	write := func(item string) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := r.Write(deadline(t), signal(item))
			done <- err
		}()
		return done
	}
	proposed := write("a")
	eventually(t, "entry on its way", func() bool { return r.Status().Last > before && !r.Status().UnsyncedSince.IsZero() })
	waiting := write("b")
	eventually(t, "write that waits", func() bool { return r.Status().QueueBytes > 0 })

	r.SetRoom(full)
	if _, ok := errors.AsType[*replica.DiskFullError](<-waiting); !ok {
		t.Error("the write that waited was not refused")
	}
	if _, err := r.Write(deadline(t), signal("c")); !errors.Is(err, full.Full) {
		t.Errorf("Write on a full disk = %v, want %v", err, full.Full)
	}
	d.appends.open()
	if err := <-proposed; err != nil {
		t.Errorf("the write on its way: %v", err)
	}
	r.SetRoom(replica.Room{})
	if _, err := r.Write(deadline(t), signal("d")); err != nil {
		t.Errorf("Write after there was room: %v", err)
	}
	eventually(t, "end of all appends", func() bool { return r.Status().UnsyncedSince.IsZero() })
}

// A follower that runs out of room falls behind, and catches up when there is room again. It does not
// disturb the leader meanwhile.
func TestReplica_ExhaustedFollowerFallsBehind(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	replicas := map[ident.MemberID]*replica.Replica{}
	var all []*replica.Replica
	for id := ident.MemberID(1); id <= 3; id++ {
		replicas[id] = start(t, n, options(id, newDisk(1, 2, 3), n))
		all = append(all, replicas[id])
	}
	leader := leads(t, all...)
	was := leader.Status()
	follower := replicas[was.Leader%3+1]
	eventually(t, "follower in step", func() bool { return follower.Status().Applied == leader.Status().Applied })

	room := full
	room.Exhausted = true
	follower.SetRoom(room)
	at := follower.Status().Last
	for range 20 {
		if _, err := leader.Write(deadline(t), signal("a")); err != nil {
			t.Fatal(err)
		}
	}
	if s := follower.Status(); s.Last != at || s.Failed != nil {
		t.Errorf("the follower without room went from %d to %d, failed: %v", at, s.Last, s.Failed)
	}
	follower.SetRoom(replica.Room{})
	eventually(t, "follower that caught up", func() bool { return follower.Status().Applied == leader.Status().Applied })
	if s := leader.Status(); s.Term != was.Term {
		t.Errorf("the term went from %d to %d", was.Term, s.Term)
	}
}
