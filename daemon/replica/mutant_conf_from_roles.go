//go:build mutant_conf_from_roles

package replica

import (
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/membership"
)

// mutantConfFromRoles: a replica opens with the configuration that the roles of the roster suggest.
const mutantConfFromRoles = true

func confFromRoles(s Store) *pb.ConfState {
	view := s.NewView()
	if view == nil {
		return s.Position().Conf
	}
	defer view.Close()
	roster, err := apply.Roster(view)
	if err != nil || roster.Version == 0 {
		return s.Position().Conf
	}
	var conf pb.ConfState
	for _, m := range roster.Members {
		switch m.Role {
		case membership.RoleVoter:
			conf.Voters = append(conf.Voters, uint64(m.ID))
		case membership.RoleLearner:
			conf.Learners = append(conf.Learners, uint64(m.ID))
		}
	}
	return &conf
}
