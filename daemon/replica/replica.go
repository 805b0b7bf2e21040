// Package replica carries out what the consensus machine of one group asks for: it appends frames,
// applies runs, sends messages, ticks, batches the writes of clients into entries, and answers them.
// It decides nothing about consensus.
//
// What it promises:
//
//   - Persist before speak: a frame is handed back to the machine only after a sync that covers it,
//     and a changed term or vote is in the votes before it is in the log. The loop checks it.
//   - Fail closed: after an error of the log, the votes, the state or the machine nothing more is
//     sent, appended, applied or acknowledged. Only opening the replica anew goes on.
//   - Every caller is told one of: done, nothing happened, unknown.
//   - Every queue is bounded, and refuses at the door.
//
// Callers: member opens, starts and closes replicas; ops and httpd write and read through them.
// Goroutines, queues and the crash analysis are in DESIGN.md.
package replica

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/beat"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/state"
	"github.com/tidaldb/tidal/daemon/wal"
)

// Log is the log of the group. *wal.Log implements it.
type Log interface {
	consensus.Log
	// Append writes the frames with one write and, if sync is set, makes them and everything before
	// them durable. An error is final.
	Append(frames []wal.Frame, sync bool) error
}

// Votes remember terms and votes beside the log, so that they survive its replacement.
// *datadir.Dir implements it.
type Votes interface {
	Vote(g ident.GroupID) datadir.Vote
	// SetVote is durable when it returns. An error is final.
	SetVote(g ident.GroupID, v datadir.Vote) error
}

// Store is the state of the group. *state.Store implements it.
type Store interface {
	Position() state.Position
	NewView() *state.View
	FlushedIndex() uint64
	Flush() (uint64, error)
}

// Applier turns committed entries into state. *apply.Machine implements it.
type Applier interface {
	// Apply puts the runs into state, all or none, and fills in their outcomes. An error is final.
	Apply(runs []*apply.Run) error
}

// Network carries messages to peers. *peer.Network implements it.
type Network interface {
	// Send never blocks; what it cannot take it drops. It does not keep the slice.
	Send(g ident.GroupID, msgs []*pb.Message)
}

// Observer is told what happens. Any func may be nil. They are called in order, from goroutines of
// the replica: they must return soon and must not call Close.
type Observer struct {
	OnRole func(consensus.Role)
	// OnRoster is called in log order, before messages go out under it, with an index that the roster is
	// that of the state at.
	OnRoster  func(index uint64, r membership.Roster)
	OnApplied func([]command.Applied) // in log order, when a View shows it
	OnConf    func()                  // the configuration in force is in state here, and its commit on the disk
	OnChecks  func([]*apply.Check)    // likewise
	OnDeliver func([]apply.Delivery)  // in log order, when a View shows it
	OnReseed  func(consensus.Reseed)  // the leader has compacted what this replica needs
	OnStage   func([]ident.MemberID)  // peers that need an artifact; each ends with SnapDone
	OnFail    func(error)             // a *FailedError; once of StageState, and once of another stage
}

// Limits bounds what a replica holds. 0 means the default.
type Limits struct {
	QueueBytes      int64 // client writes admitted and not proposed; 32 MiB
	EntryBytes      int   // payload of one entry of client writes; 1 MiB
	InflightBatches int   // entries of client writes proposed and not answered; 4
	WaiterBytes     int64 // callers that wait otherwise, 256 bytes each; 4 MiB
	ReceiveBytes    int64 // peer messages received and not stepped; 64 MiB
	FlushBytes      int64 // payload applied and not flushed; 64 MiB
	Consensus       consensus.Limits
}

// Options configures Open. Fields without a remark are required.
type Options struct {
	Group ident.GroupID // 0 is a group too
	Self  ident.MemberID

	// The parts, open. Their owner closes them after the replica.
	Log       Log
	Recovered wal.Recovered
	Votes     Votes
	State     Store
	Apply     Applier
	Net       Network

	Tick           time.Duration // of the raft clock
	Beat           beat.Beat     // what its ticks keep to; zero: one of its own
	ElectionTicks  int           // 0: 10
	HeartbeatTicks int           // 0: 1

	FlushEvery time.Duration         // state is flushed at least this often; 0: 30 s
	Now        func() time.Time      // wall time, for stamps and status; nil: time.Now
	Observe    Observer              // may be zero
	Limits     Limits                // may be zero
	Logger     *slog.Logger          // nil: silent
	Metrics    prometheus.Registerer // nil: kept, not exported
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Self == 0:
		return o, errors.New("replica: Self is required")
	case o.Log == nil || o.Votes == nil || o.State == nil || o.Apply == nil || o.Net == nil:
		return o, errors.New("replica: Log, Votes, State, Apply and Net are required")
	case o.Tick <= 0:
		return o, fmt.Errorf("replica: Tick %s is not positive", o.Tick)
	}
	if o.Beat == (beat.Beat{}) {
		o.Beat = beat.New()
	}
	if o.FlushEvery == 0 {
		o.FlushEvery = 30 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &o.Limits
	orDefault(&l.QueueBytes, 32<<20)
	orDefault(&l.EntryBytes, 1<<20)
	orDefault(&l.InflightBatches, 4)
	orDefault(&l.WaiterBytes, 4<<20)
	orDefault(&l.ReceiveBytes, 64<<20)
	orDefault(&l.FlushBytes, 64<<20)
	return o, nil
}

func orDefault[T int | int64](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Replica is one open replica. Its methods are safe for concurrent use.
type Replica struct {
	opts    Options
	logger  *slog.Logger
	metrics *metrics

	// wake tells the loop that inbox, queue or reads have something.
	wake  chan struct{}
	inbox *mailbox[any] // see handle for what is in it
	queue queue         // client writes on their way into an entry
	reads reads         // callers of ReadIndex

	appends *mailbox[*consensus.Append] // to the append worker
	applies *mailbox[*consensus.Apply]  // to the apply worker
	flush   chan struct{}               // capacity 1: FlushBytes were applied

	applied  appliedIndex
	waiters  waiters
	received atomic.Int64 // bytes of peer messages in inbox
	writes   sync.Pool    // of *write

	role   atomic.Pointer[consensus.Role] // as last published; never nil
	status atomic.Pointer[Status]         // as last published; never nil
	failed atomic.Pointer[FailedError]    // nil: sound
	// stateless is why nothing has to do with state any more, while the log goes on; nil: it has.
	stateless atomic.Pointer[FailedError]
	room      atomic.Pointer[Room] // nil: never told, there is room

	// synced counts the frames that a sync covers: written by the append worker, checked by the loop.
	synced atomic.Uint64

	// load is what was proposed for clients, and became of it: written by the loop.
	load struct {
		answered, waiting atomic.Int64 // entries
		took              atomic.Int64 // nanoseconds from proposal to answer, added up
	}

	// durable is the last entry that is durable, never behind what this replica has said to peers, as
	// Status may be.
	durable struct {
		sync.Mutex
		last ident.EntryID
	}

	loop   loop       // owned by the loop's goroutine
	append appendDesk // owned by the append worker
	apply  applyDesk  // owned by the apply worker

	stop     chan struct{} // closed: every goroutine ends
	stopOnce sync.Once
	done     sync.WaitGroup
	endOnce  sync.Once
}

// Open checks that log, votes and state belong together and makes the replica, which does nothing
// before Start. It fails with a *consensus.BootError or a *VotesBehindError where they do not.
func Open(opts Options) (*Replica, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	vote := opts.Votes.Vote(opts.Group)
	hs, err := withVote(opts.Recovered.HardState, vote)
	if err != nil {
		return nil, fmt.Errorf("open replica of group %s: %w", opts.Group, err)
	}
	if mutantVotesForgotten {
		hs = opts.Recovered.HardState
	}
	var nonce [8]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return nil, fmt.Errorf("open replica of group %s: draw a nonce: %w", opts.Group, err)
	}
	pos := opts.State.Position()
	if mutantConfFromRoles {
		pos.Conf = confFromRoles(opts.State)
	}
	if mutantJoinerWithoutConf && !membership.InConf(pos.Conf, opts.Self) {
		pos.Conf = &pb.ConfState{}
	}
	machine, err := consensus.New(consensus.Options{
		ID:             opts.Self,
		Log:            opts.Log,
		HardState:      hs,
		Applied:        pos.Applied,
		Conf:           pos.Conf,
		ElectionTicks:  opts.ElectionTicks,
		HeartbeatTicks: opts.HeartbeatTicks,
		Nonce:          binary.LittleEndian.Uint64(nonce[:]),
		Limits:         opts.Limits.Consensus,
		Logger:         opts.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("open replica of group %s: %w", opts.Group, err)
	}
	wake := make(chan struct{}, 1)
	r := &Replica{
		opts:    opts,
		logger:  opts.Logger,
		wake:    wake,
		inbox:   newMailbox[any](wake),
		queue:   queue{limit: opts.Limits.QueueBytes},
		appends: newMailbox[*consensus.Append](make(chan struct{}, 1)),
		applies: newMailbox[*consensus.Apply](make(chan struct{}, 1)),
		flush:   make(chan struct{}, 1),
		waiters: waiters{limit: opts.Limits.WaiterBytes},
		append:  appendDesk{vote: vote},
		stop:    make(chan struct{}),
	}
	r.writes.New = func() any { return &write{done: make(chan struct{}, 1)} }
	r.applied.mu.index = pos.Applied.Index
	r.applied.mu.waiting = map[*applyWaiter]struct{}{}
	r.durable.last = opts.Recovered.Last
	r.loop = loop{machine: machine, pending: map[consensus.Token]*batch{}}
	if err := r.loop.recoverClock(opts.Log, pos); err != nil {
		return nil, fmt.Errorf("open replica of group %s: %w", opts.Group, err)
	}
	r.metrics = newMetrics(opts.Metrics, opts.Group, r)
	r.publish()
	return r, nil
}

// Start starts the replica. It is called once, and not after Close.
func (r *Replica) Start() {
	r.done.Go(r.runLoop)
	r.done.Go(r.runAppend)
	r.done.Go(r.runApply)
	r.done.Go(r.runFlush)
}

// Close ends every goroutine of the replica and answers everybody who waits. It is idempotent.
func (r *Replica) Close() error {
	r.halt()
	r.done.Wait()
	r.end()
	r.metrics.unregister()
	return nil
}

// Fail gives up the state because of err, an error of it that was seen outside of the replica: in a write
// of the store's background work, or by a scrub. Only the first failure counts.
func (r *Replica) Fail(err error) { r.fail(StageState, err) }

// Expel stops the replica because of err: its peers will not hear it any more. It neither votes nor
// stands for leader from then on, unlike one that has lost its state alone.
func (r *Replica) Expel(err error) { r.fail(StageFence, err) }

// Known tells the replica that a member has applied entry id: it is committed. It matters where nobody leads,
// see package consensus.
func (r *Replica) Known(id ident.EntryID) {
	if s := r.status.Load(); s.Leader == 0 && id.Index > s.Commit {
		r.inbox.put(consensus.Input{Known: &id})
	}
}

// LastResort has this replica lead only if nobody else does, see package consensus.
func (r *Replica) LastResort() { r.inbox.put(consensus.Input{LastResort: true}) }

// fail stops the replica, or what it does with state; only the first call counts, of each.
//
// Without state the log goes on: a replica that acknowledges what it has made durable, and votes, keeps
// its cluster writable while its state is brought from another member. It applies and flushes nothing,
// and takes no client's write or read.
func (r *Replica) fail(stage Stage, err error) {
	f := &FailedError{Stage: stage, Err: err}
	if stage == StageState {
		if r.failed.Load() != nil || !r.stateless.CompareAndSwap(nil, f) {
			return
		}
		r.inbox.put(stateFailed{})
	} else {
		if !r.failed.CompareAndSwap(nil, f) {
			return
		}
		r.halt()
	}
	r.logger.Error("replica failed closed",
		slog.Any("group", r.opts.Group), slog.String("stage", string(stage)), slog.Any("err", err))
	if r.opts.Observe.OnFail != nil {
		r.opts.Observe.OnFail(f)
	}
}

// stateFailed tells the loop that stateless is set.
type stateFailed struct{}

// endState answers everybody who waits for something that needs state.
func (r *Replica) endState() {
	cause := r.stateless.Load()
	r.queue.close(cause)
	r.settlePending(cause)
	r.reads.close(cause)
	r.applied.close(cause)
	r.step(consensus.Input{LastResort: true})
}

// settlePending answers whoever waits for an entry that was proposed here.
func (r *Replica) settlePending(cause error) {
	for token, b := range r.loop.pending {
		delete(r.loop.pending, token)
		if mutantCloseRefuses {
			b.settle(ErrClosed)
			continue
		}
		b.settle(&UnknownOutcomeError{Cause: cause})
	}
}

func (r *Replica) halt() { r.stopOnce.Do(func() { close(r.stop) }) }

// stopped reports whether the replica was closed or failed.
func (r *Replica) stopped() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

// cause is why the replica stopped.
func (r *Replica) cause() error {
	if f := r.failed.Load(); f != nil {
		return f
	}
	return ErrClosed
}

// end answers everybody who waits. REQUIRES: the loop has ended, or never ran.
func (r *Replica) end() {
	r.endOnce.Do(func() {
		cause := r.cause()
		r.queue.close(cause)
		for _, e := range r.inbox.close() {
			switch e := e.(type) {
			case *Change:
				e.write.settle(Result{}, cause)
			case *transfer:
				e.settle(cause)
			case ask:
				close(e)
			}
		}
		r.settlePending(cause)
		if r.loop.transfer != nil {
			r.endTransfer(r.loop.transfer, cause)
		}
		r.reads.close(cause)
		r.applied.close(cause)
		r.publish()
	})
}

// Transfer asks for leadership to move to a member. Whether it did is seen in Status.
func (r *Replica) Transfer(to ident.MemberID) { r.inbox.put(consensus.Input{Transfer: to}) }

// Campaign asks for leadership without waiting for a timeout, where no leader is known.
func (r *Replica) Campaign() { r.inbox.put(consensus.Input{Campaign: true}) }

// Check has the members compare the digests of their states: it appends a check, if this replica leads.
// Nobody waits for it. trusted is as of command.EncodeCheck.
func (r *Replica) Check(trusted ident.MemberID) { r.inbox.put(checkNow{trusted}) }

// checkNow is what Check puts into the inbox.
type checkNow struct{ trusted ident.MemberID }

// LeaderLost says that the process of leader is gone. Where it leads, as far as this replica knows, it is
// forgotten, once a term: this replica votes for whoever stands in its place, and after ticks of the
// raft clock, if nobody leads then, it stands itself. A heartbeat of that leader afterwards means that it
// lives, and undoes this.
func (r *Replica) LeaderLost(leader ident.MemberID, ticks int) {
	r.inbox.put(leaderLost{leader, ticks})
}

// SnapDone ends what OnStage began for peer.
func (r *Replica) SnapDone(peer ident.MemberID, ok bool) {
	r.inbox.put(consensus.Input{SnapDone: &consensus.SnapDone{Peer: peer, OK: ok}})
}

// Receive takes messages of peers, whose sender and group the caller has checked. It never blocks;
// what does not fit is dropped and counted, and raft sends it again. The messages are read-only from
// here on.
func (r *Replica) Receive(msgs []*pb.Message) {
	d := delivery{msgs: msgs}
	for _, m := range msgs {
		d.bytes += messageBytes(m)
	}
	if r.received.Add(d.bytes) > r.opts.Limits.ReceiveBytes || !r.inbox.put(d) {
		r.received.Add(-d.bytes)
		r.metrics.dropped.Add(float64(len(msgs)))
	}
}

// delivery is what one Receive brought.
type delivery struct {
	msgs  []*pb.Message
	bytes int64
}

// messageBytes is about what m holds in memory.
func messageBytes(m *pb.Message) int64 {
	n := 256
	for _, e := range m.GetEntries() {
		n += 96 + len(e.GetData())
	}
	return int64(n)
}

// recoverClock moves the clock to the newest stamp, that of state or of an entry that is not in state
// yet: stamps never fall along a log.
func (l *loop) recoverClock(log Log, pos state.Position) error {
	l.clock.Advance(pos.Stamp)
	for i := log.LastIndex(); i > pos.Applied.Index; i-- {
		ents, err := log.Entries(i, i+1, 0)
		if err != nil {
			return fmt.Errorf("read entry %d for its stamp: %w", i, err)
		}
		if stamp, ok := command.StampOf(ents[0].GetData()); ok {
			l.clock.Advance(stamp)
			return nil
		}
	}
	return nil
}

// Load returns how many entries with writes of clients were answered so far, how long that took from their
// proposal, added up, and how many are proposed and not answered.
func (r *Replica) Load() (answered uint64, took time.Duration, waiting int) {
	return uint64(r.load.answered.Load()), time.Duration(r.load.took.Load()), int(r.load.waiting.Load())
}

// Durable returns the last entry that is durable here: at least everything that this replica has
// acknowledged to anybody.
func (r *Replica) Durable() ident.EntryID {
	r.durable.Lock()
	defer r.durable.Unlock()
	return r.durable.last
}

// View returns a consistent view of state. The caller closes it.
func (r *Replica) View() *state.View { return r.opts.State.NewView() }

// withVote returns the log's hard state with the term and vote of the votes, which are written first
// and so never behind: ahead after a crash between the two, and after the log was replaced.
func withVote(hs *pb.HardState, v datadir.Vote) (*pb.HardState, error) {
	log := datadir.Vote{Term: hs.GetTerm(), Vote: hs.GetVote()}
	if v.Term < log.Term || v.Term == log.Term && log.Vote != 0 && v.Vote != log.Vote {
		return nil, &VotesBehindError{Log: log, Votes: v}
	}
	return &pb.HardState{Term: new(v.Term), Vote: new(v.Vote), Commit: new(hs.GetCommit())}, nil
}
