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

	// DurableCommit is up to where this replica's disk knows the log to be committed: after any crash
	// it still does.
	DurableCommit uint64

	// Conf is the configuration in force, that of the applied index, since ConfIndex at the latest.
	// Read-only.
	Conf      *pb.ConfState
	ConfIndex uint64
	// ConfAsOf is the applied index that Conf is of: what the machine was told to be in state.
	ConfAsOf uint64
	// AppliedTerm is the term of entry ConfAsOf.
	AppliedTerm uint64

	// OwnFirst is the first entry of the term that this replica leads; 0 on a follower.
	OwnFirst uint64

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
	Active bool // its replica answered within an election timeout, in this term
}

// heardOf reports whether a member answered this leader within an election timeout. raft's own mark is
// taken back at every end of such a timeout, whoever has just answered.
func (m *Machine) heardOf(id uint64) bool {
	at, ok := m.heard[id]
	return ok && m.ticks-at <= m.patience
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

		DurableCommit: m.durableCommit,
		ConfIndex:     m.tail.confIndex,
		ConfAsOf:      m.tail.at.Index,
		AppliedTerm:   m.tail.at.Term,
	}
	if m.role.State != raft.StateLeader || m.failed != nil {
		return s
	}
	s.Transferee, s.OwnFirst = m.Transferee(), m.ownFrom
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
			Active:  m.heardOf(id),
		})
	})
	return s
}
