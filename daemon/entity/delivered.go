package entity

import (
	"encoding/binary"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Delivered says how far the log has taken over the operations of one chain of an outbox.
type Delivered struct {
	Seq   uint64            // place of the last operation, from 1
	Hash  [16]byte          // of that operation, and so of all before it
	Owner ident.Incarnation // of the data directory whose outbox the chain is from
	// Gone is the log's stamp as it was found that the owner is no member; 0: it is one.
	Gone ident.Stamp
}

// The record of a Delivered.
//
//	| 1 u8 | seq uvarint | hash 16 | owner 16 | gone u64, a stamp |
const deliveredVersion = 1

// Append appends the record of d to b.
func (d Delivered) Append(b []byte) []byte {
	b = binary.AppendUvarint(append(b, deliveredVersion), d.Seq)
	b = append(append(b, d.Hash[:]...), d.Owner[:]...)
	return binary.LittleEndian.AppendUint64(b, uint64(d.Gone))
}

// DecodeDelivered reads what Append wrote. Other bytes give a *FormatError.
func DecodeDelivered(b []byte) (Delivered, error) {
	d := decoder{b: b}
	d.version(deliveredVersion)
	out := Delivered{Seq: d.uvarint(), Hash: d.array16(), Owner: d.array16(), Gone: ident.Stamp(d.u64())}
	if err := d.finish("delivered"); err != nil {
		return Delivered{}, err
	}
	return out, nil
}

// Forgotten is a moment of log time. What was delivered of chains whose owner was no member any more by
// then is not known any more, and what is older than that is not taken from such chains.
type Forgotten struct{ Before ident.Stamp }

// The record of a Forgotten.
//
//	| 1 u8 | before u64, a stamp |
const forgottenVersion = 1

// Encode returns the record of f.
func (f Forgotten) Encode() []byte {
	return binary.LittleEndian.AppendUint64([]byte{forgottenVersion}, uint64(f.Before))
}

// DecodeForgotten reads what Encode wrote. Other bytes give a *FormatError.
func DecodeForgotten(b []byte) (Forgotten, error) {
	d := decoder{b: b}
	d.version(forgottenVersion)
	f := Forgotten{Before: ident.Stamp(d.u64())}
	if err := d.finish("forgotten"); err != nil {
		return Forgotten{}, err
	}
	return f, nil
}

// ForgottenKey returns the one key of the Forgotten.
func ForgottenKey() []byte { return []byte{tableDelivered} }

// AppendDeliveredKey appends the key of what was delivered of a chain.
func AppendDeliveredKey(b []byte, origin ident.Incarnation) []byte {
	return append(append(b, tableDelivered), origin[:]...)
}

// DeliveredBounds returns the half-open range of the keys of all chains.
func DeliveredBounds() (lower, upper []byte) {
	return []byte{tableDelivered, 0}, []byte{tableDelivered + 1}
}

// ParseDeliveredKey returns the origin in the key of what was delivered of a chain.
func ParseDeliveredKey(key []byte) (origin ident.Incarnation, err error) {
	if len(key) != 1+len(origin) || key[0] != tableDelivered {
		return origin, &FormatError{Record: "delivered key", Detail: "it has no origin or is of another table"}
	}
	copy(origin[:], key[1:])
	return origin, nil
}
