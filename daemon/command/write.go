package command

import (
	"encoding/binary"

	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
)

// DefaultCollection is the collection of records that name none.
const DefaultCollection = "default"

// Write is what one client asked for at once: records that are refused or taken one by one, under one
// acknowledgement.
type Write struct {
	// Key makes the same write under the same key happen once. nil: it has none.
	Key     *Key
	Records []Record
}

// Record is a Signal, an Item, an Embedding, a HardNeg, a Delete, a Collection, or one of these that is
// Keyed; or, of members alone, an Outbox or an OutboxForget.
type Record interface {
	append(b []byte) []byte
}

// Keyed is a record with an idempotency key of its own.
type Keyed struct {
	Key Key
	Record
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

// Embedding replaces the vector of an item, which need not exist.
type Embedding struct {
	Collection string // empty is DefaultCollection; decoding always gives a name
	Item       string
	Vector     []byte // IEEE 754 binary32 each, little-endian
}

// HardNeg hides an item from a user, or shows it again. Neither need exist.
type HardNeg struct {
	Collection string // empty is DefaultCollection; decoding always gives a name
	Item       string
	User       string
	Hide       bool
}

// Delete removes an item with its totals and its embedding, or whatever of that there is.
type Delete struct {
	Collection string // empty is DefaultCollection; decoding always gives a name
	ID         string
}

// Collection declares a collection, or declares it anew.
type Collection struct {
	Name   string // empty is DefaultCollection; decoding always gives a name
	Schema entity.Schema
}

// A payload. Integers are little-endian, uvarint and svarint (zigzag) are those of encoding/binary in
// their shortest form, a text is its length as uvarint and its bytes.
//
//	payload | kind u8 | version u8 | body |
//	writes  | stamp u64 | count uvarint | write … |          kind 1, version 1
//	roster  | the record of package membership |             kind 2, version 1
//
//	write   | length uvarint, of the rest | flags uvarint | key, if flag 1 | count uvarint | record … |
//	key     | hash 16 | body 16 |
//	record  | kind u8, + 128 with a key | key, if so | fields |
//
//	signal     1 | collection | item | type | user | weight uvarint, milli | at svarint, Unix ms |
//	item       2 | collection | id | attributes |
//	embedding  3 | collection | item | vector, f32 … |
//	hardneg    4 | collection | item | user | op u8: 0 unhide, 1 hide |
//	delete     5 | collection | id |
//	collection 6 | collection | half-life uvarint, ms | dimension uvarint |
//	             | count uvarint | type … | count uvarint | attribute … |
//	outbox     7 | origin 16 | owner 16 | first uvarint | before 16 | count uvarint, not 0 | op … |
//	forget     8 | before u64, a stamp |
//	type       | weight uvarint, milli | name |
//	attribute  | type u8 | name |
//	op         | stamp u64 | write: records of the kinds 1 and 4 alone |
//
// A collection of no bytes is DefaultCollection. A write travels to the machine that joins it without
// its length, as EncodeWrite returns it.
const (
	writesVersion  = 1
	rosterVersion  = 1
	featureVersion = 1
	checkVersion   = 1

	writesHeader = 2 + 8

	writeKeyed = 1
)

// EncodeWrite returns the bytes of w, for EncodeWrites. Where it is made once and often, use a Builder.
func EncodeWrite(w Write) []byte {
	var b Builder
	for _, r := range w.Records {
		if k, ok := r.(Keyed); ok {
			b.Add(k.Record)
			b.keyLast(k.Key)
		} else {
			b.Add(r)
		}
	}
	return b.finish(w.Key)
}

// EncodeSignal is EncodeWrite of a single signal.
func EncodeSignal(s Signal) []byte {
	var b Builder
	b.Signal(s)
	return b.Bytes()
}

// EncodeItem is EncodeWrite of a single item.
func EncodeItem(i Item) []byte {
	var b Builder
	b.Item(i)
	return b.Bytes()
}

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
	return appendText(b, i.Attrs)
}

func (e Embedding) append(b []byte) []byte {
	b = appendCollection(append(b, byte(RecordEmbedding)), e.Collection)
	b = appendText(b, e.Item)
	return appendText(b, e.Vector)
}

func (h HardNeg) append(b []byte) []byte {
	b = appendCollection(append(b, byte(RecordHardNeg)), h.Collection)
	b = appendText(b, h.Item)
	b = appendText(b, h.User)
	if h.Hide {
		return append(b, 1)
	}
	return append(b, 0)
}

func (d Delete) append(b []byte) []byte {
	b = appendCollection(append(b, byte(RecordDelete)), d.Collection)
	return appendText(b, d.ID)
}

func (c Collection) append(b []byte) []byte {
	b = appendCollection(append(b, byte(RecordCollection)), c.Name)
	b = binary.AppendUvarint(b, uint64(c.Schema.HalfLife.Milliseconds()))
	b = binary.AppendUvarint(b, uint64(c.Schema.Dimension))
	b = binary.AppendUvarint(b, uint64(len(c.Schema.Types)))
	for _, t := range c.Schema.Types {
		b = appendText(binary.AppendUvarint(b, t.Milli), t.Name)
	}
	b = binary.AppendUvarint(b, uint64(len(c.Schema.Attributes)))
	for _, a := range c.Schema.Attributes {
		b = appendText(append(b, byte(a.Type)), a.Name)
	}
	return b
}

func appendCollection(b []byte, name string) []byte {
	if name == DefaultCollection {
		name = ""
	}
	return appendText(b, name)
}

func appendText[S string | []byte](b []byte, s S) []byte {
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

// EncodeFeature returns the payload of an entry that says what the log makes use of from there on.
//
//	feature | 4 u8 | 1 u8 | capabilities u64, little-endian |
func EncodeFeature(c ident.Capabilities) []byte {
	return binary.LittleEndian.AppendUint64([]byte{byte(KindFeature), featureVersion}, uint64(c))
}

// EncodeCheck returns the payload of an entry at which members compare their states:
//
//	0      1         2         10
//	+------+---------+---------+
//	| kind | version | trusted |
//	| u8   | u8      | u64     |
//	+------+---------+---------+
//
// Little-endian. trusted is the member whose digest is right, by the word of an operator; 0: that of the
// majority is.
func EncodeCheck(trusted ident.MemberID) []byte {
	return binary.LittleEndian.AppendUint64([]byte{byte(KindCheck), checkVersion}, uint64(trusted))
}
