package cluster

import (
	"errors"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// An application sees the death of the leader as one slow write, on any member that is left: the port
// of a process that is gone refuses connections, and nobody waits for the election timeout (300 ms with
// the timings of dev) then.
func TestCluster_FailsOverFast(t *testing.T) {
	runs := 10
	if testing.Short() {
		runs = 3
	}
	const target = 250 * time.Millisecond // of the median
	c := Start(t, Binary(t), Options{})
	c.item("i")
	var took []time.Duration
	for range runs {
		c.healthy()
		leader := c.Leader()
		asked := c.besides(leader)
		pid := c.pid(leader)
		start := time.Now()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		c.view(asked)
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	median := took[len(took)/2]
	t.Logf("kill -9 of the leader to the next acknowledged write, %d runs: median %s, all %v", runs, median, took)
	if median > target {
		t.Errorf("median %s, want at most %s", median, target)
	}
}

// A leader that is paused may come back: its port takes connections, and the others wait for the
// election timeout. When it goes on, it finds that it was deposed, and nothing is lost.
func TestCluster_PausedLeaderTakesTheTimeout(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	c.item("i")
	leader := c.Leader()
	asked, pid := c.besides(leader), c.pid(leader)
	start := time.Now()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume := func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
	defer resume()
	c.Until("another leader", func() error {
		var st api.Members
		if err := c.Get(asked, "/cluster/members", &st); err != nil {
			return err
		}
		if st.Leader == nil || *st.Leader == leader {
			return errors.New("there is none")
		}
		return nil
	})
	took := time.Since(start)
	c.view(asked)
	t.Logf("SIGSTOP of the leader to the next one: %s", took)
	if took < 250*time.Millisecond {
		t.Errorf("after %s already: nobody waited for the timeout", took)
	}
	resume()
	c.healthy()
}

// SIGTERM is no election: the leader hands over before it stops, and no write takes longer than a
// handover, wherever it arrives.
func TestCluster_SIGTERMHandsOver(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	c.item("i")
	leader := c.Leader()
	asked := c.besides(leader)
	var before api.Status
	if err := c.Get(asked, "/cluster/status", &before); err != nil {
		t.Fatal(err)
	}
	c.Signal(leader, syscall.SIGTERM)
	var slowest time.Duration
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		start := time.Now()
		c.view(asked)
		slowest = max(slowest, time.Since(start))
	}
	var after api.Status
	if err := c.Get(asked, "/cluster/status", &after); err != nil {
		t.Fatal(err)
	}
	t.Logf("slowest write around a SIGTERM of the leader: %s", slowest)
	if after.Term != before.Term+1 || slowest > 250*time.Millisecond {
		t.Errorf("term %d, then %d; slowest write %s; want one term more and no timeout", before.Term, after.Term, slowest)
	}
}

// item creates an item.
func (c *Cluster) item(id string) {
	c.t.Helper()
	c.Until("the item "+id, func() error {
		_, err := c.Do(http.MethodPost, c.Members[0], "/items", map[string]string{"id": id}, nil)
		return err
	})
}

// view writes one signal through m, as often as it takes.
func (c *Cluster) view(m api.DevMember) {
	c.t.Helper()
	c.Until("a write through "+m.Name, func() error {
		_, err := c.Do(http.MethodPost, m, "/signals", api.Signal{Item: "i", Signal: "view"}, nil)
		return err
	})
}

// besides returns a member other than the one named.
func (c *Cluster) besides(name string) api.DevMember {
	return c.Members[slices.IndexFunc(c.Members, func(m api.DevMember) bool { return m.Name != name })]
}

// healthy waits until nothing is wrong.
func (c *Cluster) healthy() {
	c.t.Helper()
	c.Until("health", func() error {
		var st api.Status
		if err := c.Get(c.Members[0], "/cluster/status", &st); err != nil {
			return err
		}
		if st.Health.Level != api.HealthOK {
			return &api.Problem{Detail: st.Health.Level}
		}
		return nil
	})
}
