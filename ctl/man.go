package ctl

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// ManPage is one page of the manual, section 1.
type ManPage struct {
	File string // "tidalctl-members.1"
	Text string // roff with the man macros
}

// ManPages makes the manual of a tree of commands: a page for the root, with every topic of the help,
// and one for each command below it, with what is below that. The text is that of the help, which is
// set by hand: it is shown as it stands.
func ManPages(root *cobra.Command, version string) []ManPage {
	var pages []ManPage
	for _, cmd := range append([]*cobra.Command{root}, root.Commands()...) {
		if cmd != root && (!cmd.IsAvailableCommand() || cmd.Name() == "help") {
			continue
		}
		m := &man{}
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
		m.line(`.TH %s 1 "" %s "Tidal"`, quote(strings.ToUpper(name)), quote("tidalctl "+version))
		m.section("NAME")
		m.line(`%s \- %s`, roff(name), roff(lowerFirst(cmd.Short)))
		m.command(cmd, m.section)
		if cmd == root {
			m.commands(root)
			for _, t := range topics() {
				m.section(manTitle(t))
				m.verbatim(t.text())
			}
		} else {
			for _, sub := range cmd.Commands() {
				if sub.IsAvailableCommand() {
					m.section(strings.ToUpper(sub.CommandPath()))
					m.command(sub, m.subsection)
				}
			}
			m.section("SEE ALSO")
			m.line(`\fBtidalctl\fR(1), for the options of every command, exit status and environment`)
		}
		pages = append(pages, ManPage{File: name + ".1", Text: m.b.String()})
	}
	return pages
}

// manTitle is the head of a topic's section; two of them have a name that every manual knows.
func manTitle(t topic) string {
	if t.name == "exit-codes" {
		return "EXIT STATUS"
	}
	return strings.ToUpper(t.name)
}

// man writes one page.
type man struct{ b strings.Builder }

func (m *man) line(format string, args ...any) {
	fmt.Fprintf(&m.b, format+"\n", args...)
}

func (m *man) section(title string)    { m.line(".SH %s", quote(title)) }
func (m *man) subsection(title string) { m.line(".SS %s", quote(title)) }

// command writes what the help of one command says, each part under a head.
func (m *man) command(cmd *cobra.Command, head func(string)) {
	head("SYNOPSIS")
	m.verbatim(cmd.UseLine())
	head("DESCRIPTION")
	long := cmd.Long
	if long == "" {
		long = cmd.Short + "."
	}
	m.verbatim(long)
	if i, ok := ImpactOf(cmd); ok && cmd.Runnable() && !cmd.HasSubCommands() {
		m.line(".P")
		m.line(`Impact: %s`, roff(string(i)))
	}
	flags := cmd.NonInheritedFlags()
	if flags.HasAvailableFlags() {
		head("OPTIONS")
		flags.VisitAll(m.flag)
	}
	if cmd.Example != "" {
		head("EXAMPLES")
		m.verbatim(cmd.Example)
	}
}

// commands lists what is below the root.
func (m *man) commands(root *cobra.Command) {
	m.section("COMMANDS")
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() && cmd.Name() != "help" {
			m.line(".TP")
			m.line(`\fB%s\fR(1)`, roff("tidalctl-"+cmd.Name()))
			m.line("%s", roff(cmd.Short))
		}
	}
}

func (m *man) flag(f *pflag.Flag) {
	if f.Hidden {
		return
	}
	m.line(".TP")
	value, usage := pflag.UnquoteUsage(f)
	spec := `\fB` + roff("--"+f.Name) + `\fR`
	if f.Shorthand != "" {
		spec = `\fB` + roff("-"+f.Shorthand) + `\fR, ` + spec
	}
	if value != "" {
		spec += ` \fI` + roff(value) + `\fR`
	}
	m.line("%s", spec)
	m.line("%s", roff(usage))
}

// verbatim shows text with its line breaks and columns.
func (m *man) verbatim(text string) {
	m.line(".nf")
	for line := range strings.Lines(strings.Trim(text, "\n") + "\n") {
		m.line("%s", roff(strings.TrimSuffix(line, "\n")))
	}
	m.line(".fi")
}

// roff escapes a line: what it shows can be pasted, and nothing in it is a request.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, `-`, `\-`, "`", `\(ga`, `'`, `\(aq`, `^`, `\(ha`, `~`, `\(ti`).Replace(s)
	if s == "" || strings.HasPrefix(s, ".") {
		return `\&` + s
	}
	return s
}

// quote makes one argument of a request.
func quote(s string) string { return `"` + strings.ReplaceAll(roff(s), `"`, `\(dq`) + `"` }

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }
