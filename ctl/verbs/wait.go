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
	"github.com/tidaldb/tidal/ctl/iostreams"
	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/viewmodel"
	"github.com/tidaldb/tidal/tui/words"
)

const (
	// waitTimeout bounds a wait where --timeout is not given.
	waitTimeout = time.Minute

	// pollInterval is the pause between two looks.
	pollInterval = 250 * time.Millisecond

	// stillWaiting is how often progress is told where nothing changes.
	stillWaiting = 30 * time.Second
)

type waitOptions struct {
	Client func() (statusReader, error)
	IO     *iostreams.Streams
	Out    *output.Printer

	For     condition
	Timeout time.Duration
}

func newWaitCmd(f *ctl.Factory, runF func(context.Context, *waitOptions) error) *cobra.Command {
	o := &waitOptions{Client: func() (statusReader, error) { return f.Client(client.ReadTimeout) }, IO: f.IO}
	var what string
	cmd := &cobra.Command{
		Use:   "wait --for=CONDITION",
		Short: "Wait until the cluster is as wanted",
		Long: `Wait until the cluster is as wanted, also while nobody answers yet.

  --for=leader            one leader, on which all that answer agree
  --for=healthy           health is ok
  --for=member=NAME:ROLE  the member is voter, learner, leader or removed; it need not exist yet

Progress goes to stderr. Exit 0 when the condition holds, 124 when the time ran out.`,
		Example: `  tidalctl wait --for=healthy --timeout 2m
  tidalctl wait --for=member=us-east:voter`,
		GroupID:     ctl.GroupRead,
		Annotations: ctl.ImpactRead.Annotation(),
		Args:        cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.For, err = parseCondition(what); err != nil {
				return err
			}
			o.Out, o.Timeout = f.Printer(), f.Timeout(waitTimeout)
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runWait(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&what, "for", "", "`condition`: leader | healthy | member=NAME:ROLE (required)")
	if err := cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]cobra.Completion{"leader", "healthy", "member="}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace)); err != nil {
		panic(err) // the flag was defined two lines above
	}
	return cmd
}

// condition is what is waited for.
type condition struct {
	Kind string // leader, healthy, member
	Name string // of the member
	Role string // voter, learner, leader, removed
}

func (c condition) String() string {
	if c.Kind == "member" {
		return "member=" + c.Name + ":" + c.Role
	}
	return c.Kind
}

func parseCondition(s string) (condition, error) {
	bad := func(detail string) (condition, error) {
		return condition{}, &ctl.UsageError{Code: "bad_argument", Detail: detail, Try: []string{"tidalctl wait --for=healthy", "tidalctl wait --for=member=us-east:voter"}}
	}
	kind, rest, _ := strings.Cut(s, "=")
	switch {
	case s == "":
		return bad("--for is missing: want leader, healthy or member=NAME:ROLE")
	case s == "leader", s == "healthy":
		return condition{Kind: s}, nil
	case kind != "member":
		return bad(fmt.Sprintf("--for %q: want leader, healthy or member=NAME:ROLE", s))
	}
	roles := []string{api.RoleVoter, api.RoleLearner, api.RoleRemoved, "leader"}
	i := strings.LastIndexByte(rest, ':')
	if i <= 0 || !slices.Contains(roles, rest[i+1:]) {
		return bad(fmt.Sprintf("--for %q: want member=NAME:ROLE with one of %s", s, strings.Join(roles, ", ")))
	}
	return condition{Kind: "member", Name: rest[:i], Role: rest[i+1:]}, nil
}

// met reports whether c holds in s, with what was seen in either case.
func (c condition) met(s api.Status) (bool, string) {
	switch c.Kind {
	case "leader":
		if !s.Consistent {
			return false, "members disagree about the leader"
		}
		if s.Leader == nil {
			return false, "no leader, " + headlineOf(s.Quorum)
		}
		return true, "leader " + *s.Leader
	case "healthy":
		seen := words.Or(s.Health.Level) + ", " + headlineOf(s.Quorum)
		if lines := reasons(s.Health.Reasons); len(lines) > 0 {
			seen += " (" + strings.Join(lines, "; ") + ")"
		}
		return s.Health.Level == api.HealthOK, seen
	}
	i := slices.IndexFunc(s.Regions, func(r api.Region) bool { return r.Name == c.Name })
	if i < 0 {
		// A cluster that is not born yet, or is of two minds, does not know who was removed.
		return c.Role == api.RoleRemoved && s.ClusterID != "" && s.Leader != nil && s.Consistent, c.Name + " is no member"
	}
	r := s.Regions[i]
	seen := c.Name + " is " + viewmodel.Role(r)
	if c.Role == "leader" {
		return r.IsLeader && s.Consistent, seen
	}
	return r.Role == c.Role && s.Consistent, seen
}

// waitAnswer is printed once the condition holds.
type waitAnswer struct {
	Condition string  `json:"condition"`
	Met       bool    `json:"met"`
	Detail    string  `json:"detail"`
	WaitedMS  int64   `json:"waited_ms"`
	Observer  string  `json:"observer"`
	Leader    *string `json:"leader"`
	Term      uint64  `json:"term"`
}

// runWait polls until the condition holds. Answers of a term older than one already seen are not
// believed: they come from a member that was left behind.
func runWait(ctx context.Context, o *waitOptions) error {
	c, err := o.Client()
	if err != nil {
		return ctl.Failed("the wait did not begin", err)
	}
	start := time.Now()
	deadline, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	p := progress{io: o.IO, prefix: "waiting for " + o.For.String(), start: start}
	defer p.end()
	var newest uint64 // term
	const nothing = "nothing yet"
	last := nothing
	for {
		s, _, err := c.Status(deadline)
		switch {
		case ctx.Err() != nil:
			return ctl.Failed("stopped waiting for "+o.For.String(), context.Cause(ctx))
		case err != nil && !client.Transient(err):
			return ctl.Failed("the wait for "+o.For.String()+" ended", err)
		case err != nil:
			// A look that the end of the wait cut short says nothing of the cluster.
			if deadline.Err() == nil || last == nothing {
				last = err.Error()
			}
		case s.Term < newest:
			last = fmt.Sprintf("%s is in term %d, behind term %d", words.Or(s.Observer), s.Term, newest)
		default:
			newest = s.Term
			met, seen := o.For.met(s)
			if met {
				p.end()
				return o.Out.Print(waitDocument(waitAnswer{
					Condition: o.For.String(), Met: true, Detail: seen, WaitedMS: time.Since(start).Milliseconds(),
					Observer: s.Observer, Leader: s.Leader, Term: s.Term,
				}, s))
			}
			last = seen
		}
		p.tell(last)
		select {
		case <-deadline.Done():
			if ctx.Err() != nil {
				return ctl.Failed("stopped waiting for "+o.For.String(), context.Cause(ctx))
			}
			return ctl.Failed(o.For.String()+" did not come to hold", &ctl.TimeoutError{After: o.Timeout, Last: last, Try: []string{"tidalctl status"}})
		case <-time.After(pollInterval):
		}
	}
}

func waitDocument(a waitAnswer, s api.Status) output.Document {
	return output.Document{Kind: "wait", Value: a, Names: []string{a.Condition}, View: func(bool) output.View {
		return output.View{
			Level:    words.Or(s.Health.Level),
			Headline: headline(s.Quorum, s.Leader, s.Term),
			Notes:    []string{a.Condition + " holds after " + words.Age(time.Duration(a.WaitedMS)*time.Millisecond) + ": " + a.Detail},
		}
	}}
}

// progress tells on Err what a wait sees: one redrawn line on a terminal, else a line whenever
// something changed and at least every stillWaiting.
type progress struct {
	io     *iostreams.Streams
	prefix string
	start  time.Time

	last   string
	lastAt time.Time
	drawn  bool // a redrawn line stands unfinished
}

func (p *progress) tell(seen string) {
	now := time.Now()
	line := fmt.Sprintf("%s: %s (%s)", p.prefix, words.Clean(seen, true), words.Age(now.Sub(p.start)))
	if p.io.ErrTTY {
		if width := p.io.Width(); width > 0 && len(line) >= width { // a line that wraps cannot be redrawn
			line = line[:width-1]
		}
		fmt.Fprint(p.io.Err, "\r\x1b[K"+line)
		p.drawn = true
		return
	}
	if seen == p.last && now.Sub(p.lastAt) < stillWaiting {
		return
	}
	p.last, p.lastAt = seen, now
	fmt.Fprintln(p.io.Err, line)
}

// end finishes a redrawn line. It may be called twice.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprintln(p.io.Err)
		p.drawn = false
	}
}
