package sim

import (
	"container/heap"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
	daemon "github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/replica"
)

const (
	electionTicks = 10

	// electLimit is how many election timeouts the healed cluster may be without a leader that everybody
	// follows. raft draws a timeout from [electionTicks, 2*electionTicks) ticks, so this is five of the
	// longest. agreeLimit is how many it then may take until all members are equal.
	electLimit = 5 * 2
	agreeLimit = 20
	// joinLimit is how many more for each machine that joins, or may be joining.
	joinLimit = 20
)

// Result is what a run came to.
type Result struct {
	Seed      uint64
	Members   int
	Hash      uint64         // of everything that happened, in order
	Events    uint64         // in that hash
	Simulated time.Duration  // virtual time that passed
	Seen      map[string]int // how often something worth reaching was reached
	Faults    map[string]int // by kind
	FaultList []string       // as they happened, with their numbers

	// Err is nil, or the first violation with the newest events before it.
	Err error
}

// Options varies a run. The zero Options is what CI plays.
type Options struct {
	// Skip leaves out the faults with these numbers, which are drawn as ever: for shrinking.
	Skip map[int]bool
	// Each is called after every event with the hash of what happened so far, in the calls of every file
	// system too; nil: nobody is.
	Each func(hash uint64)
	// Trace gets every line of what happens; nil: only the newest lines are kept, for a failure.
	Trace io.Writer
}

// plan is what a seed draws before it starts.
type plan struct {
	members      int
	tick         time.Duration
	heartbeat    int // ticks
	limits       replica.Limits
	retention    daemon.Retention
	segment      int64 // bytes
	firstSegment int64
	network      conditions
	syncMax      time.Duration // latency of a sync, at most
	applyMax     time.Duration
	flushEvery   time.Duration
	opEvery      time.Duration // mean distance of one session's operations
	faultEvery   time.Duration // mean distance of faults
	phase        time.Duration // of faults
	items        int
	sessions     int
	streams      int
	spares       int    // machines that no file declares, which may join
	promoteLag   uint64 // entries
	mustHalt     bool   // so much is damaged for good that what is left must be silent, or right
	kinds        []kind // of faults, one entry a unit of weight
}

// election is the shortest time in which a leader is missed.
func (p *plan) election() time.Duration { return electionTicks * p.tick }

func drawPlan(rng *rand.Rand) plan {
	sizes := []int{1, 2, 2, 3, 3, 3, 3, 4, 4, 5, 5, 6, 7}
	p := plan{members: sizes[rng.IntN(len(sizes))]}
	p.tick = []time.Duration{50, 100, 100, 200}[rng.IntN(4)] * time.Millisecond
	p.heartbeat = 1 + rng.IntN(2)
	e := p.election()
	p.limits = replica.Limits{
		QueueBytes:      1 << (11 + rng.IntN(10)),
		EntryBytes:      1 << (12 + rng.IntN(8)),
		InflightBatches: 1 + rng.IntN(4),
		Consensus: consensus.Limits{
			TailBytes:        1 << (10 + rng.IntN(8)),
			MessageBytes:     1 << (9 + rng.IntN(8)),
			InflightMessages: 1 + rng.IntN(32),
			UncommittedBytes: 1 << (13 + rng.IntN(8)),
			ApplyBytes:       1 << (9 + rng.IntN(8)),
		},
	}
	log := int64(1) << (10 + rng.IntN(6))
	p.retention = daemon.Retention{LogBytes: log, PinBytes: log << rng.IntN(4), PinAge: 20 * e, ArtifactTTL: 10 * e, MaxTransfers: 1 + rng.IntN(2)}
	p.firstSegment = 1 << (12 + rng.IntN(3))
	p.segment = p.firstSegment << rng.IntN(3)
	p.network = conditions{
		drop:     float64(rng.IntN(4)) / 100,
		double:   float64(rng.IntN(4)) / 100,
		delayMax: e/200 + time.Duration(rng.Int64N(int64(e/20))),
	}
	p.syncMax = e/100 + time.Duration(rng.Int64N(int64(e/10)))
	p.applyMax = e/500 + time.Duration(rng.Int64N(int64(e/50)))
	p.flushEvery = e * time.Duration(1+rng.IntN(10))
	p.opEvery = e/15 + time.Duration(rng.Int64N(int64(e/2)))
	p.faultEvery = e/2 + time.Duration(rng.Int64N(int64(3*e)))
	p.phase = 70*e + time.Duration(rng.Int64N(int64(80*e)))
	p.items = 1 + rng.IntN(20)
	p.sessions = 1 + rng.IntN(5)
	p.streams = rng.IntN(3)
	p.mustHalt = rng.IntN(15) == 0
	changes := rng.IntN(2) == 0 && !p.mustHalt
	if p.promoteLag = 1 << rng.IntN(8); changes && playsJoins {
		p.spares = rng.IntN(4)
	}
	for k := range kinds {
		if rng.IntN(4) > 0 && (changes || !kinds[k].changes) { // a quarter of the kinds is off in every run
			weight := kinds[k].weight
			if p.mustHalt && ruins[kinds[k].name] {
				weight *= 4
			}
			for range weight {
				p.kinds = append(p.kinds, kind(k))
			}
		}
	}
	return p
}

// cluster is one run.
type cluster struct {
	number   uint64 // the seed
	opts     Options
	plan     plan
	rng      *rand.Rand
	now      time.Duration
	planned  uint64
	agenda   agenda
	trace    trace
	seen     map[string]int
	faults   map[string]int
	faultNo  int
	happened []string
	err      error

	declared []membership.Declared
	members  []*member // machines; those declared come first
	twins    []*member // machines with copies of their disks, all that there ever were
	verbs    []*verb   // that are not over
	net      network
	clients  clients
	outboxes outboxes
	oracle   oracle
	healed   bool
	done     bool
	agreed   bool // the core became equal
}

// Run plays the whole of one seed.
func Run(seed uint64, opts Options) Result {
	c := newCluster(seed, opts)
	for c.err == nil && !c.done {
		e := heap.Pop(&c.agenda).(event)
		c.now = e.at
		e.do()
		if opts.Each != nil {
			opts.Each(c.hash())
		}
	}
	if c.err == nil {
		c.audit()
	}
	var where string
	for _, m := range c.members {
		where += m.String() + "\n"
		m.stop()
	}
	for _, m := range c.twins {
		m.stop()
	}
	if c.err == nil && c.agreed && seed%disksSample == 0 {
		c.auditDisks()
	}
	c.oracle.close()
	r := Result{
		Seed: seed, Members: c.plan.members, Hash: c.trace.hash, Events: c.trace.count,
		Simulated: c.now, Seen: c.seen, Faults: c.faults, FaultList: c.happened,
	}
	if c.err != nil {
		r.Err = fmt.Errorf("seed %d, at %s: %w\n%s\n%snewest events:\n%s",
			seed, c.now, c.err, &c.plan, where, c.trace.String())
	}
	return r
}

// hash tells what happened so far from anything else, down to the calls of the file systems.
func (c *cluster) hash() uint64 {
	h := c.trace.hash
	for _, m := range c.members {
		reads, changes := m.disk.Order()
		h = fold(fold(h, reads), changes)
	}
	return h
}

func newCluster(seed uint64, opts Options) *cluster {
	rng := rand.New(rand.NewPCG(seed, 0))
	c := &cluster{number: seed, opts: opts, plan: drawPlan(rng), rng: rng, seen: map[string]int{}, faults: map[string]int{}}
	c.oracle = newOracle(c)
	c.net = newNetwork(c)
	for i := range c.plan.members {
		name := machineName(uint64(i + 1))
		c.declared = append(c.declared, membership.Declared{Name: name, GRPCAddr: name + ":1", HTTPAddr: name + ":2"})
	}
	for i := range c.plan.members + c.plan.spares {
		m := newMember(c, uint64(i+1))
		c.members = append(c.members, m)
		if m.spare = i >= c.plan.members; !m.spare {
			c.after(c.upTo(c.plan.election()), m.boot)
		}
	}
	c.clients = newClients(c)
	c.outboxes = newOutboxes(c)
	c.after(c.around(c.plan.faultEvery), c.fault)
	c.after(c.plan.phase, c.heal)
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
	if c.opts.Trace != nil {
		fmt.Fprintln(c.opts.Trace, &l)
	}
}

// sometimes counts that something worth reaching was reached; see markers.go.
func (c *cluster) sometimes(what string) { c.seen[what]++ }

// violated ends the run. The first violation counts.
func (c *cluster) violated(format string, v ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, v...)
	}
}

// byID returns the machine that is a member of the cluster now, or nil.
func (c *cluster) byID(id ident.MemberID) *member {
	for _, m := range c.members {
		if m.as == id && id != 0 {
			return m
		}
	}
	return nil
}

// leader returns the live leader of the newest term, or nil.
func (c *cluster) leader() *member {
	var leader *member
	for _, m := range c.members {
		if m.serving() && m.role.State == raft.StateLeader && (leader == nil || m.role.Term > leader.role.Term) {
			leader = m
		}
	}
	return leader
}

// core are the members that must come to an agreement once the faults are over.
func (c *cluster) core() []*member {
	var core []*member
	for _, m := range c.members {
		if !m.damaged && c.belongs(m) {
			core = append(core, m)
		}
	}
	return core
}

// belongs reports whether a machine holds one of the cluster's members, as far as anybody knows.
func (c *cluster) belongs(m *member) bool {
	if len(c.oracle.chosen) == 0 {
		return m.id <= uint64(c.plan.members) // nothing is born yet
	}
	_, ok := c.oracle.newest().roster.Member(m.as)
	return ok
}

// heal ends the faults and begins the second phase.
func (c *cluster) heal() {
	c.note(0, "heal")
	c.healed = true
	c.net.heal()
	for _, m := range c.members {
		m.heal()
	}
	// A machine that was admitted as somebody else is sound, and no voter yet: its former self is still one.
	if c.plan.mustHalt && (2*len(c.core()) <= c.plan.members || !c.mayLose(nil, false)) {
		// Too much is lost. What is left must stay silent, or be right.
		c.sometimes("majority damaged")
		c.after(electLimit*c.plan.election(), func() { c.done = true })
		return
	}
	// A member that is only starting needs its time to read its disk.
	c.awaitLeader(c.now + electLimit*c.plan.election() + bootLimit(&c.plan))
}

// bootLimit is how long the start of a process may take.
func bootLimit(p *plan) time.Duration { return 2 * p.election() }

// awaitLeader: after the faults there is a leader in time, and everybody follows it.
func (c *cluster) awaitLeader(until time.Duration) {
	leader := c.leader()
	for _, m := range c.core() {
		if m.joining() {
			continue
		}
		if leader == nil || !m.serving() || m.role.Term != leader.role.Term || m.role.Leader != leader.as {
			if c.now >= until {
				c.violated("no leader that all of %d members follow, %d election timeouts after the faults ended", len(c.core()), electLimit)
			}
			c.after(c.plan.tick/2, func() { c.awaitLeader(until) })
			return
		}
	}
	c.note(leader.id, "settled", leader.role.Term)
	c.clients.last(leader)
	limit := agreeLimit * c.plan.election()
	for _, m := range c.members {
		if m.joins || m.divergent {
			limit += joinLimit*c.plan.election() + 10*keepEvery
		}
	}
	c.awaitAgreement(c.now + limit)
}

// awaitAgreement: a write through the new leader is acknowledged, every member serves a linearizable
// read, and all members become equal.
func (c *cluster) awaitAgreement(until time.Duration) {
	core := c.core()
	equal := true
	for _, m := range c.members {
		// Whoever was about to join does, and becomes a voter.
		equal = equal && (!m.joining() || !m.mayJoin()) && (!m.divergent || !c.belongs(m))
	}
	for _, x := range c.oracle.newest().roster.Members {
		m := c.byID(x.ID)
		equal = equal && (x.Role == membership.RoleVoter || m != nil && m.damaged) // nothing comes of it
	}
	for _, m := range core {
		equal = equal && m.serving() && m.applied == core[0].applied && m.applied.Index >= c.clients.newest
	}
	switch {
	case c.clients.finished() && equal && c.outboxes.waiting() == "":
		c.done, c.agreed = true, true
	case c.now < until:
		c.after(c.plan.tick, func() { c.awaitAgreement(until) })
	default:
		c.violated("%s after the faults ended: %s; members equal: %t%s", c.now-c.plan.phase, c.clients.unfinished(), equal, c.outboxes.waiting())
	}
}
