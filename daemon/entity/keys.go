package entity

import (
	"encoding/binary"
	"math"
)

// The tables. A number is never given another meaning; 0x00 belongs to package state.
const (
	tableRoster     = 0x01
	tableCollection = 0x02
	tableItem       = 0x03
	tableRow        = 0x04
	tableFormerRank = 0x05 // by bucket of mass: none is left once a Machine has opened the state
	tableEmbedding  = 0x06
	tableHardNeg    = 0x07
	tableReceipt    = 0x08
	tableReceipts   = 0x09
	tableDelivered  = 0x0a
	tableFeatures   = 0x0b
	tableRank       = 0x0c
)

// AllBounds returns the half-open range of all keys of these tables, and of those to come.
func AllBounds() (lower, upper []byte) { return []byte{tableRoster}, nil }

// rankHeader is the length of a rank key before its id.
const rankHeader = 1 + 4 + 8 + 8

// RosterKey returns the one key of the roster.
func RosterKey() []byte { return []byte{tableRoster} }

// FeaturesKey returns the one key of the capabilities that the log has made use of: u64, little-endian.
func FeaturesKey() []byte { return []byte{tableFeatures} }

// CollectionKey returns the key of the collection called name.
func CollectionKey(name string) []byte { return append([]byte{tableCollection}, name...) }

// CollectionBounds returns the half-open range of all collections' keys.
func CollectionBounds() (lower, upper []byte) {
	return []byte{tableCollection}, []byte{tableCollection + 1}
}

// CollectionName returns the name in a collection's key.
func CollectionName(key []byte) string { return string(key[1:]) }

// AppendItemKey appends the key of an item's document.
func AppendItemKey[ID string | []byte](b []byte, c CollectionID, id ID) []byte {
	return append(binary.BigEndian.AppendUint32(append(b, tableItem), uint32(c)), id...)
}

// AppendRowKey appends the key of an item's row.
func AppendRowKey[ID string | []byte](b []byte, c CollectionID, id ID) []byte {
	return append(binary.BigEndian.AppendUint32(append(b, tableRow), uint32(c)), id...)
}

// AppendEmbeddingKey appends the key of an item's embedding.
func AppendEmbeddingKey[ID string | []byte](b []byte, c CollectionID, id ID) []byte {
	return append(binary.BigEndian.AppendUint32(append(b, tableEmbedding), uint32(c)), id...)
}

// AppendHardNegPrefix appends what the keys of all hard negatives of a user begin with, and no others.
func AppendHardNegPrefix(b []byte, c CollectionID, user string) []byte {
	b = binary.BigEndian.AppendUint32(append(b, tableHardNeg), uint32(c))
	b = binary.BigEndian.AppendUint16(b, uint16(len(user))) // at most MaxIDBytes
	return append(b, user...)
}

// AppendHardNegKey appends the key of a user's hard negative about an item.
func AppendHardNegKey[ID string | []byte](b []byte, c CollectionID, user string, item ID) []byte {
	return append(AppendHardNegPrefix(b, c, user), item...)
}

// AppendReceiptKey appends the key of the receipt of an idempotency key that was first met in period.
func AppendReceiptKey(b []byte, period uint32, key [16]byte) []byte {
	return append(binary.BigEndian.AppendUint32(append(b, tableReceipt), period), key[:]...)
}

// ReceiptBounds returns the half-open range of the keys of all receipts of the periods in [from, to).
func ReceiptBounds(from, to uint32) (lower, upper []byte) {
	return binary.BigEndian.AppendUint32([]byte{tableReceipt}, from), binary.BigEndian.AppendUint32([]byte{tableReceipt}, to)
}

// ReceiptsKey returns the one key of the Receipts.
func ReceiptsKey() []byte { return []byte{tableReceipts} }

// AppendRankKey appends the key of an item's rank. Keys sort by rank, highest first, then by id.
func AppendRankKey[ID string | []byte](b []byte, c CollectionID, rank Mass, id ID) []byte {
	exp := rank.Exp
	if rank.Mant == 0 {
		exp = math.MinInt64 // below all others
	}
	b = binary.BigEndian.AppendUint32(append(b, tableRank), uint32(c))
	b = binary.BigEndian.AppendUint64(b, falling(uint64(exp)))
	b = binary.BigEndian.AppendUint64(b, ^rank.Mant)
	return append(b, id...)
}

// ParseRankKey returns the parts of a rank key; id is a part of key.
func ParseRankKey(key []byte) (rank Mass, id []byte, err error) {
	if len(key) <= rankHeader || key[0] != tableRank {
		return Mass{}, nil, &FormatError{Record: "rank key", Detail: "it has no id or is of another table"}
	}
	rank = Mass{Exp: int64(falling(binary.BigEndian.Uint64(key[5:]))), Mant: ^binary.BigEndian.Uint64(key[13:])}
	if rank == (Mass{Exp: math.MinInt64}) {
		rank = Mass{}
	} else if rank.Mant>>63 == 0 {
		return Mass{}, nil, &FormatError{Record: "rank key", Detail: "it has a mantissa without its top bit"}
	}
	return rank, key[rankHeader:], nil
}

// FormerRankBounds returns the half-open range of the rank keys that older binaries wrote.
func FormerRankBounds() (lower, upper []byte) {
	return []byte{tableFormerRank}, []byte{tableFormerRank + 1}
}

// RowBounds returns the half-open range of the keys of all rows.
func RowBounds() (lower, upper []byte) { return []byte{tableRow}, []byte{tableRow + 1} }

// RankBounds returns the half-open range of the rank keys of a collection.
func RankBounds(c CollectionID) (lower, upper []byte) {
	lower = binary.BigEndian.AppendUint32([]byte{tableRank}, uint32(c))
	if c == ^CollectionID(0) {
		return lower, []byte{tableRank + 1}
	}
	return lower, binary.BigEndian.AppendUint32([]byte{tableRank}, uint32(c)+1)
}

// falling turns a signed number into an unsigned one of the opposite order, and back.
func falling(v uint64) uint64 { return ^(v ^ 1<<63) }
