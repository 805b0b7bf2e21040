package member

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/outbox"
	"github.com/tidaldb/tidal/daemon/replica"
	"github.com/tidaldb/tidal/daemon/wal"
)

// readyLag is how far behind the leader a member that was born in this boot may be to count as
// ready: never 0, which load keeps out of reach.
const readyLag = 1024

// Status is one member's view of itself and of its groups, taken without blocking.
type Status struct {
	Name        string
	ID          ident.MemberID // 0 before birth
	Cluster     ident.ClusterID
	Incarnation ident.Incarnation
	BootEpoch   uint64
	Version     string
	StartedAt   time.Time
	Phase       Phase
	WaitingFor  []membership.Waiting
	GRPCAddr    string // advertised
	HTTPAddr    string
	Roster      membership.Roster
	Groups      []GroupStatus    // by group
	Disk        Disk             // zero where the file system does not say
	Removed     *datadir.Removed // nil: it belongs to its cluster
	Clocks      []ClockStatus    // of the peers, by id
	MaxDrift    time.Duration    // that their clocks may be off
	Outbox      outbox.Status    // zero before Start
	Ready       bool
	// NotReady says why not, one line a reason; empty when ready.
	NotReady []string
}

// GroupStatus is one replica's view.
type GroupStatus struct {
	Group      ident.GroupID
	Replica    replica.Status // zero when the replica never opened in this boot
	Quarantine *Quarantine    // nil: sound
	Installing bool           // closed while its data is replaced
	Reseed     *ReseedStatus  // nil: none is latched
	Install    *InstallStatus // nil: nothing is being fetched
	// Closed says that the replica takes no part in its group: it is not open, or its log is not sound.
	Closed  bool
	Digest  DigestStatus
	Scrub   ScrubStatus
	Kept    []datadir.Kept // replaced data of quarantines
	Reseeds uint64         // installs of this replica since the process started
}

// Status returns what this member knows now.
func (m *Member) Status() Status {
	m.mu.RLock()
	id := m.mu.identity
	s := Status{
		Name: m.opts.Name, ID: id.ID, Cluster: id.Cluster, Incarnation: id.Incarnation, BootEpoch: id.BootEpoch,
		Version: m.opts.Version, StartedAt: m.started, Phase: m.mu.phase, WaitingFor: m.mu.waiting,
		GRPCAddr: m.opts.GRPCAddr, HTTPAddr: m.opts.HTTPAddr, Roster: m.mu.roster, Ready: m.mu.ready, Disk: m.mu.disk,
		Removed: m.mu.removed, Clocks: m.clocksLocked(), MaxDrift: m.opts.MaxDrift,
	}
	var bornNow bool
	for _, g := range m.mu.groups {
		gs := GroupStatus{Group: g.id, Quarantine: g.quarantine, Installing: g.replica == nil && g.quarantine == nil}
		gs.Reseed, gs.Install = g.keeper.status()
		gs.Closed, gs.Digest, gs.Scrub = !g.takesPart(), g.keeper.checks.status(id.ID, id.ID), g.keeper.scrubs.status()
		gs.Kept, gs.Reseeds = g.keeper.keptNow()
		if g.replica != nil {
			gs.Replica = g.replica.Status()
		}
		s.Groups = append(s.Groups, gs)
		bornNow = bornNow || g.bornNow
	}
	m.mu.RUnlock()
	if m.box != nil {
		s.Outbox = m.box.Status()
	}
	slices.SortFunc(s.Groups, func(a, b GroupStatus) int { return int(a.Group) - int(b.Group) })
	s.NotReady = notReady(s, bornNow)
	if s.Ready = len(s.NotReady) == 0; s.Ready && !m.wasReady() {
		m.mu.Lock()
		m.mu.ready = true
		m.mu.Unlock()
	}
	return s
}

func (m *Member) wasReady() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mu.ready
}

// notReady says why a member must get no traffic. s.Ready holds whether it was ready before in this
// boot: catching up is asked for once.
func notReady(s Status, bornNow bool) []string {
	var why []string
	switch s.Phase {
	case PhaseWaiting:
		why = append(why, "the cluster is not born yet")
		for _, w := range s.WaitingFor {
			why = append(why, fmt.Sprintf("waits for %s: %s", w.Name, w.Reason))
		}
	case PhaseRemoved:
		why = append(why, "removed: this member belongs to its cluster no more; give it an empty data directory and have it join again")
	case PhaseJoining:
		why = append(why, "this member has not joined its cluster yet")
		for _, w := range s.WaitingFor {
			why = append(why, fmt.Sprintf("waits for %s: %s", w.Name, w.Reason))
		}
	case PhaseStopped:
		why = append(why, "stopping")
	}
	if _, member := s.Roster.Member(s.ID); s.Phase == PhaseServing && s.Roster.Removed(s.ID) && !member {
		why = append(why, fmt.Sprintf("removed: roster version %d does not name this member", s.Roster.Version))
	}
	for _, g := range s.Groups {
		switch r := g.Replica; {
		case g.Quarantine != nil:
			why = append(why, fmt.Sprintf("group %s is quarantined (%s)", g.Group, g.Quarantine.Cause))
		case g.Installing:
			why = append(why, fmt.Sprintf("group %s is being installed", g.Group))
		case s.Ready || !bornNow:
		case r.Leader == 0:
			why = append(why, fmt.Sprintf("group %s has not had a leader yet", g.Group))
		case r.Applied <= firstEntry.Index || r.LeaderLast == 0 || r.LeaderLast > r.Applied+readyLag:
			why = append(why, fmt.Sprintf("group %s is catching up: applied %d of %d", g.Group, r.Applied, r.LeaderLast))
		}
	}
	return why
}

// causeOf sorts an error of opening or running a replica into the table of design 4.8. What was found
// says more than where.
func causeOf(err error) Cause {
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return refused.Cause
	}
	switch {
	case is[*command.UnknownKindError](err), is[*wal.VersionError](err), is[*durable.VersionError](err):
		return CauseUpgradeRequired
	case is[*wal.CorruptError](err):
		return CauseLogCorrupt
	case is[*replica.VotesBehindError](err):
		return CauseVotesBehind
	case is[*consensus.LostEntriesError](err):
		return CauseAmnesia
	case is[*consensus.BootError](err), is[*datadir.LostGroupError](err):
		return CauseCommittedMissing
	case is[*stateError](err):
		return CauseStateError
	}
	if failed, ok := errors.AsType[*replica.FailedError](err); ok {
		switch failed.Stage {
		case replica.StageLog, replica.StageVotes:
			return CauseLogWrite
		case replica.StageMachine:
			return CauseAssertion
		}
		return CauseStateError
	}
	if is[*durable.CorruptError](err) { // the marker: which log is current is not known
		return CauseLogCorrupt
	}
	return CauseStateError
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
