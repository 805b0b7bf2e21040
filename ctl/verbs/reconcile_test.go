package verbs_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tidaldb/tidal/daemon/api"
)

// reconciling is us-east, which answers reconciles as a test says.
type reconciling struct {
	asked  []api.ReconcileRequest
	answer func(w http.ResponseWriter, req api.ReconcileRequest)
	op     *api.Operation // what is known of the operation; nil: not found
}

func (p *reconciling) start(t *testing.T) string {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /cluster/reconcile", func(w http.ResponseWriter, r *http.Request) {
		var req api.ReconcileRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		p.asked = append(p.asked, req)
		w.Header().Set(api.HeaderMember, "us-east")
		p.answer(w, req)
	})
	mux.HandleFunc("GET /cluster/ops/{id}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(api.HeaderMember, "us-east")
		if p.op == nil {
			refuseWith(w, api.CodeNotFound, "there is no operation")
			return
		}
		op := *p.op
		op.Op = r.PathValue("id")
		_ = json.NewEncoder(w).Encode(op)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

func refuseWith(w http.ResponseWriter, code api.Code, detail string) {
	p := api.NewProblem(code, detail)
	w.Header().Set("Content-Type", api.ProblemType)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// brings is an answer in which this many operations were new on each side.
func brings(here, there int, forked ...string) func(http.ResponseWriter, api.ReconcileRequest) {
	return func(w http.ResponseWriter, req api.ReconcileRequest) {
		_ = json.NewEncoder(w).Encode(api.Reconciled{OK: len(forked) == 0, Region: req.Region, DryRun: req.DryRun, Op: req.OperationID,
			LocalElapsedMS: 3, RemoteElapsedMS: 4, OpsApplied: here + there, LocalOpsApplied: here, RemoteOpsApplied: there, Forked: forked})
	}
}

func TestReconcile_Outcomes(t *testing.T) {
	t.Parallel()
	refuse := func(code api.Code) func(http.ResponseWriter, api.ReconcileRequest) {
		return func(w http.ResponseWriter, _ api.ReconcileRequest) { refuseWith(w, code, "us-west was not reached") }
	}
	lose := func(http.ResponseWriter, api.ReconcileRequest) { panic(http.ErrAbortHandler) }
	result, err := json.Marshal(api.Reconciled{OK: true, Region: "us-west", OpsApplied: 1200, LocalOpsApplied: 1200})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		p    reconciling
		args string
		exit int
		errs string
		out  string
	}{
		{"both got some", reconciling{answer: brings(1200, 1)}, "", 0, "", "us-east got 1,200 writes in 3 ms, us-west got 1 write in 4 ms"},
		{"again", reconciling{answer: brings(0, 0)}, "", 0, "", "us-east and us-west held the same"},
		{"contradicting", reconciling{answer: brings(2, 0, "0a0b")}, "", 1, "", "contradict each other: origins 0a0b"},
		{"json", reconciling{answer: brings(2, 3)}, "-o json", 0, "", `"ops_applied": 5`},
		{"name", reconciling{answer: brings(2, 3)}, "-o name", 0, "", "us-west"},
		{"dry run, different", reconciling{answer: brings(2, 3)}, "--dry-run", 12, "", "us-east lacks 2 writes that us-west holds, which lacks 3 writes; nothing changed"},
		{"dry run, equal", reconciling{answer: brings(0, 0)}, "--dry-run", 0, "", "hold the same; nothing changed"},
		{"unreached", reconciling{answer: refuse(api.CodeMemberUnreached)}, "", 8, "[no_leader: member_unreachable]", ""},
		{"lost, found done", reconciling{answer: lose, op: &api.Operation{State: api.OperationDone, Result: result}}, "", 0, "the answer was lost", "got 1,200 writes"},
		{"lost, found failed", reconciling{answer: lose, op: &api.Operation{State: api.OperationFailed, Problem: api.NewProblem(api.CodeOutboxFull, "no")}}, "", 1, "outbox_full", ""},
		{"lost, not found", reconciling{answer: lose}, "", 9, "tidalctl ops show", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			exit, out, errs := run(t, []string{tc.p.start(t)}, strings.Fields("reconcile us-west "+tc.args)...)
			if exit != tc.exit || !strings.Contains(errs, tc.errs) || !strings.Contains(out, tc.out) {
				t.Errorf("exit %d, want %d; stderr want %q:\n%s\nstdout want %q:\n%s", exit, tc.exit, tc.errs, errs, tc.out, out)
			}
			if len(tc.p.asked) != 1 || tc.p.asked[0].Region != "us-west" || len(tc.p.asked[0].OperationID) != 24 {
				t.Errorf("asked %+v", tc.p.asked)
			}
		})
	}
}
