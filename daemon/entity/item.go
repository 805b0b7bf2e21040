package entity

import "encoding/binary"

// Item is an item as it was written.
type Item struct {
	Version uint64 // index of the entry that wrote it
	Created uint64 // index of the entry that wrote it first
	Attrs   []byte // a JSON object, as the gateway made it
}

// The record of an item.
//
//	| 1 u8 | version uvarint | created uvarint | attributes … |
const itemVersion = 1

// Append appends the record of i to b.
func (i *Item) Append(b []byte) []byte {
	b = append(b, itemVersion)
	b = binary.AppendUvarint(b, i.Version)
	b = binary.AppendUvarint(b, i.Created)
	return append(b, i.Attrs...)
}

// DecodeItem reads what Append wrote. Attrs is a part of b. Other bytes give a *FormatError.
func DecodeItem(b []byte) (Item, error) {
	d := decoder{b: b}
	d.version(itemVersion)
	i := Item{Version: d.uvarint(), Created: d.uvarint()}
	i.Attrs = d.bytes(uint64(len(d.b)))
	if err := d.finish("item"); err != nil {
		return Item{}, err
	}
	return i, nil
}
