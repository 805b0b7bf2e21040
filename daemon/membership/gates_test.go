package membership

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tidaldb/tidal/daemon/ident"
)

var update = flag.Bool("update", false, "write the golden file")

// What an operator is told, rule by rule: the words are part of the product.
func TestView_GatesGolden(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, tc := range []struct {
		title  string
		voters int
		with   func(*View)
		checks func(View) []Check
	}{
		{"remove n3 of 3, all answer", 3, nil, removal(3)},
		{"remove n3 of 3, it is down", 3, down(3), removal(3)},
		{"remove n3 of 3, n2 is down", 3, down(2), removal(3)},
		{"remove n3 of 3, n2 and n3 are down", 3, down(2, 3), removal(3)},
		{"remove the leader n1 of 3", 3, nil, removal(1)},
		{"remove n2 of 2", 2, nil, removal(2)},
		{"remove n2 of 2, it is down", 2, down(2), removal(2)},
		{"remove the only voter", 1, nil, removal(1)},
		{"remove n4 of 4, n3 is down", 4, down(3), removal(4)},
		{"remove n4 of 4, n3 and n4 are down", 4, down(3, 4), removal(4)},
		{"remove n5 of 5, n4 and n5 are down", 5, down(4, 5), removal(5)},
		{"remove n5 of 5, n3 and n4 are down", 5, down(3, 4), removal(5)},
		{"remove n3 of 3 while a change settles", 3, unsettled, removal(3)},
		{"remove n3 of 3 in the joint state", 3, func(v *View) { v.Conf.VotersOutgoing = []uint64{1, 2, 3} }, removal(3)},
		{"remove the learner n4, which never started", 3, func(v *View) { v.down(v.learner("n4")) }, removal(4)},
		{"promote n4 to 3, level", 3, func(v *View) { v.learner("n4") }, promotion(4)},
		{"promote n4 to 3, behind, of an old binary, installing", 3, func(v *View) {
			id := v.learner("n4")
			v.Activated = 1 << 40
			v.see(id, func(s *Seen) { s.Match, s.Installing, s.Unverified = 100, true, "no digest of n4 was compared yet" })
		}, promotion(4)},
		{"promote n4 to 3, it and n3 are down", 3, func(v *View) {
			v.down(v.learner("n4"))
			v.down(3)
		}, promotion(4)},
		{"promote n3, the replacement of n3, which is down", 3, func(v *View) {
			v.learner("n3")
			v.down(3)
		}, promotion(4)},
		{"replace n3, which was heard of", 3, nil, replacement(3)},
		{"replace n3, which is lost", 3, down(3), replacement(3)},
	} {
		v := testView(tc.voters)
		if tc.with != nil {
			tc.with(&v)
		}
		fmt.Fprintf(&b, "# %s\n", tc.title)
		for _, c := range tc.checks(v) {
			verdict := "ok  "
			switch {
			case !c.OK && c.Overridable:
				verdict = "warn"
			case !c.OK:
				verdict = "FAIL"
			}
			fmt.Fprintf(&b, "%s %-17s", verdict, c.Code)
			if c.Unit != "" {
				fmt.Fprintf(&b, "%d of %d %s: ", c.Measured, c.Threshold, c.Unit)
			}
			fmt.Fprintln(&b, c.Detail)
		}
		fmt.Fprintln(&b)
	}
	const golden = "testdata/gates.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the gates read\n%s\nwant\n%s", b.String(), want)
	}
}

func down(ids ...ident.MemberID) func(*View) { return func(v *View) { v.down(ids...) } }

func unsettled(v *View) {
	v.ConfIndex = v.Last + 1
	v.see(1, func(s *Seen) { s.Applied, s.Committed = v.ConfIndex, v.ConfIndex })
}

func removal(id ident.MemberID) func(View) []Check {
	return func(v View) []Check { return v.Removal(id) }
}

func promotion(id ident.MemberID) func(View) []Check {
	return func(v View) []Check {
		m, _ := v.Roster.Member(id)
		return v.Promotion(m)
	}
}

func replacement(id ident.MemberID) func(View) []Check {
	return func(v View) []Check {
		m, _ := v.Roster.Member(id)
		return v.Replacement(m)
	}
}
