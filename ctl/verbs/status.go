package verbs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/ctl/iostreams"
	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/words"
)

// minWatch is the shortest interval of --watch: each look asks every member.
const minWatch = 200 * time.Millisecond

type statusOptions struct {
	Client func() (statusReader, error)
	IO     *iostreams.Streams
	Out    *output.Printer
	Report func(error) // a look of --watch that failed

	ExitCode bool
	Watch    time.Duration // 0: one look
}

func newStatusCmd(f *ctl.Factory, runF func(context.Context, *statusOptions) error) *cobra.Command {
	o := &statusOptions{
		Client: func() (statusReader, error) { return f.Client(f.Timeout(0)) },
		IO:     f.IO,
		Report: func(err error) { f.Report(err, ctl.ImpactRead) },
	}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether the cluster is well and what it can still lose",
		Long: `Show whether the cluster is well and what it can still lose.

The first line is health and how many more voters may be lost before writes stop.
Every member that is known has a row, whether it answered or not: "?" is what is
not known, "<=125" means that at worst all 125 entries are missing there. HEARD is
how long ago the member heard from the leader.

The exit code says whether there was an answer. With --exit-code it says how the
cluster is: 0 ok, 10 degraded, 11 critical or unknown.`,
		Example: `  tidalctl status
  tidalctl status --exit-code -o json
  tidalctl status --watch=5s`,
		GroupID:     ctl.GroupRead,
		Annotations: ctl.ImpactRead.Annotation(),
		Args:        cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = f.Printer()
			if cmd.Flags().Changed("watch") && o.Watch < minWatch {
				return &ctl.UsageError{Code: "bad_argument", Detail: fmt.Sprintf("--watch %s: want at least %s", o.Watch, minWatch)}
			}
			if o.ExitCode && o.Watch > 0 {
				return &ctl.UsageError{Code: "bad_argument", Detail: "--exit-code says how the cluster is once; --watch has no end"}
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runStatus(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.ExitCode, "exit-code", false, "exit with 10 when degraded, 11 when critical or unknown")
	cmd.Flags().DurationVar(&o.Watch, "watch", 0, "look again after every `interval` (2s)")
	cmd.Flags().Lookup("watch").NoOptDefVal = "2s"
	return cmd
}

const statusNotRead = "the status of the cluster was not read"

func runStatus(ctx context.Context, o *statusOptions) error {
	c, err := o.Client()
	if err != nil {
		return ctl.Failed(statusNotRead, err)
	}
	if o.Watch > 0 {
		return watchStatus(ctx, o, c)
	}
	s, _, err := c.Status(ctx)
	if err != nil {
		return ctl.Failed(statusNotRead, err)
	}
	if err := o.Out.Print(statusDocument(s)); err != nil {
		return err
	}
	if exit := healthExit(s.Health.Level); o.ExitCode && exit != ctl.ExitOK {
		return &ctl.ConditionError{Exit: exit}
	}
	return nil
}

// healthExit is what --exit-code makes of a level. What could not be found out is taken for the worst.
func healthExit(level string) int {
	switch level {
	case api.HealthOK:
		return ctl.ExitOK
	case api.HealthDegraded:
		return ctl.ExitDegraded
	}
	return ctl.ExitCritical
}

// watchStatus looks until ctx ends. A terminal is redrawn; elsewhere a document is appended when
// something other than an age changed, and with JSON one a line. A cluster that does not answer does
// not end it.
func watchStatus(ctx context.Context, o *statusOptions, c statusReader) error {
	o.Out.Compact = true
	redraw := o.IO.OutTTY && (o.Out.Format.Name == output.Table || o.Out.Format.Name == output.Wide)
	var last []byte
	for {
		s, _, err := c.Status(ctx)
		if err != nil && !client.Transient(err) {
			return ctl.Failed(statusNotRead, err)
		}
		switch key := changeKey(s, err); {
		case redraw:
			if err := o.redraw(s, err); err != nil {
				return err
			}
		case bytes.Equal(key, last):
		case err != nil:
			o.Report(ctl.Failed(statusNotRead, err))
			last = key
		default:
			if err := o.Out.Print(statusDocument(s)); err != nil {
				return err
			}
			last = key
		}
		select {
		case <-ctx.Done():
			return ctl.Failed("the watch ended", context.Cause(ctx))
		case <-time.After(o.Watch):
		}
	}
}

// redraw paints one look over the one before.
func (o *statusOptions) redraw(s api.Status, failed error) error {
	view := unreachableView(failed)
	if failed == nil {
		view = statusView(s, o.Out.Format.Name == output.Wide)
	}
	view.Notes = append(view.Notes, fmt.Sprintf("every %s, now %s, Ctrl-C ends", o.Watch, time.Now().UTC().Format("15:04:05Z")))
	b, err := o.Out.Render(output.Document{View: func(bool) output.View { return view }})
	if err != nil {
		return err
	}
	// Home, each line cleared to its end, the rest cleared: nothing blinks.
	frame := "\x1b[H" + strings.ReplaceAll(string(b), "\n", "\x1b[K\n") + "\x1b[J"
	if _, err := io.WriteString(o.IO.Out, frame); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// unreachableView is what a terminal shows while nobody answers.
func unreachableView(err error) output.View {
	v := output.View{Level: api.HealthUnknown, Headline: "nobody answers, can lose " + words.Unknown}
	if e, ok := errors.AsType[*client.UnreachableError](err); ok {
		for _, a := range e.Tried {
			v.Notes = append(v.Notes, a.String())
		}
	} else if err != nil {
		v.Notes = append(v.Notes, err.Error())
	}
	return v
}

// changeKey is equal for two looks between which nothing but ages and times changed.
func changeKey(s api.Status, failed error) []byte {
	if e, ok := errors.AsType[*client.UnreachableError](failed); ok {
		key := []byte("unreachable")
		for _, a := range e.Tried {
			key = append(key, a.Endpoint+" "+a.Code...)
		}
		return key
	}
	if failed != nil {
		return []byte(failed.Error())
	}
	s.At, s.RelayLogAgeMS = time.Time{}, nil
	rows := make([]api.Region, len(s.Regions))
	for i, r := range s.Regions {
		r.AgeMS, r.TookMS, r.UptimeMS = nil, nil, nil
		r.Faults = slices.Clone(r.Faults)
		for j := range r.Faults {
			r.Faults[j].LeftMS = 0
		}
		rows[i] = r
	}
	s.Regions = rows
	key, err := json.Marshal(s)
	if err != nil {
		return nil // never equal to what was printed: it is printed again
	}
	return key
}
