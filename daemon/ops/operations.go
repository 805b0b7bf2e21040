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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
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

// intent is what an operation is for.
type intent struct {
	verb string
	// id is the caller's; empty: a fresh one.
	id string
	// request tells it from another request under the same id.
	request string
	// about names the member that it is about, target is that member; "" and 0: none, or several.
	about  string
	target ident.MemberID
	// dry: nothing changes, so nobody has to know of it after a restart.
	dry bool
}

// keepWait is how long an operation waits for the disk to take what is known of it: a disk that stands still
// must not keep leadership, or a fault, where it is.
const keepWait = time.Second

// operation is one verb that was asked for. It runs on its own goroutine and does not end with its
// caller: who stops waiting can ask for it again by its id.
type operation struct {
	intent
	started time.Time // wall time

	progress atomic.Pointer[api.Progress] // of a verb that tells; nil: it does not

	done  chan struct{} // closed when others may know of the rest
	ended atomic.Bool   // the rest is set

	finished time.Time // zero: nobody knows, the process that ran it was ended
	result   any       // a json.RawMessage, if an earlier process came to it
	err      error
	// interrupted: an earlier process of this member began it, and was ended before it knew more.
	interrupted bool
	// cut: this process was told to stop before it knew more.
	cut bool
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
	now   func() time.Time
	kept  *keeper
	life  context.Context // of all of them
	end   context.CancelCauseFunc
	work  sync.WaitGroup

	mu struct {
		sync.Mutex
		all    []*operation // oldest first
		closed bool
	}
}

func newOperations(limit int, now func() time.Time, kept *keeper) *operations {
	o := &operations{limit: limit, now: now, kept: kept}
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

// replace puts known in the place of op, if that is still there, and keeps it.
func (o *operations) replace(op, known *operation) {
	o.mu.Lock()
	i := slices.Index(o.mu.all, op)
	counted := i >= 0 && !o.mu.closed
	if i >= 0 {
		o.mu.all[i] = known
	}
	if counted {
		o.work.Add(1)
	}
	o.mu.Unlock()
	if counted {
		defer o.work.Done()
		o.keep(known)
	}
}

var operationIDs = regexp.MustCompile(fmt.Sprintf(`^[A-Za-z0-9._-]{1,%d}$`, api.MaxOperationIDBytes))

// begin starts run for what is intended, or joins the operation that has this id already: it runs, or ran
// and may have changed something. One that failed and changed nothing is begun anew. It is written down
// before it runs and before anybody hears of it, so that a member that is killed still knows of it.
func (o *operations) begin(in intent, run func(ctx context.Context, op *operation) (any, error)) (*operation, error) {
	op, joined, err := o.admit(in)
	if err != nil || joined {
		return op, err
	}
	o.keep(op)
	go func() { // counted in by admit
		defer o.work.Done()
		o.run(op, run)
	}()
	return op, nil
}

// admit makes the operation, or finds the one to join. One that it made is counted in: it ends with
// work.Done.
func (o *operations) admit(in intent) (op *operation, joined bool, err error) {
	if in.id == "" {
		in.id = newOperationID()
	} else if !operationIDs.MatchString(in.id) {
		return nil, false, &BadOperationError{ID: in.id}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.closed {
		return nil, false, ErrStopping
	}
	if old := o.findLocked(in.id); old != nil {
		if old.verb != in.verb || old.request != in.request {
			return nil, false, &ReusedOperationError{ID: in.id, Verb: old.verb}
		}
		if old.running() || old.err == nil || !o.changedNothing(old.err) {
			return old, true, nil
		}
		o.mu.all = slices.DeleteFunc(o.mu.all, func(op *operation) bool { return op == old })
	}
	if err := o.makeRoomLocked(); err != nil {
		return nil, false, err
	}
	op = &operation{intent: in, started: o.now(), done: make(chan struct{})}
	o.mu.all = append(o.mu.all, op)
	o.work.Add(1)
	return op, false, nil
}

// run carries op out. Its end is written down before anybody hears of it: a member that is killed then must
// not know less than it said.
func (o *operations) run(op *operation, run func(ctx context.Context, op *operation) (any, error)) {
	defer close(op.done)
	op.result, op.err = run(o.life, op)
	op.finished = o.now()
	op.cut = o.life.Err() != nil && op.err != nil && !o.changedNothing(op.err)
	op.ended.Store(true)
	o.keep(op)
}

// keep writes down what is known, op among it, and waits for that, for keepWait at most.
// REQUIRES: op is counted in and has not ended, so that close waits for what is begun here.
func (o *operations) keep(op *operation) {
	if op.dry {
		return
	}
	kept := make(chan struct{})
	o.work.Go(func() {
		defer close(kept)
		o.kept.save(o.list)
	})
	late := time.NewTimer(keepWait)
	defer late.Stop()
	select {
	case <-kept:
	case <-late.C:
	}
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

// changedNothing reports whether err says for certain that the verb had no effect.
func (o *operations) changedNothing(err error) bool { return o.kept.word(err).Effect == api.EffectNone }

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

// AskOperation is Operation, on whichever member ran it: where that is not this one, all others are asked
// at once, for Options.FanOut. Errors: *NotFoundError; an *api.Problem where a member did not answer that
// may know.
func (o *Ops) AskOperation(ctx context.Context, id string) (Operation, error) {
	op, err := o.Operation(id)
	if _, unknown := errors.AsType[*NotFoundError](err); !unknown || o.opts.Teller == nil {
		return op, err
	}
	others := slices.DeleteFunc(slices.Clone(o.everybody()), func(m membership.Member) bool { return m.Name == o.name })
	told := make(chan api.Operation, len(others))
	ctx, found := context.WithCancel(ctx)
	defer found()
	errs := o.each(ctx, others, func(ctx context.Context, m membership.Member) error {
		op, err := o.opts.Teller.Operation(ctx, o.httpAddr(m), id)
		if err == nil {
			told <- op
			found() // nobody else has it
		}
		return err
	})
	select {
	case op := <-told:
		return Operation{Operation: op}, nil
	default:
	}
	var silent []string
	for i, m := range others {
		if p, ok := errors.AsType[*api.Problem](errs[i]); !ok || p.Code != api.CodeNotFound {
			silent = append(silent, fmt.Sprintf("%s: %v", m.Name, errs[i]))
		}
	}
	if len(silent) > 0 {
		return Operation{}, api.NewProblem(api.CodeMemberUnreached, fmt.Sprintf("no member that answers ran an operation %q; not asked: %s", id, strings.Join(silent, "; ")))
	}
	return Operation{}, err
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
	op = o.settle(op)
	if out.Err = op.err; !op.finished.IsZero() {
		out.FinishedAt = new(op.finished.UTC())
	}
	switch {
	case op.err == nil:
		result, err := json.Marshal(op.result)
		if err != nil {
			return Operation{}, fmt.Errorf("result of operation %s: %w", op.id, err)
		}
		out.State, out.Result = api.OperationDone, result
	case o.operations.kept.word(op.err).Effect == api.EffectUnknown:
		out.State = api.OperationUnknown
	default:
		out.State = api.OperationFailed
	}
	return out, nil
}

// begin starts an operation.
func (o *Ops) begin(in intent, run func(ctx context.Context, op *operation) (any, error)) (*Started, error) {
	if old := o.operations.find(in.id); old != nil && !old.running() {
		o.settle(old)
	}
	op, err := o.operations.begin(in, run)
	if err != nil {
		return nil, err
	}
	return &Started{ops: o, op: op}, nil
}

// Started is an operation under way.
type Started struct {
	ops *Ops
	op  *operation
}

// ID is the id of the operation.
func (s *Started) ID() string { return s.op.id }

// Wait returns what the verb returned, or the cause of ctx; the operation goes on then.
func (s *Started) Wait(ctx context.Context) (any, error) {
	select {
	case <-s.op.done:
		return s.op.result, s.op.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Describe returns what is known of the operation now.
func (s *Started) Describe() (Operation, error) { return s.ops.describe(s.op) }

// Close ends the operations that run and waits for them; later ones are refused.
func (o *Ops) Close() { o.operations.close() }
