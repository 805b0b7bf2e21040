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
	DefaultCollection = "default"
)

// Ack levels: what an acknowledgement promises.
const (
	AckQuorum = "quorum" // committed by a majority and applied on the leader
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
	Ack   string `json:"ack"` // quorum
	// ReplicatedTo is how many other members hold the write durably by now; Pending names those that
	// do not yet.
	ReplicatedTo int      `json:"replicated_to"`
	Pending      []string `json:"pending"`
	// Refused lists the records of an array that were not taken, by position from 0.
	Refused []Refusal `json:"refused"`
}

// Refusal says why one record of a batch was not taken.
type Refusal struct {
	Record int    `json:"record"`
	Code   Code   `json:"code"`
	Detail string `json:"detail"`
}

// Signal is the body of POST /signals.
type Signal struct {
	Item       string          `json:"item"`
	Signal     string          `json:"signal"`
	Collection string          `json:"collection,omitempty"` // default: "default"
	User       string          `json:"user,omitempty"`
	Weight     *float64        `json:"weight,omitempty"` // 0.001 to 1e6, kept to 0.001; default 1
	TS         json.RawMessage `json:"ts,omitempty"`     // RFC 3339 string or Unix milliseconds; default: arrival
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
