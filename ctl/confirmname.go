package ctl

import (
	"bufio"
	"context"
	"fmt"
	"strings"
)

// ConfirmName asks before something is changed that cannot be taken back, or hurts while it lasts: it writes the summary to Err
// and returns nil if the answer is name, typed in full, else a *DeclinedError. given, from --confirm,
// answers beforehand, and must be the name too: a command that was pasted for another target is refused.
// Where nobody can be asked, it is a *UsageError that names the flag.
func (f *Factory) ConfirmName(ctx context.Context, given, name string, summary ...string) error {
	switch {
	case given == name:
		return nil
	case given != "":
		return &UsageError{Code: "confirmation_wrong", Detail: fmt.Sprintf("--confirm=%s confirms something else; this is about %s", given, name)}
	case !f.IO.InTTY || !f.IO.ErrTTY || f.Env(envNoInput) != "" || f.Env("CI") != "":
		return &UsageError{Code: "confirmation_missing", Detail: fmt.Sprintf("this needs to be confirmed, and nobody can be asked: --confirm=%s confirms it", name)}
	}
	for _, line := range summary {
		fmt.Fprintln(f.IO.Err, line)
	}
	fmt.Fprintf(f.IO.Err, "Type %q to go on: ", name)
	answer := make(chan string, 1)
	go func() { // ends with its line, or with the process
		line, _ := bufio.NewReader(f.IO.In).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		if strings.TrimSpace(line) == name {
			return nil
		}
		return &DeclinedError{}
	case <-ctx.Done():
		fmt.Fprintln(f.IO.Err)
		return context.Cause(ctx)
	}
}
