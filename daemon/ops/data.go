package ops

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/outbox"
	"github.com/tidaldb/tidal/daemon/query"
	"github.com/tidaldb/tidal/daemon/replica"
	"github.com/tidaldb/tidal/daemon/state"
)

// Write is one write on its way into the log.
type Write struct {
	Data []byte // of a command.Builder, checked; nobody changes it
	// Ack is what to wait for: api.AckQuorum or api.AckLeader. A write with idempotency keys always
	// waits for the quorum: before it is applied nobody knows whether it came before.
	Ack string
}

// Written is an acknowledged write.
type Written struct {
	// ID is its entry. Of a write that came before, under the same key, the entry of then.
	ID ident.EntryID
	// Ack is what is promised: committed by a majority and applied on the leader, or durable in the
	// leader's log. With api.AckLeader it is not known what the state makes of the records: Created,
	// Version, Refused and Denied are zero.
	Ack     string
	Created bool   // an item or a collection was made that did not exist
	Version uint64 // of the schema that was declared
	Refused []command.Refusal
	// Denied says why nothing of the write was taken; nil: it was.
	Denied *command.Refusal
	// Replicated counts the other members that hold the write durably by now; Pending names those
	// that do not yet, in roster order.
	Replicated int
	Pending    []string
}

// Write puts w into the log and returns when it is acknowledged. What the state refuses is in Written;
// every error is about all of w. Errors: *FutureError, those of (*Replica).Write with
// ErrQuorumTimeout as the cause of a wait that took too long, and of Options.Replica.
func (o *Ops) Write(ctx context.Context, w Write) (Written, error) {
	wait, err := o.Begin(ctx, w)
	if err != nil {
		return Written{}, err
	}
	return wait()
}

// Begin is the first half of a Write: writes that were begun one after the other are put into the log
// in this order. wait is the other half, to be called once; an error of Begin says that nothing
// happened.
func (o *Ops) Begin(ctx context.Context, w Write) (wait func() (Written, error), err error) {
	facts := command.Inspect(w.Data)
	if facts.Latest != 0 {
		if err := o.CheckTime(facts.Latest); err != nil {
			err.Record = facts.Record
			return nil, err
		}
	}
	r, err := o.opts.Replica(surface)
	if err != nil {
		return nil, err
	}
	ack := consensus.AckQuorum
	if w.Ack == api.AckLeader && !facts.Keyed {
		ack = consensus.AckLeader
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.opts.QuorumTimeout, ErrQuorumTimeout)
	settled, err := r.Begin(w.Data, ack)
	if err != nil {
		cancel()
		return nil, err
	}
	return func() (Written, error) {
		defer cancel()
		res, err := settled(ctx)
		if err != nil {
			return Written{}, err
		}
		return o.written(res), nil
	}, nil
}

func (o *Ops) written(res replica.Result) Written {
	out := Written{
		ID: res.ID, Ack: api.AckQuorum, Created: res.Outcome.Created, Version: res.Outcome.Version,
		Refused: res.Outcome.Refused, Denied: res.Outcome.Denied, Replicated: len(res.Replicated),
	}
	if res.Ack == consensus.AckLeader {
		out.Ack = api.AckLeader
	}
	if first := res.Outcome.First; first.Index != 0 {
		out.ID = first
	}
	roster := o.opts.Member.Roster()
	if out.Replicated < len(roster.Members)-1 {
		out.Pending = o.pending(roster, res.Replicated)
	}
	return out
}

// CheckTime refuses a signal from the future: at is its Unix time in milliseconds. Begin does it too.
// It runs where the write is accepted, so that one clock judges: the leader's.
func (o *Ops) CheckTime(at int64) *FutureError {
	if ahead := time.UnixMilli(at).Sub(o.opts.Now()); ahead > o.opts.MaxDrift {
		return &FutureError{Ahead: ahead, Limit: o.opts.MaxDrift}
	}
	return nil
}

// pending names the other members that are not in have.
func (o *Ops) pending(r membership.Roster, have []ident.MemberID) []string {
	var names []string
	for _, m := range r.Members {
		if m.Name != o.name && !slices.Contains(have, m.ID) {
			names = append(names, m.Name)
		}
	}
	return names
}

// Read says what state a read must reflect. The zero Read takes this member's state as it is.
type Read struct {
	// Linearizable waits for everything acknowledged before the read began.
	Linearizable bool
	// MinIndex waits for this index (read your writes).
	MinIndex uint64
}

// Reflected is the state that a read was answered from.
type Reflected struct {
	Term uint64
	api.Reflects
}

// Item returns one item with its totals. Errors: *NotFoundError, those of a read.
func (o *Ops) Item(ctx context.Context, collection, id string, read Read) (api.ItemAnswer, Reflected, error) {
	var out api.ItemAnswer
	waiting := o.waiting(read, func(b *outbox.Box) outbox.Pending { return b.OfItem(collection, id) })
	ref, err := o.read(ctx, read, func(view *state.View, now int64) error {
		pending, err := waiting.Beyond(view)
		if err != nil {
			return err
		}
		out, err = readItem(view, collection, id, now, pending)
		return err
	})
	out.Reflects = ref.Reflects
	return out, ref, err
}

// FeedRequest asks for the top of a collection.
type FeedRequest struct {
	Collection string
	Limit      int // 1 to api.MaxFeedLimit
	User       string
	Diversity  query.Diversity
	Read
}

// Feed returns the best ranked items. Errors: *NotFoundError for an unknown collection, those of a
// read.
func (o *Ops) Feed(ctx context.Context, req FeedRequest) (api.FeedAnswer, Reflected, error) {
	out := api.FeedAnswer{UnavailableShards: []string{}}
	waiting := o.waiting(req.Read, func(b *outbox.Box) outbox.Pending { return b.OfFeed(req.Collection, req.User) })
	ref, err := o.read(ctx, req.Read, func(view *state.View, now int64) error {
		pending, err := waiting.Beyond(view)
		if err != nil {
			return err
		}
		out.Results, out.DiversityExhausted, err = readFeed(view, req, now, pending)
		return err
	})
	out.Reflects = ref.Reflects
	return out, ref, err
}

// read waits for the state that how asks for and calls from with a view of it and the time of its
// arrival in Unix milliseconds. Errors: *ReadTimeoutError, *IndexTimeoutError, those of the replica
// and of from.
func (o *Ops) read(ctx context.Context, how Read, from func(view *state.View, now int64) error) (Reflected, error) {
	now := o.opts.Now()
	r, err := o.opts.Replica(surface)
	if err != nil {
		return Reflected{}, err
	}
	if how != (Read{}) {
		if err := o.await(ctx, r, how); err != nil {
			return Reflected{}, err
		}
	}
	view := r.View()
	defer view.Close()
	s := r.Status()
	ref := Reflected{Term: s.Term}
	ref.AppliedIndex = view.Position().Applied.Index
	last, age := heard(s, now)
	if ref.AgeMS = age; last != nil {
		ref.LagEvents = new(*last - min(*last, ref.AppliedIndex))
	}
	return ref, from(view, now.UnixMilli())
}

// await returns once the state of r is as new as how asks for.
func (o *Ops) await(ctx context.Context, r Replica, how Read) error {
	start := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, o.opts.QuorumTimeout, ErrQuorumTimeout)
	defer cancel()
	want := how.MinIndex
	if how.Linearizable {
		index, err := r.ReadIndex(ctx)
		if errors.Is(err, ErrQuorumTimeout) {
			return &ReadTimeoutError{Waited: time.Since(start).Round(time.Millisecond)}
		}
		if err != nil {
			return err
		}
		want = max(want, index)
	}
	err := r.WaitApplied(ctx, want)
	if errors.Is(err, ErrQuorumTimeout) {
		return &IndexTimeoutError{Want: want, Applied: r.Status().Applied, Waited: time.Since(start).Round(time.Millisecond)}
	}
	return err
}

func readItem(view *state.View, collection, id string, now int64, pending query.Pending) (api.ItemAnswer, error) {
	it, ok, err := query.ItemWith(view, collection, id, now, pending)
	if err != nil {
		return api.ItemAnswer{}, notFound(err)
	}
	if !ok {
		return api.ItemAnswer{}, &NotFoundError{What: "item", Name: id}
	}
	out := api.ItemAnswer{
		ID: it.ID, Collection: it.Collection, Version: it.Version, Attrs: it.Attrs, Score: it.Score,
		Signals: make(map[string]api.SignalTotals, len(it.Signals)),
	}
	if it.Dimension != 0 {
		out.Dimension = new(it.Dimension)
	}
	for _, s := range it.Signals {
		out.Signals[s.Type] = api.SignalTotals{Count: s.Count, Weight: s.Weight, Score: s.Score}
	}
	return out, nil
}

func readFeed(view *state.View, req FeedRequest, now int64, pending query.Pending) (items []api.FeedItem, exhausted bool, err error) {
	feed, err := query.Feed(view, query.FeedRequest{
		Collection: req.Collection, Limit: req.Limit, Now: now, User: req.User, Diversity: req.Diversity, Pending: pending,
	})
	if err != nil {
		return nil, false, notFound(err)
	}
	items = make([]api.FeedItem, len(feed.Items))
	for i, r := range feed.Items {
		items[i] = api.FeedItem{ID: r.ID, Score: r.Score, Attrs: r.Attrs}
	}
	return items, feed.Exhausted, nil
}

// Collection returns a collection. Errors: *NotFoundError, those of a read.
func (o *Ops) Collection(ctx context.Context, name string, read Read) (api.CollectionAnswer, Reflected, error) {
	var out api.CollectionAnswer
	ref, err := o.read(ctx, read, func(view *state.View, _ int64) error {
		c, err := query.Collection(view, name)
		if err != nil {
			return notFound(err)
		}
		out = collectionAnswer(c)
		return nil
	})
	out.Reflects = ref.Reflects
	return out, ref, err
}

func collectionAnswer(c entity.Collection) api.CollectionAnswer {
	out := api.CollectionAnswer{
		Name: c.Name, Version: c.Version, HalfLife: c.HalfLife.String(), HalfLifeMS: c.HalfLife.Milliseconds(), InUse: c.InUse,
		Signals:    make(map[string]api.SignalType, len(c.Types)),
		Attributes: make(map[string]string, len(c.Attributes)),
	}
	for _, t := range c.Types {
		out.Signals[t.Name] = api.SignalType{Weight: float64(t.Milli) / entity.MilliPerWeight}
	}
	for _, a := range c.Attributes {
		out.Attributes[a.Name] = a.Type.String()
	}
	if c.Dimension != 0 {
		out.Dimension = new(c.Dimension)
	}
	return out
}

// notFound says in this package's words that a collection is not there.
func notFound(err error) error {
	if e, ok := errors.AsType[*query.NoCollectionError](err); ok {
		return &NotFoundError{What: "collection", Name: e.Name}
	}
	return err
}
