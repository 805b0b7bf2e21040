package verbs

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/viewmodel"
	"github.com/tidaldb/tidal/tui/words"
)

// completionBudget is what a completion may take: nobody waits longer for a Tab.
const completionBudget = 300 * time.Millisecond

// fit says whether a member is to be offered, and what is said of it.
type fit func(completionMember) (description string, ok bool)

// completionMember is a member as a completion knows it.
type completionMember struct {
	api.Region
	asked bool // false: its name and role alone are known
}

// anyMember fits wherever a member is only looked at.
func anyMember(m completionMember) (string, bool) {
	if !m.asked {
		return viewmodel.Role(m.Region), true
	}
	return viewmodel.Role(m.Region) + ", " + stateOf(m.Region), true
}

// nextLeader fits where leadership is moved: a voter that does not lead and, as far as is known, could.
func nextLeader(m completionMember) (string, bool) {
	if m.Role != api.RoleVoter || m.IsLeader {
		return "", false
	}
	if !m.asked {
		return "voter", true
	}
	lag := "lag " + words.CountOf(m.LagEvents)
	if m.AgeMS != nil {
		lag += ", heard the leader " + words.AgeOf(m.AgeMS) + " ago"
	}
	return lag, m.Reachable && !m.Partitioned && m.Quarantine == nil
}

// completeMembers offers every member.
func completeMembers(f *ctl.Factory) cobra.CompletionFunc { return completeFitting(f, anyMember) }

// completeNextLeader offers the members that leadership may be moved to.
func completeNextLeader(f *ctl.Factory) cobra.CompletionFunc { return completeFitting(f, nextLeader) }

// completeFitting offers the members that fit and do not stand on the line yet, as many as the command
// takes. It is silent on any failure.
func completeFitting(f *ctl.Factory, fits fit) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const directive = cobra.ShellCompDirectiveNoFileComp
		if cmd.Args != nil && cmd.Args(cmd, append(slices.Clone(args), "")) != nil {
			return nil, directive // it takes no more
		}
		var names []cobra.Completion
		for _, m := range completionMembers(cmd.Context(), f) {
			if description, ok := fits(m); ok && !slices.Contains(args, m.Name) {
				names = append(names, cobra.CompletionWithDesc(m.Name, description))
			}
		}
		return names, directive
	}
}

// completionMembers asks for the members, within the budget. A member waits longer than that for
// others which are silent; then what was answered moments ago serves, or the roster, which is known to
// each; else there are none.
func completionMembers(ctx context.Context, f *ctl.Factory) []completionMember {
	c, err := f.Client(completionBudget)
	if err != nil {
		return nil
	}
	cache := newCompletionCache(f.Env, c.Endpoints())
	ctx, cancel := context.WithTimeout(ctx, completionBudget)
	defer cancel()
	var (
		roster api.Members
		asking sync.WaitGroup
	)
	asking.Go(func() { roster, _, _ = c.Members(ctx) }) // without an answer it is empty
	s, _, err := c.Status(ctx)
	asking.Wait()
	regions := s.Regions
	switch {
	case err == nil:
		cache.put(regions, time.Now())
	case client.Transient(err): // a wrong key stays wrong
		regions = cache.get(time.Now())
	}
	var members []completionMember
	for _, r := range regions {
		members = append(members, completionMember{r, true})
	}
	if len(members) > 0 {
		return members
	}
	for _, m := range roster.Roster.Members {
		leads := roster.Leader != nil && *roster.Leader == m.Name
		members = append(members, completionMember{Region: api.Region{Name: m.Name, Role: m.Role, IsLeader: leads}})
	}
	return members
}
