package sim

import (
	"context"
	"errors"
	"fmt"

	daemon "github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/membership"
)

const playsJoins = true

// invite has the process ask others to be taken in.
func (m *member) invite(o *daemon.Options) {
	o.Join = daemon.JoinOptions{Seeds: m.seeds, Rejoin: m.rejoin, Introducer: port{m}}
}

// pendingJoin is a join that was asked for.
type pendingJoin struct {
	v    *daemon.Verb
	of   *member
	life uint64
}

// Join asks for admission and says that there is none yet, until there is: nothing waits here.
func (p port) Join(_ context.Context, seed string, who membership.Candidate) (daemon.Introduction, error) {
	m, c := p.m, p.m.c
	asked, err := p.reachHTTP(p.m, seed)
	if err != nil {
		return daemon.Introduction{}, err
	}
	if !asked.serving() {
		return daemon.Introduction{}, fmt.Errorf("%s serves nobody", seed)
	}
	leader := c.byID(asked.role.Leader)
	if leader == nil || !leader.serving() || leader != asked && !(c.net.open(asked.id, leader.id) && c.net.open(leader.id, asked.id)) {
		return daemon.Introduction{}, fmt.Errorf("%s knows of no leader that answers", seed)
	}
	j := &m.admission
	if j.v == nil || j.of != leader || j.life != leader.life {
		v, err := leader.process.BeginJoin(who)
		if err != nil {
			return daemon.Introduction{}, err
		}
		c.note(leader.id, "asked to admit", m.id)
		*j = pendingJoin{v, leader, leader.life}
		leader.after(0, leader.turnRegistrar)
	}
	select {
	case <-j.v.Done():
	default:
		return daemon.Introduction{}, errors.New("no answer yet")
	}
	a, err := j.v.Admission()
	*j = pendingJoin{}
	if err != nil {
		c.sometimes("join refused")
		return daemon.Introduction{}, err
	}
	c.sometimes("join answered")
	return daemon.Introduction{Cluster: a.Cluster, ID: a.ID, Term: a.Term, Leader: a.Leader, Members: a.Roster.Members}, nil
}

// Locate says where the member at seed is reached by its peers, if it belongs to a cluster.
func (p port) Locate(_ context.Context, seed string) (string, error) {
	o, err := p.reachHTTP(p.m, seed)
	if err != nil || o.as == 0 {
		return "", err
	}
	return o.addr, nil
}

func (p port) reachHTTP(from *member, addr string) (*member, error) {
	for _, o := range from.c.members {
		if o.httpAddr() == addr {
			return p.reach(o.addr)
		}
	}
	return nil, fmt.Errorf("nobody lives at %s", addr)
}
