package sim

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
)

// outcome is what a client knows of its operation.
type outcome uint8

const (
	waiting  outcome = iota
	acked            // it happened
	ackedOne         // durable on the leader: it may be lost with it
	failed           // it certainly did not and will not happen
	unknown          // it may have happened, and may happen yet
)

// op is one operation of a client; its number is its token and, of a write, its payload.
type op struct {
	n       uint64
	read    bool
	ack     consensus.Ack
	member  *member
	life    uint64 // of the member
	outcome outcome

	// id is the entry of an acknowledged write.
	id ident.EntryID

	// floor of a read is the newest index that was acknowledged to anybody before the read began.
	floor uint64
}

// clients issue operations and remember every outcome.
type clients struct {
	c      *cluster
	last   uint64
	ops    map[uint64]*op
	newest uint64 // highest index acknowledged to anybody
	open   int
}

// run issues operations for as long as there are faults.
func (cl *clients) run() {
	c := cl.c
	if c.healed {
		return
	}
	c.after(c.around(c.plan.opEvery), cl.run)
	m := c.leader()
	if m == nil || c.chance(0.3) {
		m = c.members[c.rng.IntN(len(c.members))]
	}
	switch {
	case !m.up():
	case c.chance(0.3):
		cl.read(m)
	case c.chance(0.1):
		cl.write(m, consensus.AckLeader)
	default:
		cl.write(m, consensus.AckQuorum)
	}
}

func (cl *clients) waiting() int { return cl.open }

func (cl *clients) begin(m *member) *op {
	cl.last++
	cl.open++
	o := &op{n: cl.last, member: m, life: m.life, floor: cl.newest}
	cl.ops[o.n] = o
	cl.c.after(100*time.Millisecond+cl.c.upTo(500*time.Millisecond), func() { cl.deadline(o) })
	return o
}

func (cl *clients) write(m *member, ack consensus.Ack) *op {
	o := cl.begin(m)
	o.ack = ack
	size := cl.c.rng.IntN(200)
	if cl.c.chance(0.02) {
		size = cl.c.rng.IntN(8 << 10)
	}
	data := make([]byte, 8+size)
	binary.LittleEndian.PutUint64(data, o.n)
	cl.c.note(m.id, "write", o.n, uint64(ack))
	m.step(consensus.Input{Propose: &consensus.Proposal{Token: consensus.Token(o.n), Data: data, Ack: ack}})
	return o
}

func (cl *clients) read(m *member) *op {
	o := cl.begin(m)
	o.read = true
	cl.c.note(m.id, "read", o.n, o.floor)
	m.step(consensus.Input{Read: consensus.Token(o.n)})
	return o
}

// deadline: the client gives up. Only now is the outcome unknown.
func (cl *clients) deadline(o *op) {
	if o.outcome != waiting {
		return
	}
	cl.end(o, unknown)
	cl.c.note(o.member.id, "deadline", o.n)
	o.member.step(consensus.Input{Cancel: consensus.Token(o.n)})
}

func (cl *clients) end(o *op, with outcome) {
	o.outcome = with
	cl.open--
}

// crashed: whoever waited at m does not know.
func (cl *clients) crashed(m *member) {
	for n := uint64(1); n <= cl.last; n++ {
		if o := cl.ops[n]; o.outcome == waiting && o.member == m {
			cl.end(o, unknown)
		}
	}
}

// answered checks an answer against everything that is known.
func (cl *clients) answered(m *member, a consensus.Answer) {
	c := cl.c
	o := cl.ops[uint64(a.Token)]
	switch {
	case o == nil || o.member != m || o.life != m.life:
		c.violated("member %d answers operation %d, which nobody asked of it", m.id, a.Token)
		return
	case o.outcome != waiting:
		c.violated("member %d answers operation %d, which has ended with %d", m.id, a.Token, o.outcome)
		return
	}
	c.note(m.id, "answer", o.n, a.ID.Index, a.ID.Term)
	switch {
	case o.read:
		cl.end(o, acked)
		c.seen["read"]++
		if a.Err != nil || a.ID.Index < o.floor {
			c.violated("read %d is served at %d (%v), %d was acknowledged before it", o.n, a.ID.Index, a.Err, o.floor)
		}
	case a.Err != nil:
		cl.end(o, failed)
		cl.failed(o, a.Err)
	case o.ack == consensus.AckLeader:
		cl.end(o, ackedOne)
		c.seen["write acknowledged by the leader"]++
		if !m.log.durable.has(a.ID) {
			c.violated("write %d is acknowledged at %s, not durable on the leader %d", o.n, a.ID, m.id)
		}
	default:
		cl.end(o, acked)
		o.id = a.ID
		cl.acked(m, o, a)
	}
}

func (cl *clients) failed(o *op, err error) {
	c := cl.c
	switch {
	case errors.Is(err, consensus.ErrNotLeader):
		c.seen["not leader"]++
	case errors.Is(err, consensus.ErrDropped):
		c.seen["dropped"]++
	case errors.Is(err, consensus.ErrLost):
		c.seen["lost"]++
	default:
		c.violated("write %d ended with %v", o.n, err)
	}
	if at, ok := c.oracle.places[o.n]; ok {
		c.violated("write %d failed (%v) and is applied at %s", o.n, err, at)
	}
}

// acked: what is acknowledged is in state here, where it was said to be, and on the members named.
func (cl *clients) acked(m *member, o *op, a consensus.Answer) {
	c := cl.c
	c.seen["write acknowledged"]++
	cl.newest = max(cl.newest, a.ID.Index)
	if at := c.oracle.places[o.n]; at != a.ID || m.state.live.applied.Index < a.ID.Index {
		c.violated("write %d is acknowledged at %s, it is applied at %s", o.n, a.ID, at)
	}
	for _, id := range a.Replicated {
		if !c.members[id-1].log.durable.has(a.ID) {
			c.violated("write %d at %s is not durable on member %d", o.n, a.ID, id)
		}
	}
	if 2*(len(a.Replicated)+1) <= len(c.members) && a.Replicated != nil {
		c.violated("write %d at %s is acknowledged with %v, no majority", o.n, a.ID, a.Replicated)
	}
}
