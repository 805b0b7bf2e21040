package ctl

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/daemon/api"
)

// help prints the help of cmd to Out: it was asked for, so it is data. cobra would need SetOut for
// that, which moves its own notices into the data of every command.
func (f *Factory) help(cmd *cobra.Command, _ []string) {
	io.WriteString(f.IO.Out, helpText(cmd))
}

func helpText(cmd *cobra.Command) string {
	long := cmd.Long
	if long == "" {
		long = cmd.Short + "."
	}
	if isTopic(cmd) {
		return long + "\n"
	}
	text := strings.TrimRight(long, "\n") + "\n\n" + strings.TrimRight(cmd.UsageString(), "\n") + "\n"
	if !cmd.HasParent() {
		return text + "\nTopics: tidalctl help " + strings.Join(topicNames(), "|") + "\n"
	}
	if i, ok := ImpactOf(cmd); ok && cmd.Runnable() && !cmd.HasSubCommands() {
		text += "\nImpact: " + string(i) + "\n"
	}
	return text
}

// topic is a page of help that belongs to no command.
type topic struct {
	name, short string
	text        func() string
}

func topics() []topic {
	return []topic{
		{"exit-codes", "What each exit code means", exitCodesText},
		{"environment", "The variables that tidalctl reads", environmentText},
		{"formatting", "Formats, colour and what scripts may rely on", formattingText},
		{"safety", "What a command may do, what it asks and what it leaves", safetyText},
		{"schemas", "The shape of documents, and what may change in it", schemasText},
	}
}

func topicNames() []string {
	var names []string
	for _, t := range topics() {
		names = append(names, t.name)
	}
	return names
}

// topicKey marks a page of help; its value is not used.
const topicKey = "topic"

func isTopic(cmd *cobra.Command) bool {
	_, ok := cmd.Annotations[topicKey]
	return ok
}

// newHelpCmd returns the help command: of a command, or of a topic.
func newHelpCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:         "help [COMMAND | TOPIC]",
		Short:       "Help about a command or a topic",
		Example:     "  tidalctl help members list\n  tidalctl help exit-codes",
		GroupID:     GroupClient,
		Annotations: ImpactRead.Annotation(),
		Args: func(cmd *cobra.Command, args []string) error {
			_, err := helpTarget(cmd, args)
			return err
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := helpTarget(cmd, args)
			if err != nil {
				return err
			}
			target.InitDefaultHelpFlag()
			return target.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			target, err := helpTarget(cmd, args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return subcommands(target), cobra.ShellCompDirectiveNoFileComp
		},
	}
	for _, t := range topics() {
		annotations := ImpactRead.Annotation()
		annotations[topicKey] = ""
		cmd.AddCommand(&cobra.Command{
			Use: t.name, Short: t.short, Long: t.text(), Annotations: annotations,
			RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		})
	}
	return cmd
}

// helpTarget returns the command that args name, of the whole tree.
func helpTarget(help *cobra.Command, args []string) (*cobra.Command, error) {
	target := help.Root()
	for _, name := range args {
		var next *cobra.Command
		for _, sub := range target.Commands() {
			if sub.Name() == name || sub.HasAlias(name) {
				next = sub
			}
		}
		if next == nil {
			return nil, noSuchCommand(target, []string{name})
		}
		target = next
	}
	return target, nil
}

func exitCodesText() string {
	var b strings.Builder
	b.WriteString(`Exit codes are classes of outcome, the same for every command. A code that a script
does not know is a failure. The class also stands in the brackets of an error and
in its JSON.

  CODE  CLASS               MEANS
`)
	for _, c := range ExitClasses() {
		fmt.Fprintf(&b, "  %4d  %-18s  %s\n", c.Code, c.Class, c.Means)
	}
	b.WriteString("\nThe codes of a member's refusals, by the exit code that they give:\n\n")
	for _, c := range ExitClasses() {
		line := fmt.Sprintf("  %4d ", c.Code)
		for _, spec := range api.Codes() {
			if spec.Exit != c.Code {
				continue
			}
			if len(line)+len(spec.Code) > 80 {
				b.WriteString(line + "\n")
				line = "       "
			}
			line += " " + string(spec.Code)
		}
		if line = strings.TrimRight(line, " "); len(line) > len("  nnnn") {
			b.WriteString(line + "\n")
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

func environmentText() string {
	return `tidalctl reads these variables. A flag wins over its variable.

  ` + envEndpoints + `   URLs of members, separated by commas, where --endpoint is not given.
                       Default: ` + strings.Join(defaultEndpoints(), ",\n                       ") + `
                       (the cluster of "tidald dev")
  ` + envTokenFile + `  file with the key of the cluster; it never stands in a flag
  ` + envCAFile + `     authorities of the cluster's certificates, PEM; default: the system's
  ` + envCertFile + `, ` + envKeyFile + `
                       certificate and key to show to a cluster that asks for them
  ` + envNoInput + `    any value: never ask (CI is the same); a change needs --yes then
  NO_COLOR             any value: no colour
  FORCE_COLOR          colour even in a pipe; 0 or false: none. CLICOLOR_FORCE is the same
  CLICOLOR, TERM       CLICOLOR=0 and TERM=dumb: no colour
  LC_ALL, LC_CTYPE, LANG
                       a locale that is not UTF-8, or is Chinese, Japanese or Korean: --ascii
  XDG_STATE_HOME       where the report of a bug in tidalctl is written
  XDG_CACHE_HOME       where completion keeps the members for ten seconds
  HTTP_PROXY, HTTPS_PROXY, NO_PROXY
                       as usual`
}

func formattingText() string {
	return `-o takes one of ` + strings.Join(output.Formats(), ", ") + `.

  table, wide   for people: health first, then a row for every member that is known, whether
                it answered or not. "?" is what is not known, "<=125" the worst case of a lag.
                Columns may change; in a pipe nothing is cut and nothing coloured.
  json, yaml    for scripts: one document that begins with its schema, "tidalctl.status/v1".
                Within a version fields are only added. Not known is null. Ids are strings, times
                RFC 3339 in UTC, durations end in _ms, sizes in _bytes.
  name          the names, one a line
  template=…    a Go template over the JSON document:
                  tidalctl status -o 'template={{.leader}} {{.term}}'
                "json" prints a part as JSON: {{json .regions}}

Data goes to stdout, words to stderr. With -o json an error is one line of JSON on stderr with the
schema "tidalctl.error/v1".`
}

func safetyText() string {
	return `The help of a command names its impact.

  read     changes nothing
  change   can be undone: asks y/N; --yes answers, and does nothing else
  destroy  cannot be undone: asks for the name of its target; --confirm=NAME answers
  fault    breaks something on purpose, for a time

Without a terminal, and where the answer is not on the line, nothing is done and the exit code
is 64: no command waits for somebody who is not there. The member that carries a change out
checks first; --dry-run shows its checks and changes nothing. A check that says no is exit 6.

An error says what state it leaves: nothing changed; changed, but; or unknown. Unknown (exit 9)
means that the request was sent and its answer lost. A change has an id by which it can be asked
for, so it is looked up before it is called unknown, and is never done twice.

No command sends anything to anybody but the members. A key stands in a file, never on the line,
and is never printed.`
}

func schemasText() string {
	return `Every document that -o json and -o yaml print begins with the name of its schema,
"tidalctl.status/v1". "tidalctl schema" lists them; "tidalctl schema status" prints one as a
JSON Schema (draft 2020-12), which validators read.

  v1 promises   a field that is there stays, with its name, its type and its meaning
  v1 may gain   fields; words in an enumeration (a level, a code, a kind, a role)
  null          means that it is not known. A field that may be null is not 0 instead

Where one command prints many documents (events, status --watch), there is one a line. With
-o json an error is one line on stderr: "tidalctl schema error".`
}
