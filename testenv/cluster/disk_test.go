//go:build soak && linux

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tidaldb/tidal/daemon/api"
)

const mib = 1 << 20

// smallDisk mounts 64 MiB as the disk of the first member and returns the directory of the cluster and
// a function that fills that disk up to where free bytes are left; 0: empties it again.
func smallDisk(t *testing.T) (dir string, leave func(free int64)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: mounting a small disk needs root")
	}
	dir = t.TempDir()
	disk := filepath.Join(dir, "us-east")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tidal", disk, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("skipped: mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	return dir, func(free int64) {
		t.Helper()
		ballast := filepath.Join(disk, "ballast")
		if err := os.RemoveAll(ballast); err != nil {
			t.Fatal(err)
		}
		var s unix.Statfs_t
		if err := unix.Statfs(disk, &s); err != nil {
			t.Fatal(err)
		}
		if n := int64(s.Bavail)*s.Bsize - free; free > 0 {
			if err := os.WriteFile(ballast, make([]byte, n), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// lead kills whoever leads until name does.
func lead(c *Cluster, l *Ledger, name string) {
	for c.Leader() != name {
		c.Signal(c.Leader(), syscall.SIGKILL)
		l.WaitAcked(50)
		healthy(c)
	}
}

// until waits until the member's own status is as wanted.
func until(c *Cluster, m api.DevMember, what string, wanted func(api.LocalStatus) bool) {
	c.Until(what+" on "+m.Name, func() error {
		var s api.LocalStatus
		if err := c.Get(m, "/cluster/status/local", &s); err != nil {
			return err
		}
		if !wanted(s) {
			return fmt.Errorf("disk %+v, group %+v", s.Disk, s.Groups)
		}
		return nil
	})
}

// A leader whose disk fills up hands over, and the cluster goes on. With less room yet it falls behind
// instead of failing, and with room again it catches up by itself.
func TestSoak_DiskFullOnTheLeader(t *testing.T) {
	dir, leave := smallDisk(t)
	c := Start(t, Binary(t), Options{Dir: dir})
	l := NewLedger(c, 8)
	east := c.Member("us-east")
	l.During(func() {
		l.WaitAcked(200)
		lead(c, l, east.Name)
		leave(7 * mib)
		until(c, east, "a full disk", func(s api.LocalStatus) bool { return s.Disk.Full && !s.Disk.Exhausted })
		c.Until("another leader", func() error {
			if name := c.Leader(); name == east.Name {
				return errors.New("it still leads")
			}
			return nil
		})
		c.Until("the reason in the status", func() error {
			var s api.Status
			if err := c.Get(c.Members[1], "/cluster/status", &s); err != nil {
				return err
			}
			if !slices.ContainsFunc(s.Health.Reasons, func(r api.Reason) bool { return r.Code == "disk_full" && r.Member == east.Name }) {
				return fmt.Errorf("health is %+v", s.Health)
			}
			return nil
		})
		l.WaitAcked(500)

		leave(3 * mib)
		until(c, east, "an exhausted disk", func(s api.LocalStatus) bool { return s.Disk.Exhausted })
		l.WaitAcked(500)
		until(c, east, "no quarantine", func(s api.LocalStatus) bool { return s.Groups[0].Quarantine == nil })

		leave(0)
		until(c, east, "room", func(s api.LocalStatus) bool { return !s.Disk.Full })
		l.WaitAcked(200)
	})
	healthy(c)
	c.Audit(l)
}

// A member that is alone refuses writes with a reason, serves reads, restarts, and goes on when there is
// room.
func TestSoak_DiskFullOnASingleMember(t *testing.T) {
	dir, leave := smallDisk(t)
	c := Start(t, Binary(t), Options{Dir: dir, Nodes: 1})
	l := NewLedger(c, 4)
	m := c.Members[0]
	refused := func() error {
		_, err := c.Do(http.MethodPost, m, "/items", map[string]string{"id": "of no client"}, nil)
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.CodeDiskFull || p.Status != http.StatusInsufficientStorage {
			return fmt.Errorf("want %s, got: %v", api.CodeDiskFull, err)
		}
		return nil
	}
	l.During(func() {
		l.WaitAcked(200)
		leave(3 * mib)
		c.Until("a refusal", refused)
		c.Signal(m.Name, syscall.SIGKILL)
		c.Until("a refusal after the restart", refused)
		var item api.ItemAnswer
		c.Until("a read", func() error { return c.Get(m, "/items/client-000?consistency=linearizable", &item) })
		leave(0)
		l.WaitAcked(200)
	})
	c.Audit(l)
}

// A leader whose disk takes seconds for a sync serves nothing stale, and hands over.
func TestSoak_SlowDiskOnTheLeader(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: tracing another process needs root")
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("skipped: strace is not installed (apt-get install strace)")
	}
	c := Start(t, Binary(t), Options{})
	l := NewLedger(c, 8)
	l.During(func() {
		l.WaitAcked(200)
		slow := c.Leader()
		var words bytes.Buffer
		cmd := exec.Command(strace, "-f", "-qq", "-o", "/dev/null", "-p", strconv.Itoa(c.pid(slow)),
			"-e", "trace=fdatasync", "-e", "inject=fdatasync:delay_exit=5000000") // microseconds
		cmd.Stdout, cmd.Stderr = &words, &words
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		detach := func() {
			_ = cmd.Process.Signal(syscall.SIGINT)
			_ = cmd.Wait()
		}
		c.Until("another leader than "+slow, func() error {
			if name := c.Leader(); name == slow {
				return fmt.Errorf("it still leads; strace: %s", words.String())
			}
			return nil
		})
		l.WaitAcked(500)
		log, err := os.ReadFile(filepath.Join(c.Dir, slow+".log"))
		if err != nil || !bytes.Contains(log, []byte("reason=disk_slow")) {
			t.Errorf("%s lost its leadership and did not hand it over: %v", slow, err)
		}
		detach()
		l.WaitAcked(200)
	})
	healthy(c)
	c.Audit(l)
}
