package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tidaldb/tidal/daemon/api"
)

// Extra is a member beside those of dev: a process that the test starts, and ends, itself.
type Extra struct {
	api.DevMember // PID is of the newest process; 0: none runs

	c      *Cluster
	binary string
	args   []string // further flags of serve
	within []string // what the command is run by; nil: directly
	cmd    *exec.Cmd
	ended  chan struct{}
}

// Extra prepares a member that is not declared, with ports of its own, and does not start it. It ends with
// the test. args are further flags of serve.
func (c *Cluster) Extra(binary, name string, args ...string) *Extra {
	c.t.Helper()
	base := freePorts(c.t, 2)
	return c.extraAt(binary, name, filepath.Join(c.Dir, name), base+1, base+2, args...)
}

func (c *Cluster) extraAt(binary, name, dir string, http, grpc int, args ...string) *Extra {
	e := &Extra{c: c, binary: binary, args: args, DevMember: api.DevMember{
		Name: name, Dir: dir, HTTP: "http://127.0.0.1:" + strconv.Itoa(http), GRPC: "127.0.0.1:" + strconv.Itoa(grpc),
	}}
	c.t.Cleanup(func() { e.end(syscall.SIGTERM) })
	return e
}

// Seeds are the flags that name members as seeds.
func Seeds(members ...api.DevMember) (args []string) {
	for _, m := range members {
		args = append(args, "--seed", m.HTTP)
	}
	return args
}

// Start runs the process. What it says goes to NAME.log beside the others'.
func (e *Extra) Start(args ...string) {
	e.c.t.Helper()
	e.end(syscall.SIGKILL)
	log, err := os.OpenFile(e.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		e.c.t.Fatal(err)
	}
	defer log.Close() // the child holds its own descriptor
	all := append([]string{"serve", "--config", filepath.Join(e.c.Dir, "tidal.yaml"), "--name", e.Name, "--data-dir", e.Dir,
		"--advertise-http", strings.TrimPrefix(e.HTTP, "http://"), "--advertise-grpc", e.GRPC}, append(e.args, args...)...)
	all = append(append(slices.Clone(e.within), e.binary), all...)
	cmd := exec.Command(all[0], all[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		e.c.t.Fatalf("start %s: %v", e.Name, err)
	}
	ended := make(chan struct{})
	go func() { // ends with the process
		_ = cmd.Wait()
		close(ended)
	}()
	e.cmd, e.ended, e.PID = cmd, ended, cmd.Process.Pid
}

func (e *Extra) logPath() string { return filepath.Join(e.c.Dir, e.Name+".log") }

// Said is what the member has logged, all its processes.
func (e *Extra) Said() string {
	b, err := os.ReadFile(e.logPath())
	if err != nil {
		e.c.t.Fatal(err)
	}
	return string(b)
}

// Kill ends the process as a power cut would. Stop ends it kindly.
func (e *Extra) Kill() { e.end(syscall.SIGKILL) }

// Stop ends the process kindly and waits for it.
func (e *Extra) Stop() { e.end(syscall.SIGTERM) }

func (e *Extra) end(sig syscall.Signal) {
	if e.cmd == nil {
		return
	}
	_ = e.cmd.Process.Signal(sig)
	<-e.ended
	e.cmd, e.PID = nil, 0
}

// Exited reports whether the process has ended by itself, with its code.
func (e *Extra) Exited() (code int, ended bool) {
	select {
	case <-e.ended:
		return e.cmd.ProcessState.ExitCode(), true
	default:
		return 0, false
	}
}

// WaitRole waits until the leader of the cluster knows the member in a role, and it is reachable.
func (c *Cluster) WaitRole(name, role string) (row api.Region) {
	c.t.Helper()
	c.Until(name+" is "+role, func() error {
		var st api.Status
		if err := c.anyStatus(&st); err != nil {
			return err
		}
		last := fmt.Errorf("%s is no member", name)
		for _, r := range st.Regions {
			if r.Name != name {
				continue
			}
			row = r
			if r.Role == role && r.Reachable {
				return nil
			}
			last = fmt.Errorf("%s is %s, reachable %t, pending %+v, error %+v", name, r.Role, r.Reachable, r.PromotionPending, r.Error)
		}
		return last
	})
	return row
}

// anyStatus reads the status as the first member sees it that knows a leader.
func (c *Cluster) anyStatus(st *api.Status) error {
	err := errors.New("nobody answers")
	for _, m := range c.Members {
		*st = api.Status{}
		if err = c.Get(m, "/cluster/status", st); err == nil && st.Leader != nil {
			return nil
		}
	}
	if err == nil {
		err = errors.New("no leader is known")
	}
	return err
}

// Remove removes a member and returns what was answered.
func (c *Cluster) Remove(name string, override ...string) (api.MemberChanged, error) {
	var out api.MemberChanged
	_, err := c.Do("POST", c.besides(name), "/cluster/members/remove", api.MemberRequest{Name: name, Override: override}, &out)
	return out, err
}

// acquainted waits until every member has heard of every other one and no change settles: a cluster takes
// writes before all of its members have met.
func (c *Cluster) acquainted() {
	c.t.Helper()
	c.Until("everybody knows everybody", func() error {
		for _, m := range c.Members {
			var local api.LocalStatus
			if err := c.Get(m, "/cluster/status/local", &local); err != nil {
				return err
			}
			if len(local.HeardMS) < len(c.Members)-1 {
				return fmt.Errorf("%s has heard of %v", m.Name, local.HeardMS)
			}
		}
		var st api.Status
		if err := c.Get(c.Members[0], "/cluster/status", &st); err != nil {
			return err
		}
		if st.Settling != nil || st.Health.Level != api.HealthOK {
			return fmt.Errorf("%s, settling %+v", st.Health.Level, st.Settling)
		}
		return nil
	})
}

// MustRemove removes a member. The change before it may still settle: it is asked for again until it does.
func (c *Cluster) MustRemove(name string, override ...string) {
	c.t.Helper()
	c.Until("the removal of "+name, func() error {
		done, err := c.Remove(name, override...)
		if err == nil && (!done.Settled || done.Role != api.RoleRemoved) {
			err = fmt.Errorf("%+v", done)
		}
		return err
	})
}

// Ctl builds tidalctl once for the calling test and returns its path.
func Ctl(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tidalctl")
	cmd := exec.Command("go", "build", "-o", path, "github.com/tidaldb/tidal/cmd/tidalctl")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build tidalctl: %v\n%s", err, out)
	}
	return path
}
