package membership

import (
	"cmp"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Record is what to append: one roster, the successor of the one it was built from, or the activation of
// features.
type Record struct {
	Roster Roster
	// Features are what the log makes use of from then on; the roster is none then.
	Features ident.Capabilities
	// Conf is the change of raft's configuration that the roster travels with; its context is for the
	// caller to fill. nil: no role changes.
	Conf *pb.ConfChangeV2
	// Does says in a word or two what the record is for.
	Does string
}

// Empty reports whether there is nothing to append.
func (r Record) Empty() bool { return r.Roster.Version == 0 && r.Features == 0 }

// next returns a copy of r to change, with the next version.
func (r Roster) next() Roster {
	r.Version++
	r.Members = slices.Clone(r.Members)
	r.Tombstones = slices.Clone(r.Tombstones)
	return r
}

// add gives m the next id. REQUIRES: r comes from next.
func (r *Roster) add(m Member) Member {
	m.ID = ident.MemberID(r.NextID)
	if mutantIDReused {
		m.ID = r.Members[len(r.Members)-1].ID + 1
	}
	r.NextID = max(r.NextID, uint64(m.ID)+1)
	r.Members = append(r.Members, m)
	return m
}

// set replaces the member of the same id. REQUIRES: r comes from next.
func (r *Roster) set(m Member) {
	i, ok := slices.BinarySearchFunc(r.Members, m.ID, func(x Member, id ident.MemberID) int { return cmp.Compare(x.ID, id) })
	if ok {
		r.Members[i] = m
	}
}

// bury takes a member out and leaves its tombstone. REQUIRES: r comes from next.
func (r *Roster) bury(id ident.MemberID, t Tombstone) {
	i, ok := slices.BinarySearchFunc(r.Members, id, func(x Member, id ident.MemberID) int { return cmp.Compare(x.ID, id) })
	if !ok {
		return
	}
	t.ID, t.Incarnation, t.Name = id, r.Members[i].Incarnation, r.Members[i].Name
	r.Members = slices.Delete(r.Members, i, i+1)
	at, _ := slices.BinarySearchFunc(r.Tombstones, id, func(x Tombstone, id ident.MemberID) int { return cmp.Compare(x.ID, id) })
	r.Tombstones = slices.Insert(r.Tombstones, at, t)
	r.forget()
}

// forget drops the oldest tombstones that are acked beyond keepTombstones. REQUIRES: r comes from next.
func (r *Roster) forget() {
	acked := 0
	for _, t := range r.Tombstones {
		if t.Acked {
			acked++
		}
	}
	r.Tombstones = slices.DeleteFunc(r.Tombstones, func(t Tombstone) bool {
		if !t.Acked || acked <= keepTombstones {
			return false
		}
		acked--
		return true
	})
}

// InConf reports whether conf names id anywhere: while it does, the member is not removed.
func InConf(conf *pb.ConfState, id ident.MemberID) bool {
	for _, set := range [][]uint64{conf.GetVoters(), conf.GetVotersOutgoing(), conf.GetLearners(), conf.GetLearnersNext()} {
		if slices.Contains(set, uint64(id)) {
			return true
		}
	}
	return false
}

// Joint reports whether conf is in between two sets of voters.
func Joint(conf *pb.ConfState) bool { return len(conf.GetVotersOutgoing()) > 0 }

// change is what raft is asked for. One step alone takes effect at once; several are a joint change,
// which raft leaves by itself.
func change(steps ...*pb.ConfChangeSingle) *pb.ConfChangeV2 {
	return &pb.ConfChangeV2{Changes: steps}
}

func step(typ pb.ConfChangeType, id ident.MemberID) *pb.ConfChangeSingle {
	return &pb.ConfChangeSingle{Type: typ.Enum(), NodeId: new(uint64(id))}
}

// without takes members out of the roster and of raft's configuration. A voter that goes in a joint
// change votes on until that is left, so it is only leaving; LeaveDone buries it.
//
// Its tombstone must not stand earlier: until the joint configuration is left nothing commits without a
// majority of the old voters, and a member that was told of its removal does not vote.
func (v View) without(next *Roster, also []*pb.ConfChangeSingle, ids ...ident.MemberID) *pb.ConfChangeV2 {
	steps := slices.Clone(also)
	for _, id := range ids {
		steps = append(steps, step(pb.ConfChangeRemoveNode, id))
	}
	joint := len(steps) > 1
	for _, id := range ids {
		m, _ := next.Member(id)
		if joint && slices.Contains(v.Conf.GetVoters(), uint64(id)) && !mutantTombstoneAtEnterJoint {
			m.Role = RoleLeaving
			next.set(m)
			continue
		}
		next.bury(id, Tombstone{RemovedAt: v.Now.UnixMilli()})
	}
	return change(steps...)
}
