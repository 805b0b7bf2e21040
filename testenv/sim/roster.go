package sim

import (
	"fmt"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
)

// What holds of the membership. It is data on the log, so all of it is looked at once, where an entry is
// first applied (oracle.choose).

// checkRoster: an id is given once, and to one incarnation.
func (o *oracle) checkRoster(r *membership.Roster) error {
	check := func(id ident.MemberID, inc ident.Incarnation) error {
		switch was, known := o.incarnations[id]; {
		case known && was != inc:
			return fmt.Errorf("id %s belongs to incarnation %s in roster %d, it was that of %s", id, inc, r.Version, was)
		case !known && uint64(id) < o.nextID:
			return fmt.Errorf("id %s is new in roster %d, ids from %d on are", id, r.Version, o.nextID)
		}
		o.incarnations[id] = inc
		return nil
	}
	for _, x := range r.Members {
		if err := check(x.ID, x.Incarnation); err != nil {
			return err
		}
	}
	for _, x := range r.Tombstones {
		if err := check(x.ID, x.Incarnation); err != nil {
			return err
		}
	}
	if r.NextID < o.nextID {
		return fmt.Errorf("roster %d gives %d to the next member, it was %d before", r.Version, r.NextID, o.nextID)
	}
	o.nextID = r.NextID
	return nil
}

// checkSuccessor: no majority of one configuration is without a member of each majority of the next. A
// joint one needs majorities of both, so only what is not joint on either side counts.
func checkSuccessor(was, now *pb.ConfState) error {
	if len(now.GetVoters()) == 0 {
		return fmt.Errorf("configuration %v has no voters", now)
	}
	if len(was.GetVotersOutgoing())+len(now.GetVotersOutgoing()) > 0 {
		return nil
	}
	differ := 0
	for _, id := range was.GetVoters() {
		if !slices.Contains(now.GetVoters(), id) {
			differ++
		}
	}
	for _, id := range now.GetVoters() {
		if !slices.Contains(was.GetVoters(), id) {
			differ++
		}
	}
	if differ > 1 {
		return fmt.Errorf("configuration %v follows %v: two quorums may be disjoint", now, was)
	}
	return nil
}

// recentConfs is how far back a configuration may lie by which a write was committed that is acknowledged
// now: the leader applies it later.
const recentConfs = 50

// reaches reports whether ids are a quorum of a configuration that was in force lately, as of index.
func (o *oracle) reaches(ids []ident.MemberID, index uint64) bool {
	last := index - firstIndex
	for i := last - min(last, recentConfs); i <= last; i++ {
		if conf := o.chosen[i].conf; majority(ids, conf.GetVoters()) && majority(ids, conf.GetVotersOutgoing()) {
			return true
		}
	}
	return false
}

// majority reports whether ids hold more than half of voters; of none, any do.
func majority(ids []ident.MemberID, voters []uint64) bool {
	n := 0
	for _, v := range voters {
		if slices.Contains(ids, ident.MemberID(v)) {
			n++
		}
	}
	return len(voters) == 0 || 2*n > len(voters)
}
