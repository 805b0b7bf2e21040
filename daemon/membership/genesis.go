package membership

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/zeebo/blake3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Genesis is the record that a cluster is born by. The member declared first makes it once; all
// others of the first hour write down the same bytes.
type Genesis struct {
	// Topology is the digest of the topology file that all of them read.
	Topology [32]byte
	// Members are the first voters. Invariant: ids are 1, 2, 3, … in the order of the file.
	Members []Member
}

// ClusterID returns the first 16 bytes of BLAKE3 over the topology digest and, in order of their
// names, each member's name (as a text of the codec) and incarnation.
func (g Genesis) ClusterID() ident.ClusterID {
	b := slices.Clone(g.Topology[:])
	for _, m := range slices.SortedFunc(slices.Values(g.Members), func(x, y Member) int { return cmp.Compare(x.Name, y.Name) }) {
		b = appendText(b, m.Name)
		b = append(b, m.Incarnation[:]...)
	}
	sum := blake3.Sum256(b)
	return ident.ClusterID(sum[:16])
}

// Roster returns version 1 of the roster.
func (g Genesis) Roster() Roster {
	return Roster{Version: 1, NextID: uint64(len(g.Members)) + 1, Members: slices.Clone(g.Members)}
}

// ConfState returns raft's configuration at index 1: every member of the record votes.
func (g Genesis) ConfState() *pb.ConfState {
	voters := make([]uint64, len(g.Members))
	for i, m := range g.Members {
		voters[i] = uint64(m.ID)
	}
	return &pb.ConfState{Voters: voters}
}

// Named returns the first voter of this name.
func (g Genesis) Named(name string) (Member, bool) { return named(g.Members, name) }

// validate reports whether g may be written down: the rules of a roster, at least one member, ids
// from 1 without a gap, voters only.
func (g Genesis) validate() error {
	if len(g.Members) == 0 {
		return errors.New("no members")
	}
	for i, m := range g.Members {
		if m.ID != ident.MemberID(i+1) {
			return fmt.Errorf("member %d of the record has id %d", i+1, m.ID)
		}
		if m.Role != RoleVoter {
			return fmt.Errorf("member %d is a %s, want a voter", m.ID, m.Role)
		}
	}
	return validateMembers(g.Members)
}
