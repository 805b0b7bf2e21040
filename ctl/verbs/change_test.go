package verbs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/daemon/api"
)

// remembering are members that know of an operation, or do not, and whose status cannot be read.
type remembering struct{ op *api.Operation }

func (m remembering) Status(context.Context) (api.Status, client.Source, error) {
	return api.Status{}, client.Source{}, errors.New("not read")
}

func (m remembering) Operation(context.Context, string) (api.Operation, client.Source, error) {
	if m.op == nil {
		return api.Operation{}, client.Source{}, &client.ProblemError{Problem: api.NewProblem(api.CodeNotFound, "there is no operation")}
	}
	return *m.op, client.Source{Member: "us-east"}, nil
}

// One answer is lost, and what came of it is found out, whatever the command.
func TestChange_ALostAnswer(t *testing.T) {
	t.Parallel()
	result, err := json.Marshal("found")
	if err != nil {
		t.Fatal(err)
	}
	names, err := output.ParseFormat("name")
	if err != nil {
		t.Fatal(err)
	}
	lost := func(context.Context) (string, client.Source, error) {
		return "", client.Source{}, &client.LostError{Endpoint: "http://a", Operation: "o", Err: errors.New("EOF")}
	}
	seen := func(is bool) func(context.Context) (string, client.Source, bool) {
		return func(context.Context) (string, client.Source, bool) { return "seen", client.Source{}, is }
	}
	done := &api.Operation{Op: "o", State: api.OperationDone, Result: result}
	for _, tc := range []struct {
		name    string
		change  change[string]
		members remembering
		stopped bool
		want    string // printed, or in the error
		told    string
		exit    int
	}{
		{"done", change[string]{Do: lost}, remembering{done}, false, "found", "asking every member for operation o", 0},
		{"failed", change[string]{Do: lost}, remembering{&api.Operation{State: api.OperationFailed, Problem: api.NewProblem(api.CodeLagTooHigh, "far behind")}}, false, "far behind", "", ctl.ExitRefused},
		{"nobody knows", change[string]{Do: lost}, remembering{}, false, "no operation", "", ctl.ExitUnknown},
		{"nobody knows, and it is seen", change[string]{Do: lost, Seen: seen(true)}, remembering{}, false, "seen", "", 0},
		{"nobody knows, and it is not seen", change[string]{Do: lost, Seen: seen(false)}, remembering{}, false, "no operation", "", ctl.ExitUnknown},
		{"of faults", change[string]{Do: lost, Unknown: faultsRemain("o", time.Minute)}, remembering{}, false, "operation o was asked for", "", ctl.ExitFaultsRemain},
		{"of faults, and nobody watches", change[string]{Do: lost, Unknown: faultsRemain("o", time.Minute)}, remembering{done}, true, "operation o was asked for", "", ctl.ExitFaultsRemain},
		{"nobody watches", change[string]{Do: lost}, remembering{done}, true, "it is not known", "operation o goes on: tidalctl ops show o", ctl.ExitFailed},
		{"a dry run", change[string]{Do: lost, Dry: true}, remembering{done}, false, "a dry run changes nothing", "", ctl.ExitFailed},
		{"a dry run of which a member does not know how far it came", change[string]{Dry: true, Do: func(context.Context) (string, client.Source, error) {
			return "", client.Source{}, &client.ProblemError{Problem: api.NewProblem(api.CodeOutcomeUnknown, "no answer of it")}
		}}, remembering{}, false, "no answer of it", "", ctl.ExitUnknown},
		{"nobody watches what was begun", change[string]{
			Begin: func(context.Context) (api.Operation, client.Source, error) { return *done, client.Source{}, nil },
			Watch: func(context.Context, api.Operation) (string, error) { return "", context.Canceled },
		}, remembering{done}, true, "it is not known", "", ctl.ExitFailed},
		{"it runs when the time is up", change[string]{Do: lost, Timeout: time.Nanosecond}, remembering{&api.Operation{State: api.OperationRunning, Member: "us-east"}}, false, "us-east works on it", "", ctl.ExitTimeout},
		{"what was begun", change[string]{
			Begin: func(context.Context) (api.Operation, client.Source, error) {
				_, _, err := lost(context.Background())
				return api.Operation{}, client.Source{}, err
			},
			Watch: func(_ context.Context, op api.Operation) (string, error) { return "watched " + op.Op, nil },
		}, remembering{done}, false, "watched o", "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tc.stopped {
				cancel()
			}
			var told []string
			var out bytes.Buffer
			c := tc.change
			c.NotDone, c.Doubt, c.Operation, c.Timeout = "it was not done", "it is not known", "o", cmp.Or(c.Timeout, time.Second)
			c.Tell = func(line string) { told = append(told, line) }
			c.Document = func(v string, _ client.Source, _ *api.Status) output.Document {
				return output.Document{Kind: "test", Value: v, Names: []string{v}}
			}
			err := c.run(ctx, tc.members, &output.Printer{Out: &out, Format: names})
			got, exit := out.String(), 0
			if err != nil {
				f := ctl.Explain(err, ctl.ImpactChange)
				got, exit = f.What+"\n"+strings.Join(f.Why, "\n"), f.Exit
				// What was sent and is not known to have failed may have happened: nothing else may be said of it.
				doubtful := !tc.change.Dry && exit != ctl.ExitRefused
				if (f.Effect == api.EffectUnknown) != doubtful || strings.Contains(f.What, "it was not done") == doubtful {
					t.Errorf("what is left: %s, %q", f.Effect, f.What)
				}
			}
			if !strings.Contains(got, tc.want) || exit != tc.exit || !strings.Contains(strings.Join(told, "\n"), tc.told) {
				t.Errorf("exit %d, want %d, with %q:\n%s\ntold %q, want %q", exit, tc.exit, tc.want, got, told, tc.told)
			}
		})
	}
}
