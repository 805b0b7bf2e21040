package ops

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// ErrStopping refuses a verb, or is why one ended early: this member is stopping.
var ErrStopping = errors.New("the member is stopping")

// BadOperationError refuses an operation id.
type BadOperationError struct{ ID string }

func (e *BadOperationError) Error() string {
	return fmt.Sprintf("operation id %.80q: want 1 to %d letters, digits, dashes, dots and underscores", e.ID, api.MaxOperationIDBytes)
}

// ReusedOperationError refuses an operation id under which something else was asked for.
type ReusedOperationError struct{ ID, Verb string }

func (e *ReusedOperationError) Error() string {
	return fmt.Sprintf("operation %s is another request already (%s): use a new id", e.ID, e.Verb)
}

// BusyOperationsError refuses a verb because too many are running.
type BusyOperationsError struct{ Running, Limit int }

func (e *BusyOperationsError) Error() string {
	return fmt.Sprintf("%d operations are running here, limit %d", e.Running, e.Limit)
}

// operation is one verb that was asked for. It runs on its own goroutine and does not end with its
// caller: who stops waiting can ask for it again by its id.
type operation struct {
	id, verb, request string
	started           time.Time // wall time

	progress atomic.Pointer[api.Progress] // of a verb that tells; nil: it does not

	done     chan struct{} // closed when the rest is set
	finished time.Time
	result   any
	err      error
}

func (op *operation) running() bool {
	select {
	case <-op.done:
		return false
	default:
		return true
	}
}

// operations are those that this member began, at most limit.
type operations struct {
	limit int
	life  context.Context // of all of them
	end   context.CancelCauseFunc
	work  sync.WaitGroup

	mu struct {
		sync.Mutex
		all    []*operation // oldest first
		closed bool
	}
}

func newOperations(limit int) *operations {
	o := &operations{limit: limit}
	o.life, o.end = context.WithCancelCause(context.Background())
	return o
}

// close ends every operation that runs and waits for them.
func (o *operations) close() {
	o.mu.Lock()
	o.mu.closed = true
	o.mu.Unlock()
	o.end(ErrStopping)
	o.work.Wait()
}

// list returns those that are kept, oldest first.
func (o *operations) list() []*operation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.mu.all)
}

func (o *operations) find(id string) *operation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.findLocked(id)
}

func (o *operations) findLocked(id string) *operation {
	i := slices.IndexFunc(o.mu.all, func(op *operation) bool { return op.id == id })
	if i < 0 {
		return nil
	}
	return o.mu.all[i]
}

var operationIDs = regexp.MustCompile(fmt.Sprintf(`^[A-Za-z0-9._-]{1,%d}$`, api.MaxOperationIDBytes))

// begin starts run under id, or joins the operation that has this id already: it runs, or ran and may
// have changed something. One that failed and changed nothing is begun anew. An empty id: a fresh one.
func (o *operations) begin(verb, id, request string, now func() time.Time, run func(ctx context.Context, id string) (any, error)) (*operation, error) {
	if id == "" {
		id = newOperationID()
	} else if !operationIDs.MatchString(id) {
		return nil, &BadOperationError{ID: id}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.closed {
		return nil, ErrStopping
	}
	if old := o.findLocked(id); old != nil {
		if old.verb != verb || old.request != request {
			return nil, &ReusedOperationError{ID: id, Verb: old.verb}
		}
		if old.running() || old.err == nil || !changedNothing(old.err) {
			return old, nil
		}
		o.mu.all = slices.DeleteFunc(o.mu.all, func(op *operation) bool { return op == old })
	}
	if err := o.makeRoomLocked(); err != nil {
		return nil, err
	}
	op := &operation{id: id, verb: verb, request: request, started: now(), done: make(chan struct{})}
	o.mu.all = append(o.mu.all, op)
	o.work.Go(func() {
		defer close(op.done)
		op.result, op.err = run(o.life, id)
		op.finished = now()
	})
	return op, nil
}

// makeRoomLocked forgets the oldest finished operation when the table is full.
func (o *operations) makeRoomLocked() error {
	if len(o.mu.all) < o.limit {
		return nil
	}
	i := slices.IndexFunc(o.mu.all, func(op *operation) bool { return !op.running() })
	if i < 0 {
		return &BusyOperationsError{Running: len(o.mu.all), Limit: o.limit}
	}
	o.mu.all = slices.Delete(o.mu.all, i, i+1)
	return nil
}

// changedNothing reports whether err says for certain that the verb had no effect. An error that is not
// on the wire's terms is one that was met before anything was done.
func changedNothing(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return !ok || p.Effect == api.EffectNone
}

func newOperationID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Operation is one verb that this member began. Err is why it failed; it is set once State is not
// running.
type Operation struct {
	api.Operation
	Err error
}

// Operation returns the operation with this id, or a *NotFoundError.
func (o *Ops) Operation(id string) (Operation, error) {
	op := o.operations.find(id)
	if op == nil {
		return Operation{}, &NotFoundError{What: "operation", Name: id}
	}
	return o.describe(op)
}

// Operations returns what is known now of every operation that is kept, newest first.
func (o *Ops) Operations() ([]Operation, error) {
	kept := o.operations.list()
	out := make([]Operation, len(kept))
	for i, op := range slices.Backward(kept) {
		d, err := o.describe(op)
		if err != nil {
			return nil, err
		}
		out[len(kept)-1-i] = d
	}
	return out, nil
}

func (o *Ops) describe(op *operation) (Operation, error) {
	out := Operation{Operation: api.Operation{Op: op.id, Verb: op.verb, State: api.OperationRunning, Member: o.name, StartedAt: op.started.UTC()}}
	if op.running() {
		out.Progress = op.progress.Load()
		return out, nil
	}
	out.FinishedAt, out.Err = new(op.finished.UTC()), op.err
	p, known := errors.AsType[*api.Problem](op.err)
	switch {
	case op.err == nil:
		result, err := json.Marshal(op.result)
		if err != nil {
			return Operation{}, fmt.Errorf("result of operation %s: %w", op.id, err)
		}
		out.State, out.Result = api.OperationDone, result
	case known && p.Effect == api.EffectUnknown:
		out.State = api.OperationUnknown
	default:
		out.State = api.OperationFailed
	}
	return out, nil
}

// Close ends the operations that run and waits for them; later ones are refused.
func (o *Ops) Close() { o.operations.close() }
