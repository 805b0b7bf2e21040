package member

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/peer"
)

// Probe answers what this member is, before and after birth. A fresh answer holds for this process
// and this incarnation alone.
func (m *Member) Probe(peer.ProbeRequest) peer.ProbeReply {
	var surface *keeper
	m.mu.RLock()
	id := m.mu.identity
	reply := peer.ProbeReply{
		Cluster: id.Cluster, ID: id.ID, Name: id.Name, Incarnation: id.Incarnation, Fresh: id.ID == 0,
		TopologyDigest: m.opts.Topology, Genesis: id.Genesis, RosterVersion: m.mu.roster.Version, Version: m.opts.Version,
		DiskFull: m.mu.disk.Full,
	}
	if g := m.mu.groups[0]; g != nil && g.replica != nil {
		s := g.replica.Status()
		reply.Leader, reply.Term = s.Leader, s.Term
		reply.Quarantined = g.quarantine != nil
		surface = g.keeper
	}
	m.mu.RUnlock()
	reply.Reseeds = surface != nil && surface.latchedNow() != nil
	return reply
}

// SelfHello is what this member says when it opens a stream.
func (m *Member) SelfHello() peer.Hello {
	m.mu.RLock()
	defer m.mu.RUnlock()
	id := m.mu.identity
	h := peer.Hello{
		Cluster: id.Cluster, Member: id.ID, Incarnation: id.Incarnation, Name: id.Name, BootEpoch: id.BootEpoch,
		RosterVersion: m.mu.roster.Version, Capabilities: ident.Supported, Version: m.opts.Version,
		GRPCAddr: m.opts.GRPCAddr, HTTPAddr: m.opts.HTTPAddr,
		Life: m.process, History: m.mu.roster.History,
	}
	for _, gid := range id.Groups {
		if g := m.mu.groups[gid]; g != nil && g.takesPart() {
			h.Groups = append(h.Groups, m.position(g))
		}
		if at, ok := m.mu.booted[gid]; ok {
			h.Booted = append(h.Booted, at)
		}
	}
	return h
}

// Hello decides whether the member that says h may open a stream to this one.
func (m *Member) Hello(h peer.Hello) (peer.Hello, *peer.Refusal) {
	r := m.refuse(h)
	if r == nil {
		r = m.judge(h)
	}
	if r != nil {
		m.tellRefused(h, r)
		return peer.Hello{}, r
	}
	if m.knows(h.Member) {
		m.noteHello(h)
	} else {
		m.hint(h)
	}
	m.Opened(h.Member, h.Groups)
	return m.SelfHello(), nil
}

func (m *Member) refuse(h peer.Hello) *peer.Refusal {
	if gone := m.gone(); gone != nil {
		return &peer.Refusal{Reason: peer.ReasonUnknownMember, Detail: m.opts.Name + " was removed from the cluster"}
	}
	m.mu.RLock()
	id, roster := m.mu.identity, m.mu.roster
	m.mu.RUnlock()
	if id.ID == 0 {
		return &peer.Refusal{Reason: peer.ReasonNotBorn, Detail: fmt.Sprintf("%s belongs to no cluster yet", id.Name)}
	}
	if h.Cluster != id.Cluster {
		return &peer.Refusal{Reason: peer.ReasonWrongCluster, Detail: fmt.Sprintf("%s belongs to cluster %s, not %s", id.Name, id.Cluster, h.Cluster)}
	}
	if r := refuseHistory(roster, h); r != nil {
		if m.removed(h.Member) != nil {
			m.noteTold(h)
		}
		return r
	}
	known, ok := roster.Member(h.Member)
	if !ok {
		if refusal := m.removed(h.Member); refusal != nil {
			m.noteTold(h)
			return refusal
		}
	}
	switch {
	case !ok && h.RosterVersion > roster.Version:
		return nil // this side is behind: a new leader must be heard
	case !ok:
		return &peer.Refusal{Reason: peer.ReasonUnknownMember, Detail: fmt.Sprintf("member %s is not in roster version %d", h.Member, roster.Version)}
	case known.Incarnation != h.Incarnation && !mutantIncarnationIgnored:
		return &peer.Refusal{Reason: peer.ReasonIncarnationChanged, Detail: fmt.Sprintf("member %s had incarnation %s, not %s", h.Member, known.Incarnation, h.Incarnation)}
	}
	return nil
}

// refuseHistory refuses a member of another life of the cluster; nil: it is of this one, or will be. One
// that was kept when the cluster was recovered is in the roster, and learns the new history from its log.
// Of a later history it is this member that has to learn, or that was given up: the other side knows.
//
// Two recoveries from two disks make two lives of the same epoch. Each of them refuses the other, and
// neither closes: which of them goes on is for people to say.
func refuseHistory(roster membership.Roster, h peer.Hello) *peer.Refusal {
	ours, theirs := roster.History, h.History
	known, ok := roster.Member(h.Member)
	kept := ok && known.Incarnation == h.Incarnation
	switch {
	case ours == theirs, theirs.Epoch > ours.Epoch, mutantHistoryIgnored:
		return nil
	case theirs.Epoch == ours.Epoch:
		return &peer.Refusal{Reason: peer.ReasonOtherHistory, Detail: fmt.Sprintf(
			"the cluster was recovered twice: this is history %s, member %s (%s) is of history %s", ours, h.Member, h.Name, theirs)}
	case kept:
		return nil
	}
	return &peer.Refusal{Reason: peer.ReasonFormerHistory, Detail: fmt.Sprintf(
		"the cluster was recovered without member %s (%s): it goes on as history %s, that disk is of history %s", h.Member, h.Name, ours, theirs)}
}

// Deliver hands raft messages of one group to its replica. Messages for a group that is not open are
// dropped: raft sends again. Those of a peer that has not taken this process's hello yet wait for it.
func (m *Member) Deliver(from ident.MemberID, gid ident.GroupID, msgs []*pb.Message) {
	m.hear(from, gid, msgs)
	if g := m.taking(gid); g != nil && m.hearing.admits(from, gid, msgs) {
		g.replica.Receive(msgs)
	}
}
