package verbs_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// mending is one member that answers what has to do with the data of members.
type mending struct {
	reseeds  []api.ReseedRequest
	verifies []api.VerifyRequest
	clears   []api.ClearRequest

	progress []*api.Progress // told one after the other, before the end
	away     int             // that many questions for the operation, after the progress, are not answered
	problem  *api.Problem    // ends the operation; nil: it is done
	verified api.Verified
	regions  func([]api.Region) // changes those of the status; nil: all is well
}

func (m *mending) start(t *testing.T) string {
	reply := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set(api.HeaderMember, "us-west")
		w.WriteHeader(status)
		if err := json.NewEncoder(w).Encode(v); err != nil {
			t.Error(err)
		}
	}
	body := func(r *http.Request, into any) {
		if err := json.NewDecoder(r.Body).Decode(into); err != nil {
			t.Error(err)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /cluster/reseed", func(w http.ResponseWriter, r *http.Request) {
		var req api.ReseedRequest
		body(r, &req)
		m.reseeds = append(m.reseeds, req)
		if req.DryRun {
			reply(w, http.StatusOK, api.Reseeded{OK: true, DryRun: true, Op: req.OperationID, Region: req.Region,
				Checks: []api.Check{{Code: api.CheckHeals, OK: true, Detail: "the replica is not in quarantine"}, {Code: api.CheckSource, OK: true, Detail: "us-east answers and is sound"}}})
			return
		}
		reply(w, http.StatusAccepted, api.Operation{Op: req.OperationID, Verb: "reseed", State: api.OperationRunning, Member: req.Region})
	})
	mux.HandleFunc("GET /cluster/ops/{id}", func(w http.ResponseWriter, r *http.Request) {
		op := api.Operation{Op: r.PathValue("id"), Verb: "reseed", State: api.OperationRunning, Member: "ap-south"}
		switch {
		case len(m.progress) > 0:
			op.Progress, m.progress = m.progress[0], m.progress[1:]
		case m.away > 0:
			m.away--
			panic(http.ErrAbortHandler)
		case m.problem != nil:
			op.State, op.Problem = api.OperationFailed, m.problem
		default:
			op.State = api.OperationDone
			op.Result, _ = json.Marshal(api.Reseeded{OK: true, Op: op.Op, Region: "ap-south", Checks: []api.Check{}, Index: 4711, Bytes: 3 << 20, TookMS: 1234})
		}
		reply(w, http.StatusOK, op)
	})
	mux.HandleFunc("POST /cluster/verify", func(w http.ResponseWriter, r *http.Request) {
		var req api.VerifyRequest
		body(r, &req)
		m.verifies = append(m.verifies, req)
		reply(w, http.StatusOK, m.verified)
	})
	mux.HandleFunc("POST /cluster/quarantine/clear", func(w http.ResponseWriter, r *http.Request) {
		var req api.ClearRequest
		body(r, &req)
		m.clears = append(m.clears, req)
		reply(w, http.StatusOK, api.Cleared{OK: true, DryRun: req.DryRun, Op: req.OperationID, Region: req.Region, Bytes: 5 << 20,
			Kept: []api.Kept{{Name: "kept-1760000000000-divergent", Reason: "divergent", Bytes: 5 << 20}}})
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
		if m.regions != nil {
			m.regions(s.Regions)
		}
		reply(w, http.StatusOK, s)
	})
	mux.HandleFunc("GET /cluster/members", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, api.Members{}) })
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// A reseed tells each step once, with bytes, rate and what is left, and ends with what was done.
func TestReseed_TellsItsProgress(t *testing.T) {
	t.Parallel()
	m := &mending{progress: []*api.Progress{
		{Phase: "fetch", Step: 2, Of: 4, Bytes: 1 << 20, Total: 4 << 20, Rate: 1 << 20, ETAMS: new(int64(3000))},
		{Phase: "permit", Step: 3, Of: 4, Detail: "the leader does not permit it now: member 3 is being installed: one at a time"},
	}}
	exit, out, errs := run(t, []string{m.start(t)}, "reseed", "ap-south", "--from", "us-east", "--confirm=ap-south")
	if exit != 0 || len(m.reseeds) != 1 || m.reseeds[0].From != "us-east" || !m.reseeds[0].NoWait {
		t.Fatalf("exit %d, asked %+v\n%s", exit, m.reseeds, errs)
	}
	for _, want := range []string{
		"phase 2 of 4: fetch, 1.0 MiB of 4.0 MiB, 1.0 MiB/s, 3s left",
		"phase 3 of 4: ask the leader for a permit (the leader does not permit it now: member 3 is being installed: one at a time)",
	} {
		if strings.Count(errs, want) != 1 {
			t.Errorf("progress %q, want once %q", errs, want)
		}
	}
	if !strings.Contains(out, "ap-south has new data up to index 4,711: 3.0 MiB in 1.2s") {
		t.Errorf("stdout %q", out)
	}
}

// A member that goes away meanwhile, as for a restart, does not end the wait; somebody who waits is told, once.
func TestReseed_GoesOnWhileNobodyAnswers(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"reseed ap-south --confirm=ap-south", "ops wait o1"} {
		m := &mending{progress: []*api.Progress{{Phase: "fetch", Step: 2, Of: 4}}, away: 6} // each question is asked twice
		exit, out, errs := run(t, []string{m.start(t)}, strings.Fields(line)...)
		if exit != 0 || m.away != 0 || strings.Count(errs, "phase 2 of 4: fetch") != 1 || strings.Count(errs, "nobody answers who may know") != 1 {
			t.Errorf("%s: exit %d, %s%s", line, exit, out, errs)
		}
	}
}

// --timeout ends the watching, and says that the work goes on.
func TestReseed_TimeoutEndsTheWatching(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"reseed ap-south --confirm=ap-south --timeout 600ms", "ops wait o1 --timeout 600ms"} {
		m := &mending{}
		for range 100 {
			m.progress = append(m.progress, &api.Progress{Phase: "fetch", Step: 2, Of: 4})
		}
		exit, _, errs := run(t, []string{m.start(t)}, strings.Fields(line)...)
		if exit != 124 || !strings.Contains(errs, "state  unknown") || !strings.Contains(errs, "phase 2 of 4: fetch") || !strings.Contains(errs, "tidalctl ops ") {
			t.Errorf("%s: exit %d, %s", line, exit, errs)
		}
	}
}

// What cannot be taken back needs the member's name; nothing is sent without it.
func TestReseed_NeedsTheName(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"reseed ap-south", "reseed ap-south --confirm=us-west", "quarantine clear ap-south", "verify --trust us-east"} {
		m := &mending{}
		exit, _, errs := run(t, []string{m.start(t)}, strings.Fields(line)...)
		if exit != 64 || len(m.reseeds)+len(m.clears)+len(m.verifies) != 0 {
			t.Errorf("%s: exit %d, %s", line, exit, errs)
		}
	}
}

// A reseed that stalls ends with 124, and says that it stays latched.
func TestReseed_Stalls(t *testing.T) {
	t.Parallel()
	m := &mending{problem: api.NewProblem(api.CodeReseedStalled, "ap-south has been in phase permit for 5m0s without getting on")}
	exit, _, errs := run(t, []string{m.start(t)}, "reseed", "ap-south", "--confirm=ap-south")
	if exit != 124 || !strings.Contains(errs, "phase permit") {
		t.Errorf("exit %d, %s", exit, errs)
	}
}

func TestVerify_SpeaksThroughItsExit(t *testing.T) {
	t.Parallel()
	row := func(name, state string) api.VerifiedRow {
		r := api.VerifiedRow{Name: name, ID: "1", Role: "voter", Digest: api.Digest{State: state}}
		if state != "unverified" {
			r.Index, r.Sum = new(uint64(90)), new(strings.Repeat("ab", 32))
		}
		return r
	}
	for _, tc := range []struct {
		line  string
		v     api.Verified
		exit  int
		words string
	}{
		{"verify", api.Verified{OK: true, Index: 90, Members: []api.VerifiedRow{row("a", "verified"), row("b", "verified")}}, 0, "all 2 members have the same state at index 90"},
		{"verify", api.Verified{Index: 90, Differs: true, Members: []api.VerifiedRow{row("a", "verified"), row("b", "divergent")}}, 12, "states differ at index 90"},
		{"verify", api.Verified{Index: 90, Members: []api.VerifiedRow{row("a", "verified"), row("b", "unverified")}}, 3, "not every member has reported its state"},
		{"verify --trust a --confirm=a", api.Verified{Index: 90, Trust: "a", Differs: true, Members: []api.VerifiedRow{row("a", "verified"), row("b", "divergent")}}, 12, "what differs from a goes into quarantine"},
	} {
		m := &mending{verified: tc.v}
		exit, out, errs := run(t, []string{m.start(t)}, strings.Fields(tc.line)...)
		if exit != tc.exit || !strings.Contains(out, tc.words) {
			t.Errorf("%s: exit %d, want %d with %q; %s%s", tc.line, exit, tc.exit, tc.words, out, errs)
		}
		if len(m.verifies) != 1 || m.verifies[0].Trust != tc.v.Trust {
			t.Errorf("%s: asked %+v", tc.line, m.verifies)
		}
	}
}

func TestQuarantine_ShowAndClear(t *testing.T) {
	t.Parallel()
	m := &mending{regions: func(regions []api.Region) {
		r := &regions[1]
		r.Quarantine = &api.Quarantine{Cause: "divergent", Detail: "at index 9 the state here adds up to ab...", Since: time.Unix(1_760_000_000, 0).UTC(), Votes: true,
			Evidence: &api.Evidence{Index: 9, Own: "ab", Right: "cd", Agree: []string{"1", "3"}}}
		r.Reseed = &api.Reseed{Reason: "divergent", Phase: "fetch"}
		r.Kept = []api.Kept{{Name: "kept-1760000000000-log_write", Reason: "log_write", Bytes: 1 << 20}}
	}}
	url := m.start(t)
	exit, out, errs := run(t, []string{url}, "quarantine", "show")
	if exit != 0 {
		t.Fatalf("exit %d: %s", exit, errs)
	}
	for _, want := range []string{"divergent", "yes", "fetch", "at index 9", "kept-1760000000000-log_write", "1.0 MiB"} {
		if !strings.Contains(out, want) {
			t.Errorf("quarantine show says nothing of %q:\n%s", want, out)
		}
	}
	if exit, _, _ := run(t, []string{url}, "quarantine", "show", "nobody"); exit != 5 {
		t.Errorf("quarantine show nobody: exit %d, want 5", exit)
	}
	exit, out, errs = run(t, []string{url}, "quarantine", "clear", "us-west", "--confirm=us-west")
	if exit != 0 || len(m.clears) != 1 || m.clears[0].Region != "us-west" || !strings.Contains(out, "removed 1 kept directories of us-west, 5.0 MiB") {
		t.Errorf("clear: exit %d, asked %+v, %s%s", exit, m.clears, out, errs)
	}
}
