package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/replica"
)

// approvedFor is how long an operator's word that a member is to be replaced counts.
const approvedFor = 10 * time.Minute

// ErrHandOver: the leader is the member that is to go, and nobody took over from it. Nothing changed.
var ErrHandOver = errors.New("no other voter took over the leadership")

// Admission is what a member learns when it has joined.
type Admission struct {
	ID      ident.MemberID
	Cluster ident.ClusterID
	Role    membership.Role
	Term    uint64 // of the leader
	Index   uint64 // of the record that made it a member; 0: it was one already
	Roster  membership.Roster
	Leader  membership.Member
}

// Change is what became of a change of the membership.
type Change struct {
	Index   uint64             // of the record; 0: nothing was appended, because nothing had to be
	Roster  membership.Roster  // as it is now
	Member  membership.Member  // whom it was about; as it was before a removal
	Checks  []membership.Check // the rules that were looked at, in order
	Settled bool               // a majority of the voters has it for good; false of a dry run
}

// RemoveOptions varies RemoveMember.
type RemoveOptions struct {
	DryRun   bool // look at the rules and change nothing
	Override bool // go on against the rules that may be overridden
}

// ReplaceOptions varies ReplaceMember.
type ReplaceOptions = RemoveOptions

// The verbs below run on the leader of group 0. Each returns once the change is settled: a majority of
// the voters there are then has applied it and cannot forget that it was committed. They are idempotent.
//
// Nothing happened: *replica.NotLeaderError, *replica.NotProposedError (ctx ended while it waited for its
// turn), *membership.ChangeInProgressError, the errors of each. It may have happened or still happen:
// *replica.UnknownOutcomeError; asking again is safe.

// Join makes a candidate a learner, or says which member it is. Joins wait their turn, one after the
// other. Errors as of membership.View.Join.
func (m *Member) Join(ctx context.Context, c membership.Candidate) (Admission, error) {
	v, err := m.BeginJoin(c)
	if err != nil {
		return Admission{}, err
	}
	if err := m.registrar.await(ctx, v); err != nil {
		return Admission{}, err
	}
	return v.Admission()
}

// PromoteMember makes a learner a voter now rather than when the leader does so by itself. That it is a
// voter already is no error. Errors: *membership.UnknownMemberError, *membership.UnsafeError.
func (m *Member) PromoteMember(ctx context.Context, name string, dryRun bool) (Change, error) {
	return m.do(ctx, func() (*Verb, error) { return m.BeginPromote(name, dryRun) })
}

// RemoveMember takes a member out of the cluster. That it was removed already is no error. Where it leads,
// it hands over first, and the verb ends with the *replica.NotLeaderError that names the new leader, to be
// asked again. Errors: *membership.UnknownMemberError, *membership.UnsafeError, ErrHandOver.
func (m *Member) RemoveMember(ctx context.Context, name string, o RemoveOptions) (Change, error) {
	return m.do(ctx, func() (*Verb, error) { return m.BeginRemove(name, o) })
}

// ReplaceMember lets an empty member of this name join in the place of the one that there is, which is
// removed when the new one becomes a voter. It changes nothing by itself: it says that the old one is
// lost, for as long as this member leads and ten minutes at most. One that is heard of is not lost, unless
// that is overridden. Errors: *membership.UnknownMemberError, *membership.UnsafeError.
func (m *Member) ReplaceMember(ctx context.Context, name string, o ReplaceOptions) (Change, error) {
	return m.do(ctx, func() (*Verb, error) { return m.BeginReplace(name, o) })
}

// Activate lets the log hold what a capability stands for. It costs nothing where it may already. Whoever
// appends the first record that needs it asks first. Error: *membership.CapabilityMissingError.
func (m *Member) Activate(ctx context.Context, c ident.Capabilities) error {
	if v, ok := m.registrar.view(); ok && v.Activated.Has(c) {
		return nil
	}
	_, err := m.do(ctx, func() (*Verb, error) { return m.BeginActivate(c) })
	return err
}

func (m *Member) do(ctx context.Context, begin func() (*Verb, error)) (Change, error) {
	v, err := begin()
	if err != nil {
		return Change{}, err
	}
	if err := m.registrar.await(ctx, v); err != nil {
		return Change{}, err
	}
	return v.Change()
}

// Verb is a change of the membership that was asked for. The Begin… methods are the first half of the
// verbs of their names, for who drives a member by hand.
type Verb struct {
	patient bool // it waits until another change is settled, rather than to be refused
	// decide is asked when its turn comes, and again when its record was refused. It fills in what it
	// finds. An empty record: nothing is to be appended.
	decide func(v membership.View, c *Change) (membership.Record, error)
	// handOver says that the leader is to go, after decide said ErrHandOver.
	handOver time.Time

	done   chan struct{} // closed when the rest is set
	change Change
	admit  Admission
	err    error
}

// Done is closed when the outcome is known.
func (v *Verb) Done() <-chan struct{} { return v.done }

// Change is the outcome. REQUIRES: Done is closed.
func (v *Verb) Change() (Change, error) { return v.change, v.err }

// Admission is the outcome of a join. REQUIRES: Done is closed.
func (v *Verb) Admission() (Admission, error) { return v.admit, v.err }

// finish ends v, once.
func (v *Verb) finish(err error) {
	v.err = err
	close(v.done)
}

// errMustHandOver is how a verb says that this member must not lead when it is carried out.
var errMustHandOver = errors.New("the leader must hand over first")

// BeginJoin begins a Join.
func (m *Member) BeginJoin(c membership.Candidate) (*Verb, error) {
	return m.registrar.ask(&Verb{patient: true, decide: func(v membership.View, out *Change) (membership.Record, error) {
		record, who, err := v.Join(c)
		if out.Member = who; err == nil && record.Empty() {
			m.contacts.change(who.ID, func(c *contact) { c.heard = v.Now }) // it asks again: it is alive
		}
		return record, err
	}})
}

// BeginPromote begins a PromoteMember.
func (m *Member) BeginPromote(name string, dryRun bool) (*Verb, error) {
	return m.registrar.ask(&Verb{decide: func(v membership.View, out *Change) (membership.Record, error) {
		who, ok := v.Roster.Named(name)
		if !ok {
			return membership.Record{}, &membership.UnknownMemberError{Name: name}
		}
		out.Member = who
		if who.Role != membership.RoleLearner {
			return membership.Record{}, nil
		}
		out.Checks = v.Promotion(who)
		switch failed, bad := membership.Failed(out.Checks, false); {
		case dryRun:
			return membership.Record{}, errDryRun
		case bad && failed.Code == membership.GateSettled:
			return membership.Record{}, v.Busy()
		case bad:
			return membership.Record{}, &membership.UnsafeError{Verb: "promote", Name: name, Failed: failed, Checks: out.Checks}
		case v.HandOverFirst(who):
			return membership.Record{}, errMustHandOver
		}
		return v.Promote(who), nil
	}})
}

// BeginRemove begins a RemoveMember.
func (m *Member) BeginRemove(name string, o RemoveOptions) (*Verb, error) {
	return m.registrar.ask(&Verb{decide: func(v membership.View, out *Change) (membership.Record, error) {
		var ids []ident.MemberID
		leads, leaving := false, false
		for _, x := range v.Roster.AllNamed(name) {
			ids = append(ids, x.ID)
			leads, leaving = leads || x.ID == v.Self, leaving || x.Role == membership.RoleLeaving
			out.Member = x
		}
		if buried, gone := v.Roster.Buried(name); len(ids) == 0 && gone {
			out.Member = membership.Member{ID: buried.ID, Incarnation: buried.Incarnation, Name: buried.Name}
			return membership.Record{}, nil
		}
		if len(ids) == 0 {
			return membership.Record{}, &membership.UnknownMemberError{Name: name}
		}
		out.Checks = v.Removal(ids...)
		switch failed, bad := membership.Failed(out.Checks, o.Override); {
		case o.DryRun:
			return membership.Record{}, errDryRun
		case bad && failed.Code == membership.GateSettled:
			return membership.Record{}, v.Busy()
		case leaving:
			return membership.Record{}, &membership.ChangeInProgressError{Waits: "waits until the replaced " + name + " is taken out of the roster"}
		case bad:
			return membership.Record{}, &membership.UnsafeError{Verb: "remove", Name: name, Failed: failed, Checks: out.Checks}
		case leads:
			return membership.Record{}, errMustHandOver
		}
		return v.Remove(ids...), nil
	}})
}

// BeginActivate begins an Activate.
func (m *Member) BeginActivate(c ident.Capabilities) (*Verb, error) {
	return m.registrar.ask(&Verb{patient: true, decide: func(v membership.View, _ *Change) (membership.Record, error) {
		return v.Activate(c)
	}})
}

// BeginReplace begins a ReplaceMember.
func (m *Member) BeginReplace(name string, o ReplaceOptions) (*Verb, error) {
	return m.registrar.ask(&Verb{decide: func(v membership.View, out *Change) (membership.Record, error) {
		who, ok := v.Roster.Named(name)
		if !ok {
			return membership.Record{}, &membership.UnknownMemberError{Name: name}
		}
		out.Member, out.Checks = who, v.Replacement(who)
		failed, bad := membership.Failed(out.Checks, o.Override)
		switch {
		case o.DryRun:
			return membership.Record{}, errDryRun
		case bad:
			return membership.Record{}, &membership.UnsafeError{Verb: "replace", Name: name, Failed: failed, Checks: out.Checks}
		}
		m.registrar.approve(name, v.Now.Add(approvedFor))
		return membership.Record{}, errNothingToSettle
	}})
}

// What decide says of a verb that appends nothing and is over at once.
var (
	errDryRun          = errors.New("dry run")
	errNothingToSettle = errors.New("nothing to settle")
)

// Gates returns every rule that stands before what is next for a member: its promotion, of a learner; its
// removal, of a voter. nil where this member does not lead, or there is no such member.
func (m *Member) Gates(name string) []membership.Check {
	v, ok := m.registrar.view()
	if !ok {
		return nil
	}
	who, ok := v.Roster.Named(name)
	switch {
	case !ok:
		return nil
	case who.Role == membership.RoleLearner:
		return v.Promotion(who)
	}
	return v.Removal(who.ID)
}

// MembershipStatus is what only the leader of group 0 knows of the membership.
type MembershipStatus struct {
	// Settling is the change that waits to be settled; nil: none does.
	Settling *membership.Settling
	// Pending says of every learner why it is not promoted; absent: it is about to be.
	Pending map[ident.MemberID]membership.Pending
	Waiting int // verbs that wait for their turn
}

// Membership returns what this member, as the leader, knows of the membership; false where it does not
// lead.
func (m *Member) Membership() (MembershipStatus, bool) {
	v, ok := m.registrar.view()
	if !ok {
		// A leader of this moment has not looked yet. It must not say that nothing settles because of that.
		g := m.sound(0)
		if g == nil {
			return MembershipStatus{}, false
		}
		s := g.replica.Status()
		if s.State != raft.StateLeader {
			return MembershipStatus{}, false
		}
		v = m.reported(s)
	}
	s := MembershipStatus{Pending: map[ident.MemberID]membership.Pending{}, Waiting: m.registrar.length()}
	if settling, busy := v.Settling(); busy {
		s.Settling = &settling
	}
	for _, x := range v.Roster.Members {
		if x.Role != membership.RoleLearner {
			continue
		}
		if p, pending := v.Pending(x); pending {
			s.Pending[x.ID] = p
		}
	}
	return s, true
}

// notLeader says who leads.
func notLeader(s replica.Status) error {
	if s.State == raft.StateLeader {
		return fmt.Errorf("member %s leads term %d and has not applied an entry of it yet: %w", s.Leader, s.Term, &replica.NotLeaderError{Term: s.Term})
	}
	return &replica.NotLeaderError{Term: s.Term, Leader: s.Leader}
}
