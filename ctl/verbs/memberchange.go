package verbs

import (
	"context"
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

// memberChanger changes the membership and can be asked what became of it. *client.Client implements it.
type memberChanger interface {
	clusterReader
	operationReader
	ChangeMember(ctx context.Context, verb string, req api.MemberRequest) (api.MemberChanged, client.Source, error)
	BeginChangeMember(ctx context.Context, verb string, req api.MemberRequest) (api.Operation, client.Source, error)
}

type memberChangeOptions struct {
	Client  func() (memberChanger, error)
	Out     *output.Printer
	Confirm func(context.Context, ctl.Summary) error
	Tell    func(string) // progress

	Verb      memberVerb
	Name      string
	DryRun    bool
	NoWait    bool
	Override  []string
	Timeout   time.Duration
	Operation string
}

// memberVerb is one verb about one member, in words.
type memberVerb struct {
	name     string
	short    string
	long     string
	example  string
	impact   ctl.Impact
	notDone  string // "was not removed"
	effect   string // what is said before the question
	fits     fit
	override bool
}

func memberVerbs() []memberVerb {
	return []memberVerb{
		{
			name: "promote", short: "Make a learner a voter",
			long: `Make a learner a voter. The leader does that by itself as soon as the learner has caught
up; this asks for it now, waits until it is done, and says which gate is closed where it
cannot be. A member that votes already is left alone. Leadership is moved with "tidalctl
promote".`,
			example: `  tidalctl members promote eu-west --dry-run
  tidalctl members promote eu-west --yes`,
			impact: ctl.ImpactChange, notDone: "was not made a voter", effect: "It votes from then on. To undo: tidalctl members remove %s", fits: learners,
		},
		{
			name: "remove", short: "Remove a member for good",
			long: `Remove a member for good. The voters that answer now must be a majority before and after;
the leader hands over first. It returns when a majority of the voters that stay has applied
the removal. The member learns of it when it can be reached, and takes part in nothing any
more; its id is never given again. A member of this name joins again with an empty
directory and --rejoin.`,
			example: `  tidalctl members remove eu-west --dry-run
  tidalctl members remove eu-west --confirm=eu-west
  tidalctl members remove eu-west --confirm=eu-west --override=rest_reachable`,
			impact: ctl.ImpactDestroy, notDone: "was not removed", effect: "%s takes part in nothing any more; its data stays on its disk. It cannot be undone: it would join as a new member", fits: anyMember,
			override: true,
		},
		{
			name: "replace", short: "Let a member come back with an empty disk",
			long: `Let a member come back with an empty disk. A member whose directory is gone asks to be
taken again by itself, under a new id and its old name, and takes the place of the old one
when it has caught up, so that there are never fewer voters. That needs this command where
membership.replace_lost is manual, where it happened too often, or where the old process is
still heard of. Start the new one with an empty directory, before or after.`,
			example: `  tidalctl members replace eu-west --dry-run
  tidalctl members replace eu-west --confirm=eu-west`,
			impact: ctl.ImpactDestroy, notDone: "was not replaced", effect: "The old data directory of %s is of no use from then on", fits: anyMember,
			override: true,
		},
	}
}

// learners fit where a member is made a voter.
func learners(m completionMember) (string, bool) {
	if m.Role != api.RoleLearner {
		return "", false
	}
	if p := m.PromotionPending; p != nil {
		return p.Reason + ", lag " + words.CountOf(m.LagEvents), true
	}
	return "learner", true
}

func newMemberChangeCmd(f *ctl.Factory, v memberVerb, runF func(context.Context, *memberChangeOptions) error) *cobra.Command {
	o := &memberChangeOptions{
		Client: func() (memberChanger, error) { return f.Client(client.ReadTimeout) },
		Tell:   f.Tell,
		Verb:   v,
	}
	var yes bool
	var confirm string
	o.Confirm = func(ctx context.Context, summary ctl.Summary) error {
		if v.impact == ctl.ImpactDestroy {
			return f.ConfirmName(ctx, confirm, o.Name, summary)
		}
		return f.Confirm(ctx, yes, "Go on?", summary)
	}
	cmd := &cobra.Command{
		Use: v.name + " NAME", Short: v.short,
		Long: v.long + `

Exit 0: done. 6: a check said no, nothing changed. 9: nobody could say what became of it.`,
		Example:           v.example,
		Annotations:       v.impact.Annotation(),
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeFitting(f, v.fits),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name, o.Out, o.Timeout, o.Operation = args[0], f.Printer(), f.Timeout(promoteTimeout), client.NewOperationID()
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runMemberChange(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	if v.impact == ctl.ImpactDestroy {
		flags.StringVar(&confirm, "confirm", "", "the member's `name`, instead of being asked")
	} else {
		flags.BoolVar(&yes, "yes", false, "do not ask")
	}
	if v.override {
		flags.StringArrayVar(&o.Override, "override", nil, "go on although this `check` says no; may be repeated")
	}
	flags.BoolVar(&o.DryRun, "dry-run", false, "show the checks and change nothing")
	flags.BoolVar(&o.NoWait, "no-wait", false, "print the operation and return")
	return cmd
}

func runMemberChange(ctx context.Context, o *memberChangeOptions) error {
	notDone := o.Name + " " + o.Verb.notDone
	c, err := o.Client()
	if err != nil {
		return ctl.Failed(notDone, err)
	}
	req := api.MemberRequest{Name: o.Name, OperationID: o.Operation, Override: o.Override, DryRun: o.DryRun, TimeoutMS: promoteMillis(o.Timeout)}
	if !o.DryRun {
		if err := o.Confirm(ctx, o.summary(c)); err != nil {
			return ctl.Failed(notDone, err)
		}
	}
	return change[api.MemberChanged]{
		NotDone: notDone, Doubt: "it is not known whether " + strings.Replace(notDone, "was not", "was", 1),
		Operation: o.Operation, Timeout: o.Timeout, Dry: o.DryRun, NoWait: o.NoWait, Tell: o.Tell,
		Do: func(ctx context.Context) (api.MemberChanged, client.Source, error) {
			return c.ChangeMember(ctx, o.Verb.name, req)
		},
		Begin: func(ctx context.Context) (api.Operation, client.Source, error) {
			return c.BeginChangeMember(ctx, o.Verb.name, req)
		},
		Seen:     func(ctx context.Context) (api.MemberChanged, client.Source, bool) { return o.seen(ctx, c) },
		Document: memberChangeDocument,
		Exit:     func(done api.MemberChanged) error { return refusedUnless(done.OK) },
	}.run(ctx, c, o.Out)
}

// summary says how the cluster is, what would be checked, and what it cannot be taken back from.
func (o *memberChangeOptions) summary(c memberChanger) ctl.Summary {
	return func(ctx context.Context) []string {
		ctx, cancel := context.WithTimeout(ctx, o.Timeout)
		defer cancel()
		var lines []string
		if s, _, err := c.Status(ctx); err != nil {
			lines = append(lines, notAnswered(err))
		} else {
			lines = append(lines, standing(s))
		}
		if dry, _, err := c.ChangeMember(ctx, o.Verb.name, api.MemberRequest{Name: o.Name, DryRun: true, TimeoutMS: api.MinMemberTimeoutMS * 20}); err == nil {
			for _, check := range dry.Checks {
				if !check.OK {
					lines = append(lines, "check "+check.Code+" says no: "+check.Detail)
				}
			}
		}
		return append(lines, fmt.Sprintf(o.Verb.effect, o.Name))
	}
}

// seen reports whether the membership is as was asked for.
func (o *memberChangeOptions) seen(ctx context.Context, c memberChanger) (api.MemberChanged, client.Source, bool) {
	m, source, err := c.Members(ctx)
	role, id := o.roleIn(m)
	done := api.MemberChanged{OK: true, Op: o.Operation, Verb: o.Verb.name, Name: o.Name, ID: id, Role: role, Term: m.Term, Checks: []api.Check{}}
	return done, source, err == nil && role != ""
}

// roleIn is what the member is by the roster, where that is what was asked for; else empty.
func (o *memberChangeOptions) roleIn(m api.Members) (role, id string) {
	i := slices.IndexFunc(m.Roster.Members, func(m api.Member) bool { return m.Name == o.Name })
	switch {
	case m.Leader == nil:
	case o.Verb.name == "promote" && i >= 0 && m.Roster.Members[i].Role == api.RoleVoter:
		return api.RoleVoter, m.Roster.Members[i].ID
	case o.Verb.name == "remove" && i < 0:
		for _, t := range m.Roster.Tombstones {
			if t.Name == o.Name {
				role, id = api.RoleRemoved, t.ID
			}
		}
	}
	return role, id
}

// memberChangeAnswer is what a change of the membership prints: the members' answer, and who gave it.
type memberChangeAnswer struct {
	api.MemberChanged
	asSeen
}

func memberChangeDocument(c api.MemberChanged, source client.Source, s *api.Status) output.Document {
	a := memberChangeAnswer{c, seenBy(source, s)}
	var leader *string
	if s != nil {
		leader = s.Leader
	}
	return output.Document{Kind: "member-change", Value: a, Names: []string{c.Name}, View: func(bool) output.View {
		v := healthView(a.Health, a.Quorum, leader, c.Term)
		switch {
		case c.DryRun && c.OK:
			v.Notes = append(v.Notes, "dry run: it would be done; nothing changed")
		case c.DryRun:
			v.Notes = append(v.Notes, "dry run: it would be refused; nothing changed")
		case c.Verb == "replace":
			v.Notes = append(v.Notes, fmt.Sprintf("an empty member called %s may take the place of member %s now, for ten minutes: start it", c.Name, words.Or(c.ID)))
		case c.Index == 0:
			v.Notes = append(v.Notes, fmt.Sprintf("%s is %s; nothing had to change", c.Name, words.Or(c.Role)))
		default:
			note := fmt.Sprintf("%s, member %s, is %s from index %s on", c.Name, words.Or(c.ID), words.Or(c.Role), words.Count(c.Index))
			if !c.Settled {
				note += "; not yet known to a majority of the voters"
			}
			v.Notes = append(v.Notes, note)
		}
		if len(c.Checks) > 0 {
			v.Sections = []output.Section{checksTable(c.Checks)}
		}
		return v
	}}
}
