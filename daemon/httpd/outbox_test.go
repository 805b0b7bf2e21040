package httpd_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/ops/opstest"
	"github.com/tidaldb/tidal/daemon/outbox"
)

// split starts members that know items i and j, and then no leader.
func split(t *testing.T, o options, names ...string) []*node {
	t.Helper()
	nodes := start(t, o, names...)
	for i, n := range nodes {
		n.member.Lead(2, ident.MemberID(i+1))
		if g := n.do("POST", "/items", `[{"id":"i"},{"id":"j"}]`); g.status != 200 {
			t.Fatalf("POST /items = %d %s", g.status, g.body)
		}
		n.member.Lead(3, 0)
	}
	return nodes
}

// views is the count of views of an item that a node shows.
func (n *node) views(path string) uint64 {
	n.t.Helper()
	g := n.get(path)
	if g.status != 200 {
		n.t.Fatalf("GET %s = %d %s", path, g.status, g.body)
	}
	return decode[api.ItemAnswer](n.t.(*testing.T), g).Signals["view"].Count
}

// feed lists the ids of what user sees.
func (n *node) feed(user string) string {
	n.t.Helper()
	var ids []string
	for _, r := range decode[api.FeedAnswer](n.t.(*testing.T), n.get("/feed?user="+user)).Results {
		ids = append(ids, r.ID)
	}
	return strings.Join(ids, " ")
}

const hideJ = `{"user":"u","item":"j","op":"hide"}`

// deliver has the log of every node take over what any of them holds, as often as it is held.
func deliver(t *testing.T, nodes []*node) {
	t.Helper()
	var runs []command.Outbox
	for _, n := range nodes {
		n.member.Lead(4, n.member.Status().ID)
		runs = append(runs, n.member.Outbox().Snapshot()...)
	}
	for _, n := range nodes {
		for _, run := range runs {
			write := command.EncodeWrite(command.Write{Records: []command.Record{run}})
			if _, err := n.member.Replica().Begin(write, consensus.AckQuorum); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestLocal_IsTakenAndShownWithoutALeader(t *testing.T) {
	t.Parallel()
	nodes := split(t, options{}, "a", "b")
	a, b := nodes[0], nodes[1]
	g := a.do("POST", "/signals?ack=local", view)
	first := decode[api.Taken](t, g)
	if g.status != http.StatusAccepted || first.Ack != "local" || first.Origin == nil || *first.Sequence != 1 || first.Accepted != 1 || g.header.Get(api.HeaderAck) != "local" {
		t.Errorf("POST /signals?ack=local = %d %s", g.status, g.body)
	}
	wantPosition(t, g)
	g = a.do("POST", "/signals?ack=local", `[{"item":"i","signal":"view"},{"item":"i","signal":"unheard-of"},{"item":"j","signal":"view"}]`)
	if many := decode[api.Taken](t, g); g.status != http.StatusAccepted || many.Accepted != 2 || *many.Origin != *first.Origin || *many.Sequence != 2 ||
		len(many.Refused) != 1 || many.Refused[0].Record != 1 || many.Refused[0].Code != api.CodeUnknownSignal {
		t.Errorf("an array = %d %s", g.status, g.body)
	}
	if g = a.do("POST", "/hardnegs?ack=local", hideJ); g.status != http.StatusAccepted {
		t.Errorf("POST /hardnegs?ack=local = %d %s", g.status, g.body)
	}
	if i, feed := a.views("/items/i"), a.feed("u"); i != 2 || feed != "i" {
		t.Errorf("the member that took them shows %d views, feed %q, want 2 and i", i, feed)
	}
	if i, feed := b.views("/items/i"), b.feed("u"); i != 0 || feed != "i j" {
		t.Errorf("another member shows %d views, feed %q, want 0 and i j", i, feed)
	}
	s := decode[api.LocalStatus](t, a.get("/cluster/status/local")).Outbox
	if s.Pending != 3 || s.Foreign != 0 || s.Bytes == 0 || s.OldestAt == nil || s.Error != nil {
		t.Errorf("status of the outbox: %+v", s)
	}
	a.member.Lead(4, 1)
	if n := a.views("/items/i?consistency=linearizable"); n != 0 {
		t.Errorf("a linearizable read shows %d views, the log has none", n)
	}
}

func TestLocal_Refuses(t *testing.T) {
	t.Parallel()
	a := split(t, options{}, "a", "b")[0]
	for _, tc := range []struct {
		path, body string
		code       api.Code
	}{
		{"/items?ack=local", `{"id":"x"}`, api.CodeBadRequest},
		{"/embeddings?ack=local", `{"item":"x","vector":[1]}`, api.CodeBadRequest},
		{"/ingest?ack=local", `{"kind":"signal","item":"x","signal":"view"}`, api.CodeBadRequest},
		{"/signals?ack=local", `{"item":"i","signal":"unheard-of"}`, api.CodeUnknownSignal},
		{"/signals?ack=local", `{"item":"i","signal":"view","collection":"nope"}`, api.CodeUnknownCollection},
		{"/signals?ack=local", `{"item":"i","signal":"view","ts":"2026-03-01T12:00:01Z"}`, api.CodeBadRequest}, // beyond max_drift
		{"/hardnegs?ack=local", `{"user":"u","item":"i","op":"hid"}`, api.CodeBadRequest},
	} {
		if g := a.do("POST", tc.path, tc.body); decode[api.Problem](t, g).Code != tc.code {
			t.Errorf("POST %s %s = %d %s, want %s", tc.path, tc.body, g.status, g.body, tc.code)
		}
	}
	if n := a.member.Outbox().Status().Pending; n != 0 {
		t.Errorf("%d operations were taken", n)
	}
}

// The same key with the same body is the same operation; with another body it is refused.
func TestLocal_KeysHappenOnce(t *testing.T) {
	t.Parallel()
	a := split(t, options{}, "a", "b")[0]
	var at []string
	for range 2 {
		w := decode[api.Taken](t, a.do("POST", "/signals?ack=local", view, "Idempotency-Key", "k"))
		at = append(at, fmt.Sprint(*w.Origin, *w.Sequence))
	}
	wantProblem(t, a.do("POST", "/signals?ack=local", `{"item":"j","signal":"view"}`, "Idempotency-Key", "k"), api.CodeKeyMismatch)
	if n := a.views("/items/i"); at[0] != at[1] || n != 1 {
		t.Errorf("operations %v, %d views", at, n)
	}
}

// Two sides of a split take writes, exchange them without a leader, and then the log takes them over:
// both show the same all the time, and nothing counts twice.
func TestReconcile_ConvergesTimesAndIsIdempotent(t *testing.T) {
	t.Parallel()
	nodes := split(t, options{}, "a", "b")
	a, b := nodes[0], nodes[1]
	for range 3 {
		a.do("POST", "/signals?ack=local", view)
	}
	for range 4 {
		b.do("POST", "/signals?ack=local", view)
	}
	b.do("POST", "/hardnegs?ack=local", hideJ)

	g := a.do("POST", "/cluster/reconcile", `{"region":"b","dry_run":true}`)
	if r := decode[api.Reconciled](t, g); g.status != 200 || !r.DryRun || r.OpsApplied != 8 || a.views("/items/i") != 3 || b.views("/items/i") != 4 {
		t.Errorf("a dry run = %d %s", g.status, g.body)
	}
	g = a.do("POST", "/cluster/reconcile", `{"region":"b","operation_id":"op-1"}`)
	r := decode[api.Reconciled](t, g)
	if g.status != 200 || !r.OK || r.Region != "b" || r.Op != "op-1" || r.OpsApplied != 8 || r.LocalOpsApplied != 5 || r.RemoteOpsApplied != 3 ||
		r.LocalElapsedMS < 1 || r.RemoteElapsedMS < 1 || len(r.Forked) != 0 {
		t.Errorf("reconcile = %d %s", g.status, g.body)
	}
	if again := decode[api.Reconciled](t, a.do("POST", "/cluster/reconcile", `{"region":"b","operation_id":"op-1"}`)); again.OpsApplied != 8 {
		t.Errorf("the same operation again: %+v", again)
	}
	for _, n := range nodes {
		other := map[*node]string{a: "b", b: "a"}[n]
		g := n.do("POST", "/cluster/reconcile", `{"region":"`+other+`"}`)
		if r := decode[api.Reconciled](t, g); g.status != 200 || !r.OK || r.OpsApplied != 0 {
			t.Errorf("another reconcile = %d %s", g.status, g.body)
		}
		if i, feed := n.views("/items/i"), n.feed("u"); i != 7 || feed != "i" {
			t.Errorf("after the exchange: %d views, feed %q, want 7 and i", i, feed)
		}
	}
	deliver(t, nodes)
	for _, n := range nodes {
		if i, feed := n.views("/items/i?consistency=linearizable"), n.feed("u"); i != 7 || feed != "i" {
			t.Errorf("after delivery: %d views, feed %q, want 7 and i", i, feed)
		}
		if s := n.member.Outbox().Status(); s.Pending != 0 {
			t.Errorf("after delivery: %+v", s)
		}
	}
	if r := decode[api.Reconciled](t, b.do("POST", "/cluster/reconcile", `{"region":"a"}`)); !r.OK || r.OpsApplied != 0 {
		t.Errorf("after delivery: %+v", r)
	}
}

func TestReconcile_Problems(t *testing.T) {
	t.Parallel()
	nodes := split(t, options{peerKey: []byte("peers")}, "a", "b")
	a := nodes[0]
	for _, tc := range []struct {
		body string
		code api.Code
	}{
		{`{"region":"a"}`, api.CodeBadRequest},
		{`{"region":"nobody"}`, api.CodeNotFound},
		{`{"region":""}`, api.CodeBadRequest},
		{`{}`, api.CodeBadRequest},
		{`{"region":"b","force":true}`, api.CodeBadRequest},
	} {
		if g := a.do("POST", "/cluster/reconcile", tc.body); decode[api.Problem](t, g).Code != tc.code {
			t.Errorf("reconcile %s = %d %s, want %s", tc.body, g.status, g.body, tc.code)
		}
	}
	wantProblem(t, a.do("POST", "/cluster/reconcile/snapshot", `{"snapshot":""}`, api.HeaderInternal, "1"), api.CodeUnauthorized)
	peer := []string{api.HeaderInternal, "1", api.HeaderPeerKey, "peers"}
	var sound bytes.Buffer
	if err := outbox.WriteSnapshot(&sound, nil); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{``, `{}`, `{"snapshot":`, `{"snapshot":"AAAA"}`, `{"snapshot":"!"}`, `{"snapshot":"VElEQUxFWEMBAAAA`} {
		if g := a.do("POST", "/cluster/reconcile/snapshot", body, peer...); decode[api.Problem](t, g).Code != api.CodeBadRequest {
			t.Errorf("snapshot %q = %d %s", body, g.status, g.body)
		}
	}
	if g := nodes[1].do("POST", "/cluster/reconcile", `{"region":"a"}`); g.status != 200 {
		t.Errorf("with the credential = %d %s", g.status, g.body)
	}
}

// A member that is not there, or takes a connection and is silent, is named, and nothing changed.
func TestVerbs_UnreachedIsNamed(t *testing.T) {
	t.Parallel()
	g := opstest.Genesis("a", "b", "c")
	g.Members[1].HTTPAddr, g.Members[2].HTTPAddr = "127.0.0.1:1", blackhole(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := serve(t, options{request: 50 * time.Millisecond}, opstest.New(t, g, "a"), ln)
	for _, tc := range []struct{ path, body, who, why string }{
		{"/cluster/reconcile", `{"region":"b"}`, "b", ": nothing listens there"},
		{"/cluster/reconcile", `{"region":"c"}`, "c", ": nothing came in time"},
		{"/cluster/reseed", `{"region":"b"}`, "b", ": nothing listens there"},
		{"/cluster/reseed", `{"region":"c"}`, "c", ": nothing came in time"},
	} {
		at, _ := g.Named(tc.who)
		p := wantProblem(t, a.do("POST", tc.path, tc.body), api.CodeMemberUnreached)
		if !strings.Contains(p.Detail, at.HTTPAddr) || !strings.HasPrefix(p.Detail, tc.who+" ") || !strings.HasSuffix(p.Detail, tc.why) || p.Effect != api.EffectNone {
			t.Errorf("%s %s: %+v, want %s, its address and %q", tc.path, tc.body, p, tc.who, tc.why)
		}
	}
}
