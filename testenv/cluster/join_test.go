package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// compacting has dev keep so little of the log that a joiner can never replay it.
func compacting() []string {
	return []string{"--set", "replication.log_keep=128KiB", "--set", "replication.log_segment=64KiB", "--set", "replication.pin_cap=64MiB"}
}

// A member that knows one follower joins a cluster whose log begins after its first entries: by an
// artifact, without a verb, and votes by itself. A restart needs no seed. Removed, it is told, is not
// ready, and disturbs nobody.
func TestJoin_BySeedThenRemoved(t *testing.T) {
	binary := Binary(t)
	c := Start(t, binary, Options{Args: compacting()})
	l := NewLedger(c, 8)
	l.During(func() { l.WaitAcked(100) })
	compactPastTheFirst(c)
	e := c.Extra(binary, "eu-join", Seeds(c.Member(follower(c)))...)
	start := time.Now()
	e.Start()
	row := c.WaitRole("eu-join", api.RoleVoter)
	t.Logf("empty directory to voter: %s", time.Since(start).Round(time.Millisecond))
	if row.ID != "4" {
		t.Errorf("eu-join is member %s, want 4", row.ID)
	}
	c.Members = append(c.Members, e.DevMember)
	if g := group(c, "eu-join"); g.FirstIndex <= 2 {
		t.Errorf("the log of eu-join begins at %d: it was replayed", g.FirstIndex)
	}
	if kinds := kindsOf(c, "eu-join"); !slices.Contains(kinds, "joined") {
		t.Errorf("eu-join saw %v", kinds)
	}
	l.During(func() { l.WaitAcked(200) })

	e.args = nil // no seed
	e.Kill()
	e.Start()
	c.WaitRole("eu-join", api.RoleVoter)
	l.During(func() { l.WaitAcked(100) })
	l.Check()

	term := termOf(c)
	c.MustRemove("eu-join")
	c.Until("eu-join is told", func() error {
		_, err := c.Do(http.MethodGet, e.DevMember, "/readyz", nil, nil)
		p, ok := errors.AsType[*api.Problem](err)
		if !ok || p.Status != http.StatusServiceUnavailable || !strings.Contains(p.Detail, "removed") {
			return fmt.Errorf("readyz: %v", err)
		}
		return nil
	})
	c.Until("the tombstone is acked", func() error {
		var m api.Members
		if err := c.Get(c.Members[0], "/cluster/members", &m); err != nil {
			return err
		}
		if len(m.Tombstones) != 1 || !m.Tombstones[0].Acked || m.Tombstones[0].Name != "eu-join" {
			return fmt.Errorf("tombstones %+v", m.Tombstones)
		}
		return nil
	})
	e.Kill()
	e.Start() // it knows, and asks nobody
	c.Members = c.Members[:3]
	l.During(func() { l.WaitAcked(200) })
	if now := termOf(c); now != term {
		t.Errorf("term %d, was %d before the removal", now, term)
	}
	e.Stop()
	c.Audit(l)
}

// A declared member whose directory is gone comes back by itself, under a new id.
func TestJoin_LostDiskComesBack(t *testing.T) {
	c := Start(t, Binary(t), Options{Args: []string{"--set", "membership.replace_grace=1s"}})
	l := NewLedger(c, 8)
	l.During(func() { l.WaitAcked(100) })
	victim := follower(c)
	before := c.WaitRole(victim, api.RoleVoter).ID
	pid := c.pid(victim)
	start := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(c.Member(victim).Dir); err != nil { // dev starts it again in 2 s
		t.Fatal(err)
	}
	l.During(func() {
		c.Until(victim+" is back under a new id", func() error {
			var st api.Status
			if err := c.anyStatus(&st); err != nil {
				return err
			}
			voters := 0
			back := false
			for _, r := range st.Regions {
				if r.Role == api.RoleVoter {
					voters++
				}
				back = back || r.Name == victim && r.Role == api.RoleVoter && r.ID != before && r.Reachable
			}
			if !back || voters != 3 || len(st.Regions) != 3 {
				return fmt.Errorf("%d voters, back %t, regions %+v", voters, back, st.Regions)
			}
			return nil
		})
		l.WaitAcked(100)
	})
	t.Logf("kill and wiped directory to voter again: %s", time.Since(start).Round(time.Millisecond))
	healthy(c)
	c.Audit(l)
}

// compactPastTheFirst fills the log until no member holds its first entries.
func compactPastTheFirst(c *Cluster) {
	c.Until("the leader has dropped the first entries", func() error {
		leader := c.Member(c.Leader())
		fill(c, leader, 16)
		if first := group(c, leader.Name).FirstIndex; first <= 2 {
			return fmt.Errorf("its log begins at %d", first)
		}
		return nil
	})
}

func kindsOf(c *Cluster, name string) (kinds []string) {
	for _, e := range events(c, name) {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func termOf(c *Cluster) uint64 {
	var st api.Status
	c.Until("a status with a leader", func() error { return c.anyStatus(&st) })
	return st.Term
}
