package member

import (
	"context"
	"testing"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/peer"
)

// barriers answers as the leader of one term after the other.
type barriers struct {
	silence
	terms []uint64
}

func (b *barriers) Barrier(context.Context, string, peer.BarrierRequest) (peer.BarrierReply, error) {
	term := b.terms[0]
	b.terms = b.terms[1:]
	return peer.BarrierReply{Term: term, Index: 1000 / term}, nil
}

// A barrier holds for as long as its leader leads, and the replica is closed: the log of the next leader may
// end before it, and would never come there.
func TestRaiseBarrier_AsksTheNextLeader(t *testing.T) {
	t.Parallel()
	l := newLone(t)
	k := l.current(0).keeper
	net := &barriers{terms: []uint64{5, 8}}
	l.net = net
	for _, step := range []struct{ led, want uint64 }{{5, 5}, {5, 5}, {4, 5}, {8, 8}, {8, 8}} {
		if err := k.raiseBarrier(t.Context(), source{m: l.Member, member: 2, addr: "b:1", term: step.led}); err != nil {
			t.Fatal(err)
		}
		if want := (ident.EntryID{Term: step.want, Index: 1000 / step.want}); *k.barrier != want {
			t.Errorf("led in term %d the barrier is %s, want %s", step.led, k.barrier, want)
		}
	}
}
