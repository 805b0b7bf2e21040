package sim

import (
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// conditions are what every link suffers.
type conditions struct {
	drop, double float64       // chance of a message
	delayMax     time.Duration // delays are drawn for each message, so messages overtake each other
}

type link struct{ from, to uint64 }

// network carries messages as bytes.
type network struct {
	c *cluster
	conditions
	cut map[link]bool
}

func (n *network) send(msg *pb.Message) {
	c, l := n.c, link{msg.GetFrom(), msg.GetTo()}
	if l.to == 0 || l.to > uint64(len(c.members)) {
		c.violated("message %s to member %d", msg.GetType(), l.to)
		return
	}
	b, err := proto.Marshal(msg)
	if err != nil {
		c.violated("marshal %s: %v", msg.GetType(), err)
		return
	}
	c.note(l.from, "send", l.to, uint64(msg.GetType()), foldBytes(fnvOffset, b))
	copies := 1
	switch {
	case n.cut[l] || c.chance(n.drop):
		copies = 0
		c.seen["message dropped"]++
	case c.chance(n.double):
		copies = 2
		c.seen["message doubled"]++
	}
	for range copies {
		c.after(50*time.Microsecond+c.upTo(n.delayMax), func() { n.deliver(l, b) })
	}
}

// deliver drops what crosses a link that was cut meanwhile.
func (n *network) deliver(l link, b []byte) {
	m := n.c.members[l.to-1]
	if n.cut[l] || !m.up() {
		return
	}
	m.receive(b)
}

// split cuts every link between one side and the other; oneWay leaves the way to the first side open.
func (n *network) split(side map[uint64]bool, oneWay bool) {
	n.cut = map[link]bool{}
	for from := uint64(1); from <= uint64(len(n.c.members)); from++ {
		for to := uint64(1); to <= uint64(len(n.c.members)); to++ {
			if side[from] != side[to] && (!oneWay || side[from]) {
				n.cut[link{from, to}] = true
			}
		}
	}
}

func (n *network) heal() {
	n.cut = nil
	n.conditions = conditions{delayMax: n.c.plan.network.delayMax}
}
