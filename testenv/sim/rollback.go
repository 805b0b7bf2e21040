package sim

import (
	"fmt"
	"time"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/wal"
	"github.com/tidaldb/tidal/testenv/simfs"
)

// Disks that go back behind what was promised on them. Nobody can tell from such a disk alone; the others
// remember, and refuse it. What is promised holds where they can: so it happens in a moment in which all of
// them have just heard how far the member was, and written it down.

// patience is how often such a moment is waited for.
const patience = 40

// oldCopy puts the disk of a member back as it is now, later.
func (c *cluster) oldCopy(m *member, span time.Duration) bool {
	if !m.serving() || !c.mayDamage(m) {
		return false
	}
	disk, known, gen := m.disk.Crash(simfs.Strict, 0), m.known, m.gen
	known.inFlight = nil
	c.after(span, func() {
		c.withWitnesses(m, m.as, patience, func(witnesses map[uint64]bool) {
			now := m.known
			if now.term == known.term && now.vote != known.vote {
				return // nobody is told of a vote but who got it
			}
			m.end(disk)
			m.known, m.gen = known, gen
			c.outboxes.lose(m)
			// Where it only forgot that it was started since, whoever heard of that start refuses the next one,
			// and may hear the one after that.
			shorter := now.last != known.last
			if shorter || now.term != known.term || now.identity.BootEpoch != known.identity.BootEpoch {
				m.goBack(witnesses, now.term != known.term || shorter && now.last.Term == now.term)
			}
			c.note(m.id, "old copy put back", known.last.Index, now.last.Index)
			c.sometimes("old copy put back")
			m.restartIn(c.upTo(2 * c.plan.election()))
		})
	})
	return true
}

// rotLast flips a bit in the last durable frame of a log, which then looks like a write that a crash cut
// short.
func (c *cluster) rotLast(m *member, span time.Duration) bool {
	if !m.serving() || !c.mayDamage(m) {
		return false
	}
	c.after(span, func() {
		c.withWitnesses(m, m.as, patience, func(witnesses map[uint64]bool) {
			disk := m.disk.Crash(simfs.Strict, 0)
			dir := fmt.Sprintf("%s/groups/0/log-%06d", dataDir, m.gen.Log)
			var last wal.FrameInfo
			if _, err := wal.Scan(disk, dir, 0, func(f wal.FrameInfo) error { last = f; return nil }); err != nil || len(last.Entries) == 0 {
				return
			}
			if disk.Flip(dir+"/"+last.Segment, last.Offset+c.rng.Int64N(last.Bytes), uint(c.rng.IntN(8))) != nil {
				return
			}
			told := m.known.last.Term == m.known.term
			m.end(disk)
			m.known.last, m.known.term, m.known.commit = ident.EntryID{}, 0, 0
			m.goBack(witnesses, told)
			c.note(m.id, "last frame rots", last.Entries[0].ID.Index)
			c.sometimes("last frame rots")
			m.restartIn(c.upTo(2 * c.plan.election()))
		})
	})
	return true
}

// goBack takes note that the disk of m holds less than what it promised. told: to all of the witnesses, and
// not to the leader alone, as it does with entries of an earlier term. Somebody gives m an empty disk, some
// time later.
func (m *member) goBack(witnesses map[uint64]bool, told bool) {
	c := m.c
	if !told {
		witnesses = map[uint64]bool{}
	}
	m.damaged, m.beyond, m.forgot = true, true, witnesses
	c.outboxes.lose(m)
	c.after(c.around(8*c.plan.election()), func() {
		if m.forgot != nil && !c.healed && !c.lastDeclared(m) {
			m.newDisk(c.upTo(c.plan.election()))
		}
	})
}

// mayForget takes note of a witness whose own disk fails: it may not be able to read what it wrote down.
func (c *cluster) mayForget(witness *member) {
	for _, m := range c.members {
		delete(m.forgot, witness.id)
	}
}

// withWitnesses waits for a moment in which all others hear m, which is still as, has them write down how
// far it is, and calls do with them.
func (c *cluster) withWitnesses(m *member, as ident.MemberID, tries int, do func(map[uint64]bool)) {
	switch {
	case c.healed || m.as != as || as == 0 || tries == 0 || !c.mayDamage(m):
		return
	case m.serving() && m.trouble == nil && c.now >= m.pausedUntil && m.replica.Status().Durable == m.known.last.Index:
		// What the process has not been told to be durable it has promised to nobody.
		if witnesses := c.witnesses(m); witnesses != nil && m.serving() && !c.healed && c.err == nil {
			do(witnesses)
			return
		}
	}
	c.after(c.around(c.plan.election()/2), func() { c.withWitnesses(m, as, tries-1, do) })
}

// witnesses has all other members of the cluster write down how far m is, and returns them; nil: one of
// them could not.
func (c *cluster) witnesses(m *member) map[uint64]bool {
	all := map[uint64]bool{}
	var others []*member
	for _, x := range c.oracle.newest().roster.Members {
		if x.ID == m.as {
			continue
		}
		o := c.byID(x.ID)
		if o == nil || !o.serving() || o.trouble != nil || o.damaged || c.now < o.pausedUntil || c.now < o.hangUntil ||
			!c.net.open(m.id, o.id) || !c.net.open(o.id, m.id) || !o.heard(m) {
			return nil
		}
		others = append(others, o)
	}
	for _, o := range others {
		life := o.life
		o.process.Durable(m.as, m.process.SelfHello().Groups)
		if o.round(); o.life != life || !o.serving() || !m.serving() { // what o says may end m
			return nil
		}
		all[o.id] = true
	}
	return all
}
