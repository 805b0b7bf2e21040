package member

import (
	"testing"

	"go.etcd.io/raft/v3"

	"github.com/tidaldb/tidal/daemon/peer"
)

// Who made the cluster stands once a majority can hear it, and again as long as nobody leads: what it says is
// lost on a member that has not opened its group yet.
func TestStandsUntilSomebodyLeads(t *testing.T) {
	l := bornLab(t, Retention{}, "a", "b", "c")
	a := l.nodes[0]
	stands := func(connected peer.PeerStatus) int {
		t.Helper()
		l.mail = nil
		a.m.PeerChanged(connected)
		a.driver.Turn()
		return len(l.mail)
	}
	b := peer.PeerStatus{Connected: true}
	b.ID = l.nodes[1].id()
	c := peer.PeerStatus{Connected: true}
	c.ID = l.nodes[2].id()
	for _, p := range []peer.PeerStatus{b, c, b} {
		if n := stands(p); n != 2 {
			t.Fatalf("%d messages after member %s was connected, want one to each of two", n, p.ID)
		}
	}
	l.leader()
	if a.status().State != raft.StateLeader {
		t.Fatalf("member %s leads, want the one that stood", a.status().Leader)
	}
	term := a.status().Term
	if n := stands(c); n != 0 || a.status().Term != term {
		t.Errorf("%d messages of a leader to whom a peer was connected, in term %d", n, a.status().Term)
	}
}
