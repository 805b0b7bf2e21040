// Package cluster runs clusters of real processes for tests, through `tidald dev -o json` as anybody
// would, and keeps the ledger of what they acknowledged.
//
// A test starts a cluster, loads it through a Ledger, kills what it wants to kill, and ends with
// Audit: the cluster is stopped, and package audit reads its disks. While clients write, the ledger
// reads from every member linearizably and keeps each answer that is older than what had been
// acknowledged before. Waits end with the test's own deadline, and say what they waited for.
package cluster

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/testenv/audit"
)

// Budget is how long a wait for convergence may take. TIDAL_TEST_BUDGET sets another one on a slow
// machine.
func Budget() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("TIDAL_TEST_BUDGET")); err == nil && d > 0 {
		return d
	}
	return time.Minute
}

// pollEvery is the pace of every wait.
const pollEvery = 20 * time.Millisecond

// Binary builds tidald once for the calling test process and returns its path. TIDALD names one that
// is already built.
func Binary(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("TIDALD"); path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), "tidald")
	cmd := exec.Command("go", "build", "-o", path, "github.com/tidaldb/tidal/cmd/tidald")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build tidald: %v\n%s", err, out)
	}
	return path
}

// Options configures Start. The zero value is three members in a fresh directory.
type Options struct {
	Nodes int    // 0: 3
	Dir   string // empty: a temporary one, which outlives the cluster until the test ends
	Args  []string
}

// Cluster is a running `tidald dev`.
type Cluster struct {
	Dir     string
	Members []api.DevMember // pids as of the start; Pid asks for the newest

	t     testing.TB
	cmd   *exec.Cmd
	words *lockedBuffer
	ended chan struct{}
	http  *http.Client
}

// Start runs a cluster and returns when all its members are ready. It ends with the test.
func Start(t testing.TB, binary string, o Options) *Cluster {
	t.Helper()
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	base := freePorts(t, 2*(o.Nodes+1))
	args := append([]string{"dev", "--nodes", strconv.Itoa(o.Nodes), "--http-base", strconv.Itoa(base), "--grpc-base", strconv.Itoa(base + o.Nodes + 1),
		"--dir", o.Dir, "--empty", "-o", "json"}, o.Args...)
	c := &Cluster{Dir: o.Dir, t: t, cmd: exec.Command(binary, args...), words: &lockedBuffer{}, ended: make(chan struct{}),
		http: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	c.cmd.Stderr = c.words
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("pipe of tidald dev: %v", err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatalf("start tidald dev: %v", err)
	}
	t.Cleanup(c.Stop)
	r := bufio.NewReader(out)
	line, err := r.ReadBytes('\n')
	if err != nil {
		_ = c.cmd.Wait()
		close(c.ended) // or Stop waits for ever
		t.Fatalf("tidald dev ended before it was ready: %v\n%s", err, c.words)
	}
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, r)
		_ = c.cmd.Wait()
		close(c.ended)
	}()
	var ready api.DevReady
	if err := json.Unmarshal(line, &ready); err != nil || !ready.Ready {
		t.Fatalf("first line of tidald dev: %q, %v", line, err)
	}
	c.Members = ready.Members
	return c
}

// Stop ends the cluster kindly and waits for it. It is idempotent.
func (c *Cluster) Stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	<-c.ended
	c.http.CloseIdleConnections()
}

// Audit waits until every member has caught up, stops the cluster, and holds what is on its disks
// against what the clients of the ledgers were told.
func (c *Cluster) Audit(ledgers ...*Ledger) {
	c.t.Helper()
	var claims audit.Claims
	for _, l := range ledgers {
		l.Check()
		mine := l.Claims()
		claims.Acked = append(claims.Acked, mine.Acked...)
		claims.Refused = append(claims.Refused, mine.Refused...)
		claims.Unknown = append(claims.Unknown, mine.Unknown...)
	}
	c.Stop()
	var dirs []string
	for _, m := range c.Members {
		dirs = append(dirs, m.Dir)
	}
	r, err := audit.Run(vfs.Default, dirs, claims)
	switch {
	case err != nil:
		c.t.Errorf("audit: %v", err)
	case len(r.Findings) > 0 || r.Rebuilt != len(dirs):
		c.t.Errorf("audit: %s", r)
	default:
		c.t.Logf("audit: %s", r)
	}
}

// Words is what the cluster has said on stderr.
func (c *Cluster) Words() string { return c.words.String() }

// Member returns the member of this name.
func (c *Cluster) Member(name string) api.DevMember {
	c.t.Helper()
	for _, m := range c.Members {
		if m.Name == name {
			return m
		}
	}
	c.t.Fatalf("no member %q", name)
	return api.DevMember{}
}

// Signal sends sig to the newest process of a member.
func (c *Cluster) Signal(name string, sig syscall.Signal) {
	c.t.Helper()
	if err := syscall.Kill(c.pid(name), sig); err != nil {
		c.t.Fatalf("signal %s to %s: %v", sig, name, err)
	}
}

// Pause stops the process of a member where it stands, until the returned function is called, or the
// test ends.
func (c *Cluster) Pause(name string) (resume func()) {
	c.t.Helper()
	pid := c.pid(name)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		c.t.Fatalf("pause %s: %v", name, err)
	}
	c.Until(name+" to stand still", func() error { return standsStill(pid) })
	resume = sync.OnceFunc(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	c.t.Cleanup(resume)
	return resume
}

// standsStill returns nil once every thread of a process is stopped: the signal returns before, and what still
// runs may answer.
func standsStill(pid int) error {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return err
	}
	for _, task := range tasks {
		stat, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		if _, state, ok := bytes.Cut(stat, []byte(") ")); !ok || state[0] != 'T' {
			return fmt.Errorf("%s: %.40s", task, stat)
		}
	}
	return nil
}

// KillAll kills every member at once, as a power cut would.
func (c *Cluster) KillAll() {
	c.t.Helper()
	var pids []int
	for _, m := range c.Members {
		pids = append(pids, c.pid(m.Name))
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			c.t.Fatalf("kill %d: %v", pid, err)
		}
	}
}

// pid asks the member for its process, which dev may have started again.
func (c *Cluster) pid(name string) int {
	c.t.Helper()
	var local api.LocalStatus
	c.Until("the pid of "+name, func() error {
		if err := c.Get(c.Member(name), "/cluster/status/local", &local); err != nil {
			return err
		}
		if local.PID <= 0 {
			return fmt.Errorf("it says pid %d", local.PID)
		}
		return nil
	})
	return local.PID
}

// Leader waits until a leader is known to every member that answers, and returns its name.
func (c *Cluster) Leader() string {
	c.t.Helper()
	var leader string
	c.Until("a leader", func() error {
		for _, m := range c.Members {
			var st api.Status
			if err := c.Get(m, "/cluster/status", &st); err != nil {
				continue
			}
			if st.Leader != nil && st.Consistent {
				leader = *st.Leader
				return nil
			}
		}
		return errors.New("no member names one")
	})
	return leader
}

// Until polls f until it returns nil. It fails the test when the budget is used up.
func (c *Cluster) Until(what string, f func() error) {
	c.t.Helper()
	deadline := time.NewTimer(Budget())
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			c.t.Fatalf("waited %s for %s: %v\n%s", Budget(), what, err, c.words)
		case <-tick.C:
		}
	}
}

// Get reads a JSON document. A problem is returned as *api.Problem.
func (c *Cluster) Get(m api.DevMember, path string, into any) error {
	_, err := c.Do(http.MethodGet, m, path, nil, into)
	return err
}

// Do sends one request and decodes its answer. A problem is returned as *api.Problem; any other
// error means that the answer was lost.
func (c *Cluster) Do(method string, m api.DevMember, path string, body, into any) (http.Header, error) {
	return do(c.http, method, m, path, body, into)
}

func do(client *http.Client, method string, m api.DevMember, path string, body, into any) (http.Header, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode the body of %s %s: %w", method, path, err)
	}
	req, err := http.NewRequest(method, m.HTTP+path, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	if body == nil {
		req.Body, req.ContentLength = nil, 0
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if raw, err = io.ReadAll(resp.Body); err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		p := &api.Problem{Status: resp.StatusCode, Detail: string(raw)}
		_ = json.Unmarshal(raw, p) // a body of another kind stays in Detail
		return resp.Header, p
	}
	if into == nil {
		return resp.Header, nil
	}
	return resp.Header, json.Unmarshal(raw, into)
}

// freePorts returns b such that nobody listens on the n ports from b+1 on. They are below those that the
// system gives to whoever connects: one of these could be taken before the member listens, or while it is down.
func freePorts(t testing.TB, n int) int {
	t.Helper()
	for range 100 {
		base := 10000 + rand.IntN(22000)
		if portsFree(base+1, n) {
			return base
		}
	}
	t.Fatalf("found no %d free ports in a row", n)
	return 0
}

func portsFree(from, n int) bool {
	for p := from; p < from+n; p++ {
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(p))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
