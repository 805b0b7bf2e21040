package member

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
)

// Of two voters the leader removes the other one, and forgets in a crash that this was committed. It needs the
// other's vote again, whose log is longer than its own: who knows of its removal before it is told goes on.
func TestLeaving_LeaderForgetsTheCommit(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2")
	l.run(2 * time.Second)
	leader := l.leader()
	leaving := l.other(leader)
	leaving.noSync = true // so that the removal is not committed before the leader's disk stands still
	before := leader.status().Last
	if _, err := leader.m.BeginRemove(leaving.name, RemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	l.until("the removal on the leader's disk", func() bool { return leader.status().Durable > before })
	removal := leader.status().Durable
	leader.noSync, leader.noApply = true, true
	write := command.EncodeWrite(command.Write{Records: []command.Record{command.Signal{Item: "a", Type: "view", Milli: 1000}}})
	if _, err := leader.driver.Write(write, consensus.AckQuorum); err != nil {
		t.Fatal(err)
	}
	leaving.noSync = false
	l.until("the commit to be heard of", func() bool { s := leaving.status(); return s.Commit >= removal && s.Durable > removal })
	leader.kill()
	leader.noSync, leader.noApply = false, false
	leader.start()
	if s := leader.status(); s.Commit >= removal || s.Last > removal {
		t.Fatalf("commit %d, log to %d, with the removal at %d: nothing is forgotten", s.Commit, s.Last, removal)
	}
	l.until("the removed one to be told", func() bool { return leaving.m.gone() != nil })
	l.until("the other to lead alone", func() bool {
		s := leader.status()
		return s.State == raft.StateLeader && len(s.Conf.GetVoters()) == 1 && len(leader.m.Roster().Members) == 1
	})
	l.write()
}

// A machine that was admitted, and removed before it had any data, is told so where it asks: nobody else
// knows where it is. It had heard of its admission, or had not.
func TestLeaving_BeforeTheFirstData(t *testing.T) {
	t.Parallel()
	for _, heard := range []bool{false, true} {
		l := newLab(t, "n1")
		n := l.machine("n2")
		l.nodes = append(l.nodes, n)
		n.start()
		a, err := l.do(func(m *Member) (*Verb, error) {
			return m.BeginJoin(membership.Candidate{
				Name: n.name, Incarnation: n.dir.Member().Incarnation, GRPCAddr: n.addr, HTTPAddr: n.name + ":2", Capabilities: ident.Supported,
			})
		}).Admission()
		if err != nil {
			t.Fatal(err)
		}
		if heard {
			if err := n.dir.Admit(a.Cluster, a.ID, l.leader().dir.Member().Genesis); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.do(func(m *Member) (*Verb, error) { return m.BeginRemove(n.name, RemoveOptions{}) }).Change(); err != nil {
			t.Fatal(err)
		}
		n.kill()
		n.start()
		n.seeks = true
		l.until("it to learn that it was removed", func() bool { return n.m.gone() != nil && n.m.phase() == PhaseRemoved })
		n.kill()
		n.start()
		if n.m.phase() != PhaseRemoved {
			t.Errorf("after a start it is %s", n.m.phase())
		}
	}
}
