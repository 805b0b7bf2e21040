package state

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// Get returns a copy of the newest value under key, and whether there is one.
func (s *Store) Get(key []byte) ([]byte, bool, error) {
	if err := s.enter(); err != nil {
		return nil, false, err
	}
	defer s.leave()
	value, closer, err := get(s.db, key)
	if closer == nil {
		return nil, false, err
	}
	value = bytes.Clone(value)
	return value, true, closer.Close()
}

// get hides that Pebble has an error for what is not there: closer is nil then, and err too.
func get(r pebble.Reader, key []byte) ([]byte, io.Closer, error) {
	value, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("get key %x: %w", key, err)
	}
	return value, closer, nil
}

// View is the store as it was at one moment. It belongs to one goroutine, but for Iter and VerifyTables, and must
// be closed: Close of the store waits for it, and what it sees is kept on the disk.
type View struct {
	s        *Store
	snapshot *pebble.Snapshot // nil: err is set
	position Position
	held     io.Closer // of the value that Get returned last
	err      error     // why there is nothing to see; every method returns it
}

// NewView returns the store as it is now. Where that fails, the view's methods say so.
func (s *Store) NewView() *View {
	v := &View{s: s}
	if v.err = s.enter(); v.err != nil {
		return v
	}
	v.snapshot = s.db.NewSnapshot()
	value, ok, err := v.Get(positionKey)
	switch {
	case err != nil:
		v.err = err
	case ok:
		v.position, v.err = DecodePosition(value)
	}
	return v
}

// Position returns the position that the view reflects: no more, no less. Zero if the view failed.
func (v *View) Position() Position { return v.position }

// Get returns the value under key, valid until the next call of Get or Close, and whether there is
// one.
func (v *View) Get(key []byte) (value []byte, ok bool, err error) {
	if v.err != nil {
		return nil, false, v.err
	}
	if err := v.letGo(); err != nil {
		return nil, false, err
	}
	value, v.held, err = get(v.snapshot, key)
	return value, v.held != nil, err
}

// letGo gives up the value that Get returned last.
func (v *View) letGo() error {
	if v.held == nil {
		return nil
	}
	held := v.held
	v.held = nil
	return held.Close()
}

// Iter returns an iterator over the keys in [lower, upper), placed nowhere. nil bounds are open. It
// must be closed before the view.
func (v *View) Iter(lower, upper []byte) *Iter {
	if v.err != nil {
		return &Iter{err: v.err}
	}
	it, err := v.snapshot.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	return &Iter{it: it, err: err}
}

// Split returns at most n-1 keys, ascending, that cut what is on the disk into parts of about the same size:
// hints for readers that share the work. The iterators of a view may be made and used by several goroutines.
func (v *View) Split(n int) ([][]byte, error) {
	if v.err != nil || n < 2 {
		return nil, v.err
	}
	levels, err := v.s.db.SSTables()
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	var tables []pebble.SSTableInfo
	var total uint64
	for _, level := range levels {
		for _, t := range level {
			tables = append(tables, t)
			total += t.Size
		}
	}
	slices.SortFunc(tables, func(a, b pebble.SSTableInfo) int {
		return bytes.Compare(a.Largest.UserKey, b.Largest.UserKey)
	})
	var keys [][]byte
	var before uint64
	for _, t := range tables {
		before += t.Size
		if part := uint64(len(keys) + 1); part < uint64(n) && before >= total*part/uint64(n) {
			keys = append(keys, t.Largest.UserKey)
		}
	}
	return slices.CompactFunc(keys, bytes.Equal), nil
}

// Close lets go of the view. A second Close does nothing.
func (v *View) Close() error {
	if v.snapshot == nil {
		return nil
	}
	err := errors.Join(v.letGo(), v.snapshot.Close())
	v.snapshot, v.err = nil, ErrClosed
	v.s.leave()
	return err
}

// Iter walks keys in order. The methods that move it report whether it is at a key now; when one
// does not, Error tells the end from a failure. It belongs to one goroutine.
type Iter struct {
	it  *pebble.Iterator // nil: err is set
	err error
}

// First moves to the first key.
func (i *Iter) First() bool { return i.it != nil && i.it.First() }

// Last moves to the last key.
func (i *Iter) Last() bool { return i.it != nil && i.it.Last() }

// Next moves to the key after this one.
func (i *Iter) Next() bool { return i.it != nil && i.it.Next() }

// Prev moves to the key before this one.
func (i *Iter) Prev() bool { return i.it != nil && i.it.Prev() }

// SeekGE moves to the first key at or after key.
func (i *Iter) SeekGE(key []byte) bool { return i.it != nil && i.it.SeekGE(key) }

// SeekLT moves to the last key before key.
func (i *Iter) SeekLT(key []byte) bool { return i.it != nil && i.it.SeekLT(key) }

// Key returns the key at which the iterator is, valid until it moves.
func (i *Iter) Key() []byte { return i.it.Key() }

// Value returns the value at which the iterator is, valid until it moves. nil if it cannot be read:
// then Error says why.
func (i *Iter) Value() []byte {
	value, err := i.it.ValueAndErr()
	if err != nil {
		i.err = errors.Join(i.err, err)
		return nil
	}
	return value
}

// Error returns what went wrong so far.
func (i *Iter) Error() error {
	if i.it == nil {
		return i.err
	}
	return errors.Join(i.err, i.it.Error())
}

// Close lets go of the iterator and returns Error. A second Close returns the same.
func (i *Iter) Close() error {
	if i.it != nil {
		i.err = errors.Join(i.err, i.it.Close())
		i.it = nil
	}
	return i.err
}
