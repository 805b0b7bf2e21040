package membership

import (
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Majority returns how many of n voters decide: more than half of them, at least one.
func Majority(n int) int { return n/2 + 1 }

// Quorum counts a set of voters.
type Quorum struct {
	Voters int
	Up     int // voters that count now
	Needed int // Majority(Voters)
	Spare  int // how many more may be lost before nothing commits; never negative
}

// Reached reports whether the voters that are up decide.
func (q Quorum) Reached() bool { return q.Up >= q.Needed }

// QuorumOf counts the voters of conf. It is the one place where this arithmetic is done: safety
// checks and displays both ask it. In a joint configuration both sets must decide; the answer is
// about the one that is closer to losing its majority.
func QuorumOf(conf *pb.ConfState, up func(ident.MemberID) bool) Quorum {
	q := countQuorum(votersOf(conf), up)
	if old := conf.GetVotersOutgoing(); len(old) > 0 {
		if o := countQuorum(old, up); o.Up-o.Needed < q.Up-q.Needed {
			return o
		}
	}
	return q
}

// votersOf returns those that decide; in a joint configuration, those that will.
func votersOf(conf *pb.ConfState) []uint64 {
	if mutantLearnerCounted {
		return append(conf.GetVoters(), conf.GetLearners()...)
	}
	return conf.GetVoters()
}

func countQuorum(voters []uint64, up func(ident.MemberID) bool) Quorum {
	q := Quorum{Voters: len(voters), Needed: Majority(len(voters))}
	for _, id := range voters {
		if up(ident.MemberID(id)) {
			q.Up++
		}
	}
	q.Spare = max(q.Up-q.Needed, 0)
	return q
}
