//go:build soak

package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"syscall"
	"testing"

	"github.com/tidaldb/tidal/daemon/api"
)

// All members lose power while one joins, while one is removed, and while one that lost its disk is
// replaced. When they are back the change goes on, or is asked for again, and what was acknowledged stands.
func TestSoak_ChangePowerLossOfEverybody(t *testing.T) {
	binary := Binary(t)
	c := Start(t, binary, Options{Args: append(compacting(), "--set", "membership.replace_grace=1s")})
	l := NewLedger(c, 8)
	l.During(func() { l.WaitAcked(100) })
	compactPastTheFirst(c)

	e := c.Extra(binary, "joiner", Seeds(c.Members...)...)
	e.Start()
	c.Until("the joiner is in the roster", func() error {
		if role(c, e.Name) == "" {
			return errors.New("not yet")
		}
		return nil
	})
	e.Kill()
	c.KillAll()
	e.Start()
	c.WaitRole(e.Name, api.RoleVoter)
	l.During(func() { l.WaitAcked(100) })
	t.Log("a join goes on after a power loss")

	removed := make(chan error, 1)
	go func() {
		_, err := c.Remove(e.Name)
		removed <- err
	}()
	c.KillAll()
	t.Logf("a removal in the middle of which everybody lost power: %v", <-removed)
	c.MustRemove(e.Name)
	c.waitTold(e.DevMember)
	e.Stop()
	l.During(func() { l.WaitAcked(100) })

	victim := follower(c)
	before := c.WaitRole(victim, api.RoleVoter).ID
	c.Signal(victim, syscall.SIGKILL)
	if err := os.RemoveAll(c.Member(victim).Dir); err != nil {
		t.Fatal(err)
	}
	c.Until("the one with the lost disk is in the roster again", func() error {
		var m api.Members
		if err := c.Get(c.besides(victim), "/cluster/members", &m); err != nil {
			return err
		}
		for _, x := range m.Roster.Members {
			if x.Name == victim && x.ID != before {
				return nil
			}
		}
		return errors.New("not yet")
	})
	for _, m := range c.Members {
		if pid := c.lastPID(m); pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	c.waitBack(victim, before, 3)
	l.During(func() { l.WaitAcked(100) })
	c.Audit(l)
}

// Two of four are stopped: nothing commits and no change of the voters is begun. When they go on, so does
// everything.
func TestSoak_ChangeTwoStoppedOfFour(t *testing.T) {
	c := Start(t, Binary(t), Options{Nodes: 4})
	l := NewLedger(c, 8)
	l.During(func() { l.WaitAcked(100) })
	leader := c.Leader()
	var stopped []string
	var resumes []func()
	for _, m := range c.Members {
		if m.Name != leader && len(stopped) < 2 {
			stopped = append(stopped, m.Name)
			resumes = append(resumes, c.Pause(m.Name))
		}
	}
	c.Until(leader+" does not lead any more", func() error { // until then it would propose the removal
		var st api.LocalStatus
		if err := c.Get(c.Member(leader), "/cluster/status/local", &st); err != nil {
			return err
		}
		if g := st.Groups[0]; g.State == "leader" {
			return fmt.Errorf("it is %s", g.State)
		}
		return nil
	})
	var out api.MemberChanged
	_, err := c.Do(http.MethodPost, c.Member(leader), "/cluster/members/remove", api.MemberRequest{Name: stopped[0], Override: []string{"rest_reachable"}, TimeoutMS: 5000}, &out)
	p, ok := errors.AsType[*api.Problem](err)
	if !ok || p.Code != api.CodeUnsafeRemoval && p.Code != api.CodeNoLeader && p.Code != api.CodeLeaderUnreached && p.Code != api.CodeBadRequest {
		t.Errorf("a removal that two of four cannot agree to: %+v, %v", out, err)
	}
	t.Log(err)
	for _, resume := range resumes {
		resume()
	}
	healthy(c)
	var m api.Members
	c.Until("the members", func() error { return c.Get(c.Members[0], "/cluster/members", &m) })
	if len(m.Roster.Members) != 4 {
		t.Errorf("%d members", len(m.Roster.Members))
	}
	l.During(func() { l.WaitAcked(100) })
	c.Audit(l)
}

// The process of a member stands still while another one comes, with an empty directory and its name. It is
// let in when the old one was silent for long enough, and takes its place; the old one goes on, is told, and
// disturbs nobody.
func TestSoak_ChangeTheOldProcessIsStillThere(t *testing.T) {
	binary := Binary(t)
	c := Start(t, binary, Options{Args: []string{"--set", "membership.replace_grace=2s"}})
	l := NewLedger(c, 8)
	old := c.Extra(binary, "twice", Seeds(c.Members[0])...)
	old.Start()
	before := c.WaitRole("twice", api.RoleVoter).ID
	l.During(func() { l.WaitAcked(100) })
	second := c.Extra(binary, "twice", Seeds(c.Members[1])...)
	second.Dir += "-second"
	second.Start()
	c.waitReadyz(second.DevMember, "was heard of") // the old one lives
	pid := old.PID
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	c.waitBack("twice", before, 4)
	term := termOf(c)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.waitTold(old.DevMember)
	c.Members = append(c.Members, second.DevMember)
	l.During(func() { l.WaitAcked(200) })
	if now := termOf(c); now != term {
		t.Errorf("term %d, was %d before the old process went on", now, term)
	}
	old.Stop()
	c.Audit(l)
}

// waitBack waits until a member votes under another id than before, beside so many voters in all.
func (c *Cluster) waitBack(name, before string, voters int) {
	c.t.Helper()
	c.Until(name+" votes under another id", func() error {
		var st api.Status
		if err := c.anyStatus(&st); err != nil {
			return err
		}
		n, back := 0, false
		for _, r := range st.Regions {
			if r.Role == api.RoleVoter {
				n++
			}
			back = back || r.Name == name && r.Role == api.RoleVoter && r.ID != before && r.Reachable
		}
		if !back || n != voters || len(st.Regions) != voters {
			return fmt.Errorf("%d voters of %d members, back %t", n, len(st.Regions), back)
		}
		return nil
	})
}

// lastPID is the process of a member that may not answer; 0: it does not.
func (c *Cluster) lastPID(m api.DevMember) int {
	var local api.LocalStatus
	if err := c.Get(m, "/cluster/status/local", &local); err != nil {
		return 0
	}
	return local.PID
}
