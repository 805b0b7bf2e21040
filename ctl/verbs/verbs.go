// Package verbs holds the commands of tidalctl, one file a verb.
//
// A verb is options, a constructor and a run: the constructor parses, the run asks the cluster through
// a small interface and hands a Document to the printer, so both are tested alone. What a Document
// shows is made by pure functions of api values. A verb prints data through its printer, progress to
// Err, and returns errors; it never chooses an exit code.
//
// Callers: cmd/tidalctl and completions, through All.
package verbs

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/viewmodel"
)

// All returns every command below the root.
func All(f *ctl.Factory) []*cobra.Command {
	return []*cobra.Command{
		newStatusCmd(f, nil),
		newTopCmd(f, nil),
		newMembersCmd(f),
		newWaitCmd(f, nil),
		newVersionCmd(f, nil),
		newCompletionCmd(f),
	}
}

// statusReader reads the cluster as one member sees it. *client.Client implements it.
type statusReader interface {
	Status(context.Context) (api.Status, client.Source, error)
}

// clusterReader reads the status and the roster. *client.Client implements it.
type clusterReader interface {
	statusReader
	Members(context.Context) (api.Members, client.Source, error)
}

// completionBudget is what a completion may take: nobody waits longer for a Tab.
const completionBudget = 300 * time.Millisecond

// completeMembers offers the names of the members, with role and state. It is silent on any failure.
func completeMembers(f *ctl.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := f.Client(completionBudget)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionBudget)
		defer cancel()
		s, _, err := c.Status(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []cobra.Completion
		for _, r := range s.Regions {
			names = append(names, cobra.CompletionWithDesc(r.Name, viewmodel.Role(r)+", "+stateOf(r)))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
