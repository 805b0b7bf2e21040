package apply

import (
	"fmt"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
)

// writes applies the writes of an entry, which was checked.
func (t *txn) writes(entry command.Entry, index uint64) ([]command.Outcome, error) {
	outcomes := make([]command.Outcome, entry.Writes.Len())
	for i := range outcomes {
		records, _ := entry.Writes.Next()
		for n := 0; records.Next(); n++ {
			var refused *command.Refusal
			var err error
			switch records.Kind() {
			case command.RecordSignal:
				refused, err = t.signal(records.Signal(), entry.Stamp)
			case command.RecordItem:
				var created bool
				created, refused, err = t.item(records.Item(), index)
				outcomes[i].Created = outcomes[i].Created || created
			}
			if err != nil {
				return nil, fmt.Errorf("write %d, record %d: %w", i, n, err)
			}
			if refused != nil {
				refused.Record = n
				outcomes[i].Refused = append(outcomes[i].Refused, *refused)
			}
		}
	}
	return outcomes, nil
}

// signal adds a signal to the row of its item, which need not exist.
func (t *txn) signal(s command.Signal, stamp ident.Stamp) (*command.Refusal, error) {
	c, ok := t.m.collections[s.Collection]
	if !ok {
		return refuse(command.CodeNotFound, "there is no collection %q", s.Collection), nil
	}
	typ, ok := c.Type(s.Type)
	if !ok {
		return refuse(command.CodeBadRequest, "collection %q has no signal %q", s.Collection, s.Type), nil
	}
	if s.Milli < entity.MinMilli || s.Milli > entity.MaxMilli {
		return refuse(command.CodeBadRequest, "weight is %d/1000, want %d to %d", s.Milli, entity.MinMilli, entity.MaxMilli), nil
	}
	if err := entity.CheckID(s.Item); err != nil {
		return refuse(command.CodeBadRequest, "item: %v", err), nil
	}
	at := s.At
	if at == 0 {
		at = stamp.Millis()
	}
	r, err := t.row(c.ID, s.Item)
	if err != nil {
		return nil, err
	}
	r.row.Observe(typ, s.Milli, c.Mass(typ, s.Milli, at))
	return nil, nil
}

// item replaces an item, or makes it. The entry at index is its version.
func (t *txn) item(i command.Item, index uint64) (created bool, refused *command.Refusal, err error) {
	c, ok := t.m.collections[i.Collection]
	if !ok {
		return false, refuse(command.CodeNotFound, "there is no collection %q", i.Collection), nil
	}
	if err := entity.CheckID(i.ID); err != nil {
		return false, refuse(command.CodeBadRequest, "item: %v", err), nil
	}
	if len(i.Attrs) == 0 || i.Attrs[0] != '{' {
		return false, refuse(command.CodeBadRequest, "attributes are no JSON object"), nil
	}
	r, err := t.row(c.ID, i.ID)
	if err != nil {
		return false, nil, err
	}
	created = !r.row.Exists
	first := index
	if !created {
		if first, err = t.created(r); err != nil {
			return false, nil, err
		}
	}
	r.row.Exists = true
	r.item = &entity.Item{Version: index, Created: first, Attrs: i.Attrs}
	return created, nil, nil
}

// created returns the index of the entry that made the item of r, which exists.
func (t *txn) created(r *cachedRow) (uint64, error) {
	if r.item != nil {
		return r.item.Created, nil
	}
	t.key = entity.AppendItemKey(t.key[:0], r.key.collection, r.key.id)
	record, ok, err := t.m.store.Get(t.key)
	if err == nil && !ok {
		err = fmt.Errorf("its row says that it exists")
	}
	if err != nil {
		return 0, fmt.Errorf("read item %q: %w", r.key.id, err)
	}
	item, err := entity.DecodeItem(record)
	if err != nil {
		return 0, fmt.Errorf("read item %q: %w", r.key.id, err)
	}
	return item.Created, nil
}

// row returns the row of an item, to be changed: the present one, or an empty one.
func (t *txn) row(c entity.CollectionID, id string) (*cachedRow, error) {
	r, ok := t.m.rows.get(rowKey{c, id})
	if !ok {
		t.key = entity.AppendRowKey(t.key[:0], c, id)
		record, found, err := t.m.store.Get(t.key)
		if err != nil {
			return nil, fmt.Errorf("read row of item %q: %w", id, err)
		}
		r = newCachedRow(c, id)
		if found {
			if err := r.row.Decode(record); err != nil {
				return nil, fmt.Errorf("read row of item %q: %w", id, err)
			}
		}
		r.rank, r.ranked = r.row.Mass().Bucket(), r.row.Exists
		t.m.rows.add(r)
	}
	if !r.dirty {
		r.dirty = true
		t.dirty = append(t.dirty, r)
	}
	return r, nil
}

// commit writes the roster if it changed, every row that changed, the rank and the item that go with
// it, and the position.
func (t *txn) commit() error {
	if t.roster != nil {
		t.put(entity.RosterKey(), t.roster)
	}
	for _, r := range t.dirty {
		t.key = entity.AppendRowKey(t.key[:0], r.key.collection, r.key.id)
		t.value = r.row.Append(t.value[:0])
		t.put(t.key, t.value)
		t.rerank(r)
		if r.item != nil {
			t.key = entity.AppendItemKey(t.key[:0], r.key.collection, r.key.id)
			t.value = r.item.Append(t.value[:0])
			t.put(t.key, t.value)
			r.item = nil // its attributes are a part of the entry
		}
		r.dirty = false
		t.m.rows.resize(r)
	}
	return t.batch.Commit(t.pos)
}

// rerank moves the rank key of r to the bucket of its mass, if it is not there. Rank keys are derived
// from rows, so they do not go through put.
func (t *txn) rerank(r *cachedRow) {
	bucket := r.row.Mass().Bucket()
	if !r.row.Exists || r.ranked && r.rank == bucket {
		return
	}
	if r.ranked {
		t.key = entity.AppendRankKey(t.key[:0], r.key.collection, r.rank, r.key.id)
		t.batch.Delete(t.key)
	}
	t.key = entity.AppendRankKey(t.key[:0], r.key.collection, bucket, r.key.id)
	t.batch.Set(t.key, nil)
	r.rank, r.ranked = bucket, true
}

func refuse(code, format string, args ...any) *command.Refusal {
	return &command.Refusal{Code: code, Detail: fmt.Sprintf(format, args...)}
}
