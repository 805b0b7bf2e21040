package state

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Batch gathers writes to be committed together. It belongs to one goroutine.
type Batch struct {
	s   *Store
	b   *pebble.Batch
	err error // of the first wrong key; Commit returns it
}

var errSpent = errors.New("the batch was committed before")

// NewBatch returns an empty batch. It must be closed.
func (s *Store) NewBatch() *Batch { return &Batch{s: s, b: s.db.NewBatch()} }

// Set writes value under key, whose first byte is a table other than 0x00. Both are copied.
func (b *Batch) Set(key, value []byte) {
	if b.checkKey(key) {
		b.fail(b.b.Set(key, value, nil))
	}
}

// Delete removes key, if it is there.
func (b *Batch) Delete(key []byte) {
	if b.checkKey(key) {
		b.fail(b.b.Delete(key, nil))
	}
}

// DeleteRange removes every key in [lower, upper). Where it meets a Set of this batch, the later one
// of the two counts.
func (b *Batch) DeleteRange(lower, upper []byte) {
	if b.checkKey(lower) && b.checkKey(upper) {
		b.fail(b.b.DeleteRange(lower, upper, nil))
	}
}

// Len returns the size of the batch in bytes.
func (b *Batch) Len() int { return b.b.Len() }

func (b *Batch) checkKey(key []byte) bool {
	if len(key) == 0 || key[0] == table {
		b.fail(fmt.Errorf("key %x is in no table that others may write", key))
		return false
	}
	return true
}

func (b *Batch) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Commit makes the writes and pos visible together, all or nothing. They are durable later, in the
// order of the commits: see FlushedIndex. pos must not be before the store's position. Commit waits
// when the disk does not keep up. The batch is spent, whatever is returned.
//
// An error of the disk is final and comes back from every later call. After an error the batch may
// be in the store or not, and nothing may be concluded from it.
func (b *Batch) Commit(pos Position) error {
	s := b.s
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.commitLocked(b, pos); err != nil {
		return fmt.Errorf("commit %d bytes at %s: %w", b.Len(), pos.Applied, err)
	}
	return nil
}

func (s *Store) commitLocked(b *Batch, pos Position) error {
	err := b.err
	b.err = errSpent
	if err := errors.Join(err, s.fuse.error()); err != nil {
		return err
	}
	if at := s.Position().Applied; pos.Applied.Index < at.Index {
		return fmt.Errorf("the store is at %s already", at)
	}
	if pos.Conf == nil {
		return errors.New("a position without a configuration")
	}
	if mutantAppliedOwnBatch {
		if err := s.db.Apply(b.b, pebble.NoSync); err != nil {
			return err
		}
		b.b = s.db.NewBatch()
	}
	if err := b.b.Set(positionKey, EncodePosition(pos), nil); err != nil {
		return err
	}
	size := b.Len()
	if err := s.db.Apply(b.b, pebble.NoSync); err != nil {
		s.fuse.blow(err)
	}
	if err := s.fuse.error(); err != nil {
		return err // also of a Fatalf inside Apply, which then returns nil
	}
	s.position.Store(&pos)
	s.metrics.committed.Add(float64(size))
	if s.write.unflushed += size; s.write.unflushed >= flushBytes {
		return s.startFlushLocked()
	}
	return s.noteFlushLocked()
}

// Close lets go of the batch. What was not committed is dropped.
func (b *Batch) Close() error { return b.b.Close() }
