//go:build soak && linux

package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/testenv/audit"
)

// apart is a cluster that dev made and whose members run as processes of their own since, which nobody
// starts again when they end.
type apart struct {
	*Cluster
	t         *testing.T
	tidald    string
	tidalctl  string
	processes map[string]*process
	made      []api.DevMember // everybody that dev made
}

type process struct {
	cmd   *exec.Cmd
	said  *lockedBuffer
	ended chan struct{}
}

// takeApart stops dev and its members. None runs when it returns.
func takeApart(t *testing.T, c *Cluster, tidald string) *apart {
	t.Helper()
	c.Stop()
	a := &apart{Cluster: c, t: t, tidald: tidald, tidalctl: buildCtl(t), processes: map[string]*process{}, made: c.Members}
	t.Cleanup(func() {
		for name := range a.processes {
			a.end(name, syscall.SIGKILL)
		}
	})
	return a
}

// buildCtl builds tidalctl once for the calling test.
func buildCtl(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("TIDALCTL"); path != "" { // already built
		return path
	}
	path := filepath.Join(t.TempDir(), "tidalctl")
	cmd := exec.Command("go", "build", "-o", path, "github.com/tidaldb/tidal/cmd/tidalctl")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build tidalctl: %v\n%s", err, out)
	}
	return path
}

// start starts members on the directories that dev gave them.
func (a *apart) start(names ...string) {
	a.t.Helper()
	for _, name := range names {
		a.run(name, name, "--data-dir", a.Member(name).Dir)
	}
}

// run starts a process of the member called name under a key of its own.
func (a *apart) run(key, name string, args ...string) *process {
	a.t.Helper()
	p := &process{said: &lockedBuffer{}, ended: make(chan struct{})}
	p.cmd = exec.Command(a.tidald, append([]string{"serve", "--config", filepath.Join(a.Dir, "tidal.yaml"), "--name", name}, args...)...)
	p.cmd.Stderr, p.cmd.Stdout = p.said, p.said
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		a.t.Fatalf("start %s: %v", key, err)
	}
	a.processes[key] = p
	go func() { // ends with the process
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	return p
}

// end ends a process and waits for it.
func (a *apart) end(key string, sig syscall.Signal) {
	p := a.processes[key]
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(sig)
	<-p.ended
	delete(a.processes, key)
}

// powerLoss kills everybody who runs, at once.
func (a *apart) powerLoss() {
	for _, p := range a.processes {
		_ = p.cmd.Process.Kill()
	}
	for name, p := range a.processes {
		<-p.ended
		delete(a.processes, name)
	}
}

// stopAll ends everybody kindly.
func (a *apart) stopAll() {
	var ending sync.WaitGroup
	for _, p := range a.processes {
		ending.Go(func() {
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			<-p.ended
		})
	}
	ending.Wait()
	clear(a.processes)
}

// all undoes only.
func (a *apart) all() { a.Members = a.made }

// only makes the cluster consist of these members, for the waits and the ledger.
func (a *apart) only(names ...string) {
	var left []api.DevMember
	for _, name := range names {
		left = append(left, a.Member(name))
	}
	a.Members = left
}

// at runs tidalctl against a member and returns its exit code and what it said.
func (a *apart) at(name string, args ...string) (code int, out, words string) {
	a.t.Helper()
	return a.command(a.tidalctl, append([]string{"--endpoint", a.Member(name).HTTP}, args...)...)
}

// inspect runs tidald inspect on a directory.
func (a *apart) inspect(dir string) (code int, v map[string]any) {
	a.t.Helper()
	code, out, words := a.command(a.tidald, "inspect", "-o", "json", dir)
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		a.t.Fatalf("inspect %s: %d %v\n%s%s", dir, code, err, out, words)
	}
	return code, v
}

func (a *apart) command(name string, args ...string) (code int, out, words string) {
	a.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "TIDALCTL_NO_INPUT=1", "HOME="+a.Dir, "XDG_CONFIG_HOME="+a.Dir)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		a.t.Fatal(err)
	}
	return code, stdout.String(), stderr.String()
}

// quarantined waits until a replica of the member is quarantined for cause, by its own word.
func (a *apart) quarantined(name, cause string) api.LocalStatus {
	a.t.Helper()
	var local api.LocalStatus
	a.Until(name+" is quarantined: "+cause, func() error {
		if err := a.Get(a.Member(name), "/cluster/status/local", &local); err != nil {
			return err
		}
		if len(local.Groups) == 0 || local.Groups[0].Quarantine == nil || local.Groups[0].Quarantine.Cause != cause {
			return fmt.Errorf("%+v", local.Groups)
		}
		return nil
	})
	return local
}

// fenced waits until a member knows that the cluster goes on without it: it takes part in nothing.
func (a *apart) fenced(name string) {
	a.t.Helper()
	a.Until(name+" to know that it was given up", func() error {
		var local api.LocalStatus
		if err := a.Get(a.Member(name), "/cluster/status/local", &local); err != nil {
			return err
		}
		if local.Phase == "removed" {
			return nil
		}
		if len(local.Groups) == 0 || local.Groups[0].Quarantine == nil || local.Groups[0].Quarantine.Cause != "former_history" {
			return fmt.Errorf("phase %s, %+v", local.Phase, local.Groups)
		}
		return nil
	})
}

// saw waits until a member has an event of this kind and returns it.
func (a *apart) saw(name, kind string) (found api.Event) {
	a.t.Helper()
	a.Until(name+" to tell of "+kind, func() error {
		for _, e := range events(a.Cluster, name) {
			if e.Kind == kind {
				found = e
				return nil
			}
		}
		return errors.New("it has not yet")
	})
	return found
}

// leads waits until all these members name one leader, which is one of them.
func (a *apart) leads(names ...string) string {
	a.t.Helper()
	var leader string
	a.Until("a leader of "+strings.Join(names, ", "), func() error {
		leader = ""
		for _, name := range names {
			var local api.LocalStatus
			if err := a.Get(a.Member(name), "/cluster/status/local", &local); err != nil {
				return err
			}
			if len(local.Groups) == 0 || local.Groups[0].Leader == nil || leader != "" && leader != *local.Groups[0].Leader {
				return fmt.Errorf("%s names %v, another one %q", name, local.Groups, leader)
			}
			leader = *local.Groups[0].Leader
		}
		return nil
	})
	return leader
}

// audit holds the disks of these members against what the clients know. None runs when it returns.
func (a *apart) audit(l *Ledger, names ...string) {
	a.t.Helper()
	l.Check()
	a.stopAll()
	var dirs []string
	for _, name := range names {
		dirs = append(dirs, a.Member(name).Dir)
	}
	r, err := audit.Run(vfs.Default, dirs, l.Claims())
	switch {
	case err != nil:
		a.t.Errorf("audit: %v", err)
	case len(r.Findings) > 0 || r.Rebuilt != len(dirs):
		a.t.Errorf("audit: %s", r)
	default:
		a.t.Logf("audit: %s", r)
	}
}

// diskImage is the disk of a member in a file, as a machine that is restored from a snapshot has it: its
// inodes come back with it.
type diskImage struct {
	t    *testing.T
	file string
	at   string // where it is mounted
}

// imageDisk makes the disk of the first member an image.
func imageDisk(t *testing.T) (dir string, disk *diskImage) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: mounting a disk image needs root")
	}
	mkfs, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		t.Skip("skipped: no mkfs.ext4")
	}
	dir = t.TempDir()
	disk = &diskImage{t, filepath.Join(t.TempDir(), "disk.img"), filepath.Join(dir, "us-east")}
	if err := os.WriteFile(disk.file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(disk.file, 256*mib); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(mkfs, "-q", "-m", "0", disk.file).CombinedOutput(); err != nil {
		t.Skipf("skipped: mkfs.ext4: %v: %s", err, out)
	}
	if err := os.Mkdir(disk.at, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-o", "loop", disk.file, disk.at).CombinedOutput(); err != nil {
		t.Skipf("skipped: mount: %v: %s", err, out)
	}
	t.Cleanup(disk.unmount)
	return dir, disk
}

func (d *diskImage) mount() {
	d.t.Helper()
	if out, err := exec.Command("mount", "-o", "loop", d.file, d.at).CombinedOutput(); err != nil {
		d.t.Fatalf("mount %s: %v: %s", d.file, err, out)
	}
}

func (d *diskImage) unmount() { _ = unix.Unmount(d.at, unix.MNT_DETACH) }

// detach unmounts and waits until the file holds everything.
func (d *diskImage) detach() {
	d.t.Helper()
	if out, err := exec.Command("umount", d.at).CombinedOutput(); err != nil {
		d.t.Fatalf("umount %s: %v: %s", d.at, err, out)
	}
	deadline := time.Now().Add(Budget())
	for { // the loop device lets go of the file a moment later
		out, err := exec.Command("losetup", "-j", d.file).CombinedOutput()
		if err == nil && len(bytes.TrimSpace(out)) == 0 {
			return
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("%s is still in use: %s", d.file, out)
		}
	}
}

// snapshot copies the image, which is not mounted.
func (d *diskImage) snapshot() (file string) {
	d.t.Helper()
	file = filepath.Join(d.t.TempDir(), "snapshot.img")
	copyImage(d.t, file, d.file)
	return file
}

// putBack replaces the image, which is not mounted, by a snapshot.
func (d *diskImage) putBack(snapshot string) {
	d.t.Helper()
	copyImage(d.t, d.file, snapshot)
}

func copyImage(t *testing.T, to, from string) {
	t.Helper()
	if out, err := exec.Command("cp", "--sparse=always", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v: %s", from, err, out)
	}
}
