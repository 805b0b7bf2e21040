package sim

import (
	"encoding/binary"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
)

// oracle knows what the cluster has committed itself to.
type oracle struct {
	c       *cluster
	leaders map[uint64]uint64        // by term
	entries map[ident.EntryID]uint64 // hash of everything that was ever written to a log

	// chosen are the applied entries; chosen[i] is at index genesis.Index+1+i.
	chosen []choice

	// places says where a write was applied.
	places map[uint64]ident.EntryID
}

type choice struct {
	id     ident.EntryID
	digest uint64 // of the state that has applied it
	op     uint64 // 0: raft's own entry
}

func newOracle(c *cluster) oracle {
	return oracle{
		c:       c,
		leaders: map[uint64]uint64{},
		entries: map[ident.EntryID]uint64{},
		places:  map[uint64]ident.EntryID{},
	}
}

// leads: at most one leader a term.
func (o *oracle) leads(member, term uint64) {
	if other, ok := o.leaders[term]; ok && other != member {
		o.c.violated("members %d and %d lead term %d", other, member, term)
	}
	o.leaders[term] = member
	o.c.seen["leader elected"]++
}

// appended: an (index, term) names one entry.
func (o *oracle) appended(m *member, ents []*pb.Entry) {
	for _, e := range ents {
		id := ident.EntryID{Term: e.GetTerm(), Index: e.GetIndex()}
		h := foldBytes(fold(fnvOffset, uint64(e.GetType())), e.GetData())
		if other, ok := o.entries[id]; ok && other != h {
			o.c.violated("member %d writes another entry %s", m.id, id)
		}
		o.entries[id] = h
	}
}

// applied: every member applies the same entry at an index and gets the same state.
func (o *oracle) applied(m *member, e *pb.Entry) {
	got := choice{id: m.state.live.applied, digest: m.state.live.digest, op: opOf(e.GetData())}
	switch i := e.GetIndex() - genesis.Index - 1; {
	case i > uint64(len(o.chosen)):
		o.c.violated("member %d applies %s, nobody has applied %d", m.id, got.id, e.GetIndex()-1)
	case i < uint64(len(o.chosen)):
		if want := o.chosen[i]; got != want {
			o.c.violated("member %d applies %+v, another applied %+v", m.id, got, want)
		}
	default:
		o.chosen = append(o.chosen, got)
		if got.op == 0 {
			return
		}
		if at, ok := o.places[got.op]; ok {
			o.c.violated("write %d is applied at %s and at %s", got.op, at, got.id)
		}
		o.places[got.op] = got.id
		if o.c.clients.ops[got.op].outcome == failed {
			o.c.violated("write %d is applied at %s, its client was told that nothing happened", got.op, got.id)
		}
	}
}

// opOf reads the number of the write from a payload.
func opOf(data []byte) uint64 {
	if len(data) < 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(data)
}

// audit goes through the ledger when all is over.
func (o *oracle) audit() {
	for id := uint64(1); id <= o.c.clients.last; id++ {
		op := o.c.clients.ops[id]
		if op.read {
			continue
		}
		at, applied := o.places[id]
		switch {
		case op.outcome == acked && at != op.id:
			o.c.violated("write %d was acknowledged at %s and is applied at %s", id, op.id, at)
		case op.outcome == failed && applied:
			o.c.violated("write %d failed and is applied at %s", id, at)
		case op.outcome == waiting:
			o.c.violated("write %d has no outcome", id)
		case op.outcome == ackedOne && !applied:
			o.c.seen["write acknowledged by the leader was lost"]++
		case op.outcome == unknown && applied:
			o.c.seen["unknown write is in"]++
		case op.outcome == unknown:
			o.c.seen["unknown write is not in"]++
		}
	}
}
