package member

import (
	"reflect"
	"slices"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
)

func digestOf(b byte) digest { return digest{version: 1, sum: [32]byte{b}} }

// said makes reports: a letter for each member from 1 on, '.' for one that is silent, a capital letter for
// a digest of another version.
func said(letters string) map[ident.MemberID]digest {
	reports := map[ident.MemberID]digest{}
	for i, l := range letters {
		switch {
		case l == '.':
		case l < 'a':
			reports[ident.MemberID(i+1)] = digest{version: 2, sum: [32]byte{byte(l)}}
		default:
			reports[ident.MemberID(i+1)] = digestOf(byte(l))
		}
	}
	return reports
}

func TestJudge(t *testing.T) {
	t.Parallel()
	three := &pb.ConfState{Voters: []uint64{1, 2, 3}}
	two := &pb.ConfState{Voters: []uint64{1, 2}}
	learners := &pb.ConfState{Voters: []uint64{1, 2}, Learners: []uint64{3, 4}}
	joint := &pb.ConfState{Voters: []uint64{1, 2, 4}, VotersOutgoing: []uint64{1, 2, 3}}
	ids := func(all ...ident.MemberID) []ident.MemberID { return all }
	right := func(l byte, agree []ident.MemberID, wrong ...ident.MemberID) finding {
		return finding{decided: true, right: digestOf(l), agree: agree, wrong: wrong}
	}
	for _, tc := range []struct {
		name    string
		conf    *pb.ConfState
		trusted ident.MemberID
		reports string
		want    finding
	}{
		{"nobody says anything", three, 0, "...", finding{}},
		{"one of three", three, 0, "a..", finding{}},
		{"two of three", three, 0, "a.a", right('a', ids(1, 3))},
		{"all", three, 0, "aaa", right('a', ids(1, 2, 3))},
		{"one differs", three, 0, "aba", right('a', ids(1, 3), 2)},
		{"the first differs", three, 0, "baa", right('a', ids(2, 3), 1)},
		{"all differ", three, 0, "abc", finding{unresolved: true}},
		{"two differ and one is silent", three, 0, "ab.", finding{unresolved: true}},
		{"two differ", two, 0, "ab", finding{unresolved: true}},
		{"two agree", two, 0, "aa", right('a', ids(1, 2))},
		{"one of two", two, 0, "a.", finding{}},
		{"two agree, learners differ", learners, 0, "aabb", right('a', ids(1, 2), 3, 4)},
		{"two differ, learners agree with one", learners, 0, "abaa", finding{unresolved: true}},
		{"one voter, learners agree with it", learners, 0, "a.aa", finding{}},
		{"voters are silent", learners, 0, "..ab", finding{}},
		{"joint, a majority of both", joint, 0, "aab.", right('a', ids(1, 2), 3)},
		{"joint, a majority of one set", joint, 0, "a.ba", finding{unresolved: true}},
		{"another version is no difference", three, 0, "aaB", right('a', ids(1, 2))},
		{"two versions", three, 0, "aB.", finding{}},
		{"two versions, two differ", three, 0, "abC", finding{unresolved: true}},
		{"trusted", two, 2, "ab", right('b', ids(2), 1)},
		{"trusted, against a majority", three, 2, "aba", right('b', ids(2), 1, 3)},
		{"trusted is silent", three, 2, "a.a", finding{}},
		{"trusted is a learner", learners, 3, "aab.", right('b', ids(3), 1, 2)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := judge(tc.conf, tc.trusted, said(tc.reports)); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("judge(%v, %q) = %+v, want %+v", tc.conf, tc.reports, got, tc.want)
			}
		})
	}
}

// Whoever is blamed differs from a majority of the voters, who agree; and of a majority nobody is.
func TestJudge_BlamesAMinorityAlone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		conf := &pb.ConfState{}
		reports := map[ident.MemberID]digest{}
		n := rapid.Uint64Range(1, 9).Draw(t, "members")
		for id := uint64(1); id <= n; id++ {
			if id == 1 || rapid.Bool().Draw(t, "voter") {
				conf.Voters = append(conf.Voters, id)
			} else {
				conf.Learners = append(conf.Learners, id)
			}
			if rapid.IntRange(0, 3).Draw(t, "silent") > 0 {
				reports[ident.MemberID(id)] = digest{version: rapid.Uint16Range(1, 2).Draw(t, "version"), sum: [32]byte{rapid.ByteRange(0, 2).Draw(t, "sum")}}
			}
		}
		f := judge(conf, 0, reports)
		right, wrong := 0, 0
		for _, id := range conf.Voters {
			d, reported := reports[ident.MemberID(id)]
			if reported && f.decided && d == f.right {
				right++
			}
			if slices.Contains(f.wrong, ident.MemberID(id)) {
				wrong++
			}
		}
		if f.decided && right < membership.Majority(len(conf.Voters)) || !f.decided && len(f.wrong) > 0 || right > 0 && wrong >= right {
			t.Fatalf("judge(%v, %v) = %+v: %d voters are right", conf, reports, f, right)
		}
	})
}

func TestStandingOf(t *testing.T) {
	t.Parallel()
	conf := &pb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}}
	// Each check: its index times ten, how old it is, what was reported.
	at := func(index uint64, age int) check { return check{index: index, conf: conf, age: age} }
	for _, tc := range []struct {
		name    string
		id      ident.MemberID
		checks  []check
		reports map[uint64]string
		want    standing
	}{
		{"no check yet", 1, nil, nil, standing{state: StateUnverified}},
		{"verified", 1, []check{at(9, 0)}, map[uint64]string{9: "aa.."}, standing{state: StateVerified, index: 9, verified: 9}},
		{"the newest is on its way", 1, []check{at(9, 1), at(5, 9)}, map[uint64]string{9: "a...", 5: "aaa."}, standing{state: StateVerified, index: 5, verified: 5}},
		{"the newest was not answered", 1, []check{at(9, 6), at(5, 9)}, map[uint64]string{9: "a...", 5: "aaa."}, standing{state: StateUnverified, index: 9, verified: 5}},
		{"it did not report", 3, []check{at(9, 6), at(5, 9)}, map[uint64]string{9: "aa..", 5: "aaa."}, standing{state: StateUnverified, index: 9, verified: 5}},
		{"divergent", 2, []check{at(9, 0), at(5, 9)}, map[uint64]string{9: "aba.", 5: "aaa."}, standing{state: StateDivergent, index: 9}},
		{"divergent learner", 4, []check{at(9, 0)}, map[uint64]string{9: "aaab"}, standing{state: StateDivergent, index: 9}},
		{"divergent before, right now", 2, []check{at(9, 0), at(5, 9)}, map[uint64]string{9: "aaa.", 5: "aba."}, standing{state: StateVerified, index: 9, verified: 9}},
		{"divergent before, the newest is on its way", 2, []check{at(9, 0), at(5, 9)}, map[uint64]string{9: "", 5: "aba."}, standing{state: StateDivergent, index: 5}},
		{"unresolved", 1, []check{at(9, 0), at(5, 9)}, map[uint64]string{9: "ab..", 5: "aaa."}, standing{state: StateUnresolved, index: 9}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := standingOf(tc.id, tc.checks, func(index uint64) map[ident.MemberID]digest { return said(tc.reports[index]) })
			got.finding, got.own = finding{}, digest{}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("standing of %s = %+v, want %+v", tc.id, got, tc.want)
			}
		})
	}
}
