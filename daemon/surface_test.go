package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/config"
)

// The behaviours of one surface over several members, under the names that they had before: a forwarded
// write lands on the leader and replicates, promote fans out, status aggregates all regions, and is honest
// about one that does not answer, reconcile converges and says how long it took.

// regions are the members of a cluster, in this process, on real ports.
type regions struct {
	t     testing.TB
	names []string
	urls  map[string]string
	stops map[string]func() // idempotent
}

func startRegions(t testing.TB, names ...string) *regions {
	t.Helper()
	dir := t.TempDir()
	r := &regions{t: t, names: names, urls: map[string]string{}, stops: map[string]func(){}}
	file := "election: {tick: 20ms, heartbeat_ticks: 1, election_ticks: 15}\ndrills: {enabled: true}\nmembers:\n"
	for _, name := range names {
		addr := freeAddr(t)
		r.urls[name] = "http://" + addr
		file += fmt.Sprintf("  - {name: %s, http_addr: %q, grpc_addr: %q}\n", name, addr, freeAddr(t))
	}
	path := filepath.Join(dir, "tidal.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		c, err := config.Load(config.Flags{Config: path, Name: name, DataDir: filepath.Join(dir, name)}, func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		d, err := New(Options{Config: c, Version: "test"})
		if err == nil {
			err = d.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		stopped := false
		r.stops[name] = func() {
			if stopped {
				return
			}
			stopped = true
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := d.Stop(ctx); err != nil {
				t.Error(err)
			}
		}
		t.Cleanup(r.stops[name])
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	r.until("every member agrees on a leader", func() error {
		for _, name := range names {
			if s := r.status(name); s.Leader == nil || !s.Consistent || s.Health.Level != api.HealthOK {
				return fmt.Errorf("%s: leader %v, %+v", name, s.Leader, s.Health)
			}
		}
		return nil
	})
	return r
}

func (r *regions) do(name, method, path, body string, into any) (http.Header, error) {
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.urls[name]+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		p := &api.Problem{}
		return resp.Header, errors.Join(json.NewDecoder(resp.Body).Decode(p), p)
	}
	if into == nil {
		return resp.Header, nil
	}
	return resp.Header, json.NewDecoder(resp.Body).Decode(into)
}

func (r *regions) must(name, method, path, body string, into any) http.Header {
	r.t.Helper()
	h, err := r.do(name, method, path, body, into)
	if err != nil {
		r.t.Fatalf("%s %s of %s: %v", method, path, name, err)
	}
	return h
}

func (r *regions) status(name string) (s api.Status) {
	r.t.Helper()
	r.must(name, "GET", "/cluster/status", "", &s)
	return s
}

// leader returns the leader, and the others.
func (r *regions) leader() (string, []string) {
	r.t.Helper()
	leader := *r.status(r.names[0]).Leader
	return leader, slices.DeleteFunc(slices.Clone(r.names), func(name string) bool { return name == leader })
}

func (r *regions) until(what string, f func() error) {
	r.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			r.t.Fatalf("%s: %v", what, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestSurface_ForwardedWriteLandsOnLeaderAndReplicates(t *testing.T) {
	r := startRegions(t, "us-east", "us-west", "ap-south")
	leader, others := r.leader()
	r.must(others[0], "POST", "/items", `{"id":"i"}`, nil)
	h := r.must(others[1], "POST", "/signals", `{"item":"i","signal":"view"}`, nil)
	if h.Get(api.HeaderMember) != leader || h.Get(api.HeaderAck) != api.AckQuorum {
		t.Errorf("a write through %s was answered by %s with %s", others[1], h.Get(api.HeaderMember), h.Get(api.HeaderAck))
	}
	for _, name := range r.names {
		var item api.ItemAnswer
		h := r.must(name, "GET", "/items/i?min_index="+h.Get(api.HeaderIndex), "", &item)
		if item.Signals["view"].Count != 1 || h.Get(api.HeaderMember) != name {
			t.Errorf("on %s: %+v, answered by %s", name, item, h.Get(api.HeaderMember))
		}
		h = r.must(leader, "GET", "/items/i?region="+name, "", &item)
		if h.Get(api.HeaderMember) != name {
			t.Errorf("a read with region=%s was answered by %s", name, h.Get(api.HeaderMember))
		}
	}
}

func TestSurface_PromoteFansOut(t *testing.T) {
	r := startRegions(t, "us-east", "us-west", "ap-south")
	leader, others := r.leader()
	var p api.Promoted
	r.must(others[1], "POST", "/cluster/promote", `{"region":"`+others[0]+`"}`, &p)
	began := time.Now()
	if !p.OK || *p.Leader != others[0] || len(p.Acked) != 3 || len(p.Failed) != 0 {
		t.Errorf("promote: %+v", p)
	}
	for _, name := range r.names {
		if s := r.status(name); s.Leader == nil || *s.Leader != others[0] || s.Term != p.Term {
			t.Errorf("%s sees %v lead term %d", name, s.Leader, s.Term)
		}
	}
	t.Logf("three views agree %s after the promote was answered", time.Since(began))
	if h := r.must(leader, "POST", "/items", `{"id":"i"}`, nil); h.Get(api.HeaderMember) != others[0] {
		t.Errorf("a write through the old leader was answered by %s", h.Get(api.HeaderMember))
	}
}

func TestSurface_StatusAggregatesAllRegions(t *testing.T) {
	r := startRegions(t, "us-east", "us-west", "ap-south")
	leader, others := r.leader()
	h := r.must(others[0], "POST", "/items", `{"id":"i"}`, nil)
	index, err := strconv.ParseUint(h.Get(api.HeaderIndex), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range r.names {
		r.until("the lag of all is gone", func() error {
			s := r.status(name)
			if *s.Leader != leader || s.Observer != name || *s.RelayLogLen < index || len(s.Regions) != 3 {
				t.Fatalf("status of %s: %+v", name, s)
			}
			for i, row := range s.Regions {
				if row.Name != r.names[i] || !row.Reachable || row.Partitioned || row.Faults == nil {
					t.Fatalf("row of %s, by %s: %+v", r.names[i], name, row)
				}
				if *row.LagEvents != 0 {
					return fmt.Errorf("%s is %d behind", row.Name, *row.LagEvents)
				}
			}
			return nil
		})
	}
}

func TestSurface_StatusStaysHonestAboutTheUnreachable(t *testing.T) {
	r := startRegions(t, "us-east", "us-west", "ap-south")
	leader, others := r.leader()
	r.must(leader, "POST", "/items", `{"id":"i"}`, nil)
	r.stops[others[0]]()
	for _, name := range []string{leader, others[1]} {
		s := r.status(name)
		row := s.Regions[slices.Index(r.names, others[0])]
		if row.Reachable || !row.Partitioned || row.AppliedEvents != 0 || *row.LagEvents != *s.RelayLogLen || row.Term != nil || row.Faults != nil || row.Error.Code != "refused" {
			t.Errorf("by %s, the row of a member that is gone: %+v", name, row)
		}
		if row.LastSeen == nil || row.LastSeen.After(s.At) || s.At.Sub(*row.LastSeen) > time.Minute {
			t.Errorf("by %s at %s, a member that is gone was last seen %v", name, s.At, row.LastSeen)
		}
		if s.Health.Level != api.HealthDegraded || s.Quorum.Up != 2 || s.Quorum.Spare != 0 {
			t.Errorf("by %s: %+v, %+v", name, s.Health, s.Quorum)
		}
	}
	r.stops[leader]() // a minority is left: it says so, and still answers
	r.until("the last one knows no leader", func() error {
		if s := r.status(others[1]); s.Leader != nil || s.Health.Level != api.HealthCritical || len(s.Regions) != 3 {
			return fmt.Errorf("%v, %+v", s.Leader, s.Health)
		}
		return nil
	})
}

// What two sides of a split took apart is on both after a reconcile, which needs no leader, says how long each
// side took, and has nothing left to do the second time. When the split is over everything counts once.
func TestSurface_ReconcileConvergesAndTimes(t *testing.T) {
	r := startRegions(t, "us-east", "us-west", "ap-south")
	leader, others := r.leader()
	h := r.must(leader, "POST", "/items", `[{"id":"a"},{"id":"b"}]`, nil)
	for _, name := range r.names {
		r.must(name, "GET", "/items/b?min_index="+h.Get(api.HeaderIndex), "", nil)
	}
	r.stops[leader]()
	r.until("nobody leads", func() error {
		for _, name := range others {
			if s := r.status(name); s.Leader != nil && *s.Leader == leader {
				return fmt.Errorf("%s names %s", name, *s.Leader)
			}
		}
		return nil
	})
	one, two := others[0], others[1]
	// Two of three would elect a leader and deliver: they must not talk.
	r.must(one, "POST", "/cluster/partition", `{"region":"`+two+`","duration_ms":60000,"operation_id":"split"}`, nil)
	r.until("both are alone", func() error {
		for _, name := range others {
			var s api.LocalStatus
			r.must(name, "GET", "/cluster/status/local", "", &s)
			if s.Groups[0].Leader != nil {
				return fmt.Errorf("%s still has a leader", name)
			}
		}
		return nil
	})
	r.must(one, "POST", "/hardnegs?ack=local", `{"user":"u","item":"b","op":"hide"}`, nil)
	r.must(one, "POST", "/signals?ack=local", `[{"item":"a","signal":"view"},{"item":"a","signal":"view"}]`, nil)
	r.must(two, "POST", "/signals?ack=local", `{"item":"a","signal":"view"}`, nil)
	shows := func(name string, views uint64, feed int) error {
		var item api.ItemAnswer
		r.must(name, "GET", "/items/a", "", &item)
		var f api.FeedAnswer
		r.must(name, "GET", "/feed?user=u", "", &f)
		if item.Signals["view"].Count != views || len(f.Results) != feed {
			return fmt.Errorf("%s shows %d views and a feed of %d, want %d and %d", name, item.Signals["view"].Count, len(f.Results), views, feed)
		}
		return nil
	}
	if err := errors.Join(shows(one, 2, 1), shows(two, 1, 2)); err != nil {
		t.Errorf("while they are apart: %v", err)
	}
	body := `{"region":"` + two + `"}`
	r.must(one, "POST", "/cluster/heal", `{"id":"split"}`, nil)
	var first, second api.Reconciled
	r.must(one, "POST", "/cluster/reconcile", body, &first)
	if !first.OK || first.LocalElapsedMS < 1 || first.RemoteElapsedMS < 1 || first.OpsApplied > 4 || first.Region != two {
		t.Errorf("the first reconcile: %+v", first)
	}
	// The outbox carries it or, if a leader was quick, the log: in either case it is on both sides.
	if err := errors.Join(shows(one, 3, 1), shows(two, 3, 1)); err != nil {
		t.Errorf("after the reconcile: %v", err)
	}
	r.must(one, "POST", "/cluster/reconcile", body, &second)
	if !second.OK || second.OpsApplied != 0 {
		t.Errorf("the second reconcile: %+v, want nothing to do", second)
	}
	r.until("everything is in the log", func() error {
		for _, name := range others {
			if s := r.status(name); s.Leader == nil || s.Regions[slices.Index(r.names, name)].Outbox.Pending != 0 {
				return fmt.Errorf("%s: leader %v, outbox %+v", name, s.Leader, s.Regions[slices.Index(r.names, name)].Outbox)
			}
		}
		return errors.Join(shows(one, 3, 1), shows(two, 3, 1))
	})
}

// A member that is cut off is cut off from everything: the log, forwarded writes, reads for it; its
// fault is seen on every member and from itself, and ends without the network that it cuts.
func TestSurface_AnIsolatedMemberIsCutOff(t *testing.T) {
	r := startRegions(t, "us-east", "us-west", "ap-south")
	leader, others := r.leader()
	cut, other := others[0], others[1]
	r.must(leader, "POST", "/items", `{"id":"i"}`, nil)
	var p api.Partitioned
	r.must(other, "POST", "/cluster/partition", `{"region":"`+cut+`","duration_ms":60000}`, &p)
	if !p.OK || !slices.Equal(p.Acked, []string{cut}) {
		t.Fatalf("partition: %+v", p)
	}
	h := r.must(other, "POST", "/signals", `{"item":"i","signal":"view"}`, nil)
	if h.Get(api.HeaderReplicatedTo) != "1" || h.Get(api.HeaderPending) != cut {
		t.Errorf("a write without %s: replicated to %s, pending %s", cut, h.Get(api.HeaderReplicatedTo), h.Get(api.HeaderPending))
	}
	_, err := r.do(cut, "POST", "/signals", `{"item":"i","signal":"view"}`, nil)
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Effect != api.EffectNone || p.Code != api.CodeLeaderUnreached && p.Code != api.CodeNoLeader {
		t.Errorf("a write through %s: %v", cut, err)
	}
	if _, err := r.do(cut, "GET", "/items/i?consistency=linearizable", "", nil); err == nil {
		t.Errorf("%s serves a linearizable read", cut)
	}
	for _, name := range r.names {
		s := r.status(name)
		row := s.Regions[slices.Index(r.names, cut)]
		if !row.Reachable || !row.Partitioned || len(row.Faults) != 2 || s.Quorum.Up != 2 || s.Health.Level != api.HealthDegraded || s.Leader == nil || *s.Leader != leader {
			t.Errorf("by %s: leader %v, %+v, row %+v", name, s.Leader, s.Health, row)
		}
	}
	var healed api.Healed
	r.must(cut, "POST", "/cluster/heal", ``, &healed)
	if !healed.OK || len(healed.Healed) != 2 || len(healed.Acked) != 3 {
		t.Errorf("heal by %s: %+v", cut, healed)
	}
	r.must(cut, "GET", "/items/i?min_index="+h.Get(api.HeaderIndex), "", nil)
	r.until("all is well", func() error {
		if s := r.status(cut); s.Health.Level != api.HealthOK {
			return fmt.Errorf("%+v", s.Health)
		}
		return nil
	})
	var events []string
	resp, err := http.Get(r.urls[cut] + "/cluster/events?limit=500")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for d := json.NewDecoder(resp.Body); d.More(); {
		var e api.Event
		if err := d.Decode(&e); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(e.Kind, "fault_") {
			events = append(events, e.Kind)
		}
	}
	if !slices.Equal(events, []string{"fault_begun", "fault_ended"}) {
		t.Errorf("events of %s: %q", cut, events)
	}
}
