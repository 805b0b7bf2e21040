package entity

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of the model. Weights are in thousandths ("milli").
const (
	MaxIDBytes     = 256
	MinMilli       = 1             // a signal's weight: 0.001 …
	MaxMilli       = 1_000_000_000 // … to 1e6; also the most that a type may weigh
	MilliPerWeight = 1000
	MaxTypes       = 64   // signal types of one collection
	MaxAttributes  = 64   // declared attributes of one collection
	MaxDimension   = 4096 // floats of an embedding
	MaxCollections = 1024
)

// CollectionID is a collection's number in keys: given once, never reused, from 1.
type CollectionID uint32

// Collection is a collection: its schema, and what was found to be true of its data.
type Collection struct {
	Name string // 1 to MaxIDBytes bytes of UTF-8
	ID   CollectionID
	// Version is the index of the entry that changed the schema last.
	Version uint64
	Schema
	// InUse says that it has or had signals: half-life and weights stay as they are.
	InUse bool
}

// Schema is what is declared of a collection.
type Schema struct {
	// HalfLife is after how long a signal counts half: whole milliseconds, MinHalfLife to MaxHalfLife.
	HalfLife time.Duration
	// Types are the signals that items here may get. In a Collection a type is stored by its position,
	// so while it is in use types are appended, never removed or moved.
	Types []SignalType
	// Attributes are the attributes whose type items must keep to; sorted by name.
	Attributes []Attribute
	// Dimension is that of every embedding; 0: that of the first one. Once fixed it stays.
	Dimension int
}

// SignalType is one kind of signal.
type SignalType struct {
	Name  string // unique in its collection
	Milli uint64 // weight in thousandths, 0 to MaxMilli
}

// Attribute is an attribute with a declared type.
type Attribute struct {
	Name string // 1 to MaxIDBytes bytes of UTF-8
	Type AttributeType
}

// DefaultCollection exists from genesis: views that count half after a week.
func DefaultCollection() Collection {
	return Collection{
		Name:    "default",
		ID:      1,
		Version: 1,
		Schema:  Schema{HalfLife: 7 * 24 * time.Hour, Types: []SignalType{{Name: "view", Milli: MilliPerWeight}}},
	}
}

// InUseError refuses a change of what a collection's data rests on.
type InUseError struct{ Detail string }

func (e *InUseError) Error() string { return e.Detail }

// Declare makes want the schema of c, and reports whether anything changed. The order of want's types
// does not count; a Dimension of 0 leaves it open, or as it is. want must be valid. An *InUseError
// says that want changes what data rests on; c is then as it was.
func (c *Collection) Declare(want Schema) (changed bool, err error) {
	next := *c
	next.HalfLife = want.HalfLife
	next.Attributes = slices.SortedFunc(slices.Values(want.Attributes), func(a, b Attribute) int { return strings.Compare(a.Name, b.Name) })
	if want.Dimension != 0 {
		next.Dimension = want.Dimension
	}
	sorted := slices.SortedFunc(slices.Values(want.Types), func(a, b SignalType) int { return strings.Compare(a.Name, b.Name) })
	if next.Types = sorted; c.ID != 0 && (c.InUse || sameTypes(c.Types, sorted)) {
		next.Types = slices.Clone(c.Types)
		for _, t := range sorted {
			if _, known := c.Type(t.Name); !known {
				next.Types = append(next.Types, t)
			}
		}
	}
	if err := c.mayBecome(next, want); err != nil {
		return false, err
	}
	changed = c.ID == 0 || next.HalfLife != c.HalfLife || next.Dimension != c.Dimension ||
		!slices.Equal(next.Types, c.Types) || !slices.Equal(next.Attributes, c.Attributes)
	*c = next
	return changed, nil
}

// mayBecome holds the rules of what is fixed.
func (c *Collection) mayBecome(next Collection, want Schema) error {
	if c.Dimension != 0 && next.Dimension != c.Dimension {
		return &InUseError{fmt.Sprintf("the dimension is fixed at %d, not %d", c.Dimension, next.Dimension)}
	}
	if len(next.Types) > MaxTypes {
		return &InUseError{fmt.Sprintf("%d signal types with those that exist, limit %d", len(next.Types), MaxTypes)}
	}
	if !c.InUse {
		return nil
	}
	if next.HalfLife != c.HalfLife {
		return &InUseError{fmt.Sprintf("the half-life is fixed at %s, not %s: there are signals", c.HalfLife, next.HalfLife)}
	}
	for _, have := range c.Types {
		i := slices.IndexFunc(want.Types, func(t SignalType) bool { return t.Name == have.Name })
		switch {
		case i < 0:
			return &InUseError{fmt.Sprintf("signal %q cannot be left out: there are signals", have.Name)}
		case want.Types[i].Milli != have.Milli:
			return &InUseError{fmt.Sprintf("the weight of signal %q is fixed at %d/1000, not %d/1000: there are signals", have.Name, have.Milli, want.Types[i].Milli)}
		}
	}
	return nil
}

// sameTypes reports whether sorted holds just the types of have.
func sameTypes(have, sorted []SignalType) bool {
	have = slices.SortedFunc(slices.Values(have), func(a, b SignalType) int { return strings.Compare(a.Name, b.Name) })
	return slices.Equal(have, sorted)
}

// Type returns the position of the type called name.
func (s *Schema) Type(name string) (int, bool) {
	for i := range s.Types {
		if s.Types[i].Name == name {
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
// encoding/binary in its shortest form, a text is its length as uvarint and its bytes.
//
//	| 2 u8 | id u32 | half-life u64, ms | flags u8 | version uvarint | dimension uvarint |
//	| count uvarint | type … | count uvarint | attribute … |
//	type      | weight uvarint, milli | text |
//	attribute | type u8 | text |
//
// Flags: 1 in use. Version 1 is read too. It ended after the types and had no flags, version,
// dimension and attributes; such a collection is taken to be in use.
//
//	| 1 u8 | id u32 | half-life u64, ms | count uvarint | type … |
const (
	collectionVersion1 = 1
	collectionVersion  = 2

	collectionInUse = 1
)

// Encode returns the record of c, which must be valid.
func (c Collection) Encode() []byte {
	b := []byte{collectionVersion}
	b = binary.LittleEndian.AppendUint32(b, uint32(c.ID))
	b = binary.LittleEndian.AppendUint64(b, uint64(c.HalfLife.Milliseconds()))
	var flags byte
	if c.InUse {
		flags |= collectionInUse
	}
	b = binary.AppendUvarint(append(b, flags), c.Version)
	b = binary.AppendUvarint(b, uint64(c.Dimension))
	b = binary.AppendUvarint(b, uint64(len(c.Types)))
	for _, t := range c.Types {
		b = appendText(binary.AppendUvarint(b, t.Milli), t.Name)
	}
	b = binary.AppendUvarint(b, uint64(len(c.Attributes)))
	for _, a := range c.Attributes {
		b = appendText(append(b, byte(a.Type)), a.Name)
	}
	return b
}

// DecodeCollection reads what Encode wrote of the collection called name. It shares no memory with b.
// Other bytes give a *FormatError.
func DecodeCollection(name string, b []byte) (Collection, error) {
	d := decoder{b: b}
	version := d.versions(collectionVersion1, collectionVersion)
	c := Collection{Name: name, ID: CollectionID(d.u32())}
	if ms := d.u64(); ms <= math.MaxInt64/uint64(time.Millisecond) {
		c.HalfLife = time.Duration(ms) * time.Millisecond
	}
	if c.Version, c.InUse = 1, true; version > collectionVersion1 {
		flags := d.u8()
		if flags&^collectionInUse != 0 {
			d.fail("unknown flags %#x", flags)
		}
		c.InUse, c.Version = flags&collectionInUse != 0, d.uvarint()
		c.Dimension = int(min(d.uvarint(), MaxDimension+1))
	}
	for range d.count("signal types", MaxTypes) {
		c.Types = append(c.Types, SignalType{Milli: d.uvarint(), Name: d.text()})
	}
	if version > collectionVersion1 {
		for range d.count("attributes", MaxAttributes) {
			c.Attributes = append(c.Attributes, Attribute{Type: AttributeType(d.u8()), Name: d.text()})
		}
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
//  1. its name is an id; its number is not 0.
//  2. its schema is valid, and its attributes are sorted.
func (c *Collection) validate() error {
	if err := CheckID(c.Name); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	if c.ID == 0 {
		return fmt.Errorf("id is 0")
	}
	if !slices.IsSortedFunc(c.Attributes, func(a, b Attribute) int { return strings.Compare(a.Name, b.Name) }) {
		return fmt.Errorf("attributes are not sorted")
	}
	return c.Schema.Validate()
}

// Clone returns a copy of s that shares no memory with it.
func (s *Schema) Clone() Schema {
	c := Schema{HalfLife: s.HalfLife, Dimension: s.Dimension}
	for _, t := range s.Types {
		c.Types = append(c.Types, SignalType{strings.Clone(t.Name), t.Milli})
	}
	for _, a := range s.Attributes {
		c.Attributes = append(c.Attributes, Attribute{strings.Clone(a.Name), a.Type})
	}
	return c
}

// Validate reports whether s can be declared:
//
//  1. its half-life is in range and whole milliseconds; its dimension is at most MaxDimension.
//  2. it has at most MaxTypes types, each of at most MaxMilli, and at most MaxAttributes attributes.
//  3. the names of types are ids and differ; so are and do those of attributes.
func (s *Schema) Validate() error {
	switch {
	case s.HalfLife < MinHalfLife || s.HalfLife > MaxHalfLife || s.HalfLife%time.Millisecond != 0:
		return fmt.Errorf("half-life %s, want whole milliseconds from %s to %s", s.HalfLife, MinHalfLife, MaxHalfLife)
	case s.Dimension < 0 || s.Dimension > MaxDimension:
		return fmt.Errorf("dimension %d, limit %d", s.Dimension, MaxDimension)
	case len(s.Types) > MaxTypes:
		return fmt.Errorf("%d signal types, limit %d", len(s.Types), MaxTypes)
	case len(s.Attributes) > MaxAttributes:
		return fmt.Errorf("%d attributes, limit %d", len(s.Attributes), MaxAttributes)
	}
	for i, t := range s.Types {
		if err := CheckID(t.Name); err != nil {
			return fmt.Errorf("signal type %d: %w", i, err)
		}
		if first, _ := s.Type(t.Name); first != i {
			return fmt.Errorf("signal types %d and %d are both named %q", first, i, t.Name)
		}
		if t.Milli > MaxMilli {
			return fmt.Errorf("signal type %q weighs %d/1000, limit %d/1000", t.Name, t.Milli, uint64(MaxMilli))
		}
	}
	for i, a := range s.Attributes {
		if err := CheckID(a.Name); err != nil {
			return fmt.Errorf("attribute %d: %w", i, err)
		}
		if first := slices.IndexFunc(s.Attributes, func(b Attribute) bool { return b.Name == a.Name }); first != i {
			return fmt.Errorf("attributes %d and %d are both named %q", first, i, a.Name)
		}
		if !a.Type.valid() {
			return fmt.Errorf("attribute %q is of unknown type %d", a.Name, a.Type)
		}
	}
	return nil
}
