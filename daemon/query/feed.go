package query

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/state"
)

// FeedRequest asks for the items of a collection that score highest.
type FeedRequest struct {
	Collection string
	Limit      int   // how many items at most; 0 or less: none
	Now        int64 // Unix ms
}

// Ranked is one item of a feed.
type Ranked struct {
	ID      string
	Score   float64
	Version uint64 // index of the entry that wrote it
	Attrs   []byte // a JSON object
	// Mass is what the order goes by: merge feeds by it, not by Score.
	Mass entity.Mass
}

// Feed returns the items of a collection by falling mass, then by rising id: those that no other item
// precedes, at most Limit. Items without signals come last. Errors: *NoCollectionError, or the
// store's.
func Feed(view *state.View, r FeedRequest) ([]Ranked, error) {
	c, err := schema(view, r.Collection)
	if err != nil {
		return nil, err
	}
	top, err := best(view, c.ID, r.Limit)
	if err != nil {
		return nil, fmt.Errorf("rank collection %q: %w", c.Name, err)
	}
	for i := range top {
		doc, ok, err := document(view, c.ID, top[i].ID)
		if err == nil && !ok {
			err = fmt.Errorf("rank of an item %q that is not there", top[i].ID)
		}
		if err != nil {
			return nil, err
		}
		top[i].Score, top[i].Version, top[i].Attrs = c.Score(top[i].Mass, r.Now), doc.Version, doc.Attrs
	}
	return top, nil
}

// best returns the ids and masses of the first limit items of a collection, in order.
//
// It walks the buckets from the top, and ends when no bucket that is left can hold an item that
// precedes the last one found. Rank keys say in which bucket an item is, rows say where in it.
func best(view *state.View, c entity.CollectionID, limit int) (top []Ranked, err error) {
	if limit <= 0 {
		return nil, nil
	}
	it := view.Iter(entity.RankBounds(c))
	defer func() { err = errors.Join(err, it.Close()) }()
	var row entity.Row
	var key []byte
	for ok := it.First(); ok; ok = it.Next() {
		bucket, id, err := entity.ParseRankKey(it.Key())
		if err != nil {
			return nil, err
		}
		if len(top) == limit && settled(top[limit-1].Mass, bucket) {
			break
		}
		found := Ranked{}
		if bucket != entity.NoBucket {
			key = entity.AppendRowKey(key[:0], c, id)
			if err := readRow(view, key, &row); err != nil {
				return nil, fmt.Errorf("read row of item %q: %w", id, err)
			}
			found.Mass = row.Mass()
			if len(top) == limit && found.Mass.Compare(top[limit-1].Mass) < 0 {
				continue
			}
		}
		found.ID = string(id)
		at, _ := slices.BinarySearchFunc(top, found, precedence)
		if at == limit {
			continue
		}
		if len(top) == limit {
			top = top[:limit-1]
		}
		top = slices.Insert(top, at, found)
	}
	return top, nil
}

// settled reports whether an item of mass last precedes every item from bucket on that was not seen
// yet. Within the last bucket all have the mass 0, and keys ascend by id.
func settled(last entity.Mass, bucket entity.Bucket) bool {
	return bucket == entity.NoBucket || last.Compare(bucket.Upper()) >= 0
}

// precedence orders a feed: by falling mass, then by rising id.
func precedence(x, y Ranked) int {
	return cmp.Or(y.Mass.Compare(x.Mass), cmp.Compare(x.ID, y.ID))
}
