package membership

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Recovery is what is to become of a cluster that lost its majority for good: it goes on from the disk
// of one member, with those that are kept, under another history.
type Recovery struct {
	Survivor ident.MemberID
	// GivesUp are the members that are lost, ascending. Everybody else in the roster is kept.
	GivesUp []ident.MemberID
	History ident.History // of the cluster from then on
	At      int64         // Unix ms
}

// Recover returns the changes that carry r out after roster and conf, one by one, as a majority would
// have committed them: each is legal for raft, with one roster version each. Joint configurations are
// left first; a survivor that does not vote is made a voter before the last voter goes.
//
// The history is raised by the first of them that carries a roster, so no prefix of them is of the
// former history with other members. A nil context is raft's own leave of a joint configuration.
func Recover(roster Roster, conf *pb.ConfState, r Recovery) ([]*pb.ConfChangeV2, error) {
	if err := r.check(roster); err != nil {
		return nil, err
	}
	var changes []*pb.ConfChangeV2
	voters, learners := slices.Clone(conf.GetVoters()), slices.Concat(conf.GetLearners(), conf.GetLearnersNext())
	if len(conf.GetVotersOutgoing()) > 0 {
		changes = append(changes, &pb.ConfChangeV2{})
		learners = slices.DeleteFunc(learners, func(id uint64) bool { return slices.Contains(voters, id) })
	}
	add := func(next Roster, typ pb.ConfChangeType, id ident.MemberID) {
		changes = append(changes, &pb.ConfChangeV2{
			Changes: []*pb.ConfChangeSingle{{Type: typ.Enum(), NodeId: new(uint64(id))}},
			Context: next.Encode(),
		})
		roster = next
	}
	next := func() Roster {
		n := roster
		n.Version++
		n.Members, n.Tombstones = slices.Clone(n.Members), slices.Clone(n.Tombstones)
		n.History = r.History
		return n
	}
	if !slices.Contains(voters, uint64(r.Survivor)) {
		n := next()
		for i := range n.Members {
			if n.Members[i].ID == r.Survivor {
				n.Members[i].Role = RoleVoter
			}
		}
		add(n, pb.ConfChangeAddNode, r.Survivor)
	}
	for _, id := range r.GivesUp {
		if !slices.Contains(voters, uint64(id)) && !slices.Contains(learners, uint64(id)) {
			continue // in the roster alone: buried with the last one
		}
		n := next()
		n.giveUp(id, r.At)
		add(n, pb.ConfChangeRemoveNode, id)
	}
	if len(changes) == 0 || len(changes[len(changes)-1].GetContext()) == 0 {
		return nil, errors.New("no member that is given up is in the configuration")
	}
	last := roster // who is in the roster alone
	last.Members, last.Tombstones = slices.Clone(last.Members), slices.Clone(last.Tombstones)
	for _, id := range r.GivesUp {
		last.giveUp(id, r.At)
	}
	if err := last.validate(); err != nil {
		return nil, fmt.Errorf("the roster after the recovery: %w", err)
	}
	changes[len(changes)-1].Context = last.Encode()
	return changes, nil
}

// check reports whether r can be carried out on roster.
func (r Recovery) check(roster Roster) error {
	if _, ok := roster.Member(r.Survivor); !ok {
		return fmt.Errorf("member %s, the survivor, is not in roster version %d", r.Survivor, roster.Version)
	}
	if r.History.Epoch != roster.History.Epoch+1 {
		return fmt.Errorf("history %s does not follow %s", r.History, roster.History)
	}
	if len(r.GivesUp) == 0 {
		return errors.New("no member is given up")
	}
	for i, id := range r.GivesUp {
		switch _, ok := roster.Member(id); {
		case !ok:
			return fmt.Errorf("member %s, to be given up, is not in roster version %d", id, roster.Version)
		case id == r.Survivor:
			return fmt.Errorf("member %s is the survivor, and to be given up", id)
		case i > 0 && id <= r.GivesUp[i-1]:
			return fmt.Errorf("member %s follows %s", id, r.GivesUp[i-1])
		}
	}
	return nil
}

// giveUp takes a member out and leaves its tombstone, if it is there. REQUIRES: r's slices are its own.
func (r *Roster) giveUp(id ident.MemberID, at int64) {
	m, ok := r.Member(id)
	if !ok {
		return
	}
	r.Members = slices.DeleteFunc(r.Members, func(m Member) bool { return m.ID == id })
	i, _ := slices.BinarySearchFunc(r.Tombstones, id, func(t Tombstone, id ident.MemberID) int { return cmp.Compare(t.ID, id) })
	r.Tombstones = slices.Insert(r.Tombstones, i, Tombstone{ID: id, Incarnation: m.Incarnation, Name: m.Name, RemovedAt: at})
}
