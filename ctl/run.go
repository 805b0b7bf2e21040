package ctl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl/output"
)

// Run executes one command line (without the program's name) and returns the exit code. A signal
// reaches it as the cause of ctx, an *InterruptedError.
func Run(ctx context.Context, f *Factory, verbs Verbs, args []string) int {
	if wantsJSON(args) {
		f.format.Name = output.JSON // until the flags are parsed, which may fail
	}
	impact, err := execute(ctx, f, verbs, args)
	if err == nil {
		return ExitOK
	}
	fault := Explain(err, impact)
	if _, quiet := errors.AsType[*ConditionError](err); !quiet {
		f.Report(err, impact)
	}
	return fault.Exit
}

// execute runs the command; a panic in it becomes a *bugError.
func execute(ctx context.Context, f *Factory, verbs Verbs, args []string) (impact Impact, err error) {
	impact = ImpactChange // until the command is known, the worse guess
	defer func() {
		if v := recover(); v != nil {
			stack := debug.Stack()
			if carried, ok := v.(interface{ Stack() []byte }); ok { // from another goroutine
				stack = carried.Stack()
			}
			err = &bugError{v, f.writeReport(v, stack, args)}
		}
	}()
	root := NewRoot(f, verbs)
	root.SetArgs(append([]string{}, args...)) // of nil cobra would make those of the process
	// Where a panic ends the command, ExecuteC does not return it; so its impact is kept before.
	check := root.PersistentPreRunE
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		impact, _ = ImpactOf(cmd)
		return check(cmd, args)
	}
	cmd, err := root.ExecuteContextC(ctx)
	if i, ok := ImpactOf(cmd); ok {
		impact = i
	}
	return impact, err
}

// writeReport keeps what a bug left behind in the user's state directory and returns a line that says
// where; or, where it cannot, the lines of the report itself.
func (f *Factory) writeReport(v any, stack []byte, args []string) []string {
	report := fmt.Sprintf("tidalctl %s (%s, %s)\nargs: %q\npanic: %v\n\n%s", f.Build.Version, f.Build.Commit, f.Build.Go, args, v, stack)
	dir := f.Env("XDG_STATE_HOME")
	if dir == "" {
		dir = filepath.Join(f.Env("HOME"), ".local", "state")
	}
	dir = filepath.Join(dir, "tidalctl")
	path := filepath.Join(dir, "bug-"+time.Now().UTC().Format("20060102T150405.000Z")+".txt")
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(report), 0o600)
	}
	if err != nil {
		return strings.Split(report, "\n")
	}
	return []string{"report: " + path}
}

// wantsJSON reports whether args ask for JSON, for the errors of a line that does not parse.
func wantsJSON(args []string) bool {
	for i, a := range args {
		switch a {
		case "--":
			return false
		case "-ojson", "-o=json", "--output=json":
			return true
		case "-o", "--output":
			if i+1 < len(args) && strings.TrimSpace(args[i+1]) == output.JSON {
				return true
			}
		}
	}
	return false
}
