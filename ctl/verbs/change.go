package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/ctl/output"
	"github.com/tidaldb/tidal/daemon/api"
)

// changer is what every change needs of the cluster. *client.Client implements it.
type changer interface {
	statusReader
	operationReader
}

// change is one command that changes the cluster, as an operation with an id: it is sent once; a lost answer
// is looked up by the id, of every member, before anybody says that the outcome is not known. T is what the
// members answer.
type change[T any] struct {
	// NotDone says what did not happen, Doubt what is not known where the command stops watching.
	NotDone, Doubt string
	Operation      string
	Timeout        time.Duration // of the whole; 0: it ends with its context, and is watched
	Dry, NoWait    bool
	Tell           func(string) // progress

	// Do asks for it and returns its outcome. Its answer may be lost, to be looked up.
	Do func(context.Context) (T, client.Source, error)
	// Begin asks for it and does not wait. nil: there is no --no-wait.
	Begin func(context.Context) (api.Operation, client.Source, error)
	// Watch follows what Begin began to its end, in the place of Do. nil: Do waits.
	Watch func(context.Context, api.Operation) (T, error)
	// Seen looks for what it was for, where no member knows of the operation. nil: that leaves no trace.
	Seen func(context.Context) (T, client.Source, bool)
	// Unknown is the error where nobody can say. nil: a *ctl.UnknownError.
	Unknown func(lost *client.LostError, asked error) error

	Document func(T, client.Source, *api.Status) output.Document
	// Exit judges an answer that was printed; nil: all is well.
	Exit func(T) error
}

// run carries the change out, confirmed by now, and prints what came of it.
func (c change[T]) run(ctx context.Context, members changer, out *output.Printer) error {
	deadline, cancel := ctx, context.CancelFunc(func() {})
	if c.Timeout > 0 {
		deadline, cancel = context.WithTimeout(ctx, c.Timeout)
	}
	defer cancel()
	do := c.Do
	if c.Begin != nil && !c.Dry && (c.NoWait || c.Watch != nil) {
		op, source, err := c.Begin(deadline)
		if lost, ok := errors.AsType[*client.LostError](err); ok {
			if op, source, err = members.Operation(ctx, c.Operation); err != nil {
				err = c.unknown(lost, err)
			}
		}
		if err != nil {
			return ctl.Failed(c.NotDone, err)
		}
		if c.NoWait {
			return out.Print(operationDocument(op))
		}
		do = func(ctx context.Context) (T, client.Source, error) {
			done, err := c.Watch(ctx, op)
			return done, source, err
		}
	}
	done, source, err := do(deadline)
	switch lost, ok := errors.AsType[*client.LostError](err); {
	case ok && c.Dry:
		err = fmt.Errorf("the answer was lost; a dry run changes nothing: %w", lost.Err)
	case ok:
		if ctx.Err() != nil && c.Unknown == nil { // the work goes on
			c.Tell("stopped watching; operation " + c.Operation + " goes on: tidalctl ops show " + c.Operation)
			return ctl.Failed(c.Doubt, context.Cause(ctx))
		}
		done, source, err = c.lookUp(ctx, members, lost)
	}
	if err != nil {
		return ctl.Failed(c.NotDone, err)
	}
	if err := out.Print(c.Document(done, source, health(ctx, members))); err != nil {
		return err
	}
	if c.Exit == nil {
		return nil
	}
	return c.Exit(done)
}

// lookUp finds out what became of a change whose answer was lost: of the operation or, where whoever ran it is
// gone with its memory, of what it was for.
func (c change[T]) lookUp(ctx context.Context, members changer, lost *client.LostError) (done T, source client.Source, err error) {
	if ctx.Err() != nil {
		return done, source, c.unknown(lost, context.Cause(ctx))
	}
	c.Tell("the answer was lost, asking every member for operation " + c.Operation)
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	op, source, err := awaitOperation(ctx, members, c.Operation)
	switch {
	case err != nil && c.Seen != nil:
		if done, source, seen := c.Seen(ctx); seen {
			return done, source, nil
		}
	case err != nil:
	case op.Problem != nil:
		return done, source, &client.ProblemError{Endpoint: source.Endpoint, Member: op.Member, Problem: op.Problem}
	case json.Unmarshal(op.Result, &done) == nil:
		return done, source, nil
	default:
		err = fmt.Errorf("%s says %q of it", op.Member, op.State)
	}
	return done, source, c.unknown(lost, err)
}

func (c change[T]) unknown(lost *client.LostError, asked error) error {
	if c.Unknown != nil {
		return c.Unknown(lost, asked)
	}
	return &ctl.UnknownError{Operation: c.Operation, Err: lost, Asked: asked}
}

// refusedUnless is the exit of a change whose checks, or those of its dry run, said no.
func refusedUnless(ok bool) error {
	if ok {
		return nil
	}
	return &ctl.ConditionError{Exit: ctl.ExitRefused}
}

// faultsRemain is the error of a change of faults of which nobody can say what became of it.
func faultsRemain(operation string, longest time.Duration) func(*client.LostError, error) error {
	return func(lost *client.LostError, asked error) error {
		return &ctl.FaultsRemainError{Until: time.Now().Add(longest), Why: []string{lost.Error(), fmt.Sprintf("operation %s was asked for: %v", operation, asked)}}
	}
}
