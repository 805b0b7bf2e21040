package replica_test

import (
	"fmt"
	"testing"

	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/replica"
)

// begin begins a write and waits for it elsewhere.
func begin(t *testing.T, r *replica.Replica, item string, ack consensus.Ack) <-chan result {
	t.Helper()
	wait, err := r.Begin(signal(item), ack)
	if err != nil {
		t.Fatal(err)
	}
	c := make(chan result, 1)
	go func() {
		res, err := wait(deadline(t))
		c <- result{res, err}
	}()
	return c
}

// A write with AckLeader is answered when the leader's log has it durably: not before, and without a
// word about what the state makes of it.
func TestReplica_AckLeaderWaitsForTheLogAlone(t *testing.T) {
	d := newDisk(1)
	r := single(t, d, nil)
	d.applies.shut()
	d.appends.shut()
	quorum, leader := begin(t, r, "quorum", consensus.AckQuorum), begin(t, r, "leader", consensus.AckLeader)
	eventually(t, "proposals", func() bool { return r.Status().Last >= r.Status().Commit+2 })
	select {
	case got := <-leader:
		t.Fatalf("answered before it was durable: %+v", got)
	default:
	}
	d.appends.open()
	got := <-leader
	if got.err != nil || got.res.Ack != consensus.AckLeader || got.res.ID.Index == 0 || got.res.Outcome.Refused != nil || got.res.Replicated != nil {
		t.Errorf("AckLeader: %+v, want the entry and nothing else", got)
	}
	select {
	case got := <-quorum:
		t.Fatalf("AckQuorum was answered before it was applied: %+v", got)
	default:
	}
	d.applies.open()
	if got := <-quorum; got.err != nil || got.res.Ack != consensus.AckQuorum || len(got.res.Outcome.Refused) != 1 {
		t.Errorf("AckQuorum: %+v", got)
	}
}

// Writes that one caller begins one after the other are in the log in this order, whatever they wait
// for, and those that wait for the same share entries.
func TestReplica_BeginKeepsTheOrder(t *testing.T) {
	d := newDisk(1)
	r := single(t, d, nil)
	d.applies.shut()
	filled := fill(t, r, 4)
	var waits []<-chan result
	for i := range 40 {
		ack := consensus.AckQuorum
		if i >= 20 && i < 30 {
			ack = consensus.AckLeader
		}
		waits = append(waits, begin(t, r, fmt.Sprint(i), ack))
	}
	d.applies.open()
	for _, c := range filled {
		<-c
	}
	last, entries := uint64(0), 0
	for i, c := range waits {
		got := <-c
		if got.err != nil || got.res.ID.Index < last {
			t.Fatalf("write %d: %+v after entry %d", i, got, last)
		}
		if got.res.ID.Index > last {
			last, entries = got.res.ID.Index, entries+1
		}
	}
	if entries != 3 {
		t.Errorf("40 writes of three turns are in %d entries, want 3", entries)
	}
}
