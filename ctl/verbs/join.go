package verbs

import (
	"context"
	"fmt"
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

// stallTimeout is how long a join may make no progress before joining is given up watching.
const stallTimeout = 5 * time.Minute

// startsWithin is how long a member on this machine may take to answer at all.
const startsWithin = 10 * time.Second

// joinPoll is the pause between two looks at a member that joins.
const joinPoll = 200 * time.Millisecond

// localMember is the member on this machine. *client.Client implements it.
type localMember interface {
	LocalStatus(context.Context) (api.LocalStatus, client.Source, error)
	Invite(context.Context, api.SeedRequest) (api.Seeded, client.Source, error)
}

type joinOptions struct {
	Local   func() (localMember, error)
	Seed    func(url string) (localMember, error)
	Confirm func(ctx context.Context, yes bool, question string, summary ctl.Summary) error
	IO      *iostreams.Streams
	Out     *output.Printer

	Seeds  []string
	Name   string // that the member must have; empty: any
	Rejoin bool
	Yes    bool
	NoWait bool
	Stall  time.Duration
	// Timeout ends the watching, whatever moves; 0: nothing but Stall does.
	Timeout time.Duration
}

func newJoinCmd(f *ctl.Factory, runF func(context.Context, *joinOptions) error) *cobra.Command {
	o := &joinOptions{
		Local:   func() (localMember, error) { return f.Local(client.EndpointTimeout) },
		Seed:    func(url string) (localMember, error) { return f.At(url, client.EndpointTimeout) },
		Confirm: f.Confirm, IO: f.IO,
	}
	cmd := &cobra.Command{
		Use:   "join --seed URL",
		Short: "Have the member on this machine join a cluster",
		Long: `Have the member on this machine join a cluster: one that was started with "tidald serve
--await-join", or with --seed and is on its way. It is told whom to ask, and is watched until
it votes: admit, snapshot, catch up, promote. Any member will do as a seed; the leader
admits. The member asked is the first --endpoint, http://127.0.0.1:9501 where none is given.

It is safe to repeat, also after Ctrl-C: the join goes on without being watched. There is no
limit of time unless --timeout sets one, but without any progress for --stall-timeout it ends
with 124. Exit 6: the member here belongs to another cluster than the seed.`,
		Example: `  tidalctl join --seed http://10.0.0.1:9501 --yes
  tidalctl --endpoint http://127.0.0.1:9504 join --seed http://127.0.0.1:9501`,
		GroupID:     ctl.GroupChange,
		Annotations: ctl.ImpactChange.Annotation(),
		Args:        cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out, o.Timeout = f.Printer(), f.Timeout(0)
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runJoin(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&o.Seeds, "seed", nil, "`URL` of any member of the cluster; may be repeated")
	flags.StringVar(&o.Name, "name", "", "the `name` that the member on this machine must have")
	flags.BoolVar(&o.Rejoin, "rejoin", false, "join although a member of this name was removed")
	flags.BoolVar(&o.Yes, "yes", false, "do not ask")
	flags.BoolVar(&o.NoWait, "no-wait", false, "tell it whom to ask and return")
	flags.DurationVar(&o.Stall, "stall-timeout", stallTimeout, "give up watching after this `long` without progress")
	return cmd
}

// joinAnswer is a member that joined.
type joinAnswer struct {
	Name      string `json:"name"`
	ID        string `json:"id"`
	ClusterID string `json:"cluster_id"`
	Role      string `json:"role"`  // empty: not admitted yet
	Phase     string `json:"phase"` // admit, snapshot, catch up, promote, done
	Detail    string `json:"detail"`
	TookMS    int64  `json:"took_ms"`
}

func runJoin(ctx context.Context, o *joinOptions) error {
	const notDone = "no member joined"
	c, err := o.Local()
	if err != nil {
		return ctl.Failed(notDone, err)
	}
	start := time.Now()
	s, err := o.find(ctx, c)
	if err != nil {
		return ctl.Failed(notDone, err)
	}
	if o.Name != "" && s.Name != o.Name {
		return ctl.Failed(notDone, &ctl.UsageError{Code: "wrong_member", Detail: fmt.Sprintf("the member here is %s, not %s: name its address with --endpoint", s.Name, o.Name)})
	}
	joins := s.Phase == api.PhaseWaiting || s.Phase == api.PhaseJoining
	for _, seed := range o.Seeds {
		if err := o.compare(ctx, s, seed, joins); err != nil {
			return ctl.Failed(s.Name+" did not join", err)
		}
	}
	if joins {
		if err := o.invite(ctx, c, s); err != nil {
			return ctl.Failed(s.Name+" did not join", err)
		}
	} else if a := joinStep(s); a.Phase == joinDone {
		a.Detail = s.Name + " voted before, as member " + s.ID + ": nothing had to be done"
		return o.Out.Print(joinDocument(a))
	}
	if o.NoWait {
		a := joinStep(s)
		return o.Out.Print(joinDocument(a))
	}
	return o.watch(ctx, c, s.Name, start)
}

// compare refuses a seed that is the member here itself, or that belongs to another cluster than this member does
// already. A seed that does not answer is none of its business where the member joins: that one asks it anyway.
func (o *joinOptions) compare(ctx context.Context, here api.LocalStatus, seed string, joins bool) error {
	c, err := o.Seed(seed)
	if err != nil {
		return err
	}
	there, _, err := c.LocalStatus(ctx)
	switch {
	case err != nil && joins:
		return nil
	case err != nil:
		return ctl.Failed(fmt.Sprintf("it was not found out whether %s, which belongs to cluster %s already, is of the cluster of %s", here.Name, here.ClusterID, seed), err)
	case there.Name == here.Name && there.Incarnation == here.Incarnation:
		return &ctl.UsageError{Code: "bad_argument", Detail: fmt.Sprintf("--seed %s is %s itself, the member that was to join: --endpoint names the member that joins, --seed one of the cluster", seed, here.Name),
			Try: []string{"tidalctl --endpoint http://NEW:9501 join --seed " + seed}}
	case here.ClusterID != "" && there.ClusterID != "" && here.ClusterID != there.ClusterID:
		return &ctl.RefusedError{Code: "other_cluster", Detail: fmt.Sprintf("%s belongs to cluster %s, and %s, at %s, to cluster %s: a member joins with an empty directory", here.Name, here.ClusterID, there.Name, seed, there.ClusterID)}
	}
	return nil
}

// find waits a little for a member that is just being started.
func (o *joinOptions) find(ctx context.Context, c localMember) (api.LocalStatus, error) {
	p := progress{io: o.IO, prefix: "waiting for the member on this machine", start: time.Now()}
	defer p.end()
	ctx, cancel := context.WithTimeout(ctx, min(startsWithin, o.Stall))
	defer cancel()
	for {
		s, _, err := c.LocalStatus(ctx)
		if err == nil || !client.Transient(err) {
			return s, err
		}
		p.tell("it does not answer yet")
		select {
		case <-ctx.Done():
			return s, err
		case <-time.After(joinPoll):
		}
	}
}

// invite tells the member whom to ask. One that was started with seeds need not be told others.
func (o *joinOptions) invite(ctx context.Context, c localMember, s api.LocalStatus) error {
	if len(o.Seeds) == 0 {
		if s.Phase == api.PhaseJoining && s.ID != "" {
			return nil // it was admitted before
		}
		return &ctl.UsageError{Code: "bad_argument", Detail: "--seed is missing: the URL of any member of the cluster", Try: []string{"tidalctl join --seed http://10.0.0.1:9501"}}
	}
	summary := fmt.Sprintf("%s joins the cluster of %s, as a learner that becomes a voter by itself. To undo: tidalctl members remove %[1]s", s.Name, strings.Join(o.Seeds, ", "))
	if err := o.Confirm(ctx, o.Yes, "Join?", ctl.Lines(summary)); err != nil {
		return err
	}
	_, _, err := c.Invite(ctx, api.SeedRequest{Seeds: o.Seeds, Rejoin: o.Rejoin})
	return err
}

// watch tells how far the member is until it votes.
func (o *joinOptions) watch(ctx context.Context, c localMember, name string, start time.Time) error {
	p := progress{io: o.IO, prefix: "joining " + name, start: start}
	defer p.end()
	last := joinAnswer{Phase: "nothing", Detail: name + " does not answer"}
	moved := time.Now()
	for {
		s, _, err := c.LocalStatus(ctx)
		switch {
		case ctx.Err() != nil:
			p.end()
			fmt.Fprintf(o.IO.Err, "stopped watching; %s goes on joining: tidalctl join\n", name)
			return ctl.Doubtful("it is not known whether "+name+" joined", context.Cause(ctx), "tidalctl join")
		case err != nil && !client.Transient(err):
			return ctl.Failed("the join of "+name+" is not watched any more", err)
		case err != nil:
			p.tell("it does not answer")
		default:
			a := joinStep(s)
			if a.Phase != last.Phase || a.Detail != last.Detail {
				last, moved = a, time.Now()
			}
			if a.Phase == joinDone {
				p.end()
				a.TookMS = time.Since(start).Milliseconds()
				return o.Out.Print(joinDocument(a))
			}
			p.tell(a.Phase + ": " + a.Detail)
		}
		stalled := time.Since(moved) > o.Stall
		if stalled || o.Timeout > 0 && time.Since(start) > o.Timeout {
			late := &ctl.TimeoutError{After: o.Timeout, Last: last.Phase + ": " + last.Detail}
			if stalled {
				late.After = o.Stall
			}
			return ctl.Doubtful(name+" has not joined, and goes on trying", late, "tidalctl why "+name, "tidalctl join")
		}
		select {
		case <-ctx.Done():
		case <-time.After(joinPoll):
		}
	}
}

// joinDone is the last phase.
const joinDone = "done"

// joinStep says how far a member is on its way to be a voter.
func joinStep(s api.LocalStatus) joinAnswer {
	a := joinAnswer{Name: s.Name, ID: s.ID, ClusterID: s.ClusterID}
	var g api.GroupStatus
	if len(s.Groups) > 0 {
		g = s.Groups[0]
	}
	a.Role = g.Role
	switch {
	case s.Phase != api.PhaseServing && g.Install != nil:
		a.Phase, a.Detail = "2/4 snapshot", installText(*g.Install)
	case s.Phase != api.PhaseServing && s.ID != "":
		a.Phase, a.Detail = "2/4 snapshot", notReady(s)
	case s.Phase != api.PhaseServing:
		a.Phase, a.Detail = "1/4 admit", notReady(s)
	case g.Quarantine != nil:
		a.Phase, a.Detail = "3/4 catch up", "the replica is quarantined: "+g.Quarantine.Detail
	case g.LeaderLast == nil:
		a.Phase, a.Detail = "3/4 catch up", "no leader was heard yet"
	case a.Role == api.RoleVoter:
		a.Phase, a.Detail = joinDone, fmt.Sprintf("%s votes as member %s", s.Name, s.ID)
	case *g.LeaderLast > g.AppliedIndex:
		a.Phase, a.Detail = "3/4 catch up", fmt.Sprintf("%s entries behind", words.Count(*g.LeaderLast-g.AppliedIndex))
	default:
		a.Phase, a.Detail = "4/4 promote", "the leader makes it a voter in a moment"
	}
	return a
}

// notReady is what a member says of itself that does not serve.
func notReady(s api.LocalStatus) string {
	for _, c := range s.Checks[min(1, len(s.Checks)):] { // the first says that it has not joined
		if !c.OK && c.Detail != "" {
			return c.Detail
		}
	}
	return s.Phase
}

// installText says how much of an artifact has arrived, by tenths, and how long the rest takes.
func installText(i api.Install) string {
	if i.Total == 0 {
		return "asks for it"
	}
	text := fmt.Sprintf("%d%% of %.1f MiB", i.Bytes*10/i.Total*10, float64(i.Total)/(1<<20))
	if i.Rate > 0 {
		left := time.Duration(float64(i.Total-i.Bytes) / float64(i.Rate) * float64(time.Second))
		text += fmt.Sprintf(", %d MiB/s, eta %s", i.Rate>>20, words.Age(left))
	}
	return text
}

func joinDocument(a joinAnswer) output.Document {
	return output.Document{Kind: "join", Value: a, Names: []string{a.Name}, View: func(bool) output.View {
		t := output.Section{Columns: []output.Column{{Title: "member"}, {Title: "id"}, {Title: "role"}, {Title: "phase"}, {Title: "detail"}, {Title: "took"}}}
		t.Rows = [][]string{{a.Name, words.Or(a.ID), words.Or(a.Role), a.Phase, a.Detail, words.Age(time.Duration(a.TookMS) * time.Millisecond)}}
		return output.View{Sections: []output.Section{t}}
	}}
}
