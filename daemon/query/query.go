package query

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/state"
)

// NoCollectionError: there is no collection of this name.
type NoCollectionError struct{ Name string }

func (e *NoCollectionError) Error() string { return fmt.Sprintf("there is no collection %q", e.Name) }

// Details is one item with the totals of its signals.
type Details struct {
	Collection string
	ID         string
	Version    uint64 // index of the entry that wrote it
	Created    uint64 // index of the entry that wrote it first
	Attrs      []byte // a JSON object
	Score      float64
	Signals    []Signal // one for each signal type of the collection, in its order
	Dimension  int      // of its embedding; 0: it has none
}

// Signal is what is known of one signal type of an item.
type Signal struct {
	Type   string
	Count  uint64  // exact
	Weight float64 // sum of the weights; exact in thousandths up to 2^53 of them
	Score  float64 // the weight of the type times the decayed sum
}

// Item returns an item as it is at now, a Unix time in milliseconds; false when there is none, even if
// it has signals. Errors: *NoCollectionError, or the store's.
func Item(view *state.View, collection, id string, now int64) (Details, bool, error) {
	return ItemWith(view, collection, id, now, Pending{})
}

// ItemWith is Item with what is pending.
func ItemWith(view *state.View, collection, id string, now int64, pending Pending) (Details, bool, error) {
	c, err := schema(view, collection)
	if err != nil {
		return Details{}, false, err
	}
	doc, ok, err := document(view, c.ID, id)
	if err != nil || !ok {
		return Details{}, false, err
	}
	var row entity.Row
	if err := readRow(view, entity.AppendRowKey(nil, c.ID, id), &row); err != nil {
		return Details{}, false, fmt.Errorf("read row of item %q: %w", id, err)
	}
	pending.observe(&c, id, &row)
	dimension, err := dimension(view, c.ID, id)
	if err != nil {
		return Details{}, false, err
	}
	item := Details{
		Dimension:  dimension,
		Collection: c.Name,
		ID:         id,
		Version:    doc.Version,
		Created:    doc.Created,
		Attrs:      doc.Attrs,
		Score:      c.Score(row.Mass(), now),
		Signals:    make([]Signal, len(c.Types)),
	}
	for typ := range c.Types {
		t := row.Total(typ)
		item.Signals[typ] = Signal{
			Type:   c.Types[typ].Name,
			Count:  t.Count,
			Weight: float64(t.Sum) / entity.MilliPerWeight,
			Score:  c.Score(t.Mass, now),
		}
	}
	return item, true, nil
}

// Collection returns a collection. Errors: *NoCollectionError, or the store's.
func Collection(view *state.View, name string) (entity.Collection, error) { return schema(view, name) }

// dimension returns how many floats the embedding of an item has; 0: there is none.
func dimension(view *state.View, c entity.CollectionID, id string) (int, error) {
	record, ok, err := view.Get(entity.AppendEmbeddingKey(nil, c, id))
	if err != nil || !ok {
		return 0, err
	}
	e, err := entity.DecodeEmbedding(record)
	if err != nil {
		return 0, fmt.Errorf("read embedding of item %q: %w", id, err)
	}
	return e.Dimension(), nil
}

// schema reads a collection.
func schema(view *state.View, name string) (entity.Collection, error) {
	record, ok, err := view.Get(entity.CollectionKey(name))
	if err != nil {
		return entity.Collection{}, fmt.Errorf("read collection %q: %w", name, err)
	}
	if !ok {
		return entity.Collection{}, &NoCollectionError{Name: name}
	}
	c, err := entity.DecodeCollection(name, record)
	if err != nil {
		return entity.Collection{}, fmt.Errorf("read collection %q: %w", name, err)
	}
	return c, nil
}

// document reads an item. Its attributes are the caller's.
func document(view *state.View, c entity.CollectionID, id string) (entity.Item, bool, error) {
	record, ok, err := view.Get(entity.AppendItemKey(nil, c, id))
	if err != nil || !ok {
		return entity.Item{}, false, err
	}
	doc, err := entity.DecodeItem(record)
	if err != nil {
		return entity.Item{}, false, fmt.Errorf("read item %q: %w", id, err)
	}
	doc.Attrs = bytes.Clone(doc.Attrs)
	return doc, true, nil
}

// errNoRow is a fault of the state: every item has a row.
var errNoRow = errors.New("an item without a row")

// readRow reads the row under key, of an item that exists, into row.
func readRow(view *state.View, key []byte, row *entity.Row) error {
	record, ok, err := view.Get(key)
	if err != nil {
		return err
	}
	if !ok {
		return errNoRow
	}
	return row.Decode(record)
}
