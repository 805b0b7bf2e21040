package daemon

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidaldb/tidal/daemon/api"
)

// kinds reads lines of events.
func kinds(t *testing.T, body string) (kinds []string, last api.Event) {
	t.Helper()
	for line := range strings.Lines(body) {
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if last.Kind != api.EventHeartbeat {
			kinds = append(kinds, last.Kind)
		}
	}
	return kinds, last
}

// A member tells its life from the first event of a boot to the last, and a reader of the boot before
// learns that it has to begin anew.
func TestEvents_OfABoot(t *testing.T) {
	c := load(t, filepath.Join(t.TempDir(), "data"), "alice")
	url := "http://" + c.HTTPBind + "/cluster/events"

	d, err := New(Options{Config: c, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	if st, b := request(t, "POST", "http://"+c.HTTPBind+"/items", `{"id":"a"}`); st != http.StatusCreated { // there is a leader
		t.Fatalf("POST /items = %d %s", st, b)
	}
	_, body := request(t, "GET", url, "")
	got, last := kinds(t, body)
	if want := []string{"started", "born", "roster_applied"}; !slices.Equal(got[:min(3, len(got))], want) || !slices.Contains(got, "leader_elected") || !slices.Contains(got, "state_changed") {
		t.Errorf("events %v", got)
	}
	if !strings.HasPrefix(last.ID, "1-") || last.Member != "alice" {
		t.Errorf("last event %+v", last)
	}

	req, err := http.NewRequestWithContext(t.Context(), "GET", url+"?follow&after="+last.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	stream, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	if err := d.Stop(context.Background()); err != nil {
		t.Errorf("Stop: %v", err)
	}
	rest, err := io.ReadAll(stream.Body)
	if got, _ := kinds(t, string(rest)); err != nil || !slices.Equal(got, []string{"stopping"}) {
		t.Errorf("followed %v, %v", got, err)
	}

	stop := run(t, c)
	defer stop()
	st, body := request(t, "GET", url+"?after="+last.ID, "")
	var p api.Problem
	if err := json.Unmarshal([]byte(body), &p); err != nil || st != http.StatusGone || p.Code != api.CodeCompacted || p.Floor != "2-0" {
		t.Errorf("after a restart: %d %s", st, body)
	}
	_, body = request(t, "GET", url+"?after="+p.Floor, "")
	if got, _ := kinds(t, body); len(got) < 2 || got[0] != "started" || got[1] != "roster_applied" {
		t.Errorf("events %v", got)
	}
}
