package entity

import "encoding/binary"

// FloatBytes is the size of one float of a vector.
const FloatBytes = 4

// Embedding is the vector of an item.
type Embedding struct {
	Version uint64 // index of the entry that wrote it
	Vector  []byte // IEEE 754 binary32 each, little-endian, finite; 1 to MaxDimension of them
}

// Dimension returns how many floats the vector has.
func (e *Embedding) Dimension() int { return len(e.Vector) / FloatBytes }

// The record of an embedding. Its dimension is that of its collection.
//
//	| 1 u8 | version uvarint | f32 … |
const embeddingVersion = 1

// Append appends the record of e to b.
func (e *Embedding) Append(b []byte) []byte {
	b = binary.AppendUvarint(append(b, embeddingVersion), e.Version)
	return append(b, e.Vector...)
}

// DecodeEmbedding reads what Append wrote. Vector is a part of b. Other bytes give a *FormatError.
func DecodeEmbedding(b []byte) (Embedding, error) {
	d := decoder{b: b}
	d.version(embeddingVersion)
	e := Embedding{Version: d.uvarint()}
	if n := len(d.b); n == 0 || n%FloatBytes != 0 || n > MaxDimension*FloatBytes {
		d.fail("a vector of %d bytes", n)
	}
	e.Vector = d.bytes(uint64(len(d.b)))
	if err := d.finish("embedding"); err != nil {
		return Embedding{}, err
	}
	return e, nil
}
