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
	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/words"
)

type eventsOptions struct {
	Client func() (eventsReader, error)
	Out    *output.Printer
	Report func(error) // what does not end the command

	Members []string          // empty: all, or those that After names
	After   map[string]string // event id by member
	Limit   int
	Since   time.Duration // 0: from ever
	Follow  bool
}

// eventsReader reads the events of each member. *client.Client implements it.
type eventsReader interface {
	Places(context.Context) ([]client.Place, error)
	Events(context.Context, client.Place, client.EventQuery) ([]api.Event, error)
	FollowEvents(ctx context.Context, p client.Place, q client.EventQuery, handle func(api.Event) error, lost func(error)) error
}

func newEventsCmd(f *ctl.Factory, runF func(context.Context, *eventsOptions) error) *cobra.Command {
	o := &eventsOptions{
		Client: func() (eventsReader, error) { return f.Client(f.Timeout(0)) },
		Report: func(err error) { f.Report(err, ctl.ImpactRead) },
	}
	var after []string
	cmd := &cobra.Command{
		Use:   "events [MEMBER...]",
		Short: "Show what the members saw happen",
		Long: `Show what the members saw happen: leaders, terms, peers, membership, starts and
stops, damage. Every member is asked for the newest of its own events; they are shown in
the order of their times, which are the members' own. What several members saw is one
line: "us-east +2" means that two more saw it.

An event is named MEMBER/ID, as -o name prints it. --after goes on behind it, with that
member alone. A member keeps its newest 4,096 events, and none of the time before it was
started: where there is a hole, an event of kind events_lost says so.

--follow goes on with what comes. A member that goes away is tried again, through every
endpoint that it has, and resumed behind the last event that came. Members that join later
are not followed. With -o json there is one event a line.`,
		Example: `  tidalctl events
  tidalctl events us-east --since 15m -o wide
  tidalctl events --follow -o json
  tidalctl events --after us-east/3-17`,
		GroupID:           ctl.GroupRead,
		Annotations:       ctl.ImpactRead.Annotation(),
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeMembers(f),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.Out, o.Members = f.Printer(), args
			o.Out.Compact = true
			if o.After, err = parseAfter(after, args); err != nil {
				return err
			}
			if err := o.check(); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runEvents(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.Follow, "follow", "f", false, "go on with what comes")
	flags.StringArrayVar(&after, "after", nil, "begin behind this `event`, MEMBER/ID (repeatable)")
	flags.IntVar(&o.Limit, "limit", api.DefaultEventsLimit, "at most this `many` of those that there are, the newest; 0 with --follow: none")
	flags.DurationVar(&o.Since, "since", 0, "only what is at most this `old`, as 15m")
	return cmd
}

func (o *eventsOptions) check() error {
	switch {
	case o.Limit < 0 || o.Limit > api.MaxEventsLimit:
		return badEvents("--limit %d: want 0 to %d", o.Limit, api.MaxEventsLimit)
	case o.Limit == 0 && !o.Follow:
		return badEvents("--limit 0 leaves nothing to show without --follow")
	case o.Since < 0:
		return badEvents("--since %s: want a positive duration", o.Since)
	}
	return nil
}

func badEvents(format string, args ...any) error {
	return &ctl.UsageError{Code: "bad_argument", Detail: fmt.Sprintf(format, args...), Try: []string{"tidalctl events --help"}}
}

// parseAfter reads the values of --after: MEMBER/ID, or the id alone where one member is named.
func parseAfter(values, members []string) (map[string]string, error) {
	after := map[string]string{}
	for _, v := range values {
		i := strings.LastIndexByte(v, '/')
		member, id := "", v[i+1:]
		switch {
		case i > 0:
			member = v[:i]
		case i < 0 && len(members) == 1:
			member = members[0]
		default:
			return nil, badEvents("--after %q: want MEMBER/ID, like us-east/3-17", v)
		}
		if _, twice := after[member]; twice {
			return nil, badEvents("--after names an event of %s twice", member)
		}
		if len(members) > 0 && !slices.Contains(members, member) {
			return nil, badEvents("--after %q: %s is not among the members to ask", v, member)
		}
		after[member] = id
	}
	return after, nil
}

const eventsNotRead = "the events were not read"

func runEvents(ctx context.Context, o *eventsOptions) error {
	c, err := o.Client()
	if err != nil {
		return ctl.Failed(eventsNotRead, err)
	}
	places, err := c.Places(ctx)
	if err != nil {
		return ctl.Failed(eventsNotRead, err)
	}
	if places, err = o.choose(places); err != nil {
		return ctl.Failed(eventsNotRead, err)
	}
	pages := o.read(ctx, c, places)
	if ctx.Err() != nil {
		return ctl.Failed(eventsNotRead, context.Cause(ctx))
	}
	began := time.Now()
	var events []api.Event
	failed := 0
	for i, p := range pages {
		events = append(events, p.events...)
		if p.err == nil {
			continue
		}
		if failed++; failed == len(pages) && !o.Follow {
			return ctl.Failed(eventsNotRead, p.err)
		}
		o.Report(ctl.Failed("the events of "+places[i].Member+" were not read", p.err))
	}
	shown := o.cut(events, began)
	if err := o.print(shown, places, began, true); err != nil {
		return err
	}
	switch {
	case o.Follow:
		return o.follow(ctx, c, places, pages, shown, began)
	case failed > 0 && o.named():
		return &ctl.ConditionError{Exit: ctl.ExitPartial}
	}
	return nil
}

// named reports whether the members to ask were chosen by the caller.
func (o *eventsOptions) named() bool { return len(o.Members)+len(o.After) > 0 }

// choose returns the members to ask.
func (o *eventsOptions) choose(places []client.Place) ([]client.Place, error) {
	if !o.named() {
		return places, nil
	}
	names := slices.Clone(o.Members)
	if len(names) == 0 {
		for name := range o.After {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var chosen []client.Place
	for _, name := range slices.Compact(names) {
		i := slices.IndexFunc(places, func(p client.Place) bool { return p.Member == name })
		if i < 0 {
			var all []string
			for _, p := range places {
				all = append(all, p.Member)
			}
			return nil, &ctl.NotFoundError{Kind: "member", Name: name, Nearest: output.Nearest(name, all), Try: []string{"tidalctl members list"}}
		}
		chosen = append(chosen, places[i])
	}
	return chosen, nil
}

// page is what one member had.
type page struct {
	events []api.Event
	last   string // the id to go on behind; empty: it did not answer, or has none
	err    error
}

// read asks all members at once.
func (o *eventsOptions) read(ctx context.Context, c eventsReader, places []client.Place) []page {
	pages := make([]page, len(places))
	var asked sync.WaitGroup
	for i, p := range places {
		asked.Go(func() {
			// At least one, to know where to go on; and all where only their age counts.
			q := client.EventQuery{After: o.After[p.Member], Limit: max(o.Limit, 1)}
			if o.Since > 0 && q.After == "" {
				q.Limit = api.MaxEventsLimit
			}
			events, err := c.Events(ctx, p, q)
			pages[i] = page{events: events, last: q.After, err: err}
			if len(events) > 0 {
				pages[i].last = events[len(events)-1].ID
			}
		})
	}
	asked.Wait()
	return pages
}

// cut orders the events by their times, folds those that tell the same, and leaves as many as are
// wanted: behind --after the first ones, else the newest.
func (o *eventsOptions) cut(events []api.Event, now time.Time) []seenEvent {
	slices.SortStableFunc(events, func(a, b api.Event) int { return a.At.Compare(b.At) })
	var all []seenEvent
	at := map[string]int{} // by fact
	for _, e := range events {
		if o.Since > 0 && e.At.Before(now.Add(-o.Since)) {
			continue
		}
		if i, known := at[e.Fact]; known && e.Fact != "" {
			if !slices.Contains(all[i].SeenBy, e.Member) {
				all[i].SeenBy = append(all[i].SeenBy, e.Member)
				continue
			}
		}
		at[e.Fact] = len(all)
		all = append(all, seenEvent{e, []string{e.Member}})
	}
	if len(o.After) > 0 {
		return all[:min(o.Limit, len(all))]
	}
	return all[max(0, len(all)-o.Limit):]
}

// seenEvent is an event with everybody who saw it.
type seenEvent struct {
	api.Event
	SeenBy []string `json:"seen_by"` // the member of the event first
}

// name is what --after takes.
func (e seenEvent) name() string { return e.Member + "/" + e.ID }

// print prints events: in a table together, else one document after the other.
func (o *eventsOptions) print(events []seenEvent, places []client.Place, now time.Time, heads bool) error {
	if f := o.Out.Format.Name; f == output.Table || f == output.Wide {
		if len(events) == 0 && !heads {
			return nil
		}
		p := *o.Out
		p.NoHeaders = p.NoHeaders || !heads
		return p.Print(output.Document{View: func(wide bool) output.View { return eventsView(events, places, now, wide) }})
	}
	for _, e := range events {
		if err := o.Out.Print(output.Document{Kind: "events", Value: e, Names: []string{e.name()}}); err != nil {
			return err
		}
	}
	return nil
}

// eventsView is a table whose columns stay where they are when it goes on row by row.
func eventsView(events []seenEvent, places []client.Place, now time.Time, wide bool) output.View {
	member := 0
	for _, p := range places {
		member = max(member, len(p.Member)+len(" +1"))
	}
	table := output.Section{Columns: []output.Column{{Title: "time", Min: len("15:04:05Z")}, {Title: "member", Min: member}, {Title: "kind", Min: len(api.Event{Kind: "peer_connected"}.Kind)}}}
	if wide {
		table.Columns = append(table.Columns, output.Column{Title: "level", Min: len("error")}, output.Column{Title: "id", Min: len("1-1000")})
	}
	table.Columns = append(table.Columns, output.Column{Title: "text"})
	for _, e := range events {
		who := e.Member
		if more := len(e.SeenBy) - 1; more > 0 {
			who += fmt.Sprintf(" +%d", more)
		}
		row := []string{eventTime(e.At, now), words.Or(who), words.Or(e.Kind)}
		if wide {
			row = append(row, words.Or(e.Level), words.Or(e.ID))
		}
		table.Rows = append(table.Rows, append(row, e.Text))
	}
	return output.View{Sections: []output.Section{table}}
}

// eventTime is the time of an event in UTC, with the date where it is not today's.
func eventTime(at, now time.Time) string {
	at, now = at.UTC(), now.UTC()
	if at.YearDay() == now.YearDay() && at.Year() == now.Year() {
		return at.Format("15:04:05Z")
	}
	return at.Format("2006-01-02 15:04:05Z")
}

// rememberedFacts bounds how many of the facts that were told are remembered while following: members
// tell the same within seconds of each other.
const rememberedFacts = 1024

// follow shows what comes until ctx ends. What one member told before, another one's event of the same
// fact does not tell again.
func (o *eventsOptions) follow(ctx context.Context, c eventsReader, places []client.Place, pages []page, shown []seenEvent, began time.Time) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel(nil)

	came := make(chan api.Event)
	lost := make(chan error)
	for i, p := range places {
		following.Go(func() {
			told := false // once a member is lost, until it speaks again
			tell := func(err error) {
				select {
				case lost <- ctl.Failed("the events of "+p.Member+" are not followed", err):
				case <-ctx.Done():
				}
			}
			q := client.EventQuery{After: pages[i].last, Limit: api.MaxEventsLimit}
			err := c.FollowEvents(ctx, p, q, func(e api.Event) error {
				told = false
				if pages[i].last == "" && e.At.Before(began.Add(-o.Since)) {
					return nil // of the time before this member could be asked
				}
				select {
				case came <- e:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}, func(err error) {
				if !told && pages[i].err == nil {
					tell(err)
				}
				told = true
			})
			if ctx.Err() == nil {
				tell(err)
			}
		})
	}
	var facts []string
	for _, e := range shown {
		facts = append(facts, e.Fact)
	}
	for {
		select {
		case <-ctx.Done():
			return ctl.Failed("the events are not followed any more", context.Cause(ctx))
		case err := <-lost:
			o.Report(err)
		case e := <-came:
			if e.Fact != "" {
				if slices.Contains(facts, e.Fact) {
					continue
				}
				facts = append(facts, e.Fact)
				facts = facts[max(0, len(facts)-rememberedFacts):]
			}
			if err := o.print([]seenEvent{{e, []string{e.Member}}}, places, time.Now(), false); err != nil {
				return err
			}
		}
	}
}
