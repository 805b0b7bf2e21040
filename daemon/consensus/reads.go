package consensus

import (
	"encoding/binary"

	pb "go.etcd.io/raft/v3/raftpb"
)

// reads are the linearizable reads without an index. All that wait when a round begins share its
// one request; those that come later wait for the next round, because an index that was confirmed
// for an earlier request may miss a write that was acknowledged since.
//
// A read is kept until it is answered. Without a leader, and on a leader that has not
// committed an entry of its own term, the round waits; raft would drop its request, queue it
// without a bound, or (a leader that is the only voter) answer it with a commit index from before a
// restart. A round is asked again, with a fresh id, when the role changes and when the answer is
// late. Every try began after every read of the round, so the answer to any of them will do.
type reads struct {
	nonce uint64

	round []Token // asked with the ids [first, last]
	first uint64
	last  uint64 // Invariant: never falls
	due   bool   // ask as soon as somebody can be asked
	age   int    // ticks since the last try

	waiting []Token // for the next round
}

// begin starts a round if none is under way. It reports whether the round wants to be asked.
func (r *reads) begin() bool {
	if len(r.round) == 0 {
		if len(r.waiting) == 0 {
			return false
		}
		r.round, r.waiting = r.waiting, r.round[:0]
		r.first, r.due = r.last+1, true
	}
	return r.due
}

// request returns a context that no earlier try had.
func (r *reads) request() []byte {
	r.last++
	r.due, r.age = false, 0
	b := make([]byte, 0, requestLen)
	b = binary.LittleEndian.AppendUint64(b, r.nonce)
	return binary.LittleEndian.AppendUint64(b, r.last)
}

const requestLen = 16

// answered ends the round if ctx is one of its tries.
func (r *reads) answered(ctx []byte, index uint64, answer func(Answer)) {
	if len(ctx) != requestLen || binary.LittleEndian.Uint64(ctx) != r.nonce {
		return
	}
	if id := binary.LittleEndian.Uint64(ctx[8:]); id < r.first || id > r.last {
		return
	}
	for _, t := range r.round {
		a := Answer{Token: t}
		a.ID.Index = index
		answer(a)
	}
	r.round = r.round[:0]
}

// tick asks again when the answer is late.
func (r *reads) tick(patience int) {
	if r.age++; r.age >= patience {
		r.due = true
	}
}

// asks are the read requests of other members that came before this leader committed an entry of
// its own term: the newest of each member.
type asks []*pb.Message

func (a *asks) hold(m *pb.Message) {
	for i, old := range *a {
		if old.GetFrom() == m.GetFrom() {
			(*a)[i] = m
			return
		}
	}
	*a = append(*a, m)
}
