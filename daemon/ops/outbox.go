package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/outbox"
	"github.com/tidaldb/tidal/daemon/query"
	"github.com/tidaldb/tidal/daemon/reach"
	"github.com/tidaldb/tidal/daemon/replica"
	"github.com/tidaldb/tidal/daemon/state"
)

// ErrNoOutbox refuses a write that waits for no leader: this member has nowhere to put it yet.
var ErrNoOutbox = errors.New("the outbox is not open")

// SelfError refuses a verb that needs another member than this one.
type SelfError struct{ Name string }

func (e *SelfError) Error() string {
	return fmt.Sprintf("%s is the member that was asked: name another one", e.Name)
}

// Exchanger exchanges outboxes with the member that listens for HTTP at addr.
type Exchanger interface {
	// Exchange sends what this member holds and returns what the other one held before it merged that,
	// at most limit bytes of it.
	Exchange(ctx context.Context, cluster, addr string, dry bool, held []command.Outbox, limit int64) (Exchanged, error)
}

// Exchanged is the other side of an exchange.
type Exchanged struct {
	Held   []command.Outbox
	Took   time.Duration // to merge
	Ops    int           // that were new there
	Forked []ident.Incarnation
}

// Taken is a write that this member took by itself.
type Taken struct {
	ID       outbox.ID // zero: every record was refused
	Accepted int
	Refused  []command.Refusal // by Record, ascending
}

// box returns the outbox, or ErrNoOutbox.
func (o *Ops) box() (*outbox.Box, error) {
	if o.opts.Outbox != nil {
		if b := o.opts.Outbox(); b != nil {
			return b, nil
		}
	}
	return nil, ErrNoOutbox
}

// Take takes a write of signals and hard negatives on this member alone: it is durable here, visible here
// at once, and delivered into the log when a leader is in reach. What this member's state knows to be
// wrong is refused, record by record. Errors: *FutureError, *replica.DiskFullError, those of
// (*outbox.Box).Take, of a read, and ErrNoOutbox.
func (o *Ops) Take(data []byte) (Taken, error) {
	if facts := command.Inspect(data); facts.Latest != 0 {
		if err := o.CheckTime(facts.Latest); err != nil {
			err.Record = facts.Record
			return Taken{}, err
		}
	}
	box, err := o.box()
	if err != nil {
		return Taken{}, err
	}
	r, err := o.opts.Replica(surface)
	if err != nil {
		return Taken{}, err
	}
	if d := o.opts.Member.Status().Disk; d.Full {
		return Taken{}, &replica.DiskFullError{FreeBytes: d.FreeBytes, NeedBytes: d.ReserveBytes}
	}
	w, err := command.DecodeWrite(data)
	if err != nil {
		return Taken{}, err
	}
	out := Taken{}
	view := r.View()
	after := view.Position().Stamp
	out.Refused, err = refusals(view, w)
	if err := errors.Join(err, view.Close()); err != nil {
		return Taken{}, err
	}
	if out.Accepted = len(w.Records) - len(out.Refused); out.Accepted == 0 {
		return out, nil
	}
	if len(out.Refused) > 0 {
		w.Records = without(w.Records, out.Refused)
		data = command.EncodeWrite(w)
	}
	out.ID, err = box.Take(data, after)
	return out, err
}

// refusals says what the log would refuse of w now.
func refusals(view *state.View, w command.Write) ([]command.Refusal, error) {
	known := map[string]*entity.Collection{} // nil: there is none
	var all []command.Refusal
	for n, r := range w.Records {
		if keyed, ok := r.(command.Keyed); ok {
			r = keyed.Record
		}
		name, typ := "", ""
		switch r := r.(type) {
		case command.Signal:
			name, typ = r.Collection, r.Type
		case command.HardNeg:
			name = r.Collection
		}
		c, ok := known[name]
		if !ok {
			found, err := query.Collection(view, name)
			if _, none := errors.AsType[*query.NoCollectionError](err); err != nil && !none {
				return nil, err
			} else if err == nil {
				c = &found
			}
			known[name] = c
		}
		if c == nil {
			all = append(all, command.Refusal{Record: n, Code: command.CodeUnknownCollection, Detail: fmt.Sprintf("there is no collection %q here", name)})
			continue
		}
		if _, ok := c.Type(typ); typ != "" && !ok {
			all = append(all, command.Refusal{Record: n, Code: command.CodeUnknownSignal, Detail: fmt.Sprintf("collection %q has no signal %q here", name, typ)})
		}
	}
	return all, nil
}

func without(records []command.Record, refused []command.Refusal) []command.Record {
	var kept []command.Record
	for n, r := range records {
		if !slices.ContainsFunc(refused, func(f command.Refusal) bool { return f.Record == n }) {
			kept = append(kept, r)
		}
	}
	return kept
}

// waiting returns what is pending, to be read with a view that is opened after it. A linearizable read
// shows what the log holds, and no more.
func (o *Ops) waiting(read Read, of func(*outbox.Box) outbox.Pending) outbox.Pending {
	box, err := o.box()
	if err != nil || read.Linearizable {
		return outbox.Pending{}
	}
	return of(box)
}

// outboxStatus is what waits on this member.
func outboxStatus(s outbox.Status, now time.Time) api.Outbox {
	out := api.Outbox{Pending: s.Pending, Foreign: s.Foreign, Bytes: s.Bytes, MaxBytes: s.MaxBytes, Forked: []string{}}
	if s.Oldest != 0 {
		at := time.UnixMilli(s.Oldest.Millis()).UTC()
		out.OldestAt, out.OldestAgeMS = &at, new(millisSince(at, now))
	}
	for _, origin := range s.Forked {
		out.Forked = append(out.Forked, origin.String())
	}
	if s.Failed != nil {
		out.Error = new(s.Failed.Error())
	}
	return out
}

// Reconcile exchanges outboxes with another member, without a leader: afterwards both hold what either
// held. It returns the operation. Errors: *NotFoundError, *SelfError, ErrNoOutbox, those of an
// operation's id.
func (o *Ops) Reconcile(req api.ReconcileRequest) (*Started, error) {
	addr, self, err := o.Find(req.Region)
	if err != nil {
		return nil, err
	}
	if self {
		return nil, &SelfError{Name: req.Region}
	}
	box, err := o.box()
	if err != nil {
		return nil, err
	}
	in := intent{verb: opReconcile, id: req.OperationID, request: fmt.Sprintf("%s dry_run=%t", req.Region, req.DryRun), about: req.Region, dry: req.DryRun}
	return o.begin(in, func(ctx context.Context, op *operation) (any, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, api.ReconcileTimeoutMS*time.Millisecond, ErrVerbTimeout)
		defer cancel()
		return o.reconcile(ctx, box, addr, api.Reconciled{Op: op.id, Region: req.Region, DryRun: req.DryRun, Forked: []string{}})
	})
}

func (o *Ops) reconcile(ctx context.Context, box *outbox.Box, addr string, out api.Reconciled) (any, error) {
	if err := o.Awake(ctx, out.Region, addr); err != nil {
		return nil, err
	}
	there, err := o.opts.Exchange.Exchange(ctx, o.Cluster().String(), addr, out.DryRun, box.Snapshot(), box.SnapshotLimit())
	if err != nil {
		return nil, err
	}
	start := time.Now()
	here, err := box.Merge(there.Held, out.DryRun)
	if err != nil {
		return nil, err
	}
	out.LocalElapsedMS, out.RemoteElapsedMS = roundUp(time.Since(start)), roundUp(there.Took)
	out.LocalOpsApplied, out.RemoteOpsApplied = here.Ops, there.Ops
	out.OpsApplied = here.Ops + there.Ops
	for _, origin := range slices.Concat(here.Forked, there.Forked) {
		if name := origin.String(); !slices.Contains(out.Forked, name) {
			out.Forked = append(out.Forked, name)
		}
	}
	agree := api.Check{
		Code: api.CheckAgree, OK: len(out.Forked) == 0, Measured: new(float64(len(out.Forked))), Threshold: new(float64(0)), Unit: "origins",
		Detail: fmt.Sprintf("%d origins hold what contradicts each other", len(out.Forked)),
	}
	out.Checks = []api.Check{agree}
	if out.OK = agree.OK; !out.DryRun {
		o.opts.Journal.Add(journal.Reconciled{Name: out.Region, Here: here.Ops, There: there.Ops})
	}
	return out, nil
}

// Awake asks the member called name whether it answers, for Options.StatusTimeout: what lasts is not begun with
// one that takes a connection and says nothing. The error is an *api.Problem.
func (o *Ops) Awake(ctx context.Context, name, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, o.opts.StatusTimeout)
	defer cancel()
	if _, err := o.opts.Asker.LocalStatus(ctx, addr); err != nil {
		_, why := reach.Why(err)
		return api.NewProblem(api.CodeMemberUnreached, fmt.Sprintf("%s does not answer at %s: %s", name, addr, why))
	}
	return nil
}

// Held returns what this member holds, and how many bytes of it another one may send.
func (o *Ops) Held() (held []command.Outbox, limit int64, err error) {
	box, err := o.box()
	if err != nil {
		return nil, 0, err
	}
	return box.Snapshot(), box.SnapshotLimit(), nil
}

// Merge takes over what another member holds, and says how long that took. Errors: those of
// (*outbox.Box).Merge, ErrNoOutbox.
func (o *Ops) Merge(held []command.Outbox, dry bool) (outbox.Merged, time.Duration, error) {
	box, err := o.box()
	if err != nil {
		return outbox.Merged{}, 0, err
	}
	start := time.Now()
	merged, err := box.Merge(held, dry)
	return merged, time.Since(start), err
}
