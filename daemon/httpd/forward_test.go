package httpd_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/httpd"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/replica"
)

// requests are what the table of routes is tried with, where an empty body is refused before it is known
// where the request runs.
var requests = map[string]struct{ path, body string }{
	"POST /items":             {"", `{"id":"i"}`},
	"DELETE /items/{id}":      {"/items/i", ""},
	"GET /items/{id}":         {"/items/i", ""},
	"POST /signals":           {"", view},
	"POST /embeddings":        {"", `{"item":"i","vector":[1]}`},
	"POST /hardnegs":          {"", `{"user":"u","item":"i","op":"hide"}`},
	"POST /ingest":            {"", `{"kind":"item","id":"i"}`},
	"PUT /collections/{name}": {"/collections/c", `{"half_life":"1h","signals":{}}`},
	"GET /collections/{name}": {"/collections/default", ""},
	"POST /cluster/promote":   {"", `{"region":"a"}`},

	"POST /cluster/members/promote": {"", `{"name":"a","dry_run":true}`},
	"POST /cluster/members/remove":  {"", `{"name":"a","dry_run":true}`},
	"POST /cluster/members/replace": {"", `{"name":"a","dry_run":true}`},
	"GET /cluster/why/{member}":     {"/cluster/why/a", ""},
	"POST /cluster/verify":          {"", `{}`},
}

// A request with the marker runs where it arrives or is refused there, on every route, whoever leads: no
// loop of members can be.
func TestForwarding_AMarkedRequestIsNeverForwarded(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{drills: true}, "a", "b") // a leads
	b := nodes[1]
	for _, rt := range httpd.Routes() {
		name := rt.Method + " " + rt.Path
		if rt.Path == "/cluster/events" || rt.Path == "/internal/writes" { // one that may have no end, and one with its own test
			continue
		}
		req := requests[name]
		if req.path == "" {
			req.path = rt.Path
		}
		if rt.Runs == "region" {
			req.path += "?region=a"
		}
		// A refused stream ends with its connection: none is used again.
		g := b.do(rt.Method, req.path, req.body, api.HeaderInternal, "1", api.HeaderFrom, "a", "Connection", "close")
		switch rt.Runs {
		case "leader", "region":
			wantProblem(t, g, api.CodeNotLeader)
		default:
			if g.status == http.StatusMisdirectedRequest {
				t.Errorf("%s runs here, and answers %d %s", name, g.status, g.body)
			}
		}
		if g.header.Get(api.HeaderMember) != "b" {
			t.Errorf("%s with the marker was answered by %s", name, g.header.Get(api.HeaderMember))
		}
	}
	if n := b.metric("tidal_httpd_forwards_total"); n != 0 {
		t.Errorf("%v requests with the marker were forwarded", n)
	}
}

// Without the marker each goes where the table says.
func TestForwarding_EveryClassOfRoutes(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{drills: true}, "a", "b", "c") // a leads
	b := nodes[1]
	for _, rt := range httpd.Routes() {
		name := rt.Method + " " + rt.Path
		req, known := requests[name]
		if !known || rt.Path == "/cluster/promote" || rt.Path == "/ingest" { // a promote has tests of its own, and so have streams
			continue
		}
		if req.path == "" {
			req.path = rt.Path
		}
		want := map[string]string{"leader": "a", "region": "b", "here": "b"}[rt.Runs]
		if g := b.do(rt.Method, req.path, req.body); g.header.Get(api.HeaderMember) != want && rt.Runs != "leader" {
			t.Errorf("%s of b was answered by %s, want %s", name, g.header.Get(api.HeaderMember), want)
		}
		if rt.Runs == "region" {
			if g := b.do(rt.Method, req.path+"?region=c", req.body); g.header.Get(api.HeaderMember) != "c" {
				t.Errorf("%s?region=c was answered by %s: %d %s", name, g.header.Get(api.HeaderMember), g.status, g.body)
			}
			wantProblem(t, b.do(rt.Method, req.path+"?region=x", req.body), api.CodeNotFound)
		}
	}
}

// What is left of the caller's time travels with a request that is forwarded; where the caller gives none, the
// member that forwards does.
func TestForwarding_CarriesTheTimeThatIsLeft(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{}, "a", "b") // a leads
	given := make(chan string, 1)
	nodes[1].member.Genesis.Members[0].HTTPAddr = listenAndServe(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given <- r.Header.Get(api.HeaderTimeout)
		w.Header().Set(api.HeaderMember, "a")
	}))
	for _, tc := range []struct {
		name, method, path, body, gives string
		least, most                     int
	}{
		{"a read of another member", "GET", "/items/i?region=a", "", "", 4500, 4500},
		{"a read of another member, with a time", "GET", "/items/i?region=a", "", "2000", 1000, 2000},
		{"with more time than there is", "GET", "/items/i?region=a", "", "60000", 4500, 4500},
		{"a verb that waits", "POST", "/cluster/verify", `{"timeout_ms":10000}`, "", 12500, 12500},
		{"a verb that waits, with a time", "POST", "/cluster/verify", `{"timeout_ms":10000}`, "3000", 2000, 3000},
		{"a write that is gathered", "POST", "/items", `{"id":"i"}`, "", 4500, 4500},
		{"what the members ask each other", "GET", "/cluster/status", "", "", 1, 500},
	} {
		var header []string
		if tc.gives != "" {
			header = []string{api.HeaderTimeout, tc.gives}
		}
		nodes[1].do(tc.method, tc.path, tc.body, header...)
		if ms, err := strconv.Atoi(<-given); err != nil || ms < tc.least || ms > tc.most {
			t.Errorf("%s: the other member is given %d ms, %v; want %d to %d", tc.name, ms, err, tc.least, tc.most)
		}
	}
}

// The member where a request runs ends its work when the caller's time is over, and says what it knows.
func TestForwarding_EndsWithTheCallersTime(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{}, "a", "b", "c") // a leads
	a, b := nodes[0], nodes[1]
	ended := make(chan struct{}, 1)
	a.member.BeforeWrite(func(ctx context.Context) error {
		<-ctx.Done()
		ended <- struct{}{}
		return &replica.UnknownOutcomeError{Cause: context.Cause(ctx)}
	})
	release := make(chan struct{})
	defer close(release)
	a.member.OnTransfer(func(context.Context, ident.MemberID) (replica.Handover, error) {
		<-release
		return replica.Handover{}, &replica.TransferError{To: 2, Leader: 1, Term: 2, Cause: errors.New("released")}
	}, nil)
	short := []string{api.HeaderTimeout, "100"}

	wantProblem(t, a.do("POST", "/items", `{"id":"i"}`, short...), api.CodeOutcomeUnknown)
	<-ended
	wantProblem(t, b.do("POST", "/items", `{"id":"i"}`, short...), api.CodeOutcomeUnknown)
	wantProblem(t, b.get("/items/i?region=a&min_index=99", short...), api.CodeReadTimeout)
	p := wantProblem(t, b.do("POST", "/cluster/promote", `{"region":"c","timeout_ms":10000,"operation_id":"op"}`, short...), api.CodeOutcomeUnknown)
	if p.Try != "tidalctl ops wait op" {
		t.Errorf("problem %+v, want the way to the operation", p)
	}
	for _, bad := range []string{"0", "-1", "soon", "1.5", "99999999999"} {
		if p := wantProblem(t, b.get("/cluster/status", api.HeaderTimeout, bad), api.CodeBadRequest); p.Field != api.HeaderTimeout {
			t.Errorf("%s %q: %+v", api.HeaderTimeout, bad, p)
		}
	}
}

// The answer of another member is passed on as it came.
func TestForwarding_RelaysAnswersUnchanged(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{}, "a", "b")
	const body = `{"code":"made_up","title":"T","detail":"d","status":418,"retryable":true,"effect":"none","more":[1, 2]}` + "\n"
	sent := http.Header{
		"Content-Type": {api.ProblemType}, "Retry-After": {"7"}, api.HeaderMember: {"b"}, api.HeaderTerm: {"41"}, api.HeaderIndex: {"17"},
		api.HeaderAck: {"quorum"}, api.HeaderReplicatedTo: {"1"}, api.HeaderPending: {"c,d"},
	}
	nodes[0].member.Genesis.Members[1].HTTPAddr = listenAndServe(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, v := range sent {
			w.Header()[name] = v
		}
		w.WriteHeader(http.StatusTeapot)
		if r.Header.Get(api.HeaderInternal) != "1" || r.Header.Get(api.HeaderFrom) != "a" || r.Header.Get("Authorization") != "Bearer k" {
			t.Errorf("forwarded with %v", r.Header)
		}
		if _, err := w.Write([]byte(body)); err != nil {
			t.Error(err)
		}
	}))
	g := nodes[0].get("/feed?region=b", "Authorization", "Bearer k")
	if g.status != http.StatusTeapot || string(g.body) != body {
		t.Errorf("relayed %d %q", g.status, g.body)
	}
	for name, v := range sent {
		if g.header.Get(name) != v[0] {
			t.Errorf("relayed %s: %q, want %q", name, g.header.Get(name), v[0])
		}
	}
}

// A member that is named and does not answer is a 503 that names it and says why.
func TestForwarding_ARegionThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{request: 50 * time.Millisecond}, "a", "b", "c")
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	nodes[0].member.Genesis.Members[1].HTTPAddr = gone.Addr().String()
	if p := wantProblem(t, nodes[0].get("/feed?region=b"), api.CodeMemberUnreached); !strings.Contains(p.Detail, "b was not reached") || !strings.HasSuffix(p.Detail, ": nothing listens there") {
		t.Errorf("a port that refuses: %q", p.Detail)
	}
	nodes[0].member.Genesis.Members[2].HTTPAddr = blackhole(t)
	if p := wantProblem(t, nodes[0].get("/feed?region=c"), api.CodeMemberUnreached); !strings.Contains(p.Detail, "c at ") || !strings.HasSuffix(p.Detail, "did not answer: nothing came in time") {
		t.Errorf("a member that is silent: %q", p.Detail)
	}
}

// blackhole takes connections and never answers; it returns its address.
func blackhole(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String() // the kernel connects; nobody reads
}

// A write under way to a leader that is paused is given up soon after another one leads, and not when
// any request would be.
func TestForwarding_DoesNotWaitForALeaderThatLeadsNoMore(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, method, path, body string }{
		{"handed over", "POST", "/signals", view},
		{"a stream", "POST", "/ingest", `{"kind":"item","id":"i"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			nodes := start(t, options{request: 20 * time.Second, leaderWait: 10 * time.Millisecond}, "a", "b", "c")
			b := nodes[1]
			b.member.Genesis.Members[0].HTTPAddr = blackhole(t)
			began := time.Now()
			moved := time.AfterFunc(300*time.Millisecond, func() { b.member.Lead(3, ident.MemberID(3)) })
			defer moved.Stop()
			g := b.do(tc.method, tc.path, tc.body)
			p := decode[api.Problem](t, g)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("answered after %s", took)
			}
			switch {
			case tc.path == "/signals" && (p.Code != api.CodeOutcomeUnknown || !strings.Contains(p.Detail, "since then c leads, term 3")):
				t.Errorf("answer %d %s", g.status, g.body)
			case tc.path == "/ingest" && p.Effect != api.EffectNone:
				t.Errorf("answer %d %s, want one that says that nothing was sent", g.status, g.body)
			}
		})
	}
}
