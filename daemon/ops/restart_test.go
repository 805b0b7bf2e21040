package ops_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/ops"
	"github.com/tidaldb/tidal/daemon/ops/opstest"
	"github.com/tidaldb/tidal/daemon/replica"
)

// disk keeps operations, as long as it is not failing.
type disk struct {
	mu      sync.Mutex
	book    []byte
	failing error
	stands  chan struct{} // nil: it does not stand still
}

func (d *disk) Operations() ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.book, d.failing
}

func (d *disk) KeepOperations(book []byte) error {
	if d.stands != nil {
		<-d.stands
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failing == nil {
		d.book = book
	}
	return d.failing
}

// boot makes the verbs of a member as it starts on d. Its predecessor may still run: it was killed.
func boot(t *testing.T, m *opstest.Member, d *disk) *ops.Ops {
	t.Helper()
	o, err := ops.New(ops.Options{
		Member: m, Replica: m.Open, Asker: asker{"b:9500": follows("b", 3, "2")}, Memory: d,
		FanOut: 30 * time.Millisecond, StatusTimeout: 30 * time.Millisecond, Now: func() time.Time { return opstest.Start },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

// A member that is killed knows, when it starts again, what became of the operations that it ran: those that
// ended as they ended, the others from what they left behind.
func TestOperations_OutliveTheProcess(t *testing.T) {
	t.Parallel()
	m, d := opstest.New(t, opstest.Genesis("a", "b", "c"), "a"), &disk{}
	o := boot(t, m, d)
	if got, err := promote(t, o, api.PromoteRequest{Region: "b", OperationID: "done"}); err != nil || !got.OK {
		t.Fatalf("promote = %+v, %v", got, err)
	}
	m.Lead(4, 1)
	_, err := promote(t, o, api.PromoteRequest{Region: "c", OperationID: "refused"})
	wantCode(t, err, api.CodeTargetUnreachable)
	if _, err := promote(t, o, api.PromoteRequest{Region: "b", OperationID: "dry", DryRun: true}); err != nil {
		t.Fatal(err)
	}
	begun := make(chan struct{})
	m.OnTransfer(func(ctx context.Context, _ ident.MemberID) (replica.Handover, error) {
		close(begun)
		<-ctx.Done()
		return replica.Handover{}, &replica.TransferError{To: 2, Leader: 1, Term: 4, Told: true, Cause: context.Cause(ctx)}
	}, nil)
	if _, err := o.Promote(api.PromoteRequest{Region: "b", OperationID: "cut", TimeoutMS: 60_000}); err != nil {
		t.Fatal(err)
	}
	<-begun // written down by now

	m.Lead(5, 0)
	o = boot(t, m, &disk{book: d.book})
	op, err := o.Operation("done")
	if err != nil || op.State != api.OperationDone || op.Verb != "promote" || op.FinishedAt == nil || !strings.Contains(string(op.Result), `"term":3`) {
		t.Errorf("what was done = %+v, %v", op, err)
	}
	again, err := o.Operation("refused")
	if err != nil || again.State != api.OperationFailed {
		t.Errorf("what was refused = %+v, %v", again, err)
	}
	wantCode(t, again.Err, api.CodeTargetUnreachable)
	if _, err := o.Operation("dry"); !errors.As(err, new(*ops.NotFoundError)) {
		t.Errorf("a dry run = %v, want that nobody knows of it", err)
	}
	unknown, err := o.Operation("cut")
	if err != nil || unknown.State != api.OperationUnknown || unknown.FinishedAt != nil {
		t.Errorf("what was cut short, while nobody leads = %+v, %v", unknown, err)
	}
	wantCode(t, unknown.Err, api.CodeOutcomeUnknown)
	m.Lead(6, 2)
	known, err := o.Operation("cut")
	if err != nil || known.State != api.OperationDone || !strings.Contains(string(known.Result), `"leader":"b"`) {
		t.Errorf("what was cut short, once b leads = %+v, %v", known, err)
	}
	m.Lead(7, 1) // it stays what it was
	if op, err := o.Operation("cut"); err != nil || op.State != api.OperationDone {
		t.Errorf("once more = %+v, %v", op, err)
	}
	if all, err := o.Operations(); err != nil || len(all) != 3 || all[0].Op != "cut" {
		t.Errorf("operations %+v, %v", all, err)
	}
	// The same request under the same id is the same operation, after a restart too; another one is refused.
	if s, err := o.Promote(api.PromoteRequest{Region: "b", OperationID: "done"}); err != nil {
		t.Error(err)
	} else if v, err := s.Wait(t.Context()); err != nil || !strings.Contains(string(v.(json.RawMessage)), `"op":"done"`) {
		t.Errorf("repeated: %s, %v", v, err)
	}
	if _, err := promote(t, o, api.PromoteRequest{Region: "c", OperationID: "done"}); !errors.As(err, new(*ops.ReusedOperationError)) {
		t.Errorf("another request under the id = %v", err)
	}
}

// A disk that stands still holds no verb up for long: leadership can be taken off its member.
func TestOperations_WaitForNoDisk(t *testing.T) {
	t.Parallel()
	m, d := opstest.New(t, opstest.Genesis("a", "b", "c"), "a"), &disk{stands: make(chan struct{})}
	o := boot(t, m, d)
	began := time.Now()
	if got, err := promote(t, o, api.PromoteRequest{Region: "b", OperationID: "one"}); err != nil || !got.OK {
		t.Errorf("promote = %+v, %v", got, err)
	}
	t.Logf("answered after %s", time.Since(began))
	close(d.stands)
	o.Close()
	if op, err := boot(t, m, &disk{book: d.book}).Operation("one"); err != nil || op.State != api.OperationDone {
		t.Errorf("after the disk went on: %+v, %v", op, err)
	}
}

// A disk that takes nothing, or gives nothing back, keeps no verb from being carried out.
func TestOperations_NeedNoDisk(t *testing.T) {
	t.Parallel()
	m := opstest.New(t, opstest.Genesis("a", "b", "c"), "a")
	o := boot(t, m, &disk{failing: errors.New("no space left")})
	if got, err := promote(t, o, api.PromoteRequest{Region: "b", OperationID: "one"}); err != nil || !got.OK {
		t.Errorf("promote = %+v, %v", got, err)
	}
	if op, err := o.Operation("one"); err != nil || op.State != api.OperationDone {
		t.Errorf("operation = %+v, %v", op, err)
	}
	boot(t, m, &disk{book: []byte("no book")})
}
