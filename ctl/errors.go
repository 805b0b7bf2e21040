package ctl

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// ActionError says what did not happen, in the user's words; the cause says why. A verb wraps the
// error of what it set out to do with Failed.
type ActionError struct {
	What string // "the status was not read"
	Err  error

	// Effect is what is left, where the verb knows that better than the cause tells. Empty: the cause tells.
	Effect api.Effect
	// Try are commands to paste, in the place of those that belong to the cause. nil: those.
	Try []string
}

func (e *ActionError) Error() string { return e.What + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *ActionError) Unwrap() error { return e.Err }

// Failed wraps err, which must not be nil, with what did not happen.
func Failed(what string, err error) error {
	if _, told := errors.AsType[*ActionError](err); told {
		return err // closer to it, somebody said it better
	}
	return &ActionError{What: what, Err: err}
}

// Doubtful wraps err, which must not be nil, with what is not known: the work was begun, and may be done, or go on. try
// are commands that tell.
func Doubtful(what string, err error, try ...string) error {
	return &ActionError{What: what, Err: err, Effect: api.EffectUnknown, Try: try}
}

// UsageError refuses a command line.
type UsageError struct {
	Code   string // unknown_command, unknown_flag, bad_argument, …
	Detail string
	Try    []string
}

func (e *UsageError) Error() string { return e.Detail }

// ConfigError refuses what the environment or a file says.
type ConfigError struct {
	Where string // the variable or file
	Err   error
}

func (e *ConfigError) Error() string { return fmt.Sprintf("%s: %v", e.Where, e.Err) }

// Unwrap returns the cause.
func (e *ConfigError) Unwrap() error { return e.Err }

// NotFoundError: there is no such thing in the cluster.
type NotFoundError struct {
	Kind, Name string   // "member", "us-eest"
	Nearest    []string // names that are close
	Try        []string
}

func (e *NotFoundError) Error() string {
	s := fmt.Sprintf("there is no %s %q", e.Kind, e.Name)
	if len(e.Nearest) > 0 {
		s += "; close to it: " + strings.Join(e.Nearest, ", ")
	}
	return s
}

// DeclinedError: the question was answered with no.
type DeclinedError struct{}

func (*DeclinedError) Error() string { return "the question was not answered with yes" }

// UnknownError: a change was sent and its answer was lost, and nobody could say what became of it.
type UnknownError struct {
	Operation string
	Err       error // of sending it
	Asked     error // of asking for it
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("%v; operation %s was not found: %v", e.Err, e.Operation, e.Asked)
}

// Unwrap returns the cause.
func (e *UnknownError) Unwrap() error { return e.Err }

// FaultsRemainError: members may keep up faults of a drill, until then at the latest.
type FaultsRemainError struct {
	Until time.Time
	Why   []string
}

func (e *FaultsRemainError) Error() string {
	return fmt.Sprintf("faults may remain until %s: %s", e.Until.UTC().Format(time.RFC3339), strings.Join(e.Why, "; "))
}

// TimeoutError: what was waited for did not come in time.
type TimeoutError struct {
	After time.Duration
	Last  string // what was seen last
	Try   []string
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("not within %s; last seen: %s", e.After, e.Last)
}

// InterruptedError is the cause of a context that a signal ended.
type InterruptedError struct{ Signal os.Signal }

func (e *InterruptedError) Error() string { return "stopped by " + e.Signal.String() }

// exit returns the code a shell gives to a program that the signal killed.
func (e *InterruptedError) exit() int {
	if e.Signal == syscall.SIGTERM {
		return ExitTerminated
	}
	return ExitInterrupted
}

// RefusedError: the work makes no sense as things are; nothing was begun.
type RefusedError struct {
	Code   string
	Detail string
	Try    []string
}

func (e *RefusedError) Error() string { return e.Detail }

// ConditionError speaks through the exit code alone: the data is printed, and says why.
type ConditionError struct{ Exit int }

func (e *ConditionError) Error() string { return classOf(e.Exit) }

// bugError is a panic that Run caught.
type bugError struct {
	value  any
	report []string // where the stack is kept, or the stack
}

func (e *bugError) Error() string { return fmt.Sprint(e.value) }
