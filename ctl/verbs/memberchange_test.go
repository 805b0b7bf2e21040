package verbs_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tidaldb/tidal/daemon/api"
)

// changing is one member that answers the verbs of membership as a test says.
type changing struct {
	asked  []api.MemberRequest
	answer func(w http.ResponseWriter, req api.MemberRequest)
	op     *api.Operation // what is known of the operation; nil: not found
	seeds  []string       // that it was told
	steps  []api.LocalStatus
}

func (c *changing) start(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	reply := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set(api.HeaderMember, "us-west")
		if _, ok := v.(*api.Problem); ok {
			w.Header().Set("Content-Type", api.ProblemType)
		}
		w.WriteHeader(status)
		if err := json.NewEncoder(w).Encode(v); err != nil {
			t.Error(err)
		}
	}
	checks := []api.Check{{Code: "present_majority", OK: true, Detail: "3 of 3 answer", Measured: new(3.0), Threshold: new(2.0), Unit: "voters"}}
	mux.HandleFunc("POST /cluster/members/{verb}", func(w http.ResponseWriter, r *http.Request) {
		var req api.MemberRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		c.asked = append(c.asked, req)
		if c.answer != nil {
			c.answer(w, req)
			return
		}
		out := api.MemberChanged{OK: true, DryRun: req.DryRun, Op: req.OperationID, Verb: r.PathValue("verb"), Name: req.Name, ID: "3", Role: "removed", Term: 7, Checks: checks}
		if !req.DryRun {
			out.Index, out.Settled = 126, true
		}
		if req.NoWait {
			reply(w, http.StatusAccepted, api.Operation{Op: req.OperationID, Verb: "members remove", State: api.OperationRunning, Member: "us-east"})
			return
		}
		reply(w, http.StatusOK, out)
	})
	mux.HandleFunc("GET /cluster/ops/{id}", func(w http.ResponseWriter, _ *http.Request) {
		if c.op == nil {
			reply(w, http.StatusNotFound, api.NewProblem(api.CodeNotFound, "there is no operation"))
			return
		}
		reply(w, http.StatusOK, c.op)
	})
	mux.HandleFunc("GET /cluster/members", func(w http.ResponseWriter, _ *http.Request) {
		leader := "us-east"
		reply(w, http.StatusOK, api.Members{Leader: &leader, Term: 7, Roster: api.Roster{Members: []api.Member{{ID: "1", Name: "us-east", Role: "voter"}},
			Tombstones: []api.Tombstone{{ID: "3", Name: "ap-south", Told: true}}}})
	})
	mux.HandleFunc("GET /cluster/why/{name}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("name") == "nobody" {
			reply(w, http.StatusNotFound, api.NewProblem(api.CodeNotFound, `there is no member "nobody"`))
			return
		}
		leader := "us-east"
		reply(w, http.StatusOK, api.Why{Member: "eu-west", ID: "4", Role: "learner", Observer: "us-west", Leader: &leader, Term: 7, Reachable: true,
			Pending:   &api.Pending{Reason: "behind", Detail: "eu-west is 2,048 entries behind", Lag: new(uint64(2048)), Bytes: new(uint64(1 << 20)), Rate: new(512.0), ETAMS: new(int64(2000))},
			Questions: []api.Question{{Question: "voter", Detail: "it may not vote yet", Checks: checks}, {Question: "leader", OK: true, Detail: "it leads", Checks: []api.Check{}}},
			Unknown:   []api.Reason{{Code: "ready", Detail: "no answer"}}})
	})
	mux.HandleFunc("GET /cluster/history", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, api.History{Observer: "us-west", Missing: []string{"ap-south"}, Events: []api.Event{
			{ID: "3-1", Member: "us-east", Kind: "leader_elected", Level: "info", Text: "us-east leads term 7", Fields: json.RawMessage(`{}`)}}})
	})
	mux.HandleFunc("GET /cluster/status/local", func(w http.ResponseWriter, _ *http.Request) {
		s := c.steps[0]
		if len(c.steps) > 1 && len(c.seeds) > 0 {
			c.steps = c.steps[1:]
		}
		reply(w, http.StatusOK, s)
	})
	mux.HandleFunc("POST /cluster/seeds", func(w http.ResponseWriter, r *http.Request) {
		var req api.SeedRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		c.seeds = append(c.seeds, req.Seeds...)
		reply(w, http.StatusOK, api.Seeded{Name: "eu-west", Accepted: true})
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

func TestMembersRemove_AsksForTheName(t *testing.T) {
	t.Parallel()
	c := &changing{}
	url := c.start(t)
	for args, want := range map[string]string{
		"members remove ap-south":                    "--confirm=ap-south confirms it",
		"members remove ap-south --confirm=us-east":  "--confirm=us-east confirms something else; this is about ap-south",
		"members replace ap-south --confirm ap-sout": "confirms something else",
		"members promote ap-south":                   "--yes confirms it",
	} {
		if exit, out, errs := run(t, []string{url}, strings.Fields(args)...); exit != 64 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d, %s%s", args, exit, out, errs)
		}
	}
	if len(c.asked) > 0 { // the checks are for somebody who is asked
		t.Errorf("asked %+v where nobody was there to confirm it", c.asked)
	}
	exit, out, errs := run(t, []string{url}, "members", "remove", "ap-south", "--confirm=ap-south", "--override=rest_reachable")
	if exit != 0 || errs != "" || !strings.Contains(out, "ap-south, member 3, is removed from index 126 on") || !strings.Contains(out, "present_majority") {
		t.Errorf("remove: exit %d, %s%s", exit, out, errs)
	}
	if req := c.asked[0]; len(c.asked) != 1 || req.Name != "ap-south" || req.DryRun || len(req.Override) != 1 || len(req.OperationID) != 24 {
		t.Errorf("asked %+v", req)
	}
	if exit, out, _ := run(t, []string{url}, "members", "remove", "ap-south", "--dry-run"); exit != 0 || !strings.Contains(out, "dry run: it would be done; nothing changed") {
		t.Errorf("dry run: exit %d, %s", exit, out)
	}
}

func TestMembersRemove_ExitCodes(t *testing.T) {
	t.Parallel()
	refuse := func(code api.Code) func(http.ResponseWriter, api.MemberRequest) {
		return func(w http.ResponseWriter, _ api.MemberRequest) {
			p := api.NewProblem(code, "remove ap-south: voters now: 3; 1 answer, 2 are needed")
			p.Measured, p.Threshold, p.Unit = new(1.0), new(2.0), "voters"
			w.Header().Set("Content-Type", api.ProblemType)
			w.WriteHeader(p.Status)
			_ = json.NewEncoder(w).Encode(p)
		}
	}
	lose := func(http.ResponseWriter, api.MemberRequest) { panic(http.ErrAbortHandler) }
	for _, tc := range []struct {
		name   string
		answer func(http.ResponseWriter, api.MemberRequest)
		op     *api.Operation
		args   string
		exit   int
		want   string
	}{
		{"unsafe", refuse(api.CodeUnsafeRemoval), nil, "members remove ap-south --confirm=ap-south", 6, "unsafe_removal"},
		{"in progress", refuse(api.CodeChangeInProgress), nil, "members remove ap-south --confirm=ap-south", 6, "conf_change_in_progress"},
		{"no such member", refuse(api.CodeNotFound), nil, "members replace x --confirm=x", 5, "not_found"},
		{"no leader", refuse(api.CodeNoLeader), nil, "members promote eu-west --yes", 8, "no_leader"},
		{"would be refused", func(w http.ResponseWriter, req api.MemberRequest) {
			w.Header().Set(api.HeaderMember, "us-west")
			_ = json.NewEncoder(w).Encode(api.MemberChanged{Name: req.Name, DryRun: true, Checks: []api.Check{{Code: "new_majority", Detail: "1 of 2"}}})
		}, nil, "members remove ap-south --dry-run", 6, ""},
		{"the answer is lost, and the roster says that it is done", lose, nil, "members remove ap-south --confirm=ap-south", 0, "the answer was lost"},
		{"the answer is lost, and nobody knows", lose, nil, "members promote eu-west --yes", 9, "it is not known whether eu-west was made a voter"},
		{"the answer is lost, the operation is done", lose, &api.Operation{State: api.OperationDone, Result: json.RawMessage(`{"ok":true,"name":"eu-west","role":"voter","index":9,"checks":[]}`)}, "members promote eu-west --yes", 0, ""},
	} {
		c := &changing{answer: tc.answer, op: tc.op}
		exit, _, errs := run(t, []string{c.start(t)}, append(strings.Fields(tc.args), "--timeout", "5s")...)
		if exit != tc.exit || !strings.Contains(errs, tc.want) {
			t.Errorf("%s: exit %d, want %d with %q; stderr %s", tc.name, exit, tc.exit, tc.want, errs)
		}
	}
}

func TestWhy_SaysWhatIsMeasured(t *testing.T) {
	t.Parallel()
	url := (&changing{}).start(t)
	exit, out, _ := run(t, []string{url}, "why", "eu-west")
	for _, want := range []string{"eu-west, member 4, learner", "promotion_pending  behind, 2,048 entries behind, +512/s, eta 2.0s", "voter: it may not vote yet", "present_majority", "ready: not known, no answer"} {
		if exit != 0 || !strings.Contains(out, want) {
			t.Errorf("why: exit %d, no %q in\n%s", exit, want, out)
		}
	}
	if n := strings.Count(out, "CHECK"); n != 1 || !strings.Contains(out, "leader: it leads\n") {
		t.Errorf("why: %d tables, want one, of the question that has checks:\n%s", n, out)
	}
	if exit, _, errs := run(t, []string{url}, "why", "nobody"); exit != 5 || !strings.Contains(errs, "not_found") {
		t.Errorf("why nobody: exit %d, %s", exit, errs)
	}
	if exit, out, _ := run(t, []string{url}, "history"); exit != 0 || !strings.Contains(out, "us-east leads term 7") || !strings.Contains(out, "no answer from ap-south") {
		t.Errorf("history: exit %d, %s", exit, out)
	}
	if exit, out, _ := run(t, []string{url}, "members", "list", "--removed"); exit != 0 || !strings.Contains(out, "ap-south") {
		t.Errorf("members list --removed: exit %d, %s", exit, out)
	}
}

// joining are the steps of a member that joins, as it tells them itself.
func joining() []api.LocalStatus {
	waits := []api.ReadyCheck{{Name: "serving", Detail: "this member has not joined its cluster yet"}, {Name: "serving", Detail: "waits for http://a:1: name_taken"}}
	group := func(role string, applied, last uint64) []api.GroupStatus {
		return []api.GroupStatus{{Role: role, AppliedIndex: applied, LeaderLast: &last}}
	}
	s := func(change func(*api.LocalStatus)) api.LocalStatus {
		x := api.LocalStatus{Name: "eu-west", Phase: api.PhaseJoining, Checks: waits}
		change(&x)
		return x
	}
	return []api.LocalStatus{
		s(func(x *api.LocalStatus) { x.Phase = api.PhaseWaiting }),
		s(func(*api.LocalStatus) {}),
		s(func(x *api.LocalStatus) {
			x.ID, x.Groups = "4", []api.GroupStatus{{Install: &api.Install{Bytes: 32 << 20, Total: 64 << 20, Rate: 16 << 20}}}
		}),
		s(func(x *api.LocalStatus) { x.ID, x.Phase, x.Groups = "4", api.PhaseServing, group("learner", 100, 3100) }),
		s(func(x *api.LocalStatus) {
			x.ID, x.Phase, x.Groups = "4", api.PhaseServing, group("learner", 3100, 3100)
		}),
		s(func(x *api.LocalStatus) { x.ID, x.Phase, x.Groups = "4", api.PhaseServing, group("voter", 3100, 3100) }),
	}
}

func TestJoin_TellsEveryPhase(t *testing.T) {
	t.Parallel()
	c := &changing{steps: joining()}
	url := c.start(t)
	if exit, _, errs := run(t, []string{url}, "join", "--yes"); exit != 64 || !strings.Contains(errs, "--seed is missing") {
		t.Errorf("join without a seed: exit %d, %s", exit, errs)
	}
	if exit, _, errs := run(t, []string{url}, "join", "--seed", "http://a:1"); exit != 64 || !strings.Contains(errs, "--yes") {
		t.Errorf("join unconfirmed: exit %d, %s", exit, errs)
	}
	if exit, _, errs := run(t, []string{url}, "join", "--seed", "http://a:1", "--name", "other", "--yes"); exit != 64 || !strings.Contains(errs, "the member here is eu-west, not other") {
		t.Errorf("join of another member: exit %d, %s", exit, errs)
	}
	exit, out, errs := run(t, []string{url}, "join", "--seed", "http://a:1", "--yes")
	if exit != 0 || len(c.seeds) != 1 || !strings.Contains(out, "eu-west votes as member 4") {
		t.Errorf("join: exit %d, told %v, %s", exit, c.seeds, out)
	}
	for _, want := range []string{"1/4 admit: waits for http://a:1: name_taken", "2/4 snapshot: 50% of 64.0 MiB, 16 MiB/s, eta 2", "3/4 catch up: 3,000 entries behind", "4/4 promote"} {
		if !strings.Contains(errs, want) {
			t.Errorf("no %q in\n%s", want, errs)
		}
	}
	// Again: it is done already, and nobody is told anything.
	if exit, out, _ := run(t, []string{url}, "join", "-o", "json"); exit != 0 || !strings.Contains(out, `"schema": "tidalctl.join/v1"`) || len(c.seeds) != 1 {
		t.Errorf("join again: exit %d, %s", exit, out)
	}
	stuck := &changing{steps: joining()[1:2]}
	if exit, _, errs := run(t, []string{stuck.start(t)}, "join", "--seed", "http://a:1", "--yes", "--stall-timeout", "500ms"); exit != 124 || !strings.Contains(errs, "name_taken") {
		t.Errorf("join that does not move: exit %d, %s", exit, errs)
	}
}

// Whoever mistakes the member that joins for the one that is asked is told so, and nobody is asked to join.
func TestJoin_ComparesTheSeed(t *testing.T) {
	t.Parallel()
	local := func(name, cluster string, phase string) api.LocalStatus {
		x := joining()[len(joining())-1]
		x.Name, x.Incarnation, x.ClusterID, x.Phase = name, name, cluster, phase
		if cluster == "" {
			x.ID = ""
		}
		return x
	}
	here := &changing{steps: []api.LocalStatus{local("us-east", "a", api.PhaseServing)}}
	empty := &changing{steps: []api.LocalStatus{local("eu-west", "", api.PhaseJoining)}}
	url := here.start(t)
	same := (&changing{steps: []api.LocalStatus{local("us-west", "a", api.PhaseServing)}}).start(t)
	other := (&changing{steps: []api.LocalStatus{local("x", "b", api.PhaseServing)}}).start(t)
	for _, tc := range []struct {
		at, seed string
		exit     int
		want     string
	}{
		{url, url, 64, "--endpoint names the member that joins"},
		{empty.start(t), "", 64, "--seed is missing"},
		{url, other, 6, "us-east belongs to cluster a, and x, at " + other + ", to cluster b"},
		{url, dead(t), 7, "it was not found out whether us-east, which belongs to cluster a already"},
		{url, same, 0, "us-east voted before, as member 4: nothing had to be done"},
		{url, "db1:9501", 64, "want a URL like"},
	} {
		args := []string{"join", "--yes"}
		if tc.seed != "" {
			args = append(args, "--seed", tc.seed)
		}
		exit, out, errs := run(t, []string{tc.at}, args...)
		if exit != tc.exit || !strings.Contains(out+errs, tc.want) {
			t.Errorf("join --seed %s: exit %d, want %d with %q: %s%s", tc.seed, exit, tc.exit, tc.want, out, errs)
		}
	}
	if len(here.seeds)+len(empty.seeds) > 0 {
		t.Errorf("told %v %v", here.seeds, empty.seeds)
	}
}
