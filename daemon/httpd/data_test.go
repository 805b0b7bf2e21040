package httpd_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ops/opstest"
	"github.com/tidaldb/tidal/daemon/replica"
)

func TestServer_Embeddings(t *testing.T) {
	t.Parallel()
	n := start(t, options{}, "a")[0]
	for _, tc := range []struct {
		body string
		code api.Code // empty: 204
	}{
		{`{"item":"i","vector":[1,2,3]}`, ""}, // fixes the dimension
		{`{"item":"i","vector":[1,2]}`, api.CodeDimensionMismatch},
		{`{"item":"i","vector":[1,2],"collection":"nope"}`, api.CodeUnknownCollection},
		{`{"item":"i","vector":[3,2,1]}`, ""},
	} {
		g := n.do("POST", "/embeddings", tc.body)
		if tc.code != "" {
			wantProblem(t, g, tc.code)
		} else if g.status != 204 || g.header.Get("Tidal-Ack") != "quorum" {
			t.Errorf("POST /embeddings %s = %d %s", tc.body, g.status, g.body)
		}
	}
	g := n.do("POST", "/embeddings", `[{"item":"j","vector":[1,2,3]},{"item":"k","vector":[1]}]`)
	if w := decode[api.Written](t, g); g.status != 200 || *w.Accepted != 1 || len(w.Refused) != 1 || w.Refused[0].Record != 1 || w.Refused[0].Code != api.CodeDimensionMismatch {
		t.Errorf("POST /embeddings of an array = %d %s", g.status, g.body)
	}
	wantProblem(t, n.get("/items/i"), api.CodeNotFound) // a vector makes no item
	n.do("POST", "/items", `[{"id":"i"},{"id":"k"}]`)
	if i, k := decode[api.ItemAnswer](t, n.get("/items/i")), decode[api.ItemAnswer](t, n.get("/items/k")); i.Dimension == nil || *i.Dimension != 3 || k.Dimension != nil {
		t.Errorf("dimensions of i and k: %v, %v, want 3 and none", i.Dimension, k.Dimension)
	}
	if c := decode[api.CollectionAnswer](t, n.get("/collections/default")); *c.Dimension != 3 {
		t.Errorf("the collection is %+v, want dimension 3", c)
	}
}

func TestServer_HardNegs(t *testing.T) {
	t.Parallel()
	n := start(t, options{}, "a")[0]
	n.do("POST", "/items", `[{"id":"i"},{"id":"j"}]`)
	feed := func(user string) string {
		t.Helper()
		var ids []string
		for _, r := range decode[api.FeedAnswer](t, n.get("/feed?user="+user)).Results {
			ids = append(ids, r.ID)
		}
		return strings.Join(ids, " ")
	}
	if g := n.do("POST", "/hardnegs", `{"user":"u","item":"i","op":"hide"}`); g.status != 204 {
		t.Fatalf("POST /hardnegs = %d %s", g.status, g.body)
	}
	if u, v := feed("u"), feed("v"); u != "j" || v != "i j" {
		t.Errorf("feeds of u and v: %q and %q, want j and i j", u, v)
	}
	if g := n.do("POST", "/hardnegs", `[{"user":"u","item":"i","op":"unhide"},{"user":"u","item":"j","op":"hide"},{"user":"u","item":"j","op":"unhide"},{"user":"u","item":"j","op":"hide"}]`); g.status != 200 {
		t.Fatalf("POST /hardnegs of an array = %d %s", g.status, g.body)
	}
	if u := feed("u"); u != "i" { // within one entry the last one counts
		t.Errorf("feed of u: %q, want i", u)
	}
	wantProblem(t, n.do("POST", "/hardnegs", `{"user":"u","item":"i","op":"hide","collection":"nope"}`), api.CodeUnknownCollection)
}

func TestServer_DeleteItem(t *testing.T) {
	t.Parallel()
	n := start(t, options{}, "a")[0]
	n.do("POST", "/items", `{"id":"a/b"}`)
	n.do("POST", "/signals", `{"item":"a/b","signal":"view"}`)
	for range 2 { // the second time there is none
		if g := n.do("DELETE", "/items/a%2Fb", ""); g.status != 204 || g.header.Get("Tidal-Ack") != "quorum" {
			t.Errorf("DELETE = %d %s", g.status, g.body)
		}
		wantProblem(t, n.get("/items/a%2Fb"), api.CodeNotFound)
	}
	if f := decode[api.FeedAnswer](t, n.get("/feed")); len(f.Results) != 0 {
		t.Errorf("feed %+v, want none", f.Results)
	}
	if g := n.do("POST", "/items", `{"id":"a/b"}`); g.status != 201 {
		t.Errorf("POST after DELETE = %d, want 201", g.status)
	}
	if i := decode[api.ItemAnswer](t, n.get("/items/a%2Fb")); i.Signals["view"].Count != 0 {
		t.Errorf("made anew it has %+v", i.Signals)
	}
}

func TestServer_Collections(t *testing.T) {
	t.Parallel()
	n := start(t, options{}, "a")[0]
	const films = `{"half_life":"24h","signals":{"view":{"weight":1},"like":{"weight":2.5}},"attributes":{"genre":"strings"},"dimension":2}`
	g := n.do("PUT", "/collections/films", films)
	if d := decode[api.Declared](t, g); g.status != 201 || d.Name != "films" || *d.Version != 2 || d.Index != 2 || d.Ack != "quorum" {
		t.Errorf("PUT /collections/films = %d %s, want 201 of version 2", g.status, g.body)
	}
	g = n.do("PUT", "/collections/films", films)
	if d := decode[api.Declared](t, g); g.status != 200 || *d.Version != 2 || d.Index != 3 {
		t.Errorf("PUT again = %d %s, want 200 of version 2", g.status, g.body)
	}
	for body, code := range map[string]api.Code{
		`{"collection":"films","item":"i","signal":"like"}`: "",
		`{"collection":"films","item":"i","signal":"?"}`:    api.CodeUnknownSignal,
	} {
		if g := n.do("POST", "/signals", body); code != "" {
			wantProblem(t, g, code)
		} else if g.status != 204 {
			t.Errorf("POST /signals %s = %d %s", body, g.status, g.body)
		}
	}
	wantProblem(t, n.do("POST", "/items", `{"collection":"films","id":"i","genre":"sf"}`), api.CodeAttributeMismatch)
	if g := n.do("POST", "/items", `{"collection":"films","id":"i","genre":["sf"]}`); g.status != 201 {
		t.Errorf("POST /items = %d %s", g.status, g.body)
	}
	for _, change := range [][2]string{{"24h", "48h"}, {`2.5`, `2`}, {`"dimension":2`, `"dimension":3`}, {`"view":{"weight":1},`, ``}} {
		wantProblem(t, n.do("PUT", "/collections/films", strings.Replace(films, change[0], change[1], 1)), api.CodeSchemaInUse)
	}
	if g := n.do("PUT", "/collections/films", strings.Replace(films, `"view"`, `"buy":{"weight":9},"view"`, 1)); g.status != 200 {
		t.Errorf("PUT with one more signal = %d %s", g.status, g.body)
	}
	g = n.get("/collections/films")
	c := decode[api.CollectionAnswer](t, g)
	if g.status != 200 || c.HalfLifeMS != 86_400_000 || c.HalfLife != "24h0m0s" || len(c.Signals) != 3 || c.Signals["like"].Weight != 2.5 || c.Attributes["genre"] != "strings" ||
		*c.Dimension != 2 || !c.InUse || c.AppliedIndex == 0 || fmt.Sprint(c.Version) != g.header.Get("Tidal-Index") {
		t.Errorf("GET /collections/films = %d %s", g.status, g.body)
	}
	wantProblem(t, n.get("/feed?collection=nope"), api.CodeUnknownCollection)
}

func TestServer_Diversity(t *testing.T) {
	t.Parallel()
	n := start(t, options{}, "a")[0]
	n.do("POST", "/items", `[{"id":"a","g":"x"},{"id":"b","g":"x"},{"id":"c","g":["y","x"]},{"id":"d"},{"id":"e","g":"y"}]`)
	for query, want := range map[string]string{
		"diversity=g:1": "a d e false", "diversity=g:2": "a b d e false", "diversity=h:1": "a b c d e false", "diversity=g:1&limit=2": "a d false",
	} {
		f := decode[api.FeedAnswer](t, n.get("/feed?"+query))
		got := ""
		for _, r := range f.Results {
			got += r.ID + " "
		}
		if got += fmt.Sprint(f.DiversityExhausted); got != want {
			t.Errorf("GET /feed?%s = %s, want %s", query, got, want)
		}
	}
	var many []string
	for i := range 101 {
		many = append(many, fmt.Sprintf(`{"id":"m%03d","g":"z","collection":"c"}`, i))
	}
	n.do("PUT", "/collections/c", `{"half_life":"1h","signals":{}}`)
	n.do("POST", "/items", "["+strings.Join(many, ",")+"]")
	if f := decode[api.FeedAnswer](t, n.get("/feed?collection=c&limit=2&diversity=g:1")); len(f.Results) != 1 || !f.DiversityExhausted {
		t.Errorf("a feed of one value: %d results, exhausted %t", len(f.Results), f.DiversityExhausted)
	}
}

func TestServer_IdempotencyKeys(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{peerKey: []byte("secret")}, "a", "b")
	a, b := nodes[0], nodes[1]
	const key = "Idempotency-Key"
	first := a.do("POST", "/items", `[{"id":"i"},{"id":"j","collection":"nope"}]`, key, "k")
	for _, n := range nodes { // the same wherever it is asked
		again := n.do("POST", "/items", `[ {"id":"i"}, {"collection":"nope","id":"j"} ]`, key, "k")
		w := decode[api.Written](t, again)
		if again.status != 200 || w.Index != 2 || again.header.Get("Tidal-Index") != "2" || *w.Accepted != 1 || len(w.Refused) != 1 || w.Refused[0] != decode[api.Written](t, first).Refused[0] {
			t.Errorf("again = %d %s, want %s", again.status, again.body, first.body)
		}
		wantProblem(t, n.do("POST", "/items", `[{"id":"i","x":1}]`, key, "k"), api.CodeKeyMismatch)
		wantProblem(t, n.do("POST", "/signals", view, key, "k"), api.CodeKeyMismatch)
	}
	// Created once, and said so again; a refusal is repeated.
	for range 2 {
		if g := b.do("POST", "/items", `{"id":"n"}`, key, "made"); g.status != 201 {
			t.Errorf("POST /items = %d, want 201", g.status)
		}
		wantProblem(t, b.do("POST", "/signals", `{"item":"i","signal":"?"}`, key, "refused"), api.CodeUnknownSignal)
		if g := b.do("POST", "/signals", `{"item":"i","signal":"view","key":"one"}`); g.status != 204 {
			t.Errorf("POST /signals with a key inside = %d %s", g.status, g.body)
		}
		// Another client's key is another key.
		if g := b.do("POST", "/signals", view, key, "mine", "Authorization", "Bearer other"); g.status != 204 {
			t.Errorf("POST /signals of another client = %d %s", g.status, g.body)
		}
		if g := b.do("POST", "/signals", `{"item":"i","signal":"view","weight":2}`, key, "mine", "Authorization", "Bearer me"); g.status != 204 {
			t.Errorf("POST /signals = %d %s", g.status, g.body)
		}
		if g := b.do("DELETE", "/items/gone", "", key, "delete"); g.status != 204 {
			t.Errorf("DELETE = %d %s", g.status, g.body)
		}
	}
	if i := decode[api.ItemAnswer](t, a.get("/items/i")); i.Signals["view"].Count != 3 || i.Signals["view"].Weight != 4 {
		t.Errorf("views of i: %+v, want 3, weighing 4", i.Signals["view"])
	}
	wantProblem(t, b.do("POST", "/signals", `{"item":"j","signal":"view","key":"one"}`), api.CodeKeyMismatch)
}

func TestServer_TooManyKeysIsRetryable(t *testing.T) {
	t.Parallel()
	n := start(t, options{}, "a")[0]
	n.member.MaxKeys(1)
	n.do("POST", "/signals", view, "Idempotency-Key", "k1")
	g := n.do("POST", "/signals", view, "Idempotency-Key", "k2")
	if p := wantProblem(t, g, api.CodeTooManyKeys); p.RetryAfterMS < 1 || p.RetryAfterMS > (12*time.Hour).Milliseconds() || g.header.Get("Retry-After") == "" {
		t.Errorf("problem %+v, Retry-After %q, want within 12 h", p, g.header.Get("Retry-After"))
	}
	g = n.do("POST", "/signals", `[`+view+`,{"item":"i","signal":"view","key":"k3"}]`)
	if w := decode[api.Written](t, g); g.status != 200 || len(w.Refused) != 1 || w.Refused[0].Code != api.CodeTooManyKeys {
		t.Errorf("an array with a keyed record = %d %s", g.status, g.body)
	}
}

// What is promised is said, and never less than what was asked for.
func TestServer_AckLeader(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{ack: api.AckLeader}, "a", "b")
	for _, n := range nodes {
		for query, want := range map[string]string{"": "leader", "?ack=leader": "leader", "?ack=quorum": "quorum"} {
			if g := n.do("POST", "/signals"+query, view); g.status != 204 || g.header.Get("Tidal-Ack") != want || g.header.Get("Tidal-Index") == "" {
				t.Errorf("POST /signals%s = %d %v, want ack %s", query, g.status, g.header, want)
			}
		}
		g := n.do("POST", "/items?ack=leader", `{"id":"i"}`)
		if w := decode[api.Written](t, g); g.status != 202 || w.Ack != "leader" || w.Accepted != nil || w.Refused != nil || w.Index == 0 {
			t.Errorf("POST /items?ack=leader = %d %s, want 202 and no word of records", g.status, g.body)
		}
		// A key needs to know whether it came before.
		if g := n.do("POST", "/signals?ack=leader", view, "Idempotency-Key", "k"); g.header.Get("Tidal-Ack") != "quorum" {
			t.Errorf("a keyed write with ack=leader is acked as %s", g.header.Get("Tidal-Ack"))
		}
		p := wantProblem(t, n.do("POST", "/items?ack=local", `{"id":"i"}`), api.CodeBadRequest)
		if !strings.Contains(p.Detail, "quorum and leader") {
			t.Errorf("ack=local: %q does not name what is offered", p.Detail)
		}
	}
}

// Writes that come together travel together, and each gets its own answer.
func TestServer_GathersWrites(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{}, "a", "b")
	a, b := nodes[0], nodes[1]
	blocked, release := make(chan struct{}, 100), make(chan struct{})
	a.member.BeforeWrite(func(context.Context) error {
		blocked <- struct{}{}
		<-release
		return nil
	})
	answers := make([]got, 40)
	var wg sync.WaitGroup
	post := func(i int) {
		wg.Go(func() {
			signal := "view"
			if i%4 == 3 {
				signal = "?"
			}
			answers[i] = b.do("POST", "/signals", fmt.Sprintf(`{"item":"i%d","signal":"%s"}`, i, signal))
		})
	}
	for i := range 4 { // as many requests as may be under way
		post(i)
		<-blocked
	}
	for i := 4; i < len(answers); i++ {
		post(i)
	}
	waitFor(t, "the others to wait", func() bool { return b.metric("tidal_httpd_gathering_writes") == 36 })
	close(release)
	wg.Wait()
	for i, g := range answers {
		if i%4 == 3 {
			wantProblem(t, g, api.CodeUnknownSignal)
		} else if g.status != 204 || g.header.Get("Tidal-Member") != "a" || g.header.Get("Tidal-Pending") != "b" {
			t.Errorf("answer %d = %d %s %v", i, g.status, g.body, g.header)
		}
	}
	if n := b.metric("tidal_httpd_gathered_writes"); n < 5 || n > 10 {
		t.Errorf("%v requests for 40 writes, want 4 and few more", n)
	}
}

// waitFor polls what only another goroutine can bring about.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("no %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

func TestServer_GatheredErrorsAreEachsOwn(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{leaderWait: 50 * time.Millisecond}, "a", "b")
	a, b := nodes[0], nodes[1]
	a.member.BeforeWrite(func(context.Context) error {
		return &replica.OverloadedError{Queue: replica.QueueWrites, RetryAfter: 1200 * time.Millisecond}
	})
	g := b.do("POST", "/signals", view)
	if p := wantProblem(t, g, api.CodeOverloaded); p.RetryAfterMS != 1200 || g.header.Get("Retry-After") != "2" || g.header.Get("Tidal-Member") != "a" {
		t.Errorf("an overloaded leader: %+v, %v", p, g.header)
	}
	a.member.BeforeWrite(func(context.Context) error {
		return &replica.UnknownOutcomeError{Cause: replica.ErrClosed}
	})
	wantProblem(t, b.do("POST", "/signals", view), api.CodeOutcomeUnknown)
	a.member.BeforeWrite(func(context.Context) error { return &replica.NotLeaderError{Term: 3} })
	wantProblem(t, b.do("POST", "/signals", view), api.CodeNoLeader)
	p := wantProblem(t, b.do("POST", "/signals", `[`+view+`,{"item":"a","signal":"view","ts":`+fmt.Sprint(opstest.Start.UnixMilli()+501)+`}]`), api.CodeBadRequest)
	if p.Field != "[1].ts" || *p.Measured != 501 {
		t.Errorf("the future through b: %+v", p)
	}
	// A member that speaks HTTP and is no member.
	strange := http.NewServeMux()
	strange.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("\x02")) })
	b.member.Genesis.Members[0].HTTPAddr = listenAndServe(t, strange)
	b.member.Lead(9, 1)
	wantProblem(t, b.do("POST", "/signals", view), api.CodeOutcomeUnknown)
}
