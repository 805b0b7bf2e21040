package ops

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/membership"
)

// Teller asks the member that listens for HTTP at addr for its own part of an answer.
type Teller interface {
	Why(ctx context.Context, addr, name string) (api.Why, error)
	History(ctx context.Context, addr string) (api.History, error)
	// Operation's error is an *api.Problem with CodeNotFound where that member never ran it.
	Operation(ctx context.Context, addr, id string) (api.Operation, error)
}

// Why explains what holds the member called name back: from taking traffic, which it knows itself, and
// from voting, leading and being removed, which the leader knows. Both are asked at once, for
// Options.FanOut, and everybody where no leader is known here; ownPart has nobody asked. The error is a
// *NotFoundError.
func (o *Ops) Why(ctx context.Context, name string, ownPart bool) (api.Why, error) {
	r := o.opts.Member.Roster()
	m, ok, buried := named(r, name)
	if !ok && buried.ID == 0 && name != o.name {
		return api.Why{}, &NotFoundError{What: "member", Name: name}
	}
	out := api.Why{Member: name, ID: idText(m.ID), Role: m.Role.String(), Observer: o.name, At: o.opts.Now().UTC(), Questions: []api.Question{}}
	switch {
	case ok:
	case buried.ID != 0:
		out.ID, out.Role = buried.ID.String(), api.RoleRemoved
		out.Questions = append(out.Questions, removedQuestion(buried))
	default: // this member itself, which nobody knows yet
		out.Role = ""
	}
	ctx, cancel := o.fanOut(ctx)
	defer cancel()
	l, err := o.Leader()
	if err == nil && l.ID != 0 {
		out.Leader, out.Term = new(whoIs(r, l.ID)), l.Term
	}
	var own, led api.Why
	var asking sync.WaitGroup
	asking.Go(func() { own = o.whyReady(ctx, name, m, ok, ownPart) })
	asking.Go(func() { led = o.whyLed(ctx, name, m, ok, l, ownPart) })
	asking.Wait()
	out.Reachable, out.Error = own.Reachable, own.Error
	if led.Leader != nil { // another one knows it, on the other side of a split
		out.Leader, out.Term = led.Leader, led.Term
	}
	out.Pending = led.Pending
	out.Questions = slices.Concat(out.Questions, own.Questions, led.Questions)
	out.Unknown = slices.Concat(own.Unknown, led.Unknown)
	return out, nil
}

func removedQuestion(t membership.Tombstone) api.Question {
	told := api.Check{Code: "told", OK: t.Told, Detail: "it was told that it is removed"}
	if !t.Told {
		told.Detail = "it does not know yet that it is removed: it does not answer"
	}
	acked := api.Check{Code: "acked", OK: t.Acked, Detail: "it wrote that down and takes part in nothing any more"}
	if !t.Acked {
		acked.Detail = "it has not confirmed that it takes part in nothing any more"
	}
	detail := "removed at " + time.UnixMilli(t.RemovedAt).UTC().Format(time.RFC3339)
	if t.Expired {
		detail = "expired at " + time.UnixMilli(t.RemovedAt).UTC().Format(time.RFC3339) + ": it was never heard of; it may join again"
	}
	return api.Question{Question: api.WhyRemove, Detail: detail, Checks: []api.Check{told, acked}}
}

// whyReady asks a member whether it takes traffic.
func (o *Ops) whyReady(ctx context.Context, name string, m membership.Member, known, ownPart bool) api.Why {
	var local api.LocalStatus
	switch {
	case name == o.name:
		local = o.LocalStatus()
	case !known || ownPart:
		return api.Why{}
	default:
		var err error
		if local, err = o.opts.Asker.LocalStatus(ctx, o.httpAddr(m)); err != nil {
			return api.Why{Error: rowError(err), Unknown: []api.Reason{{Code: api.WhyReady, Member: name, Detail: err.Error()}}}
		}
	}
	if local.Name != name || known && local.ID != "" && local.ID != m.ID.String() {
		detail := fmt.Sprintf("%s, member %s, answers at %s", local.Name, cmp.Or(local.ID, "of no cluster"), o.httpAddr(m))
		return api.Why{Error: &api.RowError{Code: "wrong_member", Detail: detail}, Unknown: []api.Reason{{Code: api.WhyReady, Member: name, Detail: detail}}}
	}
	q := api.Question{Question: api.WhyReady, OK: local.Ready, Detail: "it takes traffic", Checks: []api.Check{}}
	if !local.Ready {
		q.Detail = "it takes no traffic"
	}
	for _, c := range local.Checks {
		q.Checks = append(q.Checks, api.Check{Code: c.Name, OK: c.OK, Detail: cmp.Or(c.Detail, "it serves")})
	}
	for _, g := range local.Groups {
		q.Checks = append(q.Checks, damage(g, func(id string) string { return nameOfText(o.opts.Member.Roster(), id) })...)
	}
	return api.Why{Reachable: true, Questions: []api.Question{q}}
}

// damage says what is wrong with the data of a replica, what shows it, and how far the way out of it is.
// name returns the name of a member by the text of its id.
func damage(g api.GroupStatus, name func(id string) string) (checks []api.Check) {
	if q := g.Quarantine; q != nil {
		part := "it takes no part in the group"
		if q.Votes {
			part = "it still votes and acknowledges"
		}
		checks = append(checks, api.Check{Code: "quarantine", Detail: fmt.Sprintf("group %s, since %s: %s; %s", g.Group, q.Since.Format(time.RFC3339), q.Cause, part)})
		if e := q.Evidence; e != nil {
			agree := make([]string, len(e.Agree))
			for i, id := range e.Agree {
				agree[i] = name(id)
			}
			checks = append(checks, api.Check{Code: "evidence", Detail: fmt.Sprintf("at index %d its state added up to %.16s, that of %s to %.16s",
				e.Index, e.Own, strings.Join(agree, " and "), e.Right)})
		}
	}
	if r := g.Reseed; r != nil {
		detail := fmt.Sprintf("its data is to be replaced since %s: %s", r.Since.Format(time.RFC3339), r.Reason)
		if why := cmp.Or(r.Refused, r.Failure); why != nil {
			detail += "; " + *why
		}
		checks = append(checks, api.Check{Code: "reseed", Detail: detail})
	}
	if i := g.Install; i != nil && i.Total > 0 {
		checks = append(checks, api.Check{
			Code: "install", Detail: "an artifact arrives", Measured: new(float64(i.Bytes)), Threshold: new(float64(i.Total)), Unit: "bytes",
		})
	}
	return checks
}

// nameOfText is the name of a member, or its id where the roster does not name it.
func nameOfText(r membership.Roster, id string) string {
	for _, m := range r.Members {
		if m.ID.String() == id {
			return m.Name
		}
	}
	return id
}

// whyLed returns the gates that the leader keeps: its own, if this member leads, else as it tells them.
func (o *Ops) whyLed(ctx context.Context, name string, m membership.Member, known bool, l Leader, ownPart bool) api.Why {
	unknown := func(detail string) (w api.Why) {
		for _, q := range []string{api.WhyVoter, api.WhyLeader, api.WhyRemove} {
			w.Unknown = append(w.Unknown, api.Reason{Code: q, Member: name, Detail: detail})
		}
		return w
	}
	switch {
	case !known:
		return api.Why{}
	case l.Self:
		return o.gates(ctx, name, m)
	case ownPart:
		return api.Why{}
	}
	var w api.Why
	if l.ID != 0 && l.HTTPAddr != "" && o.opts.Teller != nil {
		var err error
		if w, err = o.opts.Teller.Why(ctx, l.HTTPAddr, name); err != nil {
			return unknown(fmt.Sprintf("%s leads and did not say: %v", l.Name, err))
		}
	} else if w = o.whoLeads(ctx, name); w.Leader == nil {
		return unknown("no member that answers leads")
	}
	w.Questions = slices.DeleteFunc(w.Questions, func(q api.Question) bool { return q.Question == api.WhyReady })
	w.Unknown = nil
	return w
}

// whoLeads asks everybody for their part, and returns that of the member that leads, in the newest term if
// two believe so; without a Leader: nobody does that answers.
func (o *Ops) whoLeads(ctx context.Context, name string) (led api.Why) {
	if o.opts.Teller == nil {
		return led
	}
	members := o.opts.Member.Roster().Members
	told := make([]api.Why, len(members))
	o.each(ctx, members, func(ctx context.Context, m membership.Member) (err error) {
		if i := slices.IndexFunc(members, func(x membership.Member) bool { return x.ID == m.ID }); m.Name != o.name {
			told[i], err = o.opts.Teller.Why(ctx, o.httpAddr(m), name)
		}
		return err
	})
	for i, w := range told {
		if w.Leader != nil && *w.Leader == members[i].Name && (led.Leader == nil || w.Term > led.Term) {
			led = w
		}
	}
	return led
}

// gates measures, on the leader, what stands before a member.
func (o *Ops) gates(ctx context.Context, name string, m membership.Member) (w api.Why) {
	question := func(what, yes, no string, checks []api.Check) {
		q := api.Question{Question: what, OK: true, Detail: yes, Checks: checks}
		if slices.ContainsFunc(checks, func(c api.Check) bool { return !c.OK }) {
			q.OK, q.Detail = false, no
		}
		w.Questions = append(w.Questions, q)
	}
	if led, ok := o.opts.Member.Membership(); ok {
		if p, ok := led.Pending[m.ID]; ok {
			w.Pending = new(pending(p))
		}
	}
	voter := []api.Check{}
	if m.Role == membership.RoleLearner {
		voter = Checks(o.opts.Member.Gates(name))
		question(api.WhyVoter, "it may vote, and will in a moment", "it may not vote yet", voter)
	} else {
		question(api.WhyVoter, "it votes", "", voter)
	}
	if r, err := o.opts.Replica(surface); err == nil {
		s := r.Status()
		if s.Leader == m.ID {
			question(api.WhyLeader, "it leads", "", []api.Check{})
		} else {
			question(api.WhyLeader, "it could lead", "it could not lead", o.transferChecks(ctx, s, m))
		}
	}
	c, err := o.opts.Member.RemoveMember(ctx, name, member.RemoveOptions{DryRun: true})
	if err != nil {
		w.Unknown = append(w.Unknown, api.Reason{Code: api.WhyRemove, Member: name, Detail: err.Error()})
	} else {
		question(api.WhyRemove, "it could be removed", "it could not be removed", Checks(c.Checks))
	}
	return w
}

// History returns the changes of leadership and of membership that the members remember, oldest first.
// All are asked at once, for Options.FanOut; ownPart has nobody asked. What several saw stands once, as the
// first of them saw it.
func (o *Ops) History(ctx context.Context, ownPart bool) api.History {
	out := api.History{Observer: o.name, Events: []api.Event{}, Missing: []string{}}
	for _, e := range o.opts.Journal.All() {
		if journal.Historic(e.Fact.Kind()) {
			out.Events = append(out.Events, o.event(e))
		}
	}
	if ownPart {
		return out
	}
	ctx, cancel := o.fanOut(ctx)
	defer cancel()
	members := o.opts.Member.Roster().Members
	told, failed := make([][]api.Event, len(members)), make([]bool, len(members))
	var asking sync.WaitGroup
	for i, m := range members {
		if m.Name == o.name {
			continue
		}
		asking.Go(func() {
			if o.opts.Teller == nil {
				failed[i] = true
				return
			}
			h, err := o.opts.Teller.History(ctx, o.httpAddr(m))
			told[i], failed[i] = h.Events, err != nil
		})
	}
	asking.Wait()
	for i, m := range members {
		if failed[i] {
			out.Missing = append(out.Missing, m.Name)
		}
	}
	out.Events = merge(append(told, out.Events)...)
	return out
}

// merge puts what several members saw in the order of their times, each fact once.
func merge(told ...[]api.Event) []api.Event {
	all := slices.Concat(told...)
	slices.SortStableFunc(all, func(a, b api.Event) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Member, b.Member))
	})
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(e api.Event) bool {
		again := e.Fact != "" && seen[e.Fact]
		seen[e.Fact] = true
		return again
	})
}
