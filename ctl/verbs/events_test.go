package verbs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/iostreams"
	"github.com/tidaldb/tidal/ctl/verbs"
	"github.com/tidaldb/tidal/daemon/api"
)

// eventCluster is members that tell what they saw.
type eventCluster struct {
	members []*eventMember
}

type eventMember struct {
	cluster *eventCluster
	name    string
	url     string
	floor   int // least number after which it has everything

	mu     sync.Mutex
	events []api.Event
	more   chan struct{} // closed and replaced when an event comes
}

func newEventCluster(t *testing.T, names ...string) *eventCluster {
	t.Helper()
	c := &eventCluster{}
	for _, name := range names {
		m := &eventMember{cluster: c, name: name, more: make(chan struct{})}
		s := httptest.NewServer(m)
		t.Cleanup(s.Close)
		m.url = s.URL
		c.members = append(c.members, m)
	}
	return c
}

// saw adds an event; a fact that is not empty is shared.
func (m *eventMember) saw(at time.Time, kind, text, fact string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, api.Event{
		ID: fmt.Sprintf("3-%d", m.floor+len(m.events)+1), At: at, Member: m.name, Kind: kind, Level: "info", Text: text, Fact: fact, Fields: json.RawMessage(`{}`),
	})
	close(m.more)
	m.more = make(chan struct{})
}

// after returns the events after a number, and what tells that there are more.
func (m *eventMember) after(n int) ([]api.Event, chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.events[n-m.floor:]), m.more
}

func (m *eventMember) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(api.HeaderMember, m.name)
	enc := json.NewEncoder(w)
	if r.URL.Path == "/cluster/members" {
		var answer api.Members
		for _, m := range m.cluster.members {
			answer.Roster.Members = append(answer.Roster.Members, api.Member{Name: m.name, HTTPAddr: strings.TrimPrefix(m.url, "http://")})
		}
		enc.Encode(answer)
		return
	}
	q := r.URL.Query()
	limit, _ := strconv.Atoi(q.Get("limit"))
	from := m.floor
	if after := q.Get("after"); after != "" {
		if from, _ = strconv.Atoi(strings.TrimPrefix(after, "3-")); from < m.floor {
			p := api.NewProblem(api.CodeCompacted, "events after "+after+" are not kept any more")
			p.Floor = fmt.Sprintf("3-%d", m.floor)
			w.Header().Set("Content-Type", api.ProblemType)
			w.WriteHeader(p.Status)
			enc.Encode(p)
			return
		}
	}
	events, more := m.after(from)
	if q.Get("after") != "" {
		events = events[:min(limit, len(events))]
	} else {
		events = events[max(0, len(events)-limit):]
	}
	for {
		for _, e := range events {
			enc.Encode(e)
			from, _ = strconv.Atoi(strings.TrimPrefix(e.ID, "3-"))
		}
		if q.Get("follow") == "" {
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-more:
		}
		events, more = m.after(from)
	}
}

var eventStart = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// threeTell is a cluster of three in which a member was lost.
func threeTell(t *testing.T, start time.Time) *eventCluster {
	c := newEventCluster(t, "us-east", "us-west", "ap-south")
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	east, west, south := c.members[0], c.members[1], c.members[2]
	south.floor = 7
	east.saw(at(0), "started", "started, boot 3, version 0.1.0", "")
	west.saw(at(2), "started", "started, boot 3, version 0.1.0", "")
	south.saw(at(40), "leader_elected", "us-east leads term 7", "leader_elected/0/7/1")
	east.saw(at(30), "leader_elected", "us-east leads term 7", "leader_elected/0/7/1")
	west.saw(at(41), "leader_elected", "us-east leads term 7", "leader_elected/0/7/1")
	east.saw(at(5000), "peer_lost", "has lost ap-south at ap-south:9600: refused", "")
	return c
}

func TestEvents_EveryFormat(t *testing.T) {
	t.Parallel()
	c := threeTell(t, eventStart)
	for _, format := range []string{"table", "wide", "json", "yaml", "name"} {
		exit, out, errs := run(t, []string{c.members[0].url}, "events", "-o", format)
		if exit != 0 || errs != "" {
			t.Errorf("exit %d, stderr %q", exit, errs)
		}
		golden(t, "events."+format+".golden", out)
	}
}

func TestEvents_Chosen(t *testing.T) {
	t.Parallel()
	c := threeTell(t, eventStart)
	// One that is dead, and in nobody's way.
	c.members = append(c.members, &eventMember{cluster: c, name: "dead", url: dead(t)})
	recent := time.Now().Add(-time.Minute)
	c.members[1].saw(recent, "term_raised", "is in term 8, was in 7", "")
	for _, tc := range []struct {
		args string
		exit int
		out  string // names, in order
		errs string
	}{
		{"--limit 2", 0, "us-east/3-3 us-west/3-3", "the events of dead were not read"},
		{"us-west", 0, "us-west/3-1 us-west/3-2 us-west/3-3", ""},
		{"us-west us-east --limit 1", 0, "us-west/3-3", ""},
		{"--since 5m", 0, "us-west/3-3", "dead"},
		{"--after us-west/3-1", 0, "us-west/3-2 us-west/3-3", ""},
		{"--after us-west/3-1 --limit 1", 0, "us-west/3-2", ""},
		{"us-west --after 3-1", 0, "us-west/3-2 us-west/3-3", ""},
		{"--after us-west/3-2 --after us-east/3-2", 0, "us-east/3-3 us-west/3-3", ""},
		{"--after ap-south/3-2", 0, "ap-south/3-7 ap-south/3-8", ""},
		{"us-east dead --limit 1", 3, "us-east/3-3", "nothing listens there"},
		{"dead", 7, "", "nothing listens there"},
		{"us-eest", 5, "", "close to it: us-east, us-west"},
		{"--after 3-1", 64, "", "want MEMBER/ID"},
		{"--after us-east/3-1 us-west", 64, "", "not among the members"},
		{"--after us-east/3-1 --after us-east/3-2", 64, "", "twice"},
		{"--limit 0", 64, "", "--follow"},
		{"--limit 5000", 64, "", "want 0 to 4096"},
		{"--since -1m", 64, "", "positive"},
	} {
		exit, out, errs := run(t, []string{c.members[0].url}, append([]string{"events", "-o", "name"}, strings.Fields(tc.args)...)...)
		if got := strings.Join(strings.Fields(out), " "); exit != tc.exit || got != tc.out || !strings.Contains(errs, tc.errs) || tc.errs == "" && errs != "" {
			t.Errorf("events %s: exit %d, %s; want %d, %s\nstderr %s", tc.args, exit, got, tc.exit, tc.out, errs)
		}
	}
}

// What a member does not keep any more is a line of its own.
func TestEvents_TellsAHole(t *testing.T) {
	t.Parallel()
	c := threeTell(t, eventStart)
	_, out, _ := run(t, []string{c.members[0].url}, "events", "--after", "ap-south/3-2")
	if lines := strings.Split(out, "\n"); !strings.Contains(lines[1], "events_lost") || !strings.Contains(lines[1], "events after 3-2 are not kept any more") || !strings.Contains(lines[2], "leader_elected") {
		t.Errorf("%s", out)
	}
}

// awaited is a writer that tells when something was written.
type awaited struct {
	mu  sync.Mutex
	buf bytes.Buffer
	ch  chan struct{}
}

func (a *awaited) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() {
		select {
		case a.ch <- struct{}{}:
		default:
		}
	}()
	return a.buf.Write(b)
}

// await returns what was written, once it holds want.
func (a *awaited) await(t *testing.T, want string) string {
	t.Helper()
	deadline := time.After(5 * time.Second)
	for {
		a.mu.Lock()
		got := a.buf.String()
		a.mu.Unlock()
		if strings.Contains(got, want) {
			return got
		}
		select {
		case <-a.ch:
		case <-deadline:
			t.Fatalf("no %q in\n%s", want, got)
		}
	}
}

// Following goes on with what comes from every member, and tells a fact that several saw once.
func TestEvents_Follow(t *testing.T) {
	t.Parallel()
	c := threeTell(t, time.Now())
	io, _, _ := iostreams.Test()
	out := &awaited{ch: make(chan struct{}, 1)}
	io.Out = out
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan int)
	go func() {
		done <- ctl.Run(ctx, newFactory(t, io, []string{c.members[0].url}), verbs.All, []string{"events", "--follow", "--limit", "2"})
	}()
	out.await(t, "peer_lost")
	now := time.Now()
	const fact = "leader_elected/0/8/2"
	c.members[1].saw(now, "leader_elected", "us-west leads term 8", fact)
	out.await(t, "leads term 8")
	c.members[0].saw(now, "leader_elected", "us-west leads term 8", fact)
	c.members[0].saw(now, "peer_connected", "is connected to ap-south", "")
	c.members[2].saw(now, "state_changed", "is follower in term 8, was leader", "")
	out.await(t, "was leader")
	got := out.await(t, "is connected")
	if strings.Count(got, "leads term 8") != 1 || strings.Count(got, "TIME") != 1 || strings.Contains(got, "started") {
		t.Errorf("%s", got)
	}
	column := strings.Index(got, "TEXT")
	for line := range strings.Lines(got) {
		if line[column-1] != ' ' {
			t.Errorf("a row is out of line: %q", line)
		}
	}
	cancel(errors.New("enough"))
	if exit := <-done; exit != 1 {
		t.Errorf("exit %d", exit)
	}
}
