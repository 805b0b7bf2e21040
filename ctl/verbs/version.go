package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/words"
)

// versionTimeout bounds the look at the members: the client's own version is what most ask for.
const versionTimeout = 2 * time.Second

type versionOptions struct {
	Client func() (statusReader, error)
	Err    io.Writer
	Out    *output.Printer

	Build api.VersionInfo
}

func newVersionCmd(f *ctl.Factory, runF func(context.Context, *versionOptions) error) *cobra.Command {
	o := &versionOptions{
		Client: func() (statusReader, error) { return f.Client(f.Timeout(versionTimeout)) },
		Err:    f.IO.Err, Build: f.Build,
	}
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of tidalctl and of every member",
		Long: `Show the version of tidalctl and, where an endpoint answers, of every member.
It works without a cluster.`,
		Example:     "  tidalctl version\n  tidalctl version -o 'template={{.client.version}}'",
		GroupID:     ctl.GroupClient,
		Annotations: ctl.ImpactRead.Annotation(),
		Args:        cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = f.Printer()
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runVersion(cmd.Context(), o)
		},
	}
}

// versionAnswer is what the binary says of itself, and the members of themselves.
type versionAnswer struct {
	Client  api.VersionInfo `json:"client"`
	Members []memberVersion `json:"members"` // null: nobody answered
}

type memberVersion struct {
	Name    string  `json:"name"`
	Version *string `json:"version"` // null: it did not answer
}

func runVersion(ctx context.Context, o *versionOptions) error {
	c, err := o.Client()
	if err != nil {
		return ctl.Failed("the versions were not read", err)
	}
	a := versionAnswer{Client: o.Build}
	s, _, err := c.Status(ctx)
	switch e, dead := errors.AsType[*client.UnreachableError](err); {
	case err == nil:
		a.Members = make([]memberVersion, len(s.Regions))
		for i, r := range s.Regions {
			a.Members[i] = memberVersion{r.Name, r.Version}
		}
	case dead:
		fmt.Fprintf(o.Err, "no endpoint answered, of %d: the members' versions are not known\n", len(e.Tried))
	case ctx.Err() != nil:
		return ctl.Failed("the versions were not read", context.Cause(ctx))
	default:
		fmt.Fprintf(o.Err, "the members' versions are not known: %s\n", words.Clean(err.Error(), true))
	}
	return o.Out.Print(versionDocument(a))
}

func versionDocument(a versionAnswer) output.Document {
	return output.Document{Kind: "version", Value: a, Names: []string{a.Client.Version}, View: func(bool) output.View {
		table := output.Section{
			Columns: []output.Column{{Title: "program"}, {Title: "version"}, {Title: "commit"}, {Title: "go"}},
			Rows:    [][]string{{"tidalctl", words.Or(a.Client.Version), words.Or(a.Client.Commit), words.Or(a.Client.Go)}},
		}
		for _, m := range a.Members {
			table.Rows = append(table.Rows, []string{m.Name, orUnknown(m.Version), "", ""})
		}
		return output.View{Sections: []output.Section{table}}
	}}
}
