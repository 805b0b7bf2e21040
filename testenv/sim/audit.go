package sim

// audit goes through the ledger when all is over.
func (c *cluster) audit() {
	for _, o := range c.clients.all {
		if o.read {
			continue
		}
		at, applied := c.oracle.ops[o.n]
		switch {
		case o.outcome == acked && at.id != o.id:
			c.violated("write %d was acknowledged at %s and is applied at %s", o.n, o.id, at.id)
		case o.outcome == failed && applied:
			c.violated("write %d failed and is applied at %s", o.n, at.id)
		case o.outcome == waiting && !c.plan.mustHalt:
			c.violated("write %d has no outcome", o.n)
		case o.outcome == unknown && applied:
			c.sometimes("unknown write is in")
		case o.outcome == unknown:
			c.sometimes("unknown write is not in")
		}
	}
}
