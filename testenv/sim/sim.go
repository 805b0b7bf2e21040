package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/tidaldb/tidal/daemon/consensus"
)

const (
	tick          = 10 * time.Millisecond
	electionTicks = 10

	// faultTime is the length of the first phase.
	faultTime = 4 * time.Second

	// electLimit is how long the healed cluster may be without a leader that everybody follows: five
	// election timeouts, which raft draws from [electionTicks, 2*electionTicks) ticks. agreeLimit is
	// how long it then may take until all members are equal.
	electLimit = 5 * 2 * electionTicks * tick
	agreeLimit = 2 * time.Second
)

// Result is what a run came to.
type Result struct {
	Seed      uint64
	Hash      uint64         // of everything that happened, in order
	Simulated time.Duration  // virtual time that passed
	Seen      map[string]int // how often something worth reaching was reached

	// Err is nil, or the first violation with the newest events before it.
	Err error
}

// plan is what a seed draws before it starts.
type plan struct {
	members  int
	limits   consensus.Limits
	network  conditions
	syncMax  time.Duration // latency of a sync, at most
	applyMax time.Duration
	opEvery  time.Duration // mean distance of clients' operations
	faults   time.Duration // mean distance of faults
}

func drawPlan(rng *rand.Rand) plan {
	sizes := []int{1, 2, 2, 3, 3, 3, 4, 4, 5, 5}
	return plan{
		members: sizes[rng.IntN(len(sizes))],
		limits: consensus.Limits{
			TailBytes:        1 << (10 + rng.IntN(8)),
			MessageBytes:     1 << (9 + rng.IntN(8)),
			InflightMessages: 1 + rng.IntN(32),
			UncommittedBytes: 1 << (11 + rng.IntN(8)),
			ApplyBytes:       1 << (9 + rng.IntN(8)),
		},
		network: conditions{
			drop:     float64(rng.IntN(4)) / 100,
			double:   float64(rng.IntN(4)) / 100,
			delayMax: time.Duration(1+rng.IntN(5)) * time.Millisecond,
		},
		syncMax:  time.Duration(1+rng.IntN(8)) * time.Millisecond,
		applyMax: time.Duration(1+rng.IntN(3)) * time.Millisecond,
		opEvery:  time.Duration(2+rng.IntN(8)) * time.Millisecond,
		faults:   time.Duration(60+rng.IntN(300)) * time.Millisecond,
	}
}

// cluster is one run.
type cluster struct {
	plan    plan
	rng     *rand.Rand
	now     time.Duration
	planned uint64
	agenda  agenda
	trace   trace
	seen    map[string]int
	err     error

	members []*member // member i has id i+1
	net     network
	clients clients
	oracle  oracle
	healed  bool
	done    bool
}

// Run plays the whole of one seed.
func Run(seed uint64) Result {
	c := newCluster(seed)
	for c.err == nil && !c.done {
		e := heap.Pop(&c.agenda).(event)
		c.now = e.at
		e.do()
	}
	for _, m := range c.members {
		c.seen["entry read below the ring"] += m.log.reads
	}
	r := Result{Seed: seed, Hash: c.trace.hash, Simulated: c.now, Seen: c.seen}
	if c.err != nil {
		r.Err = fmt.Errorf("seed %d, %d members, at %s: %w\nnewest events:\n%s",
			seed, c.plan.members, c.now, c.err, c.trace.String())
	}
	return r
}

func newCluster(seed uint64) *cluster {
	rng := rand.New(rand.NewPCG(seed, 0))
	c := &cluster{plan: drawPlan(rng), rng: rng, seen: map[string]int{}}
	c.oracle = newOracle(c)
	c.net = network{c: c, conditions: c.plan.network}
	c.clients = clients{c: c, ops: map[uint64]*op{}}
	for i := range c.plan.members {
		c.members = append(c.members, newMember(c, uint64(i+1)))
	}
	for _, m := range c.members {
		m.start()
	}
	c.clients.run()
	c.after(c.around(c.plan.faults), c.fault)
	c.after(faultTime, c.heal)
	return c
}

// after plans do.
func (c *cluster) after(d time.Duration, do func()) {
	c.planned++
	heap.Push(&c.agenda, event{at: c.now + d, seq: c.planned, do: do})
}

// upTo draws a duration in [0, d), around one in [d/2, 3d/2).
func (c *cluster) upTo(d time.Duration) time.Duration   { return time.Duration(c.rng.Int64N(int64(d))) }
func (c *cluster) around(d time.Duration) time.Duration { return d/2 + c.upTo(d) }

func (c *cluster) chance(p float64) bool { return c.rng.Float64() < p }

// note writes a line of the trace.
func (c *cluster) note(member uint64, what string, n ...uint64) {
	l := line{at: c.now, member: member, what: what}
	copy(l.n[:], n)
	c.trace.add(l)
}

// violated ends the run. The first violation counts.
func (c *cluster) violated(format string, v ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, v...)
	}
}

// leader returns the live leader of the newest term, or nil.
func (c *cluster) leader() *member {
	var leader *member
	for _, m := range c.members {
		if m.up() && m.role.State == raft.StateLeader && (leader == nil || m.role.Term > leader.role.Term) {
			leader = m
		}
	}
	return leader
}

// heal ends the faults and begins the second phase.
func (c *cluster) heal() {
	c.note(0, "heal")
	c.healed = true
	c.net.heal()
	for _, m := range c.members {
		m.slow = false
		if !m.up() {
			m.start()
		}
	}
	c.awaitLeader(c.now + electLimit)
}

// awaitLeader: after the faults there is a leader in time, and everybody follows it.
func (c *cluster) awaitLeader(until time.Duration) {
	leader := c.leader()
	for _, m := range c.members {
		if leader == nil || m.role.Term != leader.role.Term || uint64(m.role.Leader) != leader.id {
			if c.now >= until {
				c.violated("no leader %s after the faults ended", electLimit)
			}
			c.after(tick/2, func() { c.awaitLeader(until) })
			return
		}
	}
	c.note(leader.id, "settled", leader.role.Term)
	var reads []*op
	for _, m := range c.members {
		reads = append(reads, c.clients.read(m))
	}
	c.awaitAgreement(c.now+agreeLimit, c.clients.write(leader, consensus.AckQuorum), reads)
}

// awaitAgreement: a write through the new leader is acknowledged, every member serves a linearizable
// read, and all members become equal.
func (c *cluster) awaitAgreement(until time.Duration, last *op, reads []*op) {
	for _, r := range reads {
		if r.outcome == unknown {
			c.violated("read %d at member %d is not answered, though nothing is wrong", r.n, r.member.id)
			return
		}
	}
	equal := last.outcome == acked
	for _, m := range c.members {
		equal = equal && m.state.live.digest == c.members[0].state.live.digest &&
			m.state.live.applied == c.members[0].state.live.applied && m.state.live.applied.Index >= last.id.Index
	}
	switch {
	case equal && c.clients.waiting() == 0:
		c.done = true
		c.oracle.audit()
	case c.now < until:
		// The leader may have been busy (uncommitted bytes at their bound) or replaced: try again.
		if leader := c.leader(); leader != nil && (last.outcome == failed || last.outcome == unknown) {
			last = c.clients.write(leader, consensus.AckQuorum)
		}
		c.after(tick/2, func() { c.awaitAgreement(until, last, reads) })
	default:
		c.violated("members differ %s after the faults ended", agreeLimit)
	}
}
