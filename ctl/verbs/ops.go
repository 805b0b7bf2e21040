package verbs

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/words"
)

// operationReader asks every member for an operation. *client.Client implements it.
type operationReader interface {
	Operation(ctx context.Context, id string) (api.Operation, client.Source, error)
}

type opsOptions struct {
	Client func() (operationReader, error)
	Out    *output.Printer

	ID      string
	Wait    bool
	Timeout time.Duration
}

func newOpsCmd(f *ctl.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ops",
		Short: "Show what became of a change",
		Long: `Show what became of a change. Every command that changes the cluster is an operation with
an id; the member that ran it remembers it until it stops. All members are asked.`,
		Example:     "  tidalctl ops show 5f0c2a9e7b1d4c33a8e6f901\n  tidalctl ops wait 5f0c2a9e7b1d4c33a8e6f901",
		GroupID:     ctl.GroupRead,
		Annotations: ctl.ImpactRead.Annotation(),
	}
	cmd.AddCommand(newOpsShowCmd(f, "show ID", "Show one operation", false), newOpsShowCmd(f, "wait ID", "Wait for the end of an operation", true))
	return cmd
}

func newOpsShowCmd(f *ctl.Factory, use, short string, wait bool) *cobra.Command {
	o := &opsOptions{Client: func() (operationReader, error) { return f.Client(f.Timeout(0)) }, Wait: wait}
	return &cobra.Command{
		Use:         use,
		Short:       short,
		Long:        short + ". Exit 0 when it is done; else the exit code of what it answered.",
		Example:     "  tidalctl ops " + use[:4] + " 5f0c2a9e7b1d4c33a8e6f901",
		Annotations: ctl.ImpactRead.Annotation(),
		Args:        cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.ID, o.Out, o.Timeout = args[0], f.Printer(), f.Timeout(waitTimeout)
			return runOpsShow(cmd.Context(), o)
		},
	}
}

func runOpsShow(ctx context.Context, o *opsOptions) error {
	notShown := "operation " + o.ID + " was not shown"
	c, err := o.Client()
	if err != nil {
		return ctl.Failed(notShown, err)
	}
	op, source, err := c.Operation(ctx, o.ID)
	if o.Wait && err == nil {
		deadline, cancel := context.WithTimeout(ctx, o.Timeout)
		defer cancel()
		op, source, err = awaitOperation(deadline, c, o.ID)
		if deadline.Err() != nil && ctx.Err() == nil {
			err = &ctl.TimeoutError{After: o.Timeout, Last: "it runs", Try: []string{"tidalctl ops show " + o.ID}}
		}
	}
	if err != nil {
		return ctl.Failed(notShown, err)
	}
	if op.Problem != nil {
		return ctl.Failed(op.Verb+" failed", &client.ProblemError{Endpoint: source.Endpoint, Member: op.Member, Problem: op.Problem})
	}
	return o.Out.Print(operationDocument(op))
}

// awaitOperation asks until the operation has ended.
func awaitOperation(ctx context.Context, c operationReader, id string) (api.Operation, client.Source, error) {
	for {
		op, source, err := c.Operation(ctx, id)
		if err != nil || op.State != api.OperationRunning {
			return op, source, err
		}
		select {
		case <-ctx.Done():
			return op, source, context.Cause(ctx)
		case <-time.After(pollInterval):
		}
	}
}

func operationDocument(op api.Operation) output.Document {
	return output.Document{Kind: "operation", Value: op, Names: []string{op.Op}, View: func(bool) output.View {
		t := output.Section{Columns: []output.Column{{Title: "operation"}, {Title: "verb"}, {Title: "state"}, {Title: "member"}, {Title: "started"}, {Title: "finished"}}}
		finished := "-"
		if op.FinishedAt != nil {
			finished = op.FinishedAt.Format(time.RFC3339)
		}
		t.Rows = [][]string{{op.Op, op.Verb, op.State, words.Or(op.Member), op.StartedAt.Format(time.RFC3339), finished}}
		return output.View{Sections: []output.Section{t}}
	}}
}
