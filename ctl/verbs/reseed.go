package verbs

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/words"
)

// reseeder has a member's data replaced and can be asked what became of it. *client.Client implements it.
type reseeder interface {
	changer
	Reseed(context.Context, api.ReseedRequest) (api.Reseeded, client.Source, error)
	BeginReseed(context.Context, api.ReseedRequest) (api.Operation, client.Source, error)
}

type reseedOptions struct {
	Client  func() (reseeder, error)
	Out     *output.Printer
	Confirm func(ctx context.Context, given, name string, summary ctl.Summary) error
	Tell    func(line string) // progress

	Name      string
	From      string
	Confirmed string
	DryRun    bool
	NoWait    bool
	Stall     time.Duration
	Timeout   time.Duration // of all of it; 0: none
	Operation string
}

// newReseedCmd makes `tidalctl reseed NAME`.
func newReseedCmd(f *ctl.Factory, runF func(context.Context, *reseedOptions) error) *cobra.Command {
	o := &reseedOptions{
		Client:  func() (reseeder, error) { return f.Client(client.ReadTimeout) },
		Confirm: f.ConfirmName,
		Tell:    f.Tell,
	}
	cmd := &cobra.Command{
		Use:   "reseed NAME",
		Short: "Replace a member's data by that of another member",
		Long: `Replace a member's data by that of another member.

The member keeps its identity, its votes and, where it is sound, its log. It fetches a
snapshot while it serves, and is closed for the moment in which its state is replaced;
a leader hands over first. Nothing that was acknowledged is lost. A member whose directory
is gone is another matter: it comes back with an empty one (tidalctl members replace). What is asked for is
latched on the member's disk: it is carried out also after a restart, and goes on where
a transfer broke.

There is no time limit in all, unless --timeout sets one. If nothing moves for
--stall-timeout the command gives up with exit 124; the reseed stays latched and is tried on.`,
		Example: `  tidalctl reseed us-west
  tidalctl reseed us-west --from ap-south --confirm=us-west
  tidalctl reseed us-west --dry-run`,
		GroupID:           ctl.GroupChange,
		Annotations:       ctl.ImpactDestroy.Annotation(),
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeMembers(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name, o.Out, o.Timeout, o.Operation = args[0], f.Printer(), f.Timeout(0), client.NewOperationID()
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runReseed(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.From, "from", "", "the `member` to take the data from (default: the leader)")
	cmd.Flags().StringVar(&o.Confirmed, "confirm", "", "the member's `name`, instead of typing it")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "show the checks and change nothing")
	cmd.Flags().BoolVar(&o.NoWait, "no-wait", false, "print the operation and return")
	cmd.Flags().DurationVar(&o.Stall, "stall-timeout", 5*time.Minute, "give up watching after this long without progress")
	return cmd
}

func runReseed(ctx context.Context, o *reseedOptions) error {
	notDone := o.Name + " was not reseeded"
	c, err := o.Client()
	if err != nil {
		return ctl.Failed(notDone, err)
	}
	req := api.ReseedRequest{Region: o.Name, From: o.From, DryRun: o.DryRun, OperationID: o.Operation, StallTimeoutMS: o.Stall.Milliseconds()}
	if !o.DryRun {
		if err := o.Confirm(ctx, o.Confirmed, o.Name, o.summary(c)); err != nil {
			return ctl.Failed(notDone, err)
		}
	}
	return change[api.Reseeded]{
		NotDone: notDone, Doubt: "it is not known whether " + o.Name + " was reseeded",
		Operation: o.Operation, Timeout: promoteTimeout, Dry: o.DryRun, NoWait: o.NoWait, Tell: o.Tell,
		Do:       func(ctx context.Context) (api.Reseeded, client.Source, error) { return c.Reseed(ctx, req) },
		Begin:    func(ctx context.Context) (api.Operation, client.Source, error) { return c.BeginReseed(ctx, req) },
		Watch:    func(ctx context.Context, op api.Operation) (api.Reseeded, error) { return o.watch(ctx, c, op) },
		Document: reseedDocument,
		Exit:     func(done api.Reseeded) error { return refusedUnless(done.OK) },
	}.run(ctx, c, o.Out)
}

// summary says what is about to happen.
func (o *reseedOptions) summary(c reseeder) ctl.Summary {
	return func(ctx context.Context) []string {
		s, _, err := c.Status(ctx)
		if err != nil {
			return []string{notAnswered(err)}
		}
		from := "the leader"
		if o.From != "" {
			from = o.From
		}
		return []string{standing(s), fmt.Sprintf("The data of %s is replaced by that of %s. Its identity and its votes stay.", o.Name, from)}
	}
}

// watch follows the operation to its end and tells its progress, also while nobody answers.
func (o *reseedOptions) watch(ctx context.Context, c reseeder, op api.Operation) (done api.Reseeded, err error) {
	deadline, cancel := ctx, context.CancelFunc(func() {})
	if o.Timeout > 0 {
		deadline, cancel = context.WithTimeout(ctx, o.Timeout)
	}
	defer cancel()
	told, heard := "", time.Now()
	tell := func(line string) {
		if line != told {
			told = line
			o.Tell(line)
		}
	}
	op, source, err := awaitOperation(deadline, c, op.Op, func(op api.Operation, err error) bool {
		if err == nil {
			heard = time.Now()
			tell(progressLine(op.Progress))
			return true
		}
		tell("nobody answers who may know how far it is; the reseed is latched on the disk of " + o.Name)
		return time.Since(heard) < o.Stall
	})
	switch {
	case ctx.Err() != nil:
		o.Tell("stopped watching; the reseed goes on: tidalctl ops wait " + o.Operation)
		return done, context.Cause(ctx)
	case deadline.Err() != nil:
		return done, &ctl.TimeoutError{After: o.Timeout, Last: told}
	case err != nil:
		return done, &ctl.TimeoutError{After: o.Stall, Last: "nobody answered who may know how far it is: " + err.Error()}
	case op.Problem != nil:
		return done, &client.ProblemError{Endpoint: source.Endpoint, Member: op.Member, Problem: op.Problem}
	}
	if err := json.Unmarshal(op.Result, &done); err != nil {
		return done, fmt.Errorf("%s says %q of operation %s: %w", op.Member, op.State, op.Op, err)
	}
	return done, nil
}

// progressLine says how far a reseed is.
func progressLine(p *api.Progress) string {
	if p == nil {
		return "asked for"
	}
	line := fmt.Sprintf("phase %d of %d: %s", p.Step, p.Of, phaseWords(p.Phase))
	if p.Phase == "fetch" && p.Total > 0 {
		line += fmt.Sprintf(", %s of %s", words.Bytes(p.Bytes), words.Bytes(p.Total))
		if p.Rate > 0 {
			line += fmt.Sprintf(", %s/s", words.Bytes(p.Rate))
		}
		if p.ETAMS != nil {
			line += fmt.Sprintf(", %s left", (time.Duration(*p.ETAMS) * time.Millisecond).Round(time.Second))
		}
	}
	if p.Detail != "" {
		line += " (" + p.Detail + ")"
	}
	return line
}

func phaseWords(phase string) string {
	switch phase {
	case "find_source":
		return "find a source"
	case "permit":
		return "ask the leader for a permit"
	}
	return phase
}

// reseedAnswer is what a reseed prints.
type reseedAnswer struct {
	api.Reseeded
	asSeen
}

func reseedDocument(r api.Reseeded, source client.Source, s *api.Status) output.Document {
	a := reseedAnswer{r, seenBy(source, s)}
	return output.Document{Kind: "reseed", Value: a, Names: []string{r.Region}, View: func(bool) output.View {
		v := headOf(s)
		switch {
		case r.DryRun && r.OK:
			v.Notes = append(v.Notes, "dry run: it would be done; nothing changed")
		case r.DryRun:
			v.Notes = append(v.Notes, "dry run: it would be refused; nothing changed")
		default:
			v.Notes = append(v.Notes, fmt.Sprintf("%s has new data up to index %s: %s in %s", r.Region, words.Count(r.Index), words.Bytes(r.Bytes),
				(time.Duration(r.TookMS)*time.Millisecond).Round(100*time.Millisecond)))
		}
		if len(r.Checks) > 0 {
			v.Sections = []output.Section{checksTable(r.Checks)}
		}
		return v
	}}
}
