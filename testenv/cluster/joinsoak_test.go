//go:build soak

package cluster

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/zeebo/blake3"

	"github.com/tidaldb/tidal/daemon/api"
)

// One becomes two becomes three: with every step the cluster takes writes and can be read everywhere.
func TestSoak_JoinOneToThree(t *testing.T) {
	binary := Binary(t)
	c := Start(t, binary, Options{Nodes: 1})
	l := NewLedger(c, 8)
	for _, name := range []string{"second", "third"} {
		e := c.Extra(binary, name, Seeds(c.Members...)...)
		l.During(func() {
			l.WaitAcked(100)
			e.Start()
			c.WaitRole(name, api.RoleVoter)
			l.WaitAcked(100)
		})
		c.Members = append(c.Members, e.DevMember)
		l.During(func() { l.WaitAcked(200) })
	}
	c.Audit(l)
}

// Two more members join while clients write through all of them; the leader is killed in between. Then
// one of the five is stopped and another one's process too: what the joiners acknowledge commits.
func TestSoak_JoinThreeToFive(t *testing.T) {
	binary := Binary(t)
	c := Start(t, binary, Options{Args: compacting()})
	l := NewLedger(c, 16)
	l.During(func() { l.WaitAcked(200) })
	compactPastTheFirst(c)
	before := writeLatency(c, 2*time.Second)
	var during []time.Duration
	extras := map[string]*Extra{}
	for _, name := range []string{"fourth", "fifth"} {
		e := c.Extra(binary, name, Seeds(c.Members[1:]...)...)
		extras[name] = e
		l.During(func() {
			l.WaitAcked(100)
			e.Start()
			during = append(during, writeLatency(c, time.Second)...)
			c.Signal(c.Leader(), syscall.SIGKILL)
			c.WaitRole(name, api.RoleVoter)
			l.WaitAcked(200)
		})
		c.Members = append(c.Members, e.DevMember)
	}
	t.Logf("write p99 before %s, during the joins %s", p99(before), p99(during))
	// Of the five, three are needed: with two of the first three paused, both joiners are.
	leader := c.Leader()
	paused := 0
	var resumes []func()
	for _, m := range slices.Clone(c.Members[:3]) {
		if m.Name != leader && paused < 2 {
			resumes = append(resumes, c.Pause(m.Name))
			paused++
		}
	}
	l.During(func() { l.WaitAcked(300) })
	for _, resume := range resumes {
		resume()
	}
	l.During(func() { l.WaitAcked(100) })
	c.Audit(l)
}

// Five members ask at once, each another seed. All become voters, with ids of their own, none exits.
func TestSoak_JoinFiveAtOnce(t *testing.T) {
	binary := Binary(t)
	c := Start(t, binary, Options{Nodes: 1, Args: compacting()})
	l := NewLedger(c, 8)
	l.During(func() { l.WaitAcked(100) })
	compactPastTheFirst(c)
	var all []*Extra
	for i := range 5 {
		all = append(all, c.Extra(binary, fmt.Sprintf("joiner-%d", i), Seeds(c.Members...)...))
	}
	start := time.Now()
	ids := map[string]bool{}
	l.During(func() {
		for _, e := range all {
			e.Start()
		}
		for _, e := range all {
			ids[c.WaitRole(e.Name, api.RoleVoter).ID] = true
		}
		l.WaitAcked(100)
	})
	t.Logf("five joins at once: %s", time.Since(start).Round(time.Millisecond))
	for _, e := range all {
		if code, ended := e.Exited(); ended {
			t.Errorf("%s exited with %d", e.Name, code)
		}
		c.Members = append(c.Members, e.DevMember)
	}
	if len(ids) != 5 {
		t.Errorf("ids %v", ids)
	}
	l.During(func() { l.WaitAcked(100) })
	c.Audit(l)
}

// The joiner is killed when its log first says something of each step, and started again: it goes on, with
// one member more in the end.
func TestSoak_JoinKilledAtEveryPoint(t *testing.T) {
	binary := Binary(t)
	c := Start(t, binary, Options{Args: append(compacting(), "--set", "replication.snapshot_rate=2MiB")})
	l := NewLedger(c, 8)
	l.During(func() { l.WaitAcked(100) })
	compactPastTheFirst(c)
	points := []struct {
		name    string
		reached func(e *Extra) bool
	}{
		{"its directory is made", func(e *Extra) bool { return exists(e.Dir, "member") }},
		{"it listens", func(e *Extra) bool { return strings.Contains(e.Said(), "listening") }},
		{"it is in the roster", func(e *Extra) bool { return role(c, e.Name) == api.RoleLearner }},
		{"it was admitted", func(e *Extra) bool { return strings.Contains(e.Said(), "msg=admitted") }},
		{"the artifact is on its way", func(e *Extra) bool { return exists(e.Dir, "groups/0/incoming-*") }},
		{"the artifact is installed", func(e *Extra) bool { return exists(e.Dir, "groups/0/state-*") }},
		{"it serves", func(e *Extra) bool { return strings.Contains(e.Said(), "msg=joined") }},
		{"it votes", func(e *Extra) bool { return role(c, e.Name) == api.RoleVoter }},
	}
	for i, p := range points {
		e := c.Extra(binary, fmt.Sprintf("killed-%d", i), Seeds(c.Members[0])...)
		e.Start()
		c.Until(p.name, func() error {
			if !p.reached(e) {
				return errors.New("not yet")
			}
			return nil
		})
		e.Kill()
		e.Start()
		c.WaitRole(e.Name, api.RoleVoter)
		t.Logf("killed when %s: a voter after another start", p.name)
		c.MustRemove(e.Name)
		e.Stop()
	}
	var m api.Members
	c.Until("the members", func() error { return c.Get(c.Members[0], "/cluster/members", &m) })
	if len(m.Roster.Members) != 3 || m.NextID != fmt.Sprint(4+len(points)) {
		t.Errorf("%d members, next id %s: some joined twice", len(m.Roster.Members), m.NextID)
	}
	l.During(func() { l.WaitAcked(100) })
	c.Audit(l)
}

// tidalctl hands over the seed and is killed right away: the member joins, and another tidalctl sees it
// through. Before that, the member only listens.
func TestSoak_JoinTidalctlKilledAfterTheAnnouncement(t *testing.T) {
	binary, ctl := Binary(t), Ctl(t)
	c := Start(t, binary, Options{})
	e := c.Extra(binary, "told", "--await-join")
	e.Start()
	c.Until("the member waits to be told", func() error {
		_, err := c.Do(http.MethodGet, e.DevMember, "/readyz", nil, nil)
		if err == nil || !strings.Contains(err.Error(), "tidalctl join") {
			return fmt.Errorf("readyz: %v", err)
		}
		return nil
	})
	if r := role(c, "told"); r != "" {
		t.Errorf("it is %s already", r)
	}
	join := []string{"--endpoint", e.HTTP, "join", "--seed", c.Members[0].HTTP, "--yes"}
	cmd := exec.Command(ctl, join...)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := io.ReadFull(out, b); err != nil { // its first word of progress
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	c.WaitRole("told", api.RoleVoter)
	for range 2 { // safe to repeat
		if out, err := exec.Command(ctl, join...).CombinedOutput(); err != nil || !strings.Contains(string(out), "as member 4: nothing had to be done") {
			t.Errorf("tidalctl join: %v\n%s", err, out)
		}
	}
}

// Members that know each other by host names form a cluster, which a member with a host name joins.
func TestSoak_JoinByHostNames(t *testing.T) {
	binary := Binary(t)
	c := Start(t, binary, Options{})
	config, err := os.ReadFile(filepath.Join(c.Dir, "tidal.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	base := freePorts(t, 6)
	text := "members:\n"
	for i := range 3 {
		text += fmt.Sprintf("  - {name: host-%d, grpc_addr: \"localhost:%d\", http_addr: \"localhost:%d\", grpc_bind: \"127.0.0.1:%[2]d\", http_bind: \"127.0.0.1:%[3]d\"}\n", i, base+1+i, base+4+i)
	}
	_, settings, _ := strings.Cut(string(config), "auth:")
	dir := t.TempDir()
	path := filepath.Join(dir, "tidal.yaml")
	if err := os.WriteFile(path, []byte(text+"auth:"+settings), 0o600); err != nil {
		t.Fatal(err)
	}
	named := &Cluster{Dir: dir, t: t, words: &lockedBuffer{}, http: c.http}
	for i := range 3 {
		name := fmt.Sprintf("host-%d", i)
		e := named.extraAt(binary, name, filepath.Join(dir, name), base+4+i, base+1+i)
		e.Start("--advertise-http", fmt.Sprintf("localhost:%d", base+4+i), "--advertise-grpc", fmt.Sprintf("localhost:%d", base+1+i),
			"--http", fmt.Sprintf("127.0.0.1:%d", base+4+i), "--grpc", fmt.Sprintf("127.0.0.1:%d", base+1+i))
		named.Members = append(named.Members, e.DevMember)
	}
	named.item("i")
	named.view(named.Members[2])
	port := freePorts(t, 2)
	e := named.extraAt(binary, "host-3", filepath.Join(dir, "host-3"), port+1, port+2, "--seed", strings.Replace(named.Members[1].HTTP, "127.0.0.1", "localhost", 1))
	e.Start("--advertise-http", fmt.Sprintf("localhost:%d", port+1), "--advertise-grpc", fmt.Sprintf("localhost:%d", port+2),
		"--http", fmt.Sprintf("127.0.0.1:%d", port+1), "--grpc", fmt.Sprintf("127.0.0.1:%d", port+2))
	row := named.WaitRole("host-3", api.RoleVoter)
	if row.GRPCAddr != fmt.Sprintf("localhost:%d", port+2) {
		t.Errorf("host-3 is at %s in the roster", row.GRPCAddr)
	}
	e.Kill()
	e.Start("--advertise-http", fmt.Sprintf("localhost:%d", port+1), "--advertise-grpc", fmt.Sprintf("localhost:%d", port+2),
		"--http", fmt.Sprintf("127.0.0.1:%d", port+1), "--grpc", fmt.Sprintf("127.0.0.1:%d", port+2))
	named.WaitRole("host-3", api.RoleVoter)
}

// figures has the loads of TestSoak_JoinFigures be all that the README speaks of, rather than a small one.
var figures = flag.Bool("figures", false, "join members with up to 655 MB of data, rather than a few")

// Members with data join: while nobody writes, beside cp and BLAKE3 of the same bytes, and while one client
// writes, and several. What takes how long is printed: times of a busy machine say nothing.
func TestSoak_JoinFigures(t *testing.T) {
	binary := Binary(t)
	// An item has 64 KiB at most: three stand for one of the prototype's.
	loads := []load{{3 * 320, 45_000, "5.3 s"}}
	if *figures {
		loads = []load{{3 * 320, 45_000, "5.3 s"}, {3 * 2_000, 45_000, "13.0 s"}, {3 * 5_000, 45_000, "26.4 s"}, {100_000, 3_200, "-"}}
	}
	for _, load := range loads {
		t.Run(fmt.Sprintf("items=%d", load.items), func(t *testing.T) { load.join(t, binary) })
	}
}

// load is what a cluster holds, and how long the prototype took for a join of that size.
type load struct {
	items, bytes int
	prototype    string
}

func (ld load) join(t *testing.T, binary string) {
	c := Start(t, binary, Options{Nodes: 1, Args: []string{"--set", "replication.log_keep=8MiB", "--set", "replication.pin_cap=2GiB"}})
	store(c, ld.items, ld.bytes)
	c.Until("the first entries are dropped", func() error {
		if first := group(c, c.Members[0].Name).FirstIndex; first <= 2 {
			return fmt.Errorf("the log begins at %d", first)
		}
		return nil
	})
	f := c.joinBeside(binary, "beside-none", 0)
	t.Logf("%d items of %d bytes, %d MB: empty directory to voter %s (prototype: %s), of which transfer and install %s; cp and BLAKE3 of the same bytes %s (%.0f %% of the whole, %.0f %% of transfer and install); eligible to voter %s",
		ld.items, ld.bytes, f.bytes/1_000_000, f.took.Round(time.Millisecond), ld.prototype, f.installed, f.copied.Round(time.Millisecond),
		100*f.copied.Seconds()/f.took.Seconds(), 100*f.copied.Seconds()/f.installed.Seconds(), f.eligible.Round(time.Millisecond))
	for _, clients := range []int{1, 16} {
		f := c.joinBeside(binary, fmt.Sprintf("beside-%d", clients), clients)
		t.Logf("%d items of %d bytes beside %d clients: empty directory to voter %s, of which transfer and install %s; write p99 before %s, during %s (%.1f times)",
			ld.items, ld.bytes, clients, f.took.Round(time.Millisecond), f.installed, f.before, f.during, f.during.Seconds()/f.before.Seconds())
	}
	c.Stop()
}

// joining is what was measured of a join.
type joining struct {
	took      time.Duration // from the start of the process, on an empty directory, to its vote
	installed time.Duration // of which from its admission to its open replica
	eligible  time.Duration // of which with little to catch up
	bytes     int64         // that were installed
	copied    time.Duration // what cp and BLAKE3 take for them

	before, during time.Duration // the 99th percentile of writes
}

// joinBeside has a member join while clients write, one write after the other each, and removes it again.
func (c *Cluster) joinBeside(binary, name string, clients int) (f joining) {
	c.t.Helper()
	if clients > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		f.before = p99(c.writers(clients, ctx.Done()))
		cancel()
	}
	var writing sync.WaitGroup
	voted := make(chan struct{})
	writing.Go(func() { f.during = p99(c.writers(clients, voted)) })
	e := c.Extra(binary, name, Seeds(c.Members...)...)
	start := time.Now()
	e.Start()
	f.eligible = c.watchPromotion(name)
	f.took = time.Since(start)
	close(voted)
	writing.Wait()
	f.installed = between(c.t, e.Said(), "msg=admitted", "msg=joined")
	_ = syscall.Kill(e.PID, syscall.SIGSTOP) // its files stay as they are
	f.bytes, f.copied = copyAndSum(c.t, filepath.Join(e.Dir, "groups", "0"))
	_ = syscall.Kill(e.PID, syscall.SIGCONT)
	c.MustRemove(name)
	e.Stop()
	return f
}

// writers has clients write until over is closed, and returns how long every write took.
func (c *Cluster) writers(clients int, over <-chan struct{}) (all []time.Duration) {
	var writing sync.WaitGroup
	var mu sync.Mutex
	for range clients {
		writing.Go(func() {
			var took []time.Duration
			for more := true; more; {
				took = append(took, writeLatency(c, 50*time.Millisecond)...)
				select {
				case <-over:
					more = false
				default:
				}
			}
			mu.Lock()
			all = append(all, took...)
			mu.Unlock()
		})
	}
	writing.Wait()
	return all
}

// watchPromotion waits until a member votes, and returns how long it was after it was first seen close
// enough behind the leader; 0: it was never seen so and no voter.
func (c *Cluster) watchPromotion(name string) time.Duration {
	var eligible, asked time.Time
	c.Until(name+" votes", func() error {
		if time.Since(asked) < 100*time.Millisecond { // a status asks every member, and writes are measured beside
			return errors.New("not asked")
		}
		asked = time.Now()
		var st api.Status
		if err := c.anyStatus(&st); err != nil {
			return err
		}
		for _, r := range st.Regions {
			switch {
			case r.Name != name:
			case r.Role == api.RoleVoter:
				return nil
			case eligible.IsZero() && r.Reachable && r.LagEvents != nil && *r.LagEvents <= 1024 && r.AppliedEvents > 1:
				eligible = time.Now()
			}
		}
		return errors.New("not yet")
	})
	if eligible.IsZero() {
		return 0
	}
	return time.Since(eligible)
}

// between returns how long after the first line with one word a log has the first with another.
func between(t testing.TB, log, from, to string) time.Duration {
	t.Helper()
	at := func(word string) time.Time {
		for line := range strings.Lines(log) {
			if !strings.Contains(line, word) {
				continue
			}
			text, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
			if when, err := time.Parse(time.RFC3339Nano, text); err == nil {
				return when
			}
		}
		t.Fatalf("the log does not say %q with its time:\n%s", word, log)
		return time.Time{}
	}
	return at(to).Sub(at(from))
}

// exists reports whether something in dir has this name, or pattern.
func exists(dir, pattern string) bool {
	found, _ := filepath.Glob(filepath.Join(dir, pattern))
	return len(found) > 0
}

// role is what the members say that name is; empty: no member.
func role(c *Cluster, name string) string {
	var m api.Members
	if err := c.Get(c.Members[0], "/cluster/members", &m); err != nil {
		return ""
	}
	for _, x := range m.Roster.Members {
		if x.Name == name {
			return x.Role
		}
	}
	return ""
}

// store writes n items of about size bytes that do not compress.
func store(c *Cluster, n, size int) {
	const batch = 900 << 10 // a body has 1 MiB at most
	each := max(1, batch/size)
	seed := uint64(1)
	for at := 0; at < n; at += each {
		var items []map[string]string
		for i := at; i < min(n, at+each); i++ {
			text := make([]byte, size)
			for j := range text {
				seed = seed*6364136223846793005 + 1442695040888963407
				text[j] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"[seed>>58]
			}
			items = append(items, map[string]string{"id": fmt.Sprintf("it%07d", i), "text": string(text)})
		}
		c.Until("a batch of items", func() error {
			_, err := c.Do(http.MethodPost, c.Members[0], "/items", items, nil)
			return err
		})
	}
}

// writeLatency writes one signal after the other for d and returns how long each took.
func writeLatency(c *Cluster, d time.Duration) (took []time.Duration) {
	_, _ = c.Do(http.MethodPost, c.Members[0], "/items", map[string]string{"id": "latency"}, nil)
	for end := time.Now().Add(d); time.Now().Before(end); {
		start := time.Now()
		if _, err := c.Do(http.MethodPost, c.Members[0], "/signals", api.Signal{Item: "latency", Signal: "view"}, nil); err == nil {
			took = append(took, time.Since(start))
		}
	}
	return took
}

func p99(took []time.Duration) time.Duration {
	if len(took) == 0 {
		return 0
	}
	took = slices.Clone(took)
	slices.SortFunc(took, cmp.Compare[time.Duration])
	return took[len(took)*99/100].Round(100 * time.Microsecond)
}

// copyAndSum copies the state files of a group with a sync each, sums them, and says how long that took.
func copyAndSum(t testing.TB, group string) (bytes int64, took time.Duration) {
	states, err := filepath.Glob(filepath.Join(group, "state-*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	start := time.Now()
	for i, path := range states {
		from, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		out, err := os.Create(filepath.Join(to, fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.MultiWriter(out, blake3.New()), from)
		if err := errors.Join(err, out.Sync(), out.Close(), from.Close()); err != nil {
			t.Fatal(err)
		}
		bytes += n
	}
	return bytes, time.Since(start)
}
