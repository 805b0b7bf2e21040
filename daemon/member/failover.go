package member

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/replica"
)

// PeerGone is told that the process of a peer is gone: its stream broke, and then its port refused the
// connection. In every group that it leads, this member stands for leader in its place without waiting
// for the election timeout: the voter with the lowest id at once, each other one a little later.
func (m *Member) PeerGone(id ident.MemberID) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	self := m.mu.identity.ID
	ticks := standIn(m.mu.roster, self, id, m.opts.ElectionTicks)
	for _, g := range m.mu.groups {
		if g.takesPart() {
			g.replica.LeaderLost(id, ticks)
		}
	}
}

// standIn is how many ticks self waits before it stands in the place of lost: none for the first of the
// other voters, and for each next one more than a tenth of an election timeout more. Where a round trip
// and a sync take longer than that, elections do not work anyway.
func standIn(r membership.Roster, self, lost ident.MemberID, electionTicks int) int {
	rank := 0
	for _, x := range r.Members {
		if x.Role == membership.RoleVoter && x.ID != lost && x.ID < self {
			rank++
		}
	}
	return rank * (electionTicks/10 + 1)
}

// HandOver moves the leadership of every group that this member leads to another voter, before it
// stops, so that clients see a pause and not an election. It returns when that is done or cannot be
// done, after two election timeouts or the end of ctx at the latest. A member that is alone has nobody
// to hand over to.
func (m *Member) HandOver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Duration(m.opts.ElectionTicks)*m.opts.Tick)
	defer cancel()
	m.mu.RLock()
	var open []*group
	for _, g := range m.mu.groups {
		if g.takesPart() {
			open = append(open, g)
		}
	}
	m.mu.RUnlock()
	slices.SortFunc(open, func(a, b *group) int { return cmp.Compare(a.id, b.id) })
	for _, g := range open {
		for _, to := range heirs(g.replica.Status()) {
			h, err := g.replica.TransferLeader(ctx, to)
			if err == nil {
				m.log.Info("leadership handed over", slog.Any("group", g.id), slog.Any("to", to), slog.Duration("pause", h.Pause))
				break
			}
			m.log.Warn("leadership not handed over", slog.Any("group", g.id), slog.Any("to", to), slog.Any("err", err))
			if e, ok := errors.AsType[*replica.TransferError](err); !ok || e.Told || ctx.Err() != nil {
				break
			}
		}
	}
}

// heirs are the voters that could take over from a leader, the one that has most of the log first;
// none on a follower.
func heirs(s replica.Status) []ident.MemberID {
	if s.State != raft.StateLeader {
		return nil
	}
	fit := slices.DeleteFunc(slices.Clone(s.Progress), func(p consensus.Progress) bool { return p.Learner || !p.Active })
	slices.SortStableFunc(fit, func(a, b consensus.Progress) int { return cmp.Compare(b.Match, a.Match) })
	ids := make([]ident.MemberID, len(fit))
	for i, p := range fit {
		ids[i] = p.ID
	}
	return ids
}
