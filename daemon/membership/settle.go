package membership

import (
	"fmt"
	"strings"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Settling is a change of raft's configuration that not enough voters are known to have applied.
type Settling struct {
	Index   uint64           // of the change; of the one that entered it, while the configuration is joint
	Joint   bool             // raft has still to leave it
	Quorum  Quorum           // of the new voters: up are those that reported it applied and its commit durable
	Missing []ident.MemberID // the new voters that did not
}

// Settling says what the newest change of the configuration waits for; ok is false when it waits for
// nothing.
//
// Until a majority of the new voters has the change in state, and its commit on disk, the old voters
// may be needed again: whoever of them was told that it is removed could be missed. So nobody is told,
// no verb is answered and no other change begins before.
func (v View) Settling() (s Settling, ok bool) {
	reported := func(id ident.MemberID) bool {
		p := v.Seen[id]
		return p.Applied >= v.ConfIndex && p.Committed >= v.ConfIndex
	}
	if mutantAnswerBeforeSettled {
		return Settling{}, false
	}
	s = Settling{Index: v.ConfIndex, Joint: Joint(v.Conf), Quorum: countQuorum(votersOf(v.Conf), reported)}
	if !s.Joint && s.Quorum.Reached() {
		return Settling{}, false
	}
	for _, id := range v.Conf.GetVoters() {
		if !reported(ident.MemberID(id)) {
			s.Missing = append(s.Missing, ident.MemberID(id))
		}
	}
	return s, true
}

// ChangeInProgressError refuses a change of the membership: another one is under way.
type ChangeInProgressError struct {
	Settling Settling
	Waits    string // what the other one waits for, for people
}

func (e *ChangeInProgressError) Error() string {
	return "a membership change is in progress: it " + e.Waits
}

// Busy returns nil when the next change may begin, else a *ChangeInProgressError.
func (v View) Busy() error {
	s, settling := v.Settling()
	if !settling {
		return nil
	}
	return &ChangeInProgressError{Settling: s, Waits: s.waits(v.name)}
}

func (s Settling) waits(name func(ident.MemberID) string) string {
	if s.Joint {
		return fmt.Sprintf("waits for raft to leave the joint configuration of index %d", s.Index)
	}
	names := make([]string, len(s.Missing))
	for i, id := range s.Missing {
		names[i] = name(id)
	}
	return fmt.Sprintf("waits until %d of %d voters have applied index %d: %d have, %s not yet",
		s.Quorum.Needed, s.Quorum.Voters, s.Index, s.Quorum.Up, strings.Join(names, ", "))
}
