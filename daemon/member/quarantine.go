package member

import (
	"log/slog"
	"time"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
)

// Cause says what kind of damage put a replica in quarantine.
type Cause string

// The causes.
const (
	CauseDivergent        Cause = "divergent"          // its state is not what a majority of the voters has
	CauseStateError       Cause = "state_error"        // the state could not be read or written, or is not what was written
	CauseUpgradeRequired  Cause = "upgrade_required"   // the log holds a record that this binary does not know
	CauseLogCorrupt       Cause = "log_corrupt"        // a bad record before a good one, a hole, a missing segment
	CauseLogWrite         Cause = "log_write"          // the log's writer failed: nothing more is acknowledged
	CauseCommittedMissing Cause = "committed_missing"  // the log ends before what the state holds
	CauseAmnesia          Cause = "amnesia"            // the disk went back in time, and the votes with it
	CauseVotesBehind      Cause = "votes_behind"       // the log knows a later term than the votes: an old copy
	CauseDuplicate        Cause = "duplicate_identity" // two processes live on copies of one disk
	CauseFormerHistory    Cause = "former_history"     // the cluster was recovered without this disk
	CauseAssertion        Cause = "assertion"          // the replica contradicted itself
)

// Conduct is what a replica in quarantine still does, as far as it could be opened. It never serves
// reads nor takes writes, and no other replica is made from it.
type Conduct struct {
	// Votes: it votes and acknowledges what its log has made durable: the log is sound.
	Votes bool
	// Applies: it goes on applying, so that checks go on comparing.
	Applies bool
	// LastResort: it leads where nobody else does, and hands over to the first voter that is level.
	LastResort bool
	// Heals: a reseed heals it, and is latched by itself.
	Heals bool
}

// Conduct is the table of what quarantine means, by cause.
func (c Cause) Conduct() Conduct {
	switch c {
	case CauseDivergent:
		return Conduct{Votes: true, Applies: true, LastResort: true, Heals: true}
	case CauseStateError:
		return Conduct{Votes: true, LastResort: true, Heals: true}
	case CauseUpgradeRequired: // the data is sound, the binary is old
		return Conduct{Votes: true, LastResort: true}
	case CauseLogCorrupt, CauseLogWrite, CauseCommittedMissing:
		return Conduct{Heals: true}
	}
	return Conduct{} // its promises, or its reasoning, are in doubt: no artifact brings those back
}

// Causes lists every cause.
func Causes() []Cause {
	return []Cause{
		CauseDivergent, CauseStateError, CauseUpgradeRequired, CauseLogCorrupt, CauseLogWrite, CauseCommittedMissing,
		CauseAmnesia, CauseVotesBehind, CauseDuplicate, CauseFormerHistory, CauseAssertion,
	}
}

// Quarantine says why a replica's data must not be served.
type Quarantine struct {
	Cause  Cause
	Detail string
	Since  time.Time
	// Evidence is what showed that the state is divergent; nil: of another cause, or before this start.
	Evidence *Evidence
}

// takesPart reports whether the replica of g is one of its group for raft: it is open, and its log is
// sound.
func (g *group) takesPart() bool {
	return g.replica != nil && (g.quarantine == nil || g.quarantine.Cause.Conduct().Votes)
}

// taking returns the group if its replica takes part, and nil otherwise.
func (m *Member) taking(gid ident.GroupID) *group {
	if g := m.current(gid); g != nil && g.takesPart() {
		return g
	}
	return nil
}

// quarantine puts a replica into quarantine, or from one into one that allows less. It may be called from
// the replica's own goroutines.
func (m *Member) quarantine(g *group, c Cause, detail string, e *Evidence) {
	q := &Quarantine{Cause: c, Detail: detail, Since: m.opts.Now(), Evidence: e}
	m.mu.Lock()
	live := g
	if now := m.mu.groups[g.id]; now != nil && now.replica == g.replica && g.replica != nil {
		live = now // g may be a copy
	}
	was := live.quarantine
	if was != nil && (!was.Cause.Conduct().Votes || c.Conduct().Votes) {
		m.mu.Unlock()
		return
	}
	live.quarantine, g.quarantine = q, q
	replica := live.replica
	m.mu.Unlock()
	if was != nil {
		m.metrics.quarantined.WithLabelValues(g.id.String(), string(was.Cause)).Set(0)
	}
	m.metrics.quarantined.WithLabelValues(g.id.String(), string(c)).Set(1)
	m.log.Error("replica quarantined", slog.Any("group", g.id), slog.String("cause", string(c)), slog.String("detail", detail))
	m.opts.Journal.Add(journal.Quarantined{Group: g.id, Cause: string(c), Detail: journal.Detail(detail)})
	if replica != nil && c.Conduct().LastResort {
		replica.LastResort()
	}
	g.keeper.poke()
}

// restore puts a replica that was just opened back into the quarantine in which it was before this start,
// as its latched reseed tells: a divergent state is not seen by opening. One that had failed is read whole:
// what a failed write did not bring to the disk is not there, and the log has it.
func (g *group) restore(m *Member) {
	r := g.keeper.latchedNow()
	if r == nil {
		return
	}
	gen, ok, err := g.keeper.files.Current()
	if err != nil || !ok || r.Condemned != gen {
		return
	}
	switch c := Cause(r.Reason); c {
	case CauseDivergent:
		m.quarantine(g, c, "found before this start; "+g.keeper.reseedText(), nil)
	case CauseStateError:
		if err := prove(g.store); err != nil {
			m.quarantine(g, c, err.Error(), nil)
			g.replica.Fail(&stateError{err})
		}
	}
}
