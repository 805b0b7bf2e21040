package apply

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/state"
)

// writer applies the writes of one entry.
type writer struct {
	*txn
	id    ident.EntryID
	stamp ident.Stamp
	seq   uint64 // of the record before the present one, among all of the entry

	// Of an operation of an outbox: who gave stamp and seq, and the stamp of the entry.
	origin ident.Incarnation // zero: the log
	latest ident.Stamp       // nothing was observed later; 0: the gateway has seen to it
}

// writes applies the writes of an entry, which was checked.
func (t *txn) writes(entry command.Entry, id ident.EntryID) ([]command.Outcome, error) {
	w := writer{txn: t, id: id, stamp: entry.Stamp}
	t.turn(entity.PeriodOf(entry.Stamp))
	outcomes := make([]command.Outcome, entry.Writes.Len())
	for i := range outcomes {
		records, _ := entry.Writes.Next()
		var err error
		if key, ok := records.WriteKey(); ok {
			outcomes[i], err = w.keyedWrite(key, records)
		} else {
			outcomes[i], err = w.write(records)
		}
		if err != nil {
			return nil, fmt.Errorf("write %d, %w", i, err)
		}
	}
	return outcomes, nil
}

// keyedWrite applies a write, or finds out what became of it when its key came first.
func (w *writer) keyedWrite(key command.Key, records command.Records) (command.Outcome, error) {
	before, denied, err := w.recall(key)
	switch {
	case err != nil:
		return command.Outcome{}, fmt.Errorf("its key: %w", err)
	case denied != nil:
		return command.Outcome{Denied: denied}, nil
	case before != nil:
		return command.Outcome{Refused: before.Refused, Created: before.Created, First: before.ID}, nil
	}
	out, err := w.write(records)
	if err != nil {
		return command.Outcome{}, err
	}
	w.remember(key, entity.Receipt{ID: w.id, Created: out.Created, Refused: out.Refused})
	return out, nil
}

func (w *writer) write(records command.Records) (out command.Outcome, err error) {
	single := records.Len() == 1
	for n := 0; records.Next(); n++ {
		var done done
		if key, ok := records.Key(); ok {
			done, err = w.keyedRecord(key, &records)
		} else {
			done, err = w.record(&records)
		}
		if err != nil {
			return command.Outcome{}, fmt.Errorf("record %d: %w", n, err)
		}
		out.Created = out.Created || done.created
		out.Version = max(out.Version, done.version)
		if done.refused != nil {
			refused := *done.refused
			refused.Record = n
			out.Refused = append(out.Refused, refused)
		}
		if single {
			out.First = done.first
		}
	}
	return out, nil
}

// done is what became of one record. The zero done is that it was taken.
type done struct {
	created bool
	version uint64           // of the schema that was declared
	refused *command.Refusal // Record is not set
	first   ident.EntryID    // where it was taken before; zero: it was not
}

// keyedRecord applies a record, or finds out what became of it when its key came first.
func (w *writer) keyedRecord(key command.Key, records *command.Records) (done, error) {
	before, denied, err := w.recall(key)
	switch {
	case err != nil:
		return done{}, fmt.Errorf("its key: %w", err)
	case denied != nil:
		return done{refused: denied}, nil
	case before != nil:
		d := done{created: before.Created, first: before.ID}
		if len(before.Refused) > 0 {
			d.refused = &before.Refused[0]
		}
		return d, nil
	}
	d, err := w.record(records)
	if err != nil {
		return done{}, err
	}
	r := entity.Receipt{ID: w.id, Created: d.created}
	if d.refused != nil {
		r.Refused = []entity.Refusal{*d.refused}
	}
	if !mutantRecordKeysForgotten {
		w.remember(key, r)
	}
	return d, nil
}

// record applies the present record.
func (w *writer) record(records *command.Records) (done, error) {
	w.seq++
	switch records.Kind() {
	case command.RecordSignal:
		return w.signal(records.Signal())
	case command.RecordItem:
		return w.item(records.Item())
	case command.RecordEmbedding:
		return w.embedding(records.Embedding())
	case command.RecordHardNeg:
		return w.hardNeg(records.HardNeg())
	case command.RecordDelete:
		return w.deleteItem(records.Delete())
	case command.RecordOutbox:
		return w.outbox(records.Outbox())
	case command.RecordOutboxForget:
		return w.forget(records.OutboxForget())
	default:
		return w.declare(records.Collection())
	}
}

// signal adds a signal to the row of its item, which need not exist.
func (w *writer) signal(s command.Signal) (done, error) {
	c, ok := w.m.collections[s.Collection]
	if !ok {
		return noCollection(s.Collection), nil
	}
	typ, ok := c.Type(s.Type)
	if !ok {
		return refuse(command.CodeUnknownSignal, "collection %q has no signal %q", s.Collection, s.Type), nil
	}
	if s.Milli < entity.MinMilli || s.Milli > entity.MaxMilli {
		return refuse(command.CodeBadRequest, "weight is %d/1000, want %d to %d", s.Milli, entity.MinMilli, entity.MaxMilli), nil
	}
	if err := entity.CheckID(s.Item); err != nil {
		return refuse(command.CodeBadRequest, "item: %v", err), nil
	}
	at := s.At
	if at == 0 {
		at = mutantLocalClock(w.stamp.Millis())
	}
	if w.latest != 0 {
		at = min(at, w.latest.Millis())
	}
	r, err := w.row(c.ID, s.Item)
	if err != nil {
		return done{}, err
	}
	r.row.Observe(typ, s.Milli, c.Mass(typ, s.Milli, at))
	if !c.InUse {
		c.InUse = true
		w.changed(c)
	}
	return done{}, nil
}

// item replaces an item, or makes it. The entry is its version.
func (w *writer) item(i command.Item) (done, error) {
	c, ok := w.m.collections[i.Collection]
	if !ok {
		return noCollection(i.Collection), nil
	}
	if err := entity.CheckID(i.ID); err != nil {
		return refuse(command.CodeBadRequest, "item: %v", err), nil
	}
	if len(i.Attrs) == 0 || i.Attrs[0] != '{' {
		return refuse(command.CodeBadRequest, "attributes are no JSON object"), nil
	}
	if err := c.CheckAttributes(i.Attrs); err != nil {
		return refuse(command.CodeAttributeMismatch, "collection %q: %v", c.Name, err), nil
	}
	r, err := w.row(c.ID, i.ID)
	if err != nil {
		return done{}, err
	}
	created, first := !r.row.Exists, w.id.Index
	if mutantCreatedByStore {
		_, found, _ := w.m.store.Get(entity.AppendItemKey(nil, c.ID, i.ID))
		created = !found
	}
	if !created {
		if first, err = w.created(r); err != nil {
			return done{}, err
		}
	}
	r.row.Exists = true
	r.item = &entity.Item{Version: w.id.Index, Created: first, Attrs: i.Attrs}
	return done{created: created}, nil
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

// embedding replaces the vector of an item, which need not exist. The first one of a collection that
// declares no dimension fixes it.
func (w *writer) embedding(e command.Embedding) (done, error) {
	c, ok := w.m.collections[e.Collection]
	if !ok {
		return noCollection(e.Collection), nil
	}
	if err := entity.CheckID(e.Item); err != nil {
		return refuse(command.CodeBadRequest, "item: %v", err), nil
	}
	n := len(e.Vector) / entity.FloatBytes
	switch {
	case len(e.Vector)%entity.FloatBytes != 0 || n < 1 || n > entity.MaxDimension:
		return refuse(command.CodeBadRequest, "a vector of %d bytes", len(e.Vector)), nil
	case c.Dimension == 0:
		c.Dimension = n
		w.changed(c)
	case c.Dimension != n:
		return refuse(command.CodeDimensionMismatch, "collection %q has embeddings of dimension %d, not %d", c.Name, c.Dimension, n), nil
	}
	r, err := w.row(c.ID, e.Item)
	if err != nil {
		return done{}, err
	}
	r.embedding = &entity.Embedding{Version: w.id.Index, Vector: e.Vector}
	return done{}, nil
}

// deleteItem removes whatever there is of an item but what users said of it.
func (w *writer) deleteItem(d command.Delete) (done, error) {
	c, ok := w.m.collections[d.Collection]
	if !ok {
		return noCollection(d.Collection), nil
	}
	if err := entity.CheckID(d.ID); err != nil {
		return refuse(command.CodeBadRequest, "item: %v", err), nil
	}
	r, err := w.row(c.ID, d.ID)
	if err != nil {
		return done{}, err
	}
	if r.row.Exists = false; !mutantDeleteKeepsTotals {
		r.row.Totals = r.row.Totals[:0]
	}
	r.cleared, r.item, r.embedding = true, nil, nil
	return done{}, nil
}

// hardNeg merges an operation of a user with what the user did before.
func (w *writer) hardNeg(h command.HardNeg) (done, error) {
	c, ok := w.m.collections[h.Collection]
	if !ok {
		return noCollection(h.Collection), nil
	}
	if err := entity.CheckID(h.Item); err != nil {
		return refuse(command.CodeBadRequest, "item: %v", err), nil
	}
	if err := entity.CheckID(h.User); err != nil {
		return refuse(command.CodeBadRequest, "user: %v", err), nil
	}
	w.key = entity.AppendHardNegKey(w.key[:0], c.ID, h.User, h.Item)
	op := entity.HardNeg{Hidden: h.Hide, Stamp: w.stamp, Origin: w.origin, Seq: w.seq}
	before, ok := w.hardNegs.get(string(w.key))
	if !ok {
		record, found, err := w.m.store.Get(w.key)
		if err == nil && found {
			before.HardNeg, err = entity.DecodeHardNeg(record)
			before.was = w.pair(w.key, record)
		}
		if err != nil {
			return done{}, fmt.Errorf("read what user %q does with item %q: %w", h.User, h.Item, err)
		}
		ok = found
	}
	if ok {
		op = before.Merge(op)
	}
	w.hardNegs.set(string(w.key), hardNeg{op, before.was})
	return done{}, nil
}

// hardNeg is a hard negative that is not in the store yet.
type hardNeg struct {
	entity.HardNeg
	was state.Sum // of the pair in the store; zero: there is none
}

// declare makes a collection, or changes its schema where nothing rests on what changes.
func (w *writer) declare(d command.Collection) (done, error) {
	if err := entity.CheckID(d.Name); err != nil {
		return refuse(command.CodeBadRequest, "collection: %v", err), nil
	}
	if err := d.Schema.Validate(); err != nil {
		return refuse(command.CodeBadRequest, "%v", err), nil
	}
	own := d.Schema.Clone()
	c, exists := w.m.collections[d.Name]
	if !exists {
		if n := len(w.m.collections); n >= w.m.MaxCollections {
			return refuse(command.CodeTooManyCollections, "there are %d collections, which is the limit", n), nil
		}
		c = &entity.Collection{Name: strings.Clone(d.Name)}
	}
	changed, err := c.Declare(own)
	if used, ok := errors.AsType[*entity.InUseError](err); ok {
		return refuse(command.CodeSchemaInUse, "collection %q: %v", d.Name, used), nil
	}
	if err != nil {
		return done{}, err
	}
	if !exists {
		c.ID = entity.CollectionID(len(w.m.collections) + 1) // none is ever removed
		w.m.collections[c.Name] = c
	}
	if changed {
		c.Version = w.id.Index
		w.changed(c)
	}
	return done{created: !exists, version: c.Version}, nil
}

// changed notes that c is to be written.
func (t *txn) changed(c *entity.Collection) {
	for _, have := range t.schemas {
		if have == c {
			return
		}
	}
	t.schemas = append(t.schemas, c)
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
		if r.stored = found; found {
			r.sum = t.pair(t.key, record)
		}
		r.rank, r.ranked = r.row.Rank(), r.row.Exists
		t.m.rows.add(r)
	}
	if !r.dirty {
		r.dirty = true
		t.dirty = append(t.dirty, r)
	}
	return r, nil
}

// commit writes what changed, and the position.
func (t *txn) commit() error {
	if t.roster != nil {
		if err := t.putOver(entity.RosterKey(), t.roster); err != nil {
			return err
		}
	}
	if err := t.putFeatures(); err != nil {
		return err
	}
	for _, c := range t.schemas {
		if err := t.putOver(entity.CollectionKey(c.Name), c.Encode()); err != nil {
			return err
		}
	}
	for _, r := range t.dirty {
		if err := t.commitRow(r); err != nil {
			return fmt.Errorf("item %q: %w", r.key.id, err)
		}
	}
	for _, p := range t.hardNegs.pairs {
		t.value = p.value.Append(t.value[:0])
		t.put([]byte(p.key), t.value, p.value.was)
	}
	if err := t.commitReceipts(); err != nil {
		return err
	}
	if err := t.commitOutboxes(); err != nil {
		return err
	}
	t.pos.Digest = t.digest.end()
	return t.batch.Commit(t.pos)
}

// commitRow writes a row, the rank that follows from it, and the item and the embedding that go with
// it.
func (t *txn) commitRow(r *cachedRow) error {
	t.key = entity.AppendRowKey(t.key[:0], r.key.collection, r.key.id)
	if said := r.row.Exists || len(r.row.Totals) > 0; said {
		t.value = r.row.Append(t.value[:0])
		r.sum = t.put(t.key, t.value, r.sum)
		r.stored = true
	} else if r.stored {
		t.delete(t.key, r.sum)
		r.stored, r.sum = false, state.Sum{}
	}
	existed := r.ranked
	t.rerank(r)
	if r.item != nil || r.cleared {
		t.key = entity.AppendItemKey(t.key[:0], r.key.collection, r.key.id)
		var was state.Sum
		var err error
		if existed {
			was, err = t.stored(t.key)
		}
		if err != nil {
			return err
		}
		if r.item != nil {
			t.value = r.item.Append(t.value[:0])
			t.put(t.key, t.value, was)
		} else {
			t.delete(t.key, was)
		}
	}
	if r.embedding != nil || r.cleared {
		t.key = entity.AppendEmbeddingKey(t.key[:0], r.key.collection, r.key.id)
		was, err := t.stored(t.key)
		if err != nil {
			return err
		}
		if r.embedding != nil {
			t.value = r.embedding.Append(t.value[:0])
			t.put(t.key, t.value, was)
		} else {
			t.delete(t.key, was)
		}
	}
	// The item's attributes and the vector are parts of the entry.
	r.item, r.embedding, r.cleared, r.dirty = nil, nil, false, false
	t.m.rows.resize(r)
	return nil
}

// rerank moves the rank key of r to the rank of its row, if it is not there. Rank keys are derived
// from rows, so they do not go through put.
func (t *txn) rerank(r *cachedRow) {
	rank := r.row.Rank()
	if r.ranked == r.row.Exists && (!r.ranked || r.rank == rank) {
		return
	}
	if r.ranked {
		t.key = entity.AppendRankKey(t.key[:0], r.key.collection, r.rank, r.key.id)
		t.batch.Delete(t.key)
	}
	if r.row.Exists {
		t.key = entity.AppendRankKey(t.key[:0], r.key.collection, rank, r.key.id)
		t.batch.Set(t.key, nil)
	}
	r.rank, r.ranked = rank, r.row.Exists
}

func refuse(code, format string, args ...any) done {
	return done{refused: &command.Refusal{Code: code, Detail: fmt.Sprintf(format, args...)}}
}

func noCollection(name string) done {
	return refuse(command.CodeUnknownCollection, "there is no collection %q", name)
}
