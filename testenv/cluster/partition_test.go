package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// faultTime is longer than any test waits: each ends its faults itself.
const faultTime = 10 * time.Minute

// partition asks via for a fault. Every member concerned must take it.
func (c *Cluster) partition(via api.DevMember, req api.PartitionRequest) api.Partitioned {
	c.t.Helper()
	if req.DurationMS == 0 {
		req.DurationMS = faultTime.Milliseconds()
	}
	var p api.Partitioned
	if _, err := c.Do(http.MethodPost, via, "/cluster/partition", req, &p); err != nil || !p.OK {
		c.t.Fatalf("partition %+v by %s: %+v, %v", req, via.Name, p, err)
	}
	return p
}

// heal ends all faults, asked of via.
func (c *Cluster) heal(via api.DevMember) api.Healed {
	c.t.Helper()
	var h api.Healed
	if _, err := c.Do(http.MethodPost, via, "/cluster/heal", api.HealRequest{}, &h); err != nil || !h.OK || len(h.Acked) != len(c.Members) {
		c.t.Fatalf("heal by %s: %+v, %v", via.Name, h, err)
	}
	return h
}

// status reads the status as m sees it.
func (c *Cluster) status(m api.DevMember) (s api.Status) {
	c.t.Helper()
	if err := c.Get(m, "/cluster/status", &s); err != nil {
		c.t.Fatalf("status of %s: %v", m.Name, err)
	}
	return s
}

// whole waits until every member answers that all are in step.
func (c *Cluster) whole() {
	c.t.Helper()
	for _, m := range c.Members {
		c.Until(m.Name+" to see all in step", func() error {
			s := c.status(m)
			if s.Health.Level != api.HealthOK || !s.Consistent || s.Quorum.Up != len(c.Members) {
				return fmt.Errorf("%+v", s.Health)
			}
			return nil
		})
	}
}

// leads waits until via sees a leader among want.
func (c *Cluster) leads(via api.DevMember, want ...string) string {
	c.t.Helper()
	var leader string
	c.Until(fmt.Sprintf("a leader among %v", want), func() error {
		s := c.status(via)
		if s.Leader == nil || !slices.Contains(want, *s.Leader) {
			return errors.New("there is none")
		}
		leader = *s.Leader
		return nil
	})
	return leader
}

// others are the members but those named.
func (c *Cluster) others(names ...string) (all []api.DevMember) {
	for _, m := range c.Members {
		if !slices.Contains(names, m.Name) {
			all = append(all, m)
		}
	}
	return all
}

func names(members []api.DevMember) (all []string) {
	for _, m := range members {
		all = append(all, m.Name)
	}
	return all
}

// The leader is cut off under load: the others go on with another one, the old one takes nothing, and
// after the heal nothing acknowledged is missing anywhere.
func TestPartition_IsolatesTheLeader(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	isolateLeader(c, NewLedger(c, 8), 2)
}

func isolateLeader(c *Cluster, l *Ledger, times int) {
	for range times {
		l.During(func() {
			l.WaitAcked(60)
			old := c.Leader()
			rest := c.others(old)
			c.partition(c.Member(old), api.PartitionRequest{Region: old})
			c.leads(rest[0], names(rest)...)
			l.WaitAcked(60)
			s := c.status(rest[1])
			row := s.Regions[slices.IndexFunc(s.Regions, func(r api.Region) bool { return r.Name == old })]
			if !row.Partitioned || len(row.Faults) != len(rest) {
				c.t.Errorf("by %s, the row of the leader that was cut off: %+v", rest[1].Name, row)
			}
			c.heal(rest[0])
			l.WaitAcked(60)
		})
		c.whole()
	}
	c.Audit(l)
}
