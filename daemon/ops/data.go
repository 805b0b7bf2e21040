package ops

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/query"
	"github.com/tidaldb/tidal/daemon/state"
)

// Written is an acknowledged write: committed by a majority and applied on this member, the leader.
type Written struct {
	ID      ident.EntryID
	Created bool // an item was made that did not exist
	Refused []command.Refusal
	// Replicated counts the other members that hold the write durably by now; Pending names those
	// that do not yet, in roster order.
	Replicated int
	Pending    []string
}

// Write puts w into the log and returns when it is applied here. Records that the state refuses are
// in Written; every other error is about all of w. Errors: *FutureError, those of (*Replica).Write
// with ErrQuorumTimeout as the cause of a wait that took too long, and of Options.Replica.
func (o *Ops) Write(ctx context.Context, w command.Write) (Written, error) {
	if err := o.checkTimes(w); err != nil {
		return Written{}, err
	}
	r, err := o.opts.Replica(surface)
	if err != nil {
		return Written{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.opts.QuorumTimeout, ErrQuorumTimeout)
	defer cancel()
	res, err := r.Write(ctx, encode(w))
	if err != nil {
		return Written{}, err
	}
	out := Written{ID: res.ID, Created: res.Outcome.Created, Refused: res.Outcome.Refused, Replicated: len(res.Replicated)}
	roster := o.opts.Member.Roster()
	if out.Replicated < len(roster.Members)-1 {
		out.Pending = o.pending(roster, res.Replicated)
	}
	return out, nil
}

// encode spares the common single record the growing of a buffer.
func encode(w command.Write) []byte {
	if len(w.Records) == 1 && w.Flags == 0 {
		switch r := w.Records[0].(type) {
		case command.Signal:
			return command.EncodeSignal(r)
		case command.Item:
			return command.EncodeItem(r)
		}
	}
	return command.EncodeWrite(w)
}

// checkTimes refuses signals from the future. It runs where the write is accepted, so that one clock
// judges: the leader's.
func (o *Ops) checkTimes(w command.Write) error {
	for i, r := range w.Records {
		s, ok := r.(command.Signal)
		if !ok || s.At == 0 {
			continue
		}
		if ahead := time.UnixMilli(s.At).Sub(o.opts.Now()); ahead > o.opts.MaxDrift {
			return &FutureError{Record: i, Ahead: ahead, Limit: o.opts.MaxDrift}
		}
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
	ref, err := o.read(ctx, read, func(view *state.View, now int64) (err error) {
		out, err = readItem(view, collection, id, now)
		return err
	})
	out.Reflects = ref.Reflects
	return out, ref, err
}

// FeedRequest asks for the top of a collection.
type FeedRequest struct {
	Collection string
	Limit      int // 1 to api.MaxFeedLimit
	Read
}

// Feed returns the best ranked items. Errors: *NotFoundError for an unknown collection, those of a
// read.
func (o *Ops) Feed(ctx context.Context, req FeedRequest) (api.FeedAnswer, Reflected, error) {
	out := api.FeedAnswer{UnavailableShards: []string{}}
	ref, err := o.read(ctx, req.Read, func(view *state.View, now int64) (err error) {
		out.Results, err = readFeed(view, req.Collection, req.Limit, now)
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

func readItem(view *state.View, collection, id string, now int64) (api.ItemAnswer, error) {
	it, ok, err := query.Item(view, collection, id, now)
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
	for _, s := range it.Signals {
		out.Signals[s.Type] = api.SignalTotals{Count: s.Count, Weight: s.Weight, Score: s.Score}
	}
	return out, nil
}

func readFeed(view *state.View, collection string, limit int, now int64) ([]api.FeedItem, error) {
	ranked, err := query.Feed(view, query.FeedRequest{Collection: collection, Limit: limit, Now: now})
	if err != nil {
		return nil, notFound(err)
	}
	out := make([]api.FeedItem, len(ranked))
	for i, r := range ranked {
		out[i] = api.FeedItem{ID: r.ID, Score: r.Score, Attrs: r.Attrs}
	}
	return out, nil
}

// notFound says in this package's words that a collection is not there.
func notFound(err error) error {
	if e, ok := errors.AsType[*query.NoCollectionError](err); ok {
		return &NotFoundError{What: "collection", Name: e.Name}
	}
	return err
}
