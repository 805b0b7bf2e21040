package verbs

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/ctl/iostreams"
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
	IO     *iostreams.Streams
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
an id; the member that ran it remembers it, over a restart too. All members are asked.`,
		Example:     "  tidalctl ops list\n  tidalctl ops show 5f0c2a9e7b1d4c33a8e6f901\n  tidalctl ops wait 5f0c2a9e7b1d4c33a8e6f901",
		GroupID:     ctl.GroupRead,
		Annotations: ctl.ImpactRead.Annotation(),
	}
	cmd.AddCommand(newOpsListCmd(f, nil), newOpsShowCmd(f, "show ID", "Show one operation", false), newOpsShowCmd(f, "wait ID", "Wait for the end of an operation", true))
	return cmd
}

func newOpsShowCmd(f *ctl.Factory, use, short string, wait bool) *cobra.Command {
	o := &opsOptions{Client: func() (operationReader, error) { return f.Client(client.ReadTimeout) }, IO: f.IO, Wait: wait}
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
	show := c.Operation
	if o.Wait {
		show = func(ctx context.Context, id string) (api.Operation, client.Source, error) { return o.wait(ctx, c) }
	}
	op, source, err := show(ctx, o.ID)
	if err != nil {
		return ctl.Failed(notShown, err)
	}
	if op.Problem != nil {
		what := op.Verb + " failed"
		if op.State == api.OperationUnknown {
			what = "it is not known what became of " + op.Verb
		}
		return &ctl.ActionError{What: what, Err: &client.ProblemError{Endpoint: source.Endpoint, Member: op.Member, Problem: op.Problem}, Effect: op.Problem.Effect}
	}
	return o.Out.Print(operationDocument(op))
}

// wait asks until the operation has ended, also while nobody answers that may know of it.
func (o *opsOptions) wait(ctx context.Context, c operationReader) (api.Operation, client.Source, error) {
	deadline, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	p := progress{io: o.IO, prefix: "waiting for operation " + o.ID, start: time.Now()}
	defer p.end()
	last := "nobody has answered yet"
	op, source, err := awaitOperation(deadline, c, o.ID, func(op api.Operation, err error) bool {
		switch {
		case err == nil && op.Progress == nil:
			last = op.Verb + " runs on " + words.Or(op.Member)
		case err == nil:
			last = op.Verb + " runs on " + words.Or(op.Member) + ", " + progressLine(op.Progress)
		case client.Transient(err):
			last = "nobody answers who may know of it"
		default:
			return false
		}
		p.tell(last)
		return true
	})
	if deadline.Err() == nil {
		return op, source, err
	}
	what := "operation " + o.ID + " has not ended"
	try := []string{"tidalctl ops wait " + o.ID, "tidalctl status"}
	if ctx.Err() != nil {
		return op, source, ctl.Doubtful(what, context.Cause(ctx), try...)
	}
	return op, source, ctl.Doubtful(what, &ctl.TimeoutError{After: o.Timeout, Last: last}, try...)
}

// awaitOperation asks until the operation has ended. Where it runs, or the question failed, look says whether to
// ask on. When ctx ends first, the error is its cause, and the operation as it was last seen.
func awaitOperation(ctx context.Context, c operationReader, id string, look func(api.Operation, error) bool) (last api.Operation, source client.Source, err error) {
	for {
		op, from, err := c.Operation(ctx, id)
		switch {
		case err == nil && op.State != api.OperationRunning:
			return op, from, nil
		case ctx.Err() != nil:
			return last, source, context.Cause(ctx)
		case err == nil:
			last, source = op, from
		}
		if !look(op, err) {
			return last, source, err
		}
		select {
		case <-ctx.Done():
			return last, source, context.Cause(ctx)
		case <-time.After(pollInterval):
		}
	}
}

func operationDocument(op api.Operation) output.Document {
	return output.Document{Kind: "operation", Value: op, Names: []string{op.Op}, View: func(bool) output.View {
		return output.View{Sections: []output.Section{operationsTable([]api.Operation{op})}}
	}}
}

func operationsTable(ops []api.Operation) output.Section {
	t := output.Section{Columns: []output.Column{{Title: "operation"}, {Title: "verb"}, {Title: "state"}, {Title: "member"}, {Title: "started"}, {Title: "finished"}}}
	for _, op := range ops {
		finished := "-"
		if op.FinishedAt != nil {
			finished = op.FinishedAt.Format(time.RFC3339)
		}
		t.Rows = append(t.Rows, []string{op.Op, op.Verb, op.State, words.Or(op.Member), op.StartedAt.Format(time.RFC3339), finished})
	}
	return t
}

// operationsReader asks every member for its operations. *client.Client implements it.
type operationsReader interface {
	statusReader
	Operations(context.Context) ([]api.Operation, []client.Attempt, error)
}

type opsListOptions struct {
	Client func() (operationsReader, error)
	Out    *output.Printer
}

func newOpsListCmd(f *ctl.Factory, runF func(context.Context, *opsListOptions) error) *cobra.Command {
	o := &opsListOptions{Client: func() (operationsReader, error) { return f.Client(f.Timeout(0)) }}
	return &cobra.Command{
		Use:         "list",
		Short:       "List the changes that members remember, newest first",
		Long:        "List the changes that members remember, newest first. Members that do not answer are named.",
		Example:     "  tidalctl ops list",
		Annotations: ctl.ImpactRead.Annotation(),
		Args:        cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = f.Printer()
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runOpsList(cmd.Context(), o)
		},
	}
}

func runOpsList(ctx context.Context, o *opsListOptions) error {
	return reading[operationsReader, operationsAnswer]{
		NotRead: "the operations were not read", Client: o.Client, Document: operationsDocument,
		Read: func(ctx context.Context, c operationsReader) (operationsAnswer, client.Source, error) {
			ops, silent, err := c.Operations(ctx)
			return operationsAnswer{Operations: ops, Failed: append([]client.Attempt{}, silent...)}, client.Source{}, err
		},
	}.run(ctx, o.Out)
}

// operationsAnswer is what ops list prints.
type operationsAnswer struct {
	Operations []api.Operation  `json:"operations"`
	Failed     []client.Attempt `json:"failed"` // who did not answer
	howItIs
}

func operationsDocument(a operationsAnswer, _ client.Source, s *api.Status) output.Document {
	a.howItIs = healthOf(s)
	names := make([]string, len(a.Operations))
	for i, op := range a.Operations {
		names[i] = op.Op
	}
	return output.Document{Kind: "operations", Value: a, Names: names, View: func(bool) output.View {
		v := headOf(s)
		for _, s := range a.Failed {
			v.Notes = append(v.Notes, "no answer from "+s.String()+": what it began is not here")
		}
		if len(a.Operations) == 0 {
			v.Notes = append(v.Notes, "no member that answers remembers an operation")
		} else {
			v.Sections = []output.Section{operationsTable(a.Operations)}
		}
		return v
	}}
}
