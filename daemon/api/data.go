package api

import "encoding/json"

// Limits of the data surface.
const (
	MaxIDBytes        = 256      // ids of items, users and collections; at least 1
	MaxItemBytes      = 64 << 10 // one item as JSON
	MaxBodyBytes      = 1 << 20  // one request
	MaxRecords        = 4096     // one array
	MaxFeedLimit      = 1000
	DefaultFeedLimit  = 20
	MaxJSONDepth      = 32
	MinWeight         = 0.001
	MaxWeight         = 1e6
	MaxDimension      = 4096      // floats of an embedding
	MaxLineBytes      = 128 << 10 // one line of a stream
	DefaultCollection = "default"
)

// Ack levels: what an acknowledgement promises.
const (
	AckQuorum = "quorum" // committed by a majority and applied on the leader
	AckLeader = "leader" // durable in the leader's log; lost if the leader is lost before it commits
	AckLocal  = "local"  // durable on the member that took it, which delivers it once, later
)

// Consistency of a read.
const (
	ConsistencyLocal        = "local"        // this member's applied state, with its lag
	ConsistencyLinearizable = "linearizable" // at least everything acknowledged before the read began
)

// Written is the body of an acknowledged write.
type Written struct {
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
	Ack   string `json:"ack"` // what is promised: quorum or leader
	// ReplicatedTo is how many other members hold the write durably by now; Pending names those that
	// do not yet.
	ReplicatedTo int      `json:"replicated_to"`
	Pending      []string `json:"pending"`
	// Accepted is how many records were taken; Refused lists the others, by position from 0. Both are
	// null with ack=leader: what the state makes of the records is not known yet.
	Accepted *int      `json:"accepted"`
	Refused  []Refusal `json:"refused"`
}

// Declared is the body of an acknowledged PUT /collections/{name}.
type Declared struct {
	Name string `json:"name"`
	// Version is the index of the entry that changed the schema last; null with ack=leader.
	Version *uint64 `json:"version"`
	Written
}

// Refusal says why one record of a batch was not taken.
type Refusal struct {
	Record int    `json:"record"`
	Code   Code   `json:"code"`
	Detail string `json:"detail"`
}

// Signal is the body of POST /signals, or an element of it.
type Signal struct {
	Item       string          `json:"item"`
	Signal     string          `json:"signal"`
	Collection string          `json:"collection,omitempty"` // default: "default"
	User       string          `json:"user,omitempty"`
	Weight     *float64        `json:"weight,omitempty"` // 0.001 to 1e6, kept to 0.001; default 1
	TS         json.RawMessage `json:"ts,omitempty"`     // RFC 3339 string or Unix milliseconds; default: arrival
	Key        string          `json:"key,omitempty"`    // idempotency key of this record
}

// Embedding is the body of POST /embeddings, or an element of it.
type Embedding struct {
	Item       string    `json:"item"`
	Collection string    `json:"collection,omitempty"`
	Vector     []float32 `json:"vector"` // 1 to 4096 finite numbers; the nearest 32-bit floats are kept
	Key        string    `json:"key,omitempty"`
}

// What a hard negative does.
const (
	OpHide   = "hide"
	OpUnhide = "unhide"
)

// HardNeg is the body of POST /hardnegs, or an element of it.
type HardNeg struct {
	User       string `json:"user"`
	Item       string `json:"item"`
	Op         string `json:"op"` // hide or unhide
	Collection string `json:"collection,omitempty"`
	Key        string `json:"key,omitempty"`
}

// Schema is the body of PUT /collections/{name}.
type Schema struct {
	HalfLife   string                `json:"half_life"`            // a duration: "168h"
	Signals    map[string]SignalType `json:"signals"`              // at most 64
	Attributes map[string]string     `json:"attributes,omitempty"` // string, number, bool or strings; at most 64
	Dimension  int                   `json:"dimension,omitempty"`  // of embeddings; default: that of the first one
}

// SignalType is one kind of signal in a schema.
type SignalType struct {
	Weight float64 `json:"weight"` // 0 to 1e6, kept to 0.001
}

// CollectionAnswer is the body of GET /collections/{name}.
type CollectionAnswer struct {
	Name       string                `json:"name"`
	Version    uint64                `json:"version"` // index of the entry that changed the schema last
	HalfLife   string                `json:"half_life"`
	HalfLifeMS int64                 `json:"half_life_ms"`
	Signals    map[string]SignalType `json:"signals"`
	Attributes map[string]string     `json:"attributes"`
	Dimension  *int                  `json:"dimension"` // null: fixed by the first embedding
	InUse      bool                  `json:"in_use"`    // it has or had signals: half-life and weights are fixed
	Reflects
}

// The kinds of lines of POST /ingest: the fields of Signal, of an item, of Embedding or of HardNeg, and
// kind. An item's attributes cannot be called kind or key there.
const (
	KindSignal    = "signal"
	KindItem      = "item"
	KindEmbedding = "embedding"
	KindHardNeg   = "hardneg"
)

// Ack is a line of the answer of POST /ingest: the first Acked lines are settled, which is to say
// taken or refused.
type Ack struct {
	Acked uint64 `json:"acked"`
	// Index is that of the newest entry among them.
	Index uint64 `json:"index"`
	// Refused lists those that were not taken, of the lines settled since the line before.
	Refused []LineRefusal `json:"refused,omitempty"`
}

// LineRefusal says why one line was not taken. Lines count from 1.
type LineRefusal struct {
	Line   uint64 `json:"line"`
	Code   Code   `json:"code"`
	Detail string `json:"detail"`
}

// StreamEnd is the last line of the answer of POST /ingest.
type StreamEnd struct {
	// Done says that every line that was sent is settled.
	Done  bool   `json:"done"`
	Acked uint64 `json:"acked"`
	// Refused counts the lines that were not taken; left out where that is not known.
	Refused *uint64 `json:"refused,omitempty"`
	// Problem is why the stream ended early. Send the lines after Acked again; if its effect is
	// unknown, some of them may have been taken, and those with a key are not taken twice.
	Problem *Problem `json:"problem,omitempty"`
}

// SignalTotals is what is known of one signal type of an item.
type SignalTotals struct {
	Count  uint64  `json:"count"`  // exact
	Weight float64 `json:"weight"` // exact sum of weights
	Score  float64 `json:"score"`  // the collection's weight of the type times the decayed sum
}

// ItemAnswer is the body of GET /items/{id}.
type ItemAnswer struct {
	ID         string `json:"id"`
	Collection string `json:"collection"`
	Version    uint64 `json:"version"` // index of the entry that wrote it
	// Attrs is everything else the item was written with, one object: keys sorted, numbers as they
	// came.
	Attrs   json.RawMessage         `json:"attrs"`
	Score   float64                 `json:"score"`
	Signals map[string]SignalTotals `json:"signals"`
	// Dimension is that of its embedding; null: it has none.
	Dimension *int `json:"dimension"`
	Reflects
}

// Reflects says what state an answer was read from.
type Reflects struct {
	AppliedIndex uint64 `json:"applied_index"`
	// LagEvents and AgeMS are null where no leader was ever heard.
	LagEvents *uint64 `json:"lag_events"`
	AgeMS     *int64  `json:"age_ms"` // since the leader was last heard; 0 on the leader
}

// FeedAnswer is the body of GET /feed.
type FeedAnswer struct {
	Results []FeedItem `json:"results"`
	// DiversityExhausted says that results are few because too many items were passed over.
	DiversityExhausted bool `json:"diversity_exhausted"`
	Reflects
	Degraded          bool     `json:"degraded"`
	UnavailableShards []string `json:"unavailable_shards"`
}

// FeedItem is one ranked item.
type FeedItem struct {
	ID    string          `json:"id"`
	Score float64         `json:"score"`
	Attrs json.RawMessage `json:"attrs"`
}
