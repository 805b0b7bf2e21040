//go:build soak

package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// Five become three while clients write: first a follower goes, then the leader. No write fails, and the
// term grows by the hand-over alone.
func TestSoak_RemoveFiveToThree(t *testing.T) {
	c := Start(t, Binary(t), Options{Nodes: 5})
	c.acquainted()
	l := NewLedger(c, 16)
	l.During(func() { l.WaitAcked(300) })
	for _, what := range []string{"a follower", "the leader"} {
		victim, handsOver := follower(c), uint64(0)
		if what == "the leader" {
			victim, handsOver = c.Leader(), 1
		}
		gone := c.Member(victim)
		c.without(victim)
		term := termOf(c)
		refused := len(l.Claims().Refused) + len(l.Claims().Unknown)
		l.During(func() {
			l.WaitAcked(100)
			start := time.Now()
			done, err := c.Remove(victim)
			if err != nil || !done.Settled {
				t.Errorf("remove %s: %+v, %v", victim, done, err)
			}
			t.Logf("removed %s, %s, in %s", what, victim, time.Since(start).Round(time.Millisecond))
			l.WaitAcked(300)
		})
		if failed := len(l.Claims().Refused) + len(l.Claims().Unknown) - refused; failed > 0 {
			t.Errorf("%d writes failed while %s was removed", failed, what)
		}
		c.waitTold(gone)
		if now := termOf(c); now > term+handsOver {
			t.Errorf("term %d, was %d before %s was removed", now, term, what)
		}
	}
	l.During(func() { l.WaitAcked(300) })
	c.Audit(l)
}

// A member that was down while it was removed learns it when it comes back, and disturbs nobody. So does
// one that was paused, and stood for leader as soon as it went on.
func TestSoak_RemoveWhileDown(t *testing.T) {
	binary := Binary(t)
	c := Start(t, binary, Options{})
	l := NewLedger(c, 8)
	var extras []*Extra
	for _, name := range []string{"down", "paused"} {
		e := c.Extra(binary, name, Seeds(c.Members[0])...)
		e.Start()
		c.WaitRole(name, api.RoleVoter)
		extras = append(extras, e)
	}
	l.During(func() { l.WaitAcked(100) })
	extras[0].Kill()
	pid := extras[1].PID
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	l.During(func() {
		for _, e := range extras {
			c.MustRemove(e.Name, "rest_reachable") // the other one does not answer either: that check may be passed over
		}
		l.WaitAcked(200)
	})
	term := termOf(c)
	extras[0].Start()
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for _, e := range extras {
		c.waitTold(e.DevMember)
	}
	l.During(func() { l.WaitAcked(500) })
	if now := termOf(c); now != term {
		t.Errorf("term %d, was %d before the removed members came back", now, term)
	}
	for _, e := range extras {
		e.Stop()
	}
	c.Audit(l)
}

// What is unsafe is refused with 409 and the numbers, and changes nothing.
func TestSoak_RemoveUnsafeIsRefused(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	leader := c.Leader()
	silent := follower(c)
	resume := c.Pause(silent)
	defer resume()
	c.Until("the removal of the leader is refused", func() error {
		var out api.MemberChanged
		_, err := c.Do(http.MethodPost, c.Member(leader), "/cluster/members/remove", api.MemberRequest{Name: leader, TimeoutMS: 5000}, &out)
		p, ok := errors.AsType[*api.Problem](err)
		if !ok || p.Code != api.CodeUnsafeRemoval || p.Measured == nil || p.Threshold == nil {
			return fmt.Errorf("%+v, %v", out, err)
		}
		t.Log(p.Detail)
		return nil
	})
	resume()
	healthy(c)
}

// A member that was removed comes again, with the same name or another one, at the same address or another
// one, with its directory or without: each of the eight has one outcome. So has one that is killed, removed while
// it is down, and added again at once, where nobody has let go of the old process: its first attempt succeeds.
func TestSoak_RemoveAndAddAgain(t *testing.T) {
	const (
		refuses = "does not start: a directory belongs to one name"
		stays   = "knows that it was removed, and stays so"
		meant   = "is refused as removed, and joins under a new id with --rejoin"
		joins   = "joins under a new id"
		atOnce  = "joins under a new id with --rejoin, while others still look for the old one"
	)
	binary := Binary(t)
	c := Start(t, binary, Options{})
	l := NewLedger(c, 8)
	l.During(func() { l.WaitAcked(100) })
	next := 4 // the id that is given next
	joined := func(t *testing.T, e *Extra) {
		t.Helper()
		if row := c.WaitRole(e.Name, api.RoleVoter); row.ID != fmt.Sprint(next) {
			t.Errorf("%s is member %s, want %d", e.Name, row.ID, next)
		}
		next++
	}
	for i, tc := range []struct {
		name                     string
		sameName, sameAddr, kept bool
		outcome                  string
	}{
		{"same name, same address, directory kept", true, true, true, stays},
		{"same name, other address, directory kept", true, false, true, stays},
		{"other name, same address, directory kept", false, true, true, refuses},
		{"other name, other address, directory kept", false, false, true, refuses},
		{"same name, same address, directory wiped", true, true, false, meant},
		{"same name, other address, directory wiped", true, false, false, meant},
		{"other name, same address, directory wiped", false, true, false, joins},
		{"other name, other address, directory wiped", false, false, false, joins},
		{"killed before, same name, same address, directory wiped", true, true, false, atOnce},
	} {
		t.Run(tc.name, func(t *testing.T) {
			first := c.Extra(binary, fmt.Sprintf("again-%d", i), Seeds(c.Members[0])...)
			first.Start()
			joined(t, first)
			if tc.outcome == atOnce {
				first.Kill()
			}
			c.MustRemove(first.Name)
			if tc.outcome != atOnce {
				c.waitTold(first.DevMember)
				first.Kill()
			}
			if !tc.kept {
				if err := os.RemoveAll(first.Dir); err != nil {
					t.Fatal(err)
				}
			}
			name := first.Name
			if !tc.sameName {
				name += "-new"
			}
			second := c.Extra(binary, name, Seeds(c.Members[0])...)
			if tc.sameAddr {
				second.HTTP, second.GRPC = first.HTTP, first.GRPC
			}
			second.Dir = first.Dir
			if tc.outcome == atOnce {
				second.Start("--rejoin")
			} else {
				second.Start()
			}
			defer second.Kill()
			switch tc.outcome {
			case refuses:
				c.Until("it refuses to start", func() error {
					if code, ended := second.Exited(); !ended || code != 78 {
						return fmt.Errorf("ended %t with %d", ended, code)
					}
					return nil
				})
			case stays:
				c.waitTold(second.DevMember)
			case meant:
				c.waitReadyz(second.DevMember, "removed")
				second.Start("--rejoin")
				fallthrough
			case joins, atOnce:
				joined(t, second)
				c.MustRemove(second.Name)
				c.waitTold(second.DevMember)
			}
			if r := role(c, second.Name); r != "" {
				t.Errorf("in the end it is %s, want no member", r)
			}
		})
	}
	l.During(func() { l.WaitAcked(100) })
	c.Audit(l)
}

// The figure: a member whose directory is gone votes again; of 300 MB with -figures.
func TestSoak_RemoveWipedDirectoryComesBack(t *testing.T) {
	items := 700
	if *figures {
		items = 7_000
	}
	c := Start(t, Binary(t), Options{Args: []string{"--set", "membership.replace_grace=1s", "--set", "replication.log_keep=8MiB"}})
	store(c, items, 45_000)
	healthy(c)
	victim := follower(c)
	before := c.WaitRole(victim, api.RoleVoter).ID
	pid := c.pid(victim)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := os.RemoveAll(c.Member(victim).Dir); err != nil {
		t.Fatal(err)
	}
	c.Until(victim+" votes under another id", func() error {
		var st api.Status
		if err := c.anyStatus(&st); err != nil {
			return err
		}
		for _, r := range st.Regions {
			if r.Name == victim && r.Role == api.RoleVoter && r.ID != before && r.Reachable {
				return nil
			}
		}
		return errors.New("not yet")
	})
	t.Logf("a wiped directory to voter again, %d MB: %s, of which dev waits 2 s and the grace takes 1 s", size(c.Member(victim).Dir)>>20, time.Since(start).Round(time.Millisecond))
}

// size is how many bytes the files below dir have.
func size(dir string) (n int64) {
	_ = filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

// without forgets a member, so that nobody is asked through it.
func (c *Cluster) without(name string) {
	var rest []api.DevMember
	for _, m := range c.Members {
		if m.Name != name {
			rest = append(rest, m)
		}
	}
	c.Members = rest
}

// waitTold waits until a member says that it was removed.
func (c *Cluster) waitTold(m api.DevMember) { c.waitReadyz(m, "removed") }

func (c *Cluster) waitReadyz(m api.DevMember, word string) {
	c.t.Helper()
	c.Until(m.Name+" is not ready: "+word, func() error {
		_, err := c.Do(http.MethodGet, m, "/readyz", nil, nil)
		p, ok := errors.AsType[*api.Problem](err)
		if !ok || p.Status != http.StatusServiceUnavailable || !strings.Contains(p.Detail, word) {
			return fmt.Errorf("readyz: %v", err)
		}
		return nil
	})
}
