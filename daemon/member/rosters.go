package member

import (
	"log/slog"
	"maps"
	"slices"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/peer"
)

// applyRoster is the one place where an applied roster takes effect: who is dialled, and where; who may
// speak; whose words are kept. The replica of group 0 calls it, in log order, with an index at or after
// that of the record, and boot calls it once with what the state holds.
func (m *Member) applyRoster(index uint64, r membership.Roster) {
	m.mu.Lock()
	was := m.mu.roster
	m.mu.roster, m.mu.rosterAt = r, index
	maps.DeleteFunc(m.mu.hints, func(id ident.MemberID, _ string) bool { return uint64(id) < r.NextID })
	maps.DeleteFunc(m.mu.connected, func(id ident.MemberID, _ bool) bool { return r.Removed(id) })
	maps.DeleteFunc(m.mu.clocks, func(id ident.MemberID, _ clockNote) bool { return r.Removed(id) })
	m.mu.Unlock()
	m.contacts.follow(was, r)
	m.hearing.follow(r)
	m.recordRoster(was, r)
	m.switchPeers()
	m.registrar.poke()
}

// switchPeers makes the dial table that the roster asks for.
func (m *Member) switchPeers() {
	m.dialling.Lock()
	defer m.dialling.Unlock()
	m.mu.RLock()
	self, roster, gone := m.mu.identity.ID, m.mu.roster, m.mu.removed != nil
	peers := make([]peer.Peer, 0, len(roster.Members)+len(m.mu.hints))
	for _, x := range roster.Members {
		if x.ID != self {
			peers = append(peers, m.peerOf(x))
		}
	}
	for id, addr := range m.mu.hints {
		peers = append(peers, peer.Peer{ID: id, Addr: addr})
	}
	m.mu.RUnlock()
	if gone {
		peers = nil
	}
	m.net.SetPeers(peers)
}

// peerOf is where x is dialled: where the roster says, which x itself announces; and in turn where the
// topology file says, which is how an operator moves a whole cluster to other addresses.
func (m *Member) peerOf(x membership.Member) peer.Peer {
	p := peer.Peer{ID: x.ID, Addr: x.GRPCAddr}
	if d, ok := m.declared(x.Name); ok && d.GRPCAddr != x.GRPCAddr {
		p.Also = d.GRPCAddr
	}
	return p
}

// hint has a member dialled that this one's roster does not know yet: it comes with a newer roster, and
// may be the leader whose log would tell.
func (m *Member) hint(h peer.Hello) {
	if h.GRPCAddr == "" {
		return
	}
	m.mu.Lock()
	news := m.mu.hints[h.Member] != h.GRPCAddr && len(m.mu.hints) < maxHints
	if news {
		m.mu.hints[h.Member] = h.GRPCAddr
	}
	m.mu.Unlock()
	if news {
		m.switchPeers()
	}
}

// hinted returns where a member is reached that this one's roster does not know yet.
func (m *Member) hinted(id ident.MemberID) (addr string, ok bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	addr, ok = m.mu.hints[id]
	return addr, ok
}

// maxHints bounds who is dialled beside the roster.
const maxHints = 16

// cacheRoster keeps the roster on disk, if it is a new one, so that a member whose group 0 cannot be
// opened still knows whom to ask. Nothing else is ever concluded from it.
func (r *registrar) cacheRoster() {
	roster := r.m.Roster()
	if roster.Version == r.cached || roster.Version == 0 {
		return
	}
	r.cached = roster.Version
	if err := r.m.opts.Dir.CacheRoster(roster.Encode()); err != nil {
		r.m.log.Warn("roster not cached", slog.Any("err", err))
	}
}

// addresses lists where other members may be found, for a member whose group 0 is closed: those of the
// roster, of the cached one, and of the topology file.
func (m *Member) addresses() []string {
	roster := m.Roster()
	if roster.Version == 0 {
		roster, _ = membership.DecodeRoster(m.opts.Dir.RosterCache())
	}
	self := m.identity().ID
	seen := map[string]bool{m.opts.GRPCAddr: true}
	var all []string
	add := func(addr string) {
		if !seen[addr] {
			seen[addr] = true
			all = append(all, addr)
		}
	}
	for _, x := range roster.Members {
		if x.ID != self {
			add(x.GRPCAddr)
		}
	}
	m.mu.RLock()
	for _, id := range slices.Sorted(maps.Keys(m.mu.hints)) {
		add(m.mu.hints[id])
	}
	m.mu.RUnlock()
	for _, d := range m.opts.Declared {
		if d.Name != m.opts.Name {
			add(d.GRPCAddr)
		}
	}
	return all
}

// addrOf is where x is asked something at once.
func (m *Member) addrOf(x membership.Member) string {
	if p := m.contacts.get(x.ID).said; p != nil && p.Incarnation == x.Incarnation && p.GRPCAddr != "" {
		return p.GRPCAddr // newer than the roster, or the same
	}
	return x.GRPCAddr
}

func (m *Member) declared(name string) (membership.Declared, bool) {
	for _, d := range m.opts.Declared {
		if d.Name == name {
			return d, true
		}
	}
	return membership.Declared{}, false
}

// knows reports whether the roster has a member of this id.
func (m *Member) knows(id ident.MemberID) bool {
	_, ok := m.Roster().Member(id)
	return ok
}
