package cluster

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// An application sees the death of the leader as one slow write, on any member that is left: the port
// of a process that is gone refuses connections, and nobody waits for the election timeout (300 ms with
// the timings of dev) then.
func TestCluster_FailsOver(t *testing.T) { failOver(t, 2) }

// failOver kills the leader so many times and logs how long the next write took: a figure for people,
// for a busy machine has its own.
func failOver(t *testing.T, runs int) {
	c := Start(t, Binary(t), Options{})
	c.item("i")
	var took []time.Duration
	for range runs {
		healthy(c)
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
	t.Logf("kill -9 of the leader to the next acknowledged write, %d runs: median %s, all %v", runs, took[len(took)/2], took)
}

// A leader that is paused may come back: its port takes connections, and the others wait for the
// election timeout. When it goes on, it finds that it was deposed, and nothing is lost.
func TestCluster_PausedLeaderTakesTheTimeout(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	c.item("i")
	leader := c.Leader()
	asked := c.besides(leader)
	start := time.Now()
	resume := c.Pause(leader)
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
	healthy(c)
}

// SIGTERM is no election: the leader hands over before it stops, and writes go on wherever they arrive.
func TestCluster_SIGTERMHandsOver(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	c.item("i")
	leader := c.Leader()
	asked := c.besides(leader)
	c.Signal(leader, syscall.SIGTERM)
	var slowest time.Duration
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		start := time.Now()
		c.view(asked)
		slowest = max(slowest, time.Since(start))
	}
	t.Logf("slowest write around a SIGTERM of the leader: %s", slowest)
	log, err := os.ReadFile(filepath.Join(c.Dir, leader+".log"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), "leadership handed over") {
		t.Errorf("the log of %s does not say that it handed over:\n%s", leader, log)
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
