package verbs

import (
	"context"
	"encoding/json"
	"errors"
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
	statusReader
	operationReader
	Promote(context.Context, api.PromoteRequest) (api.Promoted, client.Source, error)
	BeginPromote(context.Context, api.PromoteRequest) (api.Operation, client.Source, error)
}

type promoteOptions struct {
	Client  func() (promoter, error)
	Out     *output.Printer
	Confirm func(ctx context.Context, yes bool, question string, summary ...string) error
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
		Tell:    func(line string) { fmt.Fprintln(f.IO.Err, line) },
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
	req := api.PromoteRequest{Region: o.Name, OperationID: o.Operation, TimeoutMS: promoteMillis(o.Timeout)}
	if o.DryRun {
		return o.dryRun(ctx, c, req, notDone)
	}
	if err := o.Confirm(ctx, o.Yes, "Make "+o.Name+" the leader?", o.summary(ctx, c)...); err != nil {
		return ctl.Failed(notDone, err)
	}
	deadline, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if o.NoWait {
		op, _, err := c.BeginPromote(deadline, req)
		if err != nil {
			return ctl.Failed(notDone, err)
		}
		return o.Out.Print(operationDocument(op))
	}
	done, source, err := c.Promote(deadline, req)
	if err != nil {
		lost, ok := errors.AsType[*client.LostError](err)
		switch {
		case !ok:
			return ctl.Failed(notDone, err)
		case ctx.Err() != nil: // the work goes on
			o.Tell("stopped watching; operation " + o.Operation + " goes on: tidalctl ops show " + o.Operation)
			return ctl.Failed("it is not known whether "+o.Name+" leads", context.Cause(ctx))
		}
		if done, source, err = o.lookUp(ctx, c, lost); err != nil {
			return ctl.Failed(notDone, err)
		}
	}
	return o.Out.Print(promotedDocument(done, source, health(ctx, c)))
}

// promoteMillis is how long the members may take, so that the answer comes within timeout.
func promoteMillis(timeout time.Duration) int64 {
	return min(max((timeout-answerReserve).Milliseconds(), api.MinPromoteTimeoutMS), api.MaxPromoteTimeoutMS)
}

// dryRun shows the checks. A check that fails is exit 6.
func (o *promoteOptions) dryRun(ctx context.Context, c promoter, req api.PromoteRequest, notDone string) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	req.DryRun = true
	done, source, err := c.Promote(ctx, req)
	if err != nil {
		return ctl.Failed(notDone, err)
	}
	if err := o.Out.Print(promotedDocument(done, source, health(ctx, c))); err != nil {
		return err
	}
	if !done.OK {
		return &ctl.ConditionError{Exit: ctl.ExitRefused}
	}
	return nil
}

// summary says who, what and how to undo it.
func (o *promoteOptions) summary(ctx context.Context, c promoter) []string {
	if o.Yes {
		return nil
	}
	s, _, err := c.Status(ctx)
	if err != nil {
		return []string{"The cluster did not answer: " + err.Error()}
	}
	lines := []string{s.Health.Level + ", " + headline(s.Quorum, s.Leader, s.Term)}
	if s.Leader != nil && *s.Leader != o.Name {
		lines = append(lines, fmt.Sprintf("Leadership moves from %s to %s. Writes wait for less than an election timeout. To undo: tidalctl promote %[1]s", *s.Leader, o.Name))
	}
	return lines
}

// lookUp finds out what became of a promote whose answer was lost.
func (o *promoteOptions) lookUp(ctx context.Context, c promoter, lost *client.LostError) (api.Promoted, client.Source, error) {
	o.Tell("the answer was lost, asking every member for operation " + o.Operation)
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	unknown := func(err error) (api.Promoted, client.Source, error) {
		return api.Promoted{}, client.Source{}, &ctl.UnknownError{Operation: o.Operation, Err: lost, Asked: err}
	}
	op, source, err := awaitOperation(ctx, c, o.Operation)
	if err != nil {
		// Whoever ran it may be gone with its memory. What it was for can be seen.
		s, source, unseen := c.Status(ctx)
		if unseen == nil && s.Consistent && s.Leader != nil && *s.Leader == o.Name {
			return api.Promoted{OK: true, Leader: s.Leader, Term: s.Term, Op: o.Operation, Checks: []api.Check{}, Acked: []string{}, Failed: []string{}}, source, nil
		}
		return unknown(err)
	}
	var done api.Promoted
	switch {
	case op.Problem != nil:
		return done, source, &client.ProblemError{Endpoint: source.Endpoint, Member: op.Member, Problem: op.Problem}
	case json.Unmarshal(op.Result, &done) != nil:
		return unknown(fmt.Errorf("%s says %q of it", op.Member, op.State))
	}
	return done, source, nil
}

// health reads the status for the first line; nil where it cannot.
func health(ctx context.Context, c statusReader) *api.Status {
	s, _, err := c.Status(ctx)
	if err != nil {
		return nil
	}
	return &s
}

// promotedAnswer is what a promote prints: the members' answer, and who gave it.
type promotedAnswer struct {
	api.Promoted
	Observer string      `json:"observer"`
	Health   *api.Health `json:"health"` // null: the status was not read
	Quorum   *api.Quorum `json:"quorum"`
}

func promotedDocument(p api.Promoted, source client.Source, s *api.Status) output.Document {
	a := promotedAnswer{Promoted: p, Observer: source.Member}
	if s != nil {
		a.Health, a.Quorum = &s.Health, &s.Quorum
	}
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
