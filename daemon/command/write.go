package command

import (
	"encoding/binary"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
)

// DefaultCollection is the collection of records that name none.
const DefaultCollection = "default"

// Write is what one client asked for at once: records that are refused or taken one by one, under one
// acknowledgement.
type Write struct {
	// Flags change what the write means. None exist yet: a set bit is an *UnknownKindError.
	Flags   uint64
	Records []Record
}

// Record is a Signal or an Item.
type Record interface {
	append(b []byte) []byte
}

// Signal is one observation of a user and an item. Its shape was checked at the gateway; apply checks
// it again, as it cannot be taken back.
type Signal struct {
	Collection string // empty is DefaultCollection; decoding always gives a name
	Item       string
	Type       string
	User       string // may be empty
	Milli      uint64 // weight in thousandths
	// At is the Unix time in milliseconds, possibly long ago; 0 is the stamp of the entry. A time that
	// a client gave passes through ObservedAt.
	At int64
}

// ObservedAt returns the At of a signal that was observed at ms: ms itself, but 1 for 0, so that the
// first millisecond of 1970 is not taken for "now".
func ObservedAt(ms int64) int64 {
	if ms == 0 {
		return 1
	}
	return ms
}

// Item replaces an item whole, or makes it.
type Item struct {
	Collection string // empty is DefaultCollection; decoding always gives a name
	ID         string
	Attrs      []byte // a JSON object in the form that answers repeat
}

// A payload. Integers are little-endian, uvarint and svarint (zigzag) are those of encoding/binary in
// their shortest form, a text is its length as uvarint and its bytes.
//
//	payload | kind u8 | version u8 | body |
//	writes  | stamp u64 | count uvarint | write … |          kind 1, version 1
//	roster  | the record of package membership |             kind 2, version 1
//
//	write   | length uvarint, of the rest | flags uvarint | count uvarint | record … |
//	signal  | 1 u8 | collection | item | type | user | weight uvarint, milli | at svarint, Unix ms |
//	item    | 2 u8 | collection | id | attributes |
//
// A collection of no bytes is DefaultCollection. A write travels to the machine that joins it without
// its length, as EncodeWrite returns it.
const (
	writesVersion = 1
	rosterVersion = 1

	writesHeader = 2 + 8
)

// EncodeWrite returns the bytes of w, for EncodeWrites.
func EncodeWrite(w Write) []byte {
	b := binary.AppendUvarint(nil, w.Flags)
	b = binary.AppendUvarint(b, uint64(len(w.Records)))
	for _, r := range w.Records {
		b = r.append(b)
	}
	return b
}

// EncodeSignal is EncodeWrite of a single signal, in one allocation.
func EncodeSignal(s Signal) []byte {
	size := 32 + len(s.Collection) + len(s.Item) + len(s.Type) + len(s.User)
	return s.append(single(size))
}

// EncodeItem is EncodeWrite of a single item, in one allocation.
func EncodeItem(i Item) []byte {
	return i.append(single(16 + len(i.Collection) + len(i.ID) + len(i.Attrs)))
}

// single begins a write of one record with no flags.
func single(size int) []byte { return append(make([]byte, 0, size), 0, 1) }

func (s Signal) append(b []byte) []byte {
	b = appendCollection(append(b, byte(RecordSignal)), s.Collection)
	b = appendText(b, s.Item)
	b = appendText(b, s.Type)
	b = appendText(b, s.User)
	b = binary.AppendUvarint(b, s.Milli)
	return binary.AppendVarint(b, s.At)
}

func (i Item) append(b []byte) []byte {
	b = appendCollection(append(b, byte(RecordItem)), i.Collection)
	b = appendText(b, i.ID)
	b = binary.AppendUvarint(b, uint64(len(i.Attrs)))
	return append(b, i.Attrs...)
}

func appendCollection(b []byte, name string) []byte {
	if name == DefaultCollection {
		name = ""
	}
	return appendText(b, name)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// EncodeWrites returns the payload of an entry with these writes, each as EncodeWrite made it. stamp is
// the moment of the entry: the time of every signal in it that gives none.
func EncodeWrites(stamp ident.Stamp, writes [][]byte) []byte {
	size := writesHeader + binary.MaxVarintLen64
	for _, w := range writes {
		size += binary.MaxVarintLen32 + len(w)
	}
	b := append(make([]byte, 0, size), byte(KindWrites), writesVersion)
	b = binary.LittleEndian.AppendUint64(b, uint64(stamp))
	b = binary.AppendUvarint(b, uint64(len(writes)))
	for _, w := range writes {
		b = binary.AppendUvarint(b, uint64(len(w)))
		b = append(b, w...)
	}
	return b
}

// EncodeRoster returns the payload of an entry that replaces the roster by r, in which no role
// changes. (One in which a role changes is the context of a configuration change, without a kind.)
func EncodeRoster(r membership.Roster) []byte {
	return append([]byte{byte(KindRoster), rosterVersion}, r.Encode()...)
}
