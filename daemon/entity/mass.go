package entity

import (
	"cmp"
	"math"
	"math/bits"
	"time"
)

//go:generate go run gen_pow2.go

// Ranges of times and half-lives. A time outside is taken as the nearer end; with these, no exponent
// comes near the ends of its type.
const (
	MinMillis   = -1 << 46 // some 2,200 years before 1970
	MaxMillis   = 1 << 46  // some 2,200 years after
	MinHalfLife = time.Second
	MaxHalfLife = 100 * 365 * 24 * time.Hour
)

// massUnits is how many units of mass at tick 0 make a score of 1: thousandths of a signal's weight
// times thousandths of its type's.
const massUnits = 1e6

const (
	tickBits    = 16 // ticks of a half-life, as a power of two
	stepsPerExp = 16 // of the ranks of items with many signals
)

// Tick is a moment in 1/65536 half-lives since 1970. Rounding a moment to its tick changes a mass by
// less than 6 parts in a million.
type Tick int64

// MakeTick returns the tick nearest to ms, a Unix time in milliseconds. halfLife is whole
// milliseconds from MinHalfLife to MaxHalfLife.
func MakeTick(ms int64, halfLife time.Duration) Tick {
	ms = min(max(ms, MinMillis), MaxMillis)
	h := halfLife.Milliseconds()
	n := ms<<tickBits + h/2 // |ms| <= 2^46, so this is below 2^63
	q := n / h
	if n%h < 0 {
		q-- // towards the past, also before 1970
	}
	return Tick(q)
}

// Mass is a decayed sum: Mant · 2^(Exp-63) units, each a millionth of a score as seen from 1970.
// Integers only: the same on every architecture. The zero Mass is nothing.
//
// Invariant: the top bit of Mant is set; or Mant and Exp are both 0.
type Mass struct {
	Exp  int64
	Mant uint64
}

// MakeMass returns the mass of units observed at t: units · 2^(t/65536). Two table entries and two
// products, each rounded to nearest in the 64th bit: within 2^-62 of the exact value.
func MakeMass(units uint64, t Tick) Mass {
	if units == 0 {
		return Mass{}
	}
	// pow is 2^(fraction of t) · 2^63, in [2^63, 2^64): the product of two table entries.
	hi, lo := bits.Mul64(pow2Coarse[t>>8&0xff], pow2Fine[t&0xff])
	pow := hi<<1 | lo>>63
	pow += lo >> 62 & 1

	hi, lo = bits.Mul64(pow, units)
	n := bits.Len64(hi) // the product has 64+n bits
	m := Mass{Exp: int64(t>>tickBits) + int64(n), Mant: hi<<(64-n) | lo>>n}
	if n > 0 && lo>>(n-1)&1 == 1 {
		m = m.up()
	}
	return m
}

// Add returns the sum of m and o, rounded to nearest once. It does not matter which is which, but a
// sum of three depends on the order in its last bits: the order of the log decides.
func (m Mass) Add(o Mass) Mass {
	if m.Mant == 0 || o.Mant != 0 && o.Exp > m.Exp {
		m, o = o, m
	}
	d := uint64(m.Exp - o.Exp)
	if o.Mant == 0 || d > 64 {
		return m // less than half a unit in the last bit
	}
	// o in units of m's last bit is whole and, below the point, rest.
	whole, rest := o.Mant>>d, o.Mant<<(64-d)
	sum, carry := bits.Add64(m.Mant, whole, 0)
	if carry == 1 {
		m.Exp, m.Mant, rest = m.Exp+1, sum>>1|1<<63, sum<<63
	} else {
		m.Mant = sum
	}
	if rest>>63 == 1 {
		m = m.up()
	}
	return m
}

// up adds one to the last bit.
func (m Mass) up() Mass {
	m.Mant++
	if m.Mant == 0 {
		return Mass{Exp: m.Exp + 1, Mant: 1 << 63}
	}
	return m
}

// Compare returns -1, 0 or +1 as m is smaller than, equal to or greater than o.
func (m Mass) Compare(o Mass) int {
	switch {
	case m.Mant == 0 || o.Mant == 0:
		return cmp.Compare(m.Mant, o.Mant)
	case m.Exp != o.Exp:
		return cmp.Compare(m.Exp, o.Exp)
	}
	return cmp.Compare(m.Mant, o.Mant)
}

// valid reports whether the invariant holds, for a mass that comes from a disk.
func (m Mass) valid() bool { return m.Mant>>63 == 1 || m == Mass{} }

// Score returns what m is worth at now, a Unix time in milliseconds: the sum over its signals of
// weight · 2^-((now-ts)/halfLife), within 6 parts in a million. It is finite and never negative; it
// is 0 when m is zero or so long ago that a float64 cannot say it.
func (m Mass) Score(now int64, halfLife time.Duration) float64 {
	now = min(max(now, MinMillis), MaxMillis)
	h := halfLife.Milliseconds()
	whole, part := now/h, now%h
	if part < 0 {
		whole, part = whole-1, part+h
	}
	x := float64(m.Mant) * math.Exp2(-float64(part)/float64(h)) / massUnits
	exp := m.Exp - whole - 63
	return min(math.Ldexp(x, int(min(max(exp, -1<<20), 1<<20))), math.MaxFloat64)
}

// ceiling returns the upper edge of the sixteenth of an octave that m is in, which is above m. That of the
// zero mass is itself.
func (m Mass) ceiling() Mass {
	if m.Mant == 0 {
		return m
	}
	part := 0
	for step := stepsPerExp / 2; step > 0; step /= 2 { // the last edge at or below m
		if m.Mant >= edge(part+step) {
			part += step
		}
	}
	if part++; part == stepsPerExp {
		return Mass{Exp: m.Exp + 1, Mant: edge(0)}
	}
	return Mass{Exp: m.Exp, Mant: edge(part)}
}

// edge returns the mantissa at which a part of an octave begins. part is in [0, 16).
func edge(part int) uint64 { return pow2Coarse[part*(256/stepsPerExp)] }
