package verbs_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/tidaldb/tidal/daemon/api"
)

// promoting is one member that answers promotes as a test says.
type promoting struct {
	t      *testing.T
	asked  []api.PromoteRequest
	answer func(w http.ResponseWriter, req api.PromoteRequest)
	op     *api.Operation // what is known of the operation; nil: not found
	leader string         // by the status
}

func (p *promoting) start(t *testing.T) string {
	p.t = t
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
	mux.HandleFunc("POST /cluster/promote", func(w http.ResponseWriter, r *http.Request) {
		var req api.PromoteRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		p.asked = append(p.asked, req)
		if p.answer != nil {
			w.Header().Set(api.HeaderMember, "us-west")
			p.answer(w, req)
			return
		}
		leader := req.Region
		out := api.Promoted{OK: true, DryRun: req.DryRun, Leader: &leader, Term: 8, Op: req.OperationID, Acked: []string{"us-east", "us-west"}, Failed: []string{"ap-south"},
			Checks: []api.Check{{Code: "voter", OK: true, Detail: "us-west votes"}, {Code: "lag", OK: true, Detail: "us-west is 3 entries behind", Measured: new(3.0), Threshold: new(5000.0), Unit: "entries"}}}
		if !req.DryRun {
			out.Transfer = &api.Transfer{TookMS: 38, WritePauseMS: new(int64(21))}
		}
		if req.NoWait {
			reply(w, http.StatusAccepted, api.Operation{Op: req.OperationID, Verb: "promote", State: api.OperationRunning, Member: "us-east"})
			return
		}
		reply(w, http.StatusOK, out)
	})
	mux.HandleFunc("GET /cluster/ops/{id}", func(w http.ResponseWriter, r *http.Request) {
		if p.op == nil {
			reply(w, http.StatusNotFound, api.NewProblem(api.CodeNotFound, "there is no operation"))
			return
		}
		op := *p.op
		op.Op = r.PathValue("id")
		reply(w, http.StatusOK, op)
	})
	mux.HandleFunc("GET /cluster/status", func(w http.ResponseWriter, _ *http.Request) {
		var s api.Status
		raw, err := os.ReadFile("testdata/status/ok.json")
		if err == nil {
			err = json.Unmarshal(raw, &s)
		}
		if err != nil {
			t.Error(err)
		}
		if p.leader != "" {
			s.Leader = &p.leader
		}
		reply(w, http.StatusOK, s)
	})
	mux.HandleFunc("GET /cluster/members", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, api.Members{}) })
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// lose breaks the connection off without an answer.
func lose(http.ResponseWriter, api.PromoteRequest) { panic(http.ErrAbortHandler) }

func TestPromote_SaysWhatItCost(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"promote us-west --yes", "leader transfer us-west --yes"} {
		p := &promoting{}
		exit, out, errs := run(t, []string{p.start(t)}, strings.Fields(args)...)
		if exit != 0 || errs != "" || len(p.asked) != 1 {
			t.Fatalf("%s: exit %d, stderr %q, asked %v", args, exit, errs, p.asked)
		}
		if req := p.asked[0]; req.Region != "us-west" || req.TimeoutMS != 57_000 || len(req.OperationID) != 24 {
			t.Errorf("asked %+v", req)
		}
		for _, want := range []string{"us-west leads term 8 after 38 ms, writes waited for 21 ms, confirmed by us-east, us-west", "not confirmed by ap-south", "lag", "5,000"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", args, want, out)
			}
		}
	}
	p := &promoting{}
	exit, out, _ := run(t, []string{p.start(t)}, "promote", "us-west", "--yes", "-o", "json", "--timeout", "10s")
	if exit != 0 || !strings.Contains(out, `"schema": "tidalctl.promote/v1"`) || !strings.Contains(out, `"write_pause_ms": 21`) || p.asked[0].TimeoutMS != 7_000 {
		t.Errorf("exit %d, asked %+v:\n%s", exit, p.asked, out)
	}
}

// Three outcomes, three exit codes; and what a script needs to go on.
func TestPromote_Outcomes(t *testing.T) {
	t.Parallel()
	refuse := func(code api.Code) func(http.ResponseWriter, api.PromoteRequest) {
		return func(w http.ResponseWriter, _ api.PromoteRequest) {
			p := api.NewProblem(code, "us-west is 5,001 entries behind; a transfer allows at most 5,000")
			p.Checks, p.Try = []api.Check{{Code: "lag", Detail: "5,001 entries"}}, "tidalctl promote ap-south"
			w.Header().Set("Content-Type", api.ProblemType)
			w.WriteHeader(p.Status)
			_ = json.NewEncoder(w).Encode(p)
		}
	}
	result, err := json.Marshal(api.Promoted{OK: true, Leader: new("us-west"), Term: 8})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		p    promoting
		args string
		exit int
		errs string
		out  string
	}{
		{"refused", promoting{answer: refuse(api.CodeLagTooHigh)}, "--yes", 6, "state  nothing changed", ""},
		{"refused, with a way on", promoting{answer: refuse(api.CodeLagTooHigh)}, "--yes", 6, "try    tidalctl promote ap-south", ""},
		{"failed", promoting{answer: refuse(api.CodeTransferFailed)}, "--yes", 1, "[failed: transfer_failed]", ""},
		{"somebody else", promoting{answer: refuse(api.CodeOtherLeader)}, "--yes", 1, "state  changed", ""},
		{"unknown", promoting{answer: refuse(api.CodeOutcomeUnknown)}, "--yes", 9, "state  unknown", ""},
		{"lost, found done", promoting{answer: lose, op: &api.Operation{State: api.OperationDone, Result: result}}, "--yes", 0, "the answer was lost", "us-west leads; nothing had to move"},
		{"lost, found failed", promoting{answer: lose, op: &api.Operation{State: api.OperationFailed, Problem: api.NewProblem(api.CodeTransferFailed, "no")}}, "--yes", 1, "transfer_failed", ""},
		{"lost, not found, but it leads", promoting{answer: lose, leader: "us-west"}, "--yes", 0, "the answer was lost", "us-west leads"},
		{"lost, not found", promoting{answer: lose}, "--yes", 9, "tidalctl ops show", ""},
		{"dry run", promoting{}, "--dry-run", 0, "", "dry run: it would be done; nothing changed"},
		{"dry run that would be refused", promoting{answer: func(w http.ResponseWriter, req api.PromoteRequest) {
			_ = json.NewEncoder(w).Encode(api.Promoted{DryRun: true, Checks: []api.Check{{Code: "lag", Detail: "too far"}}})
		}}, "--dry-run", 6, "", "dry run: it would be refused; nothing changed"},
		{"no terminal", promoting{}, "", 64, "--yes confirms it", ""},
		{"without waiting", promoting{}, "--yes --no-wait", 0, "", "running"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			exit, out, errs := run(t, []string{tc.p.start(t)}, strings.Fields("promote us-west "+tc.args)...)
			if exit != tc.exit || !strings.Contains(errs, tc.errs) || !strings.Contains(out, tc.out) {
				t.Errorf("exit %d, want %d; stderr want %q:\n%s\nstdout want %q:\n%s", exit, tc.exit, tc.errs, errs, tc.out, out)
			}
		})
	}
}

// Nothing was sent to an endpoint that is dead: the next one is asked, once.
func TestPromote_AsksTheNextWhereNothingWasSent(t *testing.T) {
	t.Parallel()
	p := &promoting{}
	if exit, _, errs := run(t, []string{dead(t), p.start(t)}, "promote", "us-west", "--yes"); exit != 0 || len(p.asked) != 1 {
		t.Errorf("exit %d, asked %d times; %s", exit, len(p.asked), errs)
	}
	if exit, _, errs := run(t, []string{dead(t), dead(t)}, "promote", "us-west", "--yes"); exit != 7 || !strings.Contains(errs, "state  nothing changed") {
		t.Errorf("exit %d; %s", exit, errs)
	}
}

func TestOps_Show(t *testing.T) {
	t.Parallel()
	p := &promoting{op: &api.Operation{Verb: "promote", State: api.OperationDone, Member: "us-east"}}
	if exit, out, errs := run(t, []string{p.start(t)}, "ops", "show", "abc"); exit != 0 || !strings.Contains(out, "abc") || !strings.Contains(out, "done") {
		t.Errorf("exit %d:\n%s%s", exit, out, errs)
	}
	if exit, _, errs := run(t, []string{(&promoting{}).start(t)}, "ops", "wait", "abc"); exit != 5 {
		t.Errorf("exit %d, want 5; %s", exit, errs)
	}
	p = &promoting{op: &api.Operation{Verb: "promote", State: api.OperationUnknown, Problem: api.NewProblem(api.CodeOutcomeUnknown, "who knows")}}
	if exit, _, errs := run(t, []string{p.start(t)}, "ops", "show", "abc"); exit != 9 || !strings.Contains(errs, "who knows") {
		t.Errorf("exit %d, want 9; %s", exit, errs)
	}
}
