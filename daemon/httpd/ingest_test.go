package httpd_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ops"
	"github.com/tidaldb/tidal/daemon/replica"
)

// stream is one request of POST /ingest, its lines written and its answers read by a test.
type stream struct {
	t     testing.TB
	to    *io.PipeWriter
	resp  *http.Response
	lines *bufio.Scanner
}

func (n *node) ingest(query string, header ...string) *stream {
	n.t.Helper()
	from, to := io.Pipe()
	req, err := http.NewRequestWithContext(n.t.Context(), "POST", "http://"+n.addr+"/ingest"+query, from)
	if err != nil {
		n.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	if header == nil {
		// The header comes before any line is sent, but net/http sends its own with the first one.
		go io.WriteString(to, `{"kind":"item","id":"first"}`+"\n")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	s := &stream{t: n.t, to: to, resp: resp, lines: bufio.NewScanner(resp.Body)}
	s.lines.Buffer(nil, 1<<20)
	n.t.Cleanup(func() { to.Close(); resp.Body.Close() })
	if resp.StatusCode == 200 && header == nil {
		if a := s.ack(); a.Acked != 1 || a.Index == 0 || a.Refused != nil {
			n.t.Fatalf("first acknowledgement %+v", a)
		}
	}
	return s
}

func (s *stream) send(lines ...string) {
	s.t.Helper()
	if _, err := io.WriteString(s.to, strings.Join(lines, "\n")+"\n"); err != nil {
		s.t.Fatal(err)
	}
}

// line reads a line of the answer as a T.
func line[T any](s *stream) (v T) {
	s.t.Helper()
	if !s.lines.Scan() {
		s.t.Fatalf("the answer ended: %v", s.lines.Err())
	}
	dec := json.NewDecoder(strings.NewReader(s.lines.Text()))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		s.t.Fatalf("%s: %v", s.lines.Text(), err)
	}
	return v
}

func (s *stream) ack() api.Ack { s.t.Helper(); return line[api.Ack](s) }

// until reads acknowledgements up to one of n lines, and returns the refusals in them.
func (s *stream) until(n uint64) (refused []api.LineRefusal) {
	s.t.Helper()
	for last := uint64(0); last < n; {
		a := s.ack()
		if a.Acked <= last || a.Acked > n {
			s.t.Fatalf("acknowledgement of %d after %d, want up to %d", a.Acked, last, n)
		}
		last, refused = a.Acked, append(refused, a.Refused...)
	}
	return refused
}

// end reads the last line.
func (s *stream) end() api.StreamEnd {
	s.t.Helper()
	e := line[api.StreamEnd](s)
	if s.lines.Scan() {
		s.t.Fatalf("%s follows the last line", s.lines.Text())
	}
	return e
}

const viewLine = `{"kind":"signal","item":"i","signal":"view"}`

// onEach runs a test through the leader and through another member.
func onEach(t *testing.T, o options, do func(t *testing.T, leader, n *node)) {
	for i, name := range []string{"leader", "follower"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := start(t, o, "a", "b")
			do(t, nodes[0], nodes[i])
		})
	}
}

func TestIngest_SettlesLinesInOrder(t *testing.T) {
	t.Parallel()
	onEach(t, options{}, func(t *testing.T, leader, n *node) {
		s := n.ingest("")
		if h := s.resp.Header; h.Get("Content-Type") != api.NDJSONType || h.Get("Tidal-Member") != "a" || h.Get("Tidal-Term") != "2" {
			t.Errorf("header %v", h)
		}
		s.send(viewLine) // one line alone is acknowledged
		if a := s.ack(); a.Acked != 2 || a.Index != 3 || a.Refused != nil {
			t.Errorf("acknowledgement %+v, want 2 lines, index 3", a)
		}
		s.send(
			`{"kind":"item","id":"i","title":"t"}`,
			`{"kind":"signal","item":"i","signal":"like"}`, // 4
			`{"kind":"embedding","item":"i","vector":[1,2]}`,
			`{"kind":"embedding","item":"j","vector":[1]}`, // 6
			``, // 7
			`{"kind":"hardneg","item":"i","user":"u","op":"hide"}`,
			`{"kind":"signal","item":"i","signal":"view"} x`,                   // 9
			`{"kind":"item","id":"`+strings.Repeat("x", api.MaxLineBytes)+`"}`, // 10
			viewLine,
			`{"kind":"signal","item":"i","signal":"view","ts":`+fmt.Sprint(time.Date(2026, 3, 1, 12, 0, 1, 0, time.UTC).UnixMilli())+`}`, // 12
		)
		if _, err := io.WriteString(s.to, viewLine); err != nil { // 13, which need not end
			t.Fatal(err)
		}
		s.to.Close()
		refused := s.until(13)
		var got []string
		for _, r := range refused {
			got = append(got, fmt.Sprintf("%d %s", r.Line, r.Code))
			if r.Detail == "" {
				t.Errorf("refusal of line %d without a detail", r.Line)
			}
		}
		if want := []string{"4 unknown_signal", "6 dimension_mismatch", "7 bad_request", "9 bad_request", "10 too_large", "12 bad_request"}; !reflect.DeepEqual(got, want) {
			t.Errorf("refused %q, want %q", got, want)
		}
		if e := s.end(); !e.Done || e.Acked != 13 || *e.Refused != 6 || e.Problem != nil {
			t.Errorf("end %+v, want 13 done and 6 refused", e)
		}
		if i := decode[api.ItemAnswer](t, leader.get("/items/i")); i.Signals["view"].Count != 3 || *i.Dimension != 2 {
			t.Errorf("item %+v, want 3 views and dimension 2", i)
		}
		if f := decode[api.FeedAnswer](t, leader.get("/feed?user=u")); len(f.Results) != 1 {
			t.Errorf("feed of u %+v, want i hidden", f.Results)
		}
	})
}

// Many lines share an entry, and each is counted once.
func TestIngest_GathersLines(t *testing.T) {
	t.Parallel()
	onEach(t, options{}, func(t *testing.T, leader, n *node) {
		const lines = 50_000
		s := n.ingest("")
		go func() {
			w := bufio.NewWriter(s.to)
			for range lines {
				w.WriteString(viewLine + "\n")
			}
			w.Flush()
			s.to.Close()
		}()
		if refused := s.until(lines + 1); refused != nil {
			t.Errorf("refused %+v", refused[0])
		}
		if e := s.end(); !e.Done || e.Acked != lines+1 || *e.Refused != 0 {
			t.Errorf("end %+v", e)
		}
		leader.do("POST", "/items", `{"id":"i"}`)
		g := leader.get("/items/i")
		if i := decode[api.ItemAnswer](t, g); i.Signals["view"].Count != lines || i.AppliedIndex > lines/10 {
			t.Errorf("%d views in %d entries, want %d in far fewer", i.Signals["view"].Count, i.AppliedIndex, lines)
		}
	})
}

func TestIngest_KeysOfLines(t *testing.T) {
	t.Parallel()
	onEach(t, options{peerKey: []byte("secret")}, func(t *testing.T, leader, n *node) {
		keyed := func(key string) string {
			return `{"kind":"signal","item":"i","signal":"view","key":"` + key + `"}`
		}
		for range 2 {
			s := n.ingest("")
			s.send(keyed("1"), keyed("2"), keyed("1"), `{"kind":"signal","item":"j","signal":"view","key":"2"}`, `{"kind":"item","id":"i","key":"3"}`)
			s.to.Close()
			if refused := s.until(6); len(refused) != 1 || refused[0].Line != 5 || refused[0].Code != api.CodeKeyMismatch {
				t.Errorf("refused %+v, want line 5", refused)
			}
			s.end()
		}
		// The keys are those of requests too.
		if g := n.do("POST", "/signals", `{"item":"i","signal":"view"}`, "Idempotency-Key", "1"); g.status != 204 {
			t.Errorf("POST /signals = %d %s", g.status, g.body)
		}
		if i := decode[api.ItemAnswer](t, leader.get("/items/i")); i.Signals["view"].Count != 2 || string(i.Attrs) != `{}` {
			t.Errorf("item %+v, want 2 views and no attributes", i)
		}
		wantProblem(t, n.do("POST", "/ingest", "", "Idempotency-Key", "k"), api.CodeBadRequest)
		wantProblem(t, n.do("POST", "/ingest?ack=local", ""), api.CodeBadRequest)
	})
}

func TestIngest_AckLeader(t *testing.T) {
	t.Parallel()
	onEach(t, options{}, func(t *testing.T, _, n *node) {
		s := n.ingest("?ack=leader")
		s.send(`{"kind":"signal","item":"i","signal":"like"}`) // what the state says is not known
		s.to.Close()
		if refused := s.until(2); refused != nil {
			t.Errorf("refused %+v", refused)
		}
	})
}

// When a part fails, the last line says how many are settled, and what may be said of the others.
func TestIngest_EndsWhereAPartFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		fail func(*node)
		code api.Code
	}{
		{"leadership is lost", func(a *node) { a.member.Lead(3, 2) }, api.CodeNotLeader},
		{"the write is lost", func(a *node) { a.member.BeforeWrite(func(context.Context) error { return replica.ErrLost }) }, api.CodeWriteLost},
		{"nobody knows", func(a *node) {
			a.member.BeforeWrite(func(context.Context) error {
				return &replica.UnknownOutcomeError{Cause: ops.ErrQuorumTimeout}
			})
		}, api.CodeOutcomeUnknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			onEach(t, options{}, func(t *testing.T, leader, n *node) {
				s := n.ingest("")
				tc.fail(leader)
				s.send(viewLine)
				e := s.end()
				if spec, _ := api.Lookup(tc.code); e.Done || e.Acked != 1 || e.Problem == nil || e.Problem.Code != tc.code || e.Problem.Effect != spec.Effect {
					t.Errorf("end %+v, problem %+v, want 1 line and %s", e, e.Problem, tc.code)
				}
				if tc.code == api.CodeNotLeader && e.Problem.Leader != "b" {
					t.Errorf("problem %+v does not name b", e.Problem)
				}
			})
		})
	}
}

// A part that was taken after one that failed makes the outcome unknown.
func TestIngest_SaysWhenALaterPartWasTaken(t *testing.T) {
	t.Parallel()
	n := start(t, options{}, "a")[0]
	s := n.ingest("")
	first, second := make(chan struct{}), make(chan struct{})
	calls := 0
	n.member.BeforeWrite(func(context.Context) error {
		if calls++; calls > 1 {
			return nil
		}
		close(first)
		<-second
		return replica.ErrLost
	})
	s.send(viewLine)
	<-first
	begun := make(chan struct{})
	n.member.BeforeBegin(func() error { close(begun); return nil })
	s.send(viewLine)
	<-begun
	n.member.BeforeBegin(nil)
	close(second)
	if e := s.end(); e.Acked != 1 || e.Problem.Code != api.CodeOutcomeUnknown || e.Problem.Effect != api.EffectUnknown {
		t.Errorf("end %+v, problem %+v, want an unknown outcome", e, e.Problem)
	}
}

// A full queue is no error of a stream: it is not read until there is room.
func TestIngest_WaitsForRoom(t *testing.T) {
	t.Parallel()
	n := start(t, options{}, "a")[0]
	s := n.ingest("")
	refusals := 3
	n.member.BeforeBegin(func() error {
		if refusals--; refusals >= 0 {
			return &replica.OverloadedError{Queue: replica.QueueWrites}
		}
		return nil
	})
	s.send(viewLine)
	if a := s.ack(); a.Acked != 2 || refusals >= 0 {
		t.Errorf("acknowledgement %+v with %d refusals left", a, refusals)
	}
}

// What is not settled is bounded: the server does not read on.
func TestIngest_StopsReadingAtItsBound(t *testing.T) {
	t.Parallel()
	n := start(t, options{}, "a")[0]
	release := make(chan struct{})
	n.member.BeforeWrite(func(context.Context) error { <-release; return nil })
	defer close(release)
	c, err := net.Dial("tcp", n.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.(*net.TCPConn).SetWriteBuffer(64 << 10)
	chunk := strings.Repeat(viewLine+"\n", 1000)
	fmt.Fprintf(c, "POST /ingest HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
	sent := 0
	for ; sent < 256<<20; sent += len(chunk) {
		c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		if _, err := fmt.Fprintf(c, "%x\r\n%s\r\n", len(chunk), chunk); err != nil {
			break
		}
	}
	if sent > 32<<20 {
		t.Errorf("%d bytes were read and nothing was settled", sent)
	}
}

func TestIngest_EndsAnIdleStream(t *testing.T) {
	t.Parallel()
	onEach(t, options{idle: 50 * time.Millisecond}, func(t *testing.T, _, n *node) {
		s := n.ingest("")
		if e := s.end(); e.Done || e.Acked != 1 || e.Problem == nil || e.Problem.Code != api.CodeIdle || e.Problem.Effect != api.EffectNone {
			t.Errorf("end %+v, problem %+v, want idle after 1 line", e, e.Problem)
		}
	})
}

// A stream has no end of its own: Stop ends it, and says how far it came.
func TestIngest_EndsWhenTheMemberStops(t *testing.T) {
	t.Parallel()
	onEach(t, options{}, func(t *testing.T, _, n *node) {
		s := n.ingest("")
		stopped := make(chan error, 1)
		go func() { stopped <- n.server.Stop(context.WithoutCancel(t.Context())) }()
		if e := s.end(); e.Done || e.Acked != 1 || e.Problem == nil {
			t.Errorf("end %+v, want a problem after 1 line", e)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

func TestIngest_LosesTheLeader(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{}, "a", "b")
	s := nodes[1].ingest("")
	nodes[0].member.BeforeWrite(func(context.Context) error { panic(http.ErrAbortHandler) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = nodes[0].server.Stop(ctx) // cuts connections
	e := s.end()
	if e.Done || e.Acked != 1 || e.Problem == nil {
		t.Errorf("end %+v, want a problem after 1 line", e)
	}
}

func TestIngest_FindsTheLeaderBeforeItReads(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{leaderWait: 10 * time.Second}, "a", "b")
	a, b := nodes[0], nodes[1]
	a.member.Lead(3, 0) // b does not know yet
	go func() {
		waitFor(t, "the first try", func() bool { return b.metric("tidal_httpd_forwards_total") >= 1 })
		a.member.Lead(4, 1)
		b.member.Lead(4, 1)
	}()
	s := b.ingest("")
	s.to.Close()
	if e := s.end(); !e.Done || e.Acked != 1 {
		t.Errorf("end %+v", e)
	}

	// Without one, nothing is read and the answer is a problem.
	none := start(t, options{leaderWait: 30 * time.Millisecond}, "a", "b")
	none[0].member.Lead(3, 0)
	none[1].member.Lead(3, 0)
	for _, n := range none {
		s := n.ingest("")
		if s.resp.StatusCode != 503 {
			t.Errorf("POST /ingest without a leader = %d, want 503", s.resp.StatusCode)
		}
	}
}

// A client that waits for the header before it sends a line gets it.
func TestIngest_HeaderComesFirst(t *testing.T) {
	t.Parallel()
	onEach(t, options{}, func(t *testing.T, _, n *node) {
		c, err := net.Dial("tcp", n.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST /ingest HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
		r := bufio.NewReader(c)
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("response %+v, %v", resp, err)
		}
		fmt.Fprintf(c, "%x\r\n%s\n\r\n", len(viewLine)+1, viewLine)
		if l, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.HasPrefix(l, `{"acked":1,`) {
			t.Errorf("acknowledgement %q, %v", l, err)
		}
	})
}

// A client that does not read is cut off some day; one that goes away costs nothing.
func TestIngest_ClientGoesAway(t *testing.T) {
	t.Parallel()
	onEach(t, options{}, func(t *testing.T, leader, n *node) {
		s := n.ingest("")
		s.send(viewLine)
		s.until(2)
		s.to.CloseWithError(errors.New("gone"))
		s.resp.Body.Close()
		if err := n.server.Stop(context.WithoutCancel(t.Context())); err != nil { // returns: no request is left
			t.Error(err)
		}
	})
}
