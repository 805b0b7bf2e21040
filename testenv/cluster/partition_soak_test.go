//go:build soak

package cluster

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

func TestSoak_PartitionOfTheLeader(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	isolateLeader(c, NewLedger(c, 16), 3)
}

// A follower that is cut off falls behind, disturbs nobody when it returns, and catches up.
func TestSoak_PartitionOfAFollower(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	l := NewLedger(c, 16)
	for range 2 {
		l.During(func() {
			leader := c.Leader()
			cut := c.besides(leader)
			term := c.status(c.Member(leader)).Term
			c.partition(cut, api.PartitionRequest{Region: cut.Name})
			l.WaitAcked(100)
			if s := c.status(cut); !s.Regions[slices.IndexFunc(s.Regions, func(r api.Region) bool { return r.Name == cut.Name })].Partitioned {
				t.Errorf("%s does not see that it is cut off: %+v", cut.Name, s)
			}
			c.heal(cut)
			l.WaitAcked(60)
			if s := c.status(c.Member(leader)); s.Leader == nil || *s.Leader != leader || s.Term != term {
				t.Errorf("a follower that returned deposed %s, which led term %d: %v leads term %d", leader, term, s.Leader, s.Term)
			}
		})
		c.whole()
	}
	c.Audit(l)
}

// A leader that is heard and hears nobody, and one that hears and is not heard: both are replaced.
func TestSoak_PartitionOneWay(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	l := NewLedger(c, 16)
	for _, direction := range []string{api.DirectionIn, api.DirectionOut} {
		l.During(func() {
			l.WaitAcked(60)
			old := c.Leader()
			rest := c.others(old)
			c.partition(rest[0], api.PartitionRequest{Region: old, Direction: direction})
			c.leads(rest[0], names(rest)...)
			l.WaitAcked(60)
			c.heal(rest[1])
			l.WaitAcked(60)
		})
		c.whole()
	}
	c.Audit(l)
}

// Two sides of five: the larger one goes on, the smaller one takes no write and says why.
func TestSoak_PartitionSplitsFive(t *testing.T) {
	c := Start(t, Binary(t), Options{Nodes: 5})
	l := NewLedger(c, 16)
	for range 2 {
		l.During(func() {
			l.WaitAcked(60)
			old := c.Leader()
			small := []string{old, c.others(old)[0].Name}
			large := c.others(small...)
			c.partition(large[0], api.PartitionRequest{Split: [][]string{small, names(large)}})
			c.leads(large[0], names(large)...)
			l.WaitAcked(60)
			for _, name := range small {
				_, err := c.Do(http.MethodPost, c.Member(name), "/signals", api.Signal{Item: "client-000", Signal: "?"}, nil)
				if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status < 500 {
					t.Errorf("a write to the smaller side, through %s: %v", name, err)
				}
			}
			s := c.status(large[0])
			if s.Quorum.Up != 3 || s.Quorum.Spare != 0 || len(s.Regions) != 5 {
				t.Errorf("by the larger side: %+v, %+v", s.Quorum, s.Health)
			}
			c.heal(c.Member(small[0]))
			l.WaitAcked(60)
		})
		c.whole()
	}
	c.Audit(l)
}

// Everybody is cut off from everybody: there is no leader, and the heal needs none.
func TestSoak_PartitionHealsWithoutALeader(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	l := NewLedger(c, 16)
	for i := range 3 {
		l.During(func() {
			l.WaitAcked(60)
			var sides [][]string
			for _, m := range c.Members {
				sides = append(sides, []string{m.Name})
			}
			c.partition(c.Members[i], api.PartitionRequest{Split: sides})
			c.Until("no leader", func() error {
				if s := c.status(c.Members[i]); s.Leader != nil {
					return errors.New(*s.Leader)
				}
				return nil
			})
			if s := c.status(c.Members[i]); s.Health.Level != api.HealthCritical || len(s.Regions) != 3 {
				t.Errorf("without a leader: %+v", s.Health)
			}
			c.heal(c.Members[(i+1)%3])
			l.WaitAcked(60)
		})
		c.whole()
	}
	c.Audit(l)
}

// A fault ends by itself, though whoever ordered it was killed, and with the process that keeps it.
func TestSoak_PartitionEndsByItself(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	l := NewLedger(c, 8)
	l.During(func() {
		cut := c.besides(c.Leader())
		binary := ctlBinary(t)
		began := time.Now()
		ctl := exec.Command(binary, "--endpoint", cut.HTTP, "partition", "--isolate", cut.Name, "--for", "3s", "--confirm="+cut.Name)
		if err := ctl.Start(); err != nil {
			t.Fatal(err)
		}
		c.Until("the fault", func() error {
			if s := c.status(cut); len(s.Regions[slices.IndexFunc(s.Regions, func(r api.Region) bool { return r.Name == cut.Name })].Faults) == 0 {
				return errors.New("there is none")
			}
			return nil
		})
		_ = ctl.Process.Kill() // it may be done already
		_ = ctl.Wait()
		var f api.Faults
		c.Until("the end of the fault", func() error {
			if err := c.Get(c.Members[0], "/cluster/faults", &f); err != nil || len(f.Faults) > 0 {
				return errors.Join(err, errors.New("there are some"))
			}
			return nil
		})
		t.Logf("a fault of 3 s was gone after %s", time.Since(began).Round(10*time.Millisecond))

		c.partition(cut, api.PartitionRequest{Region: cut.Name})
		c.Signal(cut.Name, syscall.SIGKILL)
		c.Until("the member that was killed", func() error { return c.Get(cut, "/cluster/faults", &f) })
		if len(f.Faults) > 0 {
			t.Errorf("faults outlived their process: %+v", f.Faults)
		}
		l.WaitAcked(100)
	})
	c.whole()
	c.Audit(l)
}

// ctlBinary builds tidalctl.
func ctlBinary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tidalctl")
	cmd := exec.Command("go", "build", "-o", path, "github.com/tidaldb/tidal/cmd/tidalctl")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build tidalctl: %v\n%s", err, out)
	}
	return path
}
