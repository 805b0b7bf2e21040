package httpd_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/replica"
)

// moves makes transfers of leadership arrive on all of nodes at once.
func moves(nodes []*node) {
	term := uint64(2)
	for _, n := range nodes {
		n.member.OnTransfer(func(_ context.Context, to ident.MemberID) (replica.Handover, error) {
			term++
			for _, n := range nodes {
				n.member.Lead(term, to)
			}
			return replica.Handover{Term: term, Pause: 1500 * time.Microsecond}, nil
		}, nil)
	}
}

func TestPromote_RunsOnTheLeader(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{}, "a", "b", "c")
	moves(nodes)
	g := nodes[2].do("POST", "/cluster/promote", `{"region":"b","operation_id":"op-1"}`)
	p := decode[api.Promoted](t, g)
	if g.status != 200 || !p.OK || *p.Leader != "b" || p.Term != 3 || *p.Transfer.WritePauseMS != 2 || fmt.Sprint(p.Acked, p.Failed) != "[a b c] []" {
		t.Errorf("promote b by c = %d %s", g.status, g.body)
	}
	if g.header.Get("Tidal-Member") != "a" {
		t.Errorf("answered by %s, want the leader then", g.header.Get("Tidal-Member"))
	}
	op := decode[api.Operation](t, nodes[0].get("/cluster/ops/op-1"))
	if op.State != api.OperationDone || op.Member != "a" || op.Verb != "promote" || op.FinishedAt == nil {
		t.Errorf("operation = %+v", op)
	}
	// Any member finds it; none of them ran the other one.
	if op := decode[api.Operation](t, nodes[2].get("/cluster/ops/op-1")); op.State != api.OperationDone || op.Member != "a" {
		t.Errorf("operation, asked of c = %+v", op)
	}
	wantProblem(t, nodes[2].get("/cluster/ops/op-1", "X-Tidal-Internal", "1"), api.CodeNotFound)
	wantProblem(t, nodes[2].get("/cluster/ops/op-0"), api.CodeNotFound)
	g = nodes[1].do("POST", "/cluster/promote", `{"region":"b","dry_run":true}`)
	if p := decode[api.Promoted](t, g); g.status != 200 || !p.OK || p.Transfer != nil {
		t.Errorf("a dry run where b leads = %d %s", g.status, g.body)
	}
	g = nodes[0].do("POST", "/cluster/promote", `{"region":"c","no_wait":true,"operation_id":"op-2"}`)
	if op := decode[api.Operation](t, g); g.status != 202 || op.Op != "op-2" {
		t.Errorf("without waiting = %d %s", g.status, g.body)
	}
}

// Where no member that answers ran an operation, those that do not are named: they may have.
func TestOperation_OfAMemberThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{}, "a", "b")
	gone := addGone(t, nodes)
	if p := wantProblem(t, nodes[1].get("/cluster/ops/op-1"), api.CodeMemberUnreached); !strings.Contains(p.Detail, gone) {
		t.Errorf("problem %+v, want that %s is named", p, gone)
	}
}

func TestPromote_WithoutALeaderGoesToTheNamedMember(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{leaderWait: 20 * time.Millisecond}, "a", "b", "c")
	for _, n := range nodes {
		n.member.Lead(2, 0)
		n.member.OnTransfer(nil, func() {
			for _, n := range nodes {
				n.member.Lead(3, 2)
			}
		})
	}
	wantProblem(t, nodes[0].do("POST", "/cluster/promote", `{"region":"b"}`, api.HeaderInternal, "1"), api.CodeNotLeader)
	g := nodes[0].do("POST", "/cluster/promote", `{"region":"b"}`)
	if p := decode[api.Promoted](t, g); g.status != 200 || *p.Leader != "b" || p.Transfer.WritePauseMS != nil || g.header.Get("Tidal-Member") != "b" {
		t.Errorf("promote b without a leader = %d %s", g.status, g.body)
	}
}

func TestOpenAPI_IsServed(t *testing.T) {
	t.Parallel()
	g := start(t, options{authorize: func(string) bool { return false }}, "a")[0].get("/openapi.json")
	if doc := decode[map[string]any](t, g); g.status != 200 || doc["openapi"] != "3.1.0" {
		t.Errorf("GET /openapi.json = %d %.100s", g.status, g.body)
	}
}

func TestPromote_Problems(t *testing.T) {
	t.Parallel()
	n := start(t, options{}, "a", "b")[0]
	for body, field := range map[string]string{
		`{}`:                                  "region",
		`{"region":"b","force":true}`:         "force",
		`{"Region":"b"}`:                      "Region",
		`{"region":"b","region":"a"}`:         "",
		`{"region":7}`:                        "region",
		`{"region":"b","timeout_ms":99}`:      "timeout_ms",
		`{"region":"b","timeout_ms":1e9}`:     "timeout_ms",
		`{"region":"b","timeout_ms":60001}`:   "timeout_ms",
		`{"region":"b"} x`:                    "",
		`["b"]`:                               "",
		`{"region":"b","operation_id":"a b"}`: "operation_id",
	} {
		if p := wantProblem(t, n.do("POST", "/cluster/promote", body), api.CodeBadRequest); p.Field != field {
			t.Errorf("%s: field %q, want %q: %s", body, p.Field, field, p.Detail)
		}
	}
	wantProblem(t, n.do("POST", "/cluster/promote", `{"region":"nobody"}`), api.CodeNotFound)
	n.member.Adjust(func(s *replica.Status) { s.Last += 9000 })
	p := wantProblem(t, n.do("POST", "/cluster/promote", `{"region":"b"}`), api.CodeLagTooHigh)
	if *p.Measured != 9000 || *p.Threshold != 5000 || len(p.Checks) != 5 || p.Try == "" {
		t.Errorf("problem %+v", p)
	}
}
