package member

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/replica"
)

const (
	// checkEntries and checkRounds are when the leader has the members compare their states: after so
	// many entries, and after so many rounds of its keeper if there was any entry.
	checkEntries = 4096
	checkRounds  = 5
	// waitingRounds is when it does so although there was nothing new: after so many rounds, for a member
	// that is level and whose state was not compared yet. It was opened after the last check, and there may
	// be no other one for as long as nobody writes. Where that was of no use, it takes twice as long each
	// time, up to waitingMost: who has no state at all is level too.
	waitingRounds = 2
	waitingMost   = 16

	// checksKept is how many checks a member remembers, and reports with every ping.
	checksKept = 8
)

// checks is what one member knows of the states of a group: its own, since its replica was opened, and
// what the others reported last.
type checks struct {
	mu struct {
		sync.Mutex
		own   []check // newest first, at most checksKept
		heard map[ident.MemberID][]peer.DigestReport
		// since is since when each member has stood as it does.
		since map[ident.MemberID]stoodSince
	}
}

type stoodSince struct {
	state string
	at    time.Time
}

// opened forgets what a replica reported that is not open any more.
func (c *checks) opened() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.own = nil
}

// applied takes what this member's state added up to after checks.
func (c *checks) applied(all []*apply.Check) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range all {
		total := x.Digest.Total().Append(nil)
		own := check{index: x.ID.Index, trusted: x.Trusted, conf: confOf(x.Conf), digest: digest{x.Digest.Version, [32]byte(total)}}
		c.mu.own = append([]check{own}, c.mu.own[:min(len(c.mu.own), checksKept-1)]...)
	}
}

// hear takes what another member reported, in the place of what it did before.
func (c *checks) hear(from ident.MemberID, reports []peer.DigestReport) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.heard == nil {
		c.mu.heard = map[ident.MemberID][]peer.DigestReport{}
	}
	c.mu.heard[from] = reports
}

// report is what this member says in a ping.
func (c *checks) report(group ident.GroupID) []peer.DigestReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]peer.DigestReport, 0, len(c.mu.own))
	for _, x := range c.mu.own {
		all = append(all, peer.DigestReport{Group: group, Index: x.index, Version: x.digest.version, Sum: x.digest.sum})
	}
	return all
}

// last is the newest check that this member applied; 0: none.
func (c *checks) last() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.own) == 0 {
		return 0
	}
	return c.mu.own[0].index
}

// reportsLocked lists what is known of a check. self is this member. REQUIRES: mu held.
func (c *checks) reportsLocked(self ident.MemberID, index uint64) map[ident.MemberID]digest {
	all := map[ident.MemberID]digest{}
	for _, x := range c.mu.own {
		if x.index == index {
			all[self] = x.digest
		}
	}
	for id, reports := range c.mu.heard {
		for _, r := range reports {
			if r.Index == index && id != self {
				all[id] = digest{r.Version, r.Sum}
			}
		}
	}
	return all
}

// standing is how the state of id stands, as self knows.
func (c *checks) standing(self, id ident.MemberID) standing {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.standingLocked(self, id)
}

func (c *checks) standingLocked(self, id ident.MemberID) standing {
	return standingOf(id, c.mu.own, func(index uint64) map[ident.MemberID]digest { return c.reportsLocked(self, index) })
}

// round lets a round pass, and notes since when each of ids has stood as it does.
func (c *checks) round(self ident.MemberID, ids []ident.MemberID, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.mu.own {
		c.mu.own[i].age++
	}
	was := c.mu.since
	c.mu.since = make(map[ident.MemberID]stoodSince, len(ids))
	for _, id := range ids {
		state := c.standingLocked(self, id).state
		since, ok := was[id]
		if !ok || since.state != state {
			since = stoodSince{state, now}
		}
		c.mu.since[id] = since
	}
	for id := range c.mu.heard {
		if !slices.Contains(ids, id) {
			delete(c.mu.heard, id)
		}
	}
}

// DigestStatus is what a member knows of its own state, or of another member's.
type DigestStatus struct {
	State string // StateVerified and so on
	// Index, Version and Sum are of the newest check that the member is known to have reported; 0: none.
	Index   uint64
	Version uint16
	Sum     [32]byte
	// Verified is the newest check at which it was verified, of those remembered; 0: none.
	Verified uint64
	// Since is since when it has stood so; zero: not known.
	Since time.Time
	// Agree and Wrong are who reported what a majority did, and something else, at the check that says so.
	Agree, Wrong []ident.MemberID
}

func (c *checks) status(self, id ident.MemberID) DigestStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.standingLocked(self, id)
	out := DigestStatus{State: s.state, Verified: s.verified, Since: c.mu.since[id].at, Agree: s.finding.agree, Wrong: s.finding.wrong}
	if id == self {
		if len(c.mu.own) > 0 {
			out.Index, out.Version, out.Sum = c.mu.own[0].index, c.mu.own[0].digest.version, c.mu.own[0].digest.sum
		}
		return out
	}
	for _, r := range c.mu.heard[id] {
		if r.Index > out.Index {
			out.Index, out.Version, out.Sum = r.Index, r.Version, r.Sum
		}
	}
	return out
}

// checkDue says whether the leader should have the members compare their states: last is the newest
// check, and rounds have passed since it was applied, or one was proposed.
func checkDue(applied, last uint64, rounds int) bool {
	return applied > last && (rounds >= checkRounds || rounds > 0 && applied-last >= checkEntries)
}

// waitingCheckDue says the same for members that wait for a check although there was nothing new, after
// tries that did not help.
func waitingCheckDue(rounds, tries int) bool {
	return rounds >= min(waitingRounds<<min(tries, 8), waitingMost)
}

// Digested takes what a peer's states added up to, in the place of what it said before: of a replica that
// was opened anew it says nothing, and what it said of the data before is not to be held for or against it.
func (m *Member) Digested(from ident.MemberID, digests []peer.DigestReport) {
	byGroup := map[ident.GroupID][]peer.DigestReport{}
	for _, d := range digests {
		if all := byGroup[d.Group]; len(all) < checksKept {
			byGroup[d.Group] = append(all, d)
		}
	}
	for _, k := range m.keepers() {
		k.checks.hear(from, byGroup[k.group])
		k.look()
	}
}

// Digests is what this member reports of its states.
func (m *Member) Digests() []peer.DigestReport {
	var all []peer.DigestReport
	for _, k := range m.keepers() {
		all = append(all, k.checks.report(k.group)...)
	}
	return all
}

// Verdict is how the state of a member in a group stands, as this member knows.
func (m *Member) Verdict(gid ident.GroupID, id ident.MemberID) (DigestStatus, bool) {
	g := m.current(gid)
	if g == nil {
		return DigestStatus{}, false
	}
	return g.keeper.checks.status(m.identity().ID, id), true
}

// Check has the members of a group compare their states now, and returns the index at which they do. It
// runs on the leader. trusted is the member whose state is right there, by the word of an operator; 0: that
// of a majority of the voters is.
func (m *Member) Check(ctx context.Context, gid ident.GroupID, trusted ident.MemberID) (uint64, error) {
	r, err := m.Replica(gid)
	if err != nil {
		return 0, err
	}
	id, err := r.Propose(ctx, command.EncodeCheck(trusted), nil)
	return id.Index, err
}

// checkRound is a round of what has to do with checks: a leader appends one when it is due, and whoever
// finds that its own state is not what a majority of the voters has goes into quarantine.
func (k *keeper) checkRound() {
	self := k.m.identity().ID
	var ids []ident.MemberID
	for _, x := range k.m.Roster().Members {
		ids = append(ids, x.ID)
	}
	k.checks.round(self, ids, k.m.opts.Now())
	k.judgeSelf()
	k.publish(self)
	g := k.m.sound(k.group)
	if g == nil {
		return
	}
	k.unchecked++
	last := k.checks.last()
	if last != k.newest {
		k.newest, k.unchecked = last, 0
	}
	s := g.replica.Status()
	if s.State != raft.StateLeader || apply.Undigested {
		return
	}
	waiting := k.checkAwaited(self, s)
	if !waiting {
		k.tries = 0
	}
	if !checkDue(s.Applied, last, k.unchecked) && !(waiting && waitingCheckDue(k.unchecked, k.tries)) {
		return
	}
	if waiting {
		k.tries++
	}
	k.unchecked = 0 // if it is lost, the next one is due in time
	g.replica.Check(0)
}

// checkAwaited reports whether a member that is level is not known to have the right state. Of a voter, too:
// what was said of it before it was opened anew counts no more, and without its word there may be no
// majority to tell apart who has something else.
func (k *keeper) checkAwaited(self ident.MemberID, s replica.Status) bool {
	return slices.ContainsFunc(s.Progress, func(p consensus.Progress) bool {
		return p.Active && p.Match+readyLag >= s.Last && k.checks.standing(self, p.ID).state == StateUnverified
	})
}

// unverified says why the state of a member is not known to be right; empty: it was compared and is.
func (m *Member) unverified(id ident.MemberID) string {
	switch v, ok := m.Verdict(0, id); {
	case !ok:
		return "group 0 is not open here"
	case v.State == StateVerified:
		return ""
	case v.State == StateUnverified:
		return "its state was not compared with that of a majority yet"
	default:
		return "its state is " + v.State
	}
}

// publish has the gauges say how the state here stands.
func (k *keeper) publish(self ident.MemberID) {
	unresolved := 0.0
	switch s := k.checks.standing(self, self); s.state {
	case StateVerified:
		k.verified()
		k.unresolved = 0
	case StateUnresolved:
		unresolved = 1
		if k.unresolved == 0 {
			k.m.log.Error("voters have different states and no majority has the same", slog.Any("group", k.group), slog.Uint64("index", s.index))
			k.m.opts.Journal.Add(journal.Unresolved{Group: k.group, Index: s.index})
		}
		k.unresolved = s.index
	}
	k.m.metrics.divergence.WithLabelValues(k.group.String()).Set(unresolved)
}

// judgeSelf quarantines the replica if its state is divergent.
func (k *keeper) judgeSelf() {
	g := k.m.sound(k.group)
	if g == nil {
		return
	}
	self := k.m.identity().ID
	s := k.checks.standing(self, self)
	if s.state != StateDivergent {
		return
	}
	e := &Evidence{Index: s.index, Own: s.own.String(), Right: s.finding.right.String(), Agree: s.finding.agree}
	roster := k.m.Roster()
	k.m.quarantine(g, CauseDivergent, e.detail(func(id ident.MemberID) string { return nameOf(roster, id) }), e)
}

// Evidence is what shows that a state is divergent.
type Evidence struct {
	Index      uint64           // of the check
	Own, Right string           // hex: what the state here added up to, and what is right
	Agree      []ident.MemberID // who reported what is right
}

func (e *Evidence) detail(name func(ident.MemberID) string) string {
	names := make([]string, len(e.Agree))
	for i, id := range e.Agree {
		names[i] = name(id)
	}
	return fmt.Sprintf("at index %d the state here adds up to %.16s..., that of %s to %.16s...", e.Index, e.Own, strings.Join(names, ", "), e.Right)
}
