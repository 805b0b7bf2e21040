package membership

import (
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Duty returns the record that the leader owes now, or an empty one. It depends on the applied roster
// and on what was seen alone, so a new leader owes what the old one did.
func (v View) Duty() Record {
	for _, decide := range []func() Record{v.buryLeaving, v.noteNotices, v.noteSaid, v.promoteNext, v.expireNext, v.activateNext} {
		if r := decide(); !r.Empty() {
			return r
		}
	}
	return Record{}
}

// buryLeaving ends what a joint change began: a member that was leaving is removed once raft's
// configuration does not name it any more.
func (v View) buryLeaving() Record {
	next := v.Roster.next()
	for _, m := range v.Roster.Members {
		if m.Role == RoleLeaving && !InConf(v.Conf, m.ID) {
			next.bury(m.ID, Tombstone{RemovedAt: v.Now.UnixMilli()})
		}
	}
	if len(next.Members) == len(v.Roster.Members) {
		return Record{}
	}
	return Record{Roster: next, Does: "leave"}
}

// noteNotices writes down who was told of its removal, and who has acknowledged.
func (v View) noteNotices() Record {
	next, changed := v.Roster.next(), false
	for i, t := range next.Tombstones {
		n := v.Notices[t.ID]
		told, acked := t.Told || n.Told || n.Acked, t.Acked || n.Acked
		if told != t.Told || acked != t.Acked {
			next.Tombstones[i].Told, next.Tombstones[i].Acked = told, acked
			changed = true
		}
	}
	if !changed {
		return Record{}
	}
	next.forget()
	return Record{Roster: next, Does: "notice"}
}

// noteSaid writes down what members said of themselves: a new boot, new capabilities, new addresses.
func (v View) noteSaid() Record {
	next, changed := v.Roster.next(), false
	for i, m := range next.Members {
		said := v.Seen[m.ID].Said
		if said == nil || said.Incarnation != m.Incarnation || said.BootEpoch < m.BootEpoch {
			continue
		}
		was := m
		m.BootEpoch, m.Capabilities = said.BootEpoch, said.Capabilities
		if said.GRPCAddr != "" && said.HTTPAddr != "" {
			m.GRPCAddr, m.HTTPAddr = said.GRPCAddr, said.HTTPAddr
		}
		if m != was {
			next.Members[i] = m
			changed = true
		}
	}
	if !changed {
		return Record{}
	}
	return Record{Roster: next, Does: "said"}
}

// promoteNext promotes the learner with the lowest id that may be. The place of the leader itself is
// taken under another one: HandOverFirst.
func (v View) promoteNext() Record {
	for _, m := range v.Roster.Members {
		if m.Role != RoleLearner || v.HandOverFirst(m) {
			continue
		}
		if _, pending := v.Pending(m); !pending {
			return v.Promote(m)
		}
	}
	return Record{}
}

// HandOverFirst reports whether a learner takes the place of the leader, which must not lead then.
func (v View) HandOverFirst(learner Member) bool {
	old, swap := v.replaced(learner)
	return swap && old.ID == v.Self
}

// expireNext removes a learner that was never heard of for too long: it blocks nobody, and whoever
// announced it may announce it again.
func (v View) expireNext() Record {
	if v.Busy() != nil {
		return Record{}
	}
	for _, m := range v.Roster.Members {
		seen := v.Seen[m.ID]
		since := seen.Since
		if seen.Heard.After(since) {
			since = seen.Heard
		}
		if m.Role != RoleLearner || m.BootEpoch != 0 || seen.Active || since.IsZero() || v.Now.Sub(since) < v.Policy.LearnerTTL {
			continue
		}
		next := v.Roster.next()
		next.bury(m.ID, Tombstone{RemovedAt: v.Now.UnixMilli(), Expired: true})
		return Record{Roster: next, Conf: change(step(pb.ConfChangeRemoveNode, m.ID)), Does: "expiry"}
	}
	return Record{}
}

// activateNext lets the log make use of what every member understands by now.
func (v View) activateNext() Record {
	r, err := v.Activate(v.Eager)
	if err != nil {
		return Record{} // somebody has still to be upgraded
	}
	return r
}

// Enforced reports whether id is removed for good, as far as conf and settled say: it is no member, no set
// of conf names it, and enough voters know. Only then is it told, and are its messages dropped.
func (r Roster) Enforced(id ident.MemberID, conf *pb.ConfState, settled bool) bool {
	if !r.Removed(id) || InConf(conf, id) {
		return false
	}
	t, kept := r.Tombstone(id)
	return settled || !kept || t.Told
}
