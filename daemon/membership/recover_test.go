package membership

import (
	"strings"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
)

func TestRecover_Refuses(t *testing.T) {
	t.Parallel()
	roster, conf := testGenesis().Roster(), testGenesis().ConfState()
	good := Recovery{Survivor: 2, GivesUp: []ident.MemberID{1, 3}, History: ident.History{Epoch: 1, Nonce: 9}}
	for _, tc := range []struct {
		name   string
		change func(*Recovery)
		says   string
	}{
		{"a survivor that is no member", func(r *Recovery) { r.Survivor = 9 }, "member 9, the survivor, is not in roster"},
		{"nobody given up", func(r *Recovery) { r.GivesUp = nil }, "no member is given up"},
		{"the survivor given up", func(r *Recovery) { r.GivesUp = []ident.MemberID{1, 2} }, "member 2 is the survivor"},
		{"a stranger given up", func(r *Recovery) { r.GivesUp = []ident.MemberID{1, 9} }, "member 9, to be given up"},
		{"not ascending", func(r *Recovery) { r.GivesUp = []ident.MemberID{3, 1} }, "member 1 follows 3"},
		{"a history that does not follow", func(r *Recovery) { r.History.Epoch = 2 }, "history 2.0000000000000009 does not follow 0"},
	} {
		r := good
		tc.change(&r)
		if _, err := Recover(roster, conf, r); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: Recover = %v, want %q", tc.name, err, tc.says)
		}
	}
	if _, err := Recover(roster, conf, good); err != nil {
		t.Errorf("Recover = %v", err)
	}
}

// The first change that carries a roster raises the history: no prefix of a recovery has other members
// and the former history. What it is given stays as it was.
func TestRecover_RaisesTheHistoryFirst(t *testing.T) {
	t.Parallel()
	roster, conf := testGenesis().Roster(), testGenesis().ConfState()
	was := roster.Encode()
	changes, err := Recover(roster, conf, Recovery{Survivor: 2, GivesUp: []ident.MemberID{1, 3}, History: ident.History{Epoch: 1, Nonce: 9}, At: 77})
	if err != nil {
		t.Fatal(err)
	}
	if string(roster.Encode()) != string(was) {
		t.Error("Recover changed the roster that it was given")
	}
	for i, c := range changes {
		r, err := DecodeRoster(c.GetContext())
		if err != nil || r.History != (ident.History{Epoch: 1, Nonce: 9}) || r.Version != roster.Version+uint64(i)+1 {
			t.Errorf("change %d: roster version %d of history %s, %v", i, r.Version, r.History, err)
		}
	}
	if len(changes) != 2 || changes[0].Changes[0].GetType() != pb.ConfChangeRemoveNode {
		t.Errorf("changes = %v", changes)
	}
}
