package verbs

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/words"
)

// clearer removes kept data. *client.Client implements it.
type clearer interface {
	changer
	ClearKept(context.Context, api.ClearRequest) (api.Cleared, client.Source, error)
}

type quarantineOptions struct {
	Client  func() (clearer, error)
	Out     *output.Printer
	Confirm func(ctx context.Context, given, name string, summary ctl.Summary) error
	Tell    func(string) // progress

	Name      string // of show: empty: all
	Confirmed string
	DryRun    bool
	Timeout   time.Duration
	Operation string
}

func newQuarantineCmd(f *ctl.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quarantine",
		Short: "Show replicas in quarantine, and clear the data that was kept",
		Long: `Show replicas in quarantine, and clear the data that was kept.

A replica whose data cannot be trusted serves nothing, says why, and is installed again
from a sound one. The data that was replaced stays on its disk, as
kept-<time>-<reason>, until "quarantine clear" removes it.`,
		Example:     "  tidalctl quarantine show\n  tidalctl quarantine clear us-west",
		GroupID:     ctl.GroupRead,
		Annotations: ctl.ImpactRead.Annotation(),
	}
	cmd.AddCommand(newQuarantineShowCmd(f), newQuarantineClearCmd(f))
	return cmd
}

func newQuarantineOptions(f *ctl.Factory) *quarantineOptions {
	return &quarantineOptions{
		Client:  func() (clearer, error) { return f.Client(client.ReadTimeout) },
		Confirm: f.ConfirmName,
		Tell:    f.Tell,
	}
}

func newQuarantineShowCmd(f *ctl.Factory) *cobra.Command {
	o := newQuarantineOptions(f)
	return &cobra.Command{
		Use:               "show [NAME]",
		Short:             "Show replicas in quarantine, with the evidence, and the data that is kept",
		Long:              "Show replicas in quarantine, with the evidence, and the data that is kept on the disks.\nExit 0 also where there is none.",
		Example:           "  tidalctl quarantine show\n  tidalctl quarantine show us-west -o json",
		Annotations:       ctl.ImpactRead.Annotation(),
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeMembers(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Out, o.Name = f.Printer(), ""
			if len(args) > 0 {
				o.Name = args[0]
			}
			return runQuarantineShow(cmd.Context(), o)
		},
	}
}

func runQuarantineShow(ctx context.Context, o *quarantineOptions) error {
	const notShown = "quarantine was not shown"
	c, err := o.Client()
	if err != nil {
		return ctl.Failed(notShown, err)
	}
	s, source, err := c.Status(ctx)
	if err != nil {
		return ctl.Failed(notShown, err)
	}
	a := quarantineAnswer{Observer: source.Member, Health: s.Health, Quorum: s.Quorum, Members: []quarantineRow{}}
	var names []string
	for _, r := range s.Regions {
		names = append(names, r.Name)
		if o.Name == "" || o.Name == r.Name {
			a.Members = append(a.Members, quarantineRow{Name: r.Name, Reachable: r.Reachable, Quarantine: r.Quarantine, Reseed: r.Reseed, Kept: r.Kept})
		}
	}
	if len(a.Members) == 0 {
		return ctl.Failed(notShown, &ctl.NotFoundError{Kind: "member", Name: o.Name, Nearest: output.Nearest(o.Name, names), Try: []string{"tidalctl members list"}})
	}
	return o.Out.Print(quarantineDocument(a, s))
}

// quarantineAnswer is what quarantine show prints.
type quarantineAnswer struct {
	Observer string          `json:"observer"`
	Health   api.Health      `json:"health"`
	Quorum   api.Quorum      `json:"quorum"`
	Members  []quarantineRow `json:"members"`
}

type quarantineRow struct {
	Name       string          `json:"name"`
	Reachable  bool            `json:"reachable"`
	Quarantine *api.Quarantine `json:"quarantine"` // null: it is in none, or did not answer
	Reseed     *api.Reseed     `json:"reseed"`
	Kept       []api.Kept      `json:"kept"` // null: it did not answer
}

func quarantineDocument(a quarantineAnswer, s api.Status) output.Document {
	var names []string
	for _, r := range a.Members {
		names = append(names, r.Name)
	}
	return output.Document{Kind: "quarantine", Value: a, Names: names, View: func(bool) output.View {
		v := healthView(&a.Health, &a.Quorum, s.Leader, s.Term)
		now := output.Section{Columns: []output.Column{{Title: "member"}, {Title: "cause"}, {Title: "votes"}, {Title: "since"}, {Title: "reseed"}, {Title: "detail"}}}
		kept := output.Section{Title: "kept data", Columns: []output.Column{{Title: "member"}, {Title: "directory"}, {Title: "reason"}, {Title: "size", Right: true}}}
		for _, r := range a.Members {
			switch {
			case !r.Reachable:
				now.Rows = append(now.Rows, []string{r.Name, words.Unknown, words.Unknown, words.Unknown, words.Unknown, "did not answer"})
			case r.Quarantine == nil:
				now.Rows = append(now.Rows, []string{r.Name, "-", "-", "-", reseedWords(r.Reseed), "sound"})
			default:
				votes := "no"
				if r.Quarantine.Votes {
					votes = "yes"
				}
				now.Rows = append(now.Rows, []string{r.Name, r.Quarantine.Cause, votes, r.Quarantine.Since.Format(time.RFC3339), reseedWords(r.Reseed), r.Quarantine.Detail})
			}
			for _, k := range r.Kept {
				kept.Rows = append(kept.Rows, []string{r.Name, k.Name, k.Reason, words.Bytes(k.Bytes)})
			}
		}
		v.Sections = []output.Section{now}
		if len(kept.Rows) > 0 {
			v.Sections = append(v.Sections, kept)
		}
		return v
	}}
}

// reseedWords says how far a reseed is, in a cell.
func reseedWords(r *api.Reseed) string {
	switch {
	case r == nil:
		return "-"
	case r.Refused != nil:
		return "waits: " + *r.Refused
	case r.Phase != "":
		return r.Phase
	}
	return "latched"
}

func newQuarantineClearCmd(f *ctl.Factory) *cobra.Command {
	o := newQuarantineOptions(f)
	cmd := &cobra.Command{
		Use:   "clear NAME",
		Short: "Remove the replaced data that a member kept",
		Long: `Remove the replaced data that a member kept: its kept-<time>-<reason> directories. The
live data is not touched, and a quarantine does not end by it.`,
		Example:           "  tidalctl quarantine clear us-west\n  tidalctl quarantine clear us-west --confirm=us-west",
		Annotations:       ctl.ImpactDestroy.Annotation(),
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeMembers(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name, o.Out, o.Timeout, o.Operation = args[0], f.Printer(), f.Timeout(promoteTimeout), client.NewOperationID()
			return runQuarantineClear(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Confirmed, "confirm", "", "the member's `name`, instead of typing it")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "show what would be removed and change nothing")
	return cmd
}

func runQuarantineClear(ctx context.Context, o *quarantineOptions) error {
	notDone := "nothing of " + o.Name + " was removed"
	c, err := o.Client()
	if err != nil {
		return ctl.Failed(notDone, err)
	}
	req := api.ClearRequest{Region: o.Name, DryRun: o.DryRun, OperationID: o.Operation}
	if !o.DryRun {
		if err := o.Confirm(ctx, o.Confirmed, o.Name, ctl.Lines("The data that quarantines of "+o.Name+" kept is removed for good.")); err != nil {
			return ctl.Failed(notDone, err)
		}
	}
	return change[api.Cleared]{
		NotDone: notDone, Doubt: "it is not known whether anything of " + o.Name + " was removed",
		Operation: o.Operation, Timeout: o.Timeout, Dry: o.DryRun, Tell: o.Tell,
		Do:       func(ctx context.Context) (api.Cleared, client.Source, error) { return c.ClearKept(ctx, req) },
		Document: clearedDocument,
	}.run(ctx, c, o.Out)
}

// clearedAnswer is what quarantine clear prints.
type clearedAnswer struct {
	api.Cleared
	asSeen
}

func clearedDocument(r api.Cleared, source client.Source, s *api.Status) output.Document {
	a := clearedAnswer{r, seenBy(source, s)}
	return output.Document{Kind: "cleared", Value: a, Names: []string{r.Region}, View: func(bool) output.View {
		v := headOf(s)
		verb := "removed"
		if r.DryRun {
			verb = "dry run: would remove"
		}
		v.Notes = append(v.Notes, fmt.Sprintf("%s %d kept directories of %s, %s", verb, len(r.Kept), r.Region, words.Bytes(r.Bytes)))
		t := output.Section{Columns: []output.Column{{Title: "directory"}, {Title: "reason"}, {Title: "size", Right: true}}}
		for _, k := range r.Kept {
			t.Rows = append(t.Rows, []string{k.Name, k.Reason, words.Bytes(k.Bytes)})
		}
		if len(t.Rows) > 0 {
			v.Sections = []output.Section{t}
		}
		return v
	}}
}
