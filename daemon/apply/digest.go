package apply

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/nice"
	"github.com/tidaldb/tidal/daemon/state"
)

// MismatchError says that a store does not hold what its digest, or a row in it, says.
type MismatchError struct {
	At   ident.EntryID
	What string // the table, in words
	// Want was kept from write to write, Have is of what the store holds. Both zero where one pair
	// tells.
	Want, Have state.Sum
	Detail     string
}

func (e *MismatchError) Error() string {
	if e.Detail != "" {
		return fmt.Sprintf("state at %s: %s: %s", e.At, e.What, e.Detail)
	}
	return fmt.Sprintf("state at %s: the pairs of %s add up to %s, want %s", e.At, e.What, e.Have, e.Want)
}

// Digest makes the digest of what view shows from its pairs alone, on as many goroutines as readers says.
func Digest(view *state.View, readers int) (state.Digest, error) {
	keys, err := view.Split(readers)
	if err != nil {
		return state.Digest{}, err
	}
	lower, upper := entity.AllBounds()
	bounds := slices.Concat([][]byte{lower}, within(keys, lower, upper), [][]byte{upper})
	parts, errs := make([]scanned, len(bounds)-1), make([]error, len(bounds)-1)
	var others sync.WaitGroup
	for i := range parts[1:] {
		others.Go(func() { nice.Do(func() { parts[i+1], errs[i+1] = scan(view, bounds[i+1], bounds[i+2], nil) }) })
	}
	parts[0], errs[0] = scan(view, bounds[0], bounds[1], nil)
	others.Wait()
	whole := parts[0].digest
	for _, p := range parts[1:] {
		for i, sum := range p.digest.Sums {
			whole.Sums[i] = whole.Sums[i].Plus(sum)
		}
	}
	return whole, errors.Join(errs...)
}

// within returns those of keys that lie between lower and upper; nil: there is no bound.
func within(keys [][]byte, lower, upper []byte) (inside [][]byte) {
	for _, k := range keys {
		if bytes.Compare(k, lower) > 0 && (upper == nil || bytes.Compare(k, upper) < 0) {
			inside = append(inside, k)
		}
	}
	return inside
}

// Scrub reads everything that view shows and compares it with the digest that was kept while it was
// written, and the ranks with the rows that they follow from. pace is told of the bytes as they are read and
// may wait, or end it with an error; nil: nobody is told. It returns a *MismatchError where they
// differ, another error where something could not be read.
func Scrub(view *state.View, pace func(bytes int) error) error {
	lower, upper := entity.AllBounds()
	s, err := scan(view, lower, upper, pace)
	if err != nil {
		return err
	}
	at, kept := view.Position().Applied, view.Position().Digest
	if kept.Version == s.digest.Version {
		for i, want := range kept.Sums {
			if have := s.digest.Sums[i]; have != want {
				return &MismatchError{At: at, What: entity.SumName(i), Want: want, Have: have}
			}
		}
	}
	if s.ranks != s.ranked {
		return &MismatchError{At: at, What: "ranks", Want: s.ranked, Have: s.ranks}
	}
	return nil
}

// scanned is what the pairs of a state, or of a part of it, add up to.
type scanned struct {
	digest state.Digest
	ranks  state.Sum // of the rank keys that are there
	ranked state.Sum // of those that follow from the rows
}

// scan reads the pairs in [lower, upper).
func scan(view *state.View, lower, upper []byte, pace func(bytes int) error) (s scanned, err error) {
	s.digest = state.Digest{Version: entity.DigestVersion, Sums: make([]state.Sum, entity.Sums)}
	var summer state.Summer
	var row entity.Row
	var rank []byte
	it := view.Iter(lower, upper)
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		key, value := it.Key(), it.Value()
		if err := it.Error(); err != nil {
			return s, fmt.Errorf("read the value of key %x: %w", key, err)
		}
		if pace != nil {
			if err := pace(len(key) + len(value)); err != nil {
				return s, err
			}
		}
		sum := summer.Pair(key, value)
		if i, primary := entity.SumOf(key); primary {
			s.digest.Sums[i] = s.digest.Sums[i].Plus(sum)
		} else if entity.IsRank(key) {
			s.ranks = s.ranks.Plus(sum)
		}
		c, id, isRow := entity.IsRow(key)
		if !isRow {
			continue
		}
		if err := row.Decode(value); err != nil {
			return s, &MismatchError{At: view.Position().Applied, What: "rows", Detail: fmt.Sprintf("item %q: %v", id, err)}
		}
		if row.Exists {
			rank = entity.AppendRankKey(rank[:0], c, row.Rank(), id)
			s.ranked = s.ranked.Plus(summer.Pair(rank, nil))
		}
	}
	return s, nil
}

// digested is the digest of a batch in the making.
type digested struct {
	sums   []state.Sum
	summer state.Summer
}

// begin continues d.
func (g *digested) begin(d state.Digest) { g.sums = slices.Clone(d.Sums) }

// replace has the pair under key, whose sum is `is`, in the place of one whose sum is was; the zero Sum is
// that of none.
func (g *digested) replace(key []byte, was, is state.Sum) {
	i, _ := entity.SumOf(key)
	g.sums[i] = g.sums[i].Minus(was).Plus(is)
}

// turn forgets the receipts that go when period follows upon was, and which are deleted whole.
func (g *digested) turn(was, period uint32) {
	g.sums[entity.SumOfReceipts(period)] = state.Sum{}
	if period-was > 1 {
		g.sums[entity.SumOfReceipts(period-1)] = state.Sum{}
	}
}

// end returns the digest of the batch.
func (g *digested) end() state.Digest {
	return state.Digest{Version: entity.DigestVersion, Sums: g.sums}
}

// pair returns the sum of a pair.
func (t *txn) pair(key, value []byte) state.Sum {
	if t.m.undigested {
		return state.Sum{}
	}
	return t.digest.summer.Pair(key, value)
}

// stored returns the sum of the pair under key in the store; zero where there is none.
func (t *txn) stored(key []byte) (state.Sum, error) {
	if t.m.undigested {
		return state.Sum{}, nil
	}
	value, ok, err := t.m.store.Get(key)
	if err != nil || !ok {
		return state.Sum{}, err
	}
	return t.pair(key, value), nil
}

// put sets a pair of a primary table, any but that of ranks, and returns its sum; was is that of the
// pair that it replaces. All writes to these go through here or delete, a key at most once in a batch;
// only receipts of past periods go otherwise, whole.
func (t *txn) put(key, value []byte, was state.Sum) state.Sum {
	t.batch.Set(key, value)
	is := t.pair(key, value)
	t.digest.replace(key, was, is)
	return is
}

// putOver is put of a pair of which it is not known what it replaces.
func (t *txn) putOver(key, value []byte) error {
	was, err := t.stored(key)
	if err == nil {
		t.put(key, value, was)
	}
	return err
}

// delete removes a pair of a primary table, if it is there; was is its sum.
func (t *txn) delete(key []byte, was state.Sum) {
	t.batch.Delete(key)
	t.digest.replace(key, was, state.Sum{})
}
