package verbs

import (
	"context"
	"errors"
	"fmt"
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

// faultTimeout bounds a partition and a heal where --timeout is not given: members have two seconds.
const faultTimeout = 10 * time.Second

// partitioner cuts members off and can be asked what became of it. *client.Client implements it.
type partitioner interface {
	changer
	Partition(context.Context, api.PartitionRequest) (api.Partitioned, client.Source, error)
}

type partitionOptions struct {
	Client  func() (partitioner, error)
	Out     *output.Printer
	Confirm func(ctx context.Context, given, name string, summary ctl.Summary) error
	Tell    func(string)

	Isolate   []string
	Split     string
	OneWay    string // in, out; empty: both ways
	Delay     time.Duration
	For       time.Duration
	Confirmed string
	DryRun    bool
	Timeout   time.Duration
	Operation string
}

func newPartitionCmd(f *ctl.Factory, runF func(context.Context, *partitionOptions) error) *cobra.Command {
	o := &partitionOptions{
		Client:  func() (partitioner, error) { return f.Client(client.ReadTimeout) },
		Confirm: f.ConfirmName,
		Tell:    f.Tell,
	}
	cmd := &cobra.Command{
		Use:   "partition (--isolate NAME | --split A,B/C,D) --for DURATION",
		Short: "Cut members off from each other, for a time",
		Long: `Cut members off from each other, for a time.

The members themselves drop what goes between them: messages, snapshots, forwarded
requests. Clients still reach each of them, and status, faults and heal still see
all. Faults end by themselves when their time is up, and with the process that keeps
them; "tidalctl heal" ends them earlier. A member takes none unless its configuration
says drills.enabled: true.

  --isolate NAME    NAME is cut off from all others; several, from all but each other
  --split A,B/C,D   two sides or more; who is on none reaches all
  --one-way[=out]   only what NAME, or the first side, sends is dropped; =in: only what
                    it is sent
  --delay DURATION  messages are held up, not dropped

Exit 0: every member concerned holds its faults. 3: some do not; the message says
which. 6: refused, nothing changed. 23: it is not known; the message says until when
faults may remain.`,
		Example: `  tidalctl partition --isolate us-west --for 20s
  tidalctl partition --split us-east,us-west/ap-south,eu-west,eu-north --for 1m --dry-run
  tidalctl partition --isolate us-east --one-way=in --for 10s --confirm=us-east -o json`,
		GroupID:     ctl.GroupDrill,
		Annotations: ctl.ImpactFault.Annotation(),
		Args:        cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out, o.Timeout, o.Operation = f.Printer(), f.Timeout(faultTimeout), newFaultID()
			if err := o.check(); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runPartition(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.Isolate, "isolate", nil, "cut this `member` off from all others")
	flags.StringVar(&o.Split, "split", "", "cut `sides` off from each other: a,b/c,d")
	flags.StringVar(&o.OneWay, "one-way", "", "`direction`: out (default) | in")
	flags.Lookup("one-way").NoOptDefVal = api.DirectionOut
	flags.DurationVar(&o.Delay, "delay", 0, "hold messages up for this long instead of dropping them")
	flags.DurationVar(&o.For, "for", 0, "how long (required)")
	flags.StringVar(&o.Confirmed, "confirm", "", "do not ask: the `name` that was isolated, or the sides of the split")
	flags.BoolVar(&o.DryRun, "dry-run", false, "show the checks and change nothing")
	if err := errors.Join(
		cmd.RegisterFlagCompletionFunc("isolate", completeMembers(f)),
		cmd.RegisterFlagCompletionFunc("confirm", completeMembers(f)),
		cmd.RegisterFlagCompletionFunc("one-way", cobra.FixedCompletions([]cobra.Completion{api.DirectionOut, api.DirectionIn}, cobra.ShellCompDirectiveNoFileComp)),
	); err != nil {
		panic(err) // the flags were defined above
	}
	return cmd
}

// newFaultID makes an id that people can read to each other.
func newFaultID() string { return "f-" + client.NewOperationID()[:8] }

func (o *partitionOptions) check() error {
	bad := func(format string, args ...any) error {
		return &ctl.UsageError{Code: "bad_argument", Detail: fmt.Sprintf(format, args...), Try: []string{"tidalctl partition --isolate us-west --for 20s"}}
	}
	switch {
	case (len(o.Isolate) > 0) == (o.Split != ""):
		return bad("want one of --isolate NAME and --split A,B/C,D")
	case o.Split != "" && !strings.Contains(o.Split, "/"):
		return bad("--split %s: want sides with / between them, like us-east,us-west/ap-south", o.Split)
	case o.OneWay != "" && o.OneWay != api.DirectionIn && o.OneWay != api.DirectionOut:
		return bad("--one-way=%s: want out or in", o.OneWay)
	case o.For == 0:
		return bad("--for is missing: a fault always has an end")
	case o.For < api.MinFaultMS*time.Millisecond:
		return bad("--for %s: want at least %s", o.For, api.MinFaultMS*time.Millisecond)
	case o.Delay < 0 || o.Delay > api.MaxDelayMS*time.Millisecond || o.Delay > 0 && o.Delay < time.Millisecond:
		return bad("--delay %s: want 1ms to %s", o.Delay, api.MaxDelayMS*time.Millisecond)
	}
	return nil
}

// target is what is cut, as it was written: the name to confirm.
func (o *partitionOptions) target() string {
	if o.Split != "" {
		return o.Split
	}
	return strings.Join(o.Isolate, ",")
}

func (o *partitionOptions) request() api.PartitionRequest {
	req := api.PartitionRequest{Members: o.Isolate, Direction: o.OneWay, DurationMS: o.For.Milliseconds(), DelayMS: o.Delay.Milliseconds(), DryRun: o.DryRun, OperationID: o.Operation}
	if o.Split != "" {
		req.Members = nil
		for side := range strings.SplitSeq(o.Split, "/") {
			names := []string{}
			for name := range strings.SplitSeq(side, ",") {
				if name = strings.TrimSpace(name); name != "" {
					names = append(names, name)
				}
			}
			req.Split = append(req.Split, names)
		}
	}
	return req
}

func runPartition(ctx context.Context, o *partitionOptions) error {
	const notDone = "the members were not cut off"
	c, err := o.Client()
	if err != nil {
		return ctl.Failed(notDone, err)
	}
	if !o.DryRun {
		if err := o.Confirm(ctx, o.Confirmed, o.target(), o.summary(c)); err != nil {
			return ctl.Failed(notDone, err)
		}
	}
	return change[api.Partitioned]{
		NotDone: notDone, Doubt: "it is not known whether the members are cut off",
		Operation: o.Operation, Timeout: o.Timeout, Dry: o.DryRun, Tell: o.Tell,
		Do: func(ctx context.Context) (api.Partitioned, client.Source, error) {
			return c.Partition(ctx, o.request())
		},
		Unknown:  faultsRemain(o.Operation, o.For+o.Timeout),
		Document: partitionedDocument,
		Exit: func(done api.Partitioned) error {
			if !done.OK && !o.DryRun {
				return &ctl.ConditionError{Exit: ctl.ExitPartial}
			}
			return refusedUnless(done.OK)
		},
	}.run(ctx, c, o.Out)
}

// summary says who, what and how to undo it.
func (o *partitionOptions) summary(c partitioner) ctl.Summary {
	return func(ctx context.Context) []string {
		ctx, cancel := context.WithTimeout(ctx, o.Timeout)
		defer cancel()
		does := "dropped"
		if o.Delay > 0 {
			does = "held up for " + o.Delay.String()
		}
		way := map[string]string{"": "what goes between them and the others is", api.DirectionOut: "what they send the others is", api.DirectionIn: "what the others send them is"}[o.OneWay]
		what := fmt.Sprintf("%s: for %s, %s %s. To undo: tidalctl heal %s", o.target(), o.For, way, does, o.Operation)
		s, _, err := c.Status(ctx)
		if err != nil {
			return []string{what, notAnswered(err)}
		}
		lines := []string{standing(s), what}
		if s.Leader != nil && slices.Contains(o.Isolate, *s.Leader) && o.Delay == 0 {
			lines = append(lines, *s.Leader+" leads: another member will be elected, if a majority is left")
		}
		dry := o.request()
		dry.DryRun, dry.OperationID = true, ""
		if p, _, err := c.Partition(ctx, dry); err == nil { // or else the real one says why not
			for _, check := range p.Checks {
				lines = append(lines, check.Detail)
			}
		}
		return lines
	}
}

// partitionedAnswer is what a partition prints.
type partitionedAnswer struct {
	api.Partitioned
	asSeen
}

func partitionedDocument(p api.Partitioned, source client.Source, s *api.Status) output.Document {
	a := partitionedAnswer{p, seenBy(source, s)}
	return output.Document{Kind: "partition", Value: a, Names: []string{p.ID}, View: func(bool) output.View {
		v := headOf(s)
		switch {
		case p.DryRun && p.OK:
			v.Notes = append(v.Notes, "dry run: it would be done; nothing changed")
		case p.DryRun:
			v.Notes = append(v.Notes, "dry run: it would be refused or not be whole; nothing changed")
		default:
			v.Notes = append(v.Notes, fmt.Sprintf("fault %s is held by %s until %s; to end it: tidalctl heal %s", p.ID, words.Or(strings.Join(p.Acked, ", ")), clock(p.ExpiresAt), p.ID))
		}
		v.Notes = append(v.Notes, notTaken(p.Errors)...)
		if len(p.Checks) > 0 {
			v.Sections = []output.Section{checksTable(p.Checks)}
		}
		return v
	}}
}

// notTaken makes a line of each member that did not do its part.
func notTaken(errs []api.MemberError) []string {
	var lines []string
	for _, e := range errs {
		lines = append(lines, fmt.Sprintf("not by %s: %s: %s", e.Member, e.Code, e.Detail))
	}
	return lines
}

// clock is a time and how far off it is.
func clock(t *time.Time) string {
	if t == nil {
		return words.Unknown
	}
	return fmt.Sprintf("%s (%s)", t.UTC().Format("15:04:05Z"), words.Age(max(time.Until(*t), 0)))
}
