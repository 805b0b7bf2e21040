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

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/daemon/api"
)

// All returns every command below the root.
func All(f *ctl.Factory) []*cobra.Command {
	return []*cobra.Command{
		newStatusCmd(f, nil),
		newTopCmd(f, nil),
		newMembersCmd(f),
		newEventsCmd(f, nil),
		newWaitCmd(f, nil),
		newOpsCmd(f),
		newJoinCmd(f, nil),
		newWhyCmd(f, nil),
		newHistoryCmd(f, nil),
		newPromoteCmd(f, nil),
		newLeaderCmd(f),
		newPartitionCmd(f, nil),
		newHealCmd(f, nil),
		newFaultsCmd(f),
		newRecoverCmd(f),
		newReseedCmd(f, nil),
		newVerifyCmd(f, nil),
		newQuarantineCmd(f),
		newReconcileCmd(f, nil),
		newBenchCmd(f, nil),
		newVersionCmd(f, nil),
		newExplainCmd(f, nil),
		newSchemaCmd(f, nil),
		newCompletionCmd(f),
		newDocsCmd(f),
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
