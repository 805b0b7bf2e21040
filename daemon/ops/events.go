package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/journal"
)

// EventIDError refuses an event id that is none.
type EventIDError struct{ Err error }

func (e *EventIDError) Error() string { return e.Err.Error() }

// Events returns what this member saw, oldest first: the first limit events after the id, or the
// newest limit where after is empty. Errors: *EventIDError, *journal.CompactedError,
// *journal.UnknownIDError.
func (o *Ops) Events(after string, limit int) ([]api.Event, error) {
	id, err := o.eventID(after, limit)
	if err != nil {
		return nil, err
	}
	events, err := o.opts.Journal.After(id, limit)
	if err != nil {
		return nil, err
	}
	out := make([]api.Event, len(events))
	for i, e := range events {
		out[i] = o.event(e)
	}
	return out, nil
}

// eventID reads the id to begin after.
func (o *Ops) eventID(after string, limit int) (journal.ID, error) {
	if after == "" {
		return o.opts.Journal.Newest(limit), nil
	}
	id, err := journal.ParseID(after)
	if err != nil {
		return id, &EventIDError{err}
	}
	return id, nil
}

// EventStream is a reader of events as they come. It belongs to one goroutine, which closes it.
type EventStream struct {
	ops      *Ops
	follower *journal.Follower
}

// FollowEvents begins after the id, or with the newest limit events where after is empty. Errors: those
// of Events, and *journal.BusyError.
func (o *Ops) FollowEvents(after string, limit int) (*EventStream, error) {
	id, err := o.eventID(after, limit)
	if err != nil {
		return nil, err
	}
	f, err := o.opts.Journal.Follow(id)
	if err != nil {
		return nil, err
	}
	return &EventStream{o, f}, nil
}

// Close ends the stream.
func (s *EventStream) Close() { s.follower.Close() }

// Next returns the events that follow, at least one. To a reader that was too slow it says so with an
// event, and goes on with what there still is. Errors: the cause of ctx, journal.ErrClosed.
func (s *EventStream) Next(ctx context.Context) ([]api.Event, error) {
	events, err := s.follower.Next(ctx)
	if e, ok := errors.AsType[*journal.CompactedError](err); ok {
		return []api.Event{s.own(journal.EventsLost{After: e.After.String(), Floor: e.Floor.String()})}, nil
	}
	if err != nil {
		return nil, err
	}
	out := make([]api.Event, len(events))
	for i, e := range events {
		out[i] = s.ops.event(e)
	}
	return out, nil
}

// Heartbeat returns the event that says that nothing happened.
func (s *EventStream) Heartbeat() api.Event { return s.own(journal.Heartbeat{}) }

// own makes an event of this stream alone: its id is where the stream stands.
func (s *EventStream) own(f journal.Fact) api.Event {
	return s.ops.event(journal.Event{ID: s.follower.At(), At: s.ops.opts.Now(), Fact: f})
}

func (o *Ops) event(e journal.Event) api.Event {
	fields, err := json.Marshal(e.Fact)
	if err != nil { // strings, numbers and lists of them cannot fail
		panic(fmt.Errorf("encode event %s: %w", e.ID, err))
	}
	kind := e.Fact.Kind()
	return api.Event{
		ID: e.ID.String(), At: e.At.UTC(), Member: o.name, Kind: string(kind), Level: string(journal.LevelOf(kind)),
		Text: e.Fact.Text(), Fact: e.Fact.Same(), Fields: fields,
	}
}
