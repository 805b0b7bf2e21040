package httpd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/httpd"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/ops"
	"github.com/tidaldb/tidal/daemon/ops/opstest"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/replica"
)

// node is one member with its surface on a real port.
type node struct {
	t      testing.TB
	member *opstest.Member
	server *httpd.Server
	addr   string
	reg    *prometheus.Registry
	faults *peer.Faults // nil: without options.drills
}

type options struct {
	peerKey    []byte
	authorize  func(string) bool
	leaderWait time.Duration
	quorum     time.Duration
	journal    *journal.Journal
	heartbeat  time.Duration
	ack        string
	idle       time.Duration
	drills     bool
	request    time.Duration // of the client
}

// start runs the members called names; the first leads term 2.
func start(t testing.TB, o options, names ...string) []*node {
	t.Helper()
	g := opstest.Genesis(names...)
	listeners := make([]net.Listener, len(names))
	for i := range names {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[i] = ln
		g.Members[i].HTTPAddr = ln.Addr().String()
	}
	nodes := make([]*node, len(names))
	for i, name := range names {
		m := opstest.New(t, g, name)
		m.Lead(2, 1)
		nodes[i] = serve(t, o, m, listeners[i])
	}
	return nodes
}

func serve(t testing.TB, o options, m *opstest.Member, ln net.Listener) *node {
	t.Helper()
	var faults *peer.Faults
	if o.drills {
		faults = peer.NewFaults(peer.FaultOptions{})
		t.Cleanup(faults.Close)
	}
	client := httpd.NewClient(httpd.ClientOptions{PeerKey: o.peerKey, Self: m.Status().Name, Faults: faults, RequestTimeout: o.request})
	verbs, err := ops.New(ops.Options{Member: m, Replica: m.Open, Asker: client, Crew: client, Outbox: m.Outbox, Exchange: client, Teller: client, Faults: faults, MaxFault: time.Minute, Journal: o.journal, Problem: httpd.Problem, QuorumTimeout: o.quorum, Now: func() time.Time { return opstest.Start }})
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	s, err := httpd.New(httpd.Options{Ops: verbs, Client: client, Faults: faults, PeerKey: o.peerKey, Authorize: o.authorize, LeaderWait: o.leaderWait, Heartbeat: o.heartbeat, Ack: o.ack, StreamIdle: o.idle, Metrics: reg})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Stop(context.WithoutCancel(t.Context())), <-served); err != nil {
			t.Error(err)
		}
		client.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return &node{t: t, member: m, server: s, addr: ln.Addr().String(), reg: reg, faults: faults}
}

// metric returns the value of a counter or a gauge, or how often a histogram was observed.
func (n *node) metric(name string) float64 {
	n.t.Helper()
	families, err := n.reg.Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// listenAndServe serves h on a port of its own and returns its address.
func listenAndServe(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// got is an answer.
type got struct {
	status int
	header http.Header
	body   []byte
}

func (n *node) do(method, path, body string, header ...string) got {
	n.t.Helper()
	req, err := http.NewRequestWithContext(n.t.Context(), method, "http://"+n.addr+path, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return got{resp.StatusCode, resp.Header, b}
}

func (n *node) get(path string, header ...string) got {
	n.t.Helper()
	return n.do(http.MethodGet, path, "", header...)
}

// decode reads the body as a T.
func decode[T any](t *testing.T, g got) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(g.body, &v); err != nil {
		t.Fatalf("%d %s: %v", g.status, g.body, err)
	}
	return v
}

// wantProblem checks an error answer against the table of codes.
func wantProblem(t *testing.T, g got, code api.Code) api.Problem {
	t.Helper()
	p := decode[api.Problem](t, g)
	spec, _ := api.Lookup(code)
	if p.Code != code || g.status != spec.Status || p.Status != spec.Status || p.Effect != spec.Effect || p.Retryable != spec.Retryable || p.Detail == "" {
		t.Errorf("answer %d %s, want problem %s", g.status, g.body, code)
	}
	if ct := g.header.Get("Content-Type"); ct != api.ProblemType {
		t.Errorf("content type %q, want %q", ct, api.ProblemType)
	}
	wantPosition(t, g)
	return p
}

// wantPosition: every answer says who answered, in which term, and what it reflects.
func wantPosition(t *testing.T, g got) {
	t.Helper()
	for _, name := range []string{api.HeaderMember, api.HeaderTerm, api.HeaderIndex} {
		if g.header.Get(name) == "" {
			t.Errorf("answer %d without %s", g.status, name)
		}
	}
}

const view = `{"item":"i","signal":"view"}`

func TestServer_WritesAndReads(t *testing.T) {
	t.Parallel()
	n := start(t, options{}, "a", "b", "c")[0]
	n.member.Replicated(3)

	g := n.do("POST", "/items", `{"id":"i","title":"<b>&","n":1.50}`)
	w := decode[api.Written](t, g)
	if g.status != 201 || w.Index != 2 || w.Term != 2 || w.Ack != "quorum" || w.ReplicatedTo != 1 || fmt.Sprint(w.Pending) != "[b]" || w.Refused == nil {
		t.Errorf("POST /items = %d %s, want 201 at index 2", g.status, g.body)
	}
	if g := n.do("POST", "/items?ack=quorum", `{"id":"i","title":"<b>&","n":1.50}`); g.status != 200 {
		t.Errorf("POST /items again = %d %s, want 200", g.status, g.body)
	}
	g = n.do("POST", "/items", `[{"id":"j"},{"id":"k","collection":"nope"}]`)
	if w := decode[api.Written](t, g); g.status != 200 || len(w.Refused) != 1 || w.Refused[0].Record != 1 || w.Refused[0].Code != api.CodeUnknownCollection || *w.Accepted != 1 {
		t.Errorf("POST /items of an array = %d %s, want record 1 refused", g.status, g.body)
	}
	g = n.do("POST", "/signals", `{"item":"i","signal":"view","weight":2}`)
	h := g.header
	if g.status != 204 || len(g.body) != 0 || h.Get("Tidal-Member") != "a" || h.Get("Tidal-Term") != "2" || h.Get("Tidal-Index") != "5" ||
		h.Get("Tidal-Ack") != "quorum" || h.Get("Tidal-Replicated-To") != "1" || h.Get("Tidal-Pending") != "b" {
		t.Errorf("POST /signals = %d %v", g.status, h)
	}
	p := wantProblem(t, n.do("POST", "/signals", `{"item":"i","signal":"like"}`), api.CodeUnknownSignal)
	if !strings.Contains(p.Detail, "like") {
		t.Errorf("an unknown signal: %q does not name it", p.Detail)
	}

	g = n.get("/items/i?min_index=5")
	item := decode[api.ItemAnswer](t, g)
	if g.status != 200 || string(item.Attrs) != `{"n":1.50,"title":"<b>&"}` || item.Signals["view"].Count != 1 || item.Signals["view"].Weight != 2 || g.header.Get("Tidal-Index") != "6" {
		t.Errorf("GET /items/i = %d %s %v", g.status, g.body, g.header)
	}
	wantProblem(t, n.get("/items/nope"), api.CodeNotFound)
	wantProblem(t, n.get("/items/i?collection=nope"), api.CodeUnknownCollection)
	g = n.get("/feed?limit=1&user=u&consistency=linearizable")
	if f := decode[api.FeedAnswer](t, g); g.status != 200 || len(f.Results) != 1 || f.Results[0].ID != "i" || f.AppliedIndex != 6 || f.LagEvents == nil || f.UnavailableShards == nil {
		t.Errorf("GET /feed = %d %s", g.status, g.body)
	}
	if f := decode[api.FeedAnswer](t, n.get("/feed")); len(f.Results) != 2 || f.Results[1].ID != "j" {
		t.Errorf("GET /feed = %+v, want i, j", f.Results)
	}
}

// Ids are any text; in a path they are escaped.
func TestServer_IDsInPaths(t *testing.T) {
	t.Parallel()
	n := start(t, options{}, "a")[0]
	for _, tc := range []struct{ id, path string }{
		{"a/b", "a%2Fb"}, {"..", "%2E%2E"}, {"é ?#", "%C3%A9%20%3F%23"}, {"%41", "%2541"}, {"\x00", "%00"},
	} {
		body, err := json.Marshal(map[string]string{"id": tc.id})
		if err != nil {
			t.Fatal(err)
		}
		if g := n.do("POST", "/items", string(body)); g.status != 201 {
			t.Fatalf("POST %s = %d %s", body, g.status, g.body)
		}
		if g := n.get("/items/" + tc.path); g.status != 200 || decode[api.ItemAnswer](t, g).ID != tc.id {
			t.Errorf("GET /items/%s = %d %s, want item %q", tc.path, g.status, g.body, tc.id)
		}
	}
	wantProblem(t, n.get("/items/%ff"), api.CodeBadRequest)
}

func TestServer_RefusesByName(t *testing.T) {
	t.Parallel()
	n := start(t, options{}, "a")[0]
	for _, tc := range []struct {
		method, path, body string
		code               api.Code
		field              string
	}{
		{"GET", "/no/such", "", api.CodeNoRoute, ""},
		{"GET", "/", "", api.CodeNoRoute, ""},
		{"GET", "/items/", "", api.CodeNoRoute, ""},
		{"GET", "//feed", "", api.CodeNoRoute, ""},
		{"GET", "/x/../feed", "", api.CodeNoRoute, ""},
		{"DELETE", "/feed", "", api.CodeMethodNotAllowed, ""},
		{"POST", "/cluster/status", "", api.CodeMethodNotAllowed, ""},
		{"POST", "/signals", `{`, api.CodeBadRequest, ""},
		{"POST", "/signals", `{"item":"","signal":"view"}`, api.CodeBadRequest, "item"},
		{"POST", "/signals", `{"item":"a","signal":"view","ts":` + fmt.Sprint(opstest.Start.UnixMilli()+501) + `}`, api.CodeBadRequest, "ts"},
		{"POST", "/signals?ack=all", view, api.CodeBadRequest, "ack"},
		{"POST", "/signals", `[` + view + `,{"item":"a"}]`, api.CodeBadRequest, "[1].signal"},
		{"POST", "/signals", `[` + view + `,{"item":"a","signal":"view","ts":` + fmt.Sprint(opstest.Start.UnixMilli()+501) + `}]`, api.CodeBadRequest, "[1].ts"},
		{"POST", "/embeddings", `{"item":"a","vector":[1e39]}`, api.CodeBadRequest, "vector"},
		{"POST", "/hardnegs", `{"item":"a","user":"u","op":"hid"}`, api.CodeBadRequest, "op"},
		{"PUT", "/collections/c", `{"signals":{}}`, api.CodeBadRequest, "half_life"},
		{"PUT", "/collections/%ff", `{"half_life":"1h","signals":{}}`, api.CodeBadRequest, "name"},
		{"GET", "/collections/nope", "", api.CodeUnknownCollection, ""},
		{"DELETE", "/items/%ff", "", api.CodeBadRequest, "id"},
		{"DELETE", "/items/a?collection=nope", "", api.CodeUnknownCollection, ""},
		{"POST", "/internal/writes", "\x01\x00", api.CodeNoRoute, ""},
		{"POST", "/embeddings?ack=local", `{"item":"a","vector":[1]}`, api.CodeBadRequest, "ack"},
		{"POST", "/signals?dry=1", view, api.CodeBadRequest, "dry"},
		{"POST", "/items", `{"id":"d","a":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`, api.CodeBadRequest, "a"},
		{"POST", "/items", `{"id":"b","pad":"` + strings.Repeat("x", api.MaxItemBytes) + `"}`, api.CodeTooLarge, ""},
		{"POST", "/items", `{"id":"b","pad":"` + strings.Repeat("x", api.MaxBodyBytes) + `"}`, api.CodeTooLarge, ""},
		{"GET", "/feed?limit=1001", "", api.CodeBadRequest, "limit"},
		{"GET", "/healthz?x=1", "", api.CodeBadRequest, "x"},
	} {
		g := n.do(tc.method, tc.path, tc.body)
		if p := wantProblem(t, g, tc.code); p.Field != tc.field {
			t.Errorf("%s %s: field %q, want %q: %s", tc.method, tc.path, p.Field, tc.field, g.body)
		}
	}
	if g := n.do("DELETE", "/items", ""); g.header.Get("Allow") != "POST" {
		t.Errorf("Allow of /items = %q, want POST", g.header.Get("Allow"))
	}
	wantProblem(t, n.do("POST", "/signals", view, "Idempotency-Key", strings.Repeat("k", 257)), api.CodeBadRequest)
	wantProblem(t, n.do("PUT", "/collections/c", `{"half_life":"1h","signals":{}}`, "Idempotency-Key", "k"), api.CodeBadRequest)
	wantProblem(t, n.get("/feed", "Tidal-Cluster", "ff"), api.CodeWrongCluster)
	if g := n.get("/feed", "Tidal-Cluster", n.member.Status().Cluster.String()); g.status != 200 {
		t.Errorf("GET /feed of the right cluster = %d %s", g.status, g.body)
	}
}

// A body without an announced length is cut off at the bound.
func TestServer_BoundsAStreamedBody(t *testing.T) {
	t.Parallel()
	n := start(t, options{}, "a")[0]
	endless := io.MultiReader(strings.NewReader(`{"id":"a","p":"`), io.LimitReader(xs{}, 3<<20))
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+n.addr+"/items", endless)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Skipf("the connection was closed before the answer was read: %v", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("POST of 3 MiB = %d, want 413", resp.StatusCode)
	}
}

type xs struct{}

func (xs) Read(b []byte) (int, error) { return copy(b, bytes.Repeat([]byte("x"), len(b))), nil }

func TestServer_ForwardsToTheLeader(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{}, "a", "b")
	a, b := nodes[0], nodes[1]
	g := b.do("POST", "/items", `{"id":"i"}`)
	if g.status != 201 || g.header.Get("Tidal-Member") != "a" || g.header.Get("Tidal-Index") != "2" || g.header.Get("Content-Type") != "application/json" {
		t.Errorf("POST /items through b = %d %v %s, want a's 201", g.status, g.header, g.body)
	}
	g = b.do("POST", "/signals", view)
	if g.status != 204 || g.header.Get("Tidal-Pending") != "b" {
		t.Errorf("POST /signals through b = %d %v", g.status, g.header)
	}
	p := wantProblem(t, b.do("POST", "/signals", `{"item":"i","signal":"view","weight":0}`), api.CodeBadRequest)
	if p.Field != "weight" {
		t.Errorf("a refusal through b: %+v, want field weight", p)
	}
	if g := a.get("/items/i"); decode[api.ItemAnswer](t, g).Signals["view"].Count != 1 {
		t.Errorf("GET /items/i = %s, want one view", g.body)
	}
	wantProblem(t, b.get("/items/i"), api.CodeNotFound) // a read is local; b of this test applies nothing
	a.member.BeforeWrite(func(context.Context) error {
		return &replica.OverloadedError{Queue: replica.QueueWrites, RetryAfter: 1200 * time.Millisecond}
	})
	g = b.do("POST", "/signals", view)
	if p := wantProblem(t, g, api.CodeOverloaded); p.RetryAfterMS != 1200 || g.header.Get("Retry-After") != "2" {
		t.Errorf("an overloaded leader through b: %+v, Retry-After %q", p, g.header.Get("Retry-After"))
	}
	a.member.BeforeWrite(func(context.Context) error { return &replica.DiskFullError{FreeBytes: 5, NeedBytes: 8} })
	g = b.do("POST", "/signals", view)
	if p := wantProblem(t, g, api.CodeDiskFull); g.status != 507 || !p.Retryable || p.Effect != api.EffectNone || *p.Measured != 5 || *p.Threshold != 8 {
		t.Errorf("a leader with a full disk through b: %+v", p)
	}
}

func TestServer_MarkerIsNotForwardedAgain(t *testing.T) {
	t.Parallel()
	const marker, keyHeader = api.HeaderInternal, api.HeaderPeerKey
	t.Run("without keys it counts", func(t *testing.T) {
		t.Parallel()
		b := start(t, options{}, "a", "b")[1]
		wantProblem(t, b.do("POST", "/signals", view, marker, "1"), api.CodeNotLeader)
	})
	t.Run("with keys it needs the key", func(t *testing.T) {
		t.Parallel()
		b := start(t, options{peerKey: []byte("secret")}, "a", "b")[1]
		wantProblem(t, b.do("POST", "/signals", view, marker, "1", keyHeader, "secret"), api.CodeNotLeader)
		wantProblem(t, b.do("POST", "/signals", view, marker, "1", keyHeader, "guess"), api.CodeUnauthorized)
		if g := b.do("POST", "/signals", view, marker, "1"); g.status != 204 || g.header.Get("Tidal-Member") != "a" {
			t.Errorf("a forged marker = %d %s, want it ignored and the write forwarded", g.status, g.body)
		}
	})
	t.Run("two that think the other leads", func(t *testing.T) {
		t.Parallel()
		nodes := start(t, options{leaderWait: 30 * time.Millisecond}, "a", "b")
		nodes[0].member.Lead(3, 2)
		wantProblem(t, nodes[1].do("POST", "/signals", view), api.CodeNoLeader)
	})
}

func TestServer_Keys(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{peerKey: []byte("secret"), authorize: func(k string) bool { return k == "good" }}, "a", "b")
	b := nodes[1]
	for _, h := range []string{"", "Bearer bad", "Basic good", "good"} {
		g := b.do("POST", "/signals", view, "Authorization", h)
		wantProblem(t, g, api.CodeUnauthorized)
		if g.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("401 without WWW-Authenticate")
		}
	}
	if g := b.do("POST", "/signals", view, "Authorization", "Bearer good"); g.status != 204 {
		t.Errorf("POST with the key, through b = %d %s, want 204", g.status, g.body)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if g := b.get(path); g.status != 200 {
			t.Errorf("GET %s without a key = %d, want 200", path, g.status)
		}
	}
	// Members ask each other with the peers' key.
	if s := decode[api.Status](t, b.get("/cluster/status", "Authorization", "Bearer good")); !s.Regions[0].Reachable {
		t.Errorf("status row of a = %+v, want reachable", s.Regions[0])
	}
}

func TestServer_NoLeader(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{leaderWait: 50 * time.Millisecond}, "a", "b")
	a, b := nodes[0], nodes[1]
	a.member.Lead(3, 0)
	b.member.Lead(3, 0)
	wantProblem(t, b.do("POST", "/signals", view), api.CodeNoLeader)
	if g := b.get("/feed"); g.status != 200 {
		t.Errorf("GET /feed without a leader = %d %s, want 200", g.status, g.body)
	}

	// A leader that is not there: its name and the error of the connection.
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	b.member.Genesis.Members[0].HTTPAddr = gone.Addr().String()
	b.member.Lead(4, 1)
	p := wantProblem(t, b.do("POST", "/signals", view), api.CodeLeaderUnreached)
	if p.Leader != "a" || !strings.Contains(p.Detail, gone.Addr().String()) || !strings.HasSuffix(p.Detail, ": nothing listens there") {
		t.Errorf("problem = %+v, want a, its address and why", p)
	}
}

// An election is a slow write: what had no effect is tried again when a leader is known.
func TestServer_WaitsForALeader(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{leaderWait: 10 * time.Second}, "a", "b")
	a, b := nodes[0], nodes[1]
	for _, tc := range []struct {
		name  string
		begin func()
		moved func()
	}{
		{"none known yet", func() { a.member.Lead(3, 0); b.member.Lead(3, 0) }, func() { a.member.Lead(4, 1); b.member.Lead(4, 1) }},
		{"the known one does not lead", func() { a.member.Lead(5, 0) }, func() { b.member.Lead(6, 2) }},
		{"this one led", func() {
			b.member.BeforeWrite(func(context.Context) error {
				b.member.BeforeWrite(nil)
				b.member.Lead(7, 0)
				return &replica.NotLeaderError{Term: 7}
			})
		}, func() { a.member.Lead(8, 1); b.member.Lead(8, 1) }},
	} {
		tc.begin()
		done := make(chan got, 1)
		go func() { done <- b.do("POST", "/signals", view) }()
		select {
		case g := <-done:
			t.Errorf("%s: answered %d %s before there was a leader", tc.name, g.status, g.body)
		case <-time.After(40 * time.Millisecond):
		}
		tc.moved()
		if g := <-done; g.status != 204 {
			t.Errorf("%s: POST /signals = %d %s, want 204", tc.name, g.status, g.body)
		}
	}
}

// Once a request was sent and no answer came, only one thing may be said.
func TestServer_LostAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{}, "a", "b")
	var writes atomic.Int64
	nodes[0].member.BeforeWrite(func(context.Context) error { writes.Add(1); panic(http.ErrAbortHandler) })
	p := wantProblem(t, nodes[1].do("POST", "/signals", view), api.CodeOutcomeUnknown)
	if p.Retryable || p.Effect != api.EffectUnknown || writes.Load() != 1 {
		t.Errorf("problem %+v after %d writes, want one of unknown effect", p, writes.Load())
	}
}

func TestServer_EngineErrorsAreCodes(t *testing.T) {
	t.Parallel()
	n := start(t, options{quorum: 20 * time.Millisecond}, "a")[0]
	for _, tc := range []struct {
		err  error
		code api.Code
	}{
		{&replica.UnknownOutcomeError{Cause: ops.ErrQuorumTimeout}, api.CodeOutcomeUnknown},
		{&replica.UnknownOutcomeError{Cause: replica.ErrClosed}, api.CodeOutcomeUnknown},
		{&replica.NotProposedError{Cause: ops.ErrQuorumTimeout}, api.CodeNoQuorum},
		{&replica.TooLargeError{Bytes: 2, Limit: 1}, api.CodeTooLarge},
		{&replica.FailedError{Stage: replica.StageLog, Err: io.ErrShortWrite}, api.CodeQuarantined},
		{fmt.Errorf("wrapped: %w", replica.ErrLost), api.CodeWriteLost},
		{replica.ErrClosed, api.CodeNotReady},
		{errors.New("a secret of the engine"), api.CodeInternal},
	} {
		n.member.BeforeWrite(func(context.Context) error { return tc.err })
		g := n.do("POST", "/signals", view)
		wantProblem(t, g, tc.code)
		if bytes.Contains(g.body, []byte("secret")) {
			t.Errorf("%s tells what is internal", g.body)
		}
	}
	p := wantProblem(t, n.get("/items/i?min_index=99"), api.CodeIndexTimeout)
	if *p.Measured != 1 || *p.Threshold != 99 {
		t.Errorf("index_timeout = %+v, want 1 of 99", p)
	}
	n.member.Lead(3, 0)
	wantProblem(t, n.get("/feed?consistency=linearizable"), api.CodeReadTimeout)
	n.member.Quarantine(member.Quarantine{Cause: "log_write", Detail: "EIO"})
	wantProblem(t, n.get("/feed"), api.CodeQuarantined)
	wantProblem(t, n.do("POST", "/signals", view), api.CodeQuarantined)
	if g := n.get("/readyz"); g.status != 503 || decode[api.Ready](t, g).Checks[0].OK {
		t.Errorf("GET /readyz of a quarantined member = %d %s", g.status, g.body)
	}
	if g := n.get("/healthz"); g.status != 200 || !decode[api.Alive](t, g).Alive {
		t.Errorf("GET /healthz of a quarantined member = %d %s", g.status, g.body)
	}
}

func TestServer_PanicCostsOneAnswer(t *testing.T) {
	t.Parallel()
	n := start(t, options{}, "a")[0]
	n.member.BeforeWrite(func(context.Context) error { panic("a bug") })
	wantProblem(t, n.do("POST", "/signals", view), api.CodeInternal)
	n.member.BeforeWrite(nil)
	if g := n.do("POST", "/signals", view); g.status != 204 {
		t.Errorf("POST /signals after a panic = %d %s", g.status, g.body)
	}
	families, err := n.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "tidal_httpd_panics_total" && f.Metric[0].Counter.GetValue() == 1 {
			return
		}
	}
	t.Error("the panic was not counted")
}

func TestServer_ClusterRoutes(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{}, "a", "b", "c")
	s := decode[api.Status](t, nodes[1].get("/cluster/status"))
	if s.Leader == nil || *s.Leader != "a" || s.Observer != "b" || s.Health.Level != api.HealthOK || len(s.Regions) != 3 || s.Quorum.Spare != 1 {
		t.Errorf("status of three = %+v", s)
	}
	if err := nodes[2].server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = decode[api.Status](t, nodes[1].get("/cluster/status"))
	c := s.Regions[2]
	if c.Reachable || !c.Partitioned || c.AppliedEvents != 0 || *c.LagEvents != *s.RelayLogLen || c.Error.Code != "refused" || s.Health.Level != api.HealthDegraded || s.Quorum.Spare != 0 {
		t.Errorf("status with c stopped = %+v", s)
	}
	if l := decode[api.LocalStatus](t, nodes[0].get("/cluster/status/local")); l.Name != "a" || l.Groups[0].State != "leader" || l.Roster == nil {
		t.Errorf("local status of a = %+v", l)
	}
	if m := decode[api.Members](t, nodes[0].get("/cluster/members")); len(m.Members) != 3 || m.Members[2].Name != "c" {
		t.Errorf("members = %+v", m)
	}
}

func TestServer_BeforeBirth(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{}, "a", "b")
	n := nodes[0]
	for _, x := range nodes {
		x.member.Unborn(membership.Waiting{Name: "b", Reason: "makes the genesis"})
	}
	wantProblem(t, n.do("POST", "/signals", view), api.CodeNotReady)
	wantProblem(t, n.get("/feed"), api.CodeNotReady)
	if s := decode[api.Status](t, n.get("/cluster/status")); len(s.Regions) != 2 || s.Leader != nil || s.ClusterID != "" {
		t.Errorf("status before birth = %+v", s)
	}
	if g := n.get("/readyz"); g.status != 503 {
		t.Errorf("GET /readyz before birth = %d", g.status)
	}
}

// Stop waits for what runs, and ends it when it may wait no longer.
func TestServer_Stop(t *testing.T) {
	t.Parallel()
	n := start(t, options{}, "a")[0]
	entered, ended := make(chan struct{}), make(chan struct{})
	n.member.BeforeWrite(func(ctx context.Context) error {
		close(entered)
		<-ctx.Done()
		close(ended)
		return &replica.UnknownOutcomeError{Cause: context.Cause(ctx)}
	})
	go http.Post("http://"+n.addr+"/signals", "application/json", strings.NewReader(view))
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := n.server.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Stop with a request that runs = %v, want DeadlineExceeded", err)
	}
	select {
	case <-ended:
	default:
		t.Error("Stop returned while a request was running")
	}
	n.member.BeforeWrite(nil)
}

func TestMetricsHandler(t *testing.T) {
	t.Parallel()
	n := start(t, options{}, "a")[0]
	n.get("/feed")
	n.get("/nope")
	srv := &http.Server{Handler: httpd.MetricsHandler(n.reg), ReadHeaderTimeout: time.Second}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { srv.Serve(ln); close(done) }()
	defer func() { srv.Close(); <-done }()
	g := (&node{t: t, addr: ln.Addr().String()}).get("/metrics")
	for _, line := range []string{
		`tidal_httpd_requests_total{route="GET /feed",status="200"} 1`,
		`tidal_httpd_requests_total{route="none",status="404"} 1`,
		`tidal_httpd_request_seconds_count{route="GET /feed"} 1`,
	} {
		if !strings.Contains(string(g.body), line) {
			t.Errorf("metrics have no line %s", line)
		}
	}
}
