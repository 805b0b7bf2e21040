package member

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/replica"
	"github.com/tidaldb/tidal/daemon/snapshot"
	"github.com/tidaldb/tidal/daemon/state"
	"github.com/tidaldb/tidal/daemon/wal"
)

// openGroup opens the log, the state and the replica of a group from its current generation, whose
// state must satisfy verify; nil: any will do. It always returns a group: one that cannot be trusted
// comes back quarantined, with its files as they were.
func (m *Member) openGroup(k *keeper, id datadir.Member, verify func(*state.Store) error) *group {
	k.endFetch() // opening removes what was not installed
	g := &group{id: k.group, keeper: k}
	if err := m.tryOpen(g, id, verify); err != nil {
		err = errors.Join(err, g.abandon(m))
		m.onFail(g, err) // the store may be reporting its own failure meanwhile
	}
	return g
}

// abandon closes whatever was opened of a group that did not open as a whole. Nothing of it takes part, not
// even where its log is sound: it has no log any more.
func (g *group) abandon(m *Member) error {
	m.mu.Lock()
	r := g.replica
	g.replica = nil
	m.mu.Unlock()
	var err error
	if r != nil {
		err = r.Close()
	}
	state, log := g.closeFiles()
	return errors.Join(err, state, log)
}

func (m *Member) tryOpen(g *group, id datadir.Member, verify func(*state.Store) error) error {
	files := g.keeper.files
	g.keeper.checks.opened()
	if err := g.keeper.load(); err != nil {
		return err
	}
	if err := g.keeper.refusedBefore(); err != nil {
		return err
	}
	gen, ok, err := files.Current()
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("group %s has no current generation", g.id)
	}
	// Also where what follows fails: an artifact that is fetched then needs the room.
	if err := files.RemoveIncoming(); err != nil {
		return err
	}
	reg := m.opts.Metrics
	logOptions := m.logOptions(g.id, files.LogDir(gen))
	logOptions.Metrics = reg
	log, recovered, err := wal.Open(logOptions)
	if is[*wal.CorruptError](err) && mutantUnsoundLogVotes {
		log, recovered, err = m.beginLogAnew(logOptions, files.StateDir(gen))
	}
	if err != nil {
		return err
	}
	g.closeLog = log.Close
	store, err := state.Open(state.Options{FS: m.opts.FS, Dir: files.StateDir(gen), Logger: m.log, Metrics: reg, Foreground: m.opts.Foreground, OnFatal: func(err error) { m.onStateFatal(g, err) }})
	if err != nil {
		return &stateError{err}
	}
	g.closeState = store.Close
	if verify == nil && g.keeper.unproved(gen) {
		verify = prove
	}
	if verify != nil {
		if err := verify(store); err != nil {
			return &stateError{err}
		}
	}
	machine, err := apply.New(store)
	if err != nil {
		return &stateError{err}
	}
	if g.id == 0 {
		roster, err := rosterOf(store)
		if err != nil {
			return &stateError{err}
		}
		m.applyRoster(store.Position().Applied.Index, roster)
	}
	if g.id == surface {
		if err := m.noteDelivered(store); err != nil {
			return &stateError{err}
		}
	}
	stager, err := m.newStager(g, id, store)
	if err != nil {
		return err
	}
	g.log, g.store, g.stager = log, store, stager
	g.closeState = func() error {
		stager.Close()
		return store.Close()
	}
	r, err := replica.Open(replica.Options{
		Group: g.id, Self: id.ID,
		Log: log, Recovered: recovered, Votes: m.opts.Dir, State: store, Apply: machine, Net: m.net,
		Tick: m.opts.Tick, Beat: m.beat, HeartbeatTicks: m.opts.HeartbeatTicks, ElectionTicks: m.opts.ElectionTicks,
		Now: m.opts.Now, Limits: m.opts.Limits, Logger: m.log, Metrics: reg,
		Observe: replica.Observer{
			OnRole:   m.watchRole(g.id),
			OnRoster: m.applyRoster,
			OnConf: func() {
				m.net.Report()
				m.registrar.poke()
			},
			OnDeliver: m.onDeliver,
			OnReseed:  g.keeper.ask,
			OnChecks:  g.keeper.checked,
			OnStage:   g.keeper.want,
			OnFail:    func(err error) { m.onFail(g, err) },
		},
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	g.replica = r
	m.mu.Unlock()
	g.restore(m)
	// Only now: the current generation opened.
	if err := g.keeper.settle(gen); err != nil {
		return err
	}
	return files.Clean()
}

func (m *Member) newStager(g *group, id datadir.Member, store *state.Store) (*snapshot.Stager, error) {
	r := m.retention
	return snapshot.NewStager(snapshot.StagerOptions{
		FS: m.opts.FS, Dir: g.keeper.files.ArtifactsDir(), Cluster: id.Cluster, Group: g.id, Self: id.ID, Store: store,
		TTL: r.ArtifactTTL, PinAge: r.PinAge, MaxTransfers: r.MaxTransfers, Rate: r.Rate,
		PinEnded: func(consumer ident.MemberID, index uint64) {
			m.opts.Journal.Add(journal.PinEnded{Group: g.id, ID: consumer, Name: nameOf(m.Roster(), consumer), Index: index})
		},
		Load: m.loadOf(g), Foreground: m.opts.Foreground, Now: m.opts.Now, Logger: m.log, Metrics: m.opts.Metrics,
	})
}

// loadOf returns what tells of the writes of g; nil where the clock is not the machine's.
func (m *Member) loadOf(g *group) func() snapshot.Load {
	if m.opts.Foreground {
		return nil
	}
	return func() (l snapshot.Load) {
		m.mu.RLock()
		r := g.replica
		m.mu.RUnlock()
		if r != nil {
			l.Writes, l.Took, l.Waiting = r.Load()
		}
		return l
	}
}

// closeGroup closes a replica, then its files, and leaves a closed group in their place. judge looks
// at the log in between, when nobody writes to it any more; it is not asked about a log that is not
// sound: whose replica failed, or that did not close well.
func (m *Member) closeGroup(gid ident.GroupID, judge func(*wal.Log) error) (sound bool, err error) {
	m.mu.Lock()
	old := m.mu.groups[gid]
	if old == nil {
		m.mu.Unlock()
		return false, ErrRemoved
	}
	m.mu.groups[gid] = &group{id: gid, keeper: old.keeper, quarantine: old.quarantine, bornNow: old.bornNow}
	m.mu.Unlock()
	if old.replica != nil {
		err = old.replica.Close()
	}
	m.mu.RLock()
	sound = old.takesPart() && err == nil
	m.mu.RUnlock()
	var unfit error
	if sound && judge != nil {
		unfit = judge(old.log)
	}
	stateErr, logErr := old.closeFiles()
	if err := errors.Join(err, stateErr, logErr); err != nil {
		m.log.Warn("group did not close well", slog.Any("group", gid), slog.Any("err", err))
	}
	return sound && logErr == nil, unfit
}

// admit makes a group that was opened one of this member's, and starts its replica.
func (m *Member) admit(g *group) {
	if g.replica != nil {
		g.endScrub = m.startScrubber(g)
	}
	m.mu.Lock()
	if m.mu.groups == nil { // this member was removed meanwhile
		m.mu.Unlock()
		if err := g.shut(); err != nil {
			m.log.Warn("group did not close well", slog.Any("group", g.id), slog.Any("err", err))
		}
		return
	}
	was := m.mu.groups[g.id]
	m.mu.groups[g.id] = g
	now, open := g.quarantine, g.takesPart()
	if _, known := m.mu.booted[g.id]; open && !known {
		m.mu.booted[g.id] = m.position(g)
	}
	m.mu.Unlock()
	if was != nil && was.quarantine != nil && (now == nil || now.Cause != was.quarantine.Cause) {
		m.metrics.quarantined.WithLabelValues(g.id.String(), string(was.quarantine.Cause)).Set(0)
	}
	if was != nil && was.quarantine != nil && now == nil {
		m.log.Info("quarantine ended", slog.Any("group", g.id), slog.String("cause", string(was.quarantine.Cause)))
		m.opts.Journal.Add(journal.QuarantineEnded{Group: g.id, Cause: string(was.quarantine.Cause)})
	}
	if open {
		g.replica.SetRoom(m.disk().room())
		m.startReplica(g.replica)
	}
}

func (m *Member) logOptions(gid ident.GroupID, dir string) wal.Options {
	return wal.Options{
		FS: m.opts.FS, Dir: dir, Group: gid, Logger: m.log, Foreground: m.opts.Foreground,
		SegmentBytes: cmp.Or(m.opts.SegmentBytes, m.segmentBytes()), FirstSegmentBytes: m.opts.FirstSegmentBytes,
	}
}

func rosterOf(store *state.Store) (membership.Roster, error) {
	view := store.NewView()
	defer view.Close()
	return apply.Roster(view)
}

type stateError struct{ err error }

func (e *stateError) Error() string { return "state: " + e.err.Error() }
func (e *stateError) Unwrap() error { return e.err }

// onFail closes a replica to clients and, where its log is not sound, to raft. It is called from the
// replica's own goroutines; the files stay open until it is closed.
func (m *Member) onFail(g *group, err error) {
	m.quarantine(g, causeOf(err), err.Error(), nil)
}

// onStateFatal is told by the store, from its background work too, that a write to disk failed.
func (m *Member) onStateFatal(g *group, err error) {
	m.mu.RLock()
	r := g.replica
	m.mu.RUnlock()
	if r != nil {
		r.Fail(err)
	} else {
		m.onFail(g, &stateError{err})
	}
}
