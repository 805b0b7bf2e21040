package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/membership"
)

const (
	// reseedPoll is how often a reseed is looked at, and verifyPoll whether members have reported.
	reseedPoll = 50 * time.Millisecond
	verifyPoll = 50 * time.Millisecond
)

// Reseed has this member's data replaced by that of another one, and tells how far it is. It returns the
// operation. What it latched stays latched, whatever becomes of the operation. Errors: *NotFoundError,
// *api.Problem, of an operation's id.
func (o *Ops) Reseed(req api.ReseedRequest) (*Started, error) {
	var from ident.MemberID
	if req.From != "" {
		m, ok := o.opts.Member.Roster().Named(req.From)
		if !ok {
			return nil, &NotFoundError{What: "member", Name: req.From}
		}
		from = m.ID
	}
	in := intent{verb: opReseed, id: req.OperationID, request: fmt.Sprintf("%s from=%s dry_run=%t", req.Region, req.From, req.DryRun), about: req.Region, dry: req.DryRun}
	return o.begin(in, func(ctx context.Context, op *operation) (any, error) { return o.reseed(ctx, req, from, op) })
}

func (o *Ops) reseed(ctx context.Context, req api.ReseedRequest, from ident.MemberID, op *operation) (any, error) {
	out := api.Reseeded{Op: op.id, Region: req.Region, DryRun: req.DryRun}
	before, ok := o.surfaceStatus()
	if !ok {
		return nil, member.ErrNotBorn
	}
	out.Checks = o.reseedChecks(ctx, before, req.From)
	i := slices.IndexFunc(out.Checks, func(c api.Check) bool { return !c.OK })
	switch {
	case req.DryRun:
		out.OK = i < 0
		return out, nil
	case i >= 0:
		return nil, reseedRefusal(req.Region, out.Checks, i)
	}
	if err := o.opts.Data.Reseed(surface, from); err != nil {
		return nil, reseedProblem(err)
	}
	return o.watchReseed(ctx, op, out, before.Reseeds, time.Duration(req.StallTimeoutMS)*time.Millisecond)
}

// resumeReseed goes on with a reseed that an earlier process of this member began: what that latched is
// carried out by this one. Where nothing is latched nobody knows whether it was, or is done.
func (o *Ops) resumeReseed(ctx context.Context, op *operation) (any, error) {
	poll := time.NewTicker(reseedPoll)
	defer poll.Stop()
	for {
		if s, ok := o.surfaceStatus(); ok {
			if s.Reseed == nil && s.Reseeds == 0 {
				return nil, op.cutShort(o.name)
			}
			return o.watchReseed(ctx, op, api.Reseeded{Op: op.id, Region: op.about, Checks: []api.Check{}}, 0, api.DefaultStallTimeoutMS*time.Millisecond)
		}
		select {
		case <-ctx.Done():
			return nil, op.cutShort(o.name)
		case <-poll.C:
		}
	}
}

// watchReseed tells how far a reseed is that is latched, and returns when the replica has been replaced
// since there were before of them, or when nothing has moved for stall.
func (o *Ops) watchReseed(ctx context.Context, op *operation, out api.Reseeded, before uint64, stall time.Duration) (any, error) {
	poll := time.NewTicker(reseedPoll)
	defer poll.Stop()
	var last api.Progress
	for moved := time.Now(); ; {
		s, _ := o.surfaceStatus()
		if s.Reseeds > before && s.Reseed == nil && !s.Closed && s.Quarantine == nil {
			out.OK, out.Index, out.Bytes, out.TookMS = true, s.Replica.Applied, last.Total, roundUp(o.opts.Now().Sub(op.started))
			return out, nil
		}
		now := progress(s)
		if now.Total == 0 {
			now.Bytes, now.Total = last.Bytes, last.Total
		}
		if now.Phase != last.Phase || now.Bytes != last.Bytes {
			moved = time.Now()
		}
		last = now
		op.progress.Store(&now)
		if time.Since(moved) >= stall {
			if now.Detail == "" && s.Reseed == nil {
				now.Detail = "nothing is latched; the log of " + o.name + " says why"
			}
			p := api.NewProblem(api.CodeReseedStalled, fmt.Sprintf("%s has been in phase %s for %s without getting on: %s", out.Region, now.Phase, stall, now.Detail))
			p.Try = "tidalctl status"
			return nil, p
		}
		select {
		case <-ctx.Done():
			p := api.NewProblem(api.CodeOutcomeUnknown, fmt.Sprintf("the data of %s is being replaced, and goes on to be: %v", out.Region, context.Cause(ctx)))
			p.Try = "tidalctl ops wait " + op.id
			return nil, p
		case <-poll.C:
		}
	}
}

// progress is how far a reseed is.
func progress(s member.GroupStatus) api.Progress {
	phases := member.ReseedPhases()
	p := api.Progress{Of: len(phases), Step: 1, Phase: string(phases[0])}
	if r := s.Reseed; r != nil {
		p.Detail = r.Refused
		if r.Phase != "" {
			p.Phase, p.Step = string(r.Phase), slices.Index(phases, r.Phase)+1
		}
		if p.Detail == "" {
			p.Detail = r.Failure
		}
	}
	if i := s.Install; i != nil {
		p.Bytes, p.Total, p.Rate, p.ETAMS = i.Bytes, i.Total, i.Rate, eta(*i)
	}
	return p
}

// surfaceStatus is this member's replica of the replicated surface; false before birth.
func (o *Ops) surfaceStatus() (member.GroupStatus, bool) {
	for _, g := range o.opts.Member.Status().Groups {
		if g.Group == surface {
			return g, true
		}
	}
	return member.GroupStatus{}, false
}

// reseedChecks measures what a reseed of this member needs.
func (o *Ops) reseedChecks(ctx context.Context, s member.GroupStatus, from string) []api.Check {
	heals := api.Check{Code: api.CheckHeals, OK: true, Detail: "the replica is not in quarantine"}
	if q := s.Quarantine; q != nil {
		heals.OK = q.Cause.Conduct().Heals
		heals.Detail = fmt.Sprintf("an artifact heals a replica in quarantine for %s", q.Cause)
		if !heals.OK {
			heals.Detail = fmt.Sprintf("no artifact heals a replica in quarantine for %s", q.Cause)
		}
	}
	disk := api.Check{Code: api.CheckDisk, OK: true, Detail: "its directory is there"}
	if o.opts.Disk != nil {
		if err := o.opts.Disk(surface); err != nil {
			disk.OK, disk.Detail = false, fmt.Sprintf("%v; that is a lost disk, which no artifact brings back: stop %s, put an empty directory in the place of its data and start it", err, o.name)
		}
	}
	source := api.Check{Code: api.CheckSource, Detail: "no other sound member answers"}
	if from != "" {
		source.Detail = from + " does not answer, or is in quarantine itself"
	}
	ctx, cancel := context.WithTimeout(ctx, o.opts.StatusTimeout)
	defer cancel()
	for _, m := range o.opts.Member.Roster().Members {
		if m.Name == o.name || from != "" && m.Name != from {
			continue
		}
		if o.isSound(ctx, m) {
			source.OK, source.Detail = true, m.Name+" answers and is sound"
			break
		}
	}
	return []api.Check{heals, disk, source}
}

// isSound asks m whether its replica of the surface is open and not in quarantine.
func (o *Ops) isSound(ctx context.Context, m membership.Member) bool {
	answer, err := o.opts.Asker.LocalStatus(ctx, o.httpAddr(m))
	if err != nil {
		return false
	}
	for _, g := range answer.Groups {
		if g.Group == surface.String() {
			return g.Quarantine == nil && g.State != stateClosed
		}
	}
	return false
}

func reseedRefusal(region string, checks []api.Check, failed int) *api.Problem {
	c := checks[failed]
	code, try := api.CodeNotHealed, "tidalctl quarantine show "+region
	switch c.Code {
	case api.CheckSource:
		code = api.CodeNoSource
	case api.CheckDisk:
		try = "tidalctl members replace " + region
	}
	p := api.NewProblem(code, c.Detail)
	p.Checks, p.Try = checks, try
	return p
}

func reseedProblem(err error) error {
	if errors.Is(err, member.ErrNobodyElse) {
		return api.NewProblem(api.CodeNoSource, err.Error())
	}
	return err
}

// Verify has the members compare their states and waits for what they report. It runs on the leader.
// Errors: *NotFoundError, those of a proposal, *api.Problem.
func (o *Ops) Verify(ctx context.Context, req api.VerifyRequest) (api.Verified, error) {
	out := api.Verified{Trust: req.Trust, Members: []api.VerifiedRow{}}
	roster := o.opts.Member.Roster()
	var trusted ident.MemberID
	if req.Trust != "" {
		m, ok := roster.Named(req.Trust)
		if !ok {
			return out, &NotFoundError{What: "member", Name: req.Trust}
		}
		trusted = m.ID
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(req.TimeoutMS)*time.Millisecond, ErrVerbTimeout)
	defer cancel()
	index, err := o.opts.Data.Check(ctx, surface, trusted)
	if err != nil {
		return out, err
	}
	out.Index = index
	poll := time.NewTicker(verifyPoll)
	defer poll.Stop()
	for all := false; !all; {
		out.Members, all = out.Members[:0], true
		for _, m := range roster.Members {
			v, ok := o.opts.Data.Verdict(surface, m.ID)
			all = all && ok && settled(v, index)
			out.Members = append(out.Members, api.VerifiedRow{Name: m.Name, ID: m.ID.String(), Role: m.Role.String(), Digest: *digest(v)})
		}
		select {
		case <-ctx.Done():
			all = true // who is silent stays unverified
		case <-poll.C:
		}
	}
	out.OK = true
	for _, r := range out.Members {
		out.OK = out.OK && r.State == member.StateVerified && r.VerifiedIndex != nil && *r.VerifiedIndex >= index
		out.Differs = out.Differs || r.State == member.StateDivergent || r.State == member.StateUnresolved
	}
	return out, nil
}

// settled reports whether it is known how a state stands at a check.
func settled(d member.DigestStatus, index uint64) bool {
	switch d.State {
	case member.StateUnverified:
		return false
	case member.StateVerified:
		return d.Verified >= index
	}
	return d.Index >= index
}

// ClearKept removes the replaced data that quarantines of this member kept.
func (o *Ops) ClearKept(req api.ClearRequest) (*Started, error) {
	in := intent{verb: opClear, id: req.OperationID, request: fmt.Sprintf("%s dry_run=%t", req.Region, req.DryRun), about: req.Region, dry: req.DryRun}
	return o.begin(in, func(_ context.Context, op *operation) (any, error) {
		out := api.Cleared{OK: true, Op: op.id, Region: req.Region, DryRun: req.DryRun, Kept: []api.Kept{}, Checks: []api.Check{}}
		s, ok := o.surfaceStatus()
		if !ok {
			return nil, member.ErrNotBorn
		}
		kept := s.Kept
		if !req.DryRun {
			var err error
			if kept, err = o.opts.Data.ClearKept(surface); err != nil {
				return nil, err
			}
		}
		out.Kept = keptOf(kept)
		for _, k := range out.Kept {
			out.Bytes += k.Bytes
		}
		return out, nil
	})
}

// digest says how a state stands.
func digest(d member.DigestStatus) *api.Digest {
	out := &api.Digest{State: d.State, Version: d.Version}
	if d.Index != 0 {
		out.Index, out.Sum = new(d.Index), new(fmt.Sprintf("%x", d.Sum))
	}
	if d.Verified != 0 {
		out.VerifiedIndex = new(d.Verified)
	}
	if !d.Since.IsZero() {
		out.Since = new(d.Since.UTC())
	}
	return out
}

func evidence(e *member.Evidence) *api.Evidence {
	if e == nil {
		return nil
	}
	out := &api.Evidence{Index: e.Index, Own: e.Own, Right: e.Right, Agree: []string{}}
	for _, id := range e.Agree {
		out.Agree = append(out.Agree, id.String())
	}
	return out
}

func scrubOf(s member.ScrubStatus) *api.Scrub {
	out := &api.Scrub{Running: s.Running, Bytes: s.Bytes}
	if !s.At.IsZero() {
		out.At, out.Index = new(s.At.UTC()), new(s.Index)
	}
	return out
}

func keptOf(all []datadir.Kept) []api.Kept {
	out := make([]api.Kept, 0, len(all))
	for _, k := range all {
		x := api.Kept{Name: k.Name, Reason: k.Reason, Bytes: k.Bytes}
		if k.Since != 0 {
			x.Since = new(time.UnixMilli(k.Since).UTC())
		}
		out = append(out, x)
	}
	return out
}

// eta is how many milliseconds a transfer will take yet, at the rate so far; nil: not known.
func eta(i member.InstallStatus) *int64 {
	if i.Rate <= 0 || i.Total <= 0 {
		return nil
	}
	return new((i.Total - min(i.Bytes, i.Total)) * 1000 / i.Rate)
}
