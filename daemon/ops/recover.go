package ops

import (
	"context"
	"fmt"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/member"
)

// Recoverer goes on from this member's disk where the majority is lost. *member.Member implements it.
type Recoverer interface {
	Extent() (member.Extent, error)
	Recover(ctx context.Context, p member.RecoverPlan) (member.Recovered, error)
}

// neverRecovers stands where there is no member to recover from.
type neverRecovers struct{}

func (neverRecovers) Extent() (member.Extent, error) { return member.Extent{}, member.ErrNotBorn }
func (neverRecovers) Recover(context.Context, member.RecoverPlan) (member.Recovered, error) {
	return member.Recovered{}, member.ErrNotBorn
}

// BadPlanError refuses a plan that nobody made: one field of it.
type BadPlanError struct{ Field, Detail string }

func (e *BadPlanError) Error() string { return e.Field + ": " + e.Detail }

// RecoverView returns how far this member's disk goes.
func (o *Ops) RecoverView() (api.RecoverView, error) {
	s, err := o.opts.Recoverer.Extent()
	if err != nil {
		return api.RecoverView{}, err
	}
	v := ViewOf(s)
	v.Running = true
	if r, err := o.opts.Replica(surface); err == nil {
		rs := r.Status()
		v.CommitIndex = rs.Commit
		v.LeaderLast, _ = heard(rs, o.opts.Now())
	}
	return v, nil
}

// ViewOf tells how far a disk goes in the words of the wire. What only a running member knows is left
// out.
func ViewOf(s member.Extent) api.RecoverView {
	id := s.Identity
	v := api.RecoverView{
		Name: id.Name, ID: idText(id.ID), ClusterID: id.Cluster.String(), Incarnation: id.Incarnation.String(), BootEpoch: id.BootEpoch,
		Group: surface.String(), Term: s.Term, Last: api.EntryRef{Term: s.Last.Term, Index: s.Last.Index},
		CommitIndex: s.Commit, AppliedIndex: s.Applied, History: s.Roster.History.String(), Roster: roster(s.Roster),
	}
	if s.Digest.Version != 0 {
		v.Digest = new(s.Digest.Total().String())
	}
	if s.Leader != 0 {
		name := s.Leader.String()
		if m, ok := s.Roster.Member(s.Leader); ok {
			name = m.Name
		}
		v.Leader = &name
	}
	return v
}

// Recover carries out a plan that names this member as the survivor.
func (o *Ops) Recover(ctx context.Context, p api.RecoverPlan) (api.RecoverAnswer, error) {
	plan, err := planOf(p)
	if err != nil {
		return api.RecoverAnswer{}, err
	}
	r, err := o.opts.Recoverer.Recover(ctx, plan)
	if err != nil {
		return api.RecoverAnswer{}, err
	}
	return api.RecoverAnswer{
		Member: o.name, History: r.History.String(), Last: api.EntryRef{Term: r.Last.Term, Index: r.Last.Index}, Index: r.Index, Already: r.Already,
	}, nil
}

// planOf reads a plan. What it cannot read, nobody made.
func planOf(p api.RecoverPlan) (member.RecoverPlan, error) {
	out := member.RecoverPlan{
		Term: p.Term, Last: ident.EntryID{Term: p.Last.Term, Index: p.Last.Index}, Roster: p.RosterVersion, Above: p.AboveTerm,
	}
	bad := func(field string, err error) (member.RecoverPlan, error) {
		return member.RecoverPlan{}, &BadPlanError{field, err.Error()}
	}
	if p.Schema != api.RecoverPlanSchema {
		return bad("schema", fmt.Errorf("is %q, this member reads %q", p.Schema, api.RecoverPlanSchema))
	}
	if p.Group != surface.String() {
		return bad("group", fmt.Errorf("is %q, want %q", p.Group, surface))
	}
	var err error
	if out.Cluster, err = ident.ParseClusterID(p.ClusterID); err != nil {
		return bad("cluster_id", err)
	}
	if out.Survivor, err = ident.ParseMemberID(p.Survivor.ID); err != nil {
		return bad("survivor.id", err)
	}
	if out.Incarnation, err = ident.ParseIncarnation(p.Survivor.Incarnation); err != nil {
		return bad("survivor.incarnation", err)
	}
	if out.Was, err = ident.ParseHistory(p.HistoryWas); err != nil {
		return bad("history_was", err)
	}
	if out.History, err = ident.ParseHistory(p.History); err != nil {
		return bad("history", err)
	}
	if len(p.GivesUp) == 0 {
		return bad("gives_up", fmt.Errorf("is empty: nobody is lost"))
	}
	for i, m := range p.GivesUp {
		id, err := ident.ParseMemberID(m.ID)
		if err != nil {
			return bad(fmt.Sprintf("gives_up[%d].id", i), err)
		}
		out.GivesUp = append(out.GivesUp, id)
	}
	for i, m := range p.Keeps {
		id, err := ident.ParseMemberID(m.ID)
		if err != nil {
			return bad(fmt.Sprintf("keeps[%d].id", i), err)
		}
		out.Keeps = append(out.Keeps, id)
	}
	return out, nil
}
