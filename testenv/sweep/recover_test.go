package sweep

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/testenv/simfs"
)

// recoverDip is about how many changes a recovery makes to the survivor's disk, the replica's closing and
// opening included.
const recoverDip = 32

// Power goes off while a cluster that lost two of three is recovered from the third: the recovery was
// carried out, whole, or it was not and can be planned again. Either way what was acknowledged is there,
// and the cluster writes.
func TestRecover_CrashEverywhere(t *testing.T) {
	t.Parallel()
	sound, runs, done := 0, 0, 0
	for cut := 1; cut <= recoverDip; cut += (stride + 1) / 2 {
		runs++
		carried, err := crashRecovery(t.Context(), cut)
		if err != nil {
			t.Errorf("power off at change %d of a recovery: %v", cut, err)
			continue
		}
		sound++
		if carried {
			done++
		}
	}
	if done == 0 || done == runs {
		t.Errorf("%d of %d recoveries had been carried out when the power went off: want some, and some not", done, runs)
	}
	report(t, "a recovery: %d of %d crashes survived, %d of them after it", sound, runs, done)
}

// crashRecovery reports whether the recovery had been carried out when the power went off.
func crashRecovery(ctx context.Context, cut int) (carried bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := newTrio(ctx)
	defer func() { c.stop() }()
	if err != nil {
		return false, fmt.Errorf("birth: %w", err)
	}
	if err := c.write(ctx, "before"); err != nil {
		return false, err
	}
	if err := c.agree(ctx, 1); err != nil {
		return false, err
	}
	const survivor = 1
	for i, n := range c.nodes {
		if i != survivor {
			n.stop()
			c.nodes[i] = nil
		}
	}
	plan, err := c.nodes[survivor].plan(ctx)
	if err != nil {
		return false, err
	}
	c.disks[survivor].CutPowerAt(cut)
	_, _ = c.nodes[survivor].Recover(ctx, plan) // where the power went off, its answer says nothing
	c.disks[survivor].CutPower()
	image := c.disks[survivor].Crash(simfs.Crashes()[cut%len(simfs.Crashes())], uint64(cut))
	c.nodes[survivor].stop()
	c.disks[survivor] = image
	if err := c.boot(survivor); err != nil {
		return false, err
	}
	n := c.nodes[survivor]
	if err := sound(n); err != nil {
		return false, err
	}
	x, err := n.Extent()
	if err != nil {
		return false, err
	}
	switch whole := len(x.Roster.Members) == 1 && len(x.Conf.GetVoters()) == 1; {
	case x.Roster.History == plan.History && whole:
		carried = true
	case x.Roster.History == (ident.History{}) && len(x.Roster.Members) == 3 && len(x.Conf.GetVoters()) == 3:
		again, err := n.plan(ctx)
		if err == nil {
			_, err = n.Recover(ctx, again)
		}
		if err != nil {
			return false, fmt.Errorf("planned again: %w", err)
		}
	default:
		return false, fmt.Errorf("half a recovery: %s, members %v, configuration %v", x.Roster.History, x.Roster.Members, x.Conf)
	}
	if err := c.put(ctx, []string{item("after", 0)}, n); err != nil {
		return carried, err
	}
	if err := n.catchUp(ctx); err != nil {
		return carried, err
	}
	return carried, c.audit(n)
}

// plan waits until n knows no leader, and plans to go on from it alone.
func (n *node) plan(ctx context.Context) (member.RecoverPlan, error) {
	for ctx.Err() == nil {
		x, err := n.Extent()
		if err != nil {
			return member.RecoverPlan{}, err
		}
		if x.Leader != 0 {
			<-time.After(time.Millisecond)
			continue
		}
		p := member.RecoverPlan{
			Cluster: x.Identity.Cluster, Survivor: x.Identity.ID, Incarnation: x.Identity.Incarnation, Term: x.Term, Last: x.Last,
			Roster: x.Roster.Version, Was: x.Roster.History, History: ident.History{Epoch: x.Roster.History.Epoch + 1, Nonce: 7}, Above: x.Term,
		}
		for _, m := range x.Roster.Members {
			if m.ID != p.Survivor && m.Role == membership.RoleVoter {
				p.GivesUp = append(p.GivesUp, m.ID)
			}
		}
		return p, nil
	}
	return member.RecoverPlan{}, errors.New("it follows a leader that is gone")
}
