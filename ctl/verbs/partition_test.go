package verbs_test

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/iostreams"
	"github.com/tidaldb/tidal/ctl/verbs"
	"github.com/tidaldb/tidal/daemon/api"
)

// faulty is one member that answers for faults as a test says.
type faulty struct {
	name       string // empty: us-west
	partitions []api.PartitionRequest
	heals      []api.HealRequest
	partition  func(w http.ResponseWriter, req api.PartitionRequest)
	heal       func(w http.ResponseWriter, req api.HealRequest)
	faults     api.Faults
	op         *api.Operation // what is known of every operation; nil: not found
}

// answerJSON writes v as a member does.
func answerJSON(t *testing.T, w http.ResponseWriter, status int, v any) {
	if _, ok := v.(*api.Problem); ok {
		w.Header().Set("Content-Type", api.ProblemType)
	}
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		t.Error(err)
	}
}

func (f *faulty) start(t *testing.T) string {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /cluster/partition", func(w http.ResponseWriter, r *http.Request) {
		var req api.PartitionRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		f.partitions = append(f.partitions, req)
		if f.partition != nil {
			f.partition(w, req)
			return
		}
		out := api.Partitioned{OK: true, DryRun: req.DryRun, ID: req.OperationID, Op: req.OperationID, Acked: []string{"us-west"}, Failed: []string{}, Errors: []api.MemberError{},
			Checks: []api.Check{{Code: "quorum", OK: true, Detail: "a side keeps 2 of 3 voters", Measured: new(2.0), Threshold: new(2.0)}}}
		if !req.DryRun {
			out.ExpiresAt = new(time.Now().Add(20 * time.Second))
		}
		answerJSON(t, w, http.StatusOK, out)
	})
	mux.HandleFunc("POST /cluster/heal", func(w http.ResponseWriter, r *http.Request) {
		var req api.HealRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		f.heals = append(f.heals, req)
		if f.heal != nil {
			f.heal(w, req)
			return
		}
		answerJSON(t, w, http.StatusOK, api.Healed{OK: true, Op: req.OperationID, Healed: f.faults.Faults, Acked: []string{"us-east", "us-west"}, Failed: []string{}, Errors: []api.MemberError{}, Checks: []api.Check{}})
	})
	mux.HandleFunc("GET /cluster/faults", func(w http.ResponseWriter, _ *http.Request) { answerJSON(t, w, http.StatusOK, f.faults) })
	mux.HandleFunc("GET /cluster/ops/{id}", func(w http.ResponseWriter, r *http.Request) {
		if f.op == nil {
			answerJSON(t, w, http.StatusNotFound, api.NewProblem(api.CodeNotFound, "there is no operation"))
			return
		}
		op := *f.op
		op.Op = r.PathValue("id")
		answerJSON(t, w, http.StatusOK, op)
	})
	mux.HandleFunc("GET /cluster/ops", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(t, w, http.StatusOK, api.Operations{Operations: []api.Operation{{Op: "f-1", Verb: "partition", State: api.OperationDone, Member: "us-west", StartedAt: time.Unix(1, 0)}}})
	})
	mux.HandleFunc("GET /cluster/status", func(w http.ResponseWriter, _ *http.Request) {
		raw, err := os.ReadFile("testdata/status/ok.json")
		if err != nil {
			t.Error(err)
		}
		if _, err := w.Write(raw); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("GET /cluster/members", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(t, w, http.StatusOK, api.Members{})
	})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(api.HeaderMember, cmp.Or(f.name, "us-west"))
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

var west = []api.Fault{{ID: "f-1", Member: "us-west", Peer: "us-east", Direction: "both", Effect: "drop", LeftMS: 12_000, ExpiresAt: time.Date(2026, 3, 4, 14, 32, 3, 0, time.UTC)}}

func TestPartition_SaysWhoHoldsItAndUntilWhen(t *testing.T) {
	t.Parallel()
	f := &faulty{}
	exit, out, errs := run(t, []string{f.start(t)}, strings.Fields("partition --isolate us-west --for 20s --confirm=us-west")...)
	if exit != 0 || errs != "" || len(f.partitions) != 1 {
		t.Fatalf("exit %d, stderr %q, asked %v", exit, errs, f.partitions)
	}
	req := f.partitions[0]
	if len(req.Members) != 1 || req.Members[0] != "us-west" || req.Split != nil || req.DurationMS != 20_000 || req.Direction != "" || !strings.HasPrefix(req.OperationID, "f-") {
		t.Errorf("asked %+v", req)
	}
	for _, want := range []string{"can lose", "fault " + req.OperationID + " is held by us-west until ", "tidalctl heal " + req.OperationID, "quorum"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	exit, out, _ = run(t, []string{f.start(t)}, strings.Fields("partition --split us-east,us-west/ap-south --one-way --delay 50ms --for 1m --dry-run -o json")...)
	req = f.partitions[1]
	if exit != 0 || !strings.Contains(out, `"schema": "tidalctl.partition/v1"`) || len(req.Split) != 2 || len(req.Split[0]) != 2 || req.Direction != "out" || req.DelayMS != 50 || !req.DryRun {
		t.Errorf("exit %d, asked %+v:\n%s", exit, req, out)
	}
}

func TestPartition_Outcomes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		f      *faulty
		args   string
		exit   int
		stdout string
		stderr []string
	}{
		{"refused", &faulty{partition: func(w http.ResponseWriter, _ api.PartitionRequest) {
			answerJSON(t, w, http.StatusConflict, api.NewProblem(api.CodeDrillsDisabled, "us-west injects no faults: that needs drills.enabled: true in its configuration"))
		}}, "partition --isolate us-west --for 20s --confirm=us-west", 6, "", []string{"[refused: drills_disabled]", "drills.enabled: true", "nothing changed"}},
		{"partly", &faulty{partition: func(w http.ResponseWriter, req api.PartitionRequest) {
			answerJSON(t, w, http.StatusOK, api.Partitioned{ID: req.OperationID, Acked: []string{"us-west"}, Failed: []string{"ap-south"}, Checks: []api.Check{}, ExpiresAt: new(time.Now()),
				Errors: []api.MemberError{{Member: "ap-south", Code: api.CodeMemberUnreached, Detail: "refused", Effect: api.EffectNone}}})
		}}, "partition --split us-west/ap-south --for 20s --confirm=us-west/ap-south", 3, "not by ap-south: member_unreachable: refused", nil},
		{"a dry run that would be refused", &faulty{partition: func(w http.ResponseWriter, req api.PartitionRequest) {
			answerJSON(t, w, http.StatusOK, api.Partitioned{DryRun: true, Checks: []api.Check{{Code: "takes"}}})
		}}, "partition --isolate us-west --for 20s --dry-run", 6, "nothing changed", nil},
		{"the answer is lost and nobody knows", &faulty{partition: func(http.ResponseWriter, api.PartitionRequest) { panic(http.ErrAbortHandler) }},
			"partition --isolate us-west --for 20s --confirm=us-west", 23, "", []string{"[faults_remain: faults_remain]", "faults may remain until 20", "tidalctl heal --all"}},
		{"the answer is lost and somebody knows", &faulty{
			partition: func(http.ResponseWriter, api.PartitionRequest) { panic(http.ErrAbortHandler) },
			op:        &api.Operation{Verb: "partition", State: api.OperationDone, Member: "us-west", Result: json.RawMessage(`{"ok":true,"id":"f-1","acked":["us-west"]}`)},
		}, "partition --isolate us-west --for 20s --confirm=us-west", 0, "fault f-1 is held by us-west", nil},
		{"a wrong name", &faulty{}, "partition --isolate us-west --for 20s --confirm=us-east", 64, "", []string{"us-west"}},
		{"no name", &faulty{}, "partition --isolate us-west --for 20s", 64, "", []string{"--confirm=us-west"}},
		{"no end", &faulty{}, "partition --isolate us-west --confirm=us-west", 64, "", []string{"--for is missing"}},
		{"nobody", &faulty{}, "partition --for 20s", 64, "", []string{"--isolate NAME"}},
		{"both", &faulty{}, "partition --isolate a --split b/c --for 20s", 64, "", []string{"--isolate NAME"}},
		{"no way", &faulty{}, "partition --isolate a --one-way=up --for 20s", 64, "", []string{"--one-way=up"}},
		{"heal", &faulty{faults: api.Faults{Faults: west}}, "heal --all", 0, "ended, says us-east, us-west", nil},
		{"heal of what is over", &faulty{}, "heal f-1", 0, "fault f-1 is not in force on us-east, us-west", nil},
		{"heal of nothing", &faulty{}, "heal", 64, "", []string{"--all"}},
		{"heal, and one is silent", &faulty{heal: func(w http.ResponseWriter, req api.HealRequest) {
			answerJSON(t, w, http.StatusOK, api.Healed{Healed: west, Acked: []string{"us-east"}, Failed: []string{"us-west"}, Checks: []api.Check{}, FaultsUntil: new(time.Date(2126, 3, 4, 14, 32, 3, 0, time.UTC)),
				Errors: []api.MemberError{{Member: "us-west", Code: api.CodeMemberUnreached, Detail: "timeout", Effect: api.EffectNone}}})
		}}, "heal --all", 23, "us-west did not answer: timeout", []string{"faults may remain until 2126-03-04T14:32:03Z", "tidalctl faults list"}},
		{"faults", &faulty{faults: api.Faults{Faults: west, Acked: []string{"us-west"}, Errors: []api.MemberError{{Member: "ap-south", Detail: "timeout"}}}}, "faults list", 0, "drops to and from us-east", nil},
		{"no faults", &faulty{faults: api.Faults{Acked: []string{"us-west"}}}, "faults list", 0, "no fault is in force on us-west", nil},
	} {
		exit, out, errs := run(t, []string{tc.f.start(t)}, strings.Fields(tc.args)...)
		if exit != tc.exit || !strings.Contains(out, tc.stdout) {
			t.Errorf("%s: exit %d, want %d\n%s\n%s", tc.name, exit, tc.exit, out, errs)
		}
		for _, want := range tc.stderr {
			if !strings.Contains(errs, want) {
				t.Errorf("%s: no %q in\n%s", tc.name, want, errs)
			}
		}
	}
}

// Who the member that is asked does not reach is asked from here: the operator may stand where that works.
func TestHeal_AsksFromHereWhoIsNotReached(t *testing.T) {
	t.Parallel()
	alone := &faulty{heal: func(w http.ResponseWriter, req api.HealRequest) {
		answerJSON(t, w, http.StatusOK, api.Healed{Op: req.OperationID, Healed: west, Acked: []string{"us-west"}, Failed: []string{"us-east"}, Checks: []api.Check{}, FaultsUntil: new(time.Now()),
			Errors: []api.MemberError{{Member: "us-east", Code: api.CodeMemberUnreached, Detail: "timeout", Effect: api.EffectNone}}})
	}}
	others := &faulty{heal: func(w http.ResponseWriter, req api.HealRequest) {
		answerJSON(t, w, http.StatusOK, api.Healed{Op: req.OperationID, Healed: []api.Fault{}, Acked: []string{"us-east"}, Failed: []string{"us-west"}, Checks: []api.Check{}, FaultsUntil: new(time.Now()),
			Errors: []api.MemberError{{Member: "us-west", Code: api.CodeMemberUnreached, Detail: "timeout", Effect: api.EffectNone}}})
	}}
	if exit, out, errs := run(t, []string{alone.start(t)}, "heal", "--all"); exit != 23 {
		t.Errorf("nobody reaches us-east: exit %d\n%s%s", exit, out, errs)
	}
	others.name = "us-east"
	exit, out, errs := run(t, []string{others.start(t), alone.start(t)}, strings.Fields("heal --all -o json")...)
	var done api.Healed
	if err := json.Unmarshal([]byte(out), &done); err != nil || exit != 0 {
		t.Fatalf("exit %d: %v\n%s%s", exit, err, out, errs)
	}
	if !done.OK || strings.Join(done.Acked, " ") != "us-east us-west" || len(done.Failed)+len(done.Errors) != 0 || len(done.Healed) != 1 || done.FaultsUntil != nil {
		t.Errorf("healed %+v", done)
	}
}

// Who is asked on a terminal sees the checks first; a partition is named once, however many faults it has.
func TestPartition_AsksWithTheChecks(t *testing.T) {
	t.Parallel()
	f := &faulty{faults: api.Faults{Faults: append(west, west...)}}
	url := f.start(t)
	io, _, errs := iostreams.Test()
	io.In, io.InTTY, io.ErrTTY = strings.NewReader("us-west\n"), true, true
	root := ctl.NewRoot(newFactory(t, io, []string{url}), verbs.All)
	root.SetArgs(strings.Fields("partition --isolate us-west --for 20s"))
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(f.partitions) != 2 || !f.partitions[0].DryRun || f.partitions[1].DryRun {
		t.Errorf("asked %+v", f.partitions)
	}
	for _, want := range []string{"a side keeps 2 of 3 voters", "To undo: tidalctl heal f-", `Type "us-west"`} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("no %q in\n%s", want, errs)
		}
	}
	if _, out, _ := run(t, []string{url}, "faults", "list", "-o", "name"); out != "f-1\n" {
		t.Errorf("faults list -o name: %q", out)
	}
}
