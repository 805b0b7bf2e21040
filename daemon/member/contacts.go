package member

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/replica"
)

// tellEvery is how often a removed member is told so, until it has acknowledged.
const tellEvery = time.Second

// contacts is what the members have said, kept on every member, so that a new leader knows it. It is as
// long as the roster and its tombstones.
type contacts struct {
	mu sync.Mutex
	of map[ident.MemberID]contact
}

// contact is what one member, or a removed one, has said.
type contact struct {
	addr    string // where it was last, for who is removed; empty: not known
	heard   time.Time
	said    *membership.Said
	report  peer.Report
	notice  membership.Notice
	telling bool // under way
	toldAt  time.Time
	gaveUp  bool
	// unreached is why the last attempt to reach it failed, tls that it was TLS; empty: it did not fail.
	unreached string
	tls       bool
}

func newContacts() *contacts { return &contacts{of: map[ident.MemberID]contact{}} }

// change changes what is kept of a member.
func (c *contacts) change(id ident.MemberID, how func(*contact)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.of[id]
	how(&x)
	c.of[id] = x
}

func (c *contacts) get(id ident.MemberID) contact {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[id]
}

// seen returns what is known of members by their own words.
func (c *contacts) seen() map[ident.MemberID]membership.Seen {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[ident.MemberID]membership.Seen, len(c.of)+1)
	for id, x := range c.of {
		all[id] = membership.Seen{Heard: x.heard, Said: x.said, Applied: x.report.Applied, Committed: x.report.Committed, Unreached: x.unreached, TLS: x.tls}
	}
	return all
}

// notices returns what became of telling those who are removed.
func (c *contacts) notices() map[ident.MemberID]membership.Notice {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[ident.MemberID]membership.Notice{}
	for id, x := range c.of {
		if x.notice != (membership.Notice{}) {
			all[id] = x.notice
		}
	}
	return all
}

// follow forgets who is neither a member nor to be told, and keeps where members were that are gone.
func (c *contacts) follow(was, now membership.Roster) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range was.Members {
		if _, ok := now.Member(x.ID); !ok {
			gone := c.of[x.ID]
			gone.addr = x.GRPCAddr
			c.of[x.ID] = gone
		}
	}
	for id := range c.of {
		_, member := now.Member(id)
		t, kept := now.Tombstone(id)
		if !member && (!kept || t.Acked) && uint64(id) < now.NextID {
			delete(c.of, id)
		}
	}
}

// said is what this member says of itself.
func (m *Member) said() membership.Said {
	id := m.identity()
	return membership.Said{
		Incarnation: id.Incarnation, BootEpoch: id.BootEpoch, Capabilities: ident.Supported,
		GRPCAddr: m.opts.GRPCAddr, HTTPAddr: m.opts.HTTPAddr,
	}
}

// noteHello takes note of what a member says when it opens a stream.
func (m *Member) noteHello(h peer.Hello) {
	now := m.opts.Now()
	m.contacts.change(h.Member, func(c *contact) {
		c.heard = now
		c.said = &membership.Said{
			Incarnation: h.Incarnation, BootEpoch: h.BootEpoch, Capabilities: h.Capabilities, GRPCAddr: h.GRPCAddr, HTTPAddr: h.HTTPAddr,
		}
	})
}

// noteReached takes note of whether a member is reached, and if not, why.
func (m *Member) noteReached(p peer.PeerStatus) {
	m.contacts.change(p.ID, func(c *contact) {
		if c.unreached, c.tls = "", p.Failure == peer.FailureTLS; p.Failure != peer.FailureNone {
			c.unreached = journal.Detail(string(p.Failure) + ": " + p.Detail)
		}
	})
}

// Reports returns how far the replicas of this member are.
func (m *Member) Reports() []peer.Report {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var all []peer.Report
	if g := m.mu.groups[0]; g != nil && g.replica != nil && g.quarantine == nil {
		s := g.replica.Status()
		all = append(all, peer.Report{Group: g.id, Applied: s.ConfAsOf, AppliedTerm: s.AppliedTerm, Committed: s.DurableCommit})
	}
	return all
}

// Reported takes how far the replicas of a member are.
func (m *Member) Reported(from ident.MemberID, reports []peer.Report) {
	now := m.opts.Now()
	news := false
	m.contacts.change(from, func(c *contact) {
		c.heard = now
		for _, r := range reports {
			if r.Group == 0 {
				news = c.report != r
				c.report = r
			}
		}
	})
	for _, r := range reports {
		if g := m.taking(r.Group); g != nil && r.AppliedTerm != 0 {
			g.replica.Known(ident.EntryID{Term: r.AppliedTerm, Index: r.Applied})
		}
	}
	if news {
		m.registrar.poke()
	}
}

// settled reports whether enough voters are known to have the configuration in force for good. Every
// member can say, since everybody reports to everybody.
func (m *Member) settled() bool {
	g := m.sound(0)
	if g == nil {
		return false
	}
	return m.reported(g.replica.Status()).Busy() == nil
}

// reported is the little of a view that tells how far a change of the configuration is: what the voters
// reported until now.
func (m *Member) reported(s replica.Status) membership.View {
	v := membership.View{Conf: s.Conf, ConfIndex: s.ConfIndex, Seen: m.contacts.seen()}
	v.Seen[m.identity().ID] = membership.Seen{Applied: s.ConfAsOf, Committed: s.DurableCommit}
	return v
}

// removed says how a member that is removed is refused; nil: it is not, or it is not sure yet.
func (m *Member) removed(id ident.MemberID) *peer.Refusal {
	roster := m.Roster()
	if !roster.Removed(id) || mutantTombstoneNotDelivered {
		return nil
	}
	g := m.sound(0)
	if g == nil || !roster.Enforced(id, g.replica.Status().Conf, m.settled()) {
		return nil
	}
	if t, _ := roster.Tombstone(id); t.Expired {
		return &peer.Refusal{Reason: peer.ReasonExpired, Detail: fmt.Sprintf("%s, member %s, was never heard of and expired; it may join again", t.Name, id)}
	}
	return &peer.Refusal{Reason: peer.ReasonRemoved, Detail: fmt.Sprintf("member %s was removed; roster version %d does not name it", id, roster.Version)}
}

// Standing ends the streams of members that are removed: the refusal is the notice, and what they sent is
// dropped, so they disturb nobody.
func (m *Member) Standing(h peer.Hello) *peer.Refusal {
	if _, member := m.Roster().Member(h.Member); member {
		return nil
	}
	refusal := m.removed(h.Member)
	if refusal != nil {
		m.noteTold(h)
	}
	return refusal
}

// noteTold takes note of a removed member that is being told so, and of where it can be reached.
func (m *Member) noteTold(h peer.Hello) {
	if _, kept := m.Roster().Tombstone(h.Member); !kept {
		return // it has acknowledged long ago
	}
	m.contacts.change(h.Member, func(c *contact) {
		c.notice.Told = true
		if h.GRPCAddr != "" {
			c.addr = h.GRPCAddr
		}
	})
	m.registrar.poke()
}

// tell tells those who are removed, again and again, until each has acknowledged or is given up.
func (r *registrar) tell(v membership.View) {
	if mutantTombstoneNotDelivered {
		return
	}
	m, settled := r.m, v.Busy() == nil
	for _, t := range v.Roster.Tombstones {
		if t.Acked || !v.Roster.Enforced(t.ID, v.Conf, settled) {
			continue
		}
		due := time.UnixMilli(t.RemovedAt).Add(m.policy.RemovalGiveup)
		c := m.contacts.get(t.ID)
		switch {
		case c.notice.Acked || c.telling || c.gaveUp:
		case v.Now.After(due):
			m.contacts.change(t.ID, func(c *contact) { c.gaveUp = true })
			if r.led.Before(due) { // else somebody else has counted it
				m.metrics.giveups.Inc()
				m.log.Warn("removed member not told", slog.String("name", t.Name), slog.Any("peer", t.ID))
				m.opts.Journal.Add(journal.RemovalGivenUp{ID: t.ID, Name: t.Name})
			}
		case c.addr != "" && v.Now.Sub(c.toldAt) >= tellEvery:
			m.contacts.change(t.ID, func(c *contact) { c.telling, c.toldAt = true, v.Now })
			m.aside(func(ctx context.Context) { m.farewell(ctx, c.addr, t, v.Roster.Version) })
		}
	}
}

// aside runs do beside the caller, or, in the foreground, at once.
func (m *Member) aside(do func(context.Context)) {
	if m.opts.Foreground {
		do(context.Background())
		return
	}
	m.done.Go(func() { do(m.life) })
}

// farewell tells one removed member.
func (m *Member) farewell(ctx context.Context, addr string, t membership.Tombstone, version uint64) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := m.net.Farewell(ctx, addr, peer.FarewellRequest{
		Cluster: m.identity().Cluster, Member: t.ID, Incarnation: t.Incarnation, Expired: t.Expired, RosterVersion: version,
	})
	m.contacts.change(t.ID, func(c *contact) {
		c.telling = false
		if err == nil {
			c.notice.Told, c.notice.Acked = true, true
		}
	})
	if err == nil {
		m.registrar.poke()
	}
}
