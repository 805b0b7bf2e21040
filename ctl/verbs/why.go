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

// explainer says what holds a member back. *client.Client implements it.
type explainer interface {
	statusReader
	Why(ctx context.Context, name string) (api.Why, client.Source, error)
}

type whyOptions struct {
	Client func() (explainer, error)
	Out    *output.Printer
	Name   string
}

func newWhyCmd(f *ctl.Factory, runF func(context.Context, *whyOptions) error) *cobra.Command {
	o := &whyOptions{Client: func() (explainer, error) { return f.Client(f.Timeout(0)) }}
	return &cobra.Command{
		Use:   "why MEMBER",
		Short: "Explain what holds a member back",
		Long: `Explain what holds a member back: why it takes no traffic, does not vote, could not lead,
or could not be removed. Each is a list of gates with what was measured and what is allowed.
It works without a leader; what the leader alone knows is "?" then.`,
		Example: `  tidalctl why eu-west
  tidalctl why eu-west -o 'template={{json .promotion_pending}}'`,
		GroupID:           ctl.GroupRead,
		Annotations:       ctl.ImpactRead.Annotation(),
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeMembers(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name, o.Out = args[0], f.Printer()
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runWhy(cmd.Context(), o)
		},
	}
}

func runWhy(ctx context.Context, o *whyOptions) error {
	return reading[explainer, api.Why]{
		NotRead: "nothing can be said of " + o.Name, Client: o.Client, Document: whyDocument,
		Read: func(ctx context.Context, c explainer) (api.Why, client.Source, error) { return c.Why(ctx, o.Name) },
	}.run(ctx, o.Out)
}

// whyAnswer is what why prints, with the health of the cluster.
type whyAnswer struct {
	api.Why
	howItIs
}

func whyDocument(w api.Why, _ client.Source, s *api.Status) output.Document {
	a := whyAnswer{w, healthOf(s)}
	return output.Document{Kind: "why", Value: a, Names: []string{w.Member}, View: func(bool) output.View {
		v := healthView(a.Health, a.Quorum, w.Leader, w.Term)
		who := fmt.Sprintf("%s, member %s, %s", w.Member, words.Or(w.ID), words.Or(w.Role))
		if w.Error != nil {
			who += ", does not answer: " + w.Error.Detail
		}
		v.Notes = append(v.Notes, who)
		if w.Pending != nil {
			v.Notes = append(v.Notes, "promotion_pending  "+pendingText(*w.Pending))
		}
		for _, q := range w.Questions {
			var section output.Section
			if len(q.Checks) > 0 {
				section = checksTable(q.Checks)
			}
			section.Title = q.Question + ": " + q.Detail
			v.Sections = append(v.Sections, section)
		}
		for _, u := range w.Unknown {
			v.Notes = append(v.Notes, u.Code+": not known, "+u.Detail)
		}
		return v
	}}
}

// pendingText says why a learner is no voter yet, with what is measured.
func pendingText(p api.Pending) string {
	parts := []string{p.Reason}
	if p.Lag != nil {
		parts = append(parts, words.Count(*p.Lag)+" entries behind")
	}
	if p.Rate != nil && *p.Rate != 0 {
		parts = append(parts, fmt.Sprintf("%+.0f/s", *p.Rate))
	}
	if p.ETAMS != nil {
		parts = append(parts, "eta "+words.Age(time.Duration(*p.ETAMS)*time.Millisecond))
	}
	return strings.Join(parts, ", ")
}
