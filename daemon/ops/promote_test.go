package ops_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/ops"
	"github.com/tidaldb/tidal/daemon/ops/opstest"
	"github.com/tidaldb/tidal/daemon/replica"
)

// follows answers as a member that follows leader in term.
func follows(name string, term uint64, leader string) func() (api.LocalStatus, error) {
	return func() (api.LocalStatus, error) {
		return api.LocalStatus{Name: name, Groups: []api.GroupStatus{{Group: "0", Term: term, Leader: &leader}}}, nil
	}
}

// promoter returns the verbs of the member called name, which leads term 2 if it is "a".
func promoter(t *testing.T, name string, ask asker) (*opstest.Member, *ops.Ops) {
	m := opstest.New(t, opstest.Genesis("a", "b", "c"), name)
	m.Lead(2, 1)
	o, err := ops.New(ops.Options{Member: m, Replica: m.Open, Asker: ask, FanOut: 30 * time.Millisecond, StatusTimeout: 30 * time.Millisecond, Now: func() time.Time { return opstest.Start }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return m, o
}

func promote(t *testing.T, o *ops.Ops, req api.PromoteRequest) (api.Promoted, error) {
	t.Helper()
	if req.TimeoutMS == 0 {
		req.TimeoutMS = 10_000
	}
	s, err := o.Promote(req)
	if err != nil {
		return api.Promoted{}, err
	}
	v, err := s.Wait(t.Context())
	if err != nil {
		return api.Promoted{}, err
	}
	return v.(api.Promoted), nil
}

// wantCode checks that err is the problem with this code.
func wantCode(t *testing.T, err error, code api.Code) *api.Problem {
	t.Helper()
	p, ok := errors.AsType[*api.Problem](err)
	if !ok || p.Code != code || p.Detail == "" {
		t.Fatalf("error = %v, want problem %s", err, code)
	}
	return p
}

func TestPromote(t *testing.T) {
	t.Parallel()
	_, o := promoter(t, "a", asker{"b:9500": follows("b", 3, "2")})
	dry, err := promote(t, o, api.PromoteRequest{Region: "b", DryRun: true})
	if err != nil || !dry.OK || !dry.DryRun || *dry.Leader != "a" || dry.Transfer != nil || len(dry.Checks) != 5 {
		t.Errorf("dry run = %+v, %v; want that it would be done", dry, err)
	}
	got, err := promote(t, o, api.PromoteRequest{Region: "b", OperationID: "op-1"})
	if err != nil || !got.OK || *got.Leader != "b" || got.Term != 3 || got.Op != "op-1" || got.Transfer.TookMS < 1 || *got.Transfer.WritePauseMS != 1 {
		t.Fatalf("promote b = %+v, %v", got, err)
	}
	if fmt.Sprint(got.Acked, got.Failed) != "[a b] [c]" {
		t.Errorf("acked %v, failed %v; want c, which does not answer, failed", got.Acked, got.Failed)
	}
	op, err := o.Operation("op-1")
	if err != nil || op.State != api.OperationDone || op.Member != "a" || !strings.Contains(string(op.Result), `"leader":"b"`) {
		t.Errorf("operation = %+v, %v", op, err)
	}
}

func TestPromote_OfTheLeaderIsDone(t *testing.T) {
	t.Parallel()
	_, o := promoter(t, "a", asker{})
	got, err := promote(t, o, api.PromoteRequest{Region: "a"})
	if err != nil || !got.OK || *got.Leader != "a" || got.Term != 2 || got.Transfer != nil {
		t.Errorf("promote a = %+v, %v; want nothing to do", got, err)
	}
}

// Every refusal says what was measured, against what, and what to do; nothing was begun.
func TestPromote_Refuses(t *testing.T) {
	t.Parallel()
	quarantined := func() (api.LocalStatus, error) {
		return api.LocalStatus{Name: "b", Groups: []api.GroupStatus{{Group: "0", Quarantine: &api.Quarantine{Cause: "log_corrupt"}}}}, nil
	}
	target := func(change func(*consensus.Progress)) func(*replica.Status) {
		return func(s *replica.Status) {
			for i := range s.Progress {
				if s.Progress[i].ID == 2 {
					change(&s.Progress[i])
				}
			}
		}
	}
	for _, tc := range []struct {
		name   string
		ask    asker
		adjust func(*replica.Status)
		code   api.Code
		try    string
	}{
		{"learner", asker{"b:9500": follows("b", 2, "1")}, target(func(p *consensus.Progress) { p.Learner = true }), api.CodeNotVoter, "tidalctl promote c"},
		{"silent", asker{"b:9500": follows("b", 2, "1")}, target(func(p *consensus.Progress) { p.Active = false }), api.CodeTargetUnreachable, "tidalctl promote c"},
		{"silent over HTTP", asker{}, nil, api.CodeTargetUnreachable, "tidalctl promote c"},
		{"quarantined", asker{"b:9500": quarantined}, nil, api.CodeTargetQuarantined, "tidalctl promote c"},
		{"behind", asker{"b:9500": follows("b", 2, "1")}, func(s *replica.Status) { s.Last += 5001 }, api.CodeLagTooHigh, "tidalctl wait --for=healthy && tidalctl promote b"},
		{"moving", asker{"b:9500": follows("b", 2, "1")}, func(s *replica.Status) { s.Transferee = 3 }, api.CodeTransferInProgress, "tidalctl promote c"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m, o := promoter(t, "a", tc.ask)
			m.Adjust(func(s *replica.Status) {
				if tc.adjust != nil {
					tc.adjust(s)
				}
			})
			m.OnTransfer(func(context.Context, ident.MemberID) (replica.Handover, error) {
				t.Error("leadership was handed over")
				return replica.Handover{}, nil
			}, nil)
			_, err := promote(t, o, api.PromoteRequest{Region: "b", OperationID: "x"})
			p := wantCode(t, err, tc.code)
			if p.Effect != api.EffectNone || p.Try != tc.try || len(p.Checks) != 5 || !slices.ContainsFunc(p.Checks, func(c api.Check) bool { return !c.OK }) {
				t.Errorf("problem %+v", p)
			}
			if tc.code == api.CodeLagTooHigh && (*p.Measured != 5001 || *p.Threshold != 5000 || p.Unit != "entries") {
				t.Errorf("measured %v of %v %s", *p.Measured, *p.Threshold, p.Unit)
			}
			dry, err := promote(t, o, api.PromoteRequest{Region: "b", DryRun: true})
			if err != nil || dry.OK {
				t.Errorf("dry run = %+v, %v; want that it would be refused", dry, err)
			}
		})
	}
	_, o := promoter(t, "a", asker{})
	if _, err := promote(t, o, api.PromoteRequest{Region: "d"}); !errors.As(err, new(*ops.NotFoundError)) {
		t.Errorf("promote d = %v, want not found", err)
	}
	_, o = promoter(t, "b", asker{})
	if _, err := promote(t, o, api.PromoteRequest{Region: "c"}); !errors.As(err, new(*replica.NotLeaderError)) {
		t.Errorf("promote on a follower = %v, want not leader", err)
	}
}

// What a transfer leaves that does not arrive: nothing, another leader, or nobody knows.
func TestPromote_ThreeOutcomes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err    error
		code   api.Code
		effect api.Effect
		state  string
	}{
		{&replica.TransferError{To: 2, Leader: 1, Term: 2, Cause: replica.ErrBehind}, api.CodeTransferFailed, api.EffectNone, api.OperationFailed},
		{&replica.TransferError{To: 2, Leader: 1, Term: 2, Told: true, Cause: ops.ErrVerbTimeout}, api.CodeOutcomeUnknown, api.EffectUnknown, api.OperationUnknown},
		{&replica.TransferError{To: 2, Told: true, Cause: replica.ErrClosed}, api.CodeOutcomeUnknown, api.EffectUnknown, api.OperationUnknown},
		{&replica.TransferError{To: 2, Leader: 3, Term: 4, Told: true, Cause: errors.New("another member leads")}, api.CodeOtherLeader, api.EffectApplied, api.OperationFailed},
		{replica.ErrTransferInProgress, api.CodeTransferInProgress, api.EffectNone, api.OperationFailed},
	} {
		m, o := promoter(t, "a", asker{"b:9500": follows("b", 3, "2")})
		moves := 0
		m.OnTransfer(func(context.Context, ident.MemberID) (replica.Handover, error) {
			moves++
			return replica.Handover{}, tc.err
		}, nil)
		for range 2 { // the second time with the same id: begun anew only where nothing changed
			_, err := promote(t, o, api.PromoteRequest{Region: "b", OperationID: "x"})
			if p := wantCode(t, err, tc.code); p.Effect != tc.effect {
				t.Errorf("%v: effect %s, want %s", tc.err, p.Effect, tc.effect)
			}
		}
		want := 1
		if tc.effect == api.EffectNone {
			want = 2
		}
		if moves != want {
			t.Errorf("%v: begun %d times, want %d", tc.err, moves, want)
		}
		if op, err := o.Operation("x"); err != nil || op.State != tc.state {
			t.Errorf("%v: operation %+v, %v; want %s", tc.err, op, err, tc.state)
		}
	}
}

// Where nobody leads, the named member stands, again and again.
func TestPromote_WithoutALeader(t *testing.T) {
	t.Parallel()
	m, o := promoter(t, "b", asker{"a:9500": follows("a", 3, "2"), "c:9500": follows("c", 3, "2")})
	m.Lead(2, 0)
	m.OnTransfer(nil, func() { m.Lead(3, 2) })
	got, err := promote(t, o, api.PromoteRequest{Region: "b"})
	if err != nil || !got.OK || *got.Leader != "b" || got.Term != 3 || got.Transfer.WritePauseMS != nil || fmt.Sprint(got.Acked) != "[a b c]" {
		t.Errorf("promote b = %+v, %v", got, err)
	}
	m.Lead(3, 0)
	m.OnTransfer(nil, func() { m.Lead(4, 3) })
	_, err = promote(t, o, api.PromoteRequest{Region: "b"})
	if p := wantCode(t, err, api.CodeOtherLeader); p.Leader != "c" {
		t.Errorf("problem %+v, want that c leads", p)
	}
	m.Lead(4, 0)
	m.OnTransfer(nil, nil)
	_, err = promote(t, o, api.PromoteRequest{Region: "b", TimeoutMS: 50})
	wantCode(t, err, api.CodeNoLeader)
}

// An operation is one thing, does not end with its caller, and does not outlive its member.
func TestOperations(t *testing.T) {
	t.Parallel()
	m, o := promoter(t, "a", asker{"b:9500": follows("b", 3, "2")})
	release := make(chan struct{})
	m.OnTransfer(func(ctx context.Context, _ ident.MemberID) (replica.Handover, error) {
		select {
		case <-release:
			m.Lead(3, 2)
			return replica.Handover{Term: 3}, nil
		case <-ctx.Done():
			return replica.Handover{}, &replica.TransferError{To: 2, Leader: 1, Term: 2, Cause: context.Cause(ctx)}
		}
	}, nil)
	req := api.PromoteRequest{Region: "b", OperationID: "one", TimeoutMS: 10_000}
	first, err := o.Promote(req)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := first.Wait(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait of a caller that is gone = %v", err)
	}
	if op, err := o.Operation("one"); err != nil || op.State != api.OperationRunning || op.FinishedAt != nil {
		t.Errorf("operation = %+v, %v; want running", op, err)
	}
	if _, err := promote(t, o, api.PromoteRequest{Region: "c", OperationID: "one"}); !errors.As(err, new(*ops.ReusedOperationError)) {
		t.Errorf("another request under the same id = %v", err)
	}
	again, err := o.Promote(req)
	if err != nil {
		t.Fatal(err)
	}
	close(release)
	for _, s := range []*ops.Started{first, again} {
		if v, err := s.Wait(t.Context()); err != nil || v.(api.Promoted).Op != "one" {
			t.Errorf("Wait = %+v, %v", v, err)
		}
	}
	m.Lead(4, 1)
	for _, id := range []string{strings.Repeat("x", 65), "a b", "ä", "a/b"} {
		if _, err := promote(t, o, api.PromoteRequest{Region: "b", OperationID: id}); !errors.As(err, new(*ops.BadOperationError)) {
			t.Errorf("id %q = %v, want refused", id, err)
		}
	}
	if _, err := o.Operation("two"); !errors.As(err, new(*ops.NotFoundError)) {
		t.Errorf("an operation that never was = %v", err)
	}
	var last string
	for i := range api.OperationsKept {
		last = fmt.Sprint("n", i)
		if _, err := promote(t, o, api.PromoteRequest{Region: "a", OperationID: last}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := o.Operation("one"); err == nil {
		t.Error("the oldest operation is still kept")
	}
	if _, err := o.Operation(last); err != nil {
		t.Errorf("the newest operation: %v", err)
	}

	m.OnTransfer(func(ctx context.Context, _ ident.MemberID) (replica.Handover, error) {
		<-ctx.Done()
		return replica.Handover{}, &replica.TransferError{To: 2, Leader: 1, Term: 4, Told: true, Cause: context.Cause(ctx)}
	}, nil)
	s, err := o.Promote(api.PromoteRequest{Region: "b", TimeoutMS: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	o.Close()
	_, err = s.Wait(t.Context())
	wantCode(t, err, api.CodeOutcomeUnknown)
	if _, err := o.Promote(req); !errors.Is(err, ops.ErrStopping) {
		t.Errorf("after Close: %v", err)
	}
	m.Quarantine(member.Quarantine{Cause: member.CauseLogCorrupt})
	if _, err := o.Promote(req); !errors.As(err, new(*member.QuarantinedError)) {
		t.Errorf("on a quarantined member: %v", err)
	}
}
