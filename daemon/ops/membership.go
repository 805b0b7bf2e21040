package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/replica"
)

// The verbs of membership that are about one member.
const (
	VerbPromote = "promote"
	VerbRemove  = "remove"
	VerbReplace = "replace"
)

// Membership changes who belongs to the cluster, on the leader; elsewhere its verbs return
// *replica.NotLeaderError.
type Membership interface {
	Join(ctx context.Context, c membership.Candidate) (member.Admission, error)
	PromoteMember(ctx context.Context, name string, dryRun bool) (member.Change, error)
	RemoveMember(ctx context.Context, name string, o member.RemoveOptions) (member.Change, error)
	ReplaceMember(ctx context.Context, name string, o member.ReplaceOptions) (member.Change, error)
	Gates(name string) []membership.Check // before what is next for a member
	// Membership is what only the leader knows of it; false elsewhere.
	Membership() (member.MembershipStatus, bool)

	// Invite tells a member that belongs to no cluster whom to ask; it works anywhere.
	Invite(seeds []string, rejoin bool) bool
}

// errJoinWait is the cause of the end of a join that was not applied in time.
var errJoinWait = errors.New("the time that a join may take ran out")

// Join admits a candidate, from here, the leader: it returns when the roster that holds it is applied.
func (o *Ops) Join(ctx context.Context, c membership.Candidate) (api.Joined, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.opts.JoinWait, errJoinWait)
	defer cancel()
	a, err := o.opts.Member.Join(ctx, c)
	if err != nil {
		if errors.Is(context.Cause(ctx), errJoinWait) {
			p := api.NewProblem(api.CodeJoinPending, fmt.Sprintf("%s was not admitted within %s: %v", c.Name, o.opts.JoinWait, err))
			p.RetryAfterMS = time.Second.Milliseconds()
			return api.Joined{}, p
		}
		return api.Joined{}, err
	}
	out := api.Joined{
		ID: a.ID.String(), ClusterID: a.Cluster.String(), Role: a.Role.String(), Term: a.Term, Index: a.Index, Roster: roster(a.Roster),
	}
	for i, m := range out.Roster.Members {
		out.Roster.Members[i].HTTPAddr = o.httpAddr(a.Roster.Members[i])
		if m.ID == a.Leader.ID.String() {
			out.Leader = out.Roster.Members[i]
		}
	}
	return out, nil
}

// Invite tells this member, which belongs to no cluster yet, whom to ask.
func (o *Ops) Invite(seeds []string, rejoin bool) api.Seeded {
	accepted := o.opts.Member.Invite(seeds, rejoin)
	s := o.opts.Member.Status()
	out := api.Seeded{Name: s.Name, Accepted: accepted, Phase: string(s.Phase), ID: idText(s.ID)}
	if !s.Cluster.IsZero() {
		out.ClusterID = s.Cluster.String()
	}
	return out
}

// ChangeMember promotes, removes or replaces a member, from here, the leader. It returns the operation:
// Wait for it, or ask for it by its id. Errors: *replica.NotLeaderError, those of Options.Replica, of an
// operation's id.
func (o *Ops) ChangeMember(verb string, req api.MemberRequest) (*Started, error) {
	r, err := o.opts.Replica(surface)
	if err != nil {
		return nil, err
	}
	if s := r.Status(); !isLeader(s) {
		return nil, &replica.NotLeaderError{Term: s.Term, Leader: s.Leader}
	}
	in := intent{
		verb: opMembers + verb, id: req.OperationID, request: fmt.Sprintf("%s dry_run=%t override=%s", req.Name, req.DryRun, strings.Join(req.Override, ",")),
		about: req.Name, dry: req.DryRun,
	}
	if m, ok := o.opts.Member.Roster().Named(req.Name); ok {
		in.target = m.ID
	}
	return o.begin(in, func(ctx context.Context, op *operation) (any, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(req.TimeoutMS)*time.Millisecond, ErrVerbTimeout)
		defer cancel()
		return o.changeMember(ctx, verb, op.id, req)
	})
}

func (o *Ops) changeMember(ctx context.Context, verb, id string, req api.MemberRequest) (any, error) {
	override, err := o.overridden(ctx, verb, req)
	if err != nil {
		return nil, err
	}
	var c member.Change
	switch verb {
	case VerbPromote:
		c, err = o.opts.Member.PromoteMember(ctx, req.Name, req.DryRun)
	case VerbRemove:
		c, err = o.opts.Member.RemoveMember(ctx, req.Name, member.RemoveOptions{DryRun: req.DryRun, Override: override})
	default:
		c, err = o.opts.Member.ReplaceMember(ctx, req.Name, member.ReplaceOptions{DryRun: req.DryRun, Override: override})
	}
	if err != nil {
		return nil, o.changeProblem(ctx, verb, req, err)
	}
	out := api.MemberChanged{
		OK: true, DryRun: req.DryRun, Op: id, Verb: verb, Name: req.Name, ID: idText(c.Member.ID), Role: o.roleOf(c.Member.ID),
		Index: c.Index, Term: o.Position().Term, Settled: c.Settled, Checks: Checks(c.Checks),
	}
	if _, failed := membership.Failed(c.Checks, override); req.DryRun && failed {
		out.OK = false
	}
	return out, nil
}

// overridden reports whether checks that fail are to be passed over. Each must be named, and be one that
// may be: what is not named refuses as it would without.
func (o *Ops) overridden(ctx context.Context, verb string, req api.MemberRequest) (bool, error) {
	if len(req.Override) == 0 {
		return false, nil
	}
	refuse := func(detail string) (bool, error) {
		p := api.NewProblem(api.CodeBadRequest, "override: "+detail)
		p.Field = "override"
		return false, p
	}
	look := o.opts.Member.RemoveMember
	switch verb {
	case VerbPromote:
		return refuse("no check of this verb can be overridden")
	case VerbReplace:
		look = o.opts.Member.ReplaceMember
	}
	c, err := look(ctx, req.Name, member.RemoveOptions{DryRun: true})
	if err != nil {
		return false, err
	}
	for _, name := range req.Override {
		i := slices.IndexFunc(c.Checks, func(c membership.Check) bool { return c.Code == name })
		switch {
		case i < 0:
			return refuse(fmt.Sprintf("there is no check %q", name))
		case !c.Checks[i].OK && !c.Checks[i].Overridable:
			return refuse(fmt.Sprintf("the check %q cannot be overridden: %s", name, c.Checks[i].Detail))
		}
	}
	for _, c := range c.Checks {
		if !c.OK && c.Overridable && !slices.Contains(req.Override, c.Code) {
			return false, nil // the verb refuses for this one
		}
	}
	return true, nil
}

// changeProblem says what is known of a change that ran out of its time.
func (o *Ops) changeProblem(ctx context.Context, verb string, req api.MemberRequest, err error) error {
	if cause := context.Cause(ctx); !errors.Is(cause, ErrVerbTimeout) && !errors.Is(cause, ErrStopping) {
		return err
	}
	if _, lost := errors.AsType[*replica.NotLeaderError](err); lost {
		return err
	}
	p := api.NewProblem(api.CodeOutcomeUnknown, fmt.Sprintf("%s %s: %v; it may still happen", verb, req.Name, err))
	p.Try = "tidalctl members list"
	return p
}

// roleOf is what a member is now, in the words of the interface.
func (o *Ops) roleOf(id ident.MemberID) string {
	r := o.opts.Member.Roster()
	if m, ok := r.Member(id); ok {
		return m.Role.String()
	}
	if r.Removed(id) {
		return api.RoleRemoved
	}
	return ""
}

// Checks words rules as the interface does.
func Checks(in []membership.Check) []api.Check {
	out := make([]api.Check, 0, len(in))
	for _, c := range in {
		x := api.Check{Code: c.Code, OK: c.OK, Detail: c.Detail, Overridable: c.Overridable, Unit: c.Unit}
		if c.Unit != "" {
			x.Measured, x.Threshold = new(float64(c.Measured)), new(float64(c.Threshold))
		}
		out = append(out, x)
	}
	return out
}

func tombstones(r membership.Roster) []api.Tombstone {
	out := []api.Tombstone{}
	for _, t := range r.Tombstones {
		out = append(out, api.Tombstone{
			ID: t.ID.String(), Name: t.Name, Incarnation: t.Incarnation.String(), RemovedAt: time.UnixMilli(t.RemovedAt).UTC(),
			Told: t.Told, Acked: t.Acked, Expired: t.Expired,
		})
	}
	return out
}

// pendings words the learners that are no voters yet, by id.
func pendings(in map[ident.MemberID]membership.Pending) map[string]api.Pending {
	out := make(map[string]api.Pending, len(in))
	for id, p := range in {
		out[id.String()] = pending(p)
	}
	return out
}

func pending(p membership.Pending) api.Pending {
	x := api.Pending{Reason: p.Reason, Detail: p.Detail, Lag: new(p.Lag), Bytes: new(p.Bytes), Rate: new(p.Rate)}
	if p.ETA > 0 {
		x.ETAMS = new(roundUp(p.ETA))
	}
	return x
}

// settling words the change that is not finished; nil: none is.
func settling(r membership.Roster, x *membership.Settling) *api.Settling {
	if x == nil {
		return nil
	}
	out := &api.Settling{Index: x.Index, Joint: x.Joint, Voters: x.Quorum.Voters, Have: x.Quorum.Up, Needed: x.Quorum.Needed, Missing: []string{}}
	for _, id := range x.Missing {
		out.Missing = append(out.Missing, whoIs(r, id))
	}
	return out
}

// named returns the members called name, the newest last, and the tombstone of one that is none any more.
func named(r membership.Roster, name string) (m membership.Member, ok bool, buried membership.Tombstone) {
	m, ok = r.Named(name)
	if !ok {
		buried, _ = r.Buried(name)
	}
	return m, ok, buried
}

// whoIs is the name of a member, or its number.
func whoIs(r membership.Roster, id ident.MemberID) string {
	m, _ := r.Member(id)
	return cmp.Or(m.Name, "member "+id.String())
}
