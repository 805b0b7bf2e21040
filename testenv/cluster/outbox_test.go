//go:build soak

package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// take writes n signals of item with ack=local to a member, from several clients, and adds them to the
// claims of the ledger's client that owns item.
func (l *Ledger) take(m api.DevMember, n int) {
	l.c.t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	each := (n + len(l.clients) - 1) / len(l.clients)
	for _, w := range l.clients {
		wg.Go(func() {
			for range each {
				id := fmt.Sprintf("%s/local/%06d", w.item, w.count)
				w.count++
				_, err := do(l.c.http, http.MethodPost, m, "/signals?ack=local", api.Signal{Item: w.item, Signal: "view", User: id}, nil)
				mu.Lock()
				if err == nil {
					w.claims.Acked = append(w.claims.Acked, id)
				} else {
					l.c.t.Errorf("%s takes no write: %v", m.Name, err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// views adds up what a member shows of all clients' items.
func (l *Ledger) views(m api.DevMember) (n uint64, err error) {
	for _, w := range l.clients {
		var it api.ItemAnswer
		if err := l.c.Get(m, "/items/"+w.item, &it); err != nil {
			return 0, err
		}
		n += it.Signals["view"].Count
	}
	return n, nil
}

// shows waits until a member shows n views.
func (l *Ledger) shows(m api.DevMember, n uint64) {
	l.c.t.Helper()
	l.c.Until(fmt.Sprintf("%d views on %s", n, m.Name), func() error {
		if got, err := l.views(m); err != nil || got != n {
			return fmt.Errorf("it shows %d, %v", got, err)
		}
		return nil
	})
}

// pending is what waits in the outbox of a member.
func pending(c *Cluster, m api.DevMember) api.Outbox {
	var s api.LocalStatus
	c.Until("the status of "+m.Name, func() error { return c.Get(m, "/cluster/status/local", &s) })
	return s.Outbox
}

// delivered waits until nothing waits on any member.
func delivered(c *Cluster, members ...api.DevMember) {
	for _, m := range members {
		c.Until(m.Name+" holds nothing", func() error {
			if s := pending(c, m); s.Pending > 0 {
				return fmt.Errorf("it holds %+v", s)
			}
			return nil
		})
	}
}

// sees reports whether user sees item in the feed of a member.
func sees(c *Cluster, m api.DevMember, user, item string) bool {
	c.t.Helper()
	var feed api.FeedAnswer
	if err := c.Get(m, "/feed?limit=1000&user="+user, &feed); err != nil {
		c.t.Fatalf("feed of %s: %v", m.Name, err)
	}
	for _, r := range feed.Results {
		if r.ID == item {
			return true
		}
	}
	return false
}

// reconcile exchanges the outboxes of two members.
func reconcile(c *Cluster, m, with api.DevMember) (r api.Reconciled) {
	c.t.Helper()
	if _, err := c.Do(http.MethodPost, m, "/cluster/reconcile", api.ReconcileRequest{Region: with.Name}, &r); err != nil || !r.OK {
		c.t.Fatalf("reconcile %s with %s: %+v, %v", m.Name, with.Name, r, err)
	}
	return r
}

// Two of five members are left without a leader, take writes, and exchange them. One of them is gone
// when the others come back: what it took is delivered by the other one, once, and it finds that so when
// it returns.
func TestSoak_ReconcileOutlivesTheOrigin(t *testing.T) {
	c := Start(t, Binary(t), Options{Nodes: 5})
	l := NewLedger(c, 8)
	l.During(func() { l.WaitAcked(200) })
	leader := c.Member(c.Leader())
	var before uint64
	c.Until("the views before", func() (err error) {
		before, err = l.views(leader)
		return err
	})
	for _, m := range c.Members {
		l.shows(m, before)
	}
	var cutOff, gone []api.DevMember // without a leader; with it
	for _, m := range c.Members {
		if m.Name != leader.Name && len(cutOff) < 2 {
			cutOff = append(cutOff, m)
		} else {
			gone = append(gone, m)
		}
	}
	var resume []func()
	for _, m := range gone {
		resume = append(resume, c.Pause(m.Name))
	}
	origin, heir := cutOff[0], cutOff[1]
	l.take(origin, 400)
	l.take(heir, 200)
	hidden := l.clients[0].item
	if _, err := c.Do(http.MethodPost, origin, "/hardnegs?ack=local", api.HardNeg{User: "u", Item: hidden, Op: "hide"}, nil); err != nil {
		t.Fatal(err)
	}
	if sees(c, origin, "u", hidden) || !sees(c, heir, "u", hidden) {
		t.Error("before the exchange, the hide is not where it was taken, or elsewhere")
	}
	if r := reconcile(c, heir, origin); r.LocalOpsApplied != 401 || r.RemoteOpsApplied != 200 {
		t.Errorf("the exchange brought %d and %d operations, want 401 and 200", r.LocalOpsApplied, r.RemoteOpsApplied)
	}
	if r := reconcile(c, origin, heir); r.OpsApplied != 0 {
		t.Errorf("another exchange brought %d operations", r.OpsApplied)
	}
	for _, m := range cutOff {
		l.shows(m, before+600)
		if sees(c, m, "u", hidden) {
			t.Errorf("after the exchange %s does not hide", m.Name)
		}
	}
	back := c.Pause(origin.Name)
	for _, f := range resume {
		f()
	}
	rest := append([]api.DevMember{heir}, gone...)
	delivered(c, rest...)
	for _, m := range rest {
		l.shows(m, before+600)
		if sees(c, m, "u", hidden) {
			t.Errorf("after delivery %s does not hide", m.Name)
		}
	}
	back()
	delivered(c, origin)
	for _, m := range c.Members {
		l.shows(m, before+600)
	}
	c.Audit(l)
}

// Every member is cut off from every other one and takes writes by itself; after the heal members reconcile
// while they deliver, and everything counts once everywhere.
func TestSoak_SplitAndReconcile(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	l := NewLedger(c, 8)
	l.During(func() { l.WaitAcked(200) })
	healthy(c)
	var before uint64
	c.Until("the views before", func() (err error) {
		before, err = l.views(c.Member(c.Leader()))
		return err
	})
	for _, m := range c.Members {
		l.shows(m, before)
	}
	var split [][]string
	for _, m := range c.Members {
		split = append(split, []string{m.Name})
	}
	var cut api.Partitioned
	if _, err := c.Do(http.MethodPost, c.Members[0], "/cluster/partition", api.PartitionRequest{Split: split, DurationMS: 60_000}, &cut); err != nil || !cut.OK {
		t.Fatalf("partition: %+v, %v", cut, err)
	}
	const each = 120
	for _, m := range c.Members {
		l.take(m, each)
	}
	_, err := c.Do(http.MethodPost, c.Members[0], "/cluster/reconcile", api.ReconcileRequest{Region: c.Members[1].Name}, nil)
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.CodeMemberUnreached {
		t.Errorf("reconcile over a cut: %v", err)
	}
	var healed api.Healed
	if _, err := c.Do(http.MethodPost, c.Members[0], "/cluster/heal", api.HealRequest{}, &healed); err != nil || !healed.OK {
		t.Fatalf("heal: %+v, %v", healed, err)
	}
	total := before + each*uint64(len(c.Members))
	for i, m := range c.Members {
		with := c.Members[(i+1)%len(c.Members)]
		r := reconcile(c, m, with)
		t.Logf("%s with %s: %d and %d operations", m.Name, with.Name, r.LocalOpsApplied, r.RemoteOpsApplied)
	}
	delivered(c, c.Members...)
	for i, m := range c.Members {
		l.shows(m, total)
		if r := reconcile(c, m, c.Members[(i+1)%len(c.Members)]); r.OpsApplied != 0 {
			t.Errorf("a second reconcile brought %d operations", r.OpsApplied)
		}
	}
	for _, m := range c.Members {
		l.shows(m, total)
	}
	c.Audit(l)
}

// What an exchange of two large outboxes takes, in time and in memory.
func TestSoak_ReconcileOfLargeOutboxes(t *testing.T) {
	const ops, mostBytes = 100_000, 200_000_000
	c := Start(t, Binary(t), Options{Nodes: 5})
	l := NewLedger(c, 16)
	leader := c.Leader()
	var sides []api.DevMember
	for _, m := range c.Members {
		if m.Name != leader && len(sides) < 2 {
			sides = append(sides, m)
		} else {
			defer c.Pause(m.Name)()
		}
	}
	pids := []int{c.pid(sides[0].Name), c.pid(sides[1].Name)}
	start := time.Now()
	for _, m := range sides {
		l.take(m, ops)
	}
	took := time.Since(start)
	for _, pid := range pids {
		resetPeak(t, pid)
	}
	start = time.Now()
	r := reconcile(c, sides[0], sides[1])
	whole := time.Since(start)
	line := fmt.Sprintf("reconcile of two outboxes of %d operations: %d ms, of which %d and %d ms to merge, at most %.0f and %.0f MB resident; %.0f writes a second were taken",
		ops, whole.Milliseconds(), r.LocalElapsedMS, r.RemoteElapsedMS, float64(peak(t, pids[0]))/1e6, float64(peak(t, pids[1]))/1e6, 2*ops/took.Seconds())
	t.Log(line)
	fmt.Println("outbox:", line)
	if r.LocalOpsApplied != ops || r.RemoteOpsApplied != ops {
		t.Errorf("it brought %d and %d operations", r.LocalOpsApplied, r.RemoteOpsApplied)
	}
	for i, pid := range pids {
		if n := peak(t, pid); n > mostBytes {
			t.Errorf("%s had %d bytes resident, want at most %d", sides[i].Name, n, mostBytes)
		}
	}
	if r := reconcile(c, sides[1], sides[0]); r.OpsApplied != 0 {
		t.Errorf("another exchange brought %d operations", r.OpsApplied)
	}
	for _, m := range sides {
		l.shows(m, 2*ops)
	}
}

// resetPeak has the kernel forget how large a process was.
func resetPeak(t *testing.T, pid int) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		t.Logf("the peak is that since the start: %v", err)
	}
}

// peak returns the most bytes that a process had resident.
func peak(t *testing.T, pid int) (bytes int64) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			if _, err := fmt.Sscan(kb, &bytes); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
	}
	return bytes * 1024
}
