package member

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/peer"
)

// ErrRemoved refuses a request to a member that belongs to its cluster no more.
var ErrRemoved = errors.New("this member was removed from its cluster")

// Farewell takes the word that this member is removed. It returns nil once that is durable; from then on
// the member stays removed, also after a restart.
func (m *Member) Farewell(r peer.FarewellRequest) error {
	id, roster := m.identity(), m.Roster()
	_, named := roster.Member(id.ID)
	switch {
	case id.ID == 0 || r.Cluster != id.Cluster || r.Member != id.ID || r.Incarnation != id.Incarnation:
		return fmt.Errorf("this is member %s with incarnation %s of cluster %s", id.ID, id.Incarnation, id.Cluster)
	case named && roster.Version >= r.RosterVersion:
		return fmt.Errorf("roster version %d names this member, the word is of version %d", roster.Version, r.RosterVersion)
	case r.Expired && (len(id.Groups) == 0 || m.phase() == PhaseJoining):
		return nil // nothing was opened under this id: it asks to be admitted again, and gets another one
	}
	return m.leave(datadir.Removed{ID: id.ID, RosterVersion: r.RosterVersion, Expired: r.Expired})
}

// wasRemoved reports whether this member was removed in an earlier boot: it opens nothing then. One that
// expired starts over.
func (m *Member) wasRemoved() (bool, error) {
	r, ok, err := m.opts.Dir.Removed()
	if err != nil {
		return false, fmt.Errorf("read whether this member was removed: %w", err)
	}
	if ok && r.Expired {
		err := m.opts.Dir.StartOver()
		m.rememberIdentity()
		return false, err
	}
	if ok {
		m.mu.Lock()
		m.mu.removed, m.mu.phase = &r, PhaseRemoved
		m.mu.Unlock()
	}
	return ok, nil
}

// startOver has a member that expired join its cluster again, under a new id. REQUIRES: its groups are
// closed, and their keepers have ended.
func (m *Member) startOver() {
	if err := m.opts.Dir.StartOver(); err != nil {
		m.log.Error("expired member does not join again", slog.Any("err", err))
		return // the next boot tries again
	}
	m.rememberIdentity()
	m.mu.Lock()
	if m.mu.phase == PhaseStopped {
		m.mu.Unlock()
		return
	}
	m.mu.removed, m.mu.phase = nil, PhaseJoining
	m.mu.groups = map[ident.GroupID]*group{}
	m.mu.roster, m.mu.rosterAt = membership.Roster{}, 0
	clear(m.mu.hints)
	m.hearing.forget()
	m.joiner = joiner{}
	m.mu.Unlock()
	if !m.opts.Foreground {
		m.done.Go(func() { m.findCluster(m.life) })
	}
}

// leave writes down that this member is removed, and has it carried out.
func (m *Member) leave(r datadir.Removed) error {
	if m.gone() != nil {
		return nil
	}
	r.At = m.opts.Now().UnixMilli()
	if err := m.opts.Dir.SetRemoved(r); err != nil {
		return fmt.Errorf("write down the removal: %w", err)
	}
	m.mu.Lock()
	m.mu.removed = &r
	m.mu.Unlock()
	m.log.Warn("removed from the cluster", slog.Uint64("version", r.RosterVersion), slog.Bool("expired", r.Expired))
	m.opts.Journal.Add(journal.Removed{ID: r.ID, Expired: r.Expired})
	m.registrar.poke()
	return nil
}

// gone is what is written down of this member's removal; nil: it is a member.
func (m *Member) gone() *datadir.Removed {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mu.removed
}

// heedRefusal takes note of a peer that refuses this member because it is removed.
func (m *Member) heedRefusal(r *peer.Refusal) {
	if r == nil || r.Reason != peer.ReasonRemoved && r.Reason != peer.ReasonExpired {
		return
	}
	m.mu.Lock()
	m.mu.toldBy = r
	m.mu.Unlock()
	m.registrar.poke()
}

// carryOutFarewell ends the part of this member in its cluster, once it knows that it is removed: it
// closes its replicas, so that it never stands for election again, and dials nobody any more.
func (m *Member) carryOutFarewell() {
	m.mu.Lock()
	told := m.mu.toldBy
	m.mu.toldBy = nil
	m.mu.Unlock()
	if told != nil {
		roster := m.Roster()
		if err := m.leave(datadir.Removed{ID: m.identity().ID, RosterVersion: roster.Version, Expired: told.Reason == peer.ReasonExpired}); err != nil {
			m.log.Error("removal not written down", slog.Any("err", err))
		}
	}
	m.mu.Lock()
	if m.mu.removed == nil || m.mu.phase == PhaseRemoved || m.mu.phase == PhaseStopped {
		m.mu.Unlock()
		return
	}
	expired := m.mu.removed.Expired
	m.mu.phase, m.mu.waiting = PhaseRemoved, nil
	groups := m.takeGroupsLocked()
	m.mu.Unlock()
	m.switchPeers()
	for _, g := range groups {
		g.keeper.end()
		if err := g.shut(); err != nil {
			m.log.Warn("group did not close well", slog.Any("group", g.id), slog.Any("err", err))
		}
	}
	if expired {
		m.startOver()
	}
}

// takeGroupsLocked leaves the member without groups and returns those it had, by id. REQUIRES: m.mu held.
func (m *Member) takeGroupsLocked() []*group {
	groups := make([]*group, 0, len(m.mu.groups))
	for _, g := range m.mu.groups {
		groups = append(groups, g)
	}
	m.mu.groups = nil
	slices.SortFunc(groups, func(a, b *group) int { return cmp.Compare(a.id, b.id) })
	return groups
}
