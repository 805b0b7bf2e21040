package ops

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/peer"
)

// answerReserve is what a question to other members leaves, at most, of the caller's time for the answer to
// travel.
const answerReserve = 500 * time.Millisecond

// Crew has another member, which listens for HTTP at addr, do its own part of a verb. An error is or
// wraps an *api.Problem.
type Crew interface {
	Partition(ctx context.Context, cluster ident.ClusterID, addr string, req api.PartitionRequest) (api.Partitioned, error)
	Heal(ctx context.Context, cluster ident.ClusterID, addr string, req api.HealRequest) (api.Healed, error)
}

// cut is one fault to be: what holder does to what goes between it and peer.
type cut struct {
	holder, peer string
	direction    peer.Direction
	delay        time.Duration // 0: it is dropped
}

// planCuts says who is to do what to whom, for a request that httpd found well formed. roster are the names
// of all members. What is dropped is dropped by those that are cut off, in both directions, so that they
// are whatever the others do; by all, where sides are. What is delayed is delayed by who sends it.
func planCuts(roster []string, req api.PartitionRequest) ([]cut, error) {
	sides := req.Split
	if len(sides) == 0 {
		rest := slices.DeleteFunc(slices.Clone(roster), func(name string) bool { return slices.Contains(req.Members, name) })
		sides = [][]string{req.Members, rest}
	}
	for _, side := range sides {
		for _, name := range side {
			if !slices.Contains(roster, name) {
				return nil, &NotFoundError{What: "member", Name: name}
			}
		}
	}
	if len(sides[1]) == 0 {
		p := api.NewProblem(api.CodeBadRequest, "members: these are all members: nobody is left to cut them off from")
		p.Field = "members"
		return nil, p
	}
	delay := time.Duration(req.DelayMS) * time.Millisecond
	var cuts []cut
	for i, side := range sides {
		for j, other := range sides {
			if i == j {
				continue
			}
			for _, a := range side {
				for _, b := range other {
					if c, ok := cutOf(req, delay, i, j); ok {
						c.holder, c.peer = a, b
						cuts = append(cuts, c)
					}
				}
			}
		}
	}
	return cuts, nil
}

// cutOf returns what a member of side i does to one of side j; ok is false where that is nothing.
func cutOf(req api.PartitionRequest, delay time.Duration, i, j int) (c cut, ok bool) {
	first, oneWay := i == 0, req.Direction == api.DirectionIn || req.Direction == api.DirectionOut
	switch {
	case delay > 0: // always by the sender
		outward := i == 0 && req.Direction == api.DirectionOut || j == 0 && req.Direction == api.DirectionIn
		return cut{direction: peer.Out, delay: delay}, !oneWay || outward
	case oneWay && req.Direction == api.DirectionOut:
		return cut{direction: peer.Out}, first
	case oneWay:
		return cut{direction: peer.In}, first
	}
	return cut{direction: peer.Both}, first || len(req.Split) > 0
}

// quorumCheck tells whether a side of the cuts keeps a majority of the voters.
func quorumCheck(members []membership.Member, cuts []cut, forbidden bool) api.Check {
	var voters []string
	for _, m := range members {
		if m.Role == membership.RoleVoter {
			voters = append(voters, m.Name)
		}
	}
	apart := func(a, b string) bool {
		return slices.ContainsFunc(cuts, func(c cut) bool {
			return c.delay == 0 && (c.holder == a && c.peer == b || c.holder == b && c.peer == a)
		})
	}
	best := 0 // how many voters one of them still exchanges messages with, itself included
	for _, a := range voters {
		n := 0
		for _, b := range voters {
			if !apart(a, b) {
				n++
			}
		}
		best = max(best, n)
	}
	needed := len(voters)/2 + 1
	c := api.Check{
		Code: api.CheckQuorum, OK: best >= needed || !forbidden, Overridable: true,
		Measured: new(float64(best)), Threshold: new(float64(needed)), Unit: "voters",
		Detail: fmt.Sprintf("a side keeps %d of %d voters, a majority is %d", best, len(voters), needed),
	}
	if best < needed {
		c.Detail += ": nothing is written until the faults are over"
	}
	return c
}

// Partition cuts members off from each other, from here, whoever leads. It returns the operation, whose
// result is an api.Partitioned. Errors: *api.Problem, *NotFoundError, those of an operation's id.
func (o *Ops) Partition(req api.PartitionRequest) (*Started, error) {
	cuts, err := o.partitionCuts(req)
	if err != nil {
		return nil, err
	}
	asked := req
	asked.OperationID = ""
	in, err := faultIntent(opPartition, req.OperationID, req.DryRun, asked)
	if err != nil {
		return nil, err
	}
	return o.begin(in, func(ctx context.Context, op *operation) (any, error) {
		req.OperationID = op.id
		return o.partition(ctx, req, cuts)
	})
}

// faultIntent is the intent of a verb about faults. Its request is told from others by its JSON, without
// the id.
func faultIntent(verb, id string, dry bool, request any) (intent, error) {
	text, err := json.Marshal(request)
	if err != nil {
		return intent{}, fmt.Errorf("encode the request of %s: %w", verb, err)
	}
	return intent{verb: verb, id: id, request: string(text), dry: dry}, nil
}

// partitionCuts plans req, if this member may take faults, for so long.
func (o *Ops) partitionCuts(req api.PartitionRequest) ([]cut, error) {
	if o.opts.Faults == nil {
		return nil, api.NewProblem(api.CodeDrillsDisabled, fmt.Sprintf("%s injects no faults: that needs drills.enabled: true in its configuration", o.name))
	}
	if limit := o.opts.MaxFault.Milliseconds(); req.DurationMS > limit {
		p := api.NewProblem(api.CodeBadRequest, fmt.Sprintf("duration_ms: %d is above drills.max_duration, which is %d on %s", req.DurationMS, limit, o.name))
		p.Field, p.Unit = "duration_ms", "ms"
		p.Measured, p.Threshold = new(float64(req.DurationMS)), new(float64(limit))
		return nil, p
	}
	var names []string
	for _, m := range o.everybody() {
		names = append(names, m.Name)
	}
	return planCuts(names, req)
}

// everybody returns the members as the roster has them or, before birth, as the topology file does.
func (o *Ops) everybody() []membership.Member {
	if r := o.opts.Member.Roster(); r.Version != 0 {
		return r.Members
	}
	return o.opts.Member.Declared()
}

// partition has every holder of cuts take its faults, all at once.
func (o *Ops) partition(ctx context.Context, req api.PartitionRequest, cuts []cut) (any, error) {
	members := o.everybody()
	out := api.Partitioned{DryRun: req.DryRun, ID: req.OperationID, Op: req.OperationID}
	quorum := quorumCheck(members, cuts, req.QuorumLoss == api.QuorumLossForbid)
	out.Checks = []api.Check{quorum}
	if !quorum.OK && !req.DryRun {
		p := api.NewProblem(api.CodeQuorumAtStake, quorum.Detail)
		p.Measured, p.Threshold, p.Unit, p.Checks = quorum.Measured, quorum.Threshold, quorum.Unit, out.Checks
		return nil, p
	}
	holders := slices.DeleteFunc(slices.Clone(members), func(m membership.Member) bool {
		return !slices.ContainsFunc(cuts, func(c cut) bool { return c.holder == m.Name })
	})
	errs := o.each(ctx, holders, func(ctx context.Context, m membership.Member) error {
		if m.Name == o.name {
			_, err := o.TakePartition(req)
			return err
		}
		_, err := o.opts.Crew.Partition(ctx, o.Cluster(), o.httpAddr(m), req)
		return err
	})
	out.Acked, out.Failed, out.Errors = told(holders, errs)
	out.Checks = append(out.Checks, api.Check{
		Code: api.CheckTakes, OK: len(out.Failed) == 0, Measured: new(float64(len(out.Acked))), Threshold: new(float64(len(holders))), Unit: "members",
		Detail: fmt.Sprintf("%d of %d members take their faults", len(out.Acked), len(holders)),
	})
	out.OK = quorum.OK && len(out.Failed) == 0
	held := len(out.Acked) > 0 || slices.ContainsFunc(out.Errors, func(e api.MemberError) bool { return e.Effect != api.EffectNone })
	switch {
	case req.DryRun:
	case held:
		out.ExpiresAt = new(o.opts.Now().Add(time.Duration(req.DurationMS) * time.Millisecond).UTC())
	default:
		e := out.Errors[0]
		p := api.NewProblem(e.Code, "no member took its faults: "+memberErrors(out.Errors))
		p.Checks = out.Checks
		return nil, p
	}
	return out, nil
}

func memberErrors(errs []api.MemberError) string {
	lines := make([]string, len(errs))
	for i, e := range errs {
		lines[i] = e.Member + ": " + e.Detail
	}
	return strings.Join(lines, "; ")
}

// TakePartition does this member's own part of a partition: its faults begin now. Errors: *api.Problem,
// *NotFoundError, *peer.FaultLimitError.
func (o *Ops) TakePartition(req api.PartitionRequest) (api.Partitioned, error) {
	cuts, err := o.partitionCuts(req)
	if err != nil {
		return api.Partitioned{}, err
	}
	out := api.Partitioned{OK: true, DryRun: req.DryRun, ID: req.OperationID, Op: req.OperationID, Checks: []api.Check{}, Acked: []string{o.name}, Failed: []string{}, Errors: []api.MemberError{}}
	lasts := time.Duration(req.DurationMS) * time.Millisecond
	lease := peer.Lease{ID: req.OperationID, Until: time.Now().Add(lasts), Ends: o.opts.Now().Add(lasts).UTC()}
	for _, c := range cuts {
		if c.holder == o.name {
			lease.Faults = append(lease.Faults, peer.Fault{Target: o.target(c.peer), Direction: c.direction, Delay: c.delay})
		}
	}
	if req.DryRun || len(lease.Faults) == 0 {
		return out, nil
	}
	if err := o.opts.Faults.Grant(lease); err != nil {
		return api.Partitioned{}, err
	}
	out.ExpiresAt = &lease.Ends
	o.opts.Journal.Add(journal.FaultBegun{ID: lease.ID, Peers: peersOf(lease), DurationMS: req.DurationMS})
	return out, nil
}

// target is everything that the member called name goes by.
func (o *Ops) target(name string) peer.Target {
	t := peer.Target{Name: name}
	for _, m := range o.everybody() {
		if m.Name == name {
			t.ID, t.GRPCAddr, t.HTTPAddr = m.ID, m.GRPCAddr, o.httpAddr(m)
		}
	}
	for _, d := range o.opts.Member.Declared() {
		if d.Name == name { // dialled there, as over HTTP
			t.GRPCAddr = d.GRPCAddr
		}
	}
	return t
}

// peersOf names whom a lease is about.
func peersOf(l peer.Lease) []string {
	var names []string
	for _, f := range l.Faults {
		if !slices.Contains(names, f.Target.Name) {
			names = append(names, f.Target.Name)
		}
	}
	return names
}

// FaultEnded is the event of a lease that is over; see peer.FaultOptions.OnEnd.
func FaultEnded(l peer.Lease, early bool) journal.Fact {
	return journal.FaultEnded{ID: l.ID, Peers: peersOf(l), Healed: early}
}

// Heal ends faults, on every member that can be asked, whoever leads. It returns the operation, whose
// result is an api.Healed. Errors: those of an operation's id.
func (o *Ops) Heal(req api.HealRequest) (*Started, error) {
	asked := req
	asked.OperationID = ""
	in, err := faultIntent(opHeal, req.OperationID, req.DryRun, asked)
	if err != nil {
		return nil, err
	}
	return o.begin(in, func(ctx context.Context, op *operation) (any, error) {
		req.OperationID = op.id
		return o.heal(ctx, req), nil
	})
}

func (o *Ops) heal(ctx context.Context, req api.HealRequest) api.Healed {
	members := o.everybody()
	answers := make([]api.Healed, len(members))
	errs := o.each(ctx, members, func(ctx context.Context, m membership.Member) (err error) {
		i := slices.IndexFunc(members, func(x membership.Member) bool { return x.Name == m.Name })
		if m.Name == o.name {
			answers[i] = o.TakeHeal(req)
			return nil
		}
		answers[i], err = o.opts.Crew.Heal(ctx, o.Cluster(), o.httpAddr(m), req)
		return err
	})
	out := api.Healed{DryRun: req.DryRun, Op: req.OperationID, Healed: []api.Fault{}, Checks: []api.Check{}}
	out.Acked, out.Failed, out.Errors = told(members, errs)
	for i, a := range answers {
		if errs[i] == nil {
			out.Healed = append(out.Healed, a.Healed...)
		}
	}
	// Where no process listens none holds a fault. Any other silence may hide one.
	if out.OK = !slices.ContainsFunc(out.Errors, func(e api.MemberError) bool { return !e.Gone }); !out.OK && !req.DryRun {
		out.FaultsUntil = new(o.faultsUntil(req.ID, out.Healed).UTC())
	}
	return out
}

// faultsUntil is when a fault on a member that does not answer ends at the latest: with the others of its
// partition, if that is known, or else when no fault that began by now can last.
func (o *Ops) faultsUntil(id string, healed []api.Fault) time.Time {
	until := o.opts.Now().Add(o.opts.MaxFault)
	if id == "" {
		return until
	}
	if i := slices.IndexFunc(healed, func(f api.Fault) bool { return f.ID == id }); i >= 0 {
		return healed[i].ExpiresAt
	}
	if op := o.operations.find(id); op != nil && !op.running() {
		if p, ok := resultOf[api.Partitioned](op); ok && p.ExpiresAt != nil {
			return *p.ExpiresAt
		}
	}
	return until
}

// TakeHeal ends this member's own faults.
func (o *Ops) TakeHeal(req api.HealRequest) api.Healed {
	out := api.Healed{OK: true, DryRun: req.DryRun, Op: req.OperationID, Healed: []api.Fault{}, Checks: []api.Check{}, Acked: []string{o.name}, Failed: []string{}, Errors: []api.MemberError{}}
	leases := o.opts.Faults.Leases()
	if !req.DryRun {
		leases = o.opts.Faults.Revoke(req.ID)
	}
	for _, f := range o.faults(leases) {
		if req.ID == "" || f.ID == req.ID {
			out.Healed = append(out.Healed, f)
		}
	}
	return out
}

// OwnFaults returns the faults that this member keeps up, by their end.
func (o *Ops) OwnFaults() []api.Fault { return o.faults(o.opts.Faults.Leases()) }

func (o *Ops) faults(leases []peer.Lease) []api.Fault {
	out := []api.Fault{}
	for _, l := range leases {
		left := time.Until(l.Until)
		for _, f := range l.Faults {
			x := api.Fault{
				ID: l.ID, Member: o.name, Peer: f.Target.Name, Direction: f.Direction.String(), Effect: api.FaultDrop,
				LeftMS: max(left.Milliseconds(), 0), ExpiresAt: l.Ends,
			}
			if f.Delay > 0 {
				x.Effect, x.DelayMS = api.FaultDelay, f.Delay.Milliseconds()
			}
			out = append(out, x)
		}
	}
	return out
}

// Faults asks every member for the faults that it keeps up. It works without a leader, and across faults.
func (o *Ops) Faults(ctx context.Context) api.Faults {
	ctx, cancel := o.fanOut(ctx)
	defer cancel()
	rows := o.askAll(ctx)
	out := api.Faults{Faults: []api.Fault{}, Acked: []string{}, Failed: []string{}, Errors: []api.MemberError{}}
	for i := range rows {
		r := &rows[i]
		if r.answer == nil {
			out.Failed = append(out.Failed, r.member.Name)
			out.Errors = append(out.Errors, api.MemberError{Member: r.member.Name, Code: api.CodeMemberUnreached, Detail: r.err.Code + ": " + r.err.Detail, Effect: api.EffectNone})
			continue
		}
		out.Acked = append(out.Acked, r.member.Name)
		out.Faults = append(out.Faults, r.answer.Faults...)
	}
	slices.SortStableFunc(out.Faults, func(a, b api.Fault) int {
		return cmp.Or(cmp.Compare(a.LeftMS, b.LeftMS), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// fanOut bounds a question to other members by Options.FanOut, and by a part of the time that the caller gave
// where that is less: a member that is silent must not cost the caller what all the others say.
func (o *Ops) fanOut(ctx context.Context) (context.Context, context.CancelFunc) {
	wait := o.opts.FanOut
	if until, ends := ctx.Deadline(); ends {
		left := time.Until(until)
		wait = min(wait, left-min(left/4, answerReserve))
	}
	return context.WithTimeout(ctx, wait)
}

// each has every one of members do something, all at once, for Options.FanOut at most.
func (o *Ops) each(ctx context.Context, members []membership.Member, do func(context.Context, membership.Member) error) []error {
	ctx, cancel := o.fanOut(ctx)
	defer cancel()
	errs := make([]error, len(members))
	var asked sync.WaitGroup
	for i, m := range members {
		asked.Go(func() { errs[i] = do(ctx, m) })
	}
	asked.Wait()
	return errs
}

// told sorts members by what became of asking them.
func told(members []membership.Member, errs []error) (acked, failed []string, why []api.MemberError) {
	acked, failed, why = []string{}, []string{}, []api.MemberError{}
	for i, m := range members {
		if errs[i] == nil {
			acked = append(acked, m.Name)
			continue
		}
		failed = append(failed, m.Name)
		e := api.MemberError{Member: m.Name, Code: api.CodeInternal, Detail: errs[i].Error(), Effect: api.EffectNone}
		if p, ok := errors.AsType[*api.Problem](errs[i]); ok {
			e.Code, e.Detail, e.Effect = p.Code, p.Detail, p.Effect
		}
		e.Gone = errors.Is(errs[i], syscall.ECONNREFUSED)
		why = append(why, e)
	}
	return acked, failed, why
}
