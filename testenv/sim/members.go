package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	daemon "github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/testenv/simfs"
)

// How the membership changes: machines that no file declares join, members are removed, lost disks come
// back as somebody else.

const (
	// dutyEvery is the pace of a registrar.
	dutyEvery = 200 * time.Millisecond

	// maxMembers bounds how far a cluster grows.
	maxMembers = 7

	// replacements of one name within an hour that a leader allows by itself
	replacements = 3
)

// verb is a change of the membership that was asked for.
type verb struct {
	what string
	at   *member // the leader that was asked, in that life
	life uint64
	v    *daemon.Verb
}

// policy is what a leader decides about the membership by.
func (p *plan) policy() membership.Policy {
	policy := membership.DefaultPolicy()
	policy.PromoteLag, policy.Round, policy.ReplaceGrace = p.promoteLag, p.election(), 4*p.election()
	return policy
}

// duty is a round of the process's registrar, and of what it began.
func (m *member) duty() {
	m.after(m.c.around(dutyEvery), m.duty)
	m.turnRegistrar()
}

func (m *member) turnRegistrar() {
	m.process.Duty()
	if m.dark() || m.leave() {
		return
	}
	if m.serving() {
		m.look()
	}
	m.c.outcomes(m)
}

// leave takes note of a process that has learned that it is removed.
func (m *member) leave() bool {
	c := m.c
	if _, err := m.process.Replica(0); !errors.Is(err, daemon.ErrRemoved) {
		return false
	}
	if m.gone {
		return true
	}
	m.gone = true
	c.note(m.id, "removed", uint64(m.as))
	c.sometimes("removed member stops")
	if !c.oracle.newest().roster.Removed(m.as) {
		c.violated("member %d stops as removed, and is %s of roster %d", m.id, m.as, c.oracle.newest().roster.Version)
	}
	if m.driver != nil {
		m.driver.Tick() // answers everybody
		c.clients.answers(m)
	}
	m.life++
	c.clients.vanished(m)
	m.driver, m.replica, m.failed, m.turning, m.reporting = nil, nil, nil, false, false
	c.after(c.around(10*c.plan.election()), m.retire)
	return true
}

// retire gives a machine whose member is gone an empty disk. It may join again.
func (m *member) retire() {
	if !m.gone || m.c.healed || m.c.lastDeclared(m) {
		return
	}
	m.end(simfs.New())
	m.c.mayForget(m)
	m.forget()
	m.spare, m.rejoin = true, true
}

// forget is for a disk that is empty now.
func (m *member) forget() {
	m.c.outboxes.lose(m)
	if m.as != 0 {
		m.lost = append(m.lost, m.as)
	}
	m.known, m.gen, m.as, m.gone = known{}, datadir.Generation{}, 0, false
	m.damaged, m.wiped, m.beyond, m.forgot, m.divergent = false, false, false, nil, false
	m.joins = true
}

// joining reports whether a process runs that does not hold anything of the cluster yet.
func (m *member) joining() bool { return m.up() && !m.gone && len(m.dir.Member().Groups) == 0 }

// mayJoin reports whether the cluster takes the machine's member, which is none now, sooner or later.
func (m *member) mayJoin() bool {
	if !playsJoins {
		return false
	}
	r := m.c.oracle.newest().roster
	buried := 0
	for _, t := range r.Tombstones {
		if t.Name == m.name {
			buried++
		}
	}
	_, named := r.Named(m.name)
	return buried < replacements && (m.rejoin || named || buried == 0)
}

// reportSoon has the peers told how far this member is.
func (m *member) reportSoon() {
	if m.process == nil || m.reporting {
		return
	}
	m.reporting = true
	m.after(m.c.upTo(m.c.plan.tick/10), m.report)
}

func (m *member) report() {
	m.reporting = false
	reports := m.process.Reports()
	for _, o := range m.c.members {
		if o != m && o.serving() && o.heard(m) && m.c.net.open(m.id, o.id) && m.c.now >= o.pausedUntil {
			o.process.Reported(m.as, reports)
			o.process.Durable(m.as, m.process.SelfHello().Groups)
		}
	}
}

// heard reports whether o has a stream of m's present life.
func (m *member) heard(o *member) bool { return m.greeted[o.id].life == o.life }

// join starts a machine that no file declares, and tells it whom to ask.
func (c *cluster) join(*member, time.Duration) bool {
	if len(c.oracle.chosen) == 0 || len(c.oracle.newest().roster.Members) >= maxMembers {
		return false
	}
	for _, m := range c.members {
		if !m.spare {
			continue
		}
		m.spare, m.joins = false, true
		m.seeds = nil // some of them nobody lives at, or somebody who is gone
		for _, i := range c.rng.Perm(len(c.members)) {
			if c.members[i] != m {
				m.seeds = append(m.seeds, c.members[i].httpAddr())
			}
		}
		m.boot()
		return true
	}
	return false
}

// remove asks the leader to take a member out.
func (c *cluster) remove(m *member, _ time.Duration) bool {
	leader := c.leader()
	if leader == nil || m.as == 0 || m.gone || !c.mayLose(m, true) {
		return false
	}
	v, err := leader.process.BeginRemove(m.name, daemon.RemoveOptions{})
	if err != nil {
		c.sometimes("removal refused")
		return true
	}
	c.note(leader.id, "asked to remove", uint64(m.as))
	c.verbs = append(c.verbs, &verb{what: "removal", at: leader, life: leader.life, v: v})
	leader.turnRegistrar()
	return true
}

// promote asks the leader to make a learner a voter.
func (c *cluster) promote(*member, time.Duration) bool {
	leader := c.leader()
	if leader == nil {
		return false
	}
	for _, x := range c.oracle.newest().roster.Members {
		if x.Role != membership.RoleLearner {
			continue
		}
		v, err := leader.process.BeginPromote(x.Name, false)
		if err != nil {
			return false
		}
		c.verbs = append(c.verbs, &verb{what: "promotion", at: leader, life: leader.life, v: v})
		leader.turnRegistrar()
		return true
	}
	return false
}

// outcomes looks at what became of what m was asked for.
func (c *cluster) outcomes(m *member) {
	c.verbs = slices.DeleteFunc(c.verbs, func(x *verb) bool {
		if x.at.life != x.life {
			return true
		}
		if x.at != m {
			return false
		}
		select {
		case <-x.v.Done():
		default:
			return false
		}
		change, err := x.v.Change()
		c.note(m.id, "verb", change.Index, change.Roster.Version)
		c.came(x, change, err)
		return true
	})
}

// came judges the outcome of a verb: what is settled stays, whoever loses power.
func (c *cluster) came(x *verb, change daemon.Change, err error) {
	_, unsafe := errors.AsType[*membership.UnsafeError](err)
	_, busy := errors.AsType[*membership.ChangeInProgressError](err)
	switch {
	case unsafe:
		c.sometimes(x.what + " unsafe")
	case busy:
		c.sometimes(x.what + " waits for another change")
	case err != nil:
		c.sometimes(x.what + " not carried out")
	case change.Settled && change.Index > 0:
		c.sometimes(x.what + " settled")
		c.checkSettled(x, change)
	}
}

func (c *cluster) checkSettled(x *verb, change daemon.Change) {
	var have []ident.MemberID
	for _, m := range c.members {
		if m.as != 0 && max(m.known.commit, m.flushed) >= change.Index {
			have = append(have, m.as)
		}
	}
	conf := c.oracle.at(x.at.applied.Index).conf
	if !majority(have, conf.GetVoters()) || !majority(have, conf.GetVotersOutgoing()) {
		c.violated("%s at %d is settled, and only %v of %v could tell after a power loss", x.what, change.Index, have, conf)
	}
}

// mayLose reports whether every set of voters there is, or is about to be, keeps a majority of sound
// machines when m is not one of them: it is removed from the set, or its disk is damaged. Whoever has applied
// less than others needs the majorities of the configuration that it knows, until it hears of a later one.
func (c *cluster) mayLose(m *member, removed bool) bool {
	now := c.oracle.newest()
	learners := slices.Concat(now.conf.GetVoters(), now.conf.GetLearners(), now.conf.GetLearnersNext())
	sets := [][]uint64{now.conf.GetVoters(), now.conf.GetVotersOutgoing(), learners}
	for _, o := range c.members {
		if o != m && !o.damaged && !o.gone && c.belongs(o) && o.applied.Index >= firstIndex {
			known := c.oracle.at(o.applied.Index).conf
			sets = append(sets, known.GetVoters(), known.GetVotersOutgoing())
		}
	}
	for _, set := range sets {
		n, sound := len(set), 0
		if n == 0 {
			continue
		}
		if removed && slices.Contains(set, uint64(m.as)) {
			n--
		}
		for _, id := range set {
			if o := c.byID(ident.MemberID(id)); o != nil && !o.damaged && !o.gone && o != m {
				sound++
			}
		}
		// Whoever else is being removed makes the majority smaller too, and may be one of the sound.
		if r := c.removing(); 2*(sound-r) <= n-r {
			return false
		}
	}
	return true
}

// removing counts the removals under way.
func (c *cluster) removing() (n int) {
	for _, x := range c.verbs {
		if x.what == "removal" && x.at.life == x.life {
			n++
		}
	}
	return n
}

// SetPeers replaces the dial table.
func (p port) SetPeers(peers []peer.Peer) {
	p.m.peers = map[ident.MemberID]peer.Peer{}
	for _, x := range peers {
		p.m.peers[x.ID] = x
	}
}

// Report has the peers told soon.
func (p port) Report() { p.m.reportSoon() }

// Farewell is taken at once or not at all.
func (p port) Farewell(_ context.Context, addr string, r peer.FarewellRequest) error {
	o, err := p.reach(addr)
	if err != nil {
		return err
	}
	if err := o.process.Farewell(r); err != nil {
		return err
	}
	p.m.c.note(o.id, "told of its removal", uint64(r.Member))
	p.m.c.sometimes("removed member told")
	o.after(0, o.turnRegistrar)
	return nil
}
