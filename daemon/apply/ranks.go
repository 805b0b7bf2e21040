package apply

import (
	"errors"
	"fmt"

	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/state"
)

// rankBatchBytes is about how much of the ranks is committed at a time.
const rankBatchBytes = 4 << 20

// moveRanks replaces the ranks that an older binary wrote by those that follow from the rows. Ranks are no
// part of what entries write, so the position stays. A crash leaves the old ones there, and the next start
// begins anew.
func (m *Machine) moveRanks(view *state.View) (err error) {
	lower, upper := entity.FormerRankBounds()
	former := view.Iter(lower, upper)
	some := former.First()
	if err := former.Close(); err != nil || !some {
		return err
	}
	it := view.Iter(entity.RowBounds())
	defer func() { err = errors.Join(err, it.Close()) }()
	b := m.store.NewBatch()
	defer func() { err = errors.Join(err, b.Close()) }()
	var row entity.Row
	var key []byte
	for ok := it.First(); ok; ok = it.Next() {
		c, id, isRow := entity.IsRow(it.Key())
		if !isRow {
			continue
		}
		if err := row.Decode(it.Value()); err != nil {
			return fmt.Errorf("read row of item %q: %w", id, err)
		}
		if !row.Exists {
			continue
		}
		key = entity.AppendRankKey(key[:0], c, row.Rank(), id)
		if b.Set(key, nil); b.Len() < rankBatchBytes {
			continue
		}
		if err := errors.Join(b.Commit(m.pos), b.Close()); err != nil {
			return err
		}
		b = m.store.NewBatch()
	}
	if err := it.Error(); err != nil {
		return err
	}
	b.DeleteRange(lower, upper)
	return b.Commit(m.pos)
}
