package sim

import "github.com/tidaldb/tidal/daemon/ident"

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
		switch {
		case o.known() == failed && applied:
			c.violated("write %d failed and is applied at %s", o.n, at.id)
		case o.known() == unknown && applied:
			c.sometimes("unknown write is in")
		case o.known() == unknown:
			c.sometimes("unknown write is not in")
		}
	}
	if c.number%8 == 0 { // a sample: it is the slowest of the oracles
		c.checkLinearizable()
	}
}
