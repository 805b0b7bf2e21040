package member

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/snapshot"
)

const (
	// keepEvery is how often a keeper looks after its log, and how long it waits before it tries a
	// reseed again that did not succeed.
	keepEvery = time.Second
	// reprobe is how many rounds of its keeper a leader waits for a peer that was told to fetch an artifact
	// and does not, before raft tries it again: the message may have been lost, and nothing else is sent
	// meanwhile. Telling it once more costs two messages, and whoever is at it already goes on.
	reprobe = 2
	// sourcePatience is how many attempts in a row to fetch an artifact from the leader may bring nothing,
	// before others are asked: the leader's own copy may be what is bad.
	sourcePatience = 2
)

// Retention is how much of the log is kept for those who are behind, and how artifacts are served to
// those who are further behind. 0: the default.
type Retention struct {
	LogBytes     int64         // the log is not dropped below this; 256 MiB
	PinBytes     int64         // nor kept beyond this for the sake of others; 4 GiB
	PinAge       time.Duration // likewise; 30 min
	ArtifactTTL  time.Duration // how long an artifact is offered again; 10 min
	Rate         int64         // bytes of artifacts a second; 0: unlimited
	MaxTransfers int           // at a time, of one group; 2
}

func (r Retention) withDefaults() Retention {
	if r.LogBytes == 0 {
		r.LogBytes = 256 << 20
	}
	if r.PinBytes == 0 {
		r.PinBytes = 4 << 30
	}
	r.PinBytes = max(r.PinBytes, r.LogBytes)
	return r // the rest are defaults of package snapshot
}

// keeper looks after the data of one group beside its replica: it drops the head of the log, and
// carries out a reseed. It outlives the replica, which it closes and opens. One goroutine runs it; the
// fields above mu are its own.
//
// Lock order: Member.mu -> mu. Nothing that holds mu asks the member anything.
type keeper struct {
	m       *Member
	group   ident.GroupID
	cluster ident.ClusterID
	files   *datadir.Group
	wake    chan struct{} // capacity 1

	recoveries chan *recovery // taken by run
	checks     checks
	permits    permits
	scrubs     scrubs
	// newest is the newest check that was seen applied here; unchecked counts the rounds since, or since
	// one was proposed.
	newest    uint64
	unchecked int
	tries     int // checks in a row for members that wait for one still
	// unresolved is the check at which it could last not be told whose state is right; 0: it can.
	unresolved uint64
	// booted: what is latched was found at the start of this process, which allows it as an operator does.
	booted, loaded bool
	// keeping is held by whoever moves or removes kept data.
	keeping sync.Mutex

	// ended is cancelled by end; running is held while run runs.
	ended   context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	// barrier was given for a replica that is closed since. Any opening makes it void. nil: none.
	barrier *ident.EntryID
	// stuck counts the attempts in a row that brought no byte of an artifact, or one that was not sound and was
	// thrown away; unfit the artifacts in a row that were installed and did not open. Each attempt is one of them
	// at most: counted twice, the turn would pass over every other member.
	stuck, unfit int
	// failed: the last attempt at a reseed did, since the last beat.
	failed bool
	// complained is the last failure that was logged.
	complained string

	mu struct {
		sync.Mutex
		news     bool           // something happened that a reseed may depend on, and was not looked at yet
		asked    bool           // the leader sent a snapshot message that was not looked at yet
		fence    *RefusedError  // a peer will not hear this member: it is latched, or to be; nil: none said so
		ordered  bool           // an operator wants the reseed that is latched
		from     ident.MemberID // whom the operator wants it from; 0: whoever leads
		phase    ReseedPhase    // of what is latched
		failure  string         // why the last attempt did not succeed
		refused  string         // why what is latched waits; empty: it does not
		inARow   int            // reseeds since the state was verified last
		installs uint64         // since the process started
		kept     []datadir.Kept
		latched  *datadir.Reseed // nil: no reseed is
		fetcher  *snapshot.Fetcher
		since    time.Time              // when fetcher began
		wanting  map[ident.MemberID]int // peers that raft wants an artifact for: rounds that passed since
	}
}

// newKeeper makes the keeper of a group of a member that belongs to a cluster.
func (m *Member) newKeeper(gid ident.GroupID) *keeper {
	k := &keeper{
		m: m, group: gid, cluster: m.identity().Cluster, files: m.opts.Dir.Group(gid),
		wake: make(chan struct{}, 1), recoveries: make(chan *recovery),
	}
	k.ended, k.cancel = context.WithCancel(context.Background())
	k.mu.wanting = map[ident.MemberID]int{}
	return k
}

// end has run return, and waits for it.
func (k *keeper) end() {
	k.cancel()
	k.running.Wait()
}

// run looks after the group until ctx ends, or end is called.
func (k *keeper) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(k.ended, cancel)()
	pulse := k.m.beat.Every(keepEvery)
	defer pulse.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pulse.C:
			pulse.Took()
			k.keepLog()
			k.checkRound()
			k.failed = false
		case <-k.wake:
			k.judgeSelf()
		case r := <-k.recoveries:
			r.out, r.err = k.recover(r.plan)
			close(r.done)
		}
		if k.triesReseed() {
			k.tryReseed(ctx)
		}
	}
}

// poke has the keeper look at what happened, which may be about a reseed. It does not block.
func (k *keeper) poke() {
	k.mu.Lock()
	k.mu.news = true
	k.mu.Unlock()
	k.look()
}

// look has the keeper look at what members report. It does not block.
func (k *keeper) look() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// triesReseed reports whether it is time for an attempt. After one that failed the next beat is waited for,
// unless something happened since: every member reports once a second, and an attempt may cost its source a
// new artifact.
func (k *keeper) triesReseed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	news := k.mu.news
	k.mu.news = false
	return news || !k.failed
}

func (k *keeper) tryReseed(ctx context.Context) {
	err := k.reseed(ctx)
	k.failed = err != nil
	k.note(err)
	if err != nil && ctx.Err() == nil {
		k.complain(err)
	}
}

// complain logs err, unless it is the last one again.
func (k *keeper) complain(err error) {
	if text := err.Error(); text != k.complained {
		k.complained = text
		k.m.log.Warn("reseed not carried out", slog.Any("group", k.group), slog.Any("err", err))
	}
}

// ask takes note that the leader has compacted what this replica needs. It does not block.
func (k *keeper) ask(consensus.Reseed) {
	k.mu.Lock()
	k.mu.asked = true
	k.mu.Unlock()
	k.poke()
}

// checked takes what the state here added up to. It does not block.
func (k *keeper) checked(all []*apply.Check) {
	k.checks.applied(all)
	k.look()
}

// want takes note of peers that raft sends nothing to before they have installed an artifact.
func (k *keeper) want(peers []ident.MemberID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range peers {
		k.mu.wanting[p] = 0
	}
}

// opened has raft try a peer again whose replica was opened. It never asks for the state of anything:
// a peer that still needs an artifact is told so again.
func (g *group) opened(peer ident.MemberID) {
	g.keeper.mu.Lock()
	delete(g.keeper.mu.wanting, peer)
	g.keeper.mu.Unlock()
	g.replica.SnapDone(peer, !mutantSnapshotFailure)
}

// KeepLogs is what a started member does again and again: it drops what no one needs of its logs.
func (m *Member) KeepLogs() {
	for _, k := range m.keepers() {
		k.keepLog()
	}
}

func (m *Member) keepers() []*keeper {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make([]*keeper, 0, len(m.mu.groups))
	for _, g := range m.mu.groups {
		all = append(all, g.keeper)
	}
	return all
}

// sound returns the group if its replica is open, and nil otherwise.
func (m *Member) sound(gid ident.GroupID) *group {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if g := m.mu.groups[gid]; g != nil && g.replica != nil && g.quarantine == nil {
		return g
	}
	return nil
}

// keepLog drops the head of the log as far as it may.
func (k *keeper) keepLog() {
	g := k.m.sound(k.group)
	if g == nil {
		return
	}
	s := g.replica.Status()
	r := snapshot.Retention{
		First:   g.log.FirstIndex(),
		Flushed: g.store.FlushedIndex(),
		Size:    g.log.KeepFrom(k.m.retention.LogBytes),
		Cap:     g.log.KeepFrom(k.m.retention.PinBytes),
	}
	f := snapshot.Following{Cap: r.Cap}
	if s.State == raft.StateLeader {
		f.Match = map[ident.MemberID]uint64{}
		for _, p := range s.Progress {
			f.Match[p.ID] = 0
			if p.Active && p.State == tracker.StateReplicate {
				f.Match[p.ID] = p.Match
			}
			if p.Active {
				r.Live = append(r.Live, p.Match)
			}
		}
		k.reprobe(g, s.Progress)
	}
	r.Pinned = g.stager.Pinned(f)
	if r.Size > r.Flushed+1 {
		// What is not flushed is all that holds it back. An error of it is told to the replica.
		if flushed, err := g.store.Flush(); err == nil {
			r.Flushed = flushed
		}
	}
	keep := r.Keep()
	if keep <= r.First {
		return
	}
	if err := g.log.DropHead(keep); err != nil {
		k.m.log.Error("log not compacted", slog.Any("group", k.group), slog.Any("err", err))
		return
	}
	base := g.log.Base().Index
	if base+1 == r.First {
		return
	}
	g.replica.Compacted(base)
	k.m.log.Info("log compacted", slog.Any("group", k.group), slog.Uint64("first", base+1), slog.Uint64("dropped", base+1-r.First))
}

// reprobe has raft try peers again that it waits for in vain.
func (k *keeper) reprobe(g *group, peers []consensus.Progress) {
	for _, p := range k.overdue(peers, g.stager.Serves) {
		g.opened(p)
	}
}

// overdue counts a round for the peers that raft waits for, and returns those of them that were to fetch an
// artifact for so long and are not served.
func (k *keeper) overdue(peers []consensus.Progress, serves func(ident.MemberID) bool) (late []ident.MemberID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range peers {
		if p.State != tracker.StateSnapshot || !p.Active || serves(p.ID) {
			continue
		}
		if k.mu.wanting[p.ID]++; k.mu.wanting[p.ID] > reprobe {
			late = append(late, p.ID)
		}
	}
	return late
}

// ReseedStatus is a reseed that is latched.
type ReseedStatus struct {
	Reason  string
	Since   time.Time
	Phase   ReseedPhase
	Refused string // why it waits: the leader's word, or that an operator has to give his; empty: it does not
	InARow  int    // reseeds since the state was verified last
	Failure string // of the last attempt; empty: none, or it is under way
}

// InstallStatus is an artifact on its way in.
type InstallStatus struct {
	Bytes, Total int64
	Rate         int64 // bytes a second since it began
}

// status returns what is latched and under way; nil: nothing.
func (k *keeper) status() (*ReseedStatus, *InstallStatus) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var r *ReseedStatus
	if l := k.mu.latched; l != nil && latchedFence(l.Reason) == "" {
		r = &ReseedStatus{Reason: l.Reason, Since: time.UnixMilli(l.Since), Phase: k.mu.phase, Refused: k.mu.refused, InARow: k.mu.inARow, Failure: k.mu.failure}
	}
	if k.mu.fetcher == nil {
		return r, nil
	}
	i := &InstallStatus{}
	i.Bytes, i.Total = k.mu.fetcher.Progress()
	if took := time.Since(k.mu.since).Seconds(); took > 0 {
		i.Rate = int64(float64(i.Bytes) / took)
	}
	return r, i
}

// errNoLeader: there is nobody to fetch from.
var errNoLeader = errors.New("no leader is known")
