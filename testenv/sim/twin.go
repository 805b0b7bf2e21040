package sim

import (
	"time"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/testenv/simfs"
)

// Two processes live on copies of one disk. Whoever hears both refuses both, for which is the copy is known to
// people alone, and both stop. That holds where a peer has the stream of one of them open when the other comes:
// so it happens in a moment in which all of them hear the member.

// fencedLife is a process that a peer does not hear any more.
type fencedLife struct{ machine, life uint64 }

// liveCopy starts a process on a copy of the disk of a member, which runs. Somebody ends the copy later, and
// starts the member again.
func (c *cluster) liveCopy(m *member, span time.Duration) bool {
	if !m.serving() || m.twin != nil || !c.mayDamage(m) {
		return false
	}
	c.withWitnesses(m, m.as, patience, func(map[uint64]bool) {
		if m.twin != nil || m.trouble != nil {
			return
		}
		t := newMember(c, m.id+100)
		t.name, t.addr, t.disk, t.twinOf, m.twin = m.name, t.name+":1", m.disk.Crash(simfs.Strict, 0), m, t
		t.known, t.gen, t.joins, t.damaged, t.forgot = m.known, m.gen, true, true, map[uint64]bool{}
		t.known.inFlight = nil
		c.twins = append(c.twins, t)
		c.note(m.id, "copied", t.id)
		t.boot()
		c.after(span, m.endTwin)
		if !t.serving() {
			return
		}
		// It opens its streams first.
		for _, o := range c.members {
			if o != m && o.serving() && c.now >= o.pausedUntil && c.net.open(t.id, o.id) && t.process != nil {
				o.contend(sender{t, t.life, t.as})
			}
		}
		if t.look(); !t.serving() {
			c.sometimes("copy fenced")
			if m.look(); !m.serving() {
				c.sometimes("both copies fenced")
			}
		}
	})
	return true
}

// endTwin ends the copy, and starts the process anew that had the same identity.
func (m *member) endTwin() {
	if m.twin == nil {
		return
	}
	m.twin.stop()
	m.twin.driver, m.twin.replica = nil, nil
	m.twin = nil
	if m.doubled && m.up() && !m.serving() {
		m.end(m.disk.Kill())
		m.restartIn(m.c.upTo(m.c.plan.election()))
	}
	m.doubled = false
}

// contend looks whether a process has the identity of another one that m hears, and refuses both if it does.
// It reports whether it refused from. A copy that came where the other was not heard could not be told.
func (m *member) contend(from sender) (refused bool) {
	c, other := m.c, from.m.twinOf
	if other == nil {
		other = from.m.twin
	}
	switch {
	case m.fenced[fencedLife{from.m.id, from.life}]:
		m.fence(from)
		return true
	case other == nil:
		return false
	case other.process != nil && m.greeted[other.id].life == other.life && c.now >= other.pausedUntil &&
		c.net.open(other.id, m.id) && c.net.open(m.id, other.id):
		m.fence(sender{other, other.life, other.as})
		m.fence(from)
		return true
	}
	return from.m.twinOf != nil
}

// fence refuses a process for as long as it and m live.
func (m *member) fence(of sender) {
	if m.fenced == nil {
		m.fenced = map[fencedLife]bool{}
	}
	m.fenced[fencedLife{of.m.id, of.life}] = true
	of.m.doubled = true
	m.refuse(of, &peer.Refusal{Reason: peer.ReasonDuplicate, Detail: "two processes say that they are member " + ident.MemberID(of.as).String()})
	of.m.look()
}
