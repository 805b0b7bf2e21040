package sim

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/testenv/audit"
)

// Samples of the seeds that get the slowest of the oracles: one in so many.
const (
	linearizableSample = 8
	disksSample        = 4
)

// audit goes through the ledger when all is over.
func (c *cluster) audit() {
	for _, o := range c.clients.all {
		if o.read || o.root != o {
			continue
		}
		at, applied := c.oracle.ops[o.n]
		for _, t := range o.tries {
			if t.outcome != acked {
				continue
			}
			taken := c.oracle.outcomes[appearance{o.n, t.id}].First
			if taken == (ident.EntryID{}) {
				taken = t.id
			}
			if taken != at.id {
				c.violated("write %d was acknowledged at %s, as taken at %s, and is at %s", o.n, t.id, taken, at.id)
			}
		}
		c.auditDurable(o)
		switch {
		case o.known() == failed && applied:
			c.violated("write %d failed and is applied at %s", o.n, at.id)
		case o.known() == unknown && applied:
			c.sometimes("unknown write is in")
		case o.known() == unknown:
			c.sometimes("unknown write is not in")
		}
	}
	c.outboxes.audit()
	if c.number%linearizableSample == 0 {
		c.checkLinearizable()
	}
}

// auditDurable: what the leader alone had acknowledged is where it was said to be, or another leader has put
// something else there.
func (c *cluster) auditDurable(o *op) {
	chosen := c.oracle.chosen
	for _, t := range o.tries {
		if t.outcome != durable {
			continue
		}
		if t.id.Index-firstIndex >= uint64(len(chosen)) {
			continue // nobody has applied anything there, where so much is damaged that nobody leads
		}
		there := chosen[t.id.Index-firstIndex].id
		if there == t.id {
			c.sometimes("write acknowledged by the leader alone is in")
			continue
		}
		c.sometimes("write lost with its leader")
		if there.Term == t.id.Term {
			c.violated("write %d was durable at %s on its leader; there is %s, of the same leader", o.n, t.id, there)
		}
	}
}

// auditDisks has the directories of the stopped members judged by what is on them alone.
func (c *cluster) auditDisks() {
	var claims audit.Claims
	for _, o := range c.clients.all {
		if o.read || o.root != o || o.signal < 0 {
			continue
		}
		user := fmt.Sprintf("%s%d", writePrefix, o.n)
		switch o.known() {
		case acked:
			if o.settled {
				claims.Acked = append(claims.Acked, user)
			}
		case failed:
			claims.Refused = append(claims.Refused, user)
		default:
			claims.Unknown = append(claims.Unknown, user)
		}
	}
	all := vfs.NewMem()
	var dirs []string
	for _, m := range c.core() {
		if _, err := vfs.Clone(m.disk, all, dataDir, m.name); err != nil {
			c.violated("copy the disk of member %d: %w", m.id, err)
			return
		}
		dirs = append(dirs, m.name)
	}
	report, err := audit.Run(all, dirs, claims)
	switch {
	case err != nil:
		c.violated("audit: %w", err)
	case len(report.Findings) > 0:
		c.violated("audit: %s", report)
	}
	c.sometimes("disks audited")
}
