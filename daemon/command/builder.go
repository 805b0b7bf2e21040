package command

import (
	"encoding/binary"
	"slices"
)

// writeHeader is the most that a write has before its records: flags, key, count.
const writeHeader = 1 + 32 + binary.MaxVarintLen32

// Builder encodes a write record by record, in place. The zero Builder is an empty write.
type Builder struct {
	// b has writeHeader bytes of room before the records.
	b     []byte
	count int
	last  int // where the last record begins
}

// Signal adds a record.
func (w *Builder) Signal(s Signal) { w.b = s.append(w.begin()) }

// Item adds a record.
func (w *Builder) Item(i Item) { w.b = i.append(w.begin()) }

// Embedding adds a record.
func (w *Builder) Embedding(e Embedding) { w.b = e.append(w.begin()) }

// HardNeg adds a record.
func (w *Builder) HardNeg(h HardNeg) { w.b = h.append(w.begin()) }

// Add adds a record of any kind.
func (w *Builder) Add(r Record) { w.b = r.append(w.begin()) }

// begin makes room for the next record and returns where it goes.
func (w *Builder) begin() []byte {
	if len(w.b) == 0 {
		w.b = slices.Grow(w.b, 2*writeHeader)[:writeHeader]
	}
	w.last = len(w.b)
	w.count++
	return w.b
}

// KeyLast gives the record added last an idempotency key, whose hash is given.
func (w *Builder) KeyLast(hash [16]byte) {
	w.keyLast(Key{Hash: hash, Body: hash16(w.b[w.last:])})
}

func (w *Builder) keyLast(k Key) {
	w.b[w.last] |= recordKeyed
	w.b = slices.Insert(w.b, w.last+1, append(k.Hash[:], k.Body[:]...)...)
}

// DropLast takes back the record added last, key and all. It is called once after an addition.
func (w *Builder) DropLast() { w.b, w.count = w.b[:w.last], w.count-1 }

// Count returns how many records were added.
func (w *Builder) Count() int { return w.count }

// Len returns the size of the write in bytes, at most.
func (w *Builder) Len() int { return max(len(w.b), writeHeader) }

// Reset makes w an empty write and keeps its memory, which what Bytes returned is a part of.
func (w *Builder) Reset() { w.b, w.count, w.last = w.b[:0], 0, 0 }

// Bytes returns the write, for EncodeWrites. It is the memory of w.
func (w *Builder) Bytes() []byte { return w.finish(nil) }

// Keyed is Bytes of a write with an idempotency key, whose hash is given.
func (w *Builder) Keyed(hash [16]byte) []byte {
	var records []byte
	if w.count > 0 {
		records = w.b[writeHeader:]
	}
	return w.finish(&Key{Hash: hash, Body: hash16(records)})
}

// finish writes the header right before the records.
func (w *Builder) finish(k *Key) []byte {
	if w.count == 0 {
		w.begin()
		w.count = 0
	}
	var room [writeHeader]byte
	header := append(room[:0], 0)
	if k != nil {
		header[0] = writeKeyed
		header = append(append(header, k.Hash[:]...), k.Body[:]...)
	}
	header = binary.AppendUvarint(header, uint64(w.count))
	start := writeHeader - len(header)
	copy(w.b[start:], header)
	return w.b[start:]
}
