package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/peer"
)

// ReseedPhase is how far a reseed is.
type ReseedPhase string

// The phases, in their order.
const (
	PhaseFindSource ReseedPhase = "find_source" // who leads, and has what is needed
	PhaseFetch      ReseedPhase = "fetch"
	PhasePermit     ReseedPhase = "permit" // the leader is asked whether the replica may be closed
	PhaseInstall    ReseedPhase = "install"
)

// ReseedPhases lists them in their order.
func ReseedPhases() []ReseedPhase {
	return []ReseedPhase{PhaseFindSource, PhaseFetch, PhasePermit, PhaseInstall}
}

var (
	// errManual: with replication.reseed: manual nothing is installed before somebody says so.
	errManual = errors.New("it waits for an operator: tidalctl reseed")
	// errLeads: a leader does not close its own replica; whoever leads next is the source.
	errLeads = errors.New("this member leads: it hands over first")

	// ErrNobodyElse refuses a reseed where no other member could be the source.
	ErrNobodyElse = errors.New("no other member has this data")
)

// ReseedRefusedError refuses a reseed, or makes it wait.
type ReseedRefusedError struct{ Why string }

func (e *ReseedRefusedError) Error() string { return "the leader does not permit it now: " + e.Why }

// allowed reports whether what is latched may be carried out: by itself, or since an operator, or the
// start of this process, wants it.
func (k *keeper) allowed() bool {
	k.mu.Lock()
	ordered := k.mu.ordered
	k.mu.Unlock()
	return !k.m.opts.ManualReseed || ordered || k.booted
}

// enter notes how far a latched reseed is.
func (k *keeper) enter(p ReseedPhase) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.phase = p
}

// note keeps why what is latched waits, loudly where somebody has said no.
func (k *keeper) note(err error) {
	why, failure := "", ""
	if err != nil {
		failure = err.Error()
	}
	if _, refused := errors.AsType[*ReseedRefusedError](err); refused || errors.Is(err, errManual) {
		why = err.Error()
	}
	k.mu.Lock()
	latched := k.mu.latched != nil
	k.mu.refused, k.mu.failure = why, failure
	k.mu.Unlock()
	refused := 0.0
	if latched && why != "" {
		refused = 1
	}
	k.m.metrics.reseedRefused.WithLabelValues(k.group.String()).Set(refused)
}

// permitted asks the leader whether this replica may be closed. Only a voter has to ask.
func (k *keeper) permitted(ctx context.Context, leader source) error {
	g := k.m.taking(k.group)
	if g == nil {
		return errNoLeader
	}
	s, self := g.replica.Status(), uint64(k.m.identity().ID)
	if !slices.Contains(s.Conf.GetVoters(), self) && !slices.Contains(s.Conf.GetVotersOutgoing(), self) {
		return nil
	}
	if s.Leader == k.m.identity().ID {
		return k.yield(ctx, g)
	}
	reply, err := k.m.net.Permit(ctx, leader.addr, peer.PermitRequest{Hello: k.m.SelfHello(), Group: k.group})
	if err != nil {
		return fmt.Errorf("ask for a permit: %w", err)
	}
	if !reply.Granted {
		return &ReseedRefusedError{Why: reply.Refused}
	}
	return nil
}

// yield hands leadership over, to whoever has most of the log and is not to be installed again too, and says
// that this is why nothing else is done. Where there is no such member this one leads on, and permits what
// the others wait for: one of them leads after that.
func (k *keeper) yield(ctx context.Context, g *group) error {
	s := g.replica.Status()
	if len(s.Progress) == 0 {
		return ErrNobodyElse
	}
	h := handover{reseeds: true, commit: s.Commit, voters: k.m.candidates(ctx, s)}
	if to := h.target(); to != 0 && s.Transferee == 0 {
		k.m.log.Info("leader hands over to be installed again", slog.Any("group", k.group), slog.Any("to", to))
		g.replica.Transfer(to)
	}
	return errLeads
}

// chosenSource is the member that the operator wants the artifact from.
func (k *keeper) chosenSource() (source, bool) {
	k.mu.Lock()
	id := k.mu.from
	k.mu.Unlock()
	x, ok := k.m.Roster().Member(id)
	if !ok || id == k.m.identity().ID {
		return source{}, false
	}
	return source{m: k.m, member: x.ID, addr: k.m.addrOf(x)}, true
}

// unproved reports whether gen was installed and is not known yet to hold what was promised.
func (k *keeper) unproved(gen datadir.Generation) bool {
	r := k.latchedNow()
	return r != nil && r.Condemned != gen
}

// installed counts a reseed. More than one without a verified state in between is a loop that somebody
// should know of.
func (k *keeper) installed() {
	k.mu.Lock()
	k.mu.inARow++
	k.mu.installs++
	n := k.mu.inARow
	k.mu.Unlock()
	k.m.metrics.reseedsInARow.WithLabelValues(k.group.String()).Set(float64(n))
	if n > 1 {
		k.m.log.Warn("reseeded again before the state was verified", slog.Any("group", k.group), slog.Int("in_a_row", n))
		k.m.opts.Journal.Add(journal.ReseededAgain{Group: k.group, InRow: n})
	}
}

// verified ends the count of reseeds in a row.
func (k *keeper) verified() {
	k.mu.Lock()
	was := k.mu.inARow
	k.mu.inARow = 0
	k.mu.Unlock()
	if was > 0 {
		k.m.metrics.reseedsInARow.WithLabelValues(k.group.String()).Set(0)
	}
}

// Reseed has a replica of this member installed again from another one, from `from` if it is not 0. It
// does not wait: Status says how far it is. One that is latched already is carried out now, also where
// replication.reseed is manual.
func (m *Member) Reseed(gid ident.GroupID, from ident.MemberID) error {
	g := m.current(gid)
	if g == nil {
		return ErrNoGroup
	}
	if len(m.Roster().Members) < 2 {
		return ErrNobodyElse
	}
	if g.quarantine != nil && !g.quarantine.Cause.healable() {
		return &QuarantinedError{Group: gid, Quarantine: *g.quarantine}
	}
	k := g.keeper
	k.mu.Lock()
	k.mu.ordered, k.mu.from = true, from
	k.mu.Unlock()
	k.poke()
	return nil
}

// reseedText says since when and why a reseed is latched.
func (k *keeper) reseedText() string {
	r := k.latchedNow()
	if r == nil {
		return "no reseed is latched"
	}
	return fmt.Sprintf("a reseed (%s) is latched since %s", r.Reason, time.UnixMilli(r.Since).UTC().Format(time.RFC3339))
}

// listKept looks which replaced data is kept. Where that fails, what was known stays.
func (k *keeper) listKept() {
	kept, err := k.files.Kept()
	if err != nil {
		k.m.log.Warn("kept data not listed", slog.Any("group", k.group), slog.Any("err", err))
		return
	}
	k.mu.Lock()
	k.mu.kept = kept
	k.mu.Unlock()
}

// keptNow lists what is kept, as it was seen last, and counts the installs.
func (k *keeper) keptNow() ([]datadir.Kept, uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.kept, k.mu.installs
}

// ClearKept removes the replaced data that quarantines kept, and returns what it was.
func (m *Member) ClearKept(gid ident.GroupID) ([]datadir.Kept, error) {
	g := m.current(gid)
	if g == nil {
		return nil, ErrNoGroup
	}
	k := g.keeper
	k.keeping.Lock()
	defer k.keeping.Unlock()
	cleared, err := k.files.ClearKept()
	k.listKept()
	if len(cleared) > 0 {
		f := journal.KeptCleared{Group: gid, Dirs: len(cleared)}
		for _, x := range cleared {
			f.Bytes += x.Bytes
		}
		m.opts.Journal.Add(f)
	}
	return cleared, err
}
