package member

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/witness"
)

// saveEvery is how often what others promised is saved while it only grows; what a witness learned in
// the last saveEvery before it lost power itself, it cannot testify to. A new term and a new boot of
// another member are saved at once, behind the message that brought them.
const saveEvery = 5 * time.Second

// promises is what this member remembers of the promises of others: package witness with a lock and a
// file. Nothing on the way of a message waits for the disk.
//
// What it costs: a lock and a comparison a message that acknowledges. What it promises: a peer that
// comes back with less than this process heard from it is refused; after a restart of this process, or
// a power loss, with less than it had heard saveEvery before.
type promises struct {
	mu struct {
		sync.Mutex
		memory  witness.Memory
		changed bool                      // since it was saved
		refused map[ident.MemberID]uint64 // lives of members that were refused, which is told once
	}
	wake chan struct{} // capacity 1: something that is saved at once
}

// loadPromises reads what was remembered. A file that cannot be read costs what it remembered, and
// nothing else: nobody else's promises are here.
func (m *Member) loadPromises() {
	b, err := m.opts.Dir.Witness(witness.MaxBytes)
	if err != nil || b == nil {
		if err != nil {
			m.log.Error("what other members promised is forgotten", slog.Any("err", err))
		}
		return
	}
	memory, err := witness.Decode("witness", b)
	if err != nil {
		m.log.Error("what other members promised is forgotten", slog.Any("err", err))
		return
	}
	m.promises.mu.Lock()
	defer m.promises.mu.Unlock()
	m.promises.mu.memory = memory
}

// keepPromises saves what is learned until ctx ends, and then once more.
func (m *Member) keepPromises(ctx context.Context) {
	ticker := time.NewTicker(saveEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			m.savePromises()
			return
		case <-ticker.C:
		case <-m.promises.wake:
		}
		m.savePromises()
	}
}

// savePromises saves what changed since it was saved, without members that are gone.
func (m *Member) savePromises() {
	roster, self := m.Roster(), m.identity().ID
	if self == 0 || len(roster.Members) == 0 {
		return
	}
	p := &m.promises
	p.mu.Lock()
	if !p.mu.changed {
		p.mu.Unlock()
		return
	}
	p.mu.memory.Keep(func(id ident.MemberID) bool { return !roster.Removed(id) })
	maps.DeleteFunc(p.mu.refused, func(id ident.MemberID, _ uint64) bool { return roster.Removed(id) })
	content := p.mu.memory.Encode()
	p.mu.changed = false
	p.mu.Unlock()
	if err := m.opts.Dir.SaveWitness(content); err != nil {
		m.log.Warn("what other members promised is not saved", slog.Any("err", err))
		p.mu.Lock()
		p.mu.changed = true
		p.mu.Unlock()
	}
}

// judge takes note of a member that opens a stream, or refuses it.
func (m *Member) judge(h peer.Hello) *peer.Refusal {
	g := witness.Greeting{Member: h.Member, Incarnation: h.Incarnation, Epoch: h.BootEpoch, Life: h.Life}
	for _, p := range h.Groups {
		g.Groups = append(g.Groups, claimOf(p))
	}
	for _, p := range h.Booted {
		g.Booted = append(g.Booted, claimOf(p))
	}
	p := &m.promises
	p.mu.Lock()
	err := p.mu.memory.Judge(g)
	news := err == nil && p.mu.memory.Admit(g)
	p.mu.changed = p.mu.changed || err == nil
	p.mu.Unlock()
	if news {
		p.saveSoon()
	}
	if err != nil {
		return &peer.Refusal{Reason: peer.ReasonAmnesia, Detail: err.Error()}
	}
	return nil
}

// tellRefused records a refusal for what this member knows of the other, once a process of the other.
func (m *Member) tellRefused(h peer.Hello, r *peer.Refusal) {
	switch r.Reason {
	case peer.ReasonAmnesia, peer.ReasonFormerHistory, peer.ReasonOtherHistory:
	default:
		return
	}
	p := &m.promises
	p.mu.Lock()
	told := p.mu.refused[h.Member] == h.Life
	p.mu.refused[h.Member] = h.Life
	p.mu.Unlock()
	if !told {
		m.opts.Journal.Add(journal.PeerRefused{ID: h.Member, Name: h.Name, Reason: r.Reason, Detail: journal.Detail(r.Detail)})
	}
}

func claimOf(p peer.GroupPosition) witness.Claim {
	return witness.Claim{Group: p.Group, Term: p.Term, Last: p.LastDurable}
}

// hear takes note of what a member promises by its messages.
func (m *Member) hear(from ident.MemberID, gid ident.GroupID, msgs []*pb.Message) {
	p := &m.promises
	p.mu.Lock()
	was := p.mu.memory.Mark(from, gid)
	now := was
	for _, msg := range msgs {
		switch msg.GetType() {
		case pb.MsgAppResp:
			if !msg.GetReject() {
				now = now.Acked(msg.GetTerm(), msg.GetIndex(), 0)
			}
			now = now.Heard(msg.GetTerm())
		case pb.MsgApp, pb.MsgHeartbeat, pb.MsgHeartbeatResp, pb.MsgSnap, pb.MsgVote, pb.MsgVoteResp, pb.MsgTimeoutNow:
			now = now.Heard(msg.GetTerm())
		}
	}
	if now != was {
		p.mu.memory.Note(from, gid, now)
		p.mu.changed = true
	}
	p.mu.Unlock()
	if now.Spoke != was.Spoke {
		p.saveSoon()
	}
	if now.AckIndex != was.AckIndex && now.AckEntry < now.AckTerm {
		m.hearEntry(from, gid, now)
	}
}

// hearEntry takes note of the term of an entry that was acknowledged, by this member's own log: the
// acknowledgement came to the leader. Once that is the term of the leader itself it stays so.
func (m *Member) hearEntry(from ident.MemberID, gid ident.GroupID, mark witness.Mark) {
	g := m.sound(gid)
	if g == nil {
		return
	}
	entry, err := g.log.Term(mark.AckIndex)
	if err != nil || entry > mark.AckTerm {
		return
	}
	p := &m.promises
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.memory.Note(from, gid, p.mu.memory.Mark(from, gid).Acked(mark.AckTerm, mark.AckIndex, entry))
	p.mu.changed = true
}

// Durable takes note of how far the replicas of a member are durable, as it says once a second. Nobody
// acknowledges to a leader's peers what the leader itself has.
func (m *Member) Durable(from ident.MemberID, groups []peer.GroupPosition) {
	p := &m.promises
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range groups {
		was := p.mu.memory.Mark(from, g.Group)
		if now := was.Claimed(claimOf(g)); now != was {
			p.mu.memory.Note(from, g.Group, now)
			p.mu.changed = true
		}
	}
}

func (p *promises) saveSoon() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}
