package httpd_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/httpd"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/ops/opstest"
	"github.com/tidaldb/tidal/daemon/replica"
)

const incarnation = "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"

// admits has node lead and take a candidate as member 4.
func admits(n *node, asked chan<- membership.Candidate) {
	n.member.OnMembership(opstest.Membership{Join: func(_ context.Context, c membership.Candidate) (member.Admission, error) {
		asked <- c
		r := n.member.Roster()
		r.Version, r.NextID = 2, 5
		r.Members = append(r.Members, membership.Member{ID: 4, Name: c.Name, Incarnation: c.Incarnation, GRPCAddr: c.GRPCAddr, HTTPAddr: c.HTTPAddr, Role: membership.RoleLearner})
		leader, _ := r.Member(1)
		return member.Admission{ID: 4, Cluster: n.member.Genesis.ClusterID(), Role: membership.RoleLearner, Term: 2, Index: 9, Roster: r, Leader: leader}, nil
	}})
}

// A join that is asked of any member is carried out by the leader, also for a seed that shows the peer
// key in the place of an API key.
func TestJoin_ThroughAnyMember(t *testing.T) {
	t.Parallel()
	key := []byte("peer-key")
	nodes := start(t, options{peerKey: key, authorize: func(k string) bool { return k == "api" }}, "a", "b", "c")
	asked := make(chan membership.Candidate, 1)
	admits(nodes[0], asked)
	body := `{"name":"d","incarnation":"` + incarnation + `","grpc_addr":"d:1","http_addr":"d:2","capabilities":"1","rejoin":true}`
	wantProblem(t, nodes[2].do("POST", "/cluster/join", body), api.CodeUnauthorized)
	wantProblem(t, nodes[2].do("POST", "/cluster/join", body, api.HeaderPeerKey, "wrong"), api.CodeUnauthorized)
	g := nodes[2].do("POST", "/cluster/join", body, "Authorization", "Bearer api")
	j := decode[api.Joined](t, g)
	if g.status != 200 || j.ID != "4" || j.Role != "learner" || j.Term != 2 || j.Index != 9 || j.Leader.Name != "a" || len(j.Roster.Members) != 4 || g.header.Get(api.HeaderIndex) != "9" {
		t.Errorf("join = %d %s", g.status, g.body)
	}
	want := membership.Candidate{Name: "d", GRPCAddr: "d:1", HTTPAddr: "d:2", Capabilities: 1, Rejoin: true}
	if want.Incarnation, _ = ident.ParseIncarnation(incarnation); <-asked != want {
		t.Errorf("the leader was not asked for %+v", want)
	}

	client := httpd.NewClient(httpd.ClientOptions{PeerKey: key})
	defer client.Close()
	for _, seed := range []string{"http://" + nodes[1].addr, nodes[1].addr} {
		in, err := client.Join(t.Context(), seed, want)
		if got := <-asked; err != nil || got != want {
			t.Errorf("Join(%s) asked for %+v, %v", seed, got, err)
		}
		if in.ID != 4 || in.Cluster != nodes[0].member.Genesis.ClusterID() || in.Term != 2 || in.Leader.ID != 1 || in.Leader.GRPCAddr != "a:9600" || len(in.Members) != 4 {
			t.Errorf("Join(%s) = %+v", seed, in)
		}
	}
	if addr, err := client.Locate(t.Context(), "http://"+nodes[1].addr); addr != "b:9600" || err != nil {
		t.Errorf("Locate = %q, %v", addr, err)
	}
	nodes[1].member.Unborn()
	if addr, err := client.Locate(t.Context(), "http://"+nodes[1].addr); addr != "" || err != nil {
		t.Errorf("Locate of a member without a cluster = %q, %v", addr, err)
	}
}

// A seed that is of no use says what it is.
func TestClient_JoinSaysWhatASeedIs(t *testing.T) {
	t.Parallel()
	n := start(t, options{leaderWait: time.Millisecond}, "a")[0]
	n.member.Lead(3, 0)
	page := httptest.NewServer(http.NotFoundHandler())
	defer page.Close()
	odd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"id":"x"}`) }))
	defer odd.Close()
	client := httpd.NewClient(httpd.ClientOptions{})
	defer client.Close()
	for seed, want := range map[string]string{
		"http://" + n.addr:   "no_leader: no leader is known in term 3",
		page.URL:             "HTTP 404 from something that is no member",
		odd.URL:              `member id "x"`,
		"https://" + n.addr:  "no TLS configured",
		"http://127.0.0.1:1": "nothing listens there",
	} {
		if _, err := client.Join(t.Context(), seed, membership.Candidate{Name: "d"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Join(%s) = %v, want %q", seed, err, want)
		}
	}
}

// Only a removal of this very member is told as one: that of its name is none of its own.
func TestClient_JoinTellsARemovalOfThisMember(t *testing.T) {
	t.Parallel()
	n := start(t, options{}, "a")[0]
	client := httpd.NewClient(httpd.ClientOptions{})
	defer client.Close()
	for _, kept := range []bool{true, false} {
		n.member.OnMembership(opstest.Membership{Join: func(context.Context, membership.Candidate) (member.Admission, error) {
			return member.Admission{}, &membership.RemovedError{Name: "d", ID: 2, Kept: kept}
		}})
		_, err := client.Join(t.Context(), "http://"+n.addr, membership.Candidate{Name: "d", Incarnation: ident.Incarnation{1}})
		if e, ok := errors.AsType[*membership.RemovedError](err); ok != kept || ok && !e.Kept {
			t.Errorf("removal kept %t: %v", kept, err)
		}
	}
}

func TestMembers_VerbsRunOnTheLeader(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{}, "a", "b", "c")
	gone := membership.Member{ID: 2, Name: "b"}
	rest := membership.Check{Code: membership.GateRest, Detail: "c does not answer", Measured: 1, Threshold: 0, Unit: "voters", Overridable: true}
	asked := make(chan member.RemoveOptions, 4)
	nodes[0].member.OnMembership(opstest.Membership{
		Remove: func(name string, o member.RemoveOptions) (member.Change, error) {
			asked <- o
			c := member.Change{Member: gone, Checks: []membership.Check{rest}}
			if !o.DryRun && !o.Override {
				return c, &membership.UnsafeError{Verb: "remove", Name: name, Failed: rest, Checks: c.Checks}
			}
			if !o.DryRun {
				c.Index, c.Settled = 7, true
			}
			return c, nil
		},
		Promote: func(name string, _ bool) (member.Change, error) {
			return member.Change{}, &membership.UnknownMemberError{Name: name}
		},
	})
	for i := range nodes {
		p := wantProblem(t, nodes[i].do("POST", "/cluster/members/remove", `{"name":"b"}`), api.CodeUnsafeRemoval)
		if p.Measured == nil || *p.Measured != 1 || *p.Threshold != 0 || p.Unit != "voters" || len(p.Checks) != 1 || !p.Checks[0].Overridable || p.Try != "tidalctl why b" {
			t.Errorf("problem %+v", p)
		}
		<-asked
	}
	g := nodes[1].do("POST", "/cluster/members/remove", `{"name":"b","dry_run":true}`)
	if c := decode[api.MemberChanged](t, g); g.status != 200 || c.OK || !c.DryRun || c.ID != "2" || c.Index != 0 {
		t.Errorf("dry run = %d %s", g.status, g.body)
	}
	<-asked
	g = nodes[1].do("POST", "/cluster/members/remove", `{"name":"b","override":["rest_reachable"],"operation_id":"op-1"}`)
	if c := decode[api.MemberChanged](t, g); g.status != 200 || !c.OK || c.Index != 7 || !c.Settled || c.Op != "op-1" || c.Verb != "remove" {
		t.Errorf("overridden = %d %s", g.status, g.body)
	}
	if <-asked; !(<-asked).Override {
		t.Error("the override did not arrive")
	}
	op := decode[api.Operation](t, nodes[0].get("/cluster/ops/op-1"))
	if op.State != api.OperationDone || op.Verb != "members remove" {
		t.Errorf("operation %+v", op)
	}
	if p := wantProblem(t, nodes[1].do("POST", "/cluster/members/remove", `{"name":"b","override":["sun"]}`), api.CodeBadRequest); p.Field != "override" {
		t.Errorf("problem %+v", p)
	}
	wantProblem(t, nodes[2].do("POST", "/cluster/members/promote", `{"name":"x"}`), api.CodeNotFound)
	wantProblem(t, nodes[2].do("POST", "/cluster/members/promote", `{"name":"b"}`, api.HeaderInternal, "1"), api.CodeNotLeader)
	for body, field := range map[string]string{`{}`: "name", `{"name":"b","timeout_ms":1}`: "timeout_ms", `{"name":"b","force":true}`: "force"} {
		if p := wantProblem(t, nodes[0].do("POST", "/cluster/members/replace", body), api.CodeBadRequest); p.Field != field {
			t.Errorf("%s: field %q, want %q", body, p.Field, field)
		}
	}
}

// The leader that is removed hands over: the verb goes on at the new leader.
func TestMembers_RemoveFollowsTheLeader(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{}, "a", "b")
	done := opstest.Membership{Remove: func(string, member.RemoveOptions) (member.Change, error) {
		return member.Change{Index: 8, Settled: true, Member: membership.Member{ID: 1, Name: "a"}}, nil
	}}
	nodes[0].member.OnMembership(opstest.Membership{Remove: func(string, member.RemoveOptions) (member.Change, error) {
		for _, n := range nodes {
			n.member.OnMembership(done)
			n.member.Lead(3, 2)
		}
		return member.Change{}, &replica.NotLeaderError{Term: 3, Leader: 2}
	}})
	for _, n := range nodes {
		g := n.do("POST", "/cluster/members/remove", `{"name":"a","operation_id":"op-9"}`)
		if c := decode[api.MemberChanged](t, g); g.status != 200 || c.Index != 8 || g.header.Get(api.HeaderMember) != "b" {
			t.Errorf("remove a = %d %s", g.status, g.body)
		}
	}
}

// Every refusal of the membership has its code, and its numbers.
func TestMembership_Problems(t *testing.T) {
	t.Parallel()
	n := start(t, options{}, "a")[0]
	body := `{"name":"d","incarnation":"` + incarnation + `","grpc_addr":"d:1","http_addr":"d:2"}`
	for _, tc := range []struct {
		err  error
		code api.Code
	}{
		{&membership.CandidateError{Field: "grpc_addr", Detail: "is empty"}, api.CodeBadRequest},
		{&membership.NameTakenError{Name: "d", ID: 2, Heard: time.Second, Grace: 10 * time.Second}, api.CodeNameTaken},
		{&membership.RemovedError{Name: "d", ID: 2}, api.CodeRemoved},
		{&membership.ReplaceManualError{Name: "d", ID: 2}, api.CodeReplaceManual},
		{&membership.ReplaceFlappingError{Name: "d", Times: 3, Limit: 3, Within: time.Hour}, api.CodeReplaceFlapping},
		{&membership.CapabilityMissingError{Members: []string{"d"}}, api.CodeCapabilityMissing},
		{&membership.ChangeInProgressError{Waits: "waits"}, api.CodeChangeInProgress},
		{errors.New("?"), api.CodeInternal},
	} {
		n.member.OnMembership(opstest.Membership{Join: func(context.Context, membership.Candidate) (member.Admission, error) {
			return member.Admission{}, tc.err
		}})
		p := wantProblem(t, n.do("POST", "/cluster/join", body), tc.code)
		if p.Retryable && tc.code != api.CodeReplaceFlapping && p.RetryAfterMS == 0 {
			t.Errorf("%s: no retry_after_ms", tc.code)
		}
		if (tc.code == api.CodeNameTaken || tc.code == api.CodeReplaceFlapping) && (p.Measured == nil || p.Threshold == nil) {
			t.Errorf("%s: no numbers", tc.code)
		}
	}
	for body, field := range map[string]string{
		`{"name":"d","incarnation":"zz"}`:                                        "incarnation",
		`{"name":"d","incarnation":"` + incarnation + `","capabilities":"many"}`: "capabilities",
		`{"name":"d","id":7}`:                                                    "id",
	} {
		if p := wantProblem(t, n.do("POST", "/cluster/join", body), api.CodeBadRequest); p.Field != field {
			t.Errorf("%s: field %q, want %q", body, p.Field, field)
		}
	}
}

func TestSeeds_TellAMemberWhomToAsk(t *testing.T) {
	t.Parallel()
	n := start(t, options{}, "a")[0]
	told := make(chan []string, 1)
	n.member.OnMembership(opstest.Membership{Invited: func(seeds []string, rejoin bool) bool {
		told <- seeds
		return rejoin
	}})
	g := n.do("POST", "/cluster/seeds", `{"seeds":["http://b:1/","https://c:2"],"rejoin":true}`)
	if s := decode[api.Seeded](t, g); g.status != 200 || !s.Accepted || s.Name != "a" {
		t.Errorf("seeds = %d %s", g.status, g.body)
	}
	if got := <-told; len(got) != 2 || got[0] != "http://b:1" {
		t.Errorf("told %v", got)
	}
	for body, field := range map[string]string{`{}`: "seeds", `{"seeds":["b:1"]}`: "seeds[0]"} {
		if p := wantProblem(t, n.do("POST", "/cluster/seeds", body), api.CodeBadRequest); p.Field != field {
			t.Errorf("%s: field %q, want %q", body, p.Field, field)
		}
	}
}

// Why gathers what the member knows of itself and what the leader knows of it, asked of any member.
func TestWhy_GathersFromMemberAndLeader(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{}, "a", "b", "c")
	gate := membership.Check{Code: membership.GatePresent, OK: true, Detail: "3 of 3", Measured: 3, Threshold: 2, Unit: "voters"}
	nodes[0].member.OnMembership(opstest.Membership{Remove: func(string, member.RemoveOptions) (member.Change, error) {
		return member.Change{Checks: []membership.Check{gate}}, nil
	}})
	for _, n := range nodes {
		g := n.get("/cluster/why/c")
		w := decode[api.Why](t, g)
		var asked []string
		for _, q := range w.Questions {
			asked = append(asked, fmt.Sprint(q.Question, " ", q.OK))
		}
		if g.status != 200 || w.ID != "3" || w.Role != "voter" || !w.Reachable || w.Leader == nil || *w.Leader != "a" ||
			strings.Join(asked, ", ") != "ready true, voter true, leader true, remove true" {
			t.Errorf("why c, asked of %s = %d %s", n.member.Status().Name, g.status, g.body)
		}
	}
	// A member that is cut off knows no leader; those on the other side do.
	nodes[1].member.Lead(2, 0)
	w := decode[api.Why](t, nodes[1].get("/cluster/why/b"))
	if len(w.Questions) != 4 || len(w.Unknown) != 0 || w.Leader == nil || *w.Leader != "a" || w.Term != 2 {
		t.Errorf("why b, asked of b, which knows no leader = %+v", w)
	}
	for _, n := range nodes {
		n.member.Lead(3, 0)
	}
	w = decode[api.Why](t, nodes[1].get("/cluster/why/c"))
	if len(w.Questions) != 1 || len(w.Unknown) != 3 || w.Leader != nil {
		t.Errorf("why c without a leader = %+v", w)
	}
	if p := wantProblem(t, nodes[1].get("/cluster/why/x"), api.CodeNotFound); p.Try != "tidalctl members list" {
		t.Errorf("of a member that there is not: try %q", p.Try)
	}
	nodes[1].member.OnMembership(opstest.Membership{Tombstones: []membership.Tombstone{{ID: 4, Name: "x", Told: true}}})
	if w := decode[api.Why](t, nodes[1].get("/cluster/why/x")); w.Role != "removed" || w.ID != "4" || len(w.Questions) != 1 {
		t.Errorf("why a removed member = %+v", w)
	}
}
