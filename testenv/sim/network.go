package sim

import (
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/peer"
)

// conditions are what every link suffers.
type conditions struct {
	drop, double float64       // chance of a message
	delayMax     time.Duration // delays are drawn for each message, so messages overtake each other
	stray        float64       // chance of a message to be late by minutes
}

// maxStray is how late a stray message is, at most.
const maxStray = 3 * time.Minute

type link struct{ from, to uint64 }

// network carries messages as bytes.
type network struct {
	c *cluster
	conditions
	cuts map[link]int // how many faults cut the link
}

func newNetwork(c *cluster) network {
	return network{c: c, conditions: c.plan.network, cuts: map[link]int{}}
}

// open reports whether messages pass from one member to another.
func (n *network) open(from, to uint64) bool { return n.cuts[link{from, to}] == 0 }

// sender is a process that sends, at the time when it does.
type sender struct {
	m    *member
	life uint64
	as   ident.MemberID
}

func (n *network) send(from *member, msg *pb.Message) {
	c, id := n.c, ident.MemberID(msg.GetTo())
	if id == from.as || ident.MemberID(msg.GetFrom()) != from.as {
		c.violated("member %d sends %s from %d to %d", from.id, msg.GetType(), msg.GetFrom(), msg.GetTo())
		return
	}
	to := c.listens(from.peers[id])
	if to == nil {
		return // nobody is dialled for it
	}
	b, err := proto.Marshal(msg)
	if err != nil {
		c.violated("marshal %s: %v", msg.GetType(), err)
		return
	}
	c.note(from.id, "send", to.id, uint64(msg.GetType()), foldBytes(fnvOffset, b))
	copies := 1
	switch {
	case !n.open(from.id, to.id) || c.chance(n.drop):
		c.sometimes("message dropped")
		return
	case c.chance(n.double):
		copies = 2
		c.sometimes("message doubled")
	}
	as := sender{from, from.life, from.as}
	for range copies {
		delay := c.plan.tick/200 + c.upTo(n.delayMax)
		if c.chance(n.stray) {
			delay = c.upTo(maxStray)
			c.sometimes("message late by minutes")
		}
		c.after(delay, func() { n.deliver(as, to, b) })
	}
}

// listens returns the machine that a peer is dialled at.
func (c *cluster) listens(p peer.Peer) *member {
	for _, m := range c.members {
		if m.addr == p.Addr || p.Also != "" && m.addr == p.Also {
			return m
		}
	}
	return nil
}

// deliver drops what crosses a link that was cut meanwhile. A paused process receives when it goes on.
func (n *network) deliver(from sender, to *member, b []byte) {
	switch {
	case !n.open(from.m.id, to.id) || !to.serving():
	case n.c.now < to.pausedUntil:
		to.after(0, func() { to.receive(from, b) })
	default:
		to.receive(from, b)
	}
}

// cut closes links for a while. Cuts of several faults add up.
func (n *network) cut(links []link, span time.Duration) {
	for _, l := range links {
		n.cuts[l]++
	}
	n.c.after(span, func() {
		if n.c.healed {
			return
		}
		for _, l := range links {
			n.cuts[l]--
		}
	})
}

func (n *network) heal() {
	clear(n.cuts)
	n.conditions = n.c.plan.network
	n.stray = 0
}
