package sim

import (
	"time"

	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
)

// fault makes one thing go wrong, and plans the next.
func (c *cluster) fault() {
	if c.healed {
		return
	}
	c.after(c.around(c.plan.faults), c.fault)
	victim := c.members[c.rng.IntN(len(c.members))]
	if leader := c.leader(); leader != nil && c.chance(0.4) {
		victim = leader // the interesting one
	}
	span := 20*time.Millisecond + c.upTo(700*time.Millisecond)
	switch p := c.rng.IntN(100); {
	case p < 30:
		c.crash(victim, span)
	case p < 36: // power loss
		c.seen["power loss of all"]++
		for _, m := range c.members {
			c.crash(m, span+c.upTo(100*time.Millisecond))
		}
	case p < 60:
		c.split(victim, span)
	case p < 68:
		c.note(0, "lossy")
		c.net.drop, c.net.double = 0.3*c.rng.Float64(), 0.3*c.rng.Float64()
		c.calmAfter(span)
	case p < 76:
		c.note(0, "slow network")
		c.net.delayMax = c.upTo(80*time.Millisecond) + time.Millisecond
		c.calmAfter(span)
	case p < 82:
		c.note(victim.id, "slow disk")
		victim.slow = true
		c.after(span, func() { victim.slow = false })
	case p < 94:
		c.transfer()
	default: // a rumour: the leader lives
		c.lostLead(victim, victim.role.Leader)
	}
}

// crash stops m now and starts it again later.
func (c *cluster) crash(m *member, down time.Duration) {
	if !m.up() {
		return
	}
	c.seen["crash"]++
	leads := c.leader() == m
	m.crash()
	life := m.life
	c.after(down, func() {
		if m.life == life && !m.up() {
			m.start()
		}
	})
	if leads && c.chance(0.5) { // the others see its port refuse, one after the other
		for i, o := range c.members {
			c.after(time.Duration(5*(i+1))*time.Millisecond, func() { c.lostLead(o, ident.MemberID(m.id)) })
		}
	}
}

func (c *cluster) lostLead(m *member, leader ident.MemberID) {
	if m.up() && leader != 0 {
		c.note(m.id, "lost lead", uint64(leader))
		m.step(consensus.Input{LostLead: leader})
		m.after(time.Duration(5*m.id)*time.Millisecond, func() { m.step(consensus.Input{Campaign: true}) })
	}
}

// split parts the cluster: victim alone, or any two sides.
func (c *cluster) split(victim *member, span time.Duration) {
	side := map[uint64]bool{victim.id: true}
	if c.chance(0.5) {
		for _, m := range c.members {
			if c.chance(0.5) {
				side[m.id] = true
			}
		}
	}
	oneWay := c.chance(0.4)
	if oneWay {
		c.seen["one-way split"]++
	} else {
		c.seen["split"]++
	}
	c.note(victim.id, "split", uint64(len(side)))
	c.net.split(side, oneWay)
	c.after(span, func() { c.net.cut = nil })
}

func (c *cluster) calmAfter(span time.Duration) {
	c.after(span, func() {
		if !c.healed {
			c.net.conditions = c.plan.network
		}
	})
}

func (c *cluster) transfer() {
	leader := c.leader()
	if leader == nil {
		return
	}
	to := ident.MemberID(1 + c.rng.IntN(len(c.members)))
	c.note(leader.id, "transfer", uint64(to))
	c.seen["transfer"]++
	leader.step(consensus.Input{Transfer: to})
}
