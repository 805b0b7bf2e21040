package member

import (
	"maps"
	"slices"
	"sync"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
)

// What is kept of a peer that has not taken this process's hello yet: the newest messages, so that an
// election among members that start together need not begin again.
const (
	heldMessages = 64
	heldBytes    = 64 << 10
)

// hearing says whom this process listens to: a peer's raft messages wait, and are dropped in the end,
// until that peer has taken this process's own hello once.
//
// A disk that went back is known by what it says of itself at its first hello. If it heard of a later term
// before, that term would be durable, and the next start would say it instead of what it found: nobody
// could tell any more. So whoever may remember is asked first.
//
// Nobody waits for each other: to take a hello needs nothing from who says it. A peer that cannot be
// dialled is not heard either, and no answer would have reached it.
//
// The zero hearing has asked nobody.
type hearing struct {
	mu sync.Mutex
	// accepted are the peers that took the hello of this process. Only startOver forgets them, or their removal.
	accepted map[ident.MemberID]bool
	held     map[ident.MemberID][]heldMessage
}

type heldMessage struct {
	group ident.GroupID
	msg   *pb.Message
	bytes int
}

// admits reports whether what a peer sent may be handed on. What may not be is held back.
func (h *hearing) admits(from ident.MemberID, gid ident.GroupID, msgs []*pb.Message) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.accepted[from] || mutantHeardUnasked {
		return true
	}
	if h.held == nil {
		h.held = map[ident.MemberID][]heldMessage{}
	}
	held := h.held[from]
	for _, m := range msgs {
		held = append(held, heldMessage{gid, m, sizeOf(m)})
	}
	bytes, first := 0, len(held)
	for first > 0 && len(held)-first < heldMessages && bytes+held[first-1].bytes <= heldBytes {
		first--
		bytes += held[first].bytes
	}
	h.held[from] = slices.Delete(held, 0, first)
	return false
}

// accept takes note that a peer took this process's hello, and returns what it sent before, in order.
func (h *hearing) accept(id ident.MemberID) []heldMessage {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.held[id]
	delete(h.held, id)
	if h.accepted == nil {
		h.accepted = map[ident.MemberID]bool{}
	}
	h.accepted[id] = true
	return held
}

// follow forgets who was removed.
func (h *hearing) follow(r membership.Roster) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.accepted, func(id ident.MemberID, _ bool) bool { return r.Removed(id) })
	maps.DeleteFunc(h.held, func(id ident.MemberID, _ []heldMessage) bool { return r.Removed(id) })
}

// forget has every peer be asked again, for this process says another id from now on.
func (h *hearing) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.accepted)
	clear(h.held)
}

// sizeOf is about what a message occupies, in bytes.
func sizeOf(m *pb.Message) int {
	n := 128 + len(m.GetContext()) + len(m.GetSnapshot().GetData())
	for _, e := range m.GetEntries() {
		n += 40 + len(e.GetData())
	}
	return n
}

// accepted hands on what a peer sent before it took this process's hello.
func (m *Member) accepted(id ident.MemberID) {
	for _, x := range m.hearing.accept(id) {
		if g := m.taking(x.group); g != nil {
			g.replica.Receive([]*pb.Message{x.msg})
		}
	}
}
