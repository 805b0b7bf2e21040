package ops

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
)

// cutsText writes cuts as "holder direction peer", a delay behind it, sorted.
func cutsText(cuts []cut) string {
	var lines []string
	for _, c := range cuts {
		line := fmt.Sprintf("%s %s %s", c.holder, c.direction, c.peer)
		if c.delay > 0 {
			line += " " + c.delay.String()
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

func TestPlanCuts(t *testing.T) {
	roster := []string{"a", "b", "c", "d", "e"}
	for _, tc := range []struct {
		name string
		req  api.PartitionRequest
		want string
	}{
		{"one is isolated, by itself alone", api.PartitionRequest{Members: []string{"c"}},
			"c both a, c both b, c both d, c both e"},
		{"two are isolated, not from each other", api.PartitionRequest{Members: []string{"a", "e"}},
			"a both b, a both c, a both d, e both b, e both c, e both d"},
		{"one is not heard", api.PartitionRequest{Members: []string{"c"}, Direction: api.DirectionOut},
			"c out a, c out b, c out d, c out e"},
		{"one hears nothing", api.PartitionRequest{Members: []string{"c"}, Direction: api.DirectionIn},
			"c in a, c in b, c in d, c in e"},
		{"two sides, by all", api.PartitionRequest{Split: [][]string{{"a", "b"}, {"c", "d"}}},
			"a both c, a both d, b both c, b both d, c both a, c both b, d both a, d both b"},
		{"three sides", api.PartitionRequest{Split: [][]string{{"a"}, {"b"}, {"c"}}},
			"a both b, a both c, b both a, b both c, c both a, c both b"},
		{"the first side is not heard", api.PartitionRequest{Split: [][]string{{"a"}, {"b"}, {"c"}}, Direction: api.DirectionOut},
			"a out b, a out c"},
		{"one is slow, and to one", api.PartitionRequest{Split: [][]string{{"a"}, {"b"}}, DelayMS: 20},
			"a out b 20ms, b out a 20ms"},
		{"what one sends is slow", api.PartitionRequest{Members: []string{"a", "b", "c"}, DelayMS: 20, Direction: api.DirectionOut},
			"a out d 20ms, a out e 20ms, b out d 20ms, b out e 20ms, c out d 20ms, c out e 20ms"},
		{"what one is sent is slow", api.PartitionRequest{Members: []string{"a", "b", "c", "d"}, DelayMS: 20, Direction: api.DirectionIn},
			"e out a 20ms, e out b 20ms, e out c 20ms, e out d 20ms"},
	} {
		cuts, err := planCuts(roster, tc.req)
		if got := cutsText(cuts); err != nil || got != tc.want {
			t.Errorf("%s: %s, %v, want %s", tc.name, got, err, tc.want)
		}
	}
	if _, err := planCuts(roster, api.PartitionRequest{Split: [][]string{{"a"}, {"x"}}}); err == nil || err.Error() != `there is no member "x"` {
		t.Errorf("an unknown member: %v", err)
	}
	_, err := planCuts(roster, api.PartitionRequest{Members: roster})
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.CodeBadRequest || p.Field != "members" {
		t.Errorf("everybody is isolated: %v", err)
	}
}

func TestQuorumCheck(t *testing.T) {
	var members []membership.Member
	for i, name := range []string{"a", "b", "c", "d", "e", "learner"} {
		m := membership.Member{ID: ident.MemberID(i + 1), Name: name, Role: membership.RoleVoter}
		if name == "learner" {
			m.Role = membership.RoleLearner
		}
		members = append(members, m)
	}
	names := []string{"a", "b", "c", "d", "e", "learner"}
	for _, tc := range []struct {
		name string
		req  api.PartitionRequest
		best float64
		ok   bool // where the loss of the quorum is forbidden
	}{
		{"a minority is isolated", api.PartitionRequest{Members: []string{"a", "b"}}, 3, true},
		{"a majority is isolated", api.PartitionRequest{Members: []string{"a", "b", "c"}}, 3, true},
		{"three sides", api.PartitionRequest{Split: [][]string{{"a", "b"}, {"c", "d"}, {"e", "learner"}}}, 2, false},
		{"who is on no side reaches all", api.PartitionRequest{Split: [][]string{{"a", "b"}, {"c", "d"}}}, 5, true},
		{"a delay cuts nobody off", api.PartitionRequest{Split: [][]string{{"a", "b"}, {"c", "d"}, {"e"}}, DelayMS: 1}, 5, true},
	} {
		cuts, err := planCuts(names, tc.req)
		if err != nil {
			t.Fatal(err)
		}
		if c := quorumCheck(members, cuts, true); *c.Measured != tc.best || *c.Threshold != 3 || c.OK != tc.ok || !c.Overridable {
			t.Errorf("%s: %+v, %v voters, want %v, ok %t", tc.name, c, *c.Measured, tc.best, tc.ok)
		}
		if c := quorumCheck(members, cuts, false); !c.OK {
			t.Errorf("%s: refused where the loss of the quorum is allowed", tc.name)
		}
	}
}

// keeps adds a fault against other to the row of a member.
func keeps(other, effect, direction string) func(*api.LocalStatus, *api.GroupStatus) {
	return func(a *api.LocalStatus, _ *api.GroupStatus) {
		a.Faults = append(a.Faults, api.Fault{ID: "f-1", Member: a.Name, Peer: other, Direction: direction, Effect: effect, LeftMS: 20_000, ExpiresAt: testNow.Add(20 * time.Second)})
	}
}

func leaderless(a *api.LocalStatus, _ *api.GroupStatus) {
	g := a.Groups[0]
	g.Leader, g.State = nil, "follower"
	a.Groups = []api.GroupStatus{g}
}

// A fault that keeps a member from the leader, whoever keeps it up, shows before anybody has missed
// anything, and counts.
func TestAggregate_Faults(t *testing.T) {
	a, b, c := says("1", "a", "1", 7, 125, 0), says("2", "b", "1", 7, 125, 0), says("3", "c", "1", 7, 125, 0)
	faulty := func(r row, faults ...func(*api.LocalStatus, *api.GroupStatus)) row {
		copied := *r.answer
		r.answer = &copied
		for _, f := range faults {
			f(r.answer, nil)
		}
		return r
	}
	for _, tc := range []struct {
		name        string
		rows        []row
		partitioned string
		up          int
		level       string
		reasons     string
	}{
		{"none", []row{a, b, c}, "", 3, "ok", ""},
		{"a follower, by itself", []row{a, faulty(b, keeps("a", "drop", "both"), keeps("c", "drop", "both")), c}, "b", 2, "degraded", "member_partitioned:b fault_injected:b"},
		{"a follower, by the leader", []row{faulty(a, keeps("b", "drop", "both")), b, c}, "b", 2, "degraded", "member_partitioned:b fault_injected:a"},
		{"one way", []row{a, faulty(b, keeps("a", "drop", "in")), c}, "b", 2, "degraded", "member_partitioned:b fault_injected:b"},
		{"two followers from each other", []row{a, faulty(b, keeps("c", "drop", "both")), faulty(c, keeps("b", "drop", "both"))}, "", 3, "degraded", "fault_injected:b fault_injected:c"},
		{"a slow one", []row{a, faulty(b, keeps("a", "delay", "out")), c}, "", 3, "degraded", "fault_injected:b"},
		{"the leader, which nobody has replaced yet", []row{faulty(a, keeps("b", "drop", "both"), keeps("c", "drop", "both")), b, c}, "b c", 1, "critical", "no_quorum member_partitioned:b member_partitioned:c fault_injected:a"},
		{"no leader, and two that reach each other", []row{faulty(a, keeps("b", "drop", "both"), keeps("c", "drop", "both"), leaderless), faulty(b, leaderless), faulty(c, leaderless)}, "", 2, "critical", "no_leader fault_injected:a"},
		{"no leader, and nobody reaches anybody", []row{faulty(a, keeps("b", "drop", "both"), keeps("c", "drop", "both"), leaderless), faulty(b, keeps("c", "drop", "in"), leaderless), faulty(c, leaderless)}, "", 1, "critical", "no_leader no_quorum fault_injected:a fault_injected:b"},
	} {
		s := aggregate("a", tc.rows, testNow)
		var cut, reasons []string
		for _, r := range s.Regions {
			if r.Partitioned {
				cut = append(cut, r.Name)
			}
			if !r.Reachable {
				t.Errorf("%s: %s is not reachable", tc.name, r.Name)
			}
		}
		for _, r := range s.Health.Reasons {
			text := r.Code
			if r.Member != "" {
				text += ":" + r.Member
			}
			reasons = append(reasons, text)
		}
		if got := strings.Join(cut, " "); got != tc.partitioned {
			t.Errorf("%s: partitioned %q, want %q", tc.name, got, tc.partitioned)
		}
		if s.Quorum.Up != tc.up || s.Health.Level != tc.level || strings.Join(reasons, " ") != tc.reasons {
			t.Errorf("%s: %d voters up, %s, %q; want %d, %s, %q", tc.name, s.Quorum.Up, s.Health.Level, reasons, tc.up, tc.level, tc.reasons)
		}
	}
	s := aggregate("a", []row{a, faulty(b, keeps("a", "drop", "both")), silent("3", "c", "timeout")}, testNow)
	if s.Regions[0].Faults == nil && a.answer.Faults != nil || len(s.Regions[1].Faults) != 1 || s.Regions[2].Faults != nil {
		t.Errorf("faults of the rows: %v, %v, %v; unknown must be null", s.Regions[0].Faults, s.Regions[1].Faults, s.Regions[2].Faults)
	}
	if want := "fault f-1 on b keeps it from a until 12:00:20Z"; s.Health.Reasons[2].Detail != want {
		t.Errorf("reasons %+v, want %q", s.Health.Reasons, want)
	}
}

// A side that lost its leader to a cut is a side: it is shown, though it disagrees with nobody about who
// leads. Without a cut it is about to hear of the leader.
func TestAggregate_ShowsBothSidesOfACut(t *testing.T) {
	cut := func(id, name string, peers ...string) row {
		r := says(id, name, "", 8, 125, time.Second)
		for _, p := range peers {
			keeps(p, "drop", "both")(r.answer, nil)
		}
		return r
	}
	for _, tc := range []struct {
		name  string
		rows  []row
		sides string
	}{
		{"no cut", []row{says("1", "a", "1", 7, 125, 0), says("2", "b", "1", 7, 125, 0), cut("3", "c")}, ""},
		{"one member", []row{says("1", "a", "1", 7, 125, 0), says("2", "b", "1", 7, 125, 0), cut("3", "c", "a", "b")}, "a: a b; -: c"},
		{"two of five", []row{cut("1", "a", "c", "d", "e"), cut("2", "b", "c", "d", "e"), says("3", "c", "4", 9, 130, 0), says("4", "d", "4", 9, 130, 0), says("5", "e", "4", 9, 130, 0)}, "d: c d e; -: a b"},
		{"no leader anywhere", []row{cut("1", "a", "b"), cut("2", "b", "a")}, ""},
	} {
		s := aggregate("a", tc.rows, testNow)
		var sides []string
		for _, v := range s.Views {
			leader := "-"
			if v.Leader != nil {
				leader = *v.Leader
			}
			sides = append(sides, leader+": "+strings.Join(v.Members, " "))
		}
		if got := strings.Join(sides, "; "); got != tc.sides || !s.Consistent {
			t.Errorf("%s: sides %q, consistent %t; want %q, true", tc.name, got, s.Consistent, tc.sides)
		}
	}
}
