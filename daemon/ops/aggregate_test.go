package ops

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

var testNow = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// says makes the row of a voter that answers: it stands at applied, names leader in term ("": none)
// and last heard it ago. The leader's own row has ago 0.
func says(id, name, leader string, term, applied uint64, ago time.Duration) row {
	g := api.GroupStatus{
		Group: "0", Role: api.RoleVoter, State: "follower", Term: term, FirstIndex: 2,
		LastIndex: applied, DurableIndex: applied, CommitIndex: applied, AppliedIndex: applied,
		LeaderAgeMS: new(ago.Milliseconds()),
	}
	if leader != "" {
		g.Leader = &leader
		g.LeaderLast = &g.LastIndex
	}
	if leader == id {
		g.State = "leader"
	}
	return row{
		member: api.Member{ID: id, Name: name, Role: api.RoleVoter},
		answer: &api.LocalStatus{
			Name: name, ID: id, ClusterID: "c1", Phase: api.PhaseServing, Ready: true, UptimeMS: 60_000,
			Groups: []api.GroupStatus{g},
		},
	}
}

func silent(id, name, code string) row {
	return row{member: api.Member{ID: id, Name: name, Role: api.RoleVoter}, err: &api.RowError{Code: code}}
}

// unborn makes the row of a declared member that waits for its cluster.
func unborn(name string, answers bool) row {
	r := row{member: api.Member{Name: name, Role: api.RoleVoter}}
	if answers {
		r.answer = &api.LocalStatus{Name: name, Phase: api.PhaseWaiting, UptimeMS: 60_000}
	} else {
		r.err = &api.RowError{Code: "refused"}
	}
	return r
}

func with(r row, change func(*api.LocalStatus, *api.GroupStatus)) row {
	change(r.answer, &r.answer.Groups[0])
	return r
}

func crammed(a *api.LocalStatus, _ *api.GroupStatus) {
	a.Disk = &api.Disk{TotalBytes: 64 << 20, FreeBytes: 5 << 20, ReserveBytes: 8 << 20, Full: true}
}

func heardOf(last uint64) func(*api.LocalStatus, *api.GroupStatus) {
	return func(_ *api.LocalStatus, g *api.GroupStatus) { g.LeaderLast = &last }
}

// want is what a status must say; a row is "applied/lag", with ! when unreachable, ~ when cut off.
type want struct {
	leader     string
	term       uint64
	relay      *uint64
	relayAge   *int64
	level      string
	reasons    []string // code or code:member
	quorum     api.Quorum
	rows       []string
	consistent bool
	views      string
}

func TestAggregate(t *testing.T) {
	q := func(voters, up, needed, spare int) api.Quorum {
		return api.Quorum{Voters: voters, Up: up, Needed: needed, Spare: spare}
	}
	sec := time.Second
	for _, tc := range []struct {
		name string
		rows []row
		want want
	}{
		{
			name: "all up",
			rows: []row{says("1", "a", "1", 7, 125, 0), says("2", "b", "1", 7, 125, sec), says("3", "c", "1", 7, 120, sec)},
			want: want{leader: "a", term: 7, relay: new(uint64(125)), level: "ok", quorum: q(3, 3, 2, 1), rows: []string{"125/0", "125/0", "120/5"}, consistent: true},
		},
		{
			name: "one dead: the worst case, and it is said",
			rows: []row{says("1", "a", "1", 7, 125, 0), says("2", "b", "1", 7, 125, sec), silent("3", "c", "timeout")},
			want: want{leader: "a", term: 7, relay: new(uint64(125)), level: "degraded", reasons: []string{"member_unreachable:c"}, quorum: q(3, 2, 2, 0), rows: []string{"125/0", "125/0", "!~0/125"}, consistent: true},
		},
		{
			name: "the leader does not answer: the newest that anybody heard, with its age",
			rows: []row{silent("1", "a", "timeout"), with(says("2", "b", "1", 7, 120, 2*sec), heardOf(123)), with(says("3", "c", "1", 7, 121, sec), heardOf(125))},
			want: want{leader: "a", term: 7, relay: new(uint64(125)), relayAge: new(int64(1000)), level: "degraded", reasons: []string{"member_unreachable:a"}, quorum: q(3, 2, 2, 0), rows: []string{"!~0/125", "120/5", "121/4"}, consistent: true},
		},
		{
			name: "of two that heard the same, the fresher one",
			rows: []row{silent("1", "a", "timeout"), with(says("2", "b", "1", 7, 120, 2*sec), heardOf(125)), with(says("3", "c", "1", 7, 121, sec), heardOf(125))},
			want: want{leader: "a", term: 7, relay: new(uint64(125)), relayAge: new(int64(1000)), level: "degraded", reasons: []string{"member_unreachable:a"}, quorum: q(3, 2, 2, 0), rows: []string{"!~0/125", "120/5", "121/4"}, consistent: true},
		},
		{
			name: "no leader, heard of one",
			rows: []row{silent("1", "a", "refused"), with(says("2", "b", "", 8, 120, 2*sec), heardOf(125)), says("3", "c", "", 9, 121, sec)},
			want: want{term: 9, relay: new(uint64(125)), relayAge: new(int64(2000)), level: "critical", reasons: []string{"no_leader", "member_unreachable:a"}, quorum: q(3, 2, 2, 0), rows: []string{"!~0/125", "120/5", "121/4"}, consistent: true},
		},
		{
			name: "no leader, never heard of one: null",
			rows: []row{says("1", "a", "", 1, 1, sec), says("2", "b", "", 1, 1, sec), silent("3", "c", "refused")},
			want: want{term: 1, level: "critical", reasons: []string{"no_leader", "member_unreachable:c"}, quorum: q(3, 2, 2, 0), rows: []string{"1/null", "1/null", "!~0/null"}, consistent: true},
		},
		{
			name: "no quorum",
			rows: []row{says("1", "a", "", 7, 125, 2*sec), silent("2", "b", "refused"), silent("3", "c", "refused")},
			want: want{term: 7, level: "critical", reasons: []string{"no_leader", "no_quorum", "member_unreachable:b", "member_unreachable:c"}, quorum: q(3, 1, 2, 0), rows: []string{"125/null", "!~0/null", "!~0/null"}, consistent: true},
		},
		{
			name: "a member that answers and is cut off does not count for the quorum",
			rows: []row{says("1", "a", "1", 7, 125, 0), says("2", "b", "1", 7, 125, sec), says("3", "c", "", 7, 90, 6*sec)},
			want: want{leader: "a", term: 7, relay: new(uint64(125)), level: "degraded", reasons: []string{"member_partitioned:c"}, quorum: q(3, 2, 2, 0), rows: []string{"125/0", "125/0", "~90/35"}, views: "7 a: a b; 7 -: c", consistent: true},
		},
		{
			name: "an old leader and a new one: both sides are shown, the newer term leads",
			rows: []row{says("1", "a", "1", 7, 125, 0), says("2", "b", "2", 8, 130, 0), says("3", "c", "2", 8, 130, sec)},
			want: want{leader: "b", term: 8, relay: new(uint64(130)), level: "degraded", reasons: []string{"leaders_disagree"}, quorum: q(3, 3, 2, 1), rows: []string{"125/5", "130/0", "130/0"}, views: "8 b: b c; 7 a: a"},
		},
		{
			name: "a disagreement beside one that knows nobody",
			rows: []row{says("1", "a", "1", 7, 125, 0), says("2", "b", "2", 8, 130, 0), says("3", "c", "", 8, 130, sec)},
			want: want{leader: "b", term: 8, relay: new(uint64(130)), level: "degraded", reasons: []string{"leaders_disagree"}, quorum: q(3, 3, 2, 1), rows: []string{"125/5", "130/0", "130/0"}, views: "8 b: b; 7 a: a; 8 -: c"},
		},
		{
			name: "the named leader answers that it follows: its word is not the leader's",
			rows: []row{with(says("1", "a", "", 7, 125, sec), func(_ *api.LocalStatus, g *api.GroupStatus) { g.LeaderLast = nil }), with(says("2", "b", "1", 7, 125, sec), heardOf(124)), with(says("3", "c", "1", 7, 125, sec), heardOf(124))},
			want: want{leader: "a", term: 7, relay: new(uint64(124)), relayAge: new(int64(1000)), level: "ok", quorum: q(3, 3, 2, 1), rows: []string{"125/0", "125/0", "125/0"}, consistent: true},
		},
		{
			name: "quarantined",
			rows: []row{says("1", "a", "1", 7, 125, 0), says("2", "b", "1", 7, 125, sec), with(says("3", "c", "", 0, 0, 0), func(a *api.LocalStatus, g *api.GroupStatus) {
				a.Ready, g.State, g.Quarantine, g.LeaderAgeMS = false, stateClosed, &api.Quarantine{Cause: "log_corrupt"}, nil
			})},
			want: want{leader: "a", term: 7, relay: new(uint64(125)), level: "degraded", reasons: []string{"member_quarantined:c"}, quorum: q(3, 2, 2, 0), rows: []string{"125/0", "125/0", "0/125"}, consistent: true},
		},
		{
			name: "behind, and not ready",
			rows: []row{says("1", "a", "1", 7, 5000, 0), says("2", "b", "1", 7, 5000-behindEvents, sec), with(says("3", "c", "1", 7, 5000-behindEvents-1, sec), func(a *api.LocalStatus, _ *api.GroupStatus) { a.Ready = false })},
			want: want{leader: "a", term: 7, relay: new(uint64(5000)), level: "degraded", reasons: []string{"member_not_ready:c", "member_behind:c"}, quorum: q(3, 3, 2, 1), rows: []string{"5000/0", "3976/1024", "3975/1025"}, consistent: true},
		},
		{
			name: "a follower's disk is full",
			rows: []row{says("1", "a", "1", 7, 9, 0), says("2", "b", "1", 7, 9, sec), with(says("3", "c", "1", 7, 9, sec), crammed)},
			want: want{leader: "a", term: 7, relay: new(uint64(9)), level: "degraded", reasons: []string{"disk_full:c"}, quorum: q(3, 3, 2, 1), rows: []string{"9/0", "9/0", "9/0"}, consistent: true},
		},
		{
			name: "the leader's disk is full: nobody with room took over",
			rows: []row{with(says("1", "a", "1", 7, 9, 0), crammed), says("2", "b", "1", 7, 9, sec), says("3", "c", "1", 7, 9, sec)},
			want: want{leader: "a", term: 7, relay: new(uint64(9)), level: "critical", reasons: []string{"disk_full:a"}, quorum: q(3, 3, 2, 1), rows: []string{"9/0", "9/0", "9/0"}, consistent: true},
		},
		{
			name: "two members: none may be lost, and all is well",
			rows: []row{says("1", "a", "1", 7, 9, 0), says("2", "b", "1", 7, 9, sec)},
			want: want{leader: "a", term: 7, relay: new(uint64(9)), level: "ok", quorum: q(2, 2, 2, 0), rows: []string{"9/0", "9/0"}, consistent: true},
		},
		{
			name: "four members, two dead",
			rows: []row{says("1", "a", "", 7, 9, sec), says("2", "b", "", 7, 9, sec), silent("3", "c", "timeout"), silent("4", "d", "timeout")},
			want: want{term: 7, level: "critical", reasons: []string{"no_leader", "no_quorum", "member_unreachable:c", "member_unreachable:d"}, quorum: q(4, 2, 3, 0), rows: []string{"9/null", "9/null", "!~0/null", "!~0/null"}, consistent: true},
		},
		{
			name: "a single member",
			rows: []row{says("1", "a", "1", 2, 9, 0)},
			want: want{leader: "a", term: 2, relay: new(uint64(9)), level: "ok", quorum: q(1, 1, 1, 0), rows: []string{"9/0"}, consistent: true},
		},
		{
			name: "a learner is a row and no voter",
			rows: []row{says("1", "a", "1", 2, 9, 0), func() row { r := says("2", "b", "1", 2, 4, sec); r.member.Role = api.RoleLearner; return r }()},
			want: want{leader: "a", term: 2, relay: new(uint64(9)), level: "ok", quorum: q(1, 1, 1, 0), rows: []string{"9/0", "4/5"}, consistent: true},
		},
		{
			name: "before birth nobody is cut off",
			rows: []row{unborn("a", true), unborn("b", true), unborn("c", false)},
			want: want{level: "critical", reasons: []string{"no_leader", "member_unreachable:c", "member_not_ready:a", "member_not_ready:b"}, quorum: q(3, 2, 2, 0), rows: []string{"0/null", "0/null", "!~0/null"}, consistent: true},
		},
		{
			name: "a member without a group in a cluster that is born",
			rows: []row{says("1", "a", "1", 7, 125, 0), says("2", "b", "1", 7, 125, sec), func() row { r := unborn("c", true); r.member.ID = "3"; return r }()},
			want: want{leader: "a", term: 7, relay: new(uint64(125)), level: "degraded", reasons: []string{"member_not_ready:c"}, quorum: q(3, 2, 2, 0), rows: []string{"125/0", "125/0", "0/125"}, consistent: true},
		},
		{
			name: "a leader that the roster does not know is named by its number",
			rows: []row{says("1", "a", "9", 7, 125, sec)},
			want: want{leader: "9", term: 7, relay: new(uint64(125)), relayAge: new(int64(1000)), level: "ok", quorum: q(1, 1, 1, 0), rows: []string{"125/0"}, consistent: true},
		},
		{
			name: "nobody answers",
			rows: []row{silent("1", "a", "timeout")},
			want: want{level: "unknown", quorum: q(1, 0, 1, 0), rows: []string{"!~0/null"}, consistent: true},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := aggregate("a", tc.rows, testNow)
			if g := summary(got); !reflect.DeepEqual(g, tc.want) {
				t.Errorf("aggregate:\n got %s\nwant %s", text(g), text(tc.want))
			}
			for _, r := range got.Regions {
				if (r.Error == nil) != r.Reachable {
					t.Errorf("row %s: reachable %v with error %v", r.Name, r.Reachable, r.Error)
				}
				if r.IsLeader != (got.Leader != nil && r.Name == *got.Leader) {
					t.Errorf("row %s: is_leader %v", r.Name, r.IsLeader)
				}
			}
		})
	}
}

func summary(s api.Status) want {
	w := want{term: s.Term, relay: s.RelayLogLen, relayAge: s.RelayLogAgeMS, level: s.Health.Level, quorum: s.Quorum, consistent: s.Consistent}
	if s.Leader != nil {
		w.leader = *s.Leader
	}
	for _, r := range s.Health.Reasons {
		if r.Member != "" {
			r.Code += ":" + r.Member
		}
		w.reasons = append(w.reasons, r.Code)
	}
	for _, r := range s.Regions {
		lag := "null"
		if r.LagEvents != nil {
			lag = text(*r.LagEvents)
		}
		t := text(r.AppliedEvents) + "/" + lag
		if r.Partitioned {
			t = "~" + t
		}
		if !r.Reachable {
			t = "!" + t
		}
		w.rows = append(w.rows, t)
	}
	for i, v := range s.Views {
		if i > 0 {
			w.views += "; "
		}
		leader := "-"
		if v.Leader != nil {
			leader = *v.Leader
		}
		w.views += text(v.Term) + " " + leader + ":"
		for _, m := range v.Members {
			w.views += " " + m
		}
	}
	return w
}

func text(v any) string {
	if w, ok := v.(want); ok {
		v = map[string]any{
			"leader": w.leader, "term": w.term, "relay": w.relay, "age": w.relayAge, "level": w.level, "reasons": w.reasons,
			"quorum": w.quorum, "rows": w.rows, "consistent": w.consistent, "views": w.views,
		}
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Consecutive reports of different members differ in nothing but who tells, when, and how long the
// rows took (nats-server#2792). When a member was seen that does not answer is no matter of who tells.
func TestAggregate_ObserversAgree(t *testing.T) {
	t.Parallel()
	rows := []row{says("1", "a", "1", 7, 125, 0), says("2", "b", "1", 7, 125, time.Second), silent("3", "c", "timeout")}
	other := []row{says("1", "a", "1", 7, 125, 0), says("2", "b", "1", 7, 125, time.Second), silent("3", "c", "timeout")}
	other[0].took, other[1].took = 3*time.Millisecond, 0
	heard3(rows, 4*time.Second, 5*time.Second)
	heard3(other, 5*time.Second, 6*time.Second)
	one := aggregate("a", rows, testNow)
	two := aggregate("b", other, testNow.Add(time.Second))
	two.Observer, two.At = one.Observer, one.At
	for i := range two.Regions {
		two.Regions[i].TookMS = one.Regions[i].TookMS
		if r := &two.Regions[i]; r.Reachable { // seen when it was asked
			r.LastSeen = one.Regions[i].LastSeen
		}
	}
	if x, y := text(one), text(two); x != y {
		t.Errorf("a tells\n%s\nb tells\n%s", x, y)
	}
}

// heard3 has the first two of rows say how long ago they heard from member 3.
func heard3(rows []row, a, b time.Duration) {
	rows[0].answer.HeardMS = map[string]int64{"2": 10, "3": a.Milliseconds()}
	rows[1].answer.HeardMS = map[string]int64{"1": 10, "3": b.Milliseconds()}
}

// A member was seen when anybody that answers heard from it last: now, if it answers.
func TestAggregate_LastSeen(t *testing.T) {
	t.Parallel()
	rows := []row{says("1", "a", "1", 7, 125, 0), says("2", "b", "1", 7, 125, time.Second), silent("3", "c", "timeout"), silent("4", "d", "refused"), silent("", "e", "refused")}
	heard3(rows, 7*time.Second, 3*time.Second)
	rows[0].answer.HeardMS[""] = 1 // of nobody
	var got []string
	for _, r := range aggregate("a", rows, testNow).Regions {
		if r.LastSeen == nil {
			got = append(got, r.Name+" never")
		} else {
			got = append(got, r.Name+" "+testNow.Sub(*r.LastSeen).String())
		}
	}
	if want := "[a 0s b 0s c 3s d never e never]"; fmt.Sprint(got) != want {
		t.Errorf("last seen %v, want %s", got, want)
	}
}

// BenchmarkAggregate makes the status of a cluster out of the answers of its members, of whom every fourth is
// silent.
func BenchmarkAggregate(b *testing.B) {
	for _, n := range []int{3, 7, 200} {
		rows := []row{says("0", "m0", "0", 7, 100, 0)}
		for i := 1; i < n; i++ {
			id, name := fmt.Sprint(i), fmt.Sprint("m", i)
			if i%4 == 3 {
				rows = append(rows, silent(id, name, "unreachable"))
			} else {
				rows = append(rows, says(id, name, "0", 7, 99, time.Second))
			}
		}
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				aggregate("m0", rows, testNow)
			}
		})
	}
}
