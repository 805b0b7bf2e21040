package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/daemon/api"
)

// teller is a member that answers for its roster and its events.
type teller struct {
	name   string
	roster []string
	// events answers /cluster/events.
	events func(r *http.Request) (*http.Response, error)
}

func (m teller) answer(r *http.Request) (*http.Response, error) {
	h := http.Header{}
	h.Set(api.HeaderMember, m.name)
	switch r.URL.Path {
	case "/cluster/members":
		var members api.Members
		for _, name := range m.roster {
			members.Roster.Members = append(members.Roster.Members, api.Member{Name: name, HTTPAddr: name})
		}
		b, err := json.Marshal(members)
		return answer(200, h, string(b)), err
	case "/cluster/events":
		resp, err := m.events(r)
		if err == nil {
			resp.Header.Set(api.HeaderMember, m.name)
		}
		return resp, err
	}
	return nil, errors.New("no such route")
}

// lines answers events of a member by their ids.
func lines(member string, ids ...string) *http.Response {
	return answer(200, http.Header{}, eventLines(member, ids...))
}

func eventLines(member string, ids ...string) string {
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&b, `{"id":%q,"member":%q,"kind":"k","fields":{}}`+"\n", id, member)
	}
	return b.String()
}

func compacted(floor string) *http.Response {
	h := http.Header{}
	h.Set("Content-Type", api.ProblemType)
	return answer(http.StatusGone, h, fmt.Sprintf(`{"code":"compacted","detail":"gone","floor":%q}`, floor))
}

func placesOf(t *testing.T, c *client.Client) []client.Place {
	t.Helper()
	places, err := c.Places(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return places
}

// Every member is found: by the endpoints that are it, else by the roster.
func TestPlaces(t *testing.T) {
	t.Parallel()
	var asked []string
	events := func(r *http.Request) (*http.Response, error) {
		asked = append(asked, r.URL.Host)
		return nil, errors.New("no")
	}
	all := []string{"a", "b", "c"}
	n := network{
		"tunnel": teller{"a", all, events}.answer, "b": teller{"b", all, events}.answer, "gone": refused,
		"a": teller{"a", all, events}.answer, "c": teller{"c", all, events}.answer,
	}
	c := newClient(t, n, "tunnel", "b", "gone")
	places := placesOf(t, c)
	var names []string
	for _, p := range places {
		names = append(names, p.Member)
		asked = append(asked, p.Member+":")
		if _, err := c.Events(t.Context(), p, client.EventQuery{}); err == nil {
			t.Error("no error")
		}
	}
	if got := strings.Join(names, " "); got != "a b c" {
		t.Errorf("members %s", got)
	}
	if got := strings.Join(asked, " "); got != "a: tunnel a b: b c: c" {
		t.Errorf("asked %s", got)
	}
	_, err := newClient(t, n, "gone").Places(t.Context())
	if e, ok := errors.AsType[*client.UnreachableError](err); !ok || e.Tried[0].Code != "refused" {
		t.Errorf("nobody: %v", err)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	var queries []string
	serve := func(r *http.Request) (*http.Response, error) {
		queries = append(queries, r.URL.RawQuery)
		if r.URL.Query().Get("after") == "1-5" {
			return compacted("2-3"), nil
		}
		return lines("a", "2-4", "2-5"), nil
	}
	all := []string{"a"}
	n := network{"other": teller{"b", all, serve}.answer, "a": teller{"a", all, serve}.answer}
	c := newClient(t, n, "a")
	p := placesOf(t, c)[0]
	ids := func(q client.EventQuery) string {
		t.Helper()
		events, err := c.Events(t.Context(), p, q)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, e := range events {
			ids = append(ids, e.Kind+" "+e.ID)
		}
		return strings.Join(ids, ", ")
	}
	if got := ids(client.EventQuery{Limit: 7}); got != "k 2-4, k 2-5" {
		t.Errorf("events %s", got)
	}
	// A hole is an event.
	if got := ids(client.EventQuery{After: "1-5", Limit: 7}); got != "events_lost 2-3, k 2-4, k 2-5" {
		t.Errorf("events %s", got)
	}
	if got := strings.Join(queries, " "); got != "limit=7 after=1-5&limit=7 after=2-3&limit=7" {
		t.Errorf("queries %s", got)
	}
	// Whoever took the address over is not asked in its place.
	n["a"] = n["other"]
	_, err := c.Events(t.Context(), p, client.EventQuery{})
	if e, ok := errors.AsType[*client.UnreachableError](err); !ok || e.Tried[0].Code != "foreign" || !strings.Contains(e.Tried[0].Detail, "b answers there, not a") {
		t.Errorf("another member: %v", err)
	}
}

// A stream that breaks is resumed behind the last event, through the next endpoint, until the reader
// has enough; a hole is told.
func TestFollowEvents_Resumes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		turns := []func() (*http.Response, error){
			func() (*http.Response, error) { return lines("a", "1-1", "1-2"), nil }, // and ends
			func() (*http.Response, error) { return refused(nil) },
			func() (*http.Response, error) { // breaks within a line
				return answer(200, http.Header{}, eventLines("a", "1-3")+`{"id":"1-`), nil
			},
			func() (*http.Response, error) { return compacted("2-0"), nil },
			func() (*http.Response, error) { return lines("a", "2-1"), nil },
		}
		serve := func(r *http.Request) (*http.Response, error) {
			asked = append(asked, r.URL.Host+"?"+r.URL.RawQuery)
			turn := turns[0]
			turns = turns[1:]
			return turn()
		}
		a := teller{"a", []string{"a"}, serve}.answer
		c := newClient(t, network{"one": a, "a": a}, "one")
		p := placesOf(t, c)[0]
		enough := errors.New("enough")
		var got []string
		var lost []string
		err := c.FollowEvents(t.Context(), p, client.EventQuery{Limit: 5}, func(e api.Event) error {
			got = append(got, e.ID)
			if e.ID == "2-1" {
				return enough
			}
			return nil
		}, func(err error) { lost = append(lost, err.(*client.UnreachableError).Tried[0].Code) })
		if !errors.Is(err, enough) {
			t.Errorf("ended by %v", err)
		}
		if s := strings.Join(got, " "); s != "1-1 1-2 1-3 2-0 2-1" {
			t.Errorf("events %s", s)
		}
		want := "one?follow=true&limit=5 a?after=1-2&follow=true&limit=5 one?after=1-2&follow=true&limit=5 a?after=1-3&follow=true&limit=5 a?after=2-0&follow=true&limit=5"
		if s := strings.Join(asked, " "); s != want {
			t.Errorf("asked\n%s\nwant\n%s", s, want)
		}
		if s := strings.Join(lost, " "); s != "error refused foreign" {
			t.Errorf("lost %s", s)
		}
	})
}

// A stream in which not even a heartbeat comes is given up; one with heartbeats is not.
func TestFollowEvents_Silence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := 0
		serve := func(r *http.Request) (*http.Response, error) {
			begun++
			body, w := io.Pipe()
			stop := context.AfterFunc(r.Context(), func() { w.CloseWithError(r.Context().Err()) })
			if begun == 1 {
				go func() { // five minutes of heartbeats
					for range 60 {
						io.WriteString(w, `{"id":"1-1","kind":"heartbeat","fields":{}}`+"\n")
						time.Sleep(5 * time.Second)
					}
				}()
			}
			resp := answer(200, http.Header{}, "")
			resp.Body = closer{body, func() { stop(); w.Close() }}
			return resp, nil
		}
		c := newClient(t, network{"a": teller{"a", []string{"a"}, serve}.answer}, "a")
		p := placesOf(t, c)[0]
		ctx, cancel := context.WithCancelCause(t.Context())
		start := time.Now()
		done := errors.New("done")
		var first time.Duration
		err := c.FollowEvents(ctx, p, client.EventQuery{}, func(api.Event) error { return errors.New("a heartbeat was handed on") }, func(error) {
			if first == 0 {
				first = time.Since(start)
			}
			cancel(done)
		})
		if !errors.Is(err, done) || begun != 1 || first < 5*time.Minute || first > 5*time.Minute+20*time.Second {
			t.Errorf("ended by %v after %d streams; the first was given up after %s", err, begun, first)
		}
	})
}

type closer struct {
	io.Reader
	close func()
}

func (c closer) Close() error {
	c.close()
	return nil
}

// What asking again does not help ends it.
func TestFollowEvents_EndsWithARefusal(t *testing.T) {
	t.Parallel()
	c := newClient(t, network{"a": teller{"a", []string{"a"}, problem(api.CodeUnauthorized)}.answer}, "a")
	err := c.FollowEvents(t.Context(), placesOf(t, c)[0], client.EventQuery{}, nil, nil)
	if p, ok := errors.AsType[*client.ProblemError](err); !ok || p.Problem.Code != api.CodeUnauthorized {
		t.Errorf("ended by %v", err)
	}
}
