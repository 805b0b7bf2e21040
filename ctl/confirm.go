package ctl

import (
	"bufio"
	"context"
	"fmt"
	"strings"
)

// Confirm asks before something is changed: it writes the summary and the question to Err and returns
// nil if the answer is yes, else a *DeclinedError. yes, from --yes, answers beforehand. Where nobody can
// be asked, because In or Err is no terminal or TIDALCTL_NO_INPUT or CI is set, it is a *UsageError that
// names the flag: nothing ever hangs in a script.
func (f *Factory) Confirm(ctx context.Context, yes bool, question string, summary ...string) error {
	if yes {
		return nil
	}
	if !f.IO.InTTY || !f.IO.ErrTTY || f.Env(envNoInput) != "" || f.Env("CI") != "" {
		return &UsageError{Code: "confirmation_missing", Detail: "this changes the cluster, and nobody can be asked whether it should be: --yes confirms it"}
	}
	for _, line := range summary {
		fmt.Fprintln(f.IO.Err, line)
	}
	fmt.Fprintf(f.IO.Err, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // ends with its line, or with the process
		line, _ := bufio.NewReader(f.IO.In).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return &DeclinedError{}
	case <-ctx.Done():
		fmt.Fprintln(f.IO.Err)
		return context.Cause(ctx)
	}
}
