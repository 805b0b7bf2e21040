package member

import (
	"reflect"
	"testing"

	"go.etcd.io/raft/v3"

	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/peer"
)

func TestRoleFacts(t *testing.T) {
	t.Parallel()
	name := func(id ident.MemberID) string { return map[ident.MemberID]string{1: "a", 2: "b"}[id] }
	for _, c := range []struct {
		name     string
		was, now consensus.Role
		want     []journal.Fact
	}{
		{"the first word after the start", consensus.Role{}, consensus.Role{Term: 5}, nil},
		{"a leader is heard", consensus.Role{Term: 5}, consensus.Role{Term: 5, Leader: 2},
			[]journal.Fact{journal.LeaderElected{Term: 5, ID: 2, Name: "b"}}},
		{"the same again", consensus.Role{Term: 5, Leader: 2}, consensus.Role{Term: 5, Leader: 2}, nil},
		{"it is missed", consensus.Role{Term: 5, Leader: 2}, consensus.Role{Term: 5, State: raft.StatePreCandidate},
			[]journal.Fact{journal.LeaderLost{Term: 5, ID: 2, Name: "b"}}},
		{"and stood for", consensus.Role{Term: 5, State: raft.StatePreCandidate}, consensus.Role{Term: 6, State: raft.StateCandidate},
			[]journal.Fact{journal.TermRaised{Term: 6, Was: 5}, journal.StateChanged{Term: 6, State: "candidate", Was: "follower"}}},
		{"and won", consensus.Role{Term: 6, State: raft.StateCandidate}, consensus.Role{Term: 6, Leader: 1, State: raft.StateLeader},
			[]journal.Fact{journal.StateChanged{Term: 6, State: "leader", Was: "candidate"}, journal.LeaderElected{Term: 6, ID: 1, Name: "a"}}},
		{"another leads a later term", consensus.Role{Term: 6, Leader: 1, State: raft.StateLeader}, consensus.Role{Term: 7, Leader: 3},
			[]journal.Fact{journal.StateChanged{Term: 7, State: "follower", Was: "leader"}, journal.LeaderElected{Term: 7, ID: 3}}},
		{"the same leads a later term", consensus.Role{Term: 6, Leader: 2}, consensus.Role{Term: 8, Leader: 2},
			[]journal.Fact{journal.LeaderElected{Term: 8, ID: 2, Name: "b"}}},
	} {
		if got := roleFacts(0, c.was, c.now, name); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n%v\nwant\n%v", c.name, got, c.want)
		}
	}
}

// A peer that cannot be reached is tried for ever; only what changed is recorded.
func TestRecord_OnlyWhatChanged(t *testing.T) {
	t.Parallel()
	m := &Member{opts: Options{Journal: journal.New(journal.Options{Boot: 1})}, contacts: newContacts()}
	m.mu.connected = map[ident.MemberID]bool{}
	roster := membership.Roster{Version: 1, Members: []membership.Member{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}}}
	m.recordRoster(membership.Roster{}, roster)
	m.recordRoster(roster, roster)
	m.mu.roster = roster
	up := peer.PeerStatus{Peer: peer.Peer{ID: 2, Addr: "b:9600"}, Connected: true}
	down := peer.PeerStatus{Peer: up.Peer, Failure: peer.FailureRefused, Detail: "connection refused"}
	for _, s := range []peer.PeerStatus{down, up, up, down, down} {
		m.PeerChanged(s)
	}
	events, err := m.opts.Journal.After(journal.ID{Boot: 1}, 100)
	if err != nil {
		t.Fatal(err)
	}
	var got []journal.Fact
	for _, e := range events {
		got = append(got, e.Fact)
	}
	want := []journal.Fact{
		journal.RosterApplied{Version: 1, Members: []string{"a", "b"}},
		journal.PeerConnected{ID: 2, Name: "b", Addr: "b:9600"},
		journal.PeerLost{ID: 2, Name: "b", Addr: "b:9600", Failure: "refused", Detail: "connection refused"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("recorded\n%v\nwant\n%v", got, want)
	}
}
