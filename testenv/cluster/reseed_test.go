package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/tidaldb/tidal/daemon/api"
)

// A member that was down while the others dropped the log it needs comes back by one install, in the
// process that it started as, and then follows the log.
func TestReseed_AfterTheLogWasCompacted(t *testing.T) {
	c := Start(t, Binary(t), Options{Args: []string{
		"--set", "replication.log_keep=128KiB", "--set", "replication.log_segment=64KiB", "--set", "replication.pin_cap=64MiB",
	}})
	l := NewLedger(c, 16)
	l.During(func() { l.WaitAcked(200) })
	name := follower(c)
	was := group(c, name)
	pid := c.pid(name)
	c.Pause(name)
	leader := c.Member(c.Leader())
	c.Until("the leader has dropped what "+name+" needs", func() error {
		fill(c, leader, 16)
		if first := group(c, leader.Name).FirstIndex; first <= was.LastIndex+1 {
			return fmt.Errorf("its log begins at %d, %s ends at %d", first, name, was.LastIndex)
		}
		return nil
	})
	l.During(func() {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil { // dev starts it again
			t.Error(err)
		}
		c.Until(name+" has caught up", func() error {
			g := group(c, name)
			if g.ReseedRequired || g.AppliedIndex <= was.LastIndex || g.LeaderLast == nil || *g.LeaderLast > g.AppliedIndex+1000 {
				return fmt.Errorf("it stands at %+v", g)
			}
			return nil
		})
		l.WaitAcked(200)
	})
	healthy(c)
	installs := 0
	for _, e := range events(c, name) {
		if e.Kind == "installed" {
			installs++
			t.Log(e.Text)
		}
	}
	if installs != 1 {
		t.Errorf("%s installed %d artifacts, want 1", name, installs)
	}
	c.Audit(l)
}

// events is what a member saw happen in this boot.
func events(c *Cluster, name string) (all []api.Event) {
	resp, err := c.http.Get(c.Member(name).HTTP + "/cluster/events?limit=1000")
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	for d := json.NewDecoder(resp.Body); ; {
		var e api.Event
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			c.t.Fatal(err)
		}
		all = append(all, e)
	}
}

// fill makes the log longer by n items of 16 KiB.
func fill(c *Cluster, m api.DevMember, n int) {
	for i := range n {
		item := map[string]any{"id": fmt.Sprintf("filler-%d", i), "attrs": map[string]string{"text": strings.Repeat("x", 16<<10)}}
		if _, err := c.Do(http.MethodPost, m, "/items", item, nil); err != nil {
			c.t.Errorf("write a filler: %v", err)
		}
	}
}

// follower returns the name of a member that does not lead.
func follower(c *Cluster) string {
	leader := c.Leader()
	for _, m := range c.Members {
		if m.Name != leader {
			return m.Name
		}
	}
	panic("a cluster of one")
}

// group returns group 0 of a member, as it sees itself.
func group(c *Cluster, name string) api.GroupStatus {
	var local api.LocalStatus
	c.Until("the status of "+name, func() error { return c.Get(c.Member(name), "/cluster/status/local", &local) })
	if len(local.Groups) == 0 {
		return api.GroupStatus{}
	}
	return local.Groups[0]
}
