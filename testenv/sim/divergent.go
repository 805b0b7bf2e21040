package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	daemon "github.com/tidaldb/tidal/daemon/member"

	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/state"
	"github.com/tidaldb/tidal/testenv/simfs"
)

// States that are not what the others have, and that no check of a disk can tell: a row is there that nobody
// wrote, with a digest that fits it, as a bug of apply would leave them. The comparison of states finds it.
//
// What is made from such a state before it is found is as wrong, and may outvote what is right: an artifact of
// it breaks off. Whoever else has trouble with its disk meanwhile would need one, so nobody has.

// foundWithin is how many rounds of its keeper a state that is not right may go unnoticed, with a leader and
// everybody in reach: a check comes after five rounds of the leader's, and its reports with the next round.
const foundWithin = 20

// alterRow has the state of a member hold a row that nobody wrote. Its process ends for that.
func (c *cluster) alterRow(m *member, span time.Duration) bool {
	if !m.serving() || m.bereft != nil || m.trouble != nil || !c.mayDamage(m) || !c.mayLose(m, false) {
		return false
	}
	for _, o := range c.members {
		if o.trouble != nil || o.bereft != nil || o.failed != nil || o.damaged && !o.wiped {
			return false
		}
	}
	m.end(m.disk.Kill())
	m.restartIn(c.upTo(span))
	if err := alter(m.disk, fmt.Sprintf("%s/groups/0/state-%06d", dataDir, m.gen.State)); err != nil {
		c.violated("alter a row of member %d: %w", m.id, err)
	}
	m.damaged, m.divergent, m.unnoticed = true, true, 0
	c.sometimes("row altered")
	return true
}

// alter puts a row into a state, and makes its digest fit.
func alter(disk *simfs.FS, dir string) (err error) {
	s, err := state.Open(state.Options{FS: disk, Dir: dir, Foreground: true, CacheBytes: 1 << 20})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	key, value := entity.AppendItemKey(nil, 1, "nobody wrote it"), []byte("something")
	pos := s.Position()
	if pos.Digest.Version != 0 { // else it is made at the next opening
		var h state.Summer
		sums := slices.Clone(pos.Digest.Sums)
		n, _ := entity.SumOf(key)
		sums[n] = sums[n].Plus(h.Pair(key, value))
		pos.Digest.Sums = sums
	}
	b := s.NewBatch()
	b.Set(key, value)
	if err := errors.Join(b.Commit(pos), b.Close()); err != nil {
		return err
	}
	_, err = s.Flush()
	return err
}

// divergence reports whether there is a state that is not right, and that was not installed again.
func (c *cluster) divergence() bool {
	return slices.ContainsFunc(c.members, func(m *member) bool { return m.divergent })
}

// notice has a member whose state is compared with others' be told apart in time.
func (m *member) notice() {
	c := m.c
	if m.bereft == nil && m.serving() {
		if _, err := m.process.Replica(0); err != nil {
			m.noticed(err)
			return
		}
	}
	if !m.divergent || m.bereft != nil {
		return
	}
	if m.unnoticed++; !c.compares(m) {
		m.unnoticed = 0
	}
	if m.unnoticed > foundWithin {
		c.violated("member %d has a state that nobody else has, and was not told apart within %d rounds", m.id, foundWithin)
	}
}

// noticed takes note of a replica that is in quarantine, and goes on applying.
func (m *member) noticed(err error) {
	c := m.c
	q, ok := errors.AsType[*daemon.QuarantinedError](err)
	switch {
	case !ok || q.Quarantine.Cause != daemon.CauseDivergent:
		return
	case !m.divergent:
		c.violated("member %d is blamed for a state that is right: %w", m.id, err)
		return
	}
	c.note(m.id, "divergent")
	c.sometimes("divergent state found")
	m.bereft = err
	if c.chance(0.5) { // somebody restarts it
		m.after(c.upTo(c.plan.election()), func() {
			m.end(m.disk.Kill())
			m.restartIn(c.upTo(c.plan.election()))
		})
	}
}

// latched reports whether the process is to be installed again: it applies nothing until an artifact is there,
// and what the only source sends may break off again and again.
func (m *member) latched() bool {
	return slices.ContainsFunc(m.process.Status().Groups, func(g daemon.GroupStatus) bool { return g.Reseed != nil })
}

// compares reports whether nothing keeps the states of all members from being compared.
func (c *cluster) compares(m *member) bool {
	leader := c.leader()
	if leader == nil {
		return false
	}
	for _, x := range c.oracle.newest().roster.Members {
		o := c.byID(x.ID)
		if o == nil || !o.serving() || c.now < o.pausedUntil || c.now < o.hangUntil || o.bereft != nil || o.slowDisk > 1 ||
			o.role.Leader != leader.as || o.applied.Index+2*hashEvery < leader.applied.Index || o.latched() {
			return false
		}
		for _, p := range []*member{leader, m} {
			if p != o && !(c.net.open(p.id, o.id) && c.net.open(o.id, p.id)) {
				return false
			}
		}
	}
	return c.net.conditions == c.plan.network
}
