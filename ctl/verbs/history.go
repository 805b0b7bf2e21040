package verbs

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/daemon/api"
)

// historian tells the changes of leadership and membership. *client.Client implements it.
type historian interface {
	statusReader
	History(ctx context.Context) (api.History, client.Source, error)
}

type historyOptions struct {
	Client func() (historian, error)
	Out    *output.Printer
}

func newHistoryCmd(f *ctl.Factory, runF func(context.Context, *historyOptions) error) *cobra.Command {
	o := &historyOptions{Client: func() (historian, error) { return f.Client(f.Timeout(0)) }}
	return &cobra.Command{
		Use:   "history",
		Short: "Show the changes of leadership and membership",
		Long: `Show the changes of leadership and membership that the members remember, oldest first.
Each member remembers what it saw since it was started; what several saw is one line. All
are asked, those that did not answer are named.`,
		Example:     "  tidalctl history\n  tidalctl history -o json",
		GroupID:     ctl.GroupRead,
		Annotations: ctl.ImpactRead.Annotation(),
		Args:        cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = f.Printer()
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runHistory(cmd.Context(), o)
		},
	}
}

func runHistory(ctx context.Context, o *historyOptions) error {
	return reading[historian, api.History]{
		NotRead: "the history was not read", Client: o.Client, Document: historyDocument,
		Read: func(ctx context.Context, c historian) (api.History, client.Source, error) { return c.History(ctx) },
	}.run(ctx, o.Out)
}

// historyAnswer is what history prints, with the health of the cluster.
type historyAnswer struct {
	api.History
	howItIs
}

func historyDocument(h api.History, _ client.Source, s *api.Status) output.Document {
	a := historyAnswer{h, healthOf(s)}
	var names []string
	for _, e := range h.Events {
		names = append(names, e.Member+"/"+e.ID)
	}
	return output.Document{Kind: "history", Value: a, Names: names, View: func(bool) output.View {
		t := output.Section{Columns: []output.Column{{Title: "time"}, {Title: "seen by"}, {Title: "kind"}, {Title: "what"}}}
		for _, e := range h.Events {
			t.Rows = append(t.Rows, []string{e.At.Format(time.RFC3339), e.Member, e.Kind, e.Text})
		}
		v := headOf(s)
		v.Sections = []output.Section{t}
		if len(h.Missing) > 0 {
			v.Notes = append(v.Notes, "no answer from "+strings.Join(h.Missing, ", ")+": what it alone saw is not here")
		}
		return v
	}}
}
