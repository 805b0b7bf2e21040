package member

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/raft/v3"

	"github.com/tidaldb/tidal/daemon/beat"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/outbox"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/replica"
	"github.com/tidaldb/tidal/daemon/snapshot"
	"github.com/tidaldb/tidal/daemon/state"
	"github.com/tidaldb/tidal/daemon/wal"
)

// Network is what a member needs of the transport. *peer.Network implements it.
type Network interface {
	replica.Network
	// SetPeers replaces the dial table.
	SetPeers(peers []peer.Peer)
	// Probe asks the member at addr what it is.
	Probe(ctx context.Context, addr string, req peer.ProbeRequest) (peer.ProbeReply, error)
	// FetchSnapshot asks the member at addr for an artifact; the stream is nil where none is needed.
	FetchSnapshot(ctx context.Context, addr string, r peer.SnapshotRequest) (peer.SnapshotHeader, *peer.SnapshotStream, error)
	// Barrier asks the leader at addr up to where its log has what this member acknowledged.
	Barrier(ctx context.Context, addr string, r peer.BarrierRequest) (peer.BarrierReply, error)
	// Permit asks the leader at addr whether a voter may close its replica to have its data replaced.
	Permit(ctx context.Context, addr string, r peer.PermitRequest) (peer.PermitReply, error)
	// SendOutbox hands a delivery of an outbox to the leader at addr.
	SendOutbox(ctx context.Context, addr string, r peer.OutboxRequest) error
	// Opened tells a peer that replicas were opened anew. It does not block.
	Opened(to ident.MemberID, groups []peer.GroupPosition)
	// Report has every peer told what Reports returns. It does not block.
	Report()
	// Farewell tells the member at addr that it is removed, and returns nil once it has written that down.
	Farewell(ctx context.Context, addr string, r peer.FarewellRequest) error
}

// Options configures New. Every field without a remark is required.
type Options struct {
	Dir     *datadir.Dir // open; the member uses it, its owner closes it after Stop
	DataDir string       // its path, for messages
	FS      vfs.FS

	Name     string
	GRPCAddr string // advertised
	HTTPAddr string // advertised

	// Declared are the members of the topology file in its order: names and addresses, no ids. It
	// holds this member too; empty: no file declares it, and it only ever joins.
	Declared []membership.Declared
	Topology [32]byte // digest of that list
	// Join is for a member that no file declares, whose Declared is empty, or that lost its disk.
	Join JoinOptions

	Tick           time.Duration // of the raft clock
	Beat           beat.Beat     // what everything that is done again and again keeps to; zero: one of its own
	HeartbeatTicks int
	ElectionTicks  int

	// Sizes of the log's segments. 0: by the size of the disk, see segmentBytes, and the default of
	// package wal.
	SegmentBytes, FirstSegmentBytes int64

	Retention Retention         // may be zero
	Scrub     Scrub             // may be zero
	Policy    membership.Policy // zero: membership.DefaultPolicy

	// ManualReseed has a latched reseed wait for Reseed, or for the next start. ReseedWindow is how long a
	// voter may stay closed for an install; 0: 30 s.
	ManualReseed bool
	ReseedWindow time.Duration

	// MaxDrift is how far the clock of a peer may be from this member's before it is told of. 0: 500 ms.
	MaxDrift time.Duration

	// OutboxBytes bounds the writes that wait for the log to take them over; OutboxRetention is how long
	// the log remembers what it took over of a member that was removed. 0: the default of package outbox,
	// and 7 days.
	OutboxBytes     int64
	OutboxRetention time.Duration
	Rand            io.Reader // for what must be unique; nil: the operating system's

	// Foreground has nothing run beside the caller: see Drive.
	Foreground bool
	Limits     replica.Limits // may be zero

	// OnFatal is told, once, that this process cannot go on and should end, so that another one tries: the
	// disk failed before the member was born. nil: nobody is told.
	OnFatal func(error)

	Version string
	Now     func() time.Time      // wall time, for stamps and for status
	Logger  *slog.Logger          // nil: silent
	Metrics prometheus.Registerer // nil: kept, not exported
	Journal *journal.Journal      // gets what this member sees happen; nil: kept for nobody
}

// Phase is what a member is doing.
type Phase string

// The phases, in the order a member goes through them.
const (
	PhaseWaiting Phase = "waiting" // for its cluster to be born
	PhaseJoining Phase = "joining" // a cluster that exists
	PhaseServing Phase = "serving" // its groups are open, or quarantined
	PhaseRemoved Phase = "removed" // it belongs to its cluster no more
	PhaseStopped Phase = "stopped"
)

// ErrNotBorn refuses a request to a member whose cluster does not exist yet.
var ErrNotBorn = errors.New("the cluster is not born yet")

// ErrJoining refuses a request to a member that is not one of its cluster's yet.
var ErrJoining = errors.New("this member has not joined its cluster yet")

// ErrNoGroup refuses a request for a group that this member does not hold.
var ErrNoGroup = errors.New("no such group on this member")

// QuarantinedError refuses a request to a replica whose data must not be served.
type QuarantinedError struct {
	Group      ident.GroupID
	Quarantine Quarantine
}

func (e *QuarantinedError) Error() string {
	return fmt.Sprintf("group %s is quarantined (%s): %s", e.Group, e.Quarantine.Cause, e.Quarantine.Detail)
}

// Member is one member. Its methods are safe for concurrent use.
type Member struct {
	opts      Options
	retention Retention // of opts, with its defaults
	log       *slog.Logger
	started   time.Time
	beat      beat.Beat // of everything that is done again and again
	metrics   *metrics
	net       Network // set by Start, as is box
	policy    membership.Policy
	contacts  *contacts
	hearing   hearing
	registrar *registrar

	// dialling is held by whoever switches the dial table. Lock order: dialling -> mu.
	dialling sync.Mutex
	box      *outbox.Box
	delivery delivery

	process  uint64 // drawn at every start, never 0: what peers tell two processes of one identity by
	promises promises

	mu struct {
		sync.RWMutex
		identity datadir.Member
		phase    Phase
		waiting  []membership.Waiting      // empty: for nobody
		roster   membership.Roster         // zero before birth
		rosterAt uint64                    // it is that of the state at this index
		hints    map[ident.MemberID]string // who is dialled although the roster does not know it
		removed  *datadir.Removed          // nil: this member belongs to its cluster
		toldBy   *peer.Refusal             // says that it does not, and was not looked at yet; nil: none
		groups   map[ident.GroupID]*group
		booted   map[ident.GroupID]peer.GroupPosition // each group as this process opened it first
		ready    bool                                 // sticky within one boot
		disk     Disk                                 // zero where the file system does not say
		// connected are the peers whose stream is open.
		connected map[ident.MemberID]bool
		clocks    map[ident.MemberID]clockNote // of peers that answered a ping
		// standFirst: this member made the cluster in this boot, or is alone, and nobody has led yet.
		standFirst bool
		// seeds are whom to ask for a cluster to join, rejoin what to say.
		seeds  []string
		rejoin bool
	}

	life context.Context // of what Start began

	invited chan struct{} // capacity 1: seeds has changed
	joiner  joiner

	stop context.CancelFunc
	done sync.WaitGroup
}

// group is one opening of a replica: open, quarantined, or closed for an install. Only quarantine
// changes after others can see it.
type group struct {
	id         ident.GroupID
	keeper     *keeper          // the same for all openings
	replica    *replica.Replica // nil: closed
	log        *wal.Log         // as long as replica is open, as are store and stager
	store      *state.Store
	stager     *snapshot.Stager
	closeState func() error // stager and state, after the replica; nil: not open
	closeLog   func() error // after it; nil: not open
	endScrub   func()       // before both; nil: not open
	quarantine *Quarantine  // nil: sound
	bornNow    bool         // made in this boot: ready only after it caught up once
}

// New makes a member of an open data directory. It starts nothing.
func New(opts Options) *Member {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Journal == nil {
		opts.Journal = journal.New(journal.Options{})
	}
	if opts.Beat == (beat.Beat{}) {
		opts.Beat = beat.New()
	}
	opts.MaxDrift = cmp.Or(opts.MaxDrift, 500*time.Millisecond)
	if opts.OutboxRetention == 0 {
		opts.OutboxRetention = defaultOutboxRetention
	}
	m := &Member{opts: opts, delivery: newDelivery(), retention: opts.Retention.withDefaults(), log: opts.Logger, started: opts.Now(), beat: opts.Beat}
	m.mu.identity = opts.Dir.Member()
	m.mu.phase = PhaseWaiting
	m.mu.groups = map[ident.GroupID]*group{}
	m.mu.booted = map[ident.GroupID]peer.GroupPosition{}
	m.mu.connected = map[ident.MemberID]bool{}
	m.mu.hints = map[ident.MemberID]string{}
	if m.policy = opts.Policy; m.policy == (membership.Policy{}) {
		m.policy = membership.DefaultPolicy()
	}
	m.contacts, m.registrar = newContacts(), newRegistrar(m)
	m.mu.clocks = map[ident.MemberID]clockNote{}
	m.promises.wake = make(chan struct{}, 1)
	m.promises.mu.refused = map[ident.MemberID]uint64{}
	m.loadPromises()
	m.process = drawProcess()
	m.mu.seeds, m.mu.rejoin = opts.Join.Seeds, opts.Join.Rejoin
	m.invited = make(chan struct{}, 1)
	m.metrics = newMetrics(opts.Metrics, m)
	return m
}

// Start opens the groups of an initialised member, or begins to look for the cluster of a fresh
// one, and returns. net must be ready to dial; m must already be its handler.
func (m *Member) Start(net Network) error {
	m.net = net
	if err := m.openOutbox(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.life, m.stop = ctx, cancel
	m.measureDisk() // the sizes of the log's segments depend on it
	m.done.Go(func() { m.runDelivery(ctx) })
	m.done.Go(func() { m.watchDisk(ctx) })
	m.done.Go(func() { m.watchLead(ctx) })
	m.done.Go(func() { m.registrar.run(ctx) })
	m.done.Go(func() { m.keepPromises(ctx) })
	id := m.identity()
	m.opts.Journal.Add(journal.Started{Boot: id.BootEpoch, Version: m.opts.Version})
	switch removed, err := m.wasRemoved(); {
	case removed || err != nil:
		return err
	case id.ID != 0:
		return m.resume(ctx, id)
	case len(m.opts.Declared) == 1 && len(m.opts.Join.Seeds) == 0: // asks nobody: it is born when Start returns
		if serves, err := m.seekCluster(ctx); serves || err != nil {
			return err
		}
	}
	if seeds, _ := m.invitation(); m.joins() && len(seeds) == 0 {
		m.waitForInvitation() // before anybody can ask what it waits for
	}
	m.done.Go(func() { m.findCluster(ctx) })
	return nil
}

// Stop closes every group and waits for everything Start began. It is idempotent.
func (m *Member) Stop() error {
	if m.stop != nil {
		m.stop()
	}
	m.done.Wait()
	m.mu.Lock()
	groups := m.takeGroupsLocked()
	m.mu.phase = PhaseStopped
	m.mu.Unlock()
	var errs []error
	for _, g := range groups {
		errs = append(errs, g.shut())
	}
	if m.box != nil {
		errs = append(errs, m.box.Close())
	}
	return errors.Join(errs...)
}

func (g *group) shut() error {
	var errs []error
	if g.replica != nil {
		errs = append(errs, g.replica.Close())
	}
	state, log := g.closeFiles()
	if err := errors.Join(append(errs, state, log)...); err != nil {
		return fmt.Errorf("close group %s: %w", g.id, err)
	}
	return nil
}

// closeFiles closes what is open of a group whose replica is not.
func (g *group) closeFiles() (state, log error) {
	if g.endScrub != nil {
		g.endScrub()
	}
	if g.closeState != nil {
		state = g.closeState()
	}
	if g.closeLog != nil {
		log = g.closeLog()
	}
	g.endScrub, g.closeState, g.closeLog = nil, nil, nil
	return state, log
}

// serve opens every group this member holds. bornNow says that the cluster was born in this boot.
// What looks after them ends with ctx.
func (m *Member) serve(ctx context.Context, id datadir.Member, bornNow bool) {
	for _, gid := range id.Groups {
		m.serveGroup(ctx, m.newKeeper(gid), id, bornNow, nil)
	}
	m.nowServing(id, bornNow)
	if m.mayStand() && !m.opts.Foreground {
		m.done.Go(func() { m.standUntilLed(ctx) })
	}
}

// serveGroup opens one group, whose state must satisfy verify.
func (m *Member) serveGroup(ctx context.Context, k *keeper, id datadir.Member, bornNow bool, verify func(*state.Store) error) *group {
	g := m.openGroup(k, id, verify)
	g.bornNow = bornNow
	m.admit(g)
	if !m.opts.Foreground {
		k.running.Add(1)
		m.done.Go(func() {
			defer k.running.Done()
			k.run(ctx)
		})
	}
	return g
}

func (m *Member) nowServing(id datadir.Member, bornNow bool) {
	m.mu.Lock()
	m.mu.phase = PhaseServing
	m.mu.waiting = nil
	m.mu.standFirst = bornNow && id.ID == firstMember || len(m.mu.roster.Members) == 1
	m.mu.Unlock()
	m.maybeStand()
}

// PeerChanged is told when a peer was connected or lost.
func (m *Member) PeerChanged(p peer.PeerStatus) {
	m.mu.Lock()
	known := m.mu.connected[p.ID]
	if p.Connected {
		m.mu.connected[p.ID] = true
	} else {
		delete(m.mu.connected, p.ID)
	}
	m.mu.Unlock()
	if p.Connected {
		m.accepted(p.ID)
	}
	m.noteReached(p)
	m.heedRefusal(p.Refusal)
	m.recordPeer(p, known)
	m.heed(p)
	m.maybeStand()
}

// maybeStand stands for leader where no timeout need pass first: a member that is alone has nobody to
// wait for, and in the hour of its birth a cluster has no leader whom anybody could miss, so the
// member that made it stands as soon as a majority can hear it. What it says is lost on who has not opened
// its group yet, so it stands again until somebody leads.
func (m *Member) maybeStand() {
	m.mu.RLock()
	g := m.mu.groups[0]
	heard := len(m.mu.connected)+1 >= membership.Majority(len(m.mu.roster.Members))
	m.mu.RUnlock()
	if heard && m.mayStand() && g != nil && g.replica != nil && g.replica.Status().State != raft.StateCandidate {
		g.replica.Campaign()
	}
}

// mayStand reports whether this member is the one that stands first, and nobody has led yet.
func (m *Member) mayStand() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if g := m.mu.groups[0]; m.mu.standFirst && g != nil && g.replica != nil && g.replica.Status().Leader != 0 {
		m.mu.standFirst = false
	}
	return m.mu.standFirst
}

// standUntilLed stands again with every tick.
func (m *Member) standUntilLed(ctx context.Context) {
	pulse := m.beat.Every(m.opts.Tick)
	defer pulse.Stop()
	for m.mayStand() {
		select {
		case <-ctx.Done():
			return
		case <-pulse.C:
			pulse.Took()
			m.maybeStand()
		}
	}
}

// Replica returns the open replica of g, or ErrNotBorn, ErrNoGroup or a *QuarantinedError.
func (m *Member) Replica(gid ident.GroupID) (*replica.Replica, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	g, ok := m.mu.groups[gid]
	switch {
	case ok && g.quarantine != nil:
		return nil, &QuarantinedError{Group: gid, Quarantine: *g.quarantine}
	case ok && g.replica != nil:
		return g.replica, nil
	case ok:
		return nil, ErrInstalling
	case m.mu.phase == PhaseWaiting:
		return nil, ErrNotBorn
	case m.mu.phase == PhaseRemoved:
		return nil, ErrRemoved
	case m.mu.phase == PhaseJoining:
		return nil, ErrJoining
	default:
		return nil, ErrNoGroup
	}
}

// current returns a group as it is now; nil where this member does not hold it.
func (m *Member) current(gid ident.GroupID) *group {
	m.mu.RLock()
	defer m.mu.RUnlock()
	g := m.mu.groups[gid]
	if g == nil {
		return nil
	}
	now := *g
	return &now
}

// position is how far an open replica is durable, at least as far as it has told anybody. The term is
// read last, for it is never behind the log.
func (m *Member) position(g *group) peer.GroupPosition {
	last := g.replica.Durable()
	return peer.GroupPosition{Group: g.id, LastDurable: last, Term: m.opts.Dir.Vote(g.id).Term}
}

// drawProcess names a start of this process; never 0.
func drawProcess() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:]) | 1
}

// Roster returns the membership as applied; the zero Roster before birth.
func (m *Member) Roster() membership.Roster {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mu.roster
}

// Declared returns the members of the topology file, in its order, without ids.
func (m *Member) Declared() []membership.Member {
	all := make([]membership.Member, 0, len(m.opts.Declared))
	for _, d := range m.opts.Declared {
		all = append(all, membership.Member{Name: d.Name, GRPCAddr: d.GRPCAddr, HTTPAddr: d.HTTPAddr, Role: membership.RoleVoter})
	}
	return all
}

func (m *Member) identity() datadir.Member {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mu.identity
}
