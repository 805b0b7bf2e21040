package query

import (
	"maps"
	"slices"

	"github.com/tidaldb/tidal/daemon/entity"
)

// Pending is what a member has taken by itself and the state does not hold yet: answers are made as if it
// did. The zero Pending is nothing.
type Pending struct {
	Signals map[string][]Observation  // by item
	Hides   map[string]entity.HardNeg // by item, of the user who asks
}

// Observation is a pending signal.
type Observation struct {
	Type  string
	Milli uint64 // weight in thousandths
	At    int64  // Unix ms
}

// observe adds what is pending of an item to its row. A type that the collection does not have is left
// out, as the log will leave it out.
func (p Pending) observe(c *entity.Collection, id string, row *entity.Row) {
	for _, o := range p.Signals[id] {
		if typ, ok := c.Type(o.Type); ok {
			row.Observe(typ, o.Milli, c.Mass(typ, o.Milli, o.At))
		}
	}
}

// items are those with pending signals, by id.
func (p Pending) items() []string { return slices.Sorted(maps.Keys(p.Signals)) }
