package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/replica"
)

const (
	// verbPoll is how often a verb looks whether what it waits for has happened.
	verbPoll = 10 * time.Millisecond
	// campaignAgain is how often a member that was told to stand for leader tries: about an election.
	campaignAgain = time.Second
)

// Promote moves leadership to a member, from here, the leader, or, where no leader is known, by having
// this member stand for it. It returns the operation: Wait for it, or ask for it by its id. Errors:
// *NotFoundError, *replica.NotLeaderError, those of Options.Replica, of an operation's id.
func (o *Ops) Promote(req api.PromoteRequest) (*Started, error) {
	target, ok := o.opts.Member.Roster().Named(req.Region)
	if !ok {
		return nil, &NotFoundError{What: "member", Name: req.Region}
	}
	r, err := o.opts.Replica(surface)
	if err != nil {
		return nil, err
	}
	s := r.Status()
	self := o.opts.Member.Status().ID
	run := o.transfer
	switch {
	case isLeader(s):
	case s.Leader == 0 && target.ID == self:
		run = o.campaign
	default:
		return nil, &replica.NotLeaderError{Term: s.Term, Leader: s.Leader}
	}
	in := intent{verb: opPromote, id: req.OperationID, request: fmt.Sprintf("%s dry_run=%t", req.Region, req.DryRun), about: req.Region, target: target.ID, dry: req.DryRun}
	return o.begin(in, func(ctx context.Context, op *operation) (any, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(req.TimeoutMS)*time.Millisecond, ErrVerbTimeout)
		defer cancel()
		out := api.Promoted{Op: op.id, DryRun: req.DryRun, Checks: []api.Check{}, Acked: []string{}, Failed: []string{}}
		return run(ctx, r, target, out)
	})
}

// ErrVerbTimeout is the cause of the end of a verb that ran out of the time it was given.
var ErrVerbTimeout = errors.New("the time that it was given ran out")

// transfer hands leadership to target. Errors are *api.Problem, or those of the replica that say that
// nothing happened.
func (o *Ops) transfer(ctx context.Context, r Replica, target membership.Member, out api.Promoted) (any, error) {
	start := time.Now()
	s := r.Status()
	if s.Leader == target.ID {
		return o.led(out, target, s.Term), nil // nothing to do
	}
	out.Checks = o.transferChecks(ctx, s, target)
	i := slices.IndexFunc(out.Checks, func(c api.Check) bool { return !c.OK })
	switch {
	case out.DryRun:
		out.OK, out.Leader, out.Term = i < 0, new(o.name), s.Term
		return out, nil
	case i >= 0:
		return nil, refusal(target.Name, out.Checks, i, o.alternative(s, target.ID))
	}
	h, err := r.TransferLeader(ctx, target.ID)
	if err != nil {
		return nil, o.transferProblem(target, out.Checks, err)
	}
	out.Transfer = &api.Transfer{TookMS: roundUp(time.Since(start)), WritePauseMS: new(roundUp(h.Pause))}
	out = o.led(out, target, h.Term)
	out.Acked, out.Failed = o.confirm(target.ID, h.Term)
	return out, nil
}

// led fills in that target leads.
func (o *Ops) led(out api.Promoted, target membership.Member, term uint64) api.Promoted {
	out.OK, out.Leader, out.Term = true, new(target.Name), term
	return out
}

// transferChecks measures everything that a transfer to target needs.
func (o *Ops) transferChecks(ctx context.Context, s replica.Status, target membership.Member) []api.Check {
	p, isVoter := progressOf(s, target.ID)
	voter := api.Check{Code: api.CheckVoter, OK: isVoter, Detail: target.Name + " votes"}
	if !isVoter {
		voter.Detail = target.Name + " is a learner: tidalctl members promote makes it a voter"
	}
	reachable := api.Check{Code: api.CheckReachable, OK: p.Active, Detail: target.Name + " answers " + o.name}
	sound := api.Check{Code: api.CheckSound, Detail: "not known: " + target.Name + " did not answer over HTTP"}
	if !p.Active {
		reachable.Detail = fmt.Sprintf("%s has not answered %s for an election timeout", target.Name, o.name)
	}
	ctx, cancel := context.WithTimeout(ctx, o.opts.StatusTimeout)
	defer cancel()
	answer, err := o.opts.Asker.LocalStatus(ctx, o.httpAddr(target))
	switch {
	case err != nil:
		// A leader that the others cannot forward to would take no write of theirs.
		reachable.OK, reachable.Detail = false, fmt.Sprintf("%s does not answer over HTTP: %v", target.Name, err)
	default:
		sound.OK, sound.Detail = true, "no replica of "+target.Name+" is quarantined"
		for _, g := range answer.Groups {
			if g.Quarantine != nil {
				sound.OK, sound.Detail = false, fmt.Sprintf("group %s on %s is quarantined (%s)", g.Group, target.Name, g.Quarantine.Cause)
			}
		}
	}
	behind := s.Last - min(p.Match, s.Last)
	lag := api.Check{
		Code: api.CheckLag, OK: behind <= api.MaxTransferLag, Measured: new(float64(behind)), Threshold: new(float64(api.MaxTransferLag)), Unit: "entries",
		Detail: fmt.Sprintf("%s is %d entries behind; a transfer allows at most %d", target.Name, behind, api.MaxTransferLag),
	}
	idle := api.Check{Code: api.CheckIdle, OK: s.Transferee == 0, Detail: "leadership is not moving"}
	if s.Transferee != 0 {
		idle.Detail = fmt.Sprintf("leadership is moving to member %s already", s.Transferee)
	}
	return []api.Check{voter, reachable, sound, lag, idle}
}

func progressOf(s replica.Status, id ident.MemberID) (p consensus.Progress, voter bool) {
	i := slices.IndexFunc(s.Progress, func(p consensus.Progress) bool { return p.ID == id })
	if i < 0 {
		return consensus.Progress{}, false
	}
	return s.Progress[i], !s.Progress[i].Learner
}

// alternative names another voter that could be promoted now, as far as the leader sees; empty: none.
func (o *Ops) alternative(s replica.Status, not ident.MemberID) string {
	fit := slices.DeleteFunc(slices.Clone(s.Progress), func(p consensus.Progress) bool {
		return p.ID == not || p.Learner || !p.Active || s.Last-min(p.Match, s.Last) > api.MaxTransferLag
	})
	if len(fit) == 0 {
		return ""
	}
	best := slices.MaxFunc(fit, func(a, b consensus.Progress) int { return cmp.Compare(a.Match, b.Match) })
	m, _ := o.opts.Member.Roster().Member(best.ID)
	return m.Name
}

// refusal makes the problem of the first check that failed.
func refusal(target string, checks []api.Check, failed int, alternative string) *api.Problem {
	code := map[string]api.Code{
		api.CheckVoter: api.CodeNotVoter, api.CheckReachable: api.CodeTargetUnreachable, api.CheckSound: api.CodeTargetQuarantined,
		api.CheckLag: api.CodeLagTooHigh, api.CheckIdle: api.CodeTransferInProgress,
	}[checks[failed].Code]
	c := checks[failed]
	p := api.NewProblem(code, c.Detail)
	p.Measured, p.Threshold, p.Unit, p.Checks = c.Measured, c.Threshold, c.Unit, checks
	switch {
	case alternative != "":
		p.Try = "tidalctl promote " + alternative
	case c.Code == api.CheckVoter:
		p.Try = "tidalctl members list"
	default:
		p.Try = "tidalctl wait --for=healthy && tidalctl promote " + target
	}
	return p
}

// transferProblem says what is left after a transfer that did not arrive.
func (o *Ops) transferProblem(target membership.Member, checks []api.Check, err error) error {
	e, ok := errors.AsType[*replica.TransferError](err)
	switch {
	case errors.Is(err, replica.ErrTransferInProgress):
		return api.NewProblem(api.CodeTransferInProgress, err.Error())
	case errors.Is(err, replica.ErrNoTarget):
		return api.NewProblem(api.CodeNotVoter, fmt.Sprintf("%s is no voter", target.Name))
	case !ok:
		return err
	}
	leader, known := o.opts.Member.Roster().Member(e.Leader)
	var p *api.Problem
	switch {
	case known && leader.Name != o.name:
		p = api.NewProblem(api.CodeOtherLeader, fmt.Sprintf("%s leads term %d now, not %s", leader.Name, e.Term, target.Name))
	case e.Told:
		p = api.NewProblem(api.CodeOutcomeUnknown, fmt.Sprintf("%s was told to stand for leader, and was not seen to lead: %v", target.Name, e.Cause))
	default:
		p = api.NewProblem(api.CodeTransferFailed, fmt.Sprintf("%s did not take over: %v; writes were held for %s", target.Name, e.Cause, e.Pause.Round(time.Millisecond)))
		p.Try = "tidalctl wait --for=healthy && tidalctl promote " + target.Name
	}
	if known {
		p.Leader = leader.Name
	}
	p.Checks = checks
	return p
}

// campaign has this member stand for leader where nobody leads.
func (o *Ops) campaign(ctx context.Context, r Replica, self membership.Member, out api.Promoted) (any, error) {
	start := time.Now()
	s := r.Status()
	voter := api.Check{Code: api.CheckVoter, OK: slices.Contains(s.Conf.GetVoters(), uint64(self.ID)), Detail: self.Name + " votes"}
	if !voter.OK {
		voter.Detail = self.Name + " is no voter"
	}
	out.Checks, out.Term = []api.Check{voter}, s.Term
	if out.DryRun {
		out.OK = voter.OK
		return out, nil
	}
	if !voter.OK {
		return nil, refusal(self.Name, out.Checks, 0, "")
	}
	poll := time.NewTicker(verbPoll)
	defer poll.Stop()
	for stood := (time.Time{}); ; {
		if time.Since(stood) >= campaignAgain {
			stood = time.Now()
			r.Campaign()
		}
		select {
		case <-ctx.Done():
			p := api.NewProblem(api.CodeNoLeader, fmt.Sprintf("%s stood for leader and no majority voted: %v", self.Name, context.Cause(ctx)))
			p.Try = "tidalctl status"
			return nil, p
		case <-poll.C:
		}
		switch s = r.Status(); {
		case s.State == raft.StateLeader:
			out.Transfer = &api.Transfer{TookMS: roundUp(time.Since(start))}
			out = o.led(out, self, s.Term)
			out.Acked, out.Failed = o.confirm(self.ID, s.Term)
			return out, nil
		case s.Leader != 0:
			leader, _ := o.opts.Member.Roster().Member(s.Leader)
			p := api.NewProblem(api.CodeOtherLeader, fmt.Sprintf("%s was elected in term %d", cmp.Or(leader.Name, "member "+s.Leader.String()), s.Term))
			p.Leader = leader.Name
			return nil, p
		}
	}
}

// confirm asks every member until it names leader in term or a later one, for Options.FanOut at most.
func (o *Ops) confirm(leader ident.MemberID, term uint64) (acked, failed []string) {
	ctx, cancel := context.WithTimeout(o.operations.life, o.opts.FanOut)
	defer cancel()
	members := o.opts.Member.Roster().Members
	confirmed := make([]bool, len(members))
	var asking sync.WaitGroup
	for i, m := range members {
		asking.Go(func() { confirmed[i] = o.confirms(ctx, m, leader, term) })
	}
	asking.Wait()
	acked, failed = []string{}, []string{}
	for i, m := range members {
		if confirmed[i] {
			acked = append(acked, m.Name)
		} else {
			failed = append(failed, m.Name)
		}
	}
	return acked, failed
}

// confirms asks m until it follows leader, or leads, in term or a later one.
func (o *Ops) confirms(ctx context.Context, m membership.Member, leader ident.MemberID, term uint64) bool {
	poll := time.NewTicker(verbPoll)
	defer poll.Stop()
	for {
		local, err := o.LocalStatus(), error(nil)
		if m.Name != o.name {
			local, err = o.opts.Asker.LocalStatus(ctx, o.httpAddr(m))
		}
		if err == nil {
			for _, g := range local.Groups {
				if g.Group == surface.String() && g.Term >= term && g.Leader != nil && *g.Leader == leader.String() {
					return true
				}
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-poll.C:
		}
	}
}

// roundUp returns whole milliseconds: what took time is never said to have taken none.
func roundUp(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() }
