package member

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/replica"
)

// handoverEvery is the pace at which a leader asks itself whether it should go on, and at which it tries
// again to find another.
const (
	handoverEvery = time.Second
	handoverBusy  = 200 * time.Millisecond // while an append is under way, or the disk is full
	handoverAgain = 2 * time.Second
)

// The reasons for which a leader hands over by itself.
const (
	handoverQuarantined = "quarantined" // its state must not be served

	handoverDiskFull = "disk_full" // its disk takes no client writes
	handoverDiskSlow = "disk_slow" // its disk does not bring anything to an end
	handoverReseed   = "reseed"    // its replica is to be installed again, which no leader's is
)

// handover is what a leader looks at to decide whether somebody else should lead. Raft alone does not
// ask: a leader whose disk stands still goes on sending heartbeats for ever.
type handover struct {
	quarantined bool          // its state must not be served
	reseeds     bool          // its replica is to be installed again
	full        bool          // the disk has no room for client writes
	unsynced    time.Duration // how long the oldest append has been waiting for the disk; 0: none is
	patience    time.Duration // how long one may

	durable, commit uint64 // of this member
	voters          []candidate
}

// candidate is another voter.
type candidate struct {
	id     ident.MemberID
	match  uint64 // what it is known to have durable
	active bool   // heard from within the last election timeout
	room   bool   // it has said that its disk has room, and that it is not in quarantine itself

	// reseeds: it has said that its own replica is to be installed again. Handed the leadership for that
	// reason it would hand it back, and neither would ever be there to permit the other's.
	reseeds bool
}

// reason says why somebody else should lead; empty: nothing is wrong.
func (h handover) reason() string {
	switch {
	case h.quarantined:
		return handoverQuarantined
	case h.full:
		return handoverDiskFull
	case h.unsynced > h.patience:
		return handoverDiskSlow
	case h.reseeds:
		return handoverReseed
	}
	return ""
}

// target returns the voter to hand over to, or 0: the one that has most of the log among those which
// are there, have room, and have everything that is committed. With a slow disk it must also have what
// this member is still waiting for: that shows that its disk is the faster one, so leadership does not
// go round between slow disks.
func (h handover) target() ident.MemberID {
	reason := h.reason()
	var best candidate
	for _, c := range h.voters {
		fit := reason != "" && c.active && c.room && c.match >= h.commit &&
			(reason != handoverDiskSlow || c.match > h.durable) &&
			(reason != handoverReseed || !c.reseeds)
		if fit && (best.id == 0 || c.match > best.match) {
			best = c
		}
	}
	return best.id
}

// patience is how long an append may take on a leader: two election timeouts, as long as a leader that
// is gone would be missed, and never less than a second, which a busy disk may well take.
func (m *Member) patience() time.Duration {
	return max(2*time.Duration(m.opts.ElectionTicks)*m.opts.Tick, time.Second)
}

// watchLead has every group that this member leads handed over when its disk is full or stands still.
// It returns when ctx ends.
func (m *Member) watchLead(ctx context.Context) {
	pulse := m.beat.Every(handoverEvery)
	defer pulse.Stop()
	again := map[ident.GroupID]time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-pulse.C:
			pulse.Took()
			pace := handoverEvery
			for _, g := range m.leads() {
				if m.disk().Full || !g.replica.Status().UnsyncedSince.IsZero() {
					pace = handoverBusy
				}
				if now.Before(again[g.id]) {
					continue
				}
				if m.considerHandover(ctx, g) {
					again[g.id] = now.Add(handoverAgain)
				}
			}
			pulse.Every(pace)
		}
	}
}

// leads lists the groups that this member leads.
func (m *Member) leads() []*group {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var led []*group
	for _, g := range m.mu.groups {
		if g.takesPart() && g.replica.Status().State == raft.StateLeader {
			now := *g
			led = append(led, &now)
		}
	}
	slices.SortFunc(led, func(a, b *group) int { return cmp.Compare(a.id, b.id) })
	return led
}

// considerHandover hands over g if it should be, and reports whether there was a reason to.
func (m *Member) considerHandover(ctx context.Context, g *group) bool {
	s := g.replica.Status()
	h := handover{quarantined: g.quarantine != nil, full: m.disk().Full, patience: m.patience(), durable: s.Durable, commit: s.Commit}
	if !s.UnsyncedSince.IsZero() {
		h.unsynced = m.opts.Now().Sub(s.UnsyncedSince)
	}
	reason := h.reason()
	if reason == "" || s.Transferee != 0 {
		return false
	}
	h.voters = m.candidates(ctx, s)
	to := h.target()
	m.log.Warn("leader should hand over", slog.Any("group", g.id), slog.String("reason", reason),
		slog.Duration("unsynced", h.unsynced), slog.Any("to", to))
	if to != 0 {
		m.metrics.handovers.WithLabelValues(reason).Inc()
		g.replica.Transfer(to)
	}
	return true
}

// candidates asks the other voters whether they have room. One that does not say has none.
func (m *Member) candidates(ctx context.Context, s replica.Status) []candidate {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	roster, self := m.Roster(), m.identity()
	all := make([]candidate, 0, len(s.Progress))
	for _, p := range s.Progress {
		if !p.Learner {
			all = append(all, candidate{id: p.ID, match: p.Match, active: p.Active})
		}
	}
	var wg sync.WaitGroup
	for i := range all {
		c := &all[i]
		x, ok := roster.Member(c.id)
		if !ok || !c.active {
			continue
		}
		wg.Go(func() {
			reply, err := m.net.Probe(ctx, m.addrOf(x), peer.ProbeRequest{Name: self.Name, Incarnation: self.Incarnation, TopologyDigest: m.opts.Topology})
			c.room = err == nil && reply.ID == c.id && !reply.DiskFull && !reply.Quarantined
			c.reseeds = reply.Reseeds
		})
	}
	wg.Wait()
	return all
}
