package verbs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/viewmodel"
	"github.com/tidaldb/tidal/tui/words"
)

func newMembersCmd(f *ctl.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:         "members",
		Aliases:     []string{"m"},
		Short:       "Show and change the members of the cluster",
		Example:     "  tidalctl members list\n  tidalctl members show us-east\n  tidalctl members remove us-east --dry-run",
		GroupID:     ctl.GroupRead,
		Annotations: ctl.ImpactRead.Annotation(),
	}
	cmd.AddCommand(newMembersListCmd(f, nil), newMembersShowCmd(f, nil))
	for _, v := range memberVerbs() {
		cmd.AddCommand(newMemberChangeCmd(f, v, nil))
	}
	return cmd
}

type membersOptions struct {
	Client func() (clusterReader, error)
	Out    *output.Printer

	Name    string // of show
	Removed bool   // of list: those that were removed too
}

func newMembersListCmd(f *ctl.Factory, runF func(context.Context, *membersOptions) error) *cobra.Command {
	o := &membersOptions{Client: func() (clusterReader, error) { return f.Client(f.Timeout(0)) }}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the members as the log has them",
		Long: `List the members as the log has them: names, ids, roles and addresses as agreed by
the cluster. How each one is doing is what "tidalctl status" shows. A learner says why it is no
voter yet. With --removed those that were removed follow, as long as they are kept: told says
that the notice left, acked that the member takes part in nothing any more.`,
		Example: `  tidalctl members list
  tidalctl members list --removed
  tidalctl members list -o name`,
		Annotations: ctl.ImpactRead.Annotation(),
		Args:        cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = f.Printer()
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runMembersList(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.Removed, "removed", false, "list those that were removed too")
	return cmd
}

func newMembersShowCmd(f *ctl.Factory, runF func(context.Context, *membersOptions) error) *cobra.Command {
	o := &membersOptions{Client: func() (clusterReader, error) { return f.Client(f.Timeout(0)) }}
	return &cobra.Command{
		Use:               "show NAME",
		Short:             "Show everything that is known of one member",
		Example:           "  tidalctl members show us-east\n  tidalctl members show us-east -o 'template={{.status.applied_index}}'",
		Annotations:       ctl.ImpactRead.Annotation(),
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeMembers(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name, o.Out = args[0], f.Printer()
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runMembersShow(cmd.Context(), o)
		},
	}
}

// membersAnswer is the roster, with the health of the cluster that it belongs to.
type membersAnswer struct {
	api.Members
	Observer string      `json:"observer"` // whose roster it is
	Health   *api.Health `json:"health"`   // null: the status was not read
	Quorum   *api.Quorum `json:"quorum"`
	// Pending is why learners are no voters yet, by name; Settling a change that is not finished.
	Pending  map[string]api.Pending `json:"promotion_pending"`
	Settling *api.Settling          `json:"settling"`
}

// memberAnswer is one member: as the log has it, and how it is doing.
type memberAnswer struct {
	Observer string      `json:"observer"`
	Leader   *string     `json:"leader"`
	Term     uint64      `json:"term"`
	Health   *api.Health `json:"health"`
	Quorum   *api.Quorum `json:"quorum"`
	Member   api.Member  `json:"member"`
	Status   *api.Region `json:"status"` // null: not known
}

// readCluster reads roster and status at once. A status that cannot be read leaves its part nil: the
// roster is what was asked for.
func readCluster(ctx context.Context, c clusterReader) (membersAnswer, *api.Status, error) {
	var (
		status    *api.Status
		answering sync.WaitGroup
	)
	answering.Go(func() {
		if s, _, err := c.Status(ctx); err == nil {
			status = &s
		}
	})
	m, source, err := c.Members(ctx)
	answering.Wait()
	if err != nil {
		return membersAnswer{}, nil, err
	}
	a := membersAnswer{Members: m, Observer: source.Member}
	if status != nil {
		a.Health, a.Quorum, a.Settling = &status.Health, &status.Quorum, status.Settling
		a.Pending = map[string]api.Pending{}
		for _, r := range status.Regions {
			if r.PromotionPending != nil {
				a.Pending[r.Name] = *r.PromotionPending
			}
		}
	}
	return a, status, nil
}

func runMembersList(ctx context.Context, o *membersOptions) error {
	const notRead = "the members were not listed"
	c, err := o.Client()
	if err != nil {
		return ctl.Failed(notRead, err)
	}
	a, _, err := readCluster(ctx, c)
	if err != nil {
		return ctl.Failed(notRead, err)
	}
	return o.Out.Print(membersDocument(a, o.Removed))
}

func runMembersShow(ctx context.Context, o *membersOptions) error {
	const notRead = "the member was not shown"
	c, err := o.Client()
	if err != nil {
		return ctl.Failed(notRead, err)
	}
	roster, status, err := readCluster(ctx, c)
	if err != nil {
		return ctl.Failed(notRead, err)
	}
	i := slices.IndexFunc(roster.Roster.Members, func(m api.Member) bool { return m.Name == o.Name })
	if i < 0 {
		return ctl.Failed(notRead, &ctl.NotFoundError{
			Kind: "member", Name: o.Name, Nearest: output.Nearest(o.Name, memberNames(roster)), Try: []string{"tidalctl members list"},
		})
	}
	a := memberAnswer{
		Observer: roster.Observer, Leader: roster.Leader, Term: roster.Term, Health: roster.Health, Quorum: roster.Quorum,
		Member: roster.Roster.Members[i],
	}
	if status != nil {
		if i := slices.IndexFunc(status.Regions, func(r api.Region) bool { return r.Name == o.Name }); i >= 0 {
			a.Status = &status.Regions[i]
		}
	}
	return o.Out.Print(memberDocument(a))
}

func memberNames(a membersAnswer) []string {
	names := make([]string, len(a.Roster.Members))
	for i, m := range a.Roster.Members {
		names[i] = m.Name
	}
	return names
}

// healthView begins a view with the health of the cluster, unknown where it was not read.
func healthView(h *api.Health, q *api.Quorum, leader *string, term uint64) output.View {
	if h == nil || q == nil {
		h, q = &api.Health{Level: api.HealthUnknown}, &api.Quorum{}
	}
	return output.View{Level: words.Or(h.Level), Headline: headline(*q, leader, term)}
}

func membersDocument(a membersAnswer, removed bool) output.Document {
	return output.Document{Kind: "members", Value: a, Names: memberNames(a), View: func(wide bool) output.View {
		v := healthView(a.Health, a.Quorum, a.Leader, a.Term)
		if a.Settling != nil {
			v.Notes = append(v.Notes, settlingText(*a.Settling))
		}
		table := output.Section{Columns: []output.Column{{Title: "id", Right: true}, {Title: "member"}, {Title: "role"}, {Title: "http"}, {Title: "grpc"}}}
		note := len(a.Pending) > 0
		if note {
			table.Columns = append(table.Columns, output.Column{Title: "note"})
		}
		if wide {
			table.Columns = append(table.Columns, output.Column{Title: "boot", Right: true}, output.Column{Title: "capabilities"}, output.Column{Title: "incarnation"})
		}
		for _, m := range a.Roster.Members {
			row := []string{words.Or(m.ID), words.Or(m.Name), words.Or(m.Role), words.Or(m.HTTPAddr), words.Or(m.GRPCAddr)}
			if a.Leader != nil && m.Name == *a.Leader {
				row[2] = "leader"
			}
			if p, ok := a.Pending[m.Name]; ok && m.Role == api.RoleLearner {
				row = append(row, pendingText(p))
			} else if note {
				row = append(row, "")
			}
			if wide {
				row = append(row, words.Count(m.BootEpoch), words.Or(strings.Join(m.Capabilities, ",")), words.Or(m.Incarnation))
			}
			table.Rows = append(table.Rows, row)
		}
		v.Sections = []output.Section{table}
		if removed {
			v.Sections = append(v.Sections, tombstonesTable(a.Roster.Tombstones))
		}
		return v
	}}
}

// settlingText says what a change of the voters waits for.
func settlingText(s api.Settling) string {
	text := fmt.Sprintf("settling  a change of the voters at index %s: %d of %d voters have applied it, %d needed", words.Count(s.Index), s.Have, s.Voters, s.Needed)
	if len(s.Missing) > 0 {
		text += "; not yet " + strings.Join(s.Missing, ", ")
	}
	return text
}

func tombstonesTable(tombstones []api.Tombstone) output.Section {
	t := output.Section{Title: "removed", Columns: []output.Column{{Title: "id", Right: true}, {Title: "member"}, {Title: "removed"}, {Title: "told"}, {Title: "acked"}, {Title: "note"}}}
	yes := func(b bool) string {
		if b {
			return "yes"
		}
		return "no"
	}
	for _, x := range tombstones {
		note := ""
		if x.Expired {
			note = "expired: it was never heard of"
		}
		t.Rows = append(t.Rows, []string{x.ID, words.Or(x.Name), x.RemovedAt.Format(time.RFC3339), yes(x.Told), yes(x.Acked), note})
	}
	return t
}

func memberDocument(a memberAnswer) output.Document {
	return output.Document{Kind: "member", Value: a, Names: []string{a.Member.Name}, View: func(bool) output.View {
		v := healthView(a.Health, a.Quorum, a.Leader, a.Term)
		table := output.Section{Columns: []output.Column{{Title: "what"}, {Title: "value"}}}
		add := func(what, value string) { table.Rows = append(table.Rows, []string{what, value}) }
		m := a.Member
		add("member", m.Name)
		add("id", words.Or(m.ID))
		r := api.Region{Role: m.Role}
		state, applied, lag, heard, note := words.Unknown, words.Unknown, words.Unknown, words.Unknown, "the status was not read"
		if a.Status != nil {
			r = *a.Status
			state, applied, lag, heard, note = stateOf(r), viewmodel.Applied(r), viewmodel.Lag(r), viewmodel.Heard(r), viewmodel.Note(r)
		}
		add("role", viewmodel.Role(r))
		add("state", state)
		if note != "" {
			add("note", note)
		}
		if r.PromotionPending != nil {
			add("promotion_pending", pendingText(*r.PromotionPending))
		}
		add("applied", applied)
		add("lag", lag)
		add("heard the leader", heard)
		add("term", words.CountOf(r.Term))
		add("last index", words.CountOf(r.LastIndex))
		add("durable index", words.CountOf(r.DurableIndex))
		add("commit index", words.CountOf(r.CommitIndex))
		add("version", orUnknown(r.Version))
		add("uptime", words.AgeOf(r.UptimeMS))
		add("http", words.Or(m.HTTPAddr))
		add("grpc", words.Or(m.GRPCAddr))
		add("boot", words.Count(m.BootEpoch))
		add("incarnation", words.Or(m.Incarnation))
		add("capabilities", words.Or(strings.Join(m.Capabilities, ",")))
		v.Sections = []output.Section{table}
		return v
	}}
}
