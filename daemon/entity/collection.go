package entity

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
	"unicode/utf8"
)

// Limits of the model. Weights are in thousandths ("milli").
const (
	MaxIDBytes     = 256
	MinMilli       = 1             // a signal's weight: 0.001 …
	MaxMilli       = 1_000_000_000 // … to 1e6; also the most that a type may weigh
	MilliPerWeight = 1000
	MaxTypes       = 64 // signal types of one collection
)

// CollectionID is a collection's number in keys: given once, never reused, from 1.
type CollectionID uint32

// Collection is the schema of a collection.
type Collection struct {
	Name string // 1 to MaxIDBytes bytes of UTF-8
	ID   CollectionID
	// HalfLife is after how long a signal counts half: whole milliseconds, MinHalfLife to MaxHalfLife.
	HalfLife time.Duration
	// Types are the signals that items here may get. A type is stored by its position, so types are
	// appended, never removed or moved.
	Types []SignalType
}

// SignalType is one kind of signal.
type SignalType struct {
	Name  string // unique in its collection
	Milli uint64 // weight in thousandths, 0 to MaxMilli
}

// DefaultCollection exists from genesis: views that count half after a week.
func DefaultCollection() Collection {
	return Collection{
		Name:     "default",
		ID:       1,
		HalfLife: 7 * 24 * time.Hour,
		Types:    []SignalType{{Name: "view", Milli: MilliPerWeight}},
	}
}

// Type returns the position of the type called name.
func (c *Collection) Type(name string) (int, bool) {
	for i := range c.Types {
		if c.Types[i].Name == name {
			return i, true
		}
	}
	return 0, false
}

// Mass returns the mass of a signal of type typ, of weight milli (MinMilli to MaxMilli), observed at
// the Unix millisecond at.
func (c *Collection) Mass(typ int, milli uint64, at int64) Mass {
	return MakeMass(milli*c.Types[typ].Milli, MakeTick(at, c.HalfLife)) // at most 1e18 units
}

// Score returns what m is worth at now, a Unix time in milliseconds. See Mass.Score.
func (c *Collection) Score(m Mass, now int64) float64 { return m.Score(now, c.HalfLife) }

// CheckID reports why id cannot name an item, a user, a signal type or a collection: it must be 1 to
// MaxIDBytes bytes of valid UTF-8. Any character is allowed.
func CheckID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("id is empty")
	case len(id) > MaxIDBytes:
		return fmt.Errorf("id has %d bytes, limit %d", len(id), MaxIDBytes)
	case !utf8.ValidString(id):
		return fmt.Errorf("id %q is not valid UTF-8", id)
	}
	return nil
}

// The record of a collection; its name is in the key. Integers are little-endian, uvarint is that of
// encoding/binary in its shortest form.
//
//	| 1 u8 | id u32 | half-life u64, ms | count uvarint | type … |
//	type | weight uvarint, milli | length uvarint | name |
const collectionVersion = 1

// Encode returns the record of c, which must be valid.
func (c Collection) Encode() []byte {
	b := []byte{collectionVersion}
	b = binary.LittleEndian.AppendUint32(b, uint32(c.ID))
	b = binary.LittleEndian.AppendUint64(b, uint64(c.HalfLife.Milliseconds()))
	b = binary.AppendUvarint(b, uint64(len(c.Types)))
	for _, t := range c.Types {
		b = binary.AppendUvarint(b, t.Milli)
		b = binary.AppendUvarint(b, uint64(len(t.Name)))
		b = append(b, t.Name...)
	}
	return b
}

// DecodeCollection reads what Encode wrote of the collection called name. It shares no memory with b.
// Other bytes give a *FormatError.
func DecodeCollection(name string, b []byte) (Collection, error) {
	d := decoder{b: b}
	d.version(collectionVersion)
	c := Collection{Name: name, ID: CollectionID(d.u32())}
	ms := d.u64()
	n := d.uvarint()
	if n > MaxTypes {
		d.fail("%d signal types, limit %d", n, MaxTypes)
	}
	for range n {
		if d.detail != "" {
			break
		}
		c.Types = append(c.Types, SignalType{Milli: d.uvarint(), Name: string(d.bytes(d.uvarint()))})
	}
	if ms <= math.MaxInt64/uint64(time.Millisecond) {
		c.HalfLife = time.Duration(ms) * time.Millisecond
	}
	if err := d.finish("collection"); err != nil {
		return Collection{}, err
	}
	if err := c.validate(); err != nil {
		return Collection{}, &FormatError{Record: "collection", Detail: err.Error()}
	}
	return c, nil
}

// validate reports whether the rest of the package may rely on c:
//
//  1. its name and those of its types are ids; no two types have the same.
//  2. its number is not 0; its half-life is in range and whole milliseconds.
//  3. it has at most MaxTypes types, each of at most MaxMilli.
func (c *Collection) validate() error {
	if err := CheckID(c.Name); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	switch {
	case c.ID == 0:
		return fmt.Errorf("id is 0")
	case c.HalfLife < MinHalfLife || c.HalfLife > MaxHalfLife || c.HalfLife%time.Millisecond != 0:
		return fmt.Errorf("half-life %s, want whole milliseconds from %s to %s", c.HalfLife, MinHalfLife, MaxHalfLife)
	case len(c.Types) > MaxTypes:
		return fmt.Errorf("%d signal types, limit %d", len(c.Types), MaxTypes)
	}
	for i, t := range c.Types {
		if err := CheckID(t.Name); err != nil {
			return fmt.Errorf("signal type %d: %w", i, err)
		}
		if first, _ := c.Type(t.Name); first != i {
			return fmt.Errorf("signal types %d and %d are both named %q", first, i, t.Name)
		}
		if t.Milli > MaxMilli {
			return fmt.Errorf("signal type %q weighs %d/1000, limit %d/1000", t.Name, t.Milli, uint64(MaxMilli))
		}
	}
	return nil
}
