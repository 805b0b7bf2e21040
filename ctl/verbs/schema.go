package verbs

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/bench"
	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/ctl/schema"
	"github.com/tidaldb/tidal/daemon/api"
)

// documentKind is one row of the table of documents that tidalctl prints.
type documentKind struct {
	Kind  string
	Means string
	Value any // its Go type
}

// documentKinds returns the whole table. A document of another kind must not be printed.
func documentKinds() []documentKind {
	return []documentKind{
		{"status", "The cluster as one member sees it: status, top --once.", api.Status{}},
		{"members", "The members as the log has them: members list.", membersAnswer{}},
		{"member", "One member, as the log has it and how it is doing: members show.", memberAnswer{}},
		{"events", "One event, a line each: events.", seenEvent{}},
		{"wait", "A condition that came to hold: wait.", waitAnswer{}},
		{"promote", "A change of leader, or what it would take: promote, leader transfer.", promotedAnswer{}},
		{"partition", "A cut between members, or what it would take: partition.", partitionedAnswer{}},
		{"heal", "Faults that were ended: heal.", healedAnswer{}},
		{"faults", "The faults in force: faults list.", faultsAnswer{}},
		{"operations", "The changes that members remember: ops list.", operationsAnswer{}},
		{"reseed", "A member whose data was replaced, or what it would take: reseed.", reseedAnswer{}},
		{"verify", "What the states of the members add up to: verify.", verifyAnswer{}},
		{"quarantine", "Replicas in quarantine, and the data that is kept: quarantine show.", quarantineAnswer{}},
		{"cleared", "Kept data that was removed: quarantine clear.", clearedAnswer{}},
		{"member-change", "A change of the membership, or what it would take: members promote, remove, replace.", memberChangeAnswer{}},
		{"join", "A member that joined, or is on its way: join.", joinAnswer{}},
		{"why", "The gates that hold a member back: why.", whyAnswer{}},
		{"history", "Changes of leadership and membership: history.", historyAnswer{}},
		{"reconcile", "An exchange of writes that wait for a leader, or what it would bring: reconcile.", reconciledAnswer{}},
		{"operation", "What became of a change: ops show, ops wait, promote --no-wait.", api.Operation{}},
		{"recover-plan", "How to go on with what is left of a cluster: recover plan.", planAnswer{}},
		{"recovered", "What a recovery did: recover apply.", api.RecoverAnswer{}},
		{"bench", "What a load found: bench.", bench.Report{}},
		{"version", "The versions of tidalctl and of the members: version.", versionAnswer{}},
		{"explanation", "What a code means: explain CODE.", api.Explanation{}},
		{"explanations", "What all codes mean: explain.", explanationsAnswer{}},
		{"schemas", "The kinds of documents: schema.", schemasAnswer{}},
		{"error", "Why a command failed, one line on stderr: every command with -o json.", ctl.ErrorDocument{}},
	}
}

type schemaOptions struct {
	Out  *output.Printer
	Kind string // empty: list them
}

func newSchemaCmd(f *ctl.Factory, runF func(context.Context, *schemaOptions) error) *cobra.Command {
	o := &schemaOptions{}
	var kinds []string
	for _, k := range documentKinds() {
		kinds = append(kinds, cobra.CompletionWithDesc(k.Kind, k.Means))
	}
	return &cobra.Command{
		Use:   "schema [KIND]",
		Short: "Print the JSON Schema of a kind of document",
		Long: `Print the JSON Schema of a kind of document, or list the kinds. Every document that
-o json prints begins with the name of its schema. Within a version fields are only added,
and the words of an enumeration may become more; a reader must not refuse what it does
not know.`,
		Example:           "  tidalctl schema\n  tidalctl schema status > status.schema.json",
		GroupID:           ctl.GroupClient,
		Annotations:       ctl.ImpactRead.Annotation(),
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(kinds, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Out, o.Kind = f.Printer(), ""
			if len(args) > 0 {
				o.Kind = args[0]
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runSchema(o)
		},
	}
}

// schemasAnswer lists the kinds.
type schemasAnswer struct {
	Schemas []schemaRow `json:"schemas"`
}

type schemaRow struct {
	Kind  string `json:"kind"`
	ID    string `json:"id"` // the first field of a document of the kind
	Means string `json:"means"`
}

func runSchema(o *schemaOptions) error {
	if o.Kind == "" {
		return o.Out.Print(schemasDocument())
	}
	kinds := documentKinds()
	i := slices.IndexFunc(kinds, func(k documentKind) bool { return k.Kind == o.Kind || output.Schema(k.Kind) == o.Kind })
	if i < 0 {
		names := schemasDocument().Names
		return ctl.Failed("no schema was printed", &ctl.NotFoundError{
			Kind: "schema", Name: o.Kind, Nearest: output.Nearest(o.Kind, names), Try: []string{"tidalctl schema"},
		})
	}
	if o.Out.Format.Name == output.Table || o.Out.Format.Name == output.Wide {
		o.Out.Format.Name = output.JSON // there is no table of it
	}
	k := kinds[i]
	id := output.Schema(k.Kind)
	return o.Out.Print(output.Document{Value: schema.Document(id, k.Means, k.Value), Names: []string{id}})
}

func schemasDocument() output.Document {
	var a schemasAnswer
	var names []string
	for _, k := range documentKinds() {
		a.Schemas = append(a.Schemas, schemaRow{k.Kind, output.Schema(k.Kind), k.Means})
		names = append(names, k.Kind)
	}
	return output.Document{Kind: "schemas", Value: a, Names: names, View: func(bool) output.View {
		table := output.Section{Columns: []output.Column{{Title: "kind"}, {Title: "schema"}, {Title: "means"}}}
		for _, row := range a.Schemas {
			table.Rows = append(table.Rows, []string{row.Kind, row.ID, row.Means})
		}
		return output.View{Sections: []output.Section{table}}
	}}
}
