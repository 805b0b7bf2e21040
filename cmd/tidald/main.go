// Command tidald is the daemon: one member of a cluster (serve), or a whole cluster on this machine
// (dev). Its exit codes are those of tidalctl: 0 done, 1 failed, 5 not found, 12 damaged (wal verify, inspect),
// 64 usage, 78 configuration.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "dev"

// Exit codes.
const (
	exitFailed   = 1
	exitNotFound = 5
	exitDiffers  = 12
	exitUsage    = 64
	exitConfig   = 78
)

// exitError carries the exit code of an error that is not exitFailed.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitUsage, err}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := newRoot().ExecuteContext(ctx)
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "error:", err)
	code := exitFailed
	if e, ok := errors.AsType[*exitError](err); ok {
		code = e.code
	}
	stop()
	os.Exit(code)
}

func newRoot() *cobra.Command {
	root := group("tidald", "One member of a Tidal cluster, or a whole cluster on this machine")
	root.Version = version
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	root.AddCommand(newServe(), newDev(), newConfig(), newWAL(), newInspect(), newVersion())
	return root
}

// group is a command that only holds others: an unknown one is a usage error, not a page of help.
func group(use, short string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return usage(fmt.Errorf("unknown command %q of %q; see %[2]s --help", args[0], cmd.CommandPath()))
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}

// noArgs refuses arguments as a usage error.
func noArgs(cmd *cobra.Command, args []string) error { return usage(cobra.NoArgs(cmd, args)) }
