package ctl

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tidaldb/tidal/ctl/iostreams"
	"github.com/tidaldb/tidal/ctl/output"
)

// The groups of the help.
const (
	GroupRead   = "read"
	GroupChange = "change"
	GroupDrill  = "drill"
	GroupClient = "client"
)

// Verbs makes the commands below the root.
type Verbs func(*Factory) []*cobra.Command

// NewRoot returns the whole tree of commands.
func NewRoot(f *Factory, verbs Verbs) *cobra.Command {
	root := &cobra.Command{
		Use:   "tidalctl",
		Short: "Operate a Tidal cluster",
		Long: `Operate a Tidal cluster.

Any member answers for the whole cluster; tidalctl asks the first endpoint that
answers. Without --endpoint and ` + envEndpoints + ` it asks the members of the cluster
that "tidald dev" starts on this machine:
` + "  " + strings.Join(defaultEndpoints(), "\n  "),
		Example: `  tidalctl status
  tidalctl wait --for=healthy --timeout 2m
  tidalctl --endpoint http://db1:9501 --endpoint http://db2:9501 members list -o json`,
		Annotations:       ImpactRead.Annotation(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return f.checkFlags() },
	}
	root.CompletionOptions.DisableDefaultCmd = true // ctl/verbs has it, with the rules of a verb
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.AddGroup(&cobra.Group{ID: GroupRead, Title: "Read:"}, &cobra.Group{ID: GroupChange, Title: "Change:"}, &cobra.Group{ID: GroupDrill, Title: "Drill:"}, &cobra.Group{ID: GroupClient, Title: "Client:"})
	f.addFlags(root.PersistentFlags())
	completeFlag(root, "output", output.Table, output.Wide, output.JSON, output.YAML, output.Name)
	completeFlag(root, "color", iostreams.ColorAuto, iostreams.ColorAlways, iostreams.ColorNever)
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(f.help)
	root.SetHelpCommand(newHelpCmd())
	root.AddCommand(verbs(f)...)
	root.InitDefaultHelpCmd()
	strict(root)
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return root
}

func (f *Factory) addFlags(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringArrayVar(&f.flags.endpoints, "endpoint", nil, "ask the member at this `URL` (repeatable; default: $"+envEndpoints+", else the dev cluster)")
	flags.StringVarP(&f.flags.output, "output", "o", output.Table, "`format` of data: "+strings.Join(output.Formats(), "|"))
	flags.DurationVar(&f.flags.timeout, "timeout", 0, "give up after this long (default: reads 5s, wait 1m)")
	flags.StringVar(&f.flags.color, "color", iostreams.ColorAuto, "`when` to colour: auto|always|never")
	flags.BoolVar(&f.flags.ascii, "ascii", false, "escape what is not ASCII in text, as tables always do")
	flags.BoolVar(&f.flags.noHeaders, "no-headers", false, "leave the heads of tables out")
}

// completeFlag offers words for the value of a flag that cmd has.
func completeFlag(cmd *cobra.Command, flag string, words ...cobra.Completion) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag
	}
}

// checkFlags refuses common flags before any verb runs, and keeps the parsed format.
func (f *Factory) checkFlags() error {
	var err error
	if f.format, err = output.ParseFormat(f.flags.output); err != nil {
		return err
	}
	switch f.flags.color {
	case iostreams.ColorAuto, iostreams.ColorAlways, iostreams.ColorNever:
	default:
		return &UsageError{Code: "bad_argument", Detail: fmt.Sprintf("--color %q: want auto, always or never", f.flags.color)}
	}
	if f.flags.timeout < 0 {
		return &UsageError{Code: "bad_argument", Detail: fmt.Sprintf("--timeout %s: want a positive duration", f.flags.timeout)}
	}
	return nil
}

// strict makes every command below and including cmd refuse what it does not know: a group refuses
// an unknown sub-command, and to be called without one; a verb refuses arguments that it did not ask
// for. cobra alone prints help and exits 0.
func strict(cmd *cobra.Command) {
	switch {
	case cmd.HasSubCommands():
		if cmd.Args == nil {
			cmd.Args = noSuchCommand
		}
		if cmd.RunE == nil {
			cmd.RunE = func(cmd *cobra.Command, _ []string) error {
				return &UsageError{Code: "missing_command", Detail: cmd.CommandPath() + " needs a command: " + strings.Join(subcommands(cmd), ", "), Try: []string{cmd.CommandPath() + " --help"}}
			}
		}
	case cmd.Args == nil:
		cmd.Args = usageArgs(cobra.NoArgs)
	default:
		cmd.Args = usageArgs(cmd.Args)
	}
	for _, sub := range cmd.Commands() {
		strict(sub)
	}
}

// noSuchCommand accepts no argument: what cobra left of the line is a sub-command it does not know.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	e := &UsageError{Code: "unknown_command", Detail: fmt.Sprintf("%s has no command %q", cmd.CommandPath(), args[0])}
	names := output.Nearest(args[0], subcommands(cmd))
	if len(names) > 0 {
		e.Detail += "; close to it: " + strings.Join(names, ", ")
	}
	for _, name := range names {
		e.Try = append(e.Try, cmd.CommandPath()+" "+name)
	}
	e.Try = append(e.Try, cmd.CommandPath()+" --help")
	return e
}

func subcommands(cmd *cobra.Command) []string {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}

// usageArgs turns cobra's complaint about the number of arguments into a usage error.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if err == nil {
			return nil
		}
		if e, ok := errors.AsType[*UsageError](err); ok {
			return e
		}
		detail := err.Error()
		if strings.HasPrefix(detail, "accepts ") { // it counts; what is wanted has a name
			detail = fmt.Sprintf("want %s; arguments given: %d", strings.TrimSuffix(cmd.UseLine(), " [flags]"), len(args))
		}
		return &UsageError{Code: "bad_argument", Detail: detail, Try: []string{cmd.CommandPath() + " --help"}}
	}
}

// flagError turns pflag's complaint into a usage error, with the flags that are close.
func flagError(cmd *cobra.Command, err error) error {
	e := &UsageError{Code: "bad_flag", Detail: err.Error(), Try: []string{cmd.CommandPath() + " --help"}}
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		e.Detail = fmt.Sprintf("--%s %q: want %s", wrong.GetFlag().Name, wrong.GetValue(), wantOf(wrong.GetFlag().Value.Type()))
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		e.Code = "unknown_flag"
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := output.Nearest(unknown.GetSpecifiedName(), names); len(near) > 0 {
			e.Detail += "; close to it: --" + strings.Join(near, ", --")
		}
	}
	return e
}

// wantOf says what a flag of a type takes.
func wantOf(kind string) string {
	switch kind {
	case "duration":
		return "a time like 90s, 15m or 2h"
	case "int", "int64", "uint32", "uint64":
		return "a whole number"
	case "bool":
		return "true or false"
	}
	return "a " + kind
}
