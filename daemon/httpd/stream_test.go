package httpd

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/ops"
	"github.com/tidaldb/tidal/daemon/ops/opstest"
)

// A stream outlives what bounds a request and its answer.
func TestEvents_FollowHasNoEnd(t *testing.T) {
	m := opstest.New(t, opstest.Genesis("us-east"), "us-east")
	client := NewClient(ClientOptions{})
	verbs, err := ops.New(ops.Options{Member: m, Replica: m.Open, Asker: client, Journal: journal.New(journal.Options{Boot: 1})})
	if err != nil {
		t.Fatal(err)
	}
	const bound = 50 * time.Millisecond
	s, err := New(Options{Ops: verbs, Client: client, Heartbeat: bound / 2})
	if err != nil {
		t.Fatal(err)
	}
	s.http.ReadTimeout, s.http.WriteTimeout = bound, bound
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+ln.Addr().String()+"/cluster/events?follow", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	lines := bufio.NewScanner(resp.Body)
	for time.Since(start) < 4*bound {
		if !lines.Scan() {
			t.Fatalf("the stream ended after %s: %v", time.Since(start), lines.Err())
		}
	}
	resp.Body.Close()
	if err := errors.Join(s.Stop(t.Context()), <-served); err != nil {
		t.Error(err)
	}
}
