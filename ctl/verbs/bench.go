package verbs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/bench"
	"github.com/tidaldb/tidal/ctl/iostreams"
	"github.com/tidaldb/tidal/ctl/output"
)

type benchOptions struct {
	Target func() (endpoints []string, token string, err error)
	IO     *iostreams.Streams
	Out    *output.Printer

	Load bench.Options
}

func newBenchCmd(f *ctl.Factory, runF func(context.Context, *benchOptions) error) *cobra.Command {
	o := &benchOptions{Target: f.Target, IO: f.IO}
	op := string(bench.OpSignals)
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what the cluster takes, in a closed loop",
		Long: `Measure what the cluster takes: clients that each send their next request when the last one was
answered, spread over the endpoints in turn. A row an endpoint, and their sum.

It writes items named bench-0, bench-1, … and signals for them, and leaves them there.

  --op items    one item a request
  --op signals  one signal a request
  --op ingest   one stream a client, with up to 256 signals on their way
  --op feed     GET /feed?limit=20

Exit 0: requests succeeded, errors are counted in the table. 1: none did. 7: nobody was reached.`,
		Example: `  tidalctl bench --clients 64 --for 10s
  tidalctl --endpoint http://127.0.0.1:9501 bench --op ingest --clients 8 --keys zipf -o json`,
		GroupID:     ctl.GroupClient,
		Annotations: ctl.ImpactChange.Annotation(),
		Args:        cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out, o.Load.Op = f.Printer(), bench.Op(op)
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runBench(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&op, "op", op, "what each client does: items|signals|ingest|feed")
	flags.IntVar(&o.Load.Clients, "clients", 16, "how many at once, 1 to 10000")
	flags.IntVar(&o.Load.Size, "size", 0, "`bytes` of filling a record; a signal takes at most 256")
	flags.DurationVar(&o.Load.For, "for", 5*time.Second, "how long")
	flags.StringVar(&o.Load.Ack, "ack", "quorum", "what a write waits for: quorum|leader")
	flags.StringVar(&o.Load.Keys, "keys", "uniform", "which items: uniform|zipf")
	flags.IntVar(&o.Load.Space, "items", 100_000, "how many different items")
	for flag, values := range map[string][]cobra.Completion{"op": bench.Ops(), "ack": {"quorum", "leader"}, "keys": {"uniform", "zipf"}} {
		if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err) // the flag was defined above
		}
	}
	return cmd
}

func runBench(ctx context.Context, o *benchOptions) error {
	var err error
	if o.Load.Endpoints, o.Load.Token, err = o.Target(); err != nil {
		return ctl.Failed("nothing was measured", err)
	}
	if err := o.Load.Validate(); err != nil {
		return &ctl.UsageError{Code: "bad_argument", Detail: err.Error(), Try: []string{"tidalctl bench --clients 64 --for 10s"}}
	}
	if o.IO.ErrTTY {
		o.Load.Progress = func(sent uint64, of time.Duration) {
			fmt.Fprintf(o.IO.Err, "\r\033[K%s of %s: %d done, %.0f/s", of.Round(time.Second), o.Load.For, sent, float64(sent)/of.Seconds())
		}
		defer fmt.Fprint(o.IO.Err, "\r\033[K")
	}
	report, err := bench.Run(ctx, o.Load)
	if err != nil {
		return ctl.Failed("nothing was measured", err)
	}
	if ctx.Err() != nil {
		return ctl.Failed("the measurement was broken off", context.Cause(ctx))
	}
	if err := o.Out.Print(benchDocument(report)); err != nil {
		return err
	}
	return measured(report)
}

// measured is the exit of a measurement that was printed: where no request succeeded there was none.
func measured(r bench.Report) error {
	sum := r.Rows[len(r.Rows)-1]
	switch {
	case sum.Operations > 0 || sum.Errors == 0:
		return nil
	case sum.ByError[bench.Unreached] == sum.Errors:
		return &ctl.ConditionError{Exit: ctl.ExitUnreachable}
	}
	return &ctl.ConditionError{Exit: ctl.ExitFailed}
}

func benchDocument(r bench.Report) output.Document {
	var names []string
	for _, row := range r.Rows {
		names = append(names, row.Endpoint)
	}
	return output.Document{Kind: "bench", Value: r, Names: names, View: func(bool) output.View {
		table := output.Section{Columns: []output.Column{
			{Title: "ENDPOINT"}, {Title: "CLIENTS", Right: true}, {Title: "PER SECOND", Right: true},
			{Title: "P50", Right: true}, {Title: "P99", Right: true}, {Title: "MAX", Right: true}, {Title: "ERRORS", Right: true},
		}}
		var notes []string
		for _, row := range r.Rows {
			table.Rows = append(table.Rows, []string{
				row.Endpoint, strconv.Itoa(row.Clients), fmt.Sprintf("%.0f", row.PerSecond),
				ms(row.P50MS), ms(row.P99MS), ms(row.MaxMS), strconv.FormatUint(row.Errors, 10),
			})
		}
		last := r.Rows[len(r.Rows)-1]
		for _, kind := range slices.Sorted(maps.Keys(last.ByError)) {
			notes = append(notes, fmt.Sprintf("%d errors: %s", last.ByError[kind], kind))
		}
		return output.View{
			Headline: fmt.Sprintf("%s for %s, %s keys, ack %s", r.Op, r.Took.Round(10*time.Millisecond), r.Keys, r.Ack),
			Notes:    notes, Sections: []output.Section{table},
		}
	}}
}

func ms(v float64) string { return fmt.Sprintf("%.2fms", v) }
