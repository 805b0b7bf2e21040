package verbs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/words"
)

// reconcileTimeout bounds a reconcile where --timeout is not given: longer than the members try.
const reconcileTimeout = api.ReconcileTimeoutMS*time.Millisecond + 5*time.Second

// reconciler has members exchange what they hold, and can be asked what became of it. *client.Client
// implements it.
type reconciler interface {
	changer
	Reconcile(context.Context, api.ReconcileRequest) (api.Reconciled, client.Source, error)
}

type reconcileOptions struct {
	Client func() (reconciler, error)
	Out    *output.Printer
	Tell   func(string) // progress

	Name      string
	DryRun    bool
	Timeout   time.Duration
	Operation string
}

func newReconcileCmd(f *ctl.Factory, runF func(context.Context, *reconcileOptions) error) *cobra.Command {
	o := &reconcileOptions{
		Client: func() (reconciler, error) { return f.Client(client.ReadTimeout) },
		Tell:   f.Tell,
	}
	cmd := &cobra.Command{
		Use:   "reconcile NAME",
		Short: "Exchange writes that wait for a leader with a member",
		Long: `Exchange writes that wait for a leader (ack=local) between the member that is asked, the
first endpoint that answers, and the one named. Afterwards both show and hold what either
held, so it is safe even if one of them is lost, and each write counts once when a leader
takes it over, whoever brings it. It needs no leader; to repeat it changes nothing.

Members deliver such writes by themselves when they reach a leader: this is for the time
in which they do not.

Exit 0: done, or with --dry-run nothing differs. 12: with --dry-run, something differs.
1: the two hold writes that contradict each other; these were left as they are.`,
		Example: `  tidalctl reconcile us-west
  tidalctl reconcile us-west --dry-run
  tidalctl --endpoint http://127.0.0.1:9502 reconcile us-east -o json`,
		GroupID:           ctl.GroupChange,
		Annotations:       ctl.ImpactChange.Annotation(),
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeMembers(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name, o.Out, o.Timeout, o.Operation = args[0], f.Printer(), f.Timeout(reconcileTimeout), client.NewOperationID()
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runReconcile(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "say what differs and change nothing")
	return cmd
}

func runReconcile(ctx context.Context, o *reconcileOptions) error {
	notDone := "nothing was reconciled with " + o.Name
	c, err := o.Client()
	if err != nil {
		return ctl.Failed(notDone, err)
	}
	return change[api.Reconciled]{
		NotDone: notDone, Doubt: "it is not known whether anything was reconciled with " + o.Name,
		Operation: o.Operation, Timeout: o.Timeout, Dry: o.DryRun, Tell: o.Tell,
		Do: func(ctx context.Context) (api.Reconciled, client.Source, error) {
			return c.Reconcile(ctx, api.ReconcileRequest{Region: o.Name, DryRun: o.DryRun, OperationID: o.Operation})
		},
		Document: reconciledDocument,
		Exit: func(done api.Reconciled) error {
			switch {
			case !done.OK:
				return &ctl.ConditionError{Exit: ctl.ExitFailed}
			case o.DryRun && done.OpsApplied > 0:
				return &ctl.ConditionError{Exit: ctl.ExitDiffers}
			}
			return nil
		},
	}.run(ctx, c, o.Out)
}

// reconciledAnswer is what a reconcile prints: the member's answer, and who gave it.
type reconciledAnswer struct {
	api.Reconciled
	asSeen
}

func reconciledDocument(r api.Reconciled, source client.Source, s *api.Status) output.Document {
	a := reconciledAnswer{r, seenBy(source, s)}
	return output.Document{Kind: "reconcile", Value: a, Names: []string{r.Region}, View: func(bool) output.View {
		v := headOf(s)
		observer := words.Or(a.Observer)
		switch {
		case r.DryRun && r.OpsApplied > 0:
			v.Notes = append(v.Notes, fmt.Sprintf("dry run: %s lacks %s that %s holds, which lacks %s; nothing changed",
				observer, writes(r.LocalOpsApplied), r.Region, writes(r.RemoteOpsApplied)))
		case r.DryRun:
			v.Notes = append(v.Notes, fmt.Sprintf("dry run: %s and %s hold the same; nothing changed", observer, r.Region))
		case r.OpsApplied == 0:
			v.Notes = append(v.Notes, fmt.Sprintf("%s and %s held the same", observer, r.Region))
		default:
			v.Notes = append(v.Notes, fmt.Sprintf("%s got %s in %d ms, %s got %s in %d ms",
				observer, writes(r.LocalOpsApplied), r.LocalElapsedMS, r.Region, writes(r.RemoteOpsApplied), r.RemoteElapsedMS))
		}
		if len(r.Forked) > 0 {
			v.Notes = append(v.Notes, "left as they are, because the two contradict each other: origins "+strings.Join(r.Forked, ", "))
		}
		return v
	}}
}

func writes(n int) string {
	if n == 1 {
		return "1 write"
	}
	return words.Count(uint64(max(n, 0))) + " writes"
}
