package api_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/testenv/golden"
)

var update = flag.Bool("update", false, "write the table into CODES.md")

func TestCodes_DocumentIsCurrent(t *testing.T) {
	var b strings.Builder
	b.WriteString("| code | status | exit | retryable | effect | means |\n|---|---|---|---|---|---|\n")
	for _, c := range api.Codes() {
		retryable := "no"
		if c.Retryable {
			retryable = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %d | %d | %s | %s | %s |\n", c.Code, c.Status, c.Exit, retryable, c.Effect, c.Title)
	}
	golden.Table(t, "CODES.md", b.String(), *update)
}

// The table is an interface: one row a code, and rows that do not contradict themselves.
func TestCodes(t *testing.T) {
	seen := map[api.Code]bool{}
	for _, c := range api.Codes() {
		if seen[c.Code] {
			t.Errorf("%s has two rows", c.Code)
		}
		seen[c.Code] = true
		if c.Status < 400 || c.Status > 599 || c.Exit < 1 || c.Title == "" {
			t.Errorf("row %+v is not an error", c)
		}
		// A join that is asked for again is the same join.
		if c.Retryable && c.Effect != api.EffectNone && c.Code != api.CodeJoinPending {
			t.Errorf("%s may have an effect and says that a retry is safe", c.Code)
		}
	}
	if p := api.NewProblem("made_up", "x"); p.Code != api.CodeInternal {
		t.Errorf("NewProblem of an unknown code = %s, want internal", p.Code)
	}
}
