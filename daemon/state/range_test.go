package state_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidaldb/tidal/daemon/state"
)

// A range goes in the order of the batch: what was set before goes with it, what is set after stays.
func TestBatch_DeleteRangeIsHalfOpenAndInOrder(t *testing.T) {
	s := mustCreate(t, vfs.NewMem())
	defer s.Close()
	pair := func(n byte) []byte { return []byte{9, n} }
	write := func(fill func(*state.Batch)) {
		t.Helper()
		b := s.NewBatch()
		defer b.Close()
		fill(b)
		if err := b.Commit(s.Position()); err != nil {
			t.Fatal(err)
		}
	}
	write(func(b *state.Batch) {
		for n := range byte(5) {
			b.Set(pair(n), pair(n))
		}
	})
	write(func(b *state.Batch) {
		b.Set(pair(2), pair(7))
		b.DeleteRange(pair(1), pair(4))
		b.Set(pair(3), pair(7))
	})
	for n, want := range []bool{true, false, false, true, true} {
		if _, ok, err := s.Get(pair(byte(n))); ok != want || err != nil {
			t.Errorf("key %d is there: %t, %v, want %t", n, ok, err, want)
		}
	}
	b := s.NewBatch()
	defer b.Close()
	b.DeleteRange([]byte{0}, pair(1)) // the store's own table
	if err := b.Commit(s.Position()); err == nil {
		t.Error("a range that begins in the store's own table is accepted")
	}
}
