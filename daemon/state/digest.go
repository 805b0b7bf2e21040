package state

import (
	"encoding/binary"
	"encoding/hex"
	"slices"

	"github.com/zeebo/blake3"
)

// SumBytes is the size of a Sum when it is written down.
const SumBytes = 32

// Sum is the sum, lane by lane and modulo 2^64, of the BLAKE3 of some pairs. Equal sets of pairs have
// equal sums, however they came about; the zero Sum is that of no pair. It finds faults and bugs, not an
// adversary.
type Sum [4]uint64

// Plus returns the sum of the pairs of both.
func (s Sum) Plus(o Sum) Sum {
	for i := range s {
		s[i] += o[i]
	}
	return s
}

// Minus returns the sum of the pairs of s without those of o, which are among them.
func (s Sum) Minus(o Sum) Sum {
	for i := range s {
		s[i] -= o[i]
	}
	return s
}

// Append appends s, SumBytes of it: the lanes in order, little-endian.
func (s Sum) Append(b []byte) []byte {
	for _, lane := range s {
		b = binary.LittleEndian.AppendUint64(b, lane)
	}
	return b
}

// DecodeSum reads what Append wrote; b has SumBytes.
func DecodeSum(b []byte) (s Sum) {
	for i := range s {
		s[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return s
}

// String returns lower-case hex of what Append writes.
func (s Sum) String() string { return hex.EncodeToString(s.Append(nil)) }

// Summer makes the sums of pairs. The zero Summer is ready; it belongs to one goroutine.
type Summer struct{ b []byte }

// Pair returns the sum of one pair: the BLAKE3 of
//
//	0           4     4+key bytes
//	+-----------+-----+-------+
//	| key bytes | key | value |
//	| u32       |     |       |
//	+-----------+-----+-------+
func (h *Summer) Pair(key, value []byte) Sum {
	h.b = binary.LittleEndian.AppendUint32(h.b[:0], uint32(len(key)))
	h.b = append(append(h.b, key...), value...)
	sum := blake3.Sum256(h.b)
	return DecodeSum(sum[:])
}

// Digest sums up the primary tables of a store. Which sum stands for what is told by package entity,
// whose version it carries; digests of different versions say nothing about each other.
type Digest struct {
	Version uint16 // 0: there is none
	Sums    []Sum  // read-only
}

// Total is the digest in one sum, of all pairs.
func (d Digest) Total() (s Sum) {
	for _, x := range d.Sums {
		s = s.Plus(x)
	}
	return s
}

// Equal reports whether both say the same of the same.
func (d Digest) Equal(o Digest) bool { return d.Version == o.Version && slices.Equal(d.Sums, o.Sums) }
