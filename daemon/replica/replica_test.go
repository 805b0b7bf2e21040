package replica_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/replica"
)

// result is what one call of Write returned.
type result struct {
	res replica.Result
	err error
}

// write calls Write elsewhere.
func write(ctx context.Context, r *replica.Replica, item string) <-chan result {
	c := make(chan result, 1)
	go func() {
		res, err := r.Write(ctx, signal(item))
		c <- result{res, err}
	}()
	return c
}

// fill proposes as many batches as may be in flight, one write each, and returns their results to come.
func fill(t *testing.T, r *replica.Replica, batches int) []<-chan result {
	t.Helper()
	var all []<-chan result
	for i := range batches {
		last := r.Status().Last
		all = append(all, write(deadline(t), r, fmt.Sprintf("filler%d", i)))
		eventually(t, "proposal", func() bool { return r.Status().Last > last })
	}
	return all
}

func TestReplica_WriteAnswersEachCallerWithItsOwnOutcome(t *testing.T) {
	d := newDisk(1)
	r := single(t, d, nil)
	var wg sync.WaitGroup
	for c := range 16 {
		wg.Go(func() {
			for i := range 20 {
				item := fmt.Sprintf("%d/%d", c, i)
				res, err := r.Write(t.Context(), signal(item))
				switch {
				case err != nil:
					t.Errorf("Write(%s) = %v", item, err)
				case len(res.Outcome.Refused) != 1 || res.Outcome.Refused[0].Detail != item:
					t.Errorf("Write(%s) was answered with the outcome of another: %+v", item, res.Outcome)
				case d.count(item) != 1:
					t.Errorf("Write(%s) was answered when state held it %d times", item, d.count(item))
				case r.Status().Applied < res.ID.Index:
					t.Errorf("Write(%s) is entry %s, status says applied %d", item, res.ID, r.Status().Applied)
				}
			}
		})
	}
	wg.Wait()
}

func TestReplica_WritesThatWaitShareAnEntry(t *testing.T) {
	d := newDisk(1)
	r := single(t, d, nil)
	d.applies.shut()
	filled := fill(t, r, 4)
	var waiting []<-chan result
	for i := range 100 {
		waiting = append(waiting, write(deadline(t), r, fmt.Sprint(i)))
	}
	size := int64(100 * (256 + len(signal("0"))))
	eventually(t, "queue of 100 writes", func() bool { return r.Status().QueueBytes >= size })
	d.applies.open()
	indexes := map[uint64]bool{}
	for _, c := range append(filled, waiting...) {
		got := <-c
		if got.err != nil {
			t.Fatal(got.err)
		}
		indexes[got.res.ID.Index] = true
	}
	if len(indexes) != 5 {
		t.Errorf("104 writes went into %d entries, want 5", len(indexes))
	}
}

func TestReplica_RefusesWritesAboveItsQueueBeforeProposingThem(t *testing.T) {
	d := newDisk(1)
	cost := int64(256 + len(signal("0")))
	r := single(t, d, func(o *replica.Options) {
		o.Limits.InflightBatches, o.Limits.QueueBytes = 1, 2*cost
	})
	d.applies.shut()
	filled := fill(t, r, 1)
	waiting := []<-chan result{write(deadline(t), r, "0"), write(deadline(t), r, "1")}
	eventually(t, "full queue", func() bool { return r.Status().QueueBytes == 2*cost })
	_, err := r.Write(t.Context(), signal("2"))
	full, ok := errors.AsType[*replica.OverloadedError](err)
	if !ok || full.Queue != replica.QueueWrites || full.Bytes != 2*cost || full.Limit != 2*cost {
		t.Errorf("Write with a full queue = %v", err)
	}
	d.applies.open()
	for _, c := range append(filled, waiting...) {
		if got := <-c; got.err != nil {
			t.Error(got.err)
		}
	}
	if n := d.count("2"); n != 0 {
		t.Errorf("a refused write is in state %d times", n)
	}
}

func TestReplica_SaysWhatIsKnownWhenACallerGivesUp(t *testing.T) {
	d := newDisk(1)
	r := single(t, d, func(o *replica.Options) { o.Limits.InflightBatches = 1 })
	d.applies.shut()
	gaveUp := errors.New("caller gave up")
	ctx, cancel := context.WithCancelCause(t.Context())
	last := r.Status().Last
	proposed := write(ctx, r, "proposed")
	eventually(t, "proposal", func() bool { return r.Status().Last > last })
	queued := write(ctx, r, "queued")
	eventually(t, "queued write", func() bool { return r.Status().QueueBytes > 0 })
	cancel(gaveUp)

	err := (<-proposed).err
	if _, ok := errors.AsType[*replica.UnknownOutcomeError](err); !ok || !errors.Is(err, gaveUp) {
		t.Errorf("a proposed write ended with %v", err)
	}
	err = (<-queued).err
	if _, ok := errors.AsType[*replica.NotProposedError](err); !ok || !errors.Is(err, gaveUp) {
		t.Errorf("a queued write ended with %v", err)
	}
	if _, err := r.Write(ctx, signal("late")); !errors.Is(err, gaveUp) {
		t.Errorf("a write under an ended context ended with %v", err)
	}
	if n := r.Status().QueueBytes; n != 0 {
		t.Errorf("an empty queue holds %d bytes", n)
	}
	d.applies.open()
	if _, err := r.Write(t.Context(), signal("after")); err != nil {
		t.Fatal(err)
	}
	if d.count("proposed") != 1 || d.count("queued") != 0 || d.count("late") != 0 {
		t.Errorf("state holds proposed %d, queued %d, late %d times, want 1, 0, 0",
			d.count("proposed"), d.count("queued"), d.count("late"))
	}
}

func TestReplica_RefusesAWriteThatNoEntryHolds(t *testing.T) {
	r := single(t, newDisk(1), func(o *replica.Options) { o.Limits.EntryBytes = 1000 })
	_, err := r.Write(t.Context(), make([]byte, 1000))
	if large, ok := errors.AsType[*replica.TooLargeError](err); !ok || large.Bytes != 1000 {
		t.Errorf("Write of 1000 bytes = %v", err)
	}
}

// What cannot be applied must never become an entry: it would stop every member for good.
func TestReplica_RefusesWhatCannotBeApplied(t *testing.T) {
	r := single(t, newDisk(1), nil)
	last := r.Status().Last
	for _, data := range [][]byte{nil, {0}, {0, 1}, {0, 1, 9}, {7, 0}, append(signal("a"), 0)} {
		if _, err := r.Write(t.Context(), data); err == nil {
			t.Errorf("Write(%x) = nil", data)
		}
	}
	for _, payload := range [][]byte{{99}, {1, 1}, {byte(command.KindGenesis), 1}} {
		if _, err := r.Propose(t.Context(), payload, nil); err == nil {
			t.Errorf("Propose(%x) = nil", payload)
		}
	}
	if _, err := r.Propose(t.Context(), nil, &pb.ConfChangeV2{Context: []byte{9}}); err == nil {
		t.Error("Propose of a change with a broken roster = nil")
	}
	if s := r.Status(); s.Last != last || s.Failed != nil {
		t.Errorf("Status = %+v, want last %d", s, last)
	}
}

func TestReplica_DropsPeerMessagesAboveItsBound(t *testing.T) {
	d, reg := newDisk(1), prometheus.NewRegistry()
	r := single(t, d, func(o *replica.Options) { o.Limits.ReceiveBytes, o.Metrics = 1, reg })
	term := r.Status().Term
	r.Receive([]*pb.Message{message(pb.MsgHeartbeat, d, 5, 0)})
	if _, err := r.Write(t.Context(), signal("a")); err != nil {
		t.Fatal(err)
	}
	if got := r.Status().Term; got != term {
		t.Errorf("a dropped message moved the term from %d to %d", term, got)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "tidal_replica_receive_dropped_total" && f.GetMetric()[0].GetCounter().GetValue() != 1 {
			t.Errorf("%s = %v, want 1", f.GetName(), f.GetMetric()[0].GetCounter().GetValue())
		}
	}
}

func TestReplica_CloseTellsEveryCallerWhatIsKnown(t *testing.T) {
	d := newDisk(1)
	r := single(t, d, func(o *replica.Options) { o.Limits.InflightBatches = 1 })
	d.applies.shut()
	proposed := fill(t, r, 1)[0]
	queued := write(t.Context(), r, "queued")
	eventually(t, "queued write", func() bool { return r.Status().QueueBytes > 0 })
	index := r.Status().Last
	waits := make(chan error, 1)
	go func() { waits <- r.WaitApplied(context.Background(), index) }()
	closed := make(chan error, 1)
	go func() { closed <- r.Close() }()

	err := (<-proposed).err
	if _, ok := errors.AsType[*replica.UnknownOutcomeError](err); !ok || !errors.Is(err, replica.ErrClosed) {
		t.Errorf("a proposed write ended with %v", err)
	}
	if err := (<-queued).err; err != replica.ErrClosed {
		t.Errorf("a queued write ended with %v", err)
	}
	d.applies.open() // the worker ends before Close returns
	if err := <-closed; err != nil {
		t.Errorf("Close = %v", err)
	}
	if err := <-waits; err != nil && err != replica.ErrClosed {
		t.Errorf("a wait ended with %v", err)
	}
	if _, err := r.Write(t.Context(), signal("late")); err != replica.ErrClosed {
		t.Errorf("Write after Close = %v", err)
	}
	if _, err := r.Propose(t.Context(), command.EncodeWrites(1, nil), nil); err != replica.ErrClosed {
		t.Errorf("Propose after Close = %v", err)
	}
	if _, err := r.ReadIndex(t.Context()); err != replica.ErrClosed {
		t.Errorf("ReadIndex after Close = %v", err)
	}
	if err := r.WaitApplied(t.Context(), 1<<40); err != replica.ErrClosed {
		t.Errorf("WaitApplied after Close = %v", err)
	}
	if s := r.Status(); s.Failed != nil || s.Applied < genesis.Index {
		t.Errorf("Status after Close = %+v", s)
	}
}

func TestReplica_ClosesWithoutStart(t *testing.T) {
	r, err := replica.Open(options(1, newDisk(1), newNetwork(t)))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	}
	if _, err := r.ReadIndex(t.Context()); err != replica.ErrClosed {
		t.Errorf("ReadIndex after Close = %v", err)
	}
}

func TestReplica_WaitersAreBounded(t *testing.T) {
	d := newDisk(1)
	r := single(t, d, func(o *replica.Options) { o.Limits.WaiterBytes = 256 })
	d.applies.shut()
	last := r.Status().Last
	proposed := make(chan error, 1)
	go func() {
		_, err := r.Propose(deadline(t), command.EncodeWrites(1, [][]byte{signal("a")}), nil)
		proposed <- err
	}()
	eventually(t, "proposal", func() bool { return r.Status().Last > last })
	err := r.WaitApplied(t.Context(), last+1)
	if full, ok := errors.AsType[*replica.OverloadedError](err); !ok || full.Queue != replica.QueueWaiters {
		t.Errorf("WaitApplied above the bound = %v", err)
	}
	if _, err := r.ReadIndex(t.Context()); err == nil {
		t.Error("ReadIndex above the bound returned an index")
	}
	d.applies.open()
	if err := <-proposed; err != nil {
		t.Errorf("Propose = %v", err)
	}
	if err := r.WaitApplied(t.Context(), last+1); err != nil {
		t.Errorf("WaitApplied(%d) = %v", last+1, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gaveUp := errors.New("caller gave up")
	cancel(gaveUp)
	if err := r.WaitApplied(ctx, last+2); !errors.Is(err, gaveUp) {
		t.Errorf("WaitApplied under an ended context = %v", err)
	}
}

// Stamps never fall along the log, whatever the wall clock and restarts do.
func TestReplica_StampsFollowThoseInTheLog(t *testing.T) {
	d := newDisk(1)
	var mu sync.Mutex
	var stamps []ident.Stamp
	open := func(wall int64) *replica.Replica {
		n := newNetwork(t)
		o := options(1, d, n)
		o.Recovered.HardState = d.hs
		o.Now = func() time.Time { return time.UnixMilli(wall) }
		o.Observe.OnApplied = func(all []command.Applied) {
			mu.Lock()
			defer mu.Unlock()
			for _, a := range all {
				if a.Stamp != 0 {
					stamps = append(stamps, a.Stamp)
				}
			}
		}
		r := start(t, n, o)
		leads(t, r)
		return r
	}
	r := open(5_000_000)
	for range 3 {
		if _, err := r.Write(t.Context(), signal("a")); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for range 100 { // many elections, and nobody who writes
		index := d.LastIndex() + 1
		d.ents = append(d.ents, &pb.Entry{Term: new(d.hs.GetTerm()), Index: &index})
	}
	r = open(4_000_000) // the clock was set back
	if _, err := r.Write(t.Context(), signal("a")); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(stamps) != 4 || stamps[0].Millis() != 5_000_000 {
		t.Fatalf("stamps %v, want 4, the first at 5000000 ms", stamps)
	}
	for i := range stamps[1:] {
		if stamps[i+1] <= stamps[i] {
			t.Errorf("stamp %s follows %s", stamps[i+1], stamps[i])
		}
	}
}

func TestReplica_FlushesWhatWasApplied(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*replica.Options)
	}{
		{"after a time", func(o *replica.Options) { o.FlushEvery = time.Millisecond }},
		{"after bytes", func(o *replica.Options) { o.Limits.FlushBytes = 1 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDisk(1)
			r := single(t, d, tc.change)
			res, err := r.Write(t.Context(), signal("a"))
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "flush", func() bool { return d.FlushedIndex() >= res.ID.Index })
		})
	}
}

func TestReplica_RefusesToOpenOnMissingEntries(t *testing.T) {
	d := newDisk(1)
	d.applied = ident.EntryID{Term: 1, Index: 5}
	_, err := replica.Open(options(1, d, newNetwork(t)))
	if _, ok := errors.AsType[*consensus.BootError](err); !ok {
		t.Errorf("Open with state ahead of the log = %v", err)
	}
}

func TestReplica_UnregistersItsMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	for range 2 { // a group can be opened again in one process
		r := single(t, newDisk(1), func(o *replica.Options) { o.Metrics = reg })
		families, err := reg.Gather()
		if err != nil || len(families) < 10 {
			t.Fatalf("gathered %d families: %v", len(families), err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
