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
	Limit      int    // how many items at most; 0 or less: none
	Now        int64  // Unix ms
	User       string // does not see what it hides; empty: nobody
	Diversity  Diversity
	Pending    Pending // of the collection, and of User
}

// Diversity bounds how many items of a feed share a value of an attribute. An item that lacks the
// attribute, or has null, is never bounded; one that has an array counts for each of its elements. The
// zero Diversity bounds nothing.
type Diversity struct {
	Attribute string
	Most      int // at least 1
}

// diversityScan is how many items are looked at, as a multiple of the limit, before a diverse feed
// ends short.
const diversityScan = 50

// Ranked is one item of a feed.
type Ranked struct {
	ID      string
	Score   float64
	Version uint64 // index of the entry that wrote it
	Attrs   []byte // a JSON object
	// Mass is what the order goes by: merge feeds by it, not by Score.
	Mass entity.Mass
}

// Ranking is a feed.
type Ranking struct {
	Items []Ranked
	// Exhausted says that there are fewer than Limit items because the scan for diverse ones ended,
	// not because there are no more.
	Exhausted bool
}

// Feed returns the items of a collection by falling mass, then by rising id: those that no other item
// precedes, at most Limit, without those that the user hides and those that Diversity leaves out.
// Items without signals come last. Errors: *NoCollectionError, or the store's.
func Feed(view *state.View, r FeedRequest) (Ranking, error) {
	c, err := schema(view, r.Collection)
	if err != nil {
		return Ranking{}, err
	}
	f := feed{view: view, c: c.ID, schema: &c, pending: r.Pending}
	if r.User != "" {
		if err := f.hideFrom(r.User); err != nil {
			return Ranking{}, err
		}
	}
	var out Ranking
	if r.Diversity == (Diversity{}) || r.Limit <= 0 {
		out.Items, err = f.read(r.Limit)
	} else {
		out, err = f.diverse(r.Limit, r.Diversity)
	}
	if err != nil {
		return Ranking{}, fmt.Errorf("rank collection %q: %w", c.Name, err)
	}
	for i := range out.Items {
		out.Items[i].Score = c.Score(out.Items[i].Mass, r.Now)
	}
	return out, nil
}

// feed is the making of one.
type feed struct {
	view    *state.View
	c       entity.CollectionID
	schema  *entity.Collection
	pending Pending
	// hides is what the keys of the user's hard negatives begin with; empty: nothing is hidden.
	hides []byte
	key   []byte // scratch
}

// hideFrom makes the feed that of a user. Most users hide nothing: then it costs no more than to know.
func (f *feed) hideFrom(user string) (err error) {
	prefix := entity.AppendHardNegPrefix(nil, f.c, user)
	it := f.view.Iter(prefix, nil)
	defer func() { err = errors.Join(err, it.Close()) }()
	if it.First() && len(it.Key()) > len(prefix) && string(it.Key()[:len(prefix)]) == string(prefix) {
		f.hides = prefix
	}
	return nil
}

// hidden reports whether the user hides an item.
func (f *feed) hidden(id []byte) (bool, error) {
	pending, isPending := f.pending.Hides[string(id)]
	if len(f.hides) == 0 {
		return pending.Hidden, nil
	}
	f.key = append(append(f.key[:0], f.hides...), id...)
	record, ok, err := f.view.Get(f.key)
	if err != nil || !ok {
		return pending.Hidden, err
	}
	h, err := entity.DecodeHardNeg(record)
	if isPending {
		h = h.Merge(pending)
	}
	return h.Hidden, err
}

// read returns the first limit items, with their documents.
func (f *feed) read(limit int) ([]Ranked, error) {
	top, err := f.best(limit)
	if err != nil {
		return nil, err
	}
	for i := range top {
		if err := f.document(&top[i]); err != nil {
			return nil, err
		}
	}
	return top, nil
}

func (f *feed) document(r *Ranked) error {
	doc, ok, err := document(f.view, f.c, r.ID)
	if err == nil && !ok {
		err = fmt.Errorf("rank of an item %q that is not there", r.ID)
	}
	r.Version, r.Attrs = doc.Version, doc.Attrs
	return err
}

// diverse takes items in order as long as no value has its share. Mostly a few times the limit are
// enough; only where they are not, all that may be looked at are ranked.
func (f *feed) diverse(limit int, d Diversity) (Ranking, error) {
	key := entity.AppendString(nil, d.Attribute)
	var top []Ranked
	var out Ranking
	shares := map[string]int{}
	looked := 0
	for _, scan := range []int{4 * limit, diversityScan * limit} {
		var err error
		if top, err = f.best(scan + 1); err != nil {
			return Ranking{}, err
		}
		for ; looked < min(len(top), scan); looked++ {
			r := top[looked]
			if err := f.document(&r); err != nil {
				return Ranking{}, err
			}
			value, _ := entity.AttributeOf(r.Attrs, key)
			if !take(shares, value, d.Most) {
				continue
			}
			if out.Items = append(out.Items, r); len(out.Items) == limit {
				return out, nil
			}
		}
		if len(top) <= scan { // there are no more
			return out, nil
		}
	}
	out.Exhausted = true
	return out, nil
}

// take counts an item with this value of the attribute in, unless one of its elements has its share.
func take(shares map[string]int, value []byte, most int) bool {
	if len(value) == 0 || value[0] == 'n' {
		return true
	}
	for v := range entity.Elements(value) {
		if shares[string(v)] >= most {
			return false
		}
	}
	for v := range entity.Elements(value) {
		shares[string(v)]++
	}
	return true
}

// best returns the ids and masses of the first limit items that are not hidden, in order.
//
// It walks the ranks from the top, and ends when no item that is left can precede the last one found. An
// item's mass does not exceed its rank; what it is, its row says. What was found is kept as a heap with
// the last one at the root.
func (f *feed) best(limit int) (top []Ranked, err error) {
	if limit <= 0 {
		return nil, nil
	}
	if top, err = f.bestPending(limit); err != nil {
		return nil, err
	}
	it := f.view.Iter(entity.RankBounds(f.c))
	defer func() { err = errors.Join(err, it.Close()) }()
	var row entity.Row
	for ok := it.First(); ok; ok = it.Next() {
		rank, id, err := entity.ParseRankKey(it.Key())
		if err != nil {
			return nil, err
		}
		full := len(top) == limit
		if full && settled(top[0], rank, id) {
			break
		}
		if _, ok := f.pending.Signals[string(id)]; ok {
			continue // it is not where its rank says, and was looked at before
		}
		found := Ranked{}
		if rank != (entity.Mass{}) {
			f.key = entity.AppendRowKey(f.key[:0], f.c, id)
			if err := readRow(f.view, f.key, &row); err != nil {
				return nil, fmt.Errorf("read row of item %q: %w", id, err)
			}
			found.Mass = row.Mass()
			if full && found.Mass.Compare(top[0].Mass) < 0 {
				continue
			}
		}
		if found.ID = string(id); full && precedence(found, top[0]) > 0 {
			continue
		}
		if hidden, err := f.hidden(id); err != nil {
			return nil, fmt.Errorf("read who hides item %q: %w", id, err)
		} else if hidden {
			continue
		}
		top = push(top, found, limit)
	}
	slices.SortFunc(top, precedence)
	return top, nil
}

// bestPending is best of the items with pending signals: what they weigh is not what the state says. It
// returns a heap, if it is full.
func (f *feed) bestPending(limit int) (top []Ranked, err error) {
	var row entity.Row
	for _, id := range f.pending.items() {
		f.key = entity.AppendRowKey(f.key[:0], f.c, id)
		record, ok, err := f.view.Get(f.key)
		if err == nil && ok {
			err = row.Decode(record)
		}
		if err != nil {
			return nil, fmt.Errorf("read row of item %q: %w", id, err)
		}
		if !ok || !row.Exists {
			continue
		}
		if hidden, err := f.hidden([]byte(id)); err != nil {
			return nil, fmt.Errorf("read who hides item %q: %w", id, err)
		} else if hidden {
			continue
		}
		f.pending.observe(f.schema, id, &row)
		if found := (Ranked{ID: id, Mass: row.Mass()}); len(top) < limit || precedence(found, top[0]) < 0 {
			top = push(top, found, limit)
		}
	}
	return top, nil
}

// push adds found, which precedes the last one of a full heap, in its place.
func push(top []Ranked, found Ranked, limit int) []Ranked {
	if len(top) == limit {
		top[0] = found
		sink(top, 0)
	} else if top = append(top, found); len(top) == limit {
		for i := limit / 2; i >= 0; i-- {
			sink(top, i)
		}
	}
	return top
}

// sink restores the heap below i, where every item precedes its parent.
func sink(heap []Ranked, i int) {
	for {
		last := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(heap); child++ {
			if precedence(heap[last], heap[child]) < 0 {
				last = child
			}
		}
		if last == i {
			return
		}
		heap[i], heap[last] = heap[last], heap[i]
		i = last
	}
}

// settled reports whether last precedes every item from that of rank and id on that was not looked at
// yet. Within a rank keys ascend by id.
func settled(last Ranked, rank entity.Mass, id []byte) bool {
	order := last.Mass.Compare(rank)
	return order > 0 || order == 0 && last.ID < string(id)
}

// precedence orders a feed: by falling mass, then by rising id.
func precedence(x, y Ranked) int {
	return cmp.Or(y.Mass.Compare(x.Mass), cmp.Compare(x.ID, y.ID))
}
