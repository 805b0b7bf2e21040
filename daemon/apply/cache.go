package apply

import (
	"strings"
	"unsafe"

	"github.com/tidaldb/tidal/daemon/entity"
)

// rowKey names a row. As a map key it needs no allocation to look one up by a part of a payload.
type rowKey struct {
	collection entity.CollectionID
	id         string
}

// cachedRow is a row, decoded.
type cachedRow struct {
	key rowKey
	row entity.Row
	one [1]entity.Total // where row.Totals lives while the item has one signal type

	// rank is the bucket of the rank key in the store; there is one iff ranked.
	rank   entity.Bucket
	ranked bool

	// stored says that the store has the row's pair.
	stored bool

	// dirty says that the row, or what goes with it, was changed since the last commit. item and
	// embedding are what those of the item are to become; nil: they were not written. cleared: the
	// item was deleted, and what was not written since goes.
	//
	// Invariant: dirty if one of the others is set.
	dirty     bool
	cleared   bool
	item      *entity.Item
	embedding *entity.Embedding

	bytes      int // as counted in rowCache.bytes
	prev, next *cachedRow
}

// newCachedRow returns the empty row of an item. It copies id.
func newCachedRow(c entity.CollectionID, id string) *cachedRow {
	r := &cachedRow{key: rowKey{c, strings.Clone(id)}}
	r.row.Totals = r.one[:0]
	return r
}

// rowOverhead is about what a row costs beside its id and totals: itself and its place in the map.
const rowOverhead = int(unsafe.Sizeof(cachedRow{})) + 64

func (r *cachedRow) size() int {
	n := rowOverhead + len(r.key.id)
	if c := cap(r.row.Totals); c > len(r.one) {
		n += c * int(unsafe.Sizeof(entity.Total{}))
	}
	return n
}

// rowCache holds the rows used last. It may outgrow its limit while a run is applied; evict ends
// that, when no row in it is dirty.
type rowCache struct {
	limit int // bytes
	bytes int
	rows  map[rowKey]*cachedRow
	// ring is the sentinel of the list of all rows: ring.next was used last, ring.prev longest ago.
	ring cachedRow
}

func newRowCache(limit int) *rowCache {
	c := &rowCache{limit: limit, rows: map[rowKey]*cachedRow{}}
	c.ring.prev, c.ring.next = &c.ring, &c.ring
	return c
}

func (c *rowCache) get(key rowKey) (*cachedRow, bool) {
	r, ok := c.rows[key]
	if ok && c.ring.next != r {
		r.unlink()
		c.front(r)
	}
	return r, ok
}

// add takes r, whose key is not in c.
func (c *rowCache) add(r *cachedRow) {
	c.rows[r.key] = r
	c.front(r)
	c.resize(r)
}

// resize counts r anew after its totals may have grown.
func (c *rowCache) resize(r *cachedRow) {
	n := r.size()
	c.bytes += n - r.bytes
	r.bytes = n
}

// evict drops the rows used longest ago until c is within its limit. No row is dirty.
func (c *rowCache) evict() {
	for c.bytes > c.limit {
		r := c.ring.prev
		r.unlink()
		delete(c.rows, r.key)
		c.bytes -= r.bytes
	}
}

func (c *rowCache) front(r *cachedRow) {
	r.prev, r.next = &c.ring, c.ring.next
	r.prev.next, r.next.prev = r, r
}

func (r *cachedRow) unlink() { r.prev.next, r.next.prev = r.next, r.prev }
