package ctl

import (
	"bufio"
	"context"
	"fmt"
	"strings"
)

// Summary makes the lines that stand above a question. It may ask the cluster, so it is called only where
// somebody is going to read them.
type Summary func(context.Context) []string

// Lines is a summary that is known beforehand.
func Lines(lines ...string) Summary { return func(context.Context) []string { return lines } }

// Confirm asks before something is changed: it writes the summary and the question to Err and returns
// nil if the answer is yes, else a *DeclinedError. yes, from --yes, answers beforehand. Where nobody can
// be asked, because In or Err is no terminal or TIDALCTL_NO_INPUT or CI is set, it is a *UsageError that
// names the flag: nothing ever hangs in a script.
func (f *Factory) Confirm(ctx context.Context, yes bool, question string, summary Summary) error {
	switch {
	case yes:
		return nil
	case !f.canAsk():
		return &UsageError{Code: "confirmation_missing", Detail: "this changes the cluster, and nobody can be asked whether it should be: --yes confirms it"}
	}
	return f.ask(ctx, question+" [y/N] ", summary, func(answer string) bool {
		answer = strings.ToLower(answer)
		return answer == "y" || answer == "yes"
	})
}

// ConfirmName asks before something is changed that cannot be taken back, or hurts while it lasts: it writes the summary to Err
// and returns nil if the answer is name, typed in full, else a *DeclinedError. given, from --confirm,
// answers beforehand, and must be the name too: a command that was pasted for another target is refused.
// Where nobody can be asked, it is a *UsageError that names the flag.
func (f *Factory) ConfirmName(ctx context.Context, given, name string, summary Summary) error {
	switch {
	case given == name:
		return nil
	case given != "":
		return &UsageError{Code: "confirmation_wrong", Detail: fmt.Sprintf("--confirm=%s confirms something else; this is about %s", given, name)}
	case !f.canAsk():
		return &UsageError{Code: "confirmation_missing", Detail: fmt.Sprintf("this needs to be confirmed, and nobody can be asked: --confirm=%s confirms it", name)}
	}
	return f.ask(ctx, fmt.Sprintf("Type %q to go on: ", name), summary, func(answer string) bool { return answer == name })
}

// canAsk reports whether there is somebody to ask.
func (f *Factory) canAsk() bool {
	return f.IO.InTTY && f.IO.ErrTTY && f.Env(envNoInput) == "" && f.Env("CI") == ""
}

// ask shows the summary, asks, and returns nil if the answer is a yes, else a *DeclinedError.
func (f *Factory) ask(ctx context.Context, question string, summary Summary, isYes func(string) bool) error {
	for _, line := range summary(ctx) {
		fmt.Fprintln(f.IO.Err, line)
	}
	fmt.Fprint(f.IO.Err, question)
	answer := make(chan string, 1)
	go func() { // ends with its line, or with the process
		line, _ := bufio.NewReader(f.IO.In).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		if isYes(strings.TrimSpace(line)) {
			return nil
		}
		return &DeclinedError{}
	case <-ctx.Done():
		fmt.Fprintln(f.IO.Err)
		return context.Cause(ctx)
	}
}
