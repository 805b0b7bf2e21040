package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/tidaldb/tidal/daemon/api"
)

// promote asks via for leadership to move to name.
func (c *Cluster) promote(via api.DevMember, req api.PromoteRequest) (api.Promoted, error) {
	var p api.Promoted
	_, err := c.Do(http.MethodPost, via, "/cluster/promote", req, &p)
	return p, err
}

// Under load leadership goes round, asked of any member: nothing acknowledged is lost, writes wait for
// less than an election timeout, and every member confirms.
func TestCluster_PromotesUnderLoad(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	l := NewLedger(c, 16)
	var pauses []int64
	l.During(func() {
		for i := range 6 {
			l.WaitAcked(100)
			target, via := c.Members[i%3], c.Members[(i+2)%3]
			var p api.Promoted
			c.Until("the promotion of "+target.Name, func() (err error) {
				p, err = c.promote(via, api.PromoteRequest{Region: target.Name, OperationID: fmt.Sprint("op-", i)})
				return err
			})
			if !p.OK || *p.Leader != target.Name || len(p.Failed) > 0 {
				t.Errorf("promote %s = %+v", target.Name, p)
			}
			if p.Transfer != nil && p.Transfer.WritePauseMS != nil {
				pauses = append(pauses, *p.Transfer.WritePauseMS)
			}
			if got := c.Leader(); got != target.Name {
				t.Errorf("%s leads, want %s", got, target.Name)
			}
		}
		l.WaitAcked(100)
	})
	l.Check()
	slices.Sort(pauses)
	t.Logf("write pauses of transfers under load: %v ms", pauses)
	if len(pauses) == 0 || pauses[len(pauses)-1] > 300 {
		t.Errorf("pauses %v ms, want each within an election timeout of 300 ms", pauses)
	}
}

// A member that is gone or stands still is not made leader: it is refused with what was measured, or the
// transfer ends within its bound, and writes go on as if nothing had been asked.
func TestCluster_PromoteRefusesWhoCannotLead(t *testing.T) {
	// A leader that cannot be lost while the machine is slow: it has seconds to hear the third member.
	c := Start(t, Binary(t), Options{Args: []string{"--set", "election.election_ticks=150"}})
	c.item("i")
	leader, term := c.Leader(), termOf(c)
	target := c.besides(leader)
	defer c.Pause(target.Name)()
	_, err := c.promote(c.Member(leader), api.PromoteRequest{Region: target.Name})
	p, ok := errors.AsType[*api.Problem](err)
	if !ok || p.Code != api.CodeTargetUnreachable || p.Effect != api.EffectNone || p.Try == "" {
		t.Errorf("promote of a member that stands still: %+v", err)
	}
	c.view(c.Member(leader))
	var m api.Members
	if err := c.Get(c.Member(leader), "/cluster/members", &m); err != nil || m.Leader == nil || *m.Leader != leader {
		t.Errorf("after the refusal: %+v, %v; want that %s leads", m, err, leader)
	}
	if now := termOf(c); now != term {
		t.Errorf("term %d, was %d: the refusal is of another leader", now, term)
	}
}
