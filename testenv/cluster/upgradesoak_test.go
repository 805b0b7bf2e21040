//go:build soak

package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/journal"
)

// A cluster goes from one release to the next, member by member, while clients write. What only the newer
// binary understands is made use of once the last member runs it, not before. From then on the older one
// serves nothing and says why, leaves the data as it was, and does no harm to the others; nor can it join.
//
// There is no audit of the disks: the one of this binary is of the older release.
func TestSoak_UpgradeAndTheOlderBinary(t *testing.T) {
	older, newer := Binary(t), futureBinary(t)
	exe := filepath.Join(t.TempDir(), "tidald")
	install(t, exe, older)
	c := Start(t, exe, Options{})
	l := NewLedger(c, 4)
	l.During(func() { l.WaitAcked(100) })

	install(t, exe, newer)
	order := []string{}
	for _, m := range c.Members {
		if m.Name != c.Leader() {
			order = append(order, m.Name)
		}
	}
	order = append(order, c.Leader())
	for i, name := range order {
		if activated(c) {
			t.Fatalf("a feature is in use while %s runs the older binary", strings.Join(order[i:], ", "))
		}
		l.During(func() {
			c.Signal(name, syscall.SIGTERM)
			c.Until(name+" to run the newer binary", func() error {
				var local api.LocalStatus
				if err := c.Get(c.Member(name), "/cluster/status/local", &local); err != nil {
					return err
				}
				if !slices.Contains(local.Capabilities, "bit62") {
					return fmt.Errorf("it understands %v", local.Capabilities)
				}
				return nil
			})
			healthy(c)
			l.WaitAcked(50)
		})
	}
	c.Until("the feature to be in use", func() error {
		if !activated(c) {
			return fmt.Errorf("no member tells of it")
		}
		return nil
	})
	l.During(func() { l.WaitAcked(100) })

	install(t, exe, older)
	victim := follower(c)
	l.During(func() {
		c.Signal(victim, syscall.SIGKILL)
		c.Until(victim+" to need an upgrade", func() error {
			var local api.LocalStatus
			if err := c.Get(c.Member(victim), "/cluster/status/local", &local); err != nil {
				return err
			}
			if len(local.Groups) == 0 || local.Groups[0].Quarantine == nil {
				return fmt.Errorf("group 0 is not closed")
			}
			q := local.Groups[0].Quarantine
			if q.Cause != "upgrade_required" || !strings.Contains(q.Detail, "capability") {
				t.Fatalf("%s is quarantined for %s: %s", victim, q.Cause, q.Detail)
			}
			t.Logf("%s: %s", victim, q.Detail)
			return nil
		})
		l.WaitAcked(100)
	})
	stranger := c.Extra(older, "stranger", Seeds(c.Members...)...)
	stranger.Start()
	c.Until("the older binary to be refused", func() error {
		if !strings.Contains(stranger.Said(), "capability") {
			return fmt.Errorf("it says nothing of a capability")
		}
		return nil
	})
	stranger.Stop()

	install(t, exe, newer)
	c.Signal(victim, syscall.SIGKILL)
	healthy(c)
	l.During(func() { l.WaitAcked(100) })
	l.Check()
}

// activated reports whether a member tells that a feature is in use. Only who led then does, in that boot.
func activated(c *Cluster) bool {
	for _, m := range c.Members {
		for _, e := range events(c, m.Name) {
			if e.Kind == string(journal.KindActivated) {
				return true
			}
		}
	}
	return false
}

// futureBinary builds the tidald of a later release.
func futureBinary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tidald-future")
	cmd := exec.Command("go", "build", "-tags", "future", "-o", path, "github.com/tidaldb/tidal/cmd/tidald")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the tidald of a later release: %v\n%s", err, out)
	}
	return path
}

// install makes binary the program at exe, also while that runs.
func install(t *testing.T, exe, binary string) {
	t.Helper()
	b, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(exe+".new", b, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(exe+".new", exe); err != nil {
		t.Fatal(err)
	}
}
