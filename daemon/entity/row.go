package entity

import (
	"encoding/binary"
	"math/bits"
)

// Row is what a group knows of an item's signals. It may be older than the item: a signal for an item
// that does not exist is kept, and counts once the item does.
type Row struct {
	// Exists says that there is an Item, and hence a rank key.
	Exists bool
	// Totals has one entry for each signal type seen, by Type, ascending.
	Totals []Total
}

// Total is the sum of an item's signals of one type.
type Total struct {
	Type  int    // position in Collection.Types
	Count uint64 // exact
	Sum   uint64 // of weights, in thousandths; exact below 2^64, then stays there
	Mass  Mass   // weighted by the type
}

// Observe adds one signal of weight milli and mass m.
func (r *Row) Observe(typ int, milli uint64, m Mass) {
	t := r.total(typ)
	t.Count++
	sum, carry := bits.Add64(t.Sum, milli, 0)
	t.Sum = sum | -carry // all ones when it does not fit
	t.Mass = t.Mass.Add(m)
}

// total returns the entry of typ, made if there is none.
func (r *Row) total(typ int) *Total {
	i := 0
	for i < len(r.Totals) && r.Totals[i].Type < typ {
		i++
	}
	if i == len(r.Totals) || r.Totals[i].Type != typ {
		r.Totals = append(r.Totals, Total{})
		copy(r.Totals[i+1:], r.Totals[i:])
		r.Totals[i] = Total{Type: typ}
	}
	return &r.Totals[i]
}

// Total returns the totals of one type; zeros when it was never seen.
func (r *Row) Total(typ int) Total {
	for _, t := range r.Totals {
		if t.Type == typ {
			return t
		}
	}
	return Total{Type: typ}
}

// Mass returns the sum over all types, added in their order. It is not stored: it follows from the
// totals, and so does the rank, so that neither can disagree with them.
func (r *Row) Mass() Mass {
	var sum Mass
	for i := range r.Totals {
		sum = sum.Add(r.Totals[i].Mass)
	}
	return sum
}

// exactRanks is how many signals an item has before its rank is rounded. One more signal of the usual
// weight takes an item with fewer into the next sixteenth of an octave anyway, so that it moves no more
// often for being ranked exactly.
const exactRanks = 24

// Rank returns what the item is listed by: a mass that its own does not exceed. Of an item with few
// signals it is its mass. Of others it is the upper edge of a sixteenth of an octave, so that the item
// moves only when its mass has grown by some 4 %: otherwise each signal for an item at the top would leave
// a dead key there, for every feed to step over.
func (r *Row) Rank() Mass {
	m, signals := r.Mass(), uint64(0)
	for i := range r.Totals {
		signals += r.Totals[i].Count
	}
	if signals < exactRanks {
		return m
	}
	return m.ceiling()
}

// The record of a row. svarint is the zigzag form of encoding/binary; varints are in their shortest
// form.
//
//	| 1 u8 | flags u8 | total … |
//	total | type uvarint | count uvarint | sum uvarint, milli | exponent svarint | mantissa u64 |
//
// Flags: 1 exists.
const (
	rowVersion = 1

	rowExists = 1
)

// Append appends the record of r to b.
func (r *Row) Append(b []byte) []byte {
	var flags byte
	if r.Exists {
		flags |= rowExists
	}
	b = append(b, rowVersion, flags)
	for i := range r.Totals {
		t := &r.Totals[i]
		b = binary.AppendUvarint(b, uint64(t.Type))
		b = binary.AppendUvarint(b, t.Count)
		b = binary.AppendUvarint(b, t.Sum)
		b = binary.AppendVarint(b, t.Mass.Exp)
		b = binary.LittleEndian.AppendUint64(b, t.Mass.Mant)
	}
	return b
}

// Decode reads what Append wrote, into r, whose slice it reuses; it keeps nothing of b. Other bytes
// give a *FormatError and leave r in no particular state.
func (r *Row) Decode(b []byte) error {
	d := decoder{b: b}
	d.version(rowVersion)
	flags := d.u8()
	if flags&^rowExists != 0 {
		d.fail("unknown flags %#x", flags)
	}
	r.Exists = flags&rowExists != 0
	r.Totals = r.Totals[:0]
	last := -1
	for d.detail == "" && len(d.b) > 0 {
		typ := d.uvarint()
		t := Total{Count: d.uvarint(), Sum: d.uvarint(), Mass: Mass{Exp: d.svarint(), Mant: d.u64()}}
		switch {
		case typ >= MaxTypes:
			d.fail("signal type %d, limit %d", typ, MaxTypes)
		case int(typ) <= last:
			d.fail("signal type %d follows %d", typ, last)
		case !t.Mass.valid():
			d.fail("signal type %d has mantissa %#x, exponent %d", typ, t.Mass.Mant, t.Mass.Exp)
		}
		t.Type = int(typ)
		last = t.Type
		r.Totals = append(r.Totals, t)
	}
	return d.finish("row")
}
