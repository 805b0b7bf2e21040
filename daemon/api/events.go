package api

import (
	"encoding/json"
	"time"
)

// Limits of GET /cluster/events.
const (
	MaxEventsLimit     = 4096 // all that a member keeps
	DefaultEventsLimit = 100
)

// EventStreamType is the media type that asks for server-sent events; NDJSONType that of one JSON
// object a line.
const (
	EventStreamType = "text/event-stream"
	NDJSONType      = "application/x-ndjson"
)

// Kinds that only a stream has; the others are in journal/EVENTS.md.
const (
	EventHeartbeat = "heartbeat"   // nothing happened for a while; its id is that of the event before
	EventsLost     = "events_lost" // the reader was too slow; its id is where the stream goes on
)

// Event is one line of GET /cluster/events: something that a member saw happen.
type Event struct {
	ID     string    `json:"id"` // "3-17": boot of the member's data directory, number within it
	At     time.Time `json:"at"` // by that member's clock
	Member string    `json:"member"`
	Kind   string    `json:"kind"`
	Level  string    `json:"level"` // info, warn, error
	Text   string    `json:"text"`
	// Fact is equal where several members saw one and the same thing.
	Fact   string          `json:"fact,omitempty"`
	Fields json.RawMessage `json:"fields"` // an object; its fields depend on the kind
}
