package replica_test

import (
	"errors"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/replica"
)

var errDisk = errors.New("input/output error")

// After an error of any part nothing is acknowledged, and every caller is told the truth.
func TestReplica_FailsClosed(t *testing.T) {
	for _, tc := range []struct {
		name  string
		stage replica.Stage
		cause error                             // nil: the machine's own
		fail  func(d *disk, r *replica.Replica) // makes the failure happen with the next progress
	}{
		{name: "log append", stage: replica.StageLog, cause: errDisk,
			fail: func(d *disk, _ *replica.Replica) { d.with(func() { d.appendErr = errDisk }) }},
		{name: "apply", stage: replica.StageState, cause: errDisk,
			fail: func(d *disk, _ *replica.Replica) { d.with(func() { d.applyErr = errDisk }) }},
		{name: "vote", stage: replica.StageVotes, cause: errDisk,
			fail: func(d *disk, r *replica.Replica) {
				d.with(func() { d.voteErr = errDisk })
				r.Receive([]*pb.Message{message(pb.MsgHeartbeat, d, 5, 0)}) // a later term
			}},
		{name: "store's background work", stage: replica.StageState, cause: errDisk,
			fail: func(_ *disk, r *replica.Replica) { r.Fail(errDisk) }},
		{name: "machine", stage: replica.StageMachine,
			fail: func(d *disk, r *replica.Replica) {
				r.Receive([]*pb.Message{message(pb.MsgHeartbeat, d, 5, 1<<40)}) // counts on entries that are gone
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDisk(1)
			failures := make(chan error, 8)
			r := single(t, d, func(o *replica.Options) {
				o.Limits.InflightBatches = 1
				o.Observe.OnFail = func(err error) { failures <- err }
			})
			d.appends.shut()
			proposed := fill(t, r, 1)[0]
			queued := write(deadline(t), r, "queued")
			eventually(t, "queued write", func() bool { return r.Status().QueueBytes > 0 })
			tc.fail(d, r)
			d.appends.open()

			failed, ok := errors.AsType[*replica.FailedError](<-failures)
			if !ok || failed.Stage != tc.stage || tc.cause != nil && !errors.Is(failed, tc.cause) {
				t.Errorf("OnFail(%v), want stage %s", failed, tc.stage)
			}
			err := (<-proposed).err
			if _, ok := errors.AsType[*replica.UnknownOutcomeError](err); !ok || !errors.Is(err, failed) {
				t.Errorf("a proposed write ended with %v", err)
			}
			err = (<-queued).err
			if _, ok := errors.AsType[*replica.NotLeaderError](err); !ok && err != error(failed) {
				t.Errorf("a queued write ended with %v", err)
			}
			if _, err := r.Write(t.Context(), signal("late")); err != error(failed) {
				t.Errorf("a later write ended with %v", err)
			}
			if _, err := r.Propose(t.Context(), command.EncodeWrites(1, nil), nil); err != error(failed) {
				t.Errorf("a later proposal ended with %v", err)
			}
			if _, err := r.ReadIndex(deadline(t)); err != error(failed) {
				t.Errorf("a later read index ended with %v", err)
			}
			if err := r.WaitApplied(deadline(t), 1<<40); err != error(failed) {
				t.Errorf("a later wait ended with %v", err)
			}
			s := r.Status()
			why, other := s.Failed, s.Stateless
			if tc.stage == replica.StageState {
				why, other = other, why // its log goes on
			}
			if why != error(failed) || other != nil {
				t.Errorf("Status() has Failed %v and Stateless %v", s.Failed, s.Stateless)
			}
			r.Fail(errors.New("second failure"))
			if err := r.Close(); err != nil {
				t.Errorf("Close = %v", err)
			}
			if len(failures) != 0 {
				t.Errorf("OnFail was called again: %v", <-failures)
			}
			if d.count("queued")+d.count("late") != 0 {
				t.Error("state holds a write that was answered with: nothing happened")
			}
		})
	}
}

func TestReplica_FailsClosedWhenAFlushFails(t *testing.T) {
	d := newDisk(1)
	failures := make(chan error, 8)
	r := single(t, d, func(o *replica.Options) {
		o.Limits.FlushBytes = 1
		o.Observe.OnFail = func(err error) { failures <- err }
	})
	d.with(func() { d.flushErr = errDisk })
	<-write(deadline(t), r, "a") // the flush that follows races with its answer
	failed, ok := errors.AsType[*replica.FailedError](<-failures)
	if !ok || failed.Stage != replica.StageState || !errors.Is(failed, errDisk) {
		t.Errorf("OnFail(%v)", failed)
	}
}

// A replica that its peers do not hear any more is stopped: it answers no message, and no write.
func TestReplica_ExpelStopsIt(t *testing.T) {
	d := newDisk(1)
	failures := make(chan error, 8)
	r := single(t, d, func(o *replica.Options) { o.Observe.OnFail = func(err error) { failures <- err } })
	<-write(deadline(t), r, "a")
	r.Expel(errDisk)
	failed, ok := errors.AsType[*replica.FailedError](<-failures)
	if !ok || failed.Stage != replica.StageFence || !errors.Is(failed, errDisk) {
		t.Errorf("OnFail(%v), want stage %s", failed, replica.StageFence)
	}
	vote := d.Vote(0)
	r.Receive([]*pb.Message{message(pb.MsgHeartbeat, d, 3, 0)})
	if b := <-write(deadline(t), r, "b"); !errors.Is(b.err, errDisk) {
		t.Errorf("a write is answered with %v", b.err)
	}
	if now := d.Vote(0); now != vote {
		t.Errorf("votes %+v, were %+v when it was expelled", now, vote)
	}
}

// unreadable is a disk whose log cannot be read.
type unreadable struct {
	*disk
	unreadable atomic.Bool
}

func (d *unreadable) Entries(lo, hi, maxBytes uint64) ([]*pb.Entry, error) {
	if d.unreadable.Load() {
		return nil, errDisk
	}
	return d.disk.Entries(lo, hi, maxBytes)
}

// The log is to blame where it cannot be read, not the machine that stops because of it.
func TestReplica_FailsClosedWhenTheLogCannotBeRead(t *testing.T) {
	d := &unreadable{disk: newDisk(1)}
	d.ents = []*pb.Entry{{Term: new(genesis.Term), Index: new(genesis.Index + 1)}} // committed, to be applied
	d.hs.Commit = new(genesis.Index + 1)
	failures := make(chan error, 1)
	o := options(1, d.disk, newNetwork(t))
	o.Log, o.Observe.OnFail = d, func(err error) { failures <- err }
	r, err := replica.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	d.unreadable.Store(true)
	r.Start()
	failed, ok := errors.AsType[*replica.FailedError](<-failures)
	if !ok || failed.Stage != replica.StageLog || !errors.Is(failed, errDisk) {
		t.Errorf("OnFail(%v), want stage %s", failed, replica.StageLog)
	}
}

// message makes one of member 9 to member 1, some terms above that of d.
func message(kind pb.MessageType, d *disk, terms, commit uint64) *pb.Message {
	term := d.Vote(0).Term + terms
	return &pb.Message{Type: kind.Enum(), From: new(uint64(9)), To: new(uint64(1)), Term: &term, Commit: &commit}
}
