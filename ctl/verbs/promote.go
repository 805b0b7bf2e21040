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

const (
	// promoteTimeout bounds a promote where --timeout is not given; answerReserve of it is left for the
	// members to confirm and for the answer to travel.
	promoteTimeout = time.Minute
	answerReserve  = 3 * time.Second
)

// promoter moves leadership and can be asked what became of it. *client.Client implements it.
type promoter interface {
	changer
	Promote(context.Context, api.PromoteRequest) (api.Promoted, client.Source, error)
	BeginPromote(context.Context, api.PromoteRequest) (api.Operation, client.Source, error)
}

type promoteOptions struct {
	Client  func() (promoter, error)
	Out     *output.Printer
	Confirm func(ctx context.Context, yes bool, question string, summary ctl.Summary) error
	Tell    func(string) // progress

	Name      string
	Yes       bool
	DryRun    bool
	NoWait    bool
	Timeout   time.Duration
	Operation string
}

// newPromoteCmd makes `tidalctl promote NAME`.
func newPromoteCmd(f *ctl.Factory, runF func(context.Context, *promoteOptions) error) *cobra.Command {
	cmd := newTransferCmd(f, runF)
	cmd.Use = "promote NAME"
	cmd.GroupID = ctl.GroupChange
	cmd.Example = strings.ReplaceAll(cmd.Example, "leader transfer", "promote")
	return cmd
}

// newLeaderCmd makes `tidalctl leader transfer NAME`, which is the same.
func newLeaderCmd(f *ctl.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:         "leader",
		Short:       "Move leadership",
		Example:     "  tidalctl leader transfer us-west",
		GroupID:     ctl.GroupChange,
		Annotations: ctl.ImpactRead.Annotation(),
	}
	cmd.AddCommand(newTransferCmd(f, nil))
	return cmd
}

func newTransferCmd(f *ctl.Factory, runF func(context.Context, *promoteOptions) error) *cobra.Command {
	o := &promoteOptions{
		Client:  func() (promoter, error) { return f.Client(client.ReadTimeout) },
		Confirm: f.Confirm,
		Tell:    f.Tell,
	}
	cmd := &cobra.Command{
		Use:   "transfer NAME",
		Short: "Make a member the leader",
		Long: `Make a member the leader.

The leader checks that the member votes, answers, is sound and is not far behind, hands
over, and the command returns when the member leads. Writes wait meanwhile, for an
election timeout at most. Where nobody leads, the member stands for leader. A member
that leads already is left alone.

Exit 0: it leads. 6: a check said no, nothing changed. 1: it did not take over; the
message says who leads. 9: nobody could say.
A learner becomes a voter with "tidalctl members promote".`,
		Example: `  tidalctl leader transfer us-west
  tidalctl leader transfer us-west --dry-run
  tidalctl leader transfer us-west --yes -o json`,
		Annotations:       ctl.ImpactChange.Annotation(),
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNextLeader(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name, o.Out, o.Timeout, o.Operation = args[0], f.Printer(), f.Timeout(promoteTimeout), client.NewOperationID()
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runPromote(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.Yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "show the checks and change nothing")
	cmd.Flags().BoolVar(&o.NoWait, "no-wait", false, "print the operation and return")
	return cmd
}

func runPromote(ctx context.Context, o *promoteOptions) error {
	notDone := o.Name + " was not made leader"
	c, err := o.Client()
	if err != nil {
		return ctl.Failed(notDone, err)
	}
	req := api.PromoteRequest{Region: o.Name, OperationID: o.Operation, DryRun: o.DryRun, TimeoutMS: promoteMillis(o.Timeout)}
	if !o.DryRun {
		if err := o.Confirm(ctx, o.Yes, "Make "+o.Name+" the leader?", o.summary(c)); err != nil {
			return ctl.Failed(notDone, err)
		}
	}
	return change[api.Promoted]{
		NotDone: notDone, Doubt: "it is not known whether " + o.Name + " leads",
		Operation: o.Operation, Timeout: o.Timeout, Dry: o.DryRun, NoWait: o.NoWait, Tell: o.Tell,
		Do:       func(ctx context.Context) (api.Promoted, client.Source, error) { return c.Promote(ctx, req) },
		Begin:    func(ctx context.Context) (api.Operation, client.Source, error) { return c.BeginPromote(ctx, req) },
		Seen:     func(ctx context.Context) (api.Promoted, client.Source, bool) { return o.seen(ctx, c) },
		Document: promotedDocument,
		Exit:     func(done api.Promoted) error { return refusedUnless(done.OK) },
	}.run(ctx, c, o.Out)
}

// seen reports whether the member leads, which is what a promote is for.
func (o *promoteOptions) seen(ctx context.Context, c promoter) (api.Promoted, client.Source, bool) {
	s, source, err := c.Status(ctx)
	done := api.Promoted{OK: true, Leader: s.Leader, Term: s.Term, Op: o.Operation, Checks: []api.Check{}, Acked: []string{}, Failed: []string{}}
	return done, source, err == nil && s.Consistent && s.Leader != nil && *s.Leader == o.Name
}

// promoteMillis is how long the members may take, so that the answer comes within timeout.
func promoteMillis(timeout time.Duration) int64 {
	return min(max((timeout-answerReserve).Milliseconds(), api.MinPromoteTimeoutMS), api.MaxPromoteTimeoutMS)
}

// summary says who, what and how to undo it.
func (o *promoteOptions) summary(c promoter) ctl.Summary {
	return func(ctx context.Context) []string {
		s, _, err := c.Status(ctx)
		if err != nil {
			return []string{notAnswered(err)}
		}
		lines := []string{standing(s)}
		if s.Leader != nil && *s.Leader != o.Name {
			lines = append(lines, fmt.Sprintf("Leadership moves from %s to %s. Writes wait for less than an election timeout. To undo: tidalctl promote %[1]s", *s.Leader, o.Name))
		}
		return lines
	}
}

// promotedAnswer is what a promote prints: the members' answer, and who gave it.
type promotedAnswer struct {
	api.Promoted
	asSeen
}

func promotedDocument(p api.Promoted, source client.Source, s *api.Status) output.Document {
	a := promotedAnswer{p, seenBy(source, s)}
	return output.Document{Kind: "promote", Value: a, Names: []string{nameOr(p.Leader)}, View: func(bool) output.View {
		v := healthView(a.Health, a.Quorum, p.Leader, p.Term)
		switch {
		case p.DryRun && p.OK:
			v.Notes = append(v.Notes, "dry run: it would be done; nothing changed")
		case p.DryRun:
			v.Notes = append(v.Notes, "dry run: it would be refused; nothing changed")
		case p.Transfer == nil:
			v.Notes = append(v.Notes, nameOr(p.Leader)+" leads; nothing had to move")
		default:
			v.Notes = append(v.Notes, promotedNote(p))
		}
		if len(p.Failed) > 0 {
			v.Notes = append(v.Notes, "not confirmed by "+strings.Join(p.Failed, ", "))
		}
		if len(p.Checks) > 0 {
			v.Sections = []output.Section{checksTable(p.Checks)}
		}
		return v
	}}
}

func promotedNote(p api.Promoted) string {
	note := fmt.Sprintf("%s leads term %s after %d ms", nameOr(p.Leader), words.Count(p.Term), p.Transfer.TookMS)
	if pause := p.Transfer.WritePauseMS; pause != nil {
		note += fmt.Sprintf(", writes waited for %d ms", *pause)
	}
	if len(p.Acked) > 0 {
		note += ", confirmed by " + strings.Join(p.Acked, ", ")
	}
	return note
}

func checksTable(checks []api.Check) output.Section {
	t := output.Section{Columns: []output.Column{{Title: "check"}, {Title: "ok"}, {Title: "measured", Right: true}, {Title: "limit", Right: true}, {Title: "detail"}}}
	number := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return words.Count(uint64(max(*v, 0)))
	}
	for _, c := range checks {
		ok := "yes"
		if !c.OK {
			ok = "NO"
		}
		t.Rows = append(t.Rows, []string{c.Code, ok, number(c.Measured), number(c.Threshold), c.Detail})
	}
	return t
}

func nameOr(name *string) string {
	if name == nil {
		return words.Unknown
	}
	return words.Or(*name)
}
