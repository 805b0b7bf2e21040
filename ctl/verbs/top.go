package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/ctl/iostreams"
	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/tui"
	"github.com/tidaldb/tidal/tui/theme"
	"github.com/tidaldb/tidal/tui/view"
	"github.com/tidaldb/tidal/tui/viewmodel"
)

// The bounds of --interval. Each look asks every member.
const (
	minInterval = 250 * time.Millisecond
	maxInterval = time.Minute
)

type topOptions struct {
	Client func() (topClient, error)
	IO     *iostreams.Streams
	Out    *output.Printer
	Env    func(string) string

	Interval time.Duration
	Once     bool
	Record   string // file; empty: none
	Replay   string // file; empty: none
	Speed    float64
}

// topClient reads the status, and names whom it asks. *client.Client implements it.
type topClient interface {
	statusReader
	Endpoints() []string
}

func newTopCmd(f *ctl.Factory, runF func(context.Context, *topOptions) error) *cobra.Command {
	o := &topOptions{
		Client: func() (topClient, error) { return f.Client(f.Timeout(0)) },
		IO:     f.IO,
		Env:    f.Env,
	}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the cluster on a full screen",
		Long: `Watch the cluster on a full screen: what it can still lose, which member is worst
and what to do next. The keys are told by "?"; nothing here changes the cluster.

It begins while nobody answers and goes on when members die: what was last seen
stays, grey and with its age, and the next endpoint is asked. Rates, delays and
events are worked out from one look to the next.

--once prints one view and ends, without a terminal too. --record keeps every look
in FILE, one line of JSON each; --replay shows such a file again.`,
		Example: `  tidalctl top
  tidalctl top --once
  tidalctl top --record incident.ndjson
  tidalctl top --replay incident.ndjson --speed 10`,
		GroupID:     ctl.GroupRead,
		Annotations: ctl.ImpactRead.Annotation(),
		Args:        cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = f.Printer()
			if err := o.check(cmd.Flags().Changed("speed")); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runTop(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&o.Interval, "interval", time.Second, "look again after this `duration`, 250ms to 1m")
	flags.BoolVar(&o.Once, "once", false, "print one view on stdout and end")
	flags.StringVar(&o.Record, "record", "", "keep every look in a new `FILE`")
	flags.StringVar(&o.Replay, "replay", "", "show the looks of `FILE`")
	flags.Float64Var(&o.Speed, "speed", 1, "of --replay: this many `times` as fast as it was")
	for _, name := range []string{"record", "replay"} {
		if err := cmd.MarkFlagFilename(name, "ndjson"); err != nil {
			panic(err) // the flag was defined just above
		}
	}
	return cmd
}

func (o *topOptions) check(speedGiven bool) error {
	bad := func(format string, args ...any) error {
		return &ctl.UsageError{Code: "bad_argument", Detail: fmt.Sprintf(format, args...), Try: []string{"tidalctl top --help"}}
	}
	switch {
	case o.Interval < minInterval || o.Interval > maxInterval:
		return bad("--interval %s: want %s to %s", o.Interval, minInterval, maxInterval)
	case o.Record != "" && o.Replay != "":
		return bad("--record and --replay do not go together: a recording exists already")
	case speedGiven && o.Replay == "":
		return bad("--speed is for --replay")
	case !(o.Speed > 0 && o.Speed <= 1000):
		return bad("--speed %g: want more than 0, at most 1000", o.Speed)
	}
	return nil
}

const topEnded = "the screen ended"

func runTop(ctx context.Context, o *topOptions) (err error) {
	if !o.Once && !o.screen() {
		return &ctl.UsageError{
			Code: "no_terminal", Detail: "top needs a terminal to draw on and to read keys from",
			Try: []string{"tidalctl status --watch", "tidalctl top --once"},
		}
	}
	t := tui.Options{
		In: o.IO.In, Out: o.IO.Out, Interval: o.Interval, Speed: o.Speed, Theme: o.theme(),
		Now: time.Now, Jitter: rand.Float64,
	}
	if o.Replay != "" {
		rec, err := readRecording(o.Replay)
		if err != nil {
			return err
		}
		t.Replay, t.Interval, t.Endpoints = rec.Samples, rec.Interval, rec.Endpoints
	} else {
		c, err := o.Client()
		if err != nil {
			return ctl.Failed(statusNotRead, err)
		}
		t.Source, t.Endpoints = looker{c}, c.Endpoints()
	}
	if o.Record != "" {
		f, err := os.OpenFile(o.Record, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, os.ErrExist) {
			return &ctl.UsageError{Code: "bad_argument", Detail: "--record " + o.Record + ": the file exists and may be evidence; name a new one"}
		}
		if err != nil {
			return ctl.Failed("the recording was not begun", err)
		}
		defer func() {
			if closed := f.Close(); err == nil && closed != nil {
				err = fmt.Errorf("close the recording: %w", closed)
			}
		}()
		if t.Source, err = tui.Record(t.Source, f, time.Now(), o.Interval, t.Endpoints); err != nil {
			return ctl.Failed("the recording was not begun", err)
		}
		t.Recording = true
	}
	if o.Once {
		return o.once(ctx, t)
	}
	return o.watch(ctx, t)
}

// screen reports whether there is a terminal that can be drawn on.
func (o *topOptions) screen() bool {
	return o.IO.InTTY && o.IO.OutTTY && o.Env("TERM") != "dumb"
}

func (o *topOptions) theme() theme.Theme {
	colors := theme.None
	if o.Out.Color {
		colors = theme.ColorsOf(o.Env("TERM"), o.Env("COLORTERM"))
	}
	return theme.New(colors, o.Out.ASCII)
}

// watch shows the screen until it is left.
func (o *topOptions) watch(ctx context.Context, t tui.Options) error {
	// A terminal that goes away ends the screen like any other signal; the rest are ctx's.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	// A screen runs for days on a heap of a few megabytes, and collecting it was half of what it cost.
	// It is collected a quarter as often, for 10 MiB more.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	err := tui.Run(ctx, t)
	if p, ok := errors.AsType[*tui.PanicError](err); ok {
		panic(p) // on the right goroutine, and with the terminal as it was
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, tui.ErrInterrupted):
		err = &ctl.InterruptedError{Signal: os.Interrupt}
	case ctx.Err() != nil:
		if _, told := errors.AsType[*ctl.InterruptedError](err); !told {
			err = &ctl.InterruptedError{Signal: syscall.SIGHUP}
		}
	}
	return ctl.Failed(topEnded, err)
}

// once prints one view: of the cluster as it is, or as a recording left it.
func (o *topOptions) once(ctx context.Context, t tui.Options) error {
	var state viewmodel.State
	now := time.Now()
	if t.Replay != nil {
		for _, sample := range t.Replay {
			state = state.Add(sample)
		}
		now = state.Tried().At
	} else {
		sample, err := t.Source.Look(ctx)
		if err != nil {
			return ctl.Failed("the look was not recorded", err)
		}
		if sample.Status == nil {
			return ctl.Failed(statusNotRead, sample.Err)
		}
		state, now = state.Add(sample), sample.At
	}
	good := state.Good()
	if good.Status != nil && o.Out.Format.Name != output.Table && o.Out.Format.Name != output.Wide {
		return o.Out.Print(statusDocument(*good.Status))
	}
	screen := viewmodel.Build(state, viewmodel.Choices{}, viewmodel.Setting{Now: now, Interval: t.Interval, Endpoints: t.Endpoints})
	if _, err := io.WriteString(o.IO.Out, view.Plain(screen, o.Out.ASCII)); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

func readRecording(path string) (tui.Recording, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return tui.Recording{}, &ctl.NotFoundError{Kind: "recording", Name: path}
	}
	if err != nil {
		return tui.Recording{}, ctl.Failed("the recording was not read", err)
	}
	defer f.Close()
	rec, err := tui.ReadRecording(f)
	if err != nil {
		return rec, ctl.Failed("the recording was not read", err)
	}
	return rec, nil
}

// looker makes samples of what a client answers.
type looker struct{ client statusReader }

// Look asks once.
func (l looker) Look(ctx context.Context) (viewmodel.Sample, error) {
	status, source, err := l.client.Status(ctx)
	sample := viewmodel.Sample{At: time.Now(), Err: err}
	if err == nil {
		sample.Status, sample.Endpoint = &status, source.Endpoint
		return sample, nil
	}
	if e, ok := errors.AsType[*client.UnreachableError](err); ok {
		for _, a := range e.Tried {
			sample.Failures = append(sample.Failures, viewmodel.Failure(a))
		}
	} else if e, ok := errors.AsType[*client.ProblemError](err); ok {
		sample.Failures = []viewmodel.Failure{{Endpoint: e.Endpoint, Code: string(e.Problem.Code), Detail: e.Problem.Detail}}
	} else {
		sample.Failures = []viewmodel.Failure{{Code: "error", Detail: err.Error()}}
	}
	return sample, nil
}
