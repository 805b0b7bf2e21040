package consensus

import (
	"fmt"
	"slices"
	"sort"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
)

// waiter is one write that waits for its outcome.
type waiter struct {
	token Token // 0: answered
	id    ident.EntryID
	ack   Ack
}

// waiters are the writes without an outcome, ordered by index. More than one may wait at an index:
// a leader that was deposed, had its log cut short and leads again reuses the places.
//
// They stay through every change of leadership: only the entry that is committed at its index, or
// the caller's deadline, settles a write.
//
// Invariant: every index is above the applied one.
type waiters []waiter

// add puts w behind the others of its index, in nearly all cases at the end.
func (ws *waiters) add(w waiter) {
	i := len(*ws)
	for i > 0 && (*ws)[i-1].id.Index > w.id.Index {
		i--
	}
	*ws = slices.Insert(*ws, i, w)
}

// durable answers the waiters for AckLeader among entries that are now in the leader's log.
func (ws waiters) durable(ents []*pb.Entry, answer func(Answer)) {
	if len(ws) == 0 || len(ents) == 0 {
		return
	}
	first := ents[0].GetIndex()
	i := sort.Search(len(ws), func(i int) bool { return ws[i].id.Index >= first })
	for ; i < len(ws) && ws[i].id.Index-first < uint64(len(ents)); i++ {
		w := &ws[i]
		if w.token != 0 && w.ack == AckLeader && w.id == entryID(ents[w.id.Index-first]) {
			answer(Answer{Token: w.token, ID: w.id})
			w.token = 0
		}
	}
}

// applied answers everybody who waits for one of ents: same term, the write is in; another term, it
// never will be. replicated is called at most once.
func (ws *waiters) applied(ents []*pb.Entry, replicated func() []ident.MemberID, answer func(Answer)) error {
	first, n := ents[0].GetIndex(), 0
	var others []ident.MemberID
	known := false
	for _, w := range *ws {
		if w.id.Index < first {
			return fmt.Errorf("write %s still waits when %d is applied", w.id, first)
		}
		if w.id.Index-first >= uint64(len(ents)) {
			break
		}
		n++
		switch {
		case w.token == 0:
		case w.id != entryID(ents[w.id.Index-first]) && !mutantSettleByIndex:
			answer(Answer{Token: w.token, ID: w.id, Err: ErrLost})
		default:
			if !known {
				others, known = replicated(), true
			}
			answer(Answer{Token: w.token, ID: w.id, Replicated: others})
		}
	}
	*ws = (*ws)[n:]
	return nil
}
