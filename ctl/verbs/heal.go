package verbs

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/words"
)

// longestFault is how long a fault can last where no member says: the greatest drills.max_duration that a
// configuration may have.
const longestFault = 24 * time.Hour

// healer ends faults and can be asked what became of it. *client.Client implements it.
type healer interface {
	changer
	Heal(context.Context, api.HealRequest) (api.Healed, client.Source, error)
}

type healOptions struct {
	Client func() (healer, error)
	Out    *output.Printer
	Tell   func(string)

	ID        string // empty: all
	DryRun    bool
	Timeout   time.Duration
	Operation string
}

func newHealCmd(f *ctl.Factory, runF func(context.Context, *healOptions) error) *cobra.Command {
	o := &healOptions{
		Client: func() (healer, error) { return f.Client(client.ReadTimeout) },
		Tell:   f.Tell,
	}
	var all bool
	cmd := &cobra.Command{
		Use:   "heal (ID | --all)",
		Short: "End faults before their time",
		Long: `End faults before their time: those of one partition, by its id, or all.

Every member is asked directly, whoever leads, and across the faults themselves. It is
never asked whether you are sure.

Exit 0: no such fault is left. 23: some member did not answer, and may keep its faults;
the message says until when they end by themselves.`,
		Example:     "  tidalctl heal --all\n  tidalctl heal f-5f0c2a9e",
		GroupID:     ctl.GroupDrill,
		Annotations: ctl.ImpactChange.Annotation(),
		Args:        cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) == 1) {
				return &ctl.UsageError{Code: "bad_argument", Detail: "want the id of a partition, or --all", Try: []string{"tidalctl heal --all", "tidalctl faults list"}}
			}
			if o.ID = ""; len(args) == 1 {
				o.ID = args[0]
			}
			o.Out, o.Timeout, o.Operation = f.Printer(), f.Timeout(faultTimeout), client.NewOperationID()
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runHeal(cmd.Context(), o)
		},
		ValidArgsFunction: completeFaults(f),
	}
	cmd.Flags().BoolVar(&all, "all", false, "end every fault on every member")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "show what would be ended and change nothing")
	return cmd
}

func runHeal(ctx context.Context, o *healOptions) error {
	const notDone = "it is not certain that the faults are over"
	c, err := o.Client()
	if err != nil {
		return ctl.Failed(notDone, err)
	}
	return change[api.Healed]{
		NotDone: notDone, Doubt: notDone, Operation: o.Operation, Timeout: o.Timeout, Dry: o.DryRun, Tell: o.Tell,
		Do: func(ctx context.Context) (api.Healed, client.Source, error) {
			return c.Heal(ctx, api.HealRequest{ID: o.ID, DryRun: o.DryRun, OperationID: o.Operation})
		},
		Unknown: faultsRemain(o.Operation, longestFault),
		Document: func(done api.Healed, source client.Source, s *api.Status) output.Document {
			return healedDocument(o.ID, done, source, s)
		},
		Exit: func(done api.Healed) error {
			if done.FaultsUntil == nil {
				return nil
			}
			return ctl.Failed(notDone, &ctl.FaultsRemainError{Until: *done.FaultsUntil, Why: notTaken(done.Errors)})
		},
	}.run(ctx, c, o.Out)
}

// healedAnswer is what a heal prints.
type healedAnswer struct {
	api.Healed
	asSeen
}

func healedDocument(id string, h api.Healed, source client.Source, s *api.Status) output.Document {
	a := healedAnswer{h, seenBy(source, s)}
	return output.Document{Kind: "heal", Value: a, Names: faultIDs(h.Healed), View: func(bool) output.View {
		v := headOf(s)
		what := "no fault"
		if id != "" {
			what = "fault " + id
		}
		switch {
		case h.DryRun && len(h.Healed) > 0:
			v.Notes = append(v.Notes, "dry run: these would be ended; nothing changed")
		case len(h.Healed) == 0 && id == "":
			v.Notes = append(v.Notes, what+" is in force on "+words.Or(strings.Join(h.Acked, ", ")))
		case len(h.Healed) == 0:
			v.Notes = append(v.Notes, what+" is not in force on "+words.Or(strings.Join(h.Acked, ", ")))
		default:
			v.Notes = append(v.Notes, "ended, says "+strings.Join(h.Acked, ", "))
		}
		for _, e := range h.Errors {
			line := e.Member + " did not answer: " + e.Detail
			if e.Gone {
				line += ": no process is there to keep a fault"
			}
			v.Notes = append(v.Notes, line)
		}
		if len(h.Healed) > 0 {
			v.Sections = []output.Section{faultsTable(h.Healed)}
		}
		return v
	}}
}

// faultReader reads the faults in force. *client.Client implements it.
type faultReader interface {
	statusReader
	Faults(context.Context) (api.Faults, client.Source, error)
}

type faultsOptions struct {
	Client func() (faultReader, error)
	Out    *output.Printer
}

func newFaultsCmd(f *ctl.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:         "faults",
		Short:       "Show the faults that members keep up for drills",
		Example:     "  tidalctl faults list",
		GroupID:     ctl.GroupDrill,
		Annotations: ctl.ImpactRead.Annotation(),
	}
	cmd.AddCommand(newFaultsListCmd(f, nil))
	return cmd
}

func newFaultsListCmd(f *ctl.Factory, runF func(context.Context, *faultsOptions) error) *cobra.Command {
	o := &faultsOptions{Client: func() (faultReader, error) { return f.Client(f.Timeout(0)) }}
	return &cobra.Command{
		Use:   "list",
		Short: "List the faults in force",
		Long: `List the faults in force: who keeps them up, against whom, and for how much longer.
Every member is asked; those that do not answer are named, for they may keep some.`,
		Example:     "  tidalctl faults list\n  tidalctl faults list -o json",
		Annotations: ctl.ImpactRead.Annotation(),
		Args:        cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = f.Printer()
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runFaultsList(cmd.Context(), o)
		},
	}
}

func runFaultsList(ctx context.Context, o *faultsOptions) error {
	return reading[faultReader, api.Faults]{
		NotRead: "the faults were not read", Client: o.Client, Document: faultsDocument,
		Read: func(ctx context.Context, c faultReader) (api.Faults, client.Source, error) { return c.Faults(ctx) },
	}.run(ctx, o.Out)
}

// faultsAnswer is what faults list prints.
type faultsAnswer struct {
	api.Faults
	asSeen
}

func faultsDocument(l api.Faults, source client.Source, s *api.Status) output.Document {
	a := faultsAnswer{l, seenBy(source, s)}
	return output.Document{Kind: "faults", Value: a, Names: faultIDs(l.Faults), View: func(bool) output.View {
		v := headOf(s)
		if len(l.Faults) == 0 {
			v.Notes = append(v.Notes, "no fault is in force on "+words.Or(strings.Join(l.Acked, ", ")))
		} else {
			v.Notes = append(v.Notes, "to end them: tidalctl heal --all")
			v.Sections = []output.Section{faultsTable(l.Faults)}
		}
		for _, e := range l.Errors {
			v.Notes = append(v.Notes, e.Member+" did not answer, and may keep some: "+e.Detail)
		}
		return v
	}}
}

// faultIDs names each partition that faults belong to once: heal takes it.
func faultIDs(faults []api.Fault) []string {
	var ids []string
	for _, f := range faults {
		if !slices.Contains(ids, f.ID) {
			ids = append(ids, f.ID)
		}
	}
	return ids
}

func faultsTable(faults []api.Fault) output.Section {
	t := output.Section{Columns: []output.Column{{Title: "fault"}, {Title: "member"}, {Title: "does"}, {Title: "left", Right: true}, {Title: "until"}}}
	for _, f := range faults {
		t.Rows = append(t.Rows, []string{f.ID, words.Or(f.Member), faultDoes(f), words.Age(time.Duration(f.LeftMS) * time.Millisecond), f.ExpiresAt.UTC().Format("15:04:05Z")})
	}
	return t
}

// faultDoes says what a fault does: "drops both ways us-west", "drops to us-west".
func faultDoes(f api.Fault) string {
	does := "drops"
	if f.Effect == api.FaultDelay {
		does = "delays by " + (time.Duration(f.DelayMS) * time.Millisecond).String()
	}
	way := map[string]string{api.DirectionIn: "from", api.DirectionOut: "to"}[f.Direction]
	if way == "" {
		way = "to and from"
	}
	return does + " " + way + " " + words.Or(f.Peer)
}

// completeFaults offers the ids of the faults in force.
func completeFaults(f *ctl.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const directive = cobra.ShellCompDirectiveNoFileComp
		c, err := f.Client(completionBudget)
		if err != nil || len(args) > 0 {
			return nil, directive
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionBudget)
		defer cancel()
		list, _, err := c.Faults(ctx)
		if err != nil {
			return nil, directive
		}
		var ids []cobra.Completion
		seen := map[string]bool{}
		for _, x := range list.Faults {
			if !seen[x.ID] {
				seen[x.ID] = true
				ids = append(ids, cobra.CompletionWithDesc(x.ID, "on "+x.Member+", "+words.Age(time.Duration(x.LeftMS)*time.Millisecond)+" left"))
			}
		}
		return ids, directive
	}
}
