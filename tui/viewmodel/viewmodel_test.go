package viewmodel_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/viewmodel"
	"github.com/tidaldb/tidal/tui/viewmodel/scenes"
)

// watch folds samples in and returns what stands on the screen after the last, wait later.
func watch(samples []viewmodel.Sample, wait time.Duration, c viewmodel.Choices) viewmodel.Screen {
	var state viewmodel.State
	now := scenes.Start()
	for _, x := range samples {
		state, now = state.Add(x), x.At
	}
	return viewmodel.Build(state, c, viewmodel.Setting{Now: now.Add(wait), Interval: time.Second, Endpoints: []string{"http://a:1"}, RetryAt: now.Add(wait + 2*time.Second)})
}

// at is a sample of s, second seconds after the start.
func at(second int, s api.Status) viewmodel.Sample {
	return viewmodel.Sample{At: scenes.Start().Add(time.Duration(second) * time.Second), Status: &s}
}

func names(s viewmodel.Screen) string {
	var list []string
	for _, m := range s.Members {
		list = append(list, m.Name)
	}
	return strings.Join(list, " ")
}

func row(t *testing.T, s viewmodel.Screen, name string) viewmodel.Member {
	t.Helper()
	i := slices.IndexFunc(s.Members, func(m viewmodel.Member) bool { return m.Name == name })
	if i < 0 {
		t.Fatalf("no row of %s among %s", name, names(s))
	}
	return s.Members[i]
}

func TestBuild_Summaries(t *testing.T) {
	for _, tc := range []struct {
		scene, want string
	}{
		{"loading", "UNKNOWN ?/? need ? lose ? leader ? commit ? rate ? fresh 0"},
		{"never", "UNKNOWN ?/? need ? lose ? leader ? commit ? rate ? fresh 0"},
		{"ok", "OK 5/5 need 3 lose 2 leader us-east commit 48,132,600 rate 1.8k fresh 1"},
		{"degraded", "DEGRADED 3/5 need 3 lose 0 leader us-east commit 48,139,800 rate 1.8k fresh 1"},
		{"leaderless", "CRITICAL 1/3 need 2 lose 0 leader none commit ? rate ? fresh 1"},
		{"split", "DEGRADED 3/5 need 3 lose 0 leader us-west commit 48,139,800 rate 1.8k fresh 1"},
		{"dead", "UNKNOWN ?/? need ? lose ? leader ~us-east commit ~48,127,200 rate ? fresh 3"},
	} {
		s := watch(scenes.Named(tc.scene).Samples, 100*time.Millisecond, viewmodel.Choices{})
		got := fmt.Sprintf("%s %s/%s need %s lose %s leader %s commit %s rate %s fresh %d",
			s.Level, s.Quorum.Up, s.Quorum.Voters, s.Quorum.Needed, s.Quorum.Spare, s.LeaderName, s.Commit, s.Rate, s.Fresh)
		if got != tc.want {
			t.Errorf("%s: %s, want %s", tc.scene, got, tc.want)
		}
	}
}

// The worst condition of a member decides its state, its reach, and how it is sorted.
func TestBuild_States(t *testing.T) {
	yes, no, slow := true, false, int64(141)
	for _, tc := range []struct {
		name         string
		change       func(*api.Status, *api.Region)
		reach        string
		state        string
		severity     viewmodel.Severity
		lag, applied string
	}{
		{"well", func(*api.Status, *api.Region) {}, "ok", "", viewmodel.Info, "18", "48,119,982"},
		{"slow", func(_ *api.Status, r *api.Region) { r.TookMS = &slow }, "slow", "answers in 141ms", viewmodel.Warn, "18", "48,119,982"},
		{"behind", func(s *api.Status, _ *api.Region) { scenes.Because(s, "degraded", "member_behind", "ap-south", "") }, "ok", "behind", viewmodel.Warn, "18", "48,119,982"},
		{"full disk beats not ready", func(s *api.Status, r *api.Region) {
			r.Ready = &no
			scenes.Because(s, "degraded", "disk_full", "ap-south", "")
			scenes.Because(s, "degraded", "member_behind", "ap-south", "")
		}, "ok", "DISK FULL", viewmodel.Warn, "18", "48,119,982"},
		{"not ready", func(_ *api.Status, r *api.Region) { r.Ready = &no }, "ok", "not ready", viewmodel.Warn, "18", "48,119,982"},
		{"cut off", func(_ *api.Status, r *api.Region) { r.Partitioned = true }, "cut off", "hears no leader", viewmodel.Crit, "18", "48,119,982"},
		{"dead", func(s *api.Status, _ *api.Region) { scenes.Lose(s, "ap-south", "timeout") }, "DOWN", "timeout", viewmodel.Crit, "<=48M", "?"},
		{"dead learner", func(s *api.Status, r *api.Region) { r.Role = api.RoleLearner; scenes.Lose(s, "ap-south", "refused") }, "DOWN", "refused", viewmodel.Warn, "<=48M", "?"},
		{"quarantined beats not ready", func(_ *api.Status, r *api.Region) {
			r.Ready, r.Quarantine = &no, &api.Quarantine{Cause: "log_write", Since: scenes.Start().Add(-134 * time.Second)}
		}, "ok", "QUARANTINE 2m14s", viewmodel.Crit, "18", "48,119,982"},
		{"removed", func(_ *api.Status, r *api.Region) { r.Role, r.Ready = api.RoleRemoved, &yes }, "ok", "removed", viewmodel.Info, "18", "48,119,982"},
		{"no leader was ever heard", func(s *api.Status, r *api.Region) { s.RelayLogLen, r.LagEvents = nil, nil }, "ok", "", viewmodel.Info, "?", "48,119,982"},
		{"positions not told", func(s *api.Status, r *api.Region) {
			r.AppliedIndex, r.AppliedEvents, r.LagEvents = nil, 0, s.RelayLogLen
		}, "ok", "", viewmodel.Info, "<=48M", "?"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := scenes.Status(scenes.Members(6), 0)
			tc.change(&s, scenes.Row(&s, "ap-south"))
			m := row(t, watch([]viewmodel.Sample{at(0, s)}, 0, viewmodel.Choices{}), "ap-south")
			if m.Reach != tc.reach || m.State != tc.state || m.Severity != tc.severity || m.Lag != tc.lag || m.Applied != tc.applied {
				t.Errorf("got reach %q state %q severity %v lag %q applied %q", m.Reach, m.State, m.Severity, m.Lag, m.Applied)
			}
		})
	}
}

func TestBuild_Sorts(t *testing.T) {
	samples := scenes.Named("degraded").Samples
	for order, want := range map[viewmodel.Order]string{
		viewmodel.BySeverity: "eu-west eu-north ap-learner us-east us-west ap-south",
		viewmodel.ByName:     "ap-learner ap-south eu-north eu-west us-east us-west",
		viewmodel.ByLag:      "eu-west eu-north ap-south ap-learner us-west us-east",
		viewmodel.ByRole:     "us-east us-west eu-west eu-north ap-south ap-learner",
	} {
		if got := names(watch(samples, 0, viewmodel.Choices{Order: order})); got != want {
			t.Errorf("by %v: %s, want %s", order, got, want)
		}
	}
}

// A row goes up at once and comes down only after it was calm for a while.
func TestBuild_RowsDoNotDance(t *testing.T) {
	ill := func(second int) viewmodel.Sample {
		s := scenes.Status(scenes.Members(3), second)
		scenes.Row(&s, "eu-west").Partitioned = true
		return at(second, s)
	}
	healthy := func(second int) viewmodel.Sample { return at(second, scenes.Status(scenes.Members(3), second)) }
	samples := []viewmodel.Sample{healthy(0)}
	step := func(x viewmodel.Sample, want string) {
		t.Helper()
		samples = append(samples, x)
		if got := names(watch(samples, 0, viewmodel.Choices{})); got != want {
			t.Errorf("second %d: %s, want %s", len(samples)-1, got, want)
		}
	}
	step(ill(1), "eu-west us-east us-west")
	step(healthy(2), "eu-west us-east us-west")
	step(ill(3), "eu-west us-east us-west")
	for second := 4; second < 8; second++ {
		step(healthy(second), "eu-west us-east us-west")
	}
	step(healthy(8), "us-east us-west eu-west")
}

func TestBuild_CursorFollowsTheMember(t *testing.T) {
	samples := scenes.Named("degraded").Samples
	before := watch(samples[:1], 0, viewmodel.Choices{Cursor: "eu-west"})
	after := watch(samples, 0, viewmodel.Choices{Cursor: "eu-west"})
	if before.Cursor != 2 || after.Cursor != 0 || after.Members[0].Name != "eu-west" {
		t.Errorf("cursor at %d, then %d", before.Cursor, after.Cursor)
	}
	if gone := watch(samples, 0, viewmodel.Choices{Cursor: "nobody"}); gone.Cursor != 0 {
		t.Errorf("cursor of a member that is gone: %d, want 0", gone.Cursor)
	}
}

func TestBuild_Filters(t *testing.T) {
	samples := scenes.Named("degraded").Samples
	for filter, want := range map[string]string{
		"eu-": "eu-west eu-north", "!eu-": "ap-learner us-east us-west ap-south", "LEARNER": "ap-learner", "down": "eu-west eu-north",
		"zzz": "", "": "eu-west eu-north ap-learner us-east us-west ap-south", "!": "eu-west eu-north ap-learner us-east us-west ap-south",
	} {
		s := watch(samples, 0, viewmodel.Choices{Filter: filter})
		if got := names(s); got != want || s.Known != 6 {
			t.Errorf("filter %q: %q of %d, want %q of 6", filter, got, s.Known, want)
		}
		if want == "" && s.Cursor != -1 {
			t.Errorf("filter %q: cursor %d among no rows", filter, s.Cursor)
		}
	}
}

// Old data is marked, and data that says nothing about now is not shown as healthy.
func TestBuild_Ages(t *testing.T) {
	samples := scenes.Named("ok").Samples
	for _, tc := range []struct {
		after                   time.Duration
		level, from, lag, reach string
	}{
		{400 * time.Millisecond, "OK", "from us-west 400ms ago", "6", "ok"},
		{3 * time.Second, "OK", "from us-west 3.0s ago", "6", "ok"},
		{4200 * time.Millisecond, "OK", "from us-west 4.2s ago", "~6", "ok"},
		{14 * time.Second, "UNKNOWN", "STALE, from us-west 14s ago", "?", "?"},
	} {
		s := watch(samples, tc.after, viewmodel.Choices{})
		m := row(t, s, "us-west")
		if s.Level != tc.level || s.From != tc.from || m.Lag != tc.lag || m.Reach != tc.reach {
			t.Errorf("after %v: %q %q lag %q reach %q, want %q %q %q %q", tc.after, s.Level, s.From, m.Lag, m.Reach, tc.level, tc.from, tc.lag, tc.reach)
		}
	}
}

func TestBuild_NobodyAnswers(t *testing.T) {
	s := watch(scenes.Named("dead").Samples[:6], time.Second, viewmodel.Choices{})
	if want := "NO ANSWER for 2.0s, retry in 2.0s"; s.From != want || !s.Silent {
		t.Errorf("from %q, want %q", s.From, want)
	}
	if len(s.Endpoints) != 3 || s.Endpoints[1].Text != "timeout: no answer in 2s" {
		t.Errorf("endpoints %+v", s.Endpoints)
	}
	if len(s.Members) != 6 || !s.Members[0].Dim {
		t.Errorf("the old view is not there, or not dim: %+v", s.Members)
	}
}

// Members that disagree are sides; one cannot prove its leader, and its lag is of another log.
func TestBuild_Split(t *testing.T) {
	s := watch(scenes.Named("split").Samples, 0, viewmodel.Choices{})
	if len(s.Sides) != 2 {
		t.Fatalf("%d sides, want 2", len(s.Sides))
	}
	if a, b := s.Sides[0], s.Sides[1]; a.Leader != "leader us-west" || !a.Quorum || b.Leader != "leader us-east?" || b.Quorum || b.Motion != "still for 7.0s" {
		t.Errorf("sides %+v", s.Sides)
	}
	if want := "A holds the quorum (3 of 5 voters). Writes to any other side do not commit."; s.Verdict != want {
		t.Errorf("verdict %q, want %q", s.Verdict, want)
	}
	var sides string
	for _, m := range s.Members {
		sides += m.Side
	}
	if sides != "AAABB" {
		t.Errorf("rows stand on sides %s, want AAABB", sides)
	}
	if m := row(t, s, "us-east"); m.Role != "leader?" || !strings.HasPrefix(m.Lag, "~") {
		t.Errorf("the leader that proves nothing: %+v", m)
	}
}

func TestState_Events(t *testing.T) {
	said := func(samples []viewmodel.Sample) []string {
		var list []string
		for _, e := range slices.Backward(watch(samples, 0, viewmodel.Choices{}).Events) {
			list = append(list, e.Severity.String()+" "+e.Member+" "+e.Text)
		}
		return list
	}
	three := scenes.Members(3)
	led := func(second int, leader string, term uint64) viewmodel.Sample {
		s := scenes.Status(three, second)
		s.Leader, s.Term = &leader, term
		return at(second, s)
	}
	with := func(second int, change func(*api.Status)) viewmodel.Sample {
		s := scenes.Status(three, second)
		change(&s)
		return at(second, s)
	}
	for _, tc := range []struct {
		name    string
		samples []viewmodel.Sample
		want    []string
	}{
		{"nothing", scenes.Named("ok").Samples, nil},
		{"leader moves", []viewmodel.Sample{led(0, "us-east", 42), led(1, "us-west", 43)}, []string{"info us-west elected leader, term 43; us-east led term 42"}},
		{"term alone", []viewmodel.Sample{led(0, "us-east", 42), led(1, "us-east", 44)}, []string{"info - term 44, was 42"}},
		{"left behind", []viewmodel.Sample{led(0, "us-east", 42), led(1, "us-west", 41)}, []string{"warn us-west is in term 41, behind term 42"}},
		{"restart", []viewmodel.Sample{at(0, scenes.Status(three, 0)), with(1, func(s *api.Status) { *scenes.Row(s, "us-east").BootEpoch++ })},
			[]string{"warn us-east was restarted: boot 4, was 3"}},
		{"lost and back", []viewmodel.Sample{
			at(0, scenes.Status(three, 0)), with(1, func(s *api.Status) { scenes.Lose(s, "eu-west", "refused") }), at(2, scenes.Status(three, 2)),
		}, []string{
			"crit - voters up 2 of 3, were 3 of 3: can lose 0", "warn - health degraded, was ok", "crit eu-west does not answer: refused: no answer in 500 ms",
			"info - voters up 3 of 3, were 2 of 3: can lose 1", "info - health ok, was degraded", "info eu-west answers again",
		}},
		{"a member more, another less", []viewmodel.Sample{at(0, scenes.Status([]string{"a", "b", "c"}, 0)), at(1, scenes.Status([]string{"a", "b", "d"}, 1))},
			[]string{"info d is a member now, as voter", "info c is a member no more"}},
		{"observer", []viewmodel.Sample{at(0, scenes.Status(three, 0)), with(1, func(s *api.Status) { s.Observer = "eu-west" })},
			[]string{"info eu-west shows the cluster now, us-west did before"}},
		{"nobody, then somebody", []viewmodel.Sample{at(0, scenes.Status(three, 0)), {At: scenes.Start().Add(time.Second)}, {At: scenes.Start().Add(2 * time.Second)}, at(4, scenes.Status(three, 4))},
			[]string{"crit - nobody answers", "info us-west answers again, after 3.0s in which nobody did"}},
	} {
		if got := said(tc.samples); !slices.Equal(got, tc.want) {
			t.Errorf("%s:\n  %s\nwant\n  %s", tc.name, strings.Join(got, "\n  "), strings.Join(tc.want, "\n  "))
		}
	}
}

// The same thing again and again is one line, and the list is bounded.
func TestState_EventsFold(t *testing.T) {
	var samples []viewmodel.Sample
	for i := range 10 {
		samples = append(samples, viewmodel.Sample{At: scenes.Start().Add(time.Duration(i) * time.Second)}, at(i, scenes.Status(scenes.Members(3), i)))
	}
	if got := watch(samples, 0, viewmodel.Choices{}).Events; len(got) != 18 {
		t.Errorf("%d events of two kinds in turn, want 18", len(got))
	}
	var state viewmodel.State
	for i := range 500 {
		s := scenes.Status(scenes.Members(3), i)
		s.Term = uint64(i)
		state = state.Add(at(i, s))
	}
	if got := viewmodel.Build(state, viewmodel.Choices{}, viewmodel.Setting{Interval: time.Second}).Events; len(got) != 200 {
		t.Errorf("%d events, want 200", len(got))
	}
}

// Lag in time is when the leader's log had what the member has applied.
func TestBuild_LagInTime(t *testing.T) {
	for _, tc := range []struct {
		lag  uint64 // at 1,800 entries a second
		want string
	}{
		{0, "0ms"}, {1, "<1ms"}, {18, "10ms"}, {900, "500ms"}, {1800, "1.0s"}, {9000, "5.0s"}, {60_000, ">7.0s"},
	} {
		var samples []viewmodel.Sample
		for i := range 8 {
			s := scenes.Status(scenes.Members(3), i)
			r := scenes.Row(&s, "eu-west")
			applied := *s.RelayLogLen - tc.lag
			lag := tc.lag
			r.LagEvents, r.AppliedIndex, r.AppliedEvents = &lag, &applied, applied
			samples = append(samples, at(i, s))
		}
		if got := row(t, watch(samples, 0, viewmodel.Choices{}), "eu-west").Delay; got != tc.want {
			t.Errorf("%d entries behind: %s, want %s", tc.lag, got, tc.want)
		}
	}
}

// An older state is not changed by what is added to it.
func TestState_IsAValue(t *testing.T) {
	samples := scenes.Named("lagging").Samples
	var state viewmodel.State
	for _, x := range samples[:10] {
		state = state.Add(x)
	}
	e := viewmodel.Setting{Now: samples[9].At, Interval: time.Second}
	before := fmt.Sprintf("%+v", viewmodel.Build(state, viewmodel.Choices{}, e))
	for _, x := range samples[10:] {
		state.Add(x)
		state.Add(at(40, scenes.Status(scenes.Members(2), 40)))
	}
	if after := fmt.Sprintf("%+v", viewmodel.Build(state, viewmodel.Choices{}, e)); after != before {
		t.Errorf("the state changed:\n%s\nwas\n%s", after, before)
	}
}

func TestCompact(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1.0k", 1812: "1.8k", 9949: "9.9k", 9951: "10k", 999_499: "999k", 999_501: "1.0M", 48_120_377: "48M", 1<<64 - 1: "18E"} {
		if got := viewmodel.Compact(n); got != want {
			t.Errorf("Compact(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestAdvice_QuotesNames(t *testing.T) {
	for name, want := range map[string]string{"us-east": "us-east", "a b": "'a b'", "x'; rm -rf /": `'x'\''; rm -rf /'`, "-rf": "'-rf'"} {
		s := scenes.Status([]string{"a", "b", name}, 0)
		scenes.Because(&s, "degraded", "member_partitioned", name, "")
		got := watch([]viewmodel.Sample{at(0, s)}, 0, viewmodel.Choices{}).Next
		if len(got) != 1 || got[0].Command != "tidalctl members show "+want {
			t.Errorf("advice about %q: %+v, want … show %s", name, got, want)
		}
	}
}

func BenchmarkState(b *testing.B) {
	samples := scenes.Large(200, 60).Samples
	var state viewmodel.State
	for _, x := range samples {
		state = state.Add(x)
	}
	last := samples[len(samples)-1]
	b.Run("add/members=200", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			state.Add(last)
		}
	})
	b.Run("build/members=200", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			viewmodel.Build(state, viewmodel.Choices{}, viewmodel.Setting{Now: last.At, Interval: time.Second})
		}
	})
}
