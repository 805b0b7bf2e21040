package peer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
)

var (
	west  = Target{ID: 2, Name: "us-west", GRPCAddr: "10.0.0.2:9600", HTTPAddr: "10.0.0.2:9500"}
	south = Target{ID: 3, Name: "ap-south", GRPCAddr: "10.0.0.3:9600", HTTPAddr: "10.0.0.3:9500"}
)

func TestJudge(t *testing.T) {
	now := time.Now()
	lease := func(id string, left time.Duration, faults ...Fault) Lease {
		return Lease{ID: id, Faults: faults, Until: now.Add(left)}
	}
	drop := func(to Target, d Direction) Fault { return Fault{Target: to, Direction: d} }
	slow := func(to Target, by time.Duration) Fault { return Fault{Target: to, Direction: Out, Delay: by} }
	for _, tc := range []struct {
		name   string
		leases []Lease
		party  Party
		way    Direction
		want   string // lease, and what it does
	}{
		{"no lease", nil, Party{ID: 2}, Both, "passes"},
		{"both ways, out", []Lease{lease("a", 1, drop(west, Both))}, Party{ID: 2}, Out, "a drops"},
		{"both ways, in", []Lease{lease("a", 1, drop(west, Both))}, Party{ID: 2}, In, "a drops"},
		{"one way, that way", []Lease{lease("a", 1, drop(west, Out))}, Party{ID: 2}, Out, "a drops"},
		{"one way, the other way", []Lease{lease("a", 1, drop(west, Out))}, Party{ID: 2}, In, "passes"},
		{"one way, a question and its answer", []Lease{lease("a", 1, drop(west, In))}, Party{ID: 2}, Both, "a drops"},
		{"by name", []Lease{lease("a", 1, drop(west, Both))}, Party{Name: "us-west"}, In, "a drops"},
		{"by the address of gRPC", []Lease{lease("a", 1, drop(west, Both))}, Party{Addr: "10.0.0.2:9600"}, Out, "a drops"},
		{"by the address of HTTP", []Lease{lease("a", 1, drop(west, Both))}, Party{Addr: "10.0.0.2:9500"}, Out, "a drops"},
		{"somebody else", []Lease{lease("a", 1, drop(west, Both))}, Party{ID: 3, Name: "ap-south", Addr: "10.0.0.3:9600"}, Both, "passes"},
		{"nobody in particular", []Lease{lease("a", 1, drop(Target{Name: "us-west"}, Both))}, Party{}, Both, "passes"},
		{"time is up", []Lease{lease("a", 0, drop(west, Both))}, Party{ID: 2}, Out, "passes"},
		{"the second row", []Lease{lease("a", 1, drop(south, Both), drop(west, In))}, Party{ID: 2}, In, "a drops"},
		{"the second lease", []Lease{lease("a", -1, drop(west, Both)), lease("b", 1, drop(west, Both))}, Party{ID: 2}, In, "b drops"},
		{"delayed", []Lease{lease("a", 1, slow(west, 5))}, Party{ID: 2}, Out, "a delays 5ns"},
		{"what comes in is not delayed", []Lease{lease("a", 1, slow(west, 5))}, Party{ID: 2}, In, "passes"},
		{"the longer delay", []Lease{lease("a", 1, slow(west, 5)), lease("b", 1, slow(west, 7)), lease("c", 1, slow(west, 6))}, Party{ID: 2}, Out, "b delays 7ns"},
		{"a drop before a delay", []Lease{lease("a", 1, drop(west, Out)), lease("b", 1, slow(west, 7))}, Party{ID: 2}, Out, "a drops"},
		{"a drop after a delay", []Lease{lease("b", 1, slow(west, 7)), lease("a", 1, drop(west, Out))}, Party{ID: 2}, Out, "a drops"},
	} {
		got := "passes"
		switch v := judge(tc.leases, now, tc.party, tc.way); {
		case v.Drop:
			got = v.Lease + " drops"
		case v.Delay > 0:
			got = fmt.Sprintf("%s delays %s", v.Lease, v.Delay)
		}
		if got != tc.want {
			t.Errorf("%s: judge(%+v, %s) = %s, want %s", tc.name, tc.party, tc.way, got, tc.want)
		}
	}
}

func TestGranted_IsBounded(t *testing.T) {
	now := time.Now()
	var leases []Lease
	for i := range MaxLeases {
		var err error
		if leases, err = granted(leases, now, Lease{ID: fmt.Sprint(i), Until: now.Add(time.Minute)}); err != nil {
			t.Fatalf("lease %d: %v", i, err)
		}
	}
	if _, err := granted(leases, now, Lease{ID: "one more", Until: now.Add(time.Minute)}); err == nil || err.Error() != "17 leases, limit 16" {
		t.Errorf("a lease above the bound: %v", err)
	}
	again, err := granted(leases, now, Lease{ID: "3", Until: now.Add(time.Hour)})
	if err != nil || len(again) != MaxLeases || again[MaxLeases-1].Until != now.Add(time.Hour) {
		t.Errorf("a lease granted again: %d leases, %v", len(again), err)
	}
	if got, err := granted(leases, now.Add(time.Minute), Lease{ID: "later"}); err != nil || len(got) != 1 {
		t.Errorf("after all are over: %d leases, %v; want their room", len(got), err)
	}
	if _, err := granted(nil, now, Lease{Faults: make([]Fault, MaxFaults+1)}); err == nil {
		t.Error("a lease with too many faults was granted")
	}
}

func TestFaults_EndByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // each end comes from a goroutine of its own
		var ended []string
		table := NewFaults(FaultOptions{OnEnd: func(l Lease, early bool) {
			mu.Lock()
			defer mu.Unlock()
			ended = append(ended, fmt.Sprint(l.ID, " early: ", early))
		}})
		defer table.Close()
		for id, left := range map[string]time.Duration{"short": time.Second, "long": 3 * time.Second, "healed": time.Minute} {
			if err := table.Grant(Lease{ID: id, Faults: []Fault{{Target: west, Direction: Both}}, Until: time.Now().Add(left)}); err != nil {
				t.Fatal(err)
			}
		}
		if got := table.Revoke("healed"); len(got) != 1 || got[0].ID != "healed" {
			t.Errorf("Revoke = %v", got)
		}
		if got := table.Revoke("healed"); got != nil {
			t.Errorf("Revoke of what is gone = %v", got)
		}
		time.Sleep(3*time.Second - 1)
		if got := table.Leases(); len(got) != 1 || got[0].ID != "long" || !table.Judge(Party{ID: 2}, In).Drop {
			t.Errorf("just before the end of the last: %v", got)
		}
		time.Sleep(1)
		if got := table.Leases(); got != nil || table.Judge(Party{ID: 2}, In).Drop {
			t.Errorf("at the end of the last: %v", got)
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"healed early: true", "short early: false", "long early: false"}; !slices.Equal(ended, want) {
			t.Errorf("ends told: %q, want %q", ended, want)
		}
		if table.leases.Load() != nil {
			t.Error("leases that are over are kept")
		}
	})
}

func TestFaults_QuestionsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewFaults(FaultOptions{})
		defer table.Close()
		grant := func(f Fault) {
			t.Helper()
			if err := table.Grant(Lease{ID: "f", Faults: []Fault{f}, Until: time.Now().Add(10 * time.Second)}); err != nil {
				t.Fatal(err)
			}
		}
		waited := func(f func(context.Context, Party) error) (time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			start := time.Now()
			err := f(ctx, Party{Name: "us-west"})
			return time.Since(start), err
		}
		grant(Fault{Target: west, Direction: Out, Delay: time.Second})
		if d, err := waited(table.Pass); d != time.Second || err != nil {
			t.Errorf("Pass of what is delayed: %v after %s, want 1 s", err, d)
		}
		if d, err := waited(table.Silence); d != 0 || err != nil {
			t.Errorf("Silence of what is delayed: %v after %s", err, d)
		}
		grant(Fault{Target: west, Direction: In})
		d, err := waited(table.Pass)
		if cut, ok := errors.AsType[*CutError](err); d != 0 || !ok || cut.Lease != "f" || cut.Left != 10*time.Second {
			t.Errorf("Pass of what is dropped: %v after %s", err, d)
		}
		if d, err := waited(table.Silence); d != 10*time.Second || err == nil {
			t.Errorf("Silence of what is dropped: %v after %s, want 10 s", err, d)
		}
		grant(Fault{Target: west, Direction: In})
		time.AfterFunc(2*time.Second, func() { table.Revoke("") })
		if d, err := waited(table.Silence); d != 2*time.Second || err == nil {
			t.Errorf("Silence of what is revoked: %v after %s, want 2 s", err, d)
		}
	})
}

func TestFaults_NilHasNone(t *testing.T) {
	var none *Faults
	if v := none.Judge(Party{ID: 2}, Both); v != (Verdict{}) || none.Leases() != nil || none.Revoke("") != nil {
		t.Errorf("a nil table has faults: %+v", v)
	}
	if err := errors.Join(none.Pass(t.Context(), Party{}), none.Silence(t.Context(), Party{})); err != nil {
		t.Error(err)
	}
	none.Close()
}

// startFaulty is a member with a fault table.
func startFaulty(t *testing.T, id ident.MemberID) (*member, *Faults) {
	faults := NewFaults(FaultOptions{})
	t.Cleanup(faults.Close)
	return startMember(t, id, anyPort, func(o *Options) { o.Faults, o.PingEvery = faults, 10*time.Millisecond }), faults
}

func (t *Faults) grant(tb testing.TB, id string, f ...Fault) {
	tb.Helper()
	if err := t.Grant(Lease{ID: id, Faults: f, Until: time.Now().Add(time.Minute)}); err != nil {
		tb.Fatal(err)
	}
}

// A fault of one member silences an open stream, both ways or one, and nothing breaks: the peer learns
// of it by hearing nothing.
func TestNetwork_AFaultSilencesStreams(t *testing.T) {
	a, faults := startFaulty(t, 1)
	b, _ := startFaulty(t, 2)
	a.SetPeers([]Peer{{ID: 2, Addr: b.addr}})
	b.SetPeers([]Peer{{ID: 1, Addr: a.addr}})
	a.awaitConnected(t, 2)
	b.awaitConnected(t, 1)
	two := Target{ID: 2, Name: "m2", GRPCAddr: b.addr}

	var index uint64
	pass := func(from, to *member, want bool) {
		t.Helper()
		index++
		from.Send(0, []*pb.Message{message(from.id, to.id, index, 0)})
		if !want {
			return
		}
		for { // what was sent before the fault began may still come
			if d := receive(t, to.delivered, "a message"); d.msgs[len(d.msgs)-1].GetIndex() == index {
				return
			}
		}
	}
	dropped := func(m *member, what string, n float64) {
		t.Helper()
		for deadline := time.Now().Add(8 * time.Second); ; {
			got := count(t, m.metrics.sendDropped.WithLabelValues("2", dropFault)) + count(t, m.metrics.receiveDropped.WithLabelValues(dropFault))
			if got == n {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v messages were dropped, want %v", what, got, n)
			}
			receive(t, time.After(time.Millisecond), "a tick")
		}
	}
	silent := func(m *member) { // two pings long nothing is heard
		t.Helper()
		heard := m.Peers()[0].LastHeard
		receive(t, time.After(25*time.Millisecond), "a tick")
		if again := m.Peers()[0].LastHeard; again.After(heard.Add(10 * time.Millisecond)) {
			t.Errorf("member %d heard its peer through a fault", m.id)
		}
	}

	pass(a, b, true)
	faults.grant(t, "out", Fault{Target: two, Direction: Out})
	pass(a, b, false)
	dropped(a, "out", 1)
	silent(b)
	pass(b, a, true)
	faults.Revoke("out")
	pass(a, b, true)

	faults.grant(t, "in", Fault{Target: two, Direction: In})
	pass(b, a, false)
	dropped(a, "in", 2)
	silent(a)
	pass(a, b, true)
	faults.Revoke("in")
	pass(b, a, true)

	faults.grant(t, "both", Fault{Target: two, Direction: Both})
	pass(a, b, false)
	pass(b, a, false)
	dropped(a, "both", 4)
	faults.Revoke("")
	pass(a, b, true)
	pass(b, a, true)
	for _, m := range []*member{a, b} {
		if s := m.Peers()[0]; !s.Connected {
			t.Errorf("member %d lost its stream to a fault: %+v", m.id, s)
		}
	}
}

func TestNetwork_AFaultDelaysMessages(t *testing.T) {
	a, faults := startFaulty(t, 1)
	b, _ := startFaulty(t, 2)
	a.SetPeers([]Peer{{ID: 2, Addr: b.addr}})
	a.awaitConnected(t, 2)
	const delay = 60 * time.Millisecond
	faults.grant(t, "slow", Fault{Target: Target{ID: 2}, Direction: Out, Delay: delay})
	var sent []time.Time
	for i := range uint64(4) {
		sent = append(sent, time.Now())
		a.Send(0, []*pb.Message{message(1, 2, i, 0)})
		receive(t, time.After(delay/4), "a tick")
	}
	for next := 0; next < len(sent); {
		d := receive(t, b.delivered, "a message")
		for _, m := range d.msgs {
			if took := time.Since(sent[next]); m.GetIndex() != uint64(next) || took < delay {
				t.Errorf("message %d came after %s, want message %d after at least %s", m.GetIndex(), took, next, delay)
			}
			next++
		}
	}
}

// Neither end makes a session, answers a probe, nor gives or takes an artifact across a fault.
func TestNetwork_AFaultCutsQuestions(t *testing.T) {
	a, faults := startFaulty(t, 1)
	b := startMember(t, 2, anyPort, func(o *Options) { o.Snapshots = &artifacts{data: [][]byte{{1}, {2}}} })
	faults.grant(t, "f", Fault{Target: Target{ID: 2, Name: "m2", GRPCAddr: b.addr}, Direction: Out})

	cut := func(what string, err error) {
		t.Helper()
		if e, ok := errors.AsType[*ConnectError](err); !ok || e.Failure != FailureFault {
			t.Errorf("%s across a fault: %v", what, err)
		}
	}
	_, err := a.Probe(t.Context(), b.addr, ProbeRequest{Name: "m1"})
	cut("a probe", err)
	_, _, err = a.FetchSnapshot(t.Context(), b.addr, SnapshotRequest{Hello: a.self()})
	cut("a snapshot", err)
	_, err = a.Barrier(t.Context(), b.addr, BarrierRequest{Hello: a.self()})
	cut("a barrier", err)
	a.SetPeers([]Peer{{ID: 2, Addr: b.addr}})
	a.awaitFailure(t, FailureFault)

	// The other way round nothing is answered, while the fault lasts.
	b.SetPeers([]Peer{{ID: 1, Addr: a.addr}})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := b.Probe(ctx, a.addr, ProbeRequest{Name: "m2"}); err == nil {
		t.Error("a probe was answered across a fault")
	}
	if s := b.Peers()[0]; s.Connected {
		t.Errorf("a session across a fault: %+v", s)
	}
	faults.Revoke("f")
	a.awaitConnected(t, 2)
	b.awaitConnected(t, 1)
}

func TestNetwork_AFaultCutsArtifactsOnTheirWay(t *testing.T) {
	a, faults := startFaulty(t, 1)
	next := make(chan struct{})
	b := startMember(t, 2, anyPort, func(o *Options) { o.Snapshots = &artifacts{data: [][]byte{{1}, {2}}, before: next} })
	_, stream, err := a.FetchSnapshot(testContext(t), b.addr, SnapshotRequest{Hello: a.self()})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	next <- struct{}{}
	if c, err := stream.Next(); err != nil || !slices.Equal(c.Data, []byte{1}) {
		t.Fatalf("first chunk: %v, %v", c, err)
	}
	faults.grant(t, "f", Fault{Target: Target{GRPCAddr: b.addr}, Direction: In})
	next <- struct{}{}
	_, err = stream.Next()
	if e, ok := errors.AsType[*ConnectError](err); !ok || e.Failure != FailureFault {
		t.Errorf("second chunk across a fault: %v", err)
	}
}

// artifacts serves chunks, each after a value of before, where that is not nil.
type artifacts struct {
	Snapshots
	data   [][]byte
	before chan struct{}
}

func (s *artifacts) FetchSnapshot(ctx context.Context, _ SnapshotRequest, to SnapshotSender) error {
	if err := to.Header(SnapshotHeader{Needed: true, Manifest: []byte("m")}); err != nil {
		return err
	}
	for _, d := range s.data {
		if s.before != nil {
			select {
			case <-s.before:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := to.Chunk(SnapshotChunk{Data: d}); err != nil {
			return err
		}
	}
	return nil
}

func (s *artifacts) Durable(ident.MemberID, []GroupPosition) {}

func (s *artifacts) Barrier(context.Context, BarrierRequest) (BarrierReply, error) {
	return BarrierReply{}, nil
}
