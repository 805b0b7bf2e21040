package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/bench"
	"github.com/tidaldb/tidal/ctl/iostreams"
	"github.com/tidaldb/tidal/ctl/output"
)

func TestBench_PrintsARowAnEndpoint(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer s.Close()
	io, out, _ := iostreams.Test()
	o := &benchOptions{
		Target: func() ([]string, string, error) { return []string{s.URL}, "", nil },
		IO:     io, Out: &output.Printer{Out: io.Out, Format: output.Format{Name: output.JSON}},
		Load: bench.Options{Op: bench.OpSignals, Clients: 2, For: 100 * time.Millisecond, Ack: "quorum", Keys: "uniform", Space: 3},
	}
	if err := runBench(t.Context(), o); err != nil {
		t.Fatalf("runBench = %v", err)
	}
	var doc struct {
		Schema string      `json:"schema"`
		Rows   []bench.Row `json:"rows"`
	}
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil || doc.Schema != "tidalctl.bench/v1" || len(doc.Rows) != 1 || doc.Rows[0].Operations == 0 {
		t.Errorf("printed %s, %v", out, err)
	}
}

// A measurement in which nothing succeeded is none, and says so by its exit.
func TestBench_ExitOfNothing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		sum  bench.Row
		exit int
	}{
		{bench.Row{Operations: 7, Errors: 3, ByError: map[string]uint64{"connection": 3}}, 0},
		{bench.Row{}, 0},
		{bench.Row{Errors: 3, ByError: map[string]uint64{"connection": 3}}, ctl.ExitUnreachable},
		{bench.Row{Errors: 3, ByError: map[string]uint64{"connection": 2, "no_leader": 1}}, ctl.ExitFailed},
	} {
		exit := 0
		if e, ok := errors.AsType[*ctl.ConditionError](measured(bench.Report{Rows: []bench.Row{{}, tc.sum}})); ok {
			exit = e.Exit
		}
		if exit != tc.exit {
			t.Errorf("%+v: exit %d, want %d", tc.sum, exit, tc.exit)
		}
	}
}

func TestBench_RefusesWhatCannotBe(t *testing.T) {
	o := &benchOptions{
		Target: func() ([]string, string, error) { return []string{"http://127.0.0.1:1"}, "", nil },
		Load:   bench.Options{Op: "singals"},
	}
	err := runBench(context.Background(), o)
	if _, ok := err.(*ctl.UsageError); !ok {
		t.Errorf("runBench = %v, want a usage error", err)
	}
}
