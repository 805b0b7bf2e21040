package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
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
	// NotDone says what did not happen, Doubt what is not known where the command cannot say, or stops watching.
	NotDone, Doubt string
	Operation      string
	Timeout        time.Duration // of asking, and of the answer; what Watch follows has its own end
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
	deadline, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var done T
	var source client.Source
	var err error
	if c.Begin != nil && !c.Dry && (c.NoWait || c.Watch != nil) {
		var op api.Operation
		if op, source, err = c.begin(ctx, deadline, members); err != nil {
			return c.failed(err)
		}
		if c.NoWait {
			return out.Print(operationDocument(op))
		}
		if done, err = c.Watch(ctx, op); err != nil {
			if _, ended := errors.AsType[*client.ProblemError](err); ended {
				return c.failed(err)
			}
			return c.doubtful(err)
		}
	} else if done, source, err = c.ask(ctx, deadline, members); err != nil {
		return c.failed(err)
	}
	if err := out.Print(c.Document(done, source, health(ctx, members))); err != nil {
		return err
	}
	if c.Exit == nil {
		return nil
	}
	return c.Exit(done)
}

// failed says what did not happen, or what is not known where it was sent.
func (c change[T]) failed(err error) error {
	_, unknown := errors.AsType[*ctl.UnknownError](err)
	_, lost := errors.AsType[*client.LostError](err)
	_, late := errors.AsType[*ctl.TimeoutError](err)
	_, remain := errors.AsType[*ctl.FaultsRemainError](err)
	switch {
	case c.Dry: // whatever became of the question
		return &ctl.ActionError{What: c.NotDone, Err: err, Effect: api.EffectNone}
	case remain: // it says itself what is left, and what to do
		return ctl.Failed(c.Doubt, err)
	case unknown, lost, late:
		return c.doubtful(err)
	}
	return ctl.Failed(c.NotDone, err)
}

// doubtful says that it may be done, or go on, and how to find out.
func (c change[T]) doubtful(err error) error {
	return ctl.Doubtful(c.Doubt, err, "tidalctl ops show "+c.Operation, "tidalctl status")
}

// begin asks for it without waiting, or finds what was begun.
func (c change[T]) begin(ctx, deadline context.Context, members changer) (api.Operation, client.Source, error) {
	op, source, err := c.Begin(deadline)
	lost, ok := errors.AsType[*client.LostError](err)
	if !ok {
		return op, source, err
	}
	if op, source, err = members.Operation(ctx, c.Operation); err != nil {
		return op, source, c.unknown(lost, err)
	}
	return op, source, nil
}

// ask asks for it and waits. What it says meanwhile is that it waits.
func (c change[T]) ask(ctx, deadline context.Context, members changer) (T, client.Source, error) {
	quiet := c.tellOfSilence()
	done, source, err := c.Do(deadline)
	quiet()
	lost, ok := errors.AsType[*client.LostError](err)
	switch {
	case !ok:
		return done, source, err
	case c.Dry:
		return done, source, fmt.Errorf("the answer was lost; a dry run changes nothing: %w", lost.Err)
	case ctx.Err() != nil && c.Unknown == nil: // the work goes on
		c.Tell("stopped watching; operation " + c.Operation + " goes on: tidalctl ops show " + c.Operation)
		return done, source, c.doubtful(context.Cause(ctx))
	}
	return c.lookUp(ctx, deadline, members, lost)
}

// silentFor is how long an answer may take before somebody who waits for it is told so, and between two times.
const silentFor = 5 * time.Second

// tellOfSilence tells of an answer that does not come, until it is called off.
func (c change[T]) tellOfSilence() (quiet func()) {
	start, stop := time.Now(), make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		again := time.NewTicker(silentFor)
		defer again.Stop()
		for {
			select {
			case <-stop:
				return
			case <-again.C:
				c.Tell(fmt.Sprintf("no answer yet, after %s of %s; operation %s", time.Since(start).Round(time.Second), c.Timeout, c.Operation))
			}
		}
	})
	return func() {
		close(stop)
		telling.Wait()
	}
}

// lookUp finds out what became of a change whose answer was lost: of the operation or, where whoever ran it is
// gone with its memory, of what it was for. It takes what is left of the time, and enough for one question.
func (c change[T]) lookUp(ctx, deadline context.Context, members changer, lost *client.LostError) (done T, source client.Source, err error) {
	if ctx.Err() != nil {
		return done, source, c.unknown(lost, context.Cause(ctx))
	}
	c.Tell("the answer was lost, asking every member for operation " + c.Operation)
	until, _ := deadline.Deadline()
	ctx, cancel := context.WithTimeout(ctx, max(time.Until(until), client.ReadTimeout))
	defer cancel()
	op, source, err := awaitOperation(ctx, members, c.Operation, func(_ api.Operation, err error) bool { return err == nil })
	switch {
	case err != nil && op.State == api.OperationRunning:
		return done, source, &ctl.TimeoutError{After: c.Timeout, Last: op.Member + " works on it"}
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
