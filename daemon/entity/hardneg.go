package entity

import (
	"bytes"
	"cmp"
	"encoding/binary"

	"github.com/tidaldb/tidal/daemon/ident"
)

// HardNeg says whether a user hides an item, and by which operation: one element of a set that is a
// CRDT, so that operations taken on both sides of a partition merge to the same on both. The last one
// wins. An item that was shown again keeps its HardNeg, for a late operation to be compared with.
type HardNeg struct {
	Hidden bool
	// Stamp is the moment of the operation: that of the entry, or of the member that took it.
	Stamp ident.Stamp
	// Origin is who gave the stamp; zero: the log. Seq tells operations of one origin and stamp
	// apart: for the log, the place in the entry; for a chain of an outbox, from OperationSeq on.
	Origin ident.Incarnation
	Seq    uint64
}

// OperationSeq is what the Seq of the records of an operation of an outbox counts from: they keep their
// order when the stamps of several operations are cut to the same one.
func OperationSeq(place uint64) uint64 { return place << 16 }

// Compare orders operations by stamp, ties by origin, then by place. No two operations are equal; if
// they were, hiding would win.
func (h HardNeg) Compare(o HardNeg) int {
	return cmp.Or(
		cmp.Compare(h.Stamp, o.Stamp),
		bytes.Compare(h.Origin[:], o.Origin[:]),
		cmp.Compare(h.Seq, o.Seq),
		cmp.Compare(h.flags(), o.flags()),
	)
}

// Merge returns the later of the two.
func (h HardNeg) Merge(o HardNeg) HardNeg {
	if h.Compare(o) < 0 {
		return o
	}
	return h
}

// The record of a hard negative.
//
//	| 1 u8 | flags u8 | stamp u64 | origin 16 | seq uvarint |
//
// Flags: 1 hidden.
const (
	hardNegVersion = 1

	hardNegHidden = 1
)

func (h HardNeg) flags() byte {
	if h.Hidden {
		return hardNegHidden
	}
	return 0
}

// Append appends the record of h to b.
func (h HardNeg) Append(b []byte) []byte {
	b = append(b, hardNegVersion, h.flags())
	b = binary.LittleEndian.AppendUint64(b, uint64(h.Stamp))
	b = append(b, h.Origin[:]...)
	return binary.AppendUvarint(b, h.Seq)
}

// DecodeHardNeg reads what Append wrote. Other bytes give a *FormatError.
func DecodeHardNeg(b []byte) (HardNeg, error) {
	d := decoder{b: b}
	d.version(hardNegVersion)
	flags := d.u8()
	if flags&^hardNegHidden != 0 {
		d.fail("unknown flags %#x", flags)
	}
	h := HardNeg{Hidden: flags == hardNegHidden, Stamp: ident.Stamp(d.u64()), Origin: d.array16(), Seq: d.uvarint()}
	if err := d.finish("hardneg"); err != nil {
		return HardNeg{}, err
	}
	return h, nil
}
