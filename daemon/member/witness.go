package member

import (
	"go.etcd.io/raft/v3"

	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/peer"
)

// watchRole returns what the replica of a group tells its roles to, one after the other: it records
// what changed from each to the next.
func (m *Member) watchRole(gid ident.GroupID) func(consensus.Role) {
	var was consensus.Role
	return func(now consensus.Role) {
		roster := m.Roster()
		for _, f := range roleFacts(gid, was, now, func(id ident.MemberID) string { return nameOf(roster, id) }) {
			m.opts.Journal.Add(f)
		}
		was = now
	}
}

// roleFacts returns what is to be told of a change from was to now. A replica that asks whether it
// may stand for election still follows.
func roleFacts(gid ident.GroupID, was, now consensus.Role, name func(ident.MemberID) string) []journal.Fact {
	var facts []journal.Fact
	if was.Leader != 0 && now.Leader == 0 {
		facts = append(facts, journal.LeaderLost{Group: gid, Term: was.Term, ID: was.Leader, Name: name(was.Leader)})
	}
	if was.Term != 0 && now.Term != was.Term && now.Leader == 0 {
		facts = append(facts, journal.TermRaised{Group: gid, Term: now.Term, Was: was.Term})
	}
	if before, after := part(was.State), part(now.State); before != after {
		facts = append(facts, journal.StateChanged{Group: gid, Term: now.Term, State: after, Was: before})
	}
	if now.Leader != 0 && (now.Leader != was.Leader || now.Term != was.Term) {
		facts = append(facts, journal.LeaderElected{Group: gid, Term: now.Term, ID: now.Leader, Name: name(now.Leader)})
	}
	return facts
}

// part is a replica's part in a term.
func part(s raft.StateType) string {
	switch s {
	case raft.StateLeader:
		return "leader"
	case raft.StateCandidate:
		return "candidate"
	}
	return "follower"
}

// nameOf returns a member's name, or nothing where the roster does not know it.
func nameOf(r membership.Roster, id ident.MemberID) string {
	x, _ := r.Member(id)
	return x.Name
}

// recordPeer records a peer that was connected or lost; known says whether it was connected before.
func (m *Member) recordPeer(p peer.PeerStatus, known bool) {
	switch name := nameOf(m.Roster(), p.ID); {
	case p.Connected && !known:
		m.opts.Journal.Add(journal.PeerConnected{ID: p.ID, Name: name, Addr: p.Addr})
	case !p.Connected && known:
		m.opts.Journal.Add(journal.PeerLost{ID: p.ID, Name: name, Addr: p.Addr, Failure: string(p.Failure), Detail: journal.Detail(p.Detail)})
	}
}

// recordRoster records a roster that differs from the one before, was.
func (m *Member) recordRoster(was, now membership.Roster) {
	if was.Version == now.Version {
		return
	}
	f := journal.RosterApplied{Version: now.Version, Members: make([]string, 0, len(now.Members))}
	for _, x := range now.Members {
		f.Members = append(f.Members, x.Name)
	}
	m.opts.Journal.Add(f)
	for _, f := range rosterFacts(was, now) {
		m.opts.Journal.Add(f)
	}
}

// rosterFacts returns what is to be told of a roster that follows was; nothing of the first one that a
// member sees.
func rosterFacts(was, now membership.Roster) []journal.Fact {
	if was.Version == 0 {
		return nil
	}
	var facts []journal.Fact
	for _, x := range now.Members {
		before, known := was.Member(x.ID)
		switch {
		case !known:
			f := journal.MemberAdded{ID: x.ID, Name: x.Name, Version: now.Version}
			if old, ok := was.Named(x.Name); ok {
				f.Replaces = old.ID
			}
			facts = append(facts, f)
		case before.Role == membership.RoleLearner && x.Role == membership.RoleVoter:
			facts = append(facts, journal.MemberPromoted{ID: x.ID, Name: x.Name, Version: now.Version})
		}
		if known && (before.GRPCAddr != x.GRPCAddr || before.HTTPAddr != x.HTTPAddr) {
			facts = append(facts, journal.AddressChanged{ID: x.ID, Name: x.Name, Version: now.Version, GRPCAddr: x.GRPCAddr, HTTPAddr: x.HTTPAddr})
		}
	}
	for _, x := range was.Members {
		if _, still := now.Member(x.ID); still {
			continue
		}
		if t, _ := now.Tombstone(x.ID); t.Expired {
			facts = append(facts, journal.LearnerExpired{ID: x.ID, Name: x.Name, Version: now.Version})
		} else {
			facts = append(facts, journal.MemberRemoved{ID: x.ID, Name: x.Name, Version: now.Version})
		}
	}
	return facts
}
