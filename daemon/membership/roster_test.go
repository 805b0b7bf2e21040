package membership

import (
	"slices"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"go.etcd.io/raft/v3/quorum"
	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/ident"
)

func TestRoster_FindsMembers(t *testing.T) {
	r := testRoster()
	for id := ident.MemberID(0); id < 9; id++ {
		m, ok := r.Member(id)
		if want := id >= 1 && id <= 3; ok != want || ok && m.ID != id {
			t.Errorf("Member(%d) = %d, %v, want found: %v", id, m.ID, ok, want)
		}
		if got, want := r.Removed(id), id >= 4 && id <= 6; got != want {
			t.Errorf("Removed(%d) = %v, want %v", id, got, want) // 5 has no tombstone any more
		}
	}
	if m, ok := r.Named("ap-south"); !ok || m.ID != 3 {
		t.Errorf(`Named("ap-south") = %d, %v, want 3`, m.ID, ok)
	}
	if _, ok := r.Named("sa-east"); ok {
		t.Error(`Named("sa-east") found a removed member`)
	}
}

func TestGenesis_FirstRosterAndConfState(t *testing.T) {
	g := testGenesis()
	r := g.Roster()
	if r.Version != 1 || r.NextID != 4 || len(r.Members) != 3 || len(r.Tombstones) != 0 {
		t.Errorf("Roster() = %+v", r)
	}
	if err := r.validate(); err != nil {
		t.Errorf("Roster() is not valid: %v", err)
	}
	if got, want := g.ConfState().GetVoters(), []uint64{1, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("voters = %v, want %v", got, want)
	}
}

func TestGenesis_ClusterID(t *testing.T) {
	g := testGenesis()
	const want = "ddf3c1b541b185ef1ccb8faa834a1cb4" // members on disk carry it: it never changes
	id := g.ClusterID()
	if got := id.String(); got != want {
		t.Errorf("ClusterID() = %s, want %s", got, want)
	}
	same := testGenesis()
	slices.Reverse(same.Members) // names are sorted first
	same.Members[0].GRPCAddr = "elsewhere:1"
	if got := same.ClusterID(); got != id {
		t.Errorf("ClusterID() depends on order or addresses: %s, want %s", got, id)
	}
	for what, change := range map[string]func(*Genesis){
		"topology":    func(g *Genesis) { g.Topology[5]++ },
		"name":        func(g *Genesis) { g.Members[1].Name = "eu-west" },
		"incarnation": func(g *Genesis) { g.Members[1].Incarnation = inc(9) },
	} {
		other := testGenesis()
		change(&other)
		if other.ClusterID() == id {
			t.Errorf("ClusterID() does not depend on the %s", what)
		}
	}
}

func TestQuorumOf_Table(t *testing.T) {
	for _, tc := range []struct {
		name string
		conf *pb.ConfState
		up   []ident.MemberID
		want Quorum
	}{
		{"one voter", &pb.ConfState{Voters: []uint64{1}}, []ident.MemberID{1}, Quorum{1, 1, 1, 0}},
		{"two of two", &pb.ConfState{Voters: []uint64{1, 2}}, []ident.MemberID{1, 2}, Quorum{2, 2, 2, 0}},
		{"three, all up", &pb.ConfState{Voters: []uint64{1, 2, 3}}, []ident.MemberID{1, 2, 3}, Quorum{3, 3, 2, 1}},
		{"three, one up", &pb.ConfState{Voters: []uint64{1, 2, 3}}, []ident.MemberID{3}, Quorum{3, 1, 2, 0}},
		{"four need three", &pb.ConfState{Voters: []uint64{1, 2, 3, 4}}, []ident.MemberID{1, 2, 3, 4}, Quorum{4, 4, 3, 1}},
		{"learners do not count", &pb.ConfState{Voters: []uint64{1}, Learners: []uint64{2}}, []ident.MemberID{2}, Quorum{1, 0, 1, 0}},
		{"joint: the old set decides", &pb.ConfState{Voters: []uint64{1, 2, 4}, VotersOutgoing: []uint64{1, 2, 3}},
			[]ident.MemberID{1, 2, 4}, Quorum{3, 2, 2, 0}},
		{"no voters", &pb.ConfState{}, nil, Quorum{0, 0, 1, 0}},
		{"no configuration", nil, nil, Quorum{0, 0, 1, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := QuorumOf(tc.conf, func(id ident.MemberID) bool { return slices.Contains(tc.up, id) })
			if got != tc.want {
				t.Errorf("QuorumOf = %+v, want %+v", got, tc.want)
			}
		})
	}
}

// Over 1…9 voters, joint or not, we say "reached" exactly when raft's own tally says "won", and any
// two sets that reach it have a member in common.
func TestQuorumOf_AgreesWithRaft(t *testing.T) {
	ids := rapid.SliceOfNDistinct(rapid.Uint64Range(1, 12), 1, 9, rapid.ID[uint64])
	rapid.Check(t, func(t *rapid.T) {
		conf := &pb.ConfState{Voters: ids.Draw(t, "voters")}
		if rapid.Bool().Draw(t, "joint") {
			conf.VotersOutgoing = ids.Draw(t, "outgoing")
		}
		joint := quorum.JointConfig{majority(conf.Voters), majority(conf.VotersOutgoing)}
		draw := func(label string) map[uint64]bool {
			votes := make(map[uint64]bool)
			for id := range joint.IDs() {
				votes[id] = rapid.Bool().Draw(t, label)
			}
			return votes
		}
		a, b := draw("a"), draw("b")
		reached := func(up map[uint64]bool) bool {
			return QuorumOf(conf, func(id ident.MemberID) bool { return up[uint64(id)] }).Reached()
		}
		if got, want := reached(a), joint.VoteResult(a) == quorum.VoteWon; got != want {
			t.Fatalf("reached = %v, raft says %v for %v in %v", got, want, a, conf)
		}
		if reached(a) && reached(b) {
			common := false
			for id := range a {
				common = common || a[id] && b[id]
			}
			if !common {
				t.Fatalf("two disjoint majorities %v and %v in %v", a, b, conf)
			}
		}
	})
}

func majority(ids []uint64) quorum.MajorityConfig {
	c := quorum.MajorityConfig{}
	for _, id := range ids {
		c[id] = struct{}{}
	}
	return c
}
