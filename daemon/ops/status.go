package ops

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/reach"
)

// Status asks every member of the roster for its own view, all at once, and merges the answers. It
// returns after StatusTimeout at the latest, with a row for every member. It works on any member,
// with or without a leader.
func (o *Ops) Status(ctx context.Context) api.Status {
	ctx, cancel := context.WithTimeout(ctx, o.opts.StatusTimeout)
	defer cancel()
	return aggregate(o.name, o.askAll(ctx), o.opts.Now())
}

// askAll asks every member, this one included, all at once, until ctx ends.
func (o *Ops) askAll(ctx context.Context) []row {
	local := o.LocalStatus()
	rows := o.rows()
	var asked sync.WaitGroup
	for i := range rows {
		r := &rows[i]
		if r.member.Name == o.name && (r.member.ID == local.ID || r.member.ID == "" || local.ID == "") {
			r.answer = &local
			continue
		}
		asked.Go(func() { o.ask(ctx, local.ClusterID, r) })
	}
	asked.Wait()
	return rows
}

// rows returns who is to be asked, where: the roster or, before birth, the topology file.
func (o *Ops) rows() []row {
	r := o.opts.Member.Roster()
	members := roster(r).Members
	if r.Version == 0 {
		members = declared(o.opts.Member.Declared())
	}
	if len(members) == 0 { // nobody declares this member, and it has not joined
		s := o.opts.Member.Status()
		members = []api.Member{{Name: s.Name, ID: idText(s.ID), Role: api.RoleLearner, GRPCAddr: s.GRPCAddr, HTTPAddr: s.HTTPAddr}}
	}
	rows := make([]row, len(members))
	for i := range members {
		rows[i].member = members[i]
		if i < len(r.Members) {
			rows[i].member.HTTPAddr = o.httpAddr(r.Members[i])
		}
	}
	return rows
}

// ask fills r with the answer, or with why there is none.
func (o *Ops) ask(ctx context.Context, cluster string, r *row) {
	start := time.Now()
	answer, err := o.opts.Asker.LocalStatus(ctx, r.member.HTTPAddr)
	r.took = time.Since(start)
	switch {
	case err != nil:
		r.err = rowError(err)
	case answer.Name != r.member.Name:
		r.err = &api.RowError{Code: "wrong_member", Detail: fmt.Sprintf("%q answers at %s", answer.Name, r.member.HTTPAddr)}
	case answer.ClusterID != cluster && answer.ClusterID != "" && cluster != "":
		r.err = &api.RowError{Code: "wrong_member", Detail: fmt.Sprintf("a member of cluster %s answers at %s", answer.ClusterID, r.member.HTTPAddr)}
	case r.member.ID != "" && answer.ID != "" && answer.ID != r.member.ID:
		r.err = &api.RowError{Code: "wrong_member", Detail: fmt.Sprintf("%s answers there as member %s", answer.Name, answer.ID)}
	default:
		r.answer = &answer
		if r.member.ID == "" { // born while this member still waits: it knows its own id
			r.member.ID = answer.ID
		}
	}
}

// rowError is an error of asking another member as a row has it.
func rowError(err error) *api.RowError {
	code, _ := reach.Why(err)
	switch code {
	case reach.Refused, reach.Timeout, reach.Unresolved:
		return &api.RowError{Code: string(code), Detail: err.Error()}
	}
	return &api.RowError{Code: string(reach.Other), Detail: err.Error()}
}
