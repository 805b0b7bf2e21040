package member

import (
	"testing"

	"go.etcd.io/raft/v3"

	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/replica"
)

// One of the others stands at once, and no two at the same time.
func TestStandIn(t *testing.T) {
	var r membership.Roster
	for id, role := range []membership.Role{membership.RoleVoter, membership.RoleVoter, membership.RoleLearner, membership.RoleVoter} {
		r.Members = append(r.Members, membership.Member{ID: ident.MemberID(id + 1), Role: role})
	}
	for _, tc := range []struct {
		self, lost ident.MemberID
		want       int
	}{{2, 1, 0}, {4, 1, 2}, {1, 2, 0}, {4, 2, 2}, {1, 4, 0}, {2, 4, 2}, {4, 3, 4}} {
		if got := standIn(r, tc.self, tc.lost, 10); got != tc.want {
			t.Errorf("%s in the place of %s stands after %d ticks, want %d", tc.self, tc.lost, got, tc.want)
		}
	}
}

func TestHeirs(t *testing.T) {
	s := replica.Status{}
	s.State = raft.StateLeader
	s.Progress = []consensus.Progress{
		{ID: 2, Match: 5, Active: true}, {ID: 3, Match: 9, Active: true}, {ID: 4, Match: 99, Active: true, Learner: true}, {ID: 5, Match: 10},
	}
	if got := heirs(s); len(got) != 2 || got[0] != 3 || got[1] != 2 {
		t.Errorf("heirs = %v, want the active voters, the longest log first", got)
	}
	s.State = raft.StateFollower
	if got := heirs(s); got != nil {
		t.Errorf("heirs of a follower = %v", got)
	}
}
