package verbs_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidaldb/tidal/daemon/api"
)

// lastOne is what is left of a cluster of three.
type lastOne struct {
	url, addr string
	got       []api.RecoverPlan
	refuse    api.Code // apply with this; empty: it is done
}

// survivor serves what a member does that lost the others.
func survivor(t *testing.T) *lastOne {
	t.Helper()
	s := &lastOne{}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set(api.HeaderMember, "us-west")
		w.Header().Set(api.HeaderTerm, "7")
		if err := json.NewEncoder(w).Encode(v); err != nil {
			t.Error(err)
		}
	}
	roster := api.Roster{Version: 4, NextID: "4"}
	for i, name := range []string{"us-east", "us-west", "ap-south"} {
		roster.Members = append(roster.Members, api.Member{ID: string(rune('1' + i)), Name: name, Incarnation: name, Role: api.RoleVoter, GRPCAddr: name + ":9601", HTTPAddr: name + ":9501"})
	}
	mux.HandleFunc("GET /cluster/members", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, api.Members{Roster: api.Roster{Version: 4, NextID: "4", Members: []api.Member{{ID: "2", Name: "us-west", HTTPAddr: s.addr, Role: api.RoleVoter}}}})
	})
	mux.HandleFunc("GET /cluster/recover", func(w http.ResponseWriter, _ *http.Request) {
		r := roster
		r.Members = append([]api.Member(nil), roster.Members...)
		r.Members[1].HTTPAddr = s.addr
		answer(w, api.RecoverView{
			Name: "us-west", ID: "2", ClusterID: "c0ffee", Incarnation: "us-west", Group: "0", Running: true, Term: 7, Last: api.EntryRef{Term: 7, Index: 90},
			CommitIndex: 88, AppliedIndex: 88, LeaderLast: new(uint64(95)), History: "0", Roster: r,
		})
	})
	mux.HandleFunc("POST /cluster/recover", func(w http.ResponseWriter, r *http.Request) {
		var p api.RecoverPlan
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			t.Error(err)
		}
		s.got = append(s.got, p)
		if s.refuse != "" {
			problem := api.NewProblem(s.refuse, "us-east answers")
			w.Header().Set("Content-Type", api.ProblemType)
			w.Header().Set(api.HeaderMember, "us-west")
			w.WriteHeader(problem.Status)
			answer(w, problem)
			return
		}
		answer(w, api.RecoverAnswer{Member: "us-west", History: p.History, Last: p.Last, Index: 92})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.url, s.addr = server.URL, server.Listener.Addr().String()
	return s
}

// survivorPlan writes a plan whose survivor listens at addr.
func survivorPlan(t *testing.T, addr string) string {
	t.Helper()
	p := api.RecoverPlan{
		Schema: api.RecoverPlanSchema, ClusterID: "c0ffee", Group: "0", Survivor: api.RecoverMember{Name: "us-west", ID: "2", HTTPAddr: addr},
		HistoryWas: "0", History: "1.0000000000000001", Keeps: []api.RecoverMember{}, GivesUp: []api.RecoverMember{{Name: "us-east", ID: "1"}}, MayLose: []string{},
	}
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A plan is made of what is left, says what may be lost, never overwrites a file, and is carried out by its
// survivor once its name was typed.
func TestRecover(t *testing.T) {
	t.Parallel()
	s := survivor(t)
	file := filepath.Join(t.TempDir(), "plan.json")
	exit, out, errs := run(t, []string{s.url}, "recover", "plan", "--out", file)
	if exit != 0 || !strings.Contains(out, "us-west") || !strings.Contains(out, "given up") || !strings.Contains(out, "at least 5 entries are missing here") || !strings.Contains(errs, "recover apply "+file) {
		t.Fatalf("recover plan: exit %d\n%s%s", exit, out, errs)
	}
	if exit, _, errs := run(t, []string{s.url}, "recover", "plan", "--out", file); exit != 1 || !strings.Contains(errs, "exists") {
		t.Errorf("a plan over another one: exit %d\n%s", exit, errs)
	}
	for _, tc := range []struct {
		name string
		args []string
		exit int
		says string
	}{
		{"nobody confirms", []string{file}, 64, "--confirm=us-west"},
		{"another member is confirmed", []string{file, "--confirm", "us-east"}, 64, "this is about us-west"},
		{"no plan", []string{"/dev/null", "--confirm", "us-west"}, 64, "is not a plan"},
		{"no such file", []string{file + "x", "--confirm", "us-west"}, 1, "no such file"},
	} {
		if exit, _, errs := run(t, []string{s.url}, append([]string{"recover", "apply"}, tc.args...)...); exit != tc.exit || !strings.Contains(errs, tc.says) || len(s.got) > 0 {
			t.Errorf("%s: exit %d, want %d and %q; %d plans sent\n%s", tc.name, exit, tc.exit, tc.says, len(s.got), errs)
		}
	}
	if exit, out, errs := run(t, []string{s.url}, "recover", "apply", file, "--confirm", "us-west"); exit != 0 || !strings.Contains(out, "1.") || len(s.got) != 1 {
		t.Errorf("recover apply: exit %d, %d plans sent\n%s%s", exit, len(s.got), out, errs)
	}
	s.refuse = api.CodeStillAnswers
	if exit, _, errs := run(t, []string{s.url}, "recover", "apply", file, "--confirm", "us-west"); exit != 6 || !strings.Contains(errs, "still_answers") {
		t.Errorf("recover apply that is refused: exit %d\n%s", exit, errs)
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	if exit, out, errs := run(t, nil, "explain", "duplicate_identity"); exit != 0 || !strings.Contains(out, "one runs on a copy") || !strings.Contains(out, "try  ") {
		t.Errorf("explain: exit %d\n%s%s", exit, out, errs)
	}
	if exit, _, errs := run(t, nil, "explain", "amnseia"); exit != 5 || !strings.Contains(errs, "amnesia") {
		t.Errorf("explain what there is not: exit %d\n%s", exit, errs)
	}
	exit, out, _ := run(t, nil, "explain", "-o", "name")
	for _, c := range api.Codes() {
		if exit != 0 || !strings.Contains(out, string(c.Code)+"\n") {
			t.Errorf("%s is not explained", c.Code)
		}
	}
}
