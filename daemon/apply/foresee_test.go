package apply

import (
	"slices"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
)

// What a recovery writes is, entry by entry, what raft takes, and leaves those who are kept.
func TestForesee_TakesARecovery(t *testing.T) {
	t.Parallel()
	type ids = []ident.MemberID
	for _, tc := range []struct {
		name               string
		voters, learners   []uint64
		outgoing           []uint64
		survivor           ident.MemberID
		givesUp            ids
		wantVoters         []uint64
		wantLearners       []uint64
		wantTombs, wantIDs ids
	}{
		{"one of three", []uint64{1, 2, 3}, nil, nil, 2, ids{1, 3}, []uint64{2}, nil, ids{1, 3}, ids{2}},
		{"two of five", []uint64{1, 2, 3, 4, 5}, nil, nil, 5, ids{1, 2, 3}, []uint64{4, 5}, nil, ids{1, 2, 3}, ids{4, 5}},
		{"two of four", []uint64{1, 2, 3, 4}, nil, nil, 1, ids{3, 4}, []uint64{1, 2}, nil, ids{3, 4}, ids{1, 2}},
		{"a learner is all that is left", []uint64{1, 2}, []uint64{3}, nil, 3, ids{1, 2}, []uint64{3}, nil, ids{1, 2}, ids{3}},
		{"a learner is kept, another is lost", []uint64{1, 2, 3}, []uint64{4, 5}, nil, 1, ids{2, 3, 5}, []uint64{1}, []uint64{4}, ids{2, 3, 5}, ids{1, 4}},
		{"in the middle of a replacement", []uint64{1, 2, 4}, nil, []uint64{1, 2, 3}, 1, ids{2, 3, 4}, []uint64{1}, nil, ids{2, 3, 4}, ids{1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			roster := membership.Roster{Version: 8, NextID: 9}
			for id := ident.MemberID(1); id <= 8; id++ {
				m := membership.Member{ID: id, Name: id.String(), Incarnation: ident.Incarnation{byte(id)}, GRPCAddr: "h:1", HTTPAddr: "h:2", Role: membership.RoleVoter}
				switch {
				case slices.Contains(tc.learners, uint64(id)):
					m.Role = membership.RoleLearner
				case !slices.Contains(tc.voters, uint64(id)) && !slices.Contains(tc.outgoing, uint64(id)):
					continue
				}
				roster.Members = append(roster.Members, m)
			}
			conf := &pb.ConfState{Voters: tc.voters, Learners: tc.learners, VotersOutgoing: tc.outgoing}
			history := ident.History{Epoch: 1, Nonce: 5}
			changes, err := membership.Recover(roster, conf, membership.Recovery{Survivor: tc.survivor, GivesUp: tc.givesUp, History: history})
			if err != nil {
				t.Fatal(err)
			}
			var entries []*pb.Entry
			for i, c := range changes {
				data, err := proto.Marshal(c)
				if err != nil {
					t.Fatal(err)
				}
				entries = append(entries, &pb.Entry{Type: pb.EntryConfChangeV2.Enum(), Term: new(uint64(7)), Index: new(uint64(20 + i)), Data: data})
			}
			after, left, err := Foresee(conf, roster, entries)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(after.GetVoters(), tc.wantVoters) || !slices.Equal(after.GetLearners(), tc.wantLearners) || len(after.GetVotersOutgoing()) > 0 {
				t.Errorf("configuration %v, want voters %v and learners %v", after, tc.wantVoters, tc.wantLearners)
			}
			var members, tombs ids
			for _, m := range left.Members {
				members = append(members, m.ID)
			}
			for _, x := range left.Tombstones {
				tombs = append(tombs, x.ID)
			}
			if !slices.Equal(members, tc.wantIDs) || !slices.Equal(tombs, tc.wantTombs) || left.History != history {
				t.Errorf("roster %+v, want members %v and tombstones %v of history %s", left, tc.wantIDs, tc.wantTombs, history)
			}
			if m, _ := left.Member(tc.survivor); m.Role != membership.RoleVoter {
				t.Errorf("the survivor is %s", m.Role)
			}
		})
	}
}
