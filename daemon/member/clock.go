package member

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/peer"
)

// ClockStatus is the clock of a peer, as the last ping found it.
type ClockStatus struct {
	ID   ident.MemberID
	Name string
	peer.Clock
}

// PeerClock takes what a ping found out about a peer's clock. It tells of one that is wrong once, and once
// of one that is right again. Nothing here depends on a clock.
func (m *Member) PeerClock(id ident.MemberID, c peer.Clock) {
	limit := m.opts.MaxDrift
	m.mu.Lock()
	was := m.mu.clocks[id]
	now := clockNote{c, skewed(was.skewed, c, limit)}
	m.mu.clocks[id] = now
	name := nameOf(m.mu.roster, id)
	m.mu.Unlock()
	if now.skewed == was.skewed {
		return
	}
	m.log.Warn("clock of a peer", slog.Any("peer", id), slog.String("name", name), slog.Duration("skew", c.Skew), slog.Bool("wrong", now.skewed))
	m.opts.Journal.Add(journal.ClockSkewed{ID: id, Name: name, SkewMS: c.Skew.Milliseconds(), LimitMS: limit.Milliseconds(), Wrong: now.skewed})
}

// clockNote is what is remembered of a peer's clock.
type clockNote struct {
	peer.Clock
	skewed bool // and told of
}

// skewed reports whether a clock is wrong: surely further away than limit, or, where it was before, not
// surely within half of it. The gap keeps a clock at the limit from being told of again and again.
func skewed(was bool, c peer.Clock, limit time.Duration) bool {
	off := c.Skew.Abs()
	if was {
		return off+c.Error > limit/2
	}
	return off-c.Error > limit
}

// clocksLocked returns the clocks of the members of the roster. REQUIRES: m.mu held.
func (m *Member) clocksLocked() []ClockStatus {
	all := make([]ClockStatus, 0, len(m.mu.clocks))
	for _, x := range m.mu.roster.Members {
		if c, ok := m.mu.clocks[x.ID]; ok {
			all = append(all, ClockStatus{x.ID, x.Name, c.Clock})
		}
	}
	slices.SortFunc(all, func(a, b ClockStatus) int { return cmp.Compare(a.ID, b.ID) })
	return all
}
