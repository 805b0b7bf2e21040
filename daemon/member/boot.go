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
	"github.com/tidaldb/tidal/daemon/state"
	"github.com/tidaldb/tidal/daemon/wal"
)

// Cause says what kind of damage put a replica in quarantine (design 4.8).
type Cause string

// The causes.
const (
	CauseLogCorrupt       Cause = "log_corrupt"       // a bad record before a good one, a hole, a missing segment
	CauseLogWrite         Cause = "log_write"         // the log's writer failed: nothing more is acknowledged
	CauseStateError       Cause = "state_error"       // the state could not be read or written
	CauseCommittedMissing Cause = "committed_missing" // the log ends before what the state holds
	CauseVotesBehind      Cause = "votes_behind"      // the log knows a later term than the votes: an old copy
	CauseUpgradeRequired  Cause = "upgrade_required"  // the log holds a record that this binary does not know
	CauseAssertion        Cause = "assertion"         // the replica contradicted itself
)

// Quarantine says why a replica is closed.
type Quarantine struct {
	Cause  Cause
	Detail string
	Since  time.Time
}

// openGroup opens the log, the state and the replica of a group from its current generation. It
// always returns a group: one that cannot be trusted comes back quarantined, with its files as they
// were.
func (m *Member) openGroup(gid ident.GroupID, id datadir.Member) *group {
	g := &group{id: gid}
	if err := m.tryOpen(g, id); err != nil {
		if g.close != nil {
			err = errors.Join(err, g.close())
			g.close = nil
		}
		m.onFail(g, err) // the store may be reporting its own failure meanwhile
	}
	return g
}

func (m *Member) tryOpen(g *group, id datadir.Member) error {
	files := m.opts.Dir.Group(g.id)
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
	machine, err := apply.New(store)
	if err != nil {
		return &stateError{err}
	}
	if g.id == 0 {
		roster, err := rosterOf(store)
		if err != nil {
			return &stateError{err}
		}
		m.applyRoster(roster)
	}
	r, err := replica.Open(replica.Options{
		Group: g.id, Self: id.ID,
		Log: log, Recovered: recovered, Votes: m.opts.Dir, State: store, Apply: machine, Net: m.net,
		Tick: m.opts.Tick, HeartbeatTicks: m.opts.HeartbeatTicks, ElectionTicks: m.opts.ElectionTicks,
		Now: m.opts.Now, Limits: m.opts.Limits, Logger: m.log, Metrics: reg,
		Observe: replica.Observer{
			OnRole:   m.watchRole(g.id),
			OnRoster: m.applyRoster,
			OnFail:   func(err error) { m.onFail(g, err) },
		},
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	g.replica = r
	m.mu.Unlock()
	return files.Clean() // only now: the current generation opened
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
