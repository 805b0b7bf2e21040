package sim

import (
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
)

// genesis is the entry before the first of every log: birth gives all members the same.
var genesis = ident.EntryID{Term: 1, Index: 1}

// member carries out what its machine asks for, as package replica does.
type member struct {
	c  *cluster
	id uint64

	log   *diskLog
	state diskState

	machine *consensus.Machine // nil while down
	life    uint64             // openings and crashes: work of an earlier life is not carried out
	role    consensus.Role
	slow    bool          // the disk
	every   time.Duration // between ticks: clocks run at different speeds

	appends, writing []*consensus.Append
	applies          []*consensus.Apply
	applying         bool
}

func newMember(c *cluster, id uint64) *member {
	var voters []uint64
	for i := range c.plan.members {
		voters = append(voters, uint64(i+1))
	}
	m := &member{c: c, id: id, log: newDiskLog(genesis), every: tick*9/10 + c.upTo(tick/5)}
	m.state.live = position{applied: genesis, conf: &pb.ConfState{Voters: voters}, digest: fnvOffset}
	m.state.flush()
	return m
}

func (m *member) up() bool { return m.machine != nil }

// after plans do for this life.
func (m *member) after(d time.Duration, do func()) {
	life := m.life
	m.c.after(d, func() {
		if m.life == life {
			do()
		}
	})
}

// start opens the machine on what the disk holds.
func (m *member) start() {
	c := m.c
	m.life++
	machine, err := consensus.New(consensus.Options{
		ID:            ident.MemberID(m.id),
		Log:           m.log,
		HardState:     m.log.durable.hs,
		Applied:       m.state.live.applied,
		Conf:          m.state.live.conf,
		ElectionTicks: electionTicks,
		Nonce:         c.rng.Uint64(),
		Limits:        c.plan.limits,
	})
	if err != nil {
		c.violated("member %d: %w", m.id, err)
		return
	}
	switch commit := m.log.durable.hs.GetCommit(); {
	case m.state.live.applied.Index > commit:
		c.seen["opened with state ahead of commit"]++
	case m.state.live.applied.Index < commit:
		c.seen["opened with state behind commit"]++
	}
	m.machine = machine
	m.role = consensus.Role{Term: m.log.durable.hs.GetTerm()}
	m.after(c.upTo(m.every), m.ticks)
	m.after(c.upTo(500*time.Millisecond), m.flushes)
	m.after(c.upTo(500*time.Millisecond), m.drops)
	c.note(m.id, "start", m.role.Term, m.log.LastIndex(), m.state.live.applied.Index)
	m.step(consensus.Input{Tick: true}) // what is committed and not in state is applied without waiting
}

// crash loses the machine, and of the disk what was not synced.
func (m *member) crash() {
	m.life++
	if len(m.log.pending) > 0 {
		m.c.seen["crash with unsynced frames"]++
	}
	m.log.crash(m.c.rng)
	if m.c.chance(0.3) {
		m.state.flush() // it was flushed just before
	}
	m.state.crash()
	m.machine, m.appends, m.writing, m.applies, m.applying = nil, nil, nil, nil, false
	m.role = consensus.Role{}
	m.c.note(m.id, "crash", m.log.LastIndex(), m.state.live.applied.Index)
	m.c.clients.crashed(m)
}

func (m *member) ticks() {
	m.after(m.every, m.ticks)
	m.step(consensus.Input{Tick: true})
}

func (m *member) flushes() {
	m.after(m.c.around(200*time.Millisecond), m.flushes)
	m.state.flush()
}

// drops drops the head of the log, as far as no member needs it any more. A leader also keeps what
// follows the match index that it knows of: after a lost or late message raft begins again there,
// however far the follower has come since.
func (m *member) drops() {
	m.after(m.c.around(300*time.Millisecond), m.drops)
	keep := m.state.flushed.applied.Index
	for _, o := range m.c.members {
		keep = min(keep, o.state.flushed.applied.Index)
	}
	for _, p := range m.machine.Status().Progress {
		keep = min(keep, p.Match)
	}
	if base := m.log.live.base.Index; keep > base {
		upTo := base + 1 + m.c.rng.Uint64N(keep-base)
		m.log.dropHead(upTo)
		m.c.seen["log head dropped"]++
		m.after(m.c.upTo(time.Millisecond), func() { m.step(consensus.Input{Compacted: upTo}) })
	}
}

func (m *member) receive(b []byte) {
	msg := &pb.Message{}
	if err := proto.Unmarshal(b, msg); err != nil {
		m.c.violated("unmarshal: %v", err)
		return
	}
	m.step(consensus.Input{Receive: msg})
}

// step carries out the effects of one input in the order in which Effects has them.
func (m *member) step(in consensus.Input) {
	c := m.c
	if c.err != nil {
		return
	}
	fx := m.machine.Step(in)
	if fx.Fatal != nil {
		c.violated("member %d: %w", m.id, fx.Fatal)
		return
	}
	if fx.Refused != nil {
		c.violated("member %d refused an honest message: %w", m.id, fx.Refused)
	}
	if fx.Reseed != nil || len(fx.Stage) > 0 {
		c.violated("member %d: a snapshot is needed, though every log reaches back", m.id)
	}
	m.appends = append(m.appends, fx.Append...)
	for _, msg := range fx.Send {
		m.mayLeave(msg)
		c.net.send(msg)
	}
	m.applies = append(m.applies, fx.Apply...)
	for _, a := range fx.Answer {
		c.clients.answered(m, a)
	}
	if fx.Role != nil {
		m.role = *fx.Role
		c.note(m.id, "role", m.role.Term, uint64(m.role.Leader), uint64(m.role.State))
		if m.role.State == raft.StateLeader {
			c.oracle.leads(m.id, m.role.Term)
		}
	}
	m.append()
	m.apply()
}

// mayLeave: no vote and no append response before what it rests on is durable.
func (m *member) mayLeave(msg *pb.Message) {
	d := &m.log.durable
	switch term := d.hs.GetTerm(); msg.GetType() {
	case pb.MsgVoteResp:
		if !msg.GetReject() && (term < msg.GetTerm() || term == msg.GetTerm() && d.hs.GetVote() != msg.GetTo()) {
			m.c.violated("member %d votes for %d in term %d, durable is %v", m.id, msg.GetTo(), msg.GetTerm(), d.hs)
		}
	case pb.MsgAppResp:
		if !msg.GetReject() && (term < msg.GetTerm() || term == msg.GetTerm() && d.last() < msg.GetIndex()) {
			m.c.violated("member %d acknowledges %d in term %d, durable is %d in %v",
				m.id, msg.GetIndex(), msg.GetTerm(), d.last(), d.hs)
		}
	}
}

// append is the append worker: everything queued is one write and at most one sync.
func (m *member) append() {
	if len(m.writing) > 0 || len(m.appends) == 0 {
		return
	}
	m.writing, m.appends = m.appends, nil
	sync := false
	for _, f := range m.writing {
		m.c.oracle.appended(m, f.Entries)
		if n := len(f.Entries); n > 0 && f.Entries[0].GetIndex() <= m.log.LastIndex() {
			m.c.seen["log suffix replaced"]++
		}
		m.log.write(f)
		sync = sync || f.Sync()
	}
	took := m.c.upTo(50 * time.Microsecond)
	if sync {
		took = 100*time.Microsecond + m.c.upTo(m.c.plan.syncMax)
		if m.slow {
			took *= 10
		}
	}
	m.after(took, func() {
		if sync {
			m.log.sync(len(m.log.pending))
		}
		done := m.writing
		m.c.note(m.id, "appended", uint64(len(done)), m.log.LastIndex())
		for _, f := range done {
			m.step(consensus.Input{Appended: f})
		}
		m.writing = nil
		m.append()
	})
}

// apply is the apply worker.
func (m *member) apply() {
	if m.applying || len(m.applies) == 0 {
		return
	}
	runs := m.applies
	m.applies, m.applying = nil, true
	m.after(m.c.upTo(m.c.plan.applyMax), func() {
		for _, run := range runs {
			for _, e := range run.Entries {
				s := &m.state.live
				s.digest = foldBytes(fold(fold(s.digest, e.GetTerm()), e.GetIndex()), e.GetData())
				s.applied = ident.EntryID{Term: e.GetTerm(), Index: e.GetIndex()}
				m.c.oracle.applied(m, e)
			}
		}
		m.c.note(m.id, "applied", m.state.live.applied.Index, m.state.live.digest)
		m.applying = false
		for _, run := range runs {
			m.step(consensus.Input{Applied: run})
		}
	})
}
