package member

import (
	"fmt"

	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/peer"
)

// RefusedError quarantines every replica of a member whose peers will not hear it any more: its disk
// holds less than what it promised them, another process lives on a copy of it, or the cluster was
// recovered without it.
type RefusedError struct {
	Cause Cause // CauseAmnesia, CauseDuplicate or CauseFormerHistory
	By    string
	Says  string
}

func (e *RefusedError) Error() string { return "refused by " + e.By + ": " + e.Says }

// fenceOf returns the cause for which a peer's refusal closes the replicas of this member; empty: it does
// not.
func fenceOf(reason string) Cause {
	switch reason {
	case peer.ReasonAmnesia:
		return CauseAmnesia
	case peer.ReasonDuplicate:
		return CauseDuplicate
	case peer.ReasonFormerHistory:
		return CauseFormerHistory
	}
	return ""
}

// latchedFence returns the cause that is made durable by a latch of this reason; empty: a reseed is
// latched. No install undoes a fence: what is wrong are not data. A duplicate is not latched: which of the
// two is the copy is known to an operator alone, and the other one goes on when it is started again.
func latchedFence(reason string) Cause {
	switch c := Cause(reason); c {
	case CauseAmnesia, CauseFormerHistory:
		return c
	}
	return ""
}

// saidBefore is what a fence says after a restart: who said it first, and why, is in the log of the boot
// that latched it.
func saidBefore(c Cause) string {
	if c == CauseFormerHistory {
		return "before this start it said that the cluster was recovered without this disk, which must not vote again"
	}
	return "before this start it remembered more than this disk holds, which is an old copy or has lost its end; the disk must not vote again"
}

// PeerDuplicated is told of two processes with the identity of one member.
func (m *Member) PeerDuplicated(h peer.Hello) {
	m.opts.Journal.Add(journal.IdentityDuplicated{ID: h.Member, Name: h.Name, Incarnation: h.Incarnation.String()})
}

// heed closes every replica of this member where a peer says that it must not be heard any more.
func (m *Member) heed(p peer.PeerStatus) {
	if p.Failure != peer.FailureRefusal || p.Refusal == nil {
		return
	}
	err := &RefusedError{Cause: fenceOf(p.Refusal.Reason), By: nameOf(m.Roster(), p.ID), Says: p.Refusal.Detail}
	if err.Cause == "" {
		return
	}
	m.mu.RLock()
	groups := make([]*group, 0, len(m.mu.groups))
	for _, g := range m.mu.groups {
		if g.quarantine == nil || g.quarantine.Cause != err.Cause {
			groups = append(groups, g)
		}
	}
	m.mu.RUnlock()
	for _, g := range groups {
		m.condemn(g, err)
	}
}

// condemn quarantines a group because of what a peer said. The keeper latches what outlives this process,
// for the next start must not vote in the moment before somebody remembers.
func (m *Member) condemn(g *group, refused *RefusedError) {
	m.onFail(g, refused)
	if g.replica != nil {
		g.replica.Expel(refused)
	}
	if latchedFence(string(refused.Cause)) != "" {
		g.keeper.fence(refused)
	}
}

// fence has the keeper latch that this replica must not take part again. It does not block.
func (k *keeper) fence(refused *RefusedError) {
	k.mu.Lock()
	k.mu.fence = refused
	k.mu.Unlock()
	k.poke()
}

// latchFence makes it durable.
func (k *keeper) latchFence(c Cause) error {
	gen, ok, err := k.files.Current()
	if err != nil || !ok {
		return fmt.Errorf("latch %s: no current generation: %w", c, err)
	}
	r := datadir.Reseed{Reason: string(c), Since: k.m.opts.Now().UnixMilli(), Term: k.m.opts.Dir.Vote(k.group).Term, Condemned: gen, Keep: true}
	if err := k.files.Latch(r); err != nil {
		return err
	}
	k.setLatched(&r)
	return nil
}

// fenced returns the cause that is latched; empty: none is.
func (k *keeper) fenced() Cause {
	if r := k.latchedNow(); r != nil {
		return latchedFence(r.Reason)
	}
	return ""
}

// refusedBefore returns why the replica must not be opened, where that is latched or about to be.
func (k *keeper) refusedBefore() error {
	k.mu.Lock()
	refused := k.mu.fence
	k.mu.Unlock()
	if refused != nil {
		return refused
	}
	if c := k.fenced(); c != "" {
		return &RefusedError{Cause: c, By: "another member", Says: saidBefore(c)}
	}
	return nil
}
