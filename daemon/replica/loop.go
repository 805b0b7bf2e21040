package replica

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
)

const (
	// entryOverhead is what the payload of an entry costs beside its writes, and writeOverhead what
	// one write costs beside its bytes; both at most (command.EncodeWrites).
	entryOverhead = 32
	writeOverhead = 5
)

// loop is what the goroutine of the loop owns.
type loop struct {
	machine *consensus.Machine
	clock   ident.Clock
	token   consensus.Token // the last one given

	// pending are the proposals that the machine has not answered; inflight of them are batches of the
	// present term. One of an earlier term may be answered late or never: the log may have become
	// shorter than its index.
	//
	// Invariant: inflight <= Limits.InflightBatches.
	pending  map[consensus.Token]*batch
	inflight int

	// standIn counts the ticks until this replica stands in the place of a lost leader; 0: it does not.
	standIn int

	// transfer is the call of TransferLeader under way; nil: none.
	transfer *transfer
	// moving says that leadership may be moving; the machine knows.
	moving bool

	// applying is the run that is being handed back: its outcomes go to the writes in it.
	applying *run

	// reported counts the frames handed back to the machine; unsynced are those that were not yet.
	reported uint64
	unsynced unsynced

	// confTold is the newest configuration that OnConf was told of.
	confTold uint64

	// leaderLast is the highest index that the newest leader heard is known to have, by its messages;
	// leaderHeard is when the last one came.
	leaderLast  uint64
	leaderHeard time.Time

	events   []any    // the buffer of inbox.take
	payloads [][]byte // the buffer of proposeBatch
	free     []*batch // settled batches, for their memory; as many as were pending at once
}

// batch is one entry proposed and the callers that wait for it.
type batch struct {
	writes []*write
	term   uint64 // of the leader that proposed it
	at     time.Time
	change bool // proposed by Propose: one write, no outcome
}

// settle answers every caller of b with err.
func (b *batch) settle(err error) {
	for _, w := range b.writes {
		w.settle(Result{}, err)
	}
}

func (r *Replica) runLoop() {
	defer r.end()
	pulse := r.opts.Beat.Every(r.opts.Tick)
	defer pulse.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-pulse.C:
			pulse.Took()
			r.tick()
		case <-r.wake:
		}
		r.turn()
	}
}

// turn takes what is in the inbox and does what follows from it.
func (r *Replica) turn() {
	r.loop.events = r.inbox.take(r.loop.events)
	for _, e := range r.loop.events {
		r.handle(e)
	}
	r.watchTransfer()
	r.startReads()
	r.proposeBatches()
	r.publish()
}

// The reports of the workers, as they come through the inbox.
type (
	appendReport []*consensus.Append
	applyReport  []*run
)

// handle takes one thing out of the inbox.
func (r *Replica) handle(e any) {
	switch e := e.(type) {
	case appendReport:
		for _, f := range e {
			r.frameDurable(f)
		}
	case applyReport:
		for _, a := range e {
			r.loop.applying = a
			r.step(consensus.Input{Applied: a.apply})
			r.loop.applying = nil
		}
	case delivery:
		r.received.Add(-e.bytes)
		for _, m := range e.msgs {
			if r.takes(m) {
				r.step(consensus.Input{Receive: m})
			} else {
				r.metrics.noRoom.Inc()
			}
			r.hear(m)
		}
	case *Change:
		r.propose(&batch{writes: []*write{e.write}, change: true}, &consensus.Proposal{Data: e.write.data, Conf: e.conf})
	case consensus.Input:
		r.step(e)
	case leaderLost:
		r.leaderLost(e)
	case *transfer:
		r.beginTransfer(e)
	case stateFailed:
		r.endState()
	case checkNow:
		r.loop.token++ // nobody waits for the answer
		r.step(consensus.Input{Propose: &consensus.Proposal{Token: r.loop.token, Data: command.EncodeCheck(e.trusted)}})
	case ask:
		e <- r.loop.machine.Status()
	case endTransfer:
		r.endTransfer(e.t, e.cause)
	}
}

// tick is one tick of the raft clock.
func (r *Replica) tick() {
	r.step(consensus.Input{Tick: true})
	if r.loop.standIn > 0 {
		if r.loop.standIn--; r.loop.standIn == 0 {
			r.step(consensus.Input{Campaign: true})
		}
	}
}

// leaderLost is what LeaderLost puts into the inbox.
type leaderLost struct {
	leader ident.MemberID
	ticks  int
}

// leaderLost forgets a leader that is gone, and stands in its place or counts the ticks until then.
func (r *Replica) leaderLost(lost leaderLost) {
	if r.role.Load().Leader != lost.leader {
		return
	}
	r.step(consensus.Input{LostLead: lost.leader})
	if r.loop.standIn = lost.ticks; lost.ticks == 0 {
		r.step(consensus.Input{Campaign: true})
	}
}

// frameDurable hands one frame back: what rests on it is spoken now. The order token: frames come
// back in the order they were handed out, so the n-th report is the n-th frame, and the append
// worker must have synced that many.
func (r *Replica) frameDurable(f *consensus.Append) {
	r.loop.reported++
	r.loop.unsynced.done()
	if synced := r.synced.Load(); f.Sync() && r.loop.reported > synced {
		r.fail(StageMachine, fmt.Errorf("frame %d was reported durable, a sync covers %d", r.loop.reported, synced))
		return
	}
	if n := len(f.Entries); n > 0 {
		r.durable.Lock() // before anything that rests on it is said
		r.durable.last = ident.EntryID{Term: f.Entries[n-1].GetTerm(), Index: f.Entries[n-1].GetIndex()}
		r.durable.Unlock()
	}
	r.step(consensus.Input{Appended: f})
}

// step carries out the effects of one input, in the order that package consensus gives. After a
// failure it does nothing.
func (r *Replica) step(in consensus.Input) {
	if r.failed.Load() != nil {
		return
	}
	r.loop.moving = r.loop.moving || in.Transfer != 0
	fx := r.loop.machine.Step(in)
	if fx.Fatal != nil {
		stage := StageMachine
		if _, ok := errors.AsType[*consensus.LogError](fx.Fatal); ok {
			stage = StageLog
		}
		r.fail(stage, fx.Fatal)
		return
	}
	if len(fx.Append) > 0 {
		r.loop.noteStamps(fx.Append)
		r.loop.unsynced.add(len(fx.Append), r.opts.Now())
		r.appends.put(fx.Append...)
	}
	if len(fx.Send) > 0 {
		if r.loop.transfer != nil {
			r.noteTold(fx.Send)
		}
		r.opts.Net.Send(r.opts.Group, fx.Send)
	}
	if len(fx.Apply) > 0 {
		r.applies.put(fx.Apply...)
	}
	for _, a := range fx.Answer {
		r.answer(a)
	}
	if fx.Role != nil {
		r.newRole(*fx.Role)
	}
	if fx.Reseed != nil && r.opts.Observe.OnReseed != nil {
		r.opts.Observe.OnReseed(*fx.Reseed)
	}
	if len(fx.Stage) > 0 && r.opts.Observe.OnStage != nil {
		r.opts.Observe.OnStage(fx.Stage)
	}
	if fx.Refused != nil {
		r.metrics.refused.Inc()
		r.logger.Debug("message refused", slog.Any("group", r.opts.Group), slog.Any("err", fx.Refused))
	}
}

func (r *Replica) newRole(role consensus.Role) {
	was := r.role.Load()
	if was.Term != role.Term {
		r.loop.inflight = 0
	}
	if was.Term != role.Term || was.Leader != role.Leader {
		if role.Leader != 0 { // what the last leader had stays known while there is none
			r.loop.leaderLast = 0
		}
		r.logger.Info("leader changed", slog.Any("group", r.opts.Group),
			slog.Uint64("term", role.Term), slog.Any("leader", role.Leader))
	}
	if mutantDeposedRefuses && role.State != raft.StateLeader {
		for token, b := range r.loop.pending {
			delete(r.loop.pending, token)
			r.loop.inflight--
			b.settle(&NotLeaderError{Term: role.Term, Leader: role.Leader})
		}
	}
	r.role.Store(&role)
	if r.opts.Observe.OnRole != nil {
		r.opts.Observe.OnRole(role)
	}
}

// hear takes note of how far the leader says to be.
func (r *Replica) hear(m *pb.Message) {
	role := r.role.Load()
	if ident.MemberID(m.GetFrom()) != role.Leader || m.GetTerm() != role.Term {
		return
	}
	switch m.GetType() {
	case pb.MsgApp:
		r.loop.leaderLast = max(r.loop.leaderLast, m.GetCommit(), m.GetIndex()+uint64(len(m.GetEntries())))
	case pb.MsgHeartbeat:
		r.loop.leaderLast = max(r.loop.leaderLast, m.GetCommit())
	case pb.MsgSnap:
		r.loop.leaderLast = max(r.loop.leaderLast, m.GetSnapshot().GetMetadata().GetIndex())
	default:
		return
	}
	r.loop.leaderHeard = r.opts.Now()
}

// proposeBatches turns what waits into entries: each takes everything up to its size, so batches
// grow with the load by themselves and a lone write waits for nothing. While leadership moves nothing
// is proposed.
func (r *Replica) proposeBatches() {
	l := &r.loop
	if r.queue.bytes() == 0 {
		return
	}
	if err := cmp.Or(r.leads(), r.full()); err != nil {
		r.queue.refuse(err)
		return
	}
	if l.moving = l.moving && l.machine.Transferee() != 0; l.moving { // raft would refuse: they wait, or go to the new leader
		return
	}
	for l.inflight < r.opts.Limits.InflightBatches && r.failed.Load() == nil {
		b := l.newBatch()
		b.writes = r.queue.take(b.writes, r.opts.Limits.EntryBytes-entryOverhead, writeOverhead)
		if len(b.writes) == 0 {
			l.recycle(b)
			return
		}
		for _, w := range b.writes {
			l.payloads = append(l.payloads, w.data)
		}
		payload := command.EncodeWrites(l.clock.Next(r.opts.Now()), l.payloads)
		clear(l.payloads)
		l.payloads = l.payloads[:0]
		r.metrics.batchWrites.Observe(float64(len(b.writes)))
		r.metrics.batchBytes.Observe(float64(len(payload)))
		l.inflight++
		r.propose(b, &consensus.Proposal{Data: payload, Ack: b.writes[0].ack})
	}
}

// noteStamps keeps the clock above every stamp in the log, so that the stamps of a new leader follow
// those of the old one before it has applied them.
func (l *loop) noteStamps(frames []*consensus.Append) {
	for _, f := range frames {
		for _, e := range f.Entries {
			if stamp, ok := command.StampOf(e.GetData()); ok {
				l.clock.Advance(stamp)
			}
		}
	}
}

// propose steps one proposal, answered through b.
func (r *Replica) propose(b *batch, p *consensus.Proposal) {
	r.loop.token++
	p.Token, b.term, b.at = r.loop.token, r.role.Load().Term, time.Now()
	r.loop.pending[p.Token] = b
	r.load.waiting.Store(int64(len(r.loop.pending)))
	r.metrics.proposals.Inc()
	r.step(consensus.Input{Propose: p})
}

// answer settles the callers of one token. A token that nobody waits for is ignored.
func (r *Replica) answer(a consensus.Answer) {
	if r.reads.current != nil && r.reads.token == a.Token {
		r.reads.answer(a.ID.Index)
		return
	}
	l := &r.loop
	b := l.pending[a.Token]
	if b == nil {
		return
	}
	delete(l.pending, a.Token)
	r.load.answered.Add(1)
	r.load.took.Add(int64(time.Since(b.at)))
	r.load.waiting.Store(int64(len(l.pending)))
	if !b.change && b.term == r.role.Load().Term {
		l.inflight--
	}
	switch {
	case a.Err != nil:
		b.settle(r.answerErr(a.Err))
	case b.change:
		b.writes[0].settle(Result{ID: a.ID, Replicated: a.Replicated}, l.applying.refused(a.ID))
	case b.writes[0].ack == consensus.AckLeader && l.applying == nil: // durable here, and not applied
		for _, w := range b.writes {
			w.settle(Result{ID: a.ID, Ack: consensus.AckLeader}, nil)
		}
	default:
		outcomes := l.applying.outcomes(a.ID.Index)
		if len(outcomes) != len(b.writes) {
			r.fail(StageMachine, fmt.Errorf("entry %s of %d writes has %d outcomes", a.ID, len(b.writes), len(outcomes)))
			b.settle(&UnknownOutcomeError{Cause: r.cause()})
			return
		}
		for i, w := range b.writes {
			if mutantOutcomesReversed {
				i = len(outcomes) - 1 - i
			}
			w.settle(Result{ID: a.ID, Outcome: outcomes[i], Replicated: a.Replicated}, nil)
		}
	}
	l.recycle(b)
}

// answerErr says in this package's words what the machine knows of a proposal.
func (r *Replica) answerErr(err error) error {
	switch {
	case errors.Is(err, consensus.ErrNotLeader):
		role := r.role.Load()
		return &NotLeaderError{Term: role.Term, Leader: role.Leader}
	case errors.Is(err, consensus.ErrDropped):
		return &OverloadedError{Queue: QueueUncommitted, RetryAfter: retryAfter}
	case errors.Is(err, consensus.ErrConfBusy):
		return ErrChangeInProgress
	case errors.Is(err, consensus.ErrLost):
		return ErrLost
	default:
		return &UnknownOutcomeError{Cause: err}
	}
}

func (l *loop) newBatch() *batch {
	n := len(l.free)
	if n == 0 {
		return &batch{}
	}
	b := l.free[n-1]
	l.free = l.free[:n-1]
	return b
}

func (l *loop) recycle(b *batch) {
	if b.change {
		return
	}
	clear(b.writes)
	b.writes = b.writes[:0]
	l.free = append(l.free, b)
}

// startReads asks for the round that gathers, if none is under way. A single voter answers at once.
func (r *Replica) startReads() {
	for r.failed.Load() == nil && r.reads.begin() {
		r.loop.token++
		r.reads.token = r.loop.token
		r.step(consensus.Input{Read: r.reads.token})
	}
}

// publish makes the present Status visible.
func (r *Replica) publish() {
	s := &Status{
		Status:      r.loop.machine.Status(),
		DurableTerm: r.Durable().Term,
		LeaderLast:  r.loop.leaderLast,
		LeaderHeard: r.loop.leaderHeard,

		UnsyncedSince: r.loop.unsynced.since(),
	}
	if r.role.Load() == nil {
		r.role.Store(&s.Role)
	}
	r.status.Store(s)
	if settled := min(s.Applied, s.DurableCommit); settled >= s.ConfIndex && s.ConfIndex > r.loop.confTold {
		r.loop.confTold = s.ConfIndex
		if r.opts.Observe.OnConf != nil {
			r.opts.Observe.OnConf()
		}
	}
}

// Status returns where the replica stands. It never blocks, also when the loop does.
func (r *Replica) Status() Status {
	s := *r.status.Load()
	if s.State == raft.StateLeader {
		s.LeaderLast, s.LeaderHeard = s.Last, r.opts.Now()
	}
	if f := r.failed.Load(); f != nil {
		s.Failed = f
	}
	if f := r.stateless.Load(); f != nil {
		s.Stateless = f
	}
	s.Applied = max(s.Applied, r.applied.get())
	s.QueueBytes = r.queue.bytes()
	return s
}

// Status is where a replica stands.
type Status struct {
	// Status is the machine's. Applied can be ahead of Commit for a moment: state is asked last.
	consensus.Status

	DurableTerm uint64 // of entry Durable

	// LeaderLast is the highest index that the newest leader heard is known to have, from its own words:
	// its last index on the leader, at least the commit index of the last append elsewhere. 0: not
	// heard yet.
	LeaderLast uint64
	// LeaderHeard is the wall time of the leader's last message; zero: never in this life.
	LeaderHeard time.Time

	// UnsyncedSince is when the oldest frame that is not durable yet was handed to the disk; zero: all
	// is durable.
	UnsyncedSince time.Time

	QueueBytes int64 // client writes admitted and not proposed
	Failed     error // a *FailedError; nil: sound
	Stateless  error // a *FailedError: the log goes on without the state; nil: with it
}
