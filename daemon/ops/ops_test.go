package ops_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/ops"
	"github.com/tidaldb/tidal/daemon/ops/opstest"
	"github.com/tidaldb/tidal/daemon/replica"
)

// asker answers for the members of a test by address; an address that is missing never answers.
type asker map[string]func() (api.LocalStatus, error)

func (a asker) LocalStatus(ctx context.Context, addr string) (api.LocalStatus, error) {
	if f, ok := a[addr]; ok {
		return f()
	}
	<-ctx.Done()
	return api.LocalStatus{}, ctx.Err()
}

func newOps(t *testing.T, m *opstest.Member, ask ops.Asker) *ops.Ops {
	t.Helper()
	o, err := ops.New(ops.Options{Member: m, Replica: m.Open, Asker: ask, Now: func() time.Time { return opstest.Start }})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func write(records ...command.Record) ops.Write {
	return ops.Write{Data: command.EncodeWrite(command.Write{Records: records})}
}

func TestOps_WriteThenRead(t *testing.T) {
	t.Parallel()
	m := opstest.New(t, opstest.Genesis("a", "b", "c"), "a")
	m.Replicated(2)
	o := newOps(t, m, asker{})
	ctx := t.Context()

	w, err := o.Write(ctx, write(command.Item{ID: "i", Attrs: []byte(`{"n":1}`)}))
	want := ops.Written{ID: ident.EntryID{Term: 2, Index: 2}, Ack: "quorum", Created: true, Replicated: 1, Pending: []string{"c"}}
	if err != nil || !reflect.DeepEqual(w, want) {
		t.Fatalf("Write(item) = %+v, %v, want %+v", w, err, want)
	}
	w, err = o.Write(ctx, write(
		command.Signal{Item: "i", Type: "view", Milli: 2500},
		command.Signal{Item: "i", Type: "nope", Milli: 1000},
	))
	if err != nil || len(w.Refused) != 1 || w.Refused[0].Record != 1 || w.Refused[0].Code != string(api.CodeUnknownSignal) {
		t.Fatalf("Write(signals) = %+v, %v, want record 1 refused as unknown_signal", w, err)
	}
	item, ref, err := o.Item(ctx, "default", "i", ops.Read{MinIndex: 3})
	if err != nil || string(item.Attrs) != `{"n":1}` || item.Signals["view"] != (api.SignalTotals{Count: 1, Weight: 2.5, Score: item.Score}) {
		t.Errorf("Item(i) = %+v, %v", item, err)
	}
	if ref.Term != 2 || ref.AppliedIndex != 3 || *ref.LagEvents != 0 || *ref.AgeMS != 0 || item.AppliedIndex != 3 {
		t.Errorf("Item(i) reflects %+v, want term 2, index 3, no lag", ref)
	}
	feed, _, err := o.Feed(ctx, ops.FeedRequest{Collection: "default", Limit: 5, Read: ops.Read{Linearizable: true}})
	if err != nil || len(feed.Results) != 1 || feed.Results[0].ID != "i" || feed.Degraded || feed.UnavailableShards == nil {
		t.Errorf("Feed = %+v, %v, want item i", feed, err)
	}
	for _, tc := range []struct{ collection, id, want string }{
		{"default", "x", `there is no item "x"`},
		{"nope", "i", `there is no collection "nope"`},
	} {
		_, _, err := o.Item(ctx, tc.collection, tc.id, ops.Read{})
		if _, ok := errors.AsType[*ops.NotFoundError](err); !ok || err.Error() != tc.want {
			t.Errorf("Item(%s, %s) = %v, want %s", tc.collection, tc.id, err, tc.want)
		}
	}
}

func TestOps_WriteRefusesTheFuture(t *testing.T) {
	t.Parallel()
	o := newOps(t, opstest.New(t, opstest.Genesis("a"), "a"), asker{})
	at := func(d time.Duration) command.Signal {
		return command.Signal{Item: "i", Type: "view", Milli: 1000, At: opstest.Start.Add(d).UnixMilli()}
	}
	if _, err := o.Write(t.Context(), write(at(-1000*time.Hour), at(500*time.Millisecond))); err != nil {
		t.Errorf("Write(now + 500ms) = %v, want no error", err)
	}
	_, err := o.Write(t.Context(), write(at(0), at(501*time.Millisecond)))
	e, ok := errors.AsType[*ops.FutureError](err)
	if !ok || *e != (ops.FutureError{Record: 1, Ahead: 501 * time.Millisecond, Limit: 500 * time.Millisecond}) {
		t.Errorf("Write(now + 501ms) = %v, want a FutureError of record 1", err)
	}
}

// A write and a read end by their own deadline, and say what is known.
func TestOps_DeadlinesAreTheirOwn(t *testing.T) {
	t.Parallel()
	m := opstest.New(t, opstest.Genesis("a", "b", "c"), "a")
	o, err := ops.New(ops.Options{Member: m, Replica: m.Open, Asker: asker{}, QuorumTimeout: 10 * time.Millisecond, Now: func() time.Time { return opstest.Start }})
	if err != nil {
		t.Fatal(err)
	}
	m.BeforeWrite(func(ctx context.Context) error {
		<-ctx.Done()
		return &replica.UnknownOutcomeError{Cause: context.Cause(ctx)}
	})
	_, err = o.Write(t.Context(), write(command.Item{ID: "i", Attrs: []byte(`{}`)}))
	if _, ok := errors.AsType[*replica.UnknownOutcomeError](err); !ok || !errors.Is(err, ops.ErrQuorumTimeout) {
		t.Errorf("Write = %v, want an unknown outcome by ErrQuorumTimeout", err)
	}
	_, _, err = o.Item(t.Context(), "default", "i", ops.Read{MinIndex: 7})
	if e, ok := errors.AsType[*ops.IndexTimeoutError](err); !ok || e.Want != 7 || e.Applied != 1 {
		t.Errorf("Item(min_index 7) = %v, want an IndexTimeoutError of 7, at 1", err)
	}
	m.Lead(3, 0)
	_, _, err = o.Item(t.Context(), "default", "i", ops.Read{Linearizable: true})
	if _, ok := errors.AsType[*ops.ReadTimeoutError](err); !ok {
		t.Errorf("Item(linearizable) without a leader = %v, want a ReadTimeoutError", err)
	}
	if _, _, err = o.Feed(t.Context(), ops.FeedRequest{Collection: "default", Limit: 1}); err != nil {
		t.Errorf("Feed(local) without a leader = %v, want no error", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err = o.Item(ctx, "default", "i", ops.Read{MinIndex: 7}); !errors.Is(err, context.Canceled) {
		t.Errorf("Item of a caller that is gone = %v, want context.Canceled", err)
	}
}

func TestOps_Leader(t *testing.T) {
	t.Parallel()
	m := opstest.New(t, opstest.Genesis("a", "b"), "a")
	o := newOps(t, m, asker{})
	for _, tc := range []struct {
		leader ident.MemberID
		want   ops.Leader
	}{
		{1, ops.Leader{ID: 1, Term: 5, Self: true}},
		{2, ops.Leader{ID: 2, Term: 5, Name: "b", HTTPAddr: "b:9500"}},
		{0, ops.Leader{Term: 5}},
		{9, ops.Leader{ID: 9, Term: 5}},
	} {
		m.Lead(5, tc.leader)
		if got, err := o.Leader(); err != nil || got != tc.want {
			t.Errorf("Leader with %d = %+v, %v, want %+v", tc.leader, got, err, tc.want)
		}
	}
	m.Quarantine(member.Quarantine{Cause: "log_write"})
	if _, err := o.Leader(); err == nil {
		t.Error("Leader of a quarantined member: want its error")
	}
	if p := o.Position(); p != (ops.Position{Member: "a"}) {
		t.Errorf("Position of a quarantined member = %+v, want the name alone", p)
	}
}

// Five members that never answer cost one timeout, not five, and none is missing (rqlite#1435).
func TestOps_StatusIsBounded(t *testing.T) {
	t.Parallel()
	m := opstest.New(t, opstest.Genesis("a", "b", "c", "d", "e", "f"), "a")
	o := newOps(t, m, asker{})
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := o.Status(t.Context())
		if took := time.Since(start); took != 500*time.Millisecond {
			t.Errorf("Status took %s, want 500ms", took)
		}
		if len(s.Regions) != 6 || s.Quorum != (api.Quorum{Voters: 6, Up: 1, Needed: 4}) || s.Health.Level != api.HealthCritical {
			t.Errorf("Status = %+v, want six rows, one voter of six, critical", s)
		}
		for _, r := range s.Regions[1:] {
			if r.Reachable || r.Error == nil || r.Error.Code != "timeout" {
				t.Errorf("row %s = %+v, want unreachable by timeout", r.Name, r)
			}
		}
	})
}

func TestOps_StatusNamesWhyARowIsMissing(t *testing.T) {
	t.Parallel()
	g := opstest.Genesis("a", "b", "c", "d", "e", "f", "g")
	follower := opstest.New(t, g, "b")
	follower.Lead(2, 1)
	b := newOps(t, follower, asker{})
	o := newOps(t, opstest.New(t, g, "a"), asker{
		"b:9500": func() (api.LocalStatus, error) { return b.LocalStatus(), nil },
		"c:9500": func() (api.LocalStatus, error) { return api.LocalStatus{Name: "z"}, nil },
		"d:9500": func() (api.LocalStatus, error) { return api.LocalStatus{Name: "d", ClusterID: "ff"}, nil },
		"e:9500": func() (api.LocalStatus, error) {
			return api.LocalStatus{}, fmt.Errorf("ask: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
		},
		"f:9500": func() (api.LocalStatus, error) {
			return api.LocalStatus{}, &net.OpError{Op: "dial", Err: &net.DNSError{Name: "f", IsNotFound: true}}
		},
		"g:9500": func() (api.LocalStatus, error) { return api.LocalStatus{}, errors.New("HTTP 500") },
	})
	var got []string
	s := o.Status(t.Context())
	for _, r := range s.Regions {
		code := "ok"
		if r.Error != nil {
			code = r.Error.Code
		}
		got = append(got, r.Name+" "+code)
	}
	if want := "a ok, b ok, c wrong_member, d wrong_member, e refused, f unresolved, g error"; strings.Join(got, ", ") != want {
		t.Errorf("rows = %s, want %s", strings.Join(got, ", "), want)
	}
	if s.Leader == nil || *s.Leader != "a" || s.ClusterID != g.ClusterID().String() {
		t.Errorf("leader %v, cluster %s, want a, %s", s.Leader, s.ClusterID, g.ClusterID())
	}
}

func TestOps_BeforeBirth(t *testing.T) {
	t.Parallel()
	m := opstest.New(t, opstest.Genesis("a", "b", "c"), "b")
	m.Unborn(membership.Waiting{Name: "a", Reason: "refused"})
	o := newOps(t, m, asker{})
	l := o.LocalStatus()
	if l.ID != "" || l.ClusterID != "" || l.Phase != api.PhaseWaiting || !reflect.DeepEqual(l.WaitingFor, []string{"a"}) || l.Ready || l.Roster != nil {
		t.Errorf("LocalStatus = %+v, want a fresh member that waits for a", l)
	}
	ms := o.Members()
	if len(ms.Members) != 3 || ms.Members[1].Name != "b" || ms.Members[1].ID != "" || ms.Version != 0 || ms.NextID != "" {
		t.Errorf("Members = %+v, want the declared three, without ids", ms)
	}
	if s := o.Status(t.Context()); len(s.Regions) != 3 || !s.Regions[1].Reachable || s.RelayLogLen != nil {
		t.Errorf("Status = %+v, want three rows, b reachable", s)
	}
	if r := o.Ready(); r.Ready || len(r.Checks) != 1 || r.Checks[0].OK {
		t.Errorf("Ready = %+v, want not ready", r)
	}
	if _, err := o.Write(t.Context(), write(command.Item{ID: "i", Attrs: []byte(`{}`)})); !errors.Is(err, member.ErrNotBorn) {
		t.Errorf("Write = %v, want ErrNotBorn", err)
	}
}

// A member that still waits names the leader of those that are born already.
func TestOps_StatusOfAClusterThatIsBornElsewhere(t *testing.T) {
	t.Parallel()
	g := opstest.Genesis("a", "b")
	born := opstest.New(t, g, "b")
	born.Lead(2, 2)
	b := newOps(t, born, asker{})
	m := opstest.New(t, g, "a")
	m.Unborn(membership.Waiting{Name: "b", Reason: "refused"})
	s := newOps(t, m, asker{"b:9500": func() (api.LocalStatus, error) { return b.LocalStatus(), nil }}).Status(t.Context())
	if s.Leader == nil || *s.Leader != "b" || !s.Regions[1].IsLeader || s.Regions[1].ID != "2" || s.RelayLogAgeMS != nil {
		t.Errorf("Status = %+v, want b to lead", s)
	}
}

func TestOps_MembersAndReady(t *testing.T) {
	t.Parallel()
	m := opstest.New(t, opstest.Genesis("a", "b"), "b")
	m.Lead(4, 1)
	later := opstest.Start
	o, err := ops.New(ops.Options{Member: m, Replica: m.Open, Asker: asker{}, Now: func() time.Time { return later }})
	if err != nil {
		t.Fatal(err)
	}
	ms := o.Members()
	if ms.Version != 1 || ms.NextID != "3" || ms.Leader == nil || *ms.Leader != "a" || ms.Term != 4 || ms.Members[1].Incarnation != ident.Incarnation([16]byte{2}).String() {
		t.Errorf("Members = %+v", ms)
	}
	if r := o.Ready(); !r.Ready || len(r.Warnings) != 0 {
		t.Errorf("Ready = %+v, want ready without warnings", r)
	}
	later = later.Add(6 * time.Second)
	if r := o.Ready(); !r.Ready || len(r.Warnings) != 1 || r.Warnings[0].Name != "leader_contact" {
		t.Errorf("Ready 6s after the leader was heard = %+v, want ready with a warning", r)
	}
}

// teller answers for every member but b, which takes a request and is silent.
type teller struct{}

func (teller) silent(ctx context.Context, addr string) error {
	if addr != "b:9500" {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (x teller) Why(ctx context.Context, addr, name string) (api.Why, error) {
	return api.Why{Member: name}, x.silent(ctx, addr)
}

func (x teller) History(ctx context.Context, addr string) (api.History, error) {
	return api.History{}, x.silent(ctx, addr)
}

func (x teller) Operation(ctx context.Context, addr, id string) (api.Operation, error) {
	if err := x.silent(ctx, addr); err != nil {
		return api.Operation{}, err
	}
	if id != "of-c" {
		return api.Operation{}, api.NewProblem(api.CodeNotFound, "there is no operation")
	}
	return api.Operation{Op: id, Member: "c"}, nil
}

// Whoever asks for what all members know is answered while it still waits, although one of them is silent.
func TestOps_ASilentMemberCostsNoAnswer(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(context.Context, *ops.Ops) error{
		"history": func(ctx context.Context, o *ops.Ops) error {
			if h := o.History(ctx, false); !slices.Equal(h.Missing, []string{"b"}) {
				return fmt.Errorf("missing are %q, want b", h.Missing)
			}
			return nil
		},
		"why": func(ctx context.Context, o *ops.Ops) error {
			w, err := o.Why(ctx, "b", false)
			if err == nil && (w.Error == nil || w.Error.Code != "timeout") {
				err = fmt.Errorf("b answered %+v, want a timeout", w.Error)
			}
			return err
		},
		"faults": func(ctx context.Context, o *ops.Ops) error {
			if f := o.Faults(ctx); !slices.Equal(f.Failed, []string{"b"}) {
				return fmt.Errorf("failed are %q, want b", f.Failed)
			}
			return nil
		},
		"an operation that a member ran": func(ctx context.Context, o *ops.Ops) error {
			_, err := o.AskOperation(ctx, "of-c")
			return err
		},
		"an operation that b may have run": func(ctx context.Context, o *ops.Ops) error {
			if _, err := o.AskOperation(ctx, "other"); err == nil || !strings.Contains(err.Error(), "b") {
				return fmt.Errorf("%w, want b to be named", err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := opstest.New(t, opstest.Genesis("a", "b", "c"), "a")
			o, err := ops.New(ops.Options{Member: m, Replica: m.Open, Teller: teller{}, Now: func() time.Time { return opstest.Start },
				Journal: journal.New(journal.Options{Now: func() time.Time { return opstest.Start }}),
				Asker:   asker{"c:9500": func() (api.LocalStatus, error) { return api.LocalStatus{Name: "c"}, nil }}})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
				defer cancel()
				if err := ask(ctx, o); err != nil {
					t.Error(err)
				}
				if ctx.Err() != nil {
					t.Error("the answer came when the caller waited no longer")
				}
			})
		})
	}
}
