package replica

import (
	"context"

	"go.etcd.io/raft/v3"

	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
)

// Compacted says that index is the entry before the first of the log now.
func (r *Replica) Compacted(index uint64) { r.inbox.put(consensus.Input{Compacted: index}) }

// ask is a question for the loop; its channel has room for the answer. It is closed without one when
// the replica ends.
type ask chan consensus.Status

// Barrier returns the leader's term and the last index of its log, for a member that acknowledged
// things in terms up to term, knows no more which, and acknowledges nothing any more: all of it that
// counts is in the log of a leader that has committed in its term, up to there. Where this replica is
// no such leader it is a *NotLeaderError, whoever leads.
func (r *Replica) Barrier(ctx context.Context, term uint64) (ident.EntryID, error) {
	led, err := r.leadsFrom(term)
	if err != nil {
		return ident.EntryID{}, err
	}
	if _, err := r.ReadIndex(ctx); err != nil { // answered once an entry of the term is committed
		return ident.EntryID{}, err
	}
	a := make(ask, 1)
	if !r.inbox.put(a) {
		return ident.EntryID{}, r.cause()
	}
	select {
	case s, ok := <-a:
		if !ok {
			return ident.EntryID{}, r.cause()
		}
		return barrier(s, led)
	case <-ctx.Done():
		return ident.EntryID{}, context.Cause(ctx)
	}
}

// leadsFrom returns the term that this replica leads, if that is term or a later one.
func (r *Replica) leadsFrom(term uint64) (uint64, error) {
	s := r.Status()
	if s.State != raft.StateLeader || s.Term < term {
		return 0, &NotLeaderError{Term: s.Term, Leader: s.Leader}
	}
	return s.Term, nil
}

// barrier is the barrier that a replica in this state can give, which led term and had committed in it
// a moment ago.
func barrier(s consensus.Status, term uint64) (ident.EntryID, error) {
	if s.State != raft.StateLeader || s.Term != term {
		return ident.EntryID{}, &NotLeaderError{Term: s.Term, Leader: s.Leader}
	}
	return ident.EntryID{Term: s.Term, Index: s.Last}, nil
}
