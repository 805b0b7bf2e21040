package consensus

import (
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Status is where the machine stands after a Step. It shares nothing that changes.
type Status struct {
	Role

	// First is the first index that the log still has; Last the last that raft has, durable or not.
	//
	// Invariant: First-1 <= Applied <= Commit <= Last, and Durable <= Last unless a conflicting
	// suffix is being replaced.
	First, Last, Durable, Commit, Applied uint64

	// Conf is the configuration in force, that of the applied index. Read-only.
	Conf *pb.ConfState

	// Progress is the leader's view of the other members, sorted; nil on a follower.
	Progress []Progress

	// Transferee is the member to which leadership is moving, or 0.
	Transferee ident.MemberID
}

// Progress is the leader's view of one other member.
type Progress struct {
	ID      ident.MemberID
	Learner bool

	Match uint64 // its log is durable and equal to ours up to here
	Next  uint64 // the next entry to send

	State  tracker.StateType
	Active bool // heard from within the last election timeout
}

// Transferee is the member to which leadership is moving, or 0.
func (m *Machine) Transferee() ident.MemberID {
	if m.role.State != raft.StateLeader || m.failed != nil {
		return 0
	}
	return ident.MemberID(m.rn.BasicStatus().LeadTransferee)
}

// Status says where the machine stands. After a Fatal it says where it stood.
func (m *Machine) Status() Status {
	s := Status{
		Role:    m.role,
		First:   m.tail.base.Index + 1,
		Last:    m.last,
		Durable: m.tail.last(),
		Commit:  m.commit,
		Applied: m.tail.at.Index,
		Conf:    m.tail.conf,
	}
	if m.role.State != raft.StateLeader || m.failed != nil {
		return s
	}
	s.Transferee = m.Transferee()
	m.rn.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) { // in order of id
		if id == m.id {
			return
		}
		s.Progress = append(s.Progress, Progress{
			ID:      ident.MemberID(id),
			Learner: typ == raft.ProgressTypeLearner,
			Match:   pr.Match,
			Next:    pr.Next,
			State:   pr.State,
			Active:  pr.RecentActive,
		})
	})
	return s
}
