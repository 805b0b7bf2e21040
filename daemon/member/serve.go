package member

import (
	"context"
	"fmt"

	"go.etcd.io/raft/v3"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/snapshot"
)

// FetchSnapshot serves an artifact of a group to a member of the cluster. Any replica may that is
// open and sound: what it ships is applied, hence committed.
func (m *Member) FetchSnapshot(ctx context.Context, r peer.SnapshotRequest, s peer.SnapshotSender) error {
	if refusal := m.refuse(r.Hello); refusal != nil {
		return refusal
	}
	g := m.sound(r.Group)
	if g == nil {
		return fmt.Errorf("group %s is not open on %s", r.Group, m.opts.Name)
	}
	if m.knows(r.Hello.Member) {
		m.noteHello(r.Hello) // a learner whose data takes long to arrive has made contact
	}
	term := g.replica.Status().Term
	if !r.Always && g.log.FirstIndex() <= r.From {
		g.opened(r.Hello.Member) // raft goes on with the log
		return s.Header(peer.SnapshotHeader{Term: term})
	}
	lease, err := g.stager.Lend(r.Hello.Member, r.Least)
	if err != nil {
		return err
	}
	err = m.send(ctx, g, lease, term, r, s)
	lease.Close(err == nil)
	return err
}

func (m *Member) send(ctx context.Context, g *group, lease *snapshot.Lease, term uint64, r peer.SnapshotRequest, s peer.SnapshotSender) error {
	h := peer.SnapshotHeader{Needed: true, Term: term, Manifest: lease.Manifest()}
	if snapshot.ID(r.Have) == lease.ID() {
		h.From = r.Resume
	}
	if err := s.Header(h); err != nil {
		return err
	}
	return lease.Send(ctx, snapshot.Cursor(h.From), func(c snapshot.Chunk) error {
		if now := g.replica.Status().Term; now != term {
			return fmt.Errorf("the term is %d now, the transfer began in %d: ask again", now, term)
		}
		if m.sound(g.id) == nil {
			return fmt.Errorf("group %s is not sound any more on %s", g.id, m.opts.Name)
		}
		return s.Chunk(peer.SnapshotChunk{At: peer.SnapshotCursor(c.Cursor), Data: c.Data, Sum: c.Sum, Term: term})
	})
}

// Barrier says up to where this member's log, if it leads, holds what another one acknowledged.
func (m *Member) Barrier(ctx context.Context, r peer.BarrierRequest) (peer.BarrierReply, error) {
	if refusal := m.refuse(r.Hello); refusal != nil {
		return peer.BarrierReply{}, refusal
	}
	replica, err := m.Replica(r.Group)
	if err != nil {
		return peer.BarrierReply{}, err
	}
	b, err := replica.Barrier(ctx, r.Term)
	return peer.BarrierReply{Term: b.Term, Index: b.Index}, err
}

// Opened has raft try a member again whose replicas were opened.
func (m *Member) Opened(from ident.MemberID, groups []peer.GroupPosition) {
	for _, p := range groups {
		if g := m.taking(p.Group); g != nil {
			g.keeper.permits.opened(from)
			g.opened(from)
		}
	}
}

// Pinned takes over what the leader of a group keeps its log for.
func (m *Member) Pinned(from ident.MemberID, pins []peer.Pin) {
	for _, p := range pins {
		g := m.sound(p.Group)
		if g == nil {
			continue
		}
		if s := g.replica.Status(); s.Leader == from && s.Term == p.Term {
			g.stager.Carry(p.Index)
		}
	}
}

// Pins is what this member keeps the logs for that it leads.
func (m *Member) Pins() []peer.Pin {
	var pins []peer.Pin
	for _, g := range m.leads() {
		if s := g.replica.Status(); s.State == raft.StateLeader {
			pins = append(pins, peer.Pin{Group: g.id, Term: s.Term, Index: g.stager.Announce()})
		}
	}
	return pins
}
