package apply

import (
	"strings"
	"unsafe"

	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/state"
)

// rowKey names a row. As a map key it needs no allocation to look one up by a part of a payload.
type rowKey struct {
	collection entity.CollectionID
	id         string
}

// cachedRow is a row, decoded. There are many: its fields are laid out without gaps.
type cachedRow struct {
	key rowKey
	row entity.Row
	one [1]entity.Total // where row.Totals lives while the item has one signal type

	// item and embedding are what those of the item are to become; nil: they were not written.
	item      *entity.Item
	embedding *entity.Embedding

	// rank is that of the rank key in the store; there is one iff ranked.
	rank   entity.Mass
	ranked bool

	// stored says that the store has the row's pair, sum what it adds to the digest; zero: it has none.
	stored bool
	sum    state.Sum

	// dirty says that the row, or what goes with it, was changed since the last commit. cleared: the
	// item was deleted, and what was not written since goes.
	//
	// Invariant: dirty if item, embedding or cleared is set.
	dirty   bool
	cleared bool

	used bool // since the cache last judged it

	bytes uint16 // as counted in rowCache.bytes; at most rowOverhead, an id and MaxTypes totals
}

// newCachedRow returns the empty row of an item. It copies id.
func newCachedRow(c entity.CollectionID, id string) *cachedRow {
	r := &cachedRow{key: rowKey{c, strings.Clone(id)}}
	r.row.Totals = r.one[:0]
	return r
}

// rowOverhead is about what a row costs beside its id and totals: itself and its places in the map
// and the queue.
const rowOverhead = int(unsafe.Sizeof(cachedRow{})) + 72

func (r *cachedRow) size() int {
	n := rowOverhead + len(r.key.id)
	if c := cap(r.row.Totals); c > len(r.one) {
		n += c * int(unsafe.Sizeof(entity.Total{}))
	}
	return n
}

// rowCache holds rows that were used lately. It drops them by the rule of the second chance, which is
// close to least recently used, and under which a hit writes nothing but the row that it returns anyhow
// (F. J. Corbató, A paging experiment with the Multics system, 1968). It may outgrow its limit while a
// run is applied; evict ends that, when no row in it is dirty.
type rowCache struct {
	limit int // bytes
	bytes int
	rows  map[rowKey]*cachedRow
	queue []*cachedRow // from first on every row once, the next to be judged first
	first int
}

func newRowCache(limit int) *rowCache {
	return &rowCache{limit: limit, rows: map[rowKey]*cachedRow{}}
}

func (c *rowCache) get(key rowKey) (*cachedRow, bool) {
	r, ok := c.rows[key]
	if ok {
		r.used = true
	}
	return r, ok
}

// add takes r, whose key is not in c.
func (c *rowCache) add(r *cachedRow) {
	c.rows[r.key] = r
	c.queue = append(c.queue, r)
	c.resize(r)
}

// resize counts r anew after its totals may have grown.
func (c *rowCache) resize(r *cachedRow) {
	n := r.size()
	c.bytes += n - int(r.bytes)
	r.bytes = uint16(n)
}

// evict drops rows until c is within its limit. A row that was used since it was judged last is judged
// again after all others. No row is dirty.
func (c *rowCache) evict() {
	for c.bytes > c.limit {
		r := c.queue[c.first]
		c.queue[c.first] = nil
		c.first++
		if r.used {
			r.used = false
			c.queue = append(c.queue, r)
			continue
		}
		delete(c.rows, r.key)
		c.bytes -= int(r.bytes)
	}
	if c.first > len(c.queue)/2 {
		n := copy(c.queue, c.queue[c.first:])
		clear(c.queue[n:])
		c.queue, c.first = c.queue[:n], 0
	}
}
