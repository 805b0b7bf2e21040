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
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/state"
)

// The scenarios here damage one member and wait until it is well again by itself: its directory is never
// wiped, it keeps its id, and what was acknowledged meanwhile is there in the end.

// offline kills a member, does something to its directory, and lets it be started again.
func (c *Cluster) offline(name string, do func(dir datadir.Contents)) {
	c.t.Helper()
	pid := c.pid(name)
	family := c.cmd.Process
	if err := family.Signal(syscall.SIGSTOP); err != nil { // it starts what died again
		c.t.Fatal(err)
	}
	defer func() { _ = family.Signal(syscall.SIGCONT) }()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		c.t.Fatalf("kill %s: %v", name, err)
	}
	dir := c.Member(name).Dir
	lock, err := os.Open(filepath.Join(dir, "LOCK"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil { // until the kernel has let go of it
		c.t.Fatal(err)
	}
	contents, err := datadir.Inspect(vfs.Default, dir)
	if err != nil {
		c.t.Fatal(err)
	}
	do(contents)
}

// openState opens the state of a member that is dead, once the kernel has let go of it.
func (c *Cluster) openState(dir datadir.Contents) (s *state.Store) {
	c.t.Helper()
	c.Until("the state in "+dir.Path, func() (err error) {
		s, err = state.Open(state.Options{Dir: dir.Groups[0].StateDir})
		return err
	})
	return s
}

// alter has the state hold an item that nobody wrote, and a digest that fits it: what a bug of apply would
// have done. What the log has beyond the state is replayed and does not touch it.
func (c *Cluster) alter(dir datadir.Contents) {
	t := c.t
	t.Helper()
	s := c.openState(dir)
	key, value := entity.AppendItemKey(nil, 1, "nobody wrote it"), []byte("something")
	pos := s.Position()
	if pos.Digest.Version != 0 { // else it is made at the next opening
		var h state.Summer
		sums := slices.Clone(pos.Digest.Sums)
		n, _ := entity.SumOf(key)
		sums[n] = sums[n].Plus(h.Pair(key, value))
		pos.Digest.Sums = sums
	}
	b := s.NewBatch()
	b.Set(key, value)
	if err := errors.Join(b.Commit(pos), b.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// flip changes one bit in the middle of a file.
func flip(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil || len(b) == 0 {
		t.Fatalf("%s: %d bytes, %v", path, len(b), err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// seen waits until a member has seen an event of a kind in this boot, and returns its text.
func (c *Cluster) seen(name, kind, with string) string {
	c.t.Helper()
	text := ""
	c.Until(fmt.Sprintf("%s (%s) on %s", kind, with, name), func() error {
		for _, e := range c.eventsOf(name) {
			if e.Kind == kind && strings.Contains(e.Text, with) {
				text = e.Text
				return nil
			}
		}
		return errors.New("it has seen none")
	})
	return text
}

// eventsOf is events of a member that may be away.
func (c *Cluster) eventsOf(name string) []api.Event {
	var alive api.Alive
	if err := c.Get(c.Member(name), "/healthz", &alive); err != nil {
		return nil
	}
	return events(c, name)
}

// well waits until a member was installed and is a voter as any other again, under the id that it had.
func (c *Cluster) well(name, id string) {
	c.t.Helper()
	c.Until(name+" is well again", func() error {
		g := group(c, name)
		if g.Quarantine != nil || g.ReseedRequired || g.State == "closed" {
			return fmt.Errorf("it stands at %+v, quarantine %+v, reseed %+v", g, g.Quarantine, g.Reseed)
		}
		return nil
	})
	healthy(c)
	if now := c.idOf(name); now != id {
		c.t.Errorf("%s has id %s, had %s", name, now, id)
	}
}

func (c *Cluster) idOf(name string) string {
	c.t.Helper()
	var local api.LocalStatus
	c.Until("the id of "+name, func() error { return c.Get(c.Member(name), "/cluster/status/local", &local) })
	return local.ID
}

// reseed asks for a reseed and does not wait for it.
func (c *Cluster) reseed(name, from string) {
	c.t.Helper()
	c.Until("a reseed of "+name+" is asked for", func() error {
		_, err := c.Do(http.MethodPost, c.Members[0], "/cluster/reseed", api.ReseedRequest{Region: name, From: from, NoWait: true}, nil)
		return err
	})
}

// reseeded waits until a member was installed once more than before.
func (c *Cluster) reseeded(name string, before uint64) {
	c.t.Helper()
	c.Until("a reseed of "+name, func() error {
		if g := group(c, name); g.Reseeds <= before || g.ReseedRequired || g.State == "closed" {
			return fmt.Errorf("%d installs, %d before; reseed %+v, install %+v", g.Reseeds, before, g.Reseed, g.Install)
		}
		return nil
	})
}

// transferTo moves leadership, and reports whether it moved.
func (c *Cluster) transferTo(name string) bool {
	_, err := c.Do(http.MethodPost, c.besides(name), "/cluster/promote", api.PromoteRequest{Region: name, TimeoutMS: 3000}, nil)
	return err == nil && c.Leader() == name
}

// A follower whose state is not what the others have finds out by itself at the next check, and is
// installed again, while it votes.
func TestSoak_StateAlteredOnAFollower(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	l := NewLedger(c, 4)
	l.During(func() { l.WaitAcked(100) })
	name := follower(c)
	id := c.idOf(name)
	c.offline(name, c.alter)
	l.During(func() {
		t.Log(c.seen(name, "quarantined", "divergent"))
		c.seen(name, "installed", "")
		c.seen(name, "quarantine_ended", "divergent")
		l.WaitAcked(100)
	})
	c.well(name, id)
	g := group(c, name)
	if len(g.Kept) != 1 || !strings.HasSuffix(g.Kept[0].Name, "-divergent") {
		t.Errorf("kept: %+v", g.Kept)
	}
	var out api.Verified
	if _, err := c.Do(http.MethodPost, c.Members[0], "/cluster/verify", api.VerifyRequest{TimeoutMS: 5000}, &out); err != nil || !out.OK {
		t.Errorf("verify: %+v, %v", out, err)
	}
	c.Audit(l)
}

// A leader whose state is not what the others have hands over, and is installed again.
func TestSoak_StateAlteredOnTheLeader(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	l := NewLedger(c, 4)
	l.During(func() { l.WaitAcked(100) })
	name := c.Leader()
	id := c.idOf(name)
	led := false
	for try := 0; !led; try++ { // it must lead before the next check
		if try == 8 {
			t.Fatal("no altered member led before it was found out")
		}
		c.offline(name, c.alter)
		c.Until(name+" is back", func() error {
			if c.transferTo(name) || group(c, name).Quarantine != nil || slices.ContainsFunc(c.eventsOf(name), func(e api.Event) bool { return e.Kind == "quarantined" }) {
				return nil
			}
			return errors.New("it does not lead")
		})
		led = slices.ContainsFunc(c.eventsOf(name), func(e api.Event) bool { return e.Kind == "state_changed" && strings.Contains(e.Text, "is leader") })
		if !led {
			c.well(name, id)
		}
	}
	l.During(func() {
		t.Log(c.seen(name, "quarantined", "divergent"))
		c.Until("another leader", func() error {
			if now := c.Leader(); now == name {
				return errors.New("it still leads")
			}
			return nil
		})
		c.seen(name, "installed", "")
		l.WaitAcked(100)
	})
	c.well(name, id)
	c.Audit(l)
}

// A bit that flips in a part of the log that was sealed makes the log unsound: its member is closed to
// raft, and comes back by an install under a barrier.
func TestSoak_FlippedByteInASealedSegment(t *testing.T) {
	c := Start(t, Binary(t), Options{Args: []string{"--set", "replication.log_segment=64KiB"}})
	l := NewLedger(c, 8)
	l.During(func() { l.WaitAcked(1000) })
	name := follower(c)
	id := c.idOf(name)
	fill(c, c.Member(c.Leader()), 16)
	healthy(c)
	c.offline(name, func(dir datadir.Contents) {
		segments, err := filepath.Glob(filepath.Join(dir.Groups[0].LogDir, "*.wal"))
		if err != nil || len(segments) < 3 {
			t.Fatalf("segments %v, %v", segments, err)
		}
		flip(t, segments[0])
	})
	l.During(func() {
		t.Log(c.seen(name, "quarantined", "log_corrupt"))
		c.seen(name, "installed", "")
		l.WaitAcked(100)
	})
	c.well(name, id)
	c.Audit(l)
}

// A bit that flips in a table file is met by the scrub at the latest. The member goes on voting without
// its state until it is installed again.
func TestSoak_FlippedByteInATable(t *testing.T) {
	c := Start(t, Binary(t), Options{Args: []string{"--set", "replication.scrub_every=3s", "--set", "replication.scrub_rate=0"}})
	l := NewLedger(c, 8)
	fillDistinct(c, c.Member(c.Leader()), 512)
	l.During(func() { l.WaitAcked(100) })
	name := follower(c)
	id := c.idOf(name)
	c.Until("a large table on "+name, func() error {
		path, bytes := largest(t, c.Member(name).Dir)
		if bytes < 256<<10 {
			return fmt.Errorf("the largest is %s with %d bytes", path, bytes)
		}
		c.offline(name, func(dir datadir.Contents) {
			if err := c.openState(dir).Close(); err != nil { // removes one that was not finished
				t.Fatal(err)
			}
			if path, bytes = largest(t, dir.Path); bytes >= 256<<10 {
				flip(t, path)
			}
		})
		if bytes < 256<<10 {
			return errors.New("it was not finished")
		}
		return nil
	})
	l.During(func() {
		t.Log(c.seen(name, "quarantined", "state_error"))
		c.seen(name, "installed", "")
		l.WaitAcked(100)
	})
	c.well(name, id)
	c.Audit(l)
}

// largest is the largest table of a member's state.
func largest(t *testing.T, dir string) (path string, bytes int64) {
	t.Helper()
	tables, err := filepath.Glob(filepath.Join(dir, "groups", "0", "state-*", "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range tables {
		if info, err := os.Stat(p); err == nil && info.Size() > bytes { // else it was compacted meanwhile
			path, bytes = p, info.Size()
		}
	}
	return path, bytes
}

// A sync of the log that fails is final: the member acknowledges nothing more, and comes back by itself.
func TestSoak_FailedSync(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: tracing another process needs root")
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("skipped: strace is not installed (apt-get install strace)")
	}
	c := Start(t, Binary(t), Options{})
	l := NewLedger(c, 8)
	l.During(func() { l.WaitAcked(200) })
	name := follower(c)
	id := c.idOf(name)
	l.During(func() {
		var words bytes.Buffer
		cmd := exec.Command(strace, "-f", "-qq", "-o", "/dev/null", "-p", strconv.Itoa(c.pid(name)),
			"-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=1")
		cmd.Stdout, cmd.Stderr = &words, &words
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		text := c.seen(name, "quarantined", "log_write")
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait()
		t.Log(text, words.String())
		c.seen(name, "installed", "")
		l.WaitAcked(100)
	})
	c.well(name, id)
	c.Audit(l)
}

// A voter that acknowledges is reseeded and the leader dies right after: nothing is lost, for its log was
// kept.
func TestSoak_ReseedOfAVoterThenTheLeaderDies(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	l := NewLedger(c, 8)
	for range 3 {
		name := follower(c)
		id, before := c.idOf(name), group(c, name).Reseeds
		l.During(func() {
			l.WaitAcked(200)
			c.reseed(name, "")
			c.reseeded(name, before)
			c.Signal(c.Leader(), syscall.SIGKILL)
			l.WaitAcked(200)
		})
		c.well(name, id)
	}
	c.Audit(l)
}

// Two members that are to be reseeded at once are closed one after the other: there is a majority all the
// time.
func TestSoak_TwoReseedsAtOnce(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	l := NewLedger(c, 8)
	var followers []string
	leader := c.Leader()
	for _, m := range c.Members {
		if m.Name != leader {
			followers = append(followers, m.Name)
		}
	}
	l.During(func() {
		for range 3 {
			l.WaitAcked(100)
			before := map[string]uint64{}
			for _, name := range followers {
				before[name] = group(c, name).Reseeds
			}
			for _, name := range followers {
				c.reseed(name, "")
			}
			for _, name := range followers {
				c.reseeded(name, before[name])
			}
			l.WaitAcked(100)
		}
	})
	healthy(c)
	if now := c.Leader(); now != leader {
		t.Errorf("%s leads, it was %s: somebody was missed", now, leader)
	}
	c.Audit(l)
}

// A source that dies when most was sent costs no second transfer of what arrived, or begins anew from
// another: the reseed comes to its end.
func TestSoak_SourceKilledLateInTheTransfer(t *testing.T) {
	c := Start(t, Binary(t), Options{Args: []string{"--set", "replication.snapshot_rate=4MiB"}})
	l := NewLedger(c, 4)
	fillDistinct(c, c.Member(c.Leader()), 1024)
	healthy(c)
	leader := c.Leader()
	var others []string
	for _, m := range c.Members {
		if m.Name != leader {
			others = append(others, m.Name)
		}
	}
	name, source := others[0], others[1]
	id, before := c.idOf(name), group(c, name).Reseeds
	l.During(func() {
		c.reseed(name, source)
		c.Until("nine tenths of the transfer", func() error {
			if i := group(c, name).Install; i == nil || i.Total == 0 || i.Bytes*10 < i.Total*9 {
				return fmt.Errorf("it stands at %+v", i)
			}
			return nil
		})
		c.Signal(source, syscall.SIGKILL)
		l.WaitAcked(50)
		c.reseeded(name, before)
		l.WaitAcked(50)
	})
	c.well(name, id)
	c.Audit(l)
}

// fillDistinct writes n items of 16 KiB that do not compress.
func fillDistinct(c *Cluster, m api.DevMember, n int) {
	text := make([]byte, 16<<10)
	x := uint64(1)
	for i := range n {
		for j := range text {
			x = x*6364136223846793005 + 1442695040888963407
			text[j] = 'a' + byte(x>>33)%26
		}
		item := map[string]any{"id": fmt.Sprintf("distinct-%d", i), "attrs": map[string]string{"text": string(text)}}
		if _, err := c.Do(http.MethodPost, m, "/items", item, nil); err != nil {
			c.t.Errorf("write a filler: %v", err)
		}
	}
}

// A receiver without room keeps what it has, says why, and goes on when there is room.
func TestSoak_ReseedWithoutRoom(t *testing.T) {
	dir, leave := smallDisk(t)
	c := Start(t, Binary(t), Options{Dir: dir, Args: []string{"--set", "replication.log_segment=1MiB"}})
	l := NewLedger(c, 4)
	east := c.Member("us-east")
	for c.Leader() == east.Name {
		c.transferTo(c.besides(east.Name).Name)
	}
	fillDistinct(c, c.Member(c.Leader()), 512)
	healthy(c)
	id, before := c.idOf(east.Name), group(c, east.Name).Reseeds
	l.During(func() {
		leave(18 * mib) // less than an artifact and what it must leave
		c.reseed(east.Name, "")
		c.Until("the reason why it waits", func() error {
			g := group(c, east.Name)
			if g.Reseed == nil || g.Reseed.Failure == nil || !strings.Contains(*g.Reseed.Failure, "are free") {
				return fmt.Errorf("reseed %+v", g.Reseed)
			}
			return nil
		})
		if g := group(c, east.Name); g.Quarantine != nil || g.State == "closed" || g.Reseeds != before {
			t.Errorf("it does not go on with what it has: %+v", g)
		}
		l.WaitAcked(100)
		leave(0)
		c.reseeded(east.Name, before)
	})
	c.well(east.Name, id)
	c.Audit(l)
}

// A learner is reseeded while it is promoted, and the leader dies right after: what the learner acknowledged
// counts from the moment in which its promotion is applied. In turn its log is sound and stays, by the word of
// an operator, or is corrupt, so that it is replaced under a barrier.
func TestSoak_ReseedOfALearnerUnderPromotion(t *testing.T) {
	binary := Binary(t)
	c := Start(t, binary, Options{Args: []string{"--set", "replication.log_segment=64KiB", "--set", "replication.snapshot_rate=4MiB"}})
	l := NewLedger(c, 8)
	fillDistinct(c, c.Member(c.Leader()), 128)
	l.During(func() { l.WaitAcked(100) })
	for round := range 6 {
		e := c.Extra(binary, fmt.Sprintf("learner-%d", round), Seeds(c.Members[0])...)
		corrupt := round%2 == 1
		l.During(func() {
			e.Start()
			c.Until(e.Name+" holds an open replica", func() error {
				var local api.LocalStatus
				if err := c.Get(e.DevMember, "/cluster/status/local", &local); err != nil {
					return err
				}
				if len(local.Groups) == 0 || local.Groups[0].State == "closed" || local.Groups[0].LeaderLast == nil {
					return fmt.Errorf("%+v", local.Groups)
				}
				return nil
			})
			if corrupt {
				fill(c, c.Member(c.Leader()), 16) // its log has sealed segments then
				c.Until(e.Name+" is promoted", func() error {
					if r := role(c, e.Name); r != api.RoleVoter {
						return fmt.Errorf("it is %q", r)
					}
					return nil
				})
				e.Kill()
				corruptSealed(t, e.Dir)
				e.Start()
			} else {
				c.Until("a reseed of "+e.Name+" is asked for", func() error {
					_, err := c.Do(http.MethodPost, e.DevMember, "/cluster/reseed", api.ReseedRequest{Region: e.Name, NoWait: true}, nil)
					return err
				})
				c.Until(e.Name+" is promoted", func() error {
					if r := role(c, e.Name); r != api.RoleVoter {
						return fmt.Errorf("it is %q", r)
					}
					return nil
				})
			}
			c.Signal(c.Leader(), syscall.SIGKILL)
			c.Members = append(c.Members, e.DevMember)
			c.reseeded(e.Name, 0)
			l.WaitAcked(100)
		})
		healthy(c)
		t.Logf("%s, corrupt log %t: %+v", e.Name, corrupt, group(c, e.Name).Kept)
		l.Check()
		c.without(e.Name)
		c.MustRemove(e.Name)
		c.waitTold(e.DevMember)
		e.Stop()
	}
	c.Audit(l)
}

// corruptSealed flips a bit in the first of the segments in a member's log, which others follow.
func corruptSealed(t *testing.T, dir string) {
	t.Helper()
	contents, err := datadir.Inspect(vfs.Default, dir)
	if err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(contents.Groups[0].LogDir, "*.wal"))
	if err != nil || len(segments) < 3 {
		t.Fatalf("segments %v, %v", segments, err)
	}
	flip(t, segments[0])
}

// With replication.reseed: manual a member that is to be installed again says so and waits: for the verb, or
// for its next start.
func TestSoak_ReseedManualWaits(t *testing.T) {
	c := Start(t, Binary(t), Options{Args: []string{"--set", "replication.reseed=manual"}})
	l := NewLedger(c, 4)
	l.During(func() { l.WaitAcked(100) })
	name := follower(c)
	id := c.idOf(name)
	for _, way := range []string{"the verb", "a start"} {
		c.offline(name, c.alter)
		l.During(func() {
			t.Log(c.seen(name, "quarantined", "divergent"))
			before := group(c, name).Reseeds
			c.Until("the reason why it waits", func() error {
				g := group(c, name)
				if g.Reseed == nil || g.Reseed.Refused == nil || !strings.Contains(*g.Reseed.Refused, "tidalctl reseed") {
					return fmt.Errorf("reseed %+v, quarantine %+v", g.Reseed, g.Quarantine)
				}
				return nil
			})
			l.WaitAcked(300)
			g := group(c, name)
			if g.Reseeds != before || g.Quarantine == nil || g.Quarantine.Evidence == nil || !g.Quarantine.Votes || !g.ReseedRequired {
				t.Errorf("it did not wait for %s, or does not say why: %+v", way, g)
			}
			var why api.Why
			if err := c.Get(c.besides(name), "/cluster/why/"+name, &why); err != nil {
				t.Error(err)
			}
			said := fmt.Sprintf("%+v", why.Questions)
			for _, want := range []string{"divergent; it still votes", "its state added up to", "waits for an operator"} {
				if !strings.Contains(said, want) {
					t.Errorf("why does not say %q: %s", want, said)
				}
			}
			if way == "the verb" {
				c.reseed(name, "")
			} else {
				c.Signal(name, syscall.SIGKILL) // dev starts it again
			}
			c.seen(name, "installed", "")
			l.WaitAcked(100)
		})
		c.well(name, id)
	}
	c.Audit(l)
}
