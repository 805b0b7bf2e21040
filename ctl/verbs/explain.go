package verbs

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/daemon/api"
)

type explainOptions struct {
	Out  *output.Printer
	Code string // empty: list them
}

// explanationsAnswer lists what codes mean.
type explanationsAnswer struct {
	Explanations []api.Explanation `json:"explanations"`
}

// newExplainCmd makes `tidalctl explain [CODE]`.
func newExplainCmd(f *ctl.Factory, runF func(*explainOptions) error) *cobra.Command {
	o := &explainOptions{}
	var codes []string
	for _, x := range api.Explanations() {
		codes = append(codes, cobra.CompletionWithDesc(x.Code, x.Title))
	}
	return &cobra.Command{
		Use:   "explain [CODE]",
		Short: "Say what a code means and what can be done, or list the codes",
		Long: `Say what a code means and what can be done, or list the codes: those of errors, of quarantines, of
refusals between members, and of a tidald that does not start. No cluster is asked.`,
		Example:           "  tidalctl explain amnesia\n  tidalctl explain",
		GroupID:           ctl.GroupClient,
		Annotations:       ctl.ImpactRead.Annotation(),
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(codes, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(_ *cobra.Command, args []string) error {
			o.Out, o.Code = f.Printer(), ""
			if len(args) > 0 {
				o.Code = args[0]
			}
			if runF != nil {
				return runF(o)
			}
			return runExplain(o)
		},
	}
}

func runExplain(o *explainOptions) error {
	all := api.Explanations()
	if o.Code == "" {
		return o.Out.Print(explanationsDocument(all))
	}
	i := slices.IndexFunc(all, func(x api.Explanation) bool { return x.Code == o.Code })
	if i < 0 {
		var names []string
		for _, x := range all {
			names = append(names, x.Code)
		}
		return ctl.Failed("nothing was explained", &ctl.NotFoundError{
			Kind: "code", Name: o.Code, Nearest: output.Nearest(o.Code, names), Try: []string{"tidalctl explain"},
		})
	}
	return o.Out.Print(explanationDocument(all[i]))
}

func explanationsDocument(all []api.Explanation) output.Document {
	d := output.Document{Kind: "explanations", Value: explanationsAnswer{all}}
	for _, x := range all {
		d.Names = append(d.Names, x.Code)
	}
	d.View = func(bool) output.View {
		table := output.Section{Columns: []output.Column{{Title: "code"}, {Title: "about"}, {Title: "means"}}}
		for _, x := range all {
			table.Rows = append(table.Rows, []string{x.Code, strings.Join(x.About, ", "), x.Title})
		}
		return output.View{Sections: []output.Section{table}}
	}
	return d
}

func explanationDocument(x api.Explanation) output.Document {
	return output.Document{Kind: "explanation", Value: x, Names: []string{x.Code}, View: func(bool) output.View {
		v := output.View{Headline: x.Code + ": " + x.Title, Notes: wrap(x.Means, noteWidth)}
		for _, line := range x.Try {
			v.Notes = append(v.Notes, "  try  "+line)
		}
		return v
	}}
}

// noteWidth is how long a line of running text is at most, in characters.
const noteWidth = 96

// wrap breaks text between words.
func wrap(text string, width int) (lines []string) {
	var line strings.Builder
	for word := range strings.FieldsSeq(text) {
		if line.Len() > 0 && line.Len()+1+len(word) > width {
			lines = append(lines, line.String())
			line.Reset()
		}
		if line.Len() > 0 {
			line.WriteByte(' ')
		}
		line.WriteString(word)
	}
	if line.Len() > 0 {
		lines = append(lines, line.String())
	}
	return lines
}
