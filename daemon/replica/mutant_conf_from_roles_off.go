//go:build !mutant_conf_from_roles

package replica

import pb "go.etcd.io/raft/v3/raftpb"

const mutantConfFromRoles = false // a known bug, for testenv/mutants

func confFromRoles(s Store) *pb.ConfState { return s.Position().Conf }
