package verbs

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
)

// Shells lists the shells that there are completions for.
func Shells() []string { return []string{"bash", "zsh", "fish", "powershell"} }

func newCompletionCmd(f *ctl.Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "completion " + strings.Join(Shells(), "|"),
		Short: "Print the completion script for a shell",
		Long: `Print the completion script for a shell.

bash needs the package bash-completion. To complete in every new shell:

  bash        tidalctl completion bash > ~/.local/share/bash-completion/completions/tidalctl
  zsh         tidalctl completion zsh > "${fpath[1]}/_tidalctl"
  fish        tidalctl completion fish > ~/.config/fish/completions/tidalctl.fish
  powershell  tidalctl completion powershell >> $PROFILE`,
		Example:     "  source <(tidalctl completion bash)",
		GroupID:     ctl.GroupClient,
		Annotations: ctl.ImpactRead.Annotation(),
		ValidArgs:   Shells(),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("name one shell: %s", strings.Join(Shells(), ", "))
			}
			if err := cobra.OnlyValidArgs(cmd, args); err != nil {
				return fmt.Errorf("no completion for %q; there is one for %s", args[0], strings.Join(Shells(), ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return WriteCompletion(cmd.Root(), args[0], f.IO.Out)
		},
	}
}

// WriteCompletion writes the completion script of root for one of Shells.
func WriteCompletion(root *cobra.Command, shell string, w io.Writer) error {
	switch shell {
	case "bash":
		return root.GenBashCompletionV2(w, true)
	case "zsh":
		return root.GenZshCompletion(w)
	case "fish":
		return root.GenFishCompletion(w, true)
	case "powershell":
		return root.GenPowerShellCompletionWithDesc(w)
	}
	return fmt.Errorf("no completion for %q", shell)
}
