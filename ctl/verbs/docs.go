package verbs

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
)

// newDocsCmd makes what packagers need; the help does not list it.
func newDocsCmd(f *ctl.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:         "docs",
		Short:       "Write documents for packages",
		Example:     "  tidalctl docs man --dir man",
		GroupID:     ctl.GroupClient,
		Annotations: ctl.ImpactRead.Annotation(),
		Hidden:      true,
	}
	cmd.AddCommand(newManCmd(f))
	return cmd
}

func newManCmd(f *ctl.Factory) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "man --dir DIR",
		Short: "Write the manual pages",
		Long: `Write the manual pages of tidalctl into a directory, which is made if there is none. Their
text is that of the help.`,
		Example:     "  tidalctl docs man --dir man",
		Annotations: ctl.ImpactRead.Annotation(),
		Args:        cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return &ctl.UsageError{Code: "bad_argument", Detail: "--dir is missing", Try: []string{"tidalctl docs man --dir man"}}
			}
			pages := ctl.ManPages(cmd.Root(), f.Build.Version)
			if err := writePages(dir, pages); err != nil {
				return ctl.Failed("the manual was not written", err)
			}
			fmt.Fprintf(f.IO.Err, "%d pages in %s\n", len(pages), dir)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "into this `directory` (required)")
	if err := cmd.MarkFlagDirname("dir"); err != nil {
		panic(err) // the flag was defined just above
	}
	return cmd
}

func writePages(dir string, pages []ctl.ManPage) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, p := range pages {
		if err := os.WriteFile(filepath.Join(dir, p.File), []byte(p.Text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
