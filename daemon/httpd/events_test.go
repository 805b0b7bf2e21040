package httpd_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/ops/opstest"
)

// newJournal is in boot 3, with n events.
func newJournal(n int) *journal.Journal {
	j := journal.New(journal.Options{Boot: 3, Now: func() time.Time { return opstest.Start }})
	for i := range n {
		j.Add(journal.TermRaised{Term: uint64(i + 1), Was: uint64(i)})
	}
	return j
}

// eventIDs reads a page of lines.
func eventIDs(t *testing.T, g got) string {
	t.Helper()
	if g.status != http.StatusOK || g.header.Get("Content-Type") != api.NDJSONType {
		t.Fatalf("%d %s %s", g.status, g.header.Get("Content-Type"), g.body)
	}
	var ids []string
	for line := range strings.Lines(string(g.body)) {
		ids = append(ids, decode[api.Event](t, got{body: []byte(line)}).ID)
	}
	return strings.Join(ids, " ")
}

func TestEvents_Pages(t *testing.T) {
	n := start(t, options{journal: newJournal(4)}, "us-east")[0]
	for query, want := range map[string]string{
		"":                         "3-1 3-2 3-3 3-4",
		"?limit=2":                 "3-3 3-4", // the newest
		"?limit=0":                 "",
		"?after=3-0&limit=2":       "3-1 3-2", // the first after it
		"?after=3-2&follow=false":  "3-3 3-4",
		"?after=3-4":               "",
		"?limit=4096&after=3-1":    "3-2 3-3 3-4",
		"?after=3-1&limit=1&limi=": "bad",
	} {
		g := n.get("/cluster/events" + query)
		if want == "bad" {
			wantProblem(t, g, api.CodeBadRequest)
		} else if ids := eventIDs(t, g); ids != want {
			t.Errorf("%s: %s, want %s", query, ids, want)
		}
	}
	if ids := eventIDs(t, n.get("/cluster/events?after=3-0", "Last-Event-ID", "3-3")); ids != "3-4" {
		t.Errorf("with Last-Event-ID 3-3: %s", ids)
	}
	g := n.get("/cluster/events?limit=1")
	want := `{"id":"3-4","at":"2026-03-01T12:00:00Z","member":"us-east","kind":"term_raised","level":"info","text":"is in term 4, was in 3","fields":{"group":"0","term":4,"was":3}}` + "\n"
	if string(g.body) != want {
		t.Errorf("%s\nwant\n%s", g.body, want)
	}
}

func TestEvents_SaysWhatIsNotThere(t *testing.T) {
	n := start(t, options{journal: newJournal(journal.Capacity + 7)}, "us-east")[0]
	for query, detail := range map[string]string{
		"?after=3-6":          "after 3-6 up to 3-7 are not kept any more",
		"?after=2-9000":       "of boot 2",
		"?after=3-6&follow=1": "3-7",
	} {
		p := wantProblem(t, n.get("/cluster/events"+query), api.CodeCompacted)
		if p.Floor != "3-7" || !strings.Contains(p.Detail, detail) || p.Status != http.StatusGone {
			t.Errorf("%s: %+v", query, p)
		}
	}
	for _, query := range []string{"?after=3-4104", "?after=4-0", "?after=17", "?limit=4097", "?limit=-1", "?follow=yes"} {
		if p := wantProblem(t, n.get("/cluster/events"+query), api.CodeBadRequest); p.Field == "" {
			t.Errorf("%s: %+v names no field", query, p)
		}
	}
	if g := n.get("/cluster/events?after=3-7&limit=4096"); strings.Count(string(g.body), "\n") != journal.Capacity {
		t.Errorf("after the floor: %d lines", strings.Count(string(g.body), "\n"))
	}
}

// open begins a stream.
func (n *node) open(path string, header ...string) *http.Response {
	n.t.Helper()
	req, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, "http://"+n.addr+path, nil)
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
	n.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// A follower gets what was and what comes, heartbeats between, and the last event when the member
// stops: stopping does not wait for it.
func TestEvents_Follow(t *testing.T) {
	j := newJournal(2)
	n := start(t, options{journal: j, heartbeat: 20 * time.Millisecond}, "us-east")[0]
	lines := bufio.NewScanner(n.open("/cluster/events?after=3-1&follow").Body)
	next := func() api.Event {
		t.Helper()
		var e api.Event
		if !lines.Scan() {
			t.Fatalf("the stream ended: %v", lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%s: %v", lines.Bytes(), err)
		}
		return e
	}
	if e := next(); e.ID != "3-2" {
		t.Errorf("first: %+v", e)
	}
	if e := next(); e.Kind != api.EventHeartbeat || e.ID != "3-2" {
		t.Errorf("in silence: %+v", e)
	}
	j.Add(journal.PeerLost{ID: 2, Name: "us-west", Failure: "refused"})
	e := next()
	for e.Kind == api.EventHeartbeat {
		e = next()
	}
	if e.ID != "3-3" || e.Kind != "peer_lost" || e.Level != "warn" {
		t.Errorf("next: %+v", e)
	}
	j.Close(journal.Stopping{})
	for e = next(); e.Kind == api.EventHeartbeat; e = next() {
	}
	if e.ID != "3-4" || e.Kind != "stopping" {
		t.Errorf("last: %+v", e)
	}
	if lines.Scan() || lines.Err() != nil {
		t.Errorf("after the last: %q, %v", lines.Text(), lines.Err())
	}
}

func TestEvents_AsServerSentEvents(t *testing.T) {
	j := newJournal(2)
	n := start(t, options{journal: j, heartbeat: 20 * time.Millisecond}, "us-east")[0]
	resp := n.open("/cluster/events?follow=true&limit=1", "Accept", "text/html, text/event-stream;q=0.9", "Last-Event-ID", "3-1")
	if media := resp.Header.Get("Content-Type"); media != api.EventStreamType {
		t.Errorf("media type %s", media)
	}
	want := "id: 3-2\ndata: {\"id\":\"3-2\","
	head := make([]byte, len(want))
	if _, err := io.ReadFull(resp.Body, head); err != nil || string(head) != want {
		t.Fatalf("%q, %v", head, err)
	}
	j.Close(journal.Stopping{})
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(rest), "}\n\n") || !strings.HasSuffix(string(rest), "\n\n") || !strings.Contains(string(rest), "id: 3-3\ndata: {") {
		t.Errorf("%q, %v", rest, err)
	}
}

// Followers are bounded; one that leaves makes room.
func TestEvents_FollowersAreBounded(t *testing.T) {
	n := start(t, options{journal: newJournal(1), heartbeat: 5 * time.Millisecond}, "us-east")[0]
	streams := make([]*http.Response, journal.MaxFollowers)
	for i := range streams {
		if streams[i] = n.open("/cluster/events?follow"); streams[i].StatusCode != http.StatusOK {
			t.Fatalf("follower %d: %s", i, streams[i].Status)
		}
	}
	if p := wantProblem(t, n.get("/cluster/events?follow"), api.CodeOverloaded); !p.Retryable {
		t.Errorf("%+v", p)
	}
	if ids := eventIDs(t, n.get("/cluster/events")); ids != "3-1" {
		t.Errorf("a page beside them: %s", ids)
	}
	streams[0].Body.Close()
	status := 0
	for status != http.StatusOK && t.Context().Err() == nil { // until the end of the stream is noticed
		resp := n.open("/cluster/events?follow")
		status = resp.StatusCode
		resp.Body.Close()
	}
}
