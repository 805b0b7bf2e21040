package member

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

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

// Cause says what kind of damage put a replica in quarantine (design 4.8).
type Cause string

// The causes.
const (
	CauseLogCorrupt       Cause = "log_corrupt"        // a bad record before a good one, a hole, a missing segment
	CauseLogWrite         Cause = "log_write"          // the log's writer failed: nothing more is acknowledged
	CauseStateError       Cause = "state_error"        // the state could not be read or written
	CauseCommittedMissing Cause = "committed_missing"  // the log ends before what the state holds
	CauseAmnesia          Cause = "amnesia"            // the disk went back in time, and the votes with it
	CauseVotesBehind      Cause = "votes_behind"       // the log knows a later term than the votes: an old copy
	CauseDuplicate        Cause = "duplicate_identity" // two processes live on copies of one disk
	CauseFormerHistory    Cause = "former_history"     // the cluster was recovered without this disk
	CauseUpgradeRequired  Cause = "upgrade_required"   // the log holds a record that this binary does not know
	CauseAssertion        Cause = "assertion"          // the replica contradicted itself
)

// Quarantine says why a replica is closed.
type Quarantine struct {
	Cause  Cause
	Detail string
	Since  time.Time
}

// openGroup opens the log, the state and the replica of a group from its current generation, whose
// state must satisfy verify; nil: any will do. It always returns a group: one that cannot be trusted
// comes back quarantined, with its files as they were.
func (m *Member) openGroup(k *keeper, id datadir.Member, verify func(*state.Store) error) *group {
	gid := k.group
	g := &group{id: gid, keeper: k}
	if err := m.tryOpen(g, id, verify); err != nil {
		if g.close != nil {
			err = errors.Join(err, g.close())
			g.close = nil
		}
		m.onFail(g, err) // the store may be reporting its own failure meanwhile
	}
	return g
}

func (m *Member) tryOpen(g *group, id datadir.Member, verify func(*state.Store) error) error {
	files := g.keeper.files
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
	reg := m.opts.Metrics
	logOptions := m.logOptions(g.id, files.LogDir(gen))
	logOptions.Metrics = reg
	log, recovered, err := wal.Open(logOptions)
	if err != nil {
		return err
	}
	g.close = log.Close
	store, err := state.Open(state.Options{FS: m.opts.FS, Dir: files.StateDir(gen), Logger: m.log, Metrics: reg, Foreground: m.opts.Foreground, OnFatal: func(err error) { m.onStateFatal(g, err) }})
	if err != nil {
		return &stateError{err}
	}
	g.close = func() error { return errors.Join(store.Close(), log.Close()) }
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
	stager, err := m.newStager(g, id, store)
	if err != nil {
		return err
	}
	g.log, g.store, g.stager = log, store, stager
	g.close = func() error {
		stager.Close()
		return errors.Join(store.Close(), log.Close())
	}
	r, err := replica.Open(replica.Options{
		Group: g.id, Self: id.ID,
		Log: log, Recovered: recovered, Votes: m.opts.Dir, State: store, Apply: machine, Net: m.net,
		Tick: m.opts.Tick, HeartbeatTicks: m.opts.HeartbeatTicks, ElectionTicks: m.opts.ElectionTicks,
		Now: m.opts.Now, Limits: m.opts.Limits, Logger: m.log, Metrics: reg,
		Observe: replica.Observer{
			OnRole:   m.watchRole(g.id),
			OnRoster: m.applyRoster,
			OnConf: func() {
				m.net.Report()
				m.registrar.poke()
			},
			OnReseed: g.keeper.ask,
			OnStage:  g.keeper.want,
			OnFail:   func(err error) { m.onFail(g, err) },
		},
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	g.replica = r
	m.mu.Unlock()
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
		Now: m.opts.Now, Logger: m.log, Metrics: m.opts.Metrics,
	})
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
	sound = old.quarantine == nil && err == nil
	m.mu.RUnlock()
	var unfit error
	if sound && judge != nil {
		unfit = judge(old.log)
	}
	if old.close != nil {
		err = errors.Join(err, old.close())
	}
	if err != nil {
		m.log.Warn("group did not close well", slog.Any("group", gid), slog.Any("err", err))
		sound = false
	}
	return sound, unfit
}

// admit makes a group that was opened one of this member's, and starts its replica.
func (m *Member) admit(g *group) {
	m.mu.Lock()
	if m.mu.groups == nil { // this member was removed meanwhile
		m.mu.Unlock()
		if err := g.shut(); err != nil {
			m.log.Warn("group did not close well", slog.Any("group", g.id), slog.Any("err", err))
		}
		return
	}
	m.mu.groups[g.id] = g
	sound := g.quarantine == nil
	m.mu.Unlock()
	if sound {
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

// onFail closes a replica to raft and to clients. It is called from the replica's own goroutines, at
// most once each; the files stay open until Stop.
func (m *Member) onFail(g *group, err error) {
	q := m.newQuarantine(g.id, err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if g.quarantine == nil {
		g.quarantine = q
	}
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

func (m *Member) newQuarantine(gid ident.GroupID, err error) *Quarantine {
	q := &Quarantine{Cause: causeOf(err), Detail: err.Error(), Since: m.opts.Now()}
	m.log.Error("replica quarantined", slog.Any("group", gid), slog.String("cause", string(q.Cause)), slog.Any("err", err))
	m.opts.Journal.Add(journal.Quarantined{Group: gid, Cause: string(q.Cause), Detail: journal.Detail(q.Detail)})
	return q
}
