package ops

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
)

// The verbs as operations are called.
const (
	opPromote   = "promote"
	opMembers   = "members " // and one of VerbPromote, VerbRemove, VerbReplace
	opPartition = "partition"
	opHeal      = "heal"
	opReseed    = "reseed"
	opClear     = "quarantine clear"
	opReconcile = "reconcile"
)

// Memory keeps what this member knows of its operations over a restart. *datadir.Dir implements it.
type Memory interface {
	// Operations returns what was kept last; nil: nothing.
	Operations() ([]byte, error)
	KeepOperations(book []byte) error
}

// keeper writes operations down.
type keeper struct {
	memory Memory                   // nil: they are forgotten
	word   func(error) *api.Problem // never nil
	log    *slog.Logger

	mu sync.Mutex // held while the disk is written, so that an older book never replaces a newer one
}

// inWords is how errors are worded where nobody says: one that is not on the wire's terms is one that was met
// before anything was done.
func inWords(err error) *api.Problem {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p
	}
	return api.NewProblem(api.CodeNotReady, err.Error())
}

// book is all operations that are kept, as JSON: fields are only added.
type book struct {
	Operations []entry `json:"operations"` // oldest first
}

// entry is one operation. Without FinishedAt it was running, or its end was not known.
type entry struct {
	ID         string          `json:"id"`
	Verb       string          `json:"verb"`
	Request    string          `json:"request"`
	About      string          `json:"about,omitempty"`
	Target     ident.MemberID  `json:"target,string,omitempty"`
	StartedAt  time.Time       `json:"started_at"`
	FinishedAt *time.Time      `json:"finished_at,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	Problem    *api.Problem    `json:"problem,omitempty"`
}

// save writes down what list returns. A disk that takes nothing keeps no verb from being carried out:
// what is lost is what a member knows of it after its next start.
func (k *keeper) save(list func() []*operation) {
	if k.memory == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var b book
	for _, op := range list() {
		if op.dry {
			continue
		}
		e, err := k.entry(op)
		if err != nil {
			k.log.Error("operation not kept", slog.String("op", op.id), slog.Any("err", err))
			continue
		}
		b.Operations = append(b.Operations, e)
	}
	text, err := json.Marshal(b)
	if err == nil {
		err = k.memory.KeepOperations(text)
	}
	if err != nil {
		k.log.Warn("operations will be forgotten at the next start", slog.Any("err", err))
	}
}

func (k *keeper) entry(op *operation) (entry, error) {
	e := entry{ID: op.id, Verb: op.verb, Request: op.request, About: op.about, Target: op.target, StartedAt: op.started.UTC()}
	if !op.ended.Load() || op.interrupted || op.cut {
		return e, nil
	}
	e.FinishedAt = new(op.finished.UTC())
	if op.err != nil {
		e.Problem = k.word(op.err)
		return e, nil
	}
	var err error
	e.Result, err = json.Marshal(op.result)
	return e, err
}

// load returns what was written down, oldest first, at most limit. What cannot be read is no reason not to
// start.
func (k *keeper) load(limit int) []entry {
	if k.memory == nil {
		return nil
	}
	text, err := k.memory.Operations()
	var b book
	if err == nil && text != nil {
		err = json.Unmarshal(text, &b)
	}
	if err != nil {
		k.log.Warn("operations of earlier starts are forgotten", slog.Any("err", err))
		return nil
	}
	return b.Operations[max(len(b.Operations)-limit, 0):]
}

// remember takes up the operations of earlier processes of this member: what ended stands as it ended, what
// latched something goes on, and of the rest is found out what became of it when somebody asks.
func (o *Ops) remember() {
	for _, e := range o.operations.kept.load(o.operations.limit) {
		op := &operation{
			intent:  intent{verb: e.Verb, id: e.ID, request: e.Request, about: e.About, target: e.Target},
			started: e.StartedAt, done: make(chan struct{}),
		}
		o.operations.mu.all = append(o.operations.mu.all, op)
		switch {
		case e.FinishedAt == nil && op.verb == opReseed:
			o.operations.work.Go(func() { o.operations.run(op, o.resumeReseed) })
			continue
		case e.FinishedAt == nil:
			op.interrupted, op.err = true, op.cutShort(o.name)
		case e.Problem != nil:
			op.finished, op.err = *e.FinishedAt, e.Problem
		default:
			op.finished, op.result = *e.FinishedAt, e.Result
		}
		op.ended.Store(true)
		close(op.done)
	}
}

// cutShort is all that is known of an operation whose process was ended.
func (op *operation) cutShort(name string) *api.Problem {
	p := api.NewProblem(api.CodeOutcomeUnknown, fmt.Sprintf("%s was restarted while %s ran", name, op.verb))
	switch op.verb {
	case opPromote:
		p.Try = "tidalctl status"
	case opPartition:
		p.Detail += "; faults that members took end with their time"
		p.Try = "tidalctl faults list"
	case opHeal:
		p.Try = "tidalctl faults list"
	case opReseed:
		p.Try = "tidalctl why " + op.about
	case opClear:
		p.Try = "tidalctl quarantine show " + op.about
	case opReconcile:
		p.Try = "tidalctl reconcile " + op.about
	default:
		p.Try = "tidalctl members list"
	}
	return p
}

// findings are what is left of an operation that was cut short, in the state of this member.
type findings struct {
	roster     membership.Roster
	term       uint64
	leader     ident.MemberID // 0: nobody is known to lead
	leaderName string
	applied    uint64
	// decided: whatever was proposed before this member's last start is applied here, or never will be.
	decided bool
}

// find looks at the state. The error is of a replica that cannot be read.
func (o *Ops) find() (f findings, err error) {
	r, err := o.opts.Replica(surface)
	if err != nil {
		return f, err
	}
	s := r.Status()
	view := r.View()
	defer func() { err = errors.Join(err, view.Close()) }()
	if f.roster, err = apply.Roster(view); err != nil {
		return f, err
	}
	applied := view.Position().Applied
	f.term, f.leader, f.applied = s.Term, s.Leader, applied.Index
	// Since its start this member has led no term that it led before. So what it proposed then is of a term
	// before this one, and comes before the first entry of this one in the log, or nowhere.
	f.decided = s.Leader != 0 && applied.Term == s.Term
	f.leaderName = whoIs(f.roster, s.Leader)
	return f, nil
}

// judge says what became of an operation that was cut short; settled is false while nobody can know.
func (op *operation) judge(f findings) (result any, err error, settled bool) {
	lost := func(format string, args ...any) (any, error, bool) {
		return nil, api.NewProblem(api.CodeInterrupted, fmt.Sprintf("a restart cut %s short, and %s", op.verb, fmt.Sprintf(format, args...))), true
	}
	m, is := f.roster.Member(op.target)
	changed := func(verb, role string) (any, error, bool) {
		return api.MemberChanged{
			OK: true, Op: op.id, Verb: verb, Name: op.about, ID: op.target.String(), Role: role,
			Index: f.applied, Term: f.term, Settled: f.decided, Checks: []api.Check{},
		}, nil, true
	}
	switch {
	case op.target == 0:
	case op.verb == opMembers+VerbReplace:
		return lost("what it allowed ended with it")
	case op.verb == opMembers+VerbRemove && !is && f.roster.Removed(op.target):
		return changed(VerbRemove, api.RoleRemoved)
	case op.verb == opMembers+VerbRemove && is && f.decided:
		return lost("%s is a member still in term %d", op.about, f.term)
	case op.verb == opMembers+VerbPromote && is && m.Role == membership.RoleVoter:
		return changed(VerbPromote, api.RoleVoter)
	case op.verb == opMembers+VerbPromote && is && f.decided:
		return lost("%s is a learner still in term %d", op.about, f.term)
	case op.verb == opPromote && f.leader == op.target:
		return api.Promoted{
			OK: true, Leader: &op.about, Term: f.term, Op: op.id, Checks: []api.Check{}, Acked: []string{}, Failed: []string{},
		}, nil, true
	case op.verb == opPromote && f.decided:
		p := api.NewProblem(api.CodeOtherLeader, fmt.Sprintf("a restart cut it short, and %s leads term %d now, not %s", f.leaderName, f.term, op.about))
		p.Leader = f.leaderName
		return nil, p, true
	}
	return nil, nil, false
}

// settle finds out what became of an operation that an earlier process was cut short in, and keeps that: a
// later look could find what came after it.
func (o *Ops) settle(op *operation) *operation {
	if !op.interrupted {
		return op
	}
	f, err := o.find()
	if err != nil {
		return op // it stays unknown
	}
	result, err, settled := op.judge(f)
	if !settled {
		return op
	}
	known := &operation{intent: op.intent, started: op.started, done: op.done, finished: o.opts.Now(), result: result, err: err}
	known.ended.Store(true)
	o.operations.replace(op, known)
	return known
}

// resultOf reads the result of an operation that has ended, of this process or an earlier one.
func resultOf[T any](op *operation) (T, bool) {
	if text, earlier := op.result.(json.RawMessage); earlier {
		var v T
		return v, json.Unmarshal(text, &v) == nil
	}
	v, ok := op.result.(T)
	return v, ok
}
