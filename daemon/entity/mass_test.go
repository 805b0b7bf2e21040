package entity

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const week = 7 * 24 * time.Hour

// An entry e of a table of n-th roots is nearest to 2^(i/n) · 2^63 iff
// (2e-1)^n <= 2^(i+64n) <= (2e+1)^n: a proof in whole numbers, for the coarse table.
func TestPow2Coarse_IsNearest(t *testing.T) {
	t.Parallel()
	n := big.NewInt(256)
	for i, e := range pow2Coarse {
		want := new(big.Int).Lsh(big.NewInt(1), uint(i)+64*256)
		twice := new(big.Int).Lsh(new(big.Int).SetUint64(e), 1)
		low := new(big.Int).Exp(new(big.Int).Sub(twice, big.NewInt(1)), n, nil)
		high := new(big.Int).Exp(new(big.Int).Add(twice, big.NewInt(1)), n, nil)
		if low.Cmp(want) > 0 || high.Cmp(want) < 0 {
			t.Errorf("pow2Coarse[%d] = %d is not the nearest", i, e)
		}
	}
}

// The tables are what the generator writes, computed here with other means: powers of 2^(1/65536) by
// squaring instead of by a running product.
func TestPow2Tables_MatchBigFloat(t *testing.T) {
	t.Parallel()
	for i := range 256 {
		for _, tc := range []struct {
			name string
			got  uint64
			tick Tick
		}{
			{"pow2Coarse", pow2Coarse[i], Tick(i) << 8},
			{"pow2Fine", pow2Fine[i], Tick(i)},
		} {
			x := exactPow(tc.tick)
			x.Mul(x, new(big.Float).SetMantExp(big.NewFloat(1), 63))
			want, _ := x.Add(x, big.NewFloat(0.5)).Uint64()
			if tc.got != want {
				t.Errorf("%s[%d] = %d, want %d", tc.name, i, tc.got, want)
			}
		}
	}
}

// exactPow returns 2^(t/65536) to some 300 bits.
func exactPow(t Tick) *big.Float {
	const prec = 320
	x := big.NewFloat(1).SetPrec(prec)
	root := big.NewFloat(2).SetPrec(prec)
	for bit := tickBits - 1; bit >= 0; bit-- {
		root.Sqrt(root) // 2^(2^bit/65536)
		if t>>bit&1 == 1 {
			x.Mul(x, root)
		}
	}
	return x.SetMantExp(x, int(t>>tickBits))
}

// exact returns the value of m.
func exact(m Mass) *big.Float {
	x := new(big.Float).SetPrec(320).SetUint64(m.Mant)
	return x.SetMantExp(x, int(m.Exp)-63)
}

// within reports whether got is want within 2^-bits of it.
func within(got, want *big.Float, bits int) bool {
	diff := new(big.Float).Sub(got, want)
	limit := new(big.Float).SetMantExp(want, -bits)
	return diff.Abs(diff).Cmp(limit.Abs(limit)) <= 0
}

func drawTick(t *rapid.T) Tick {
	return Tick(rapid.OneOf(
		rapid.Int64Range(190_000_000, 190_700_000), // about today, half-life a week
		rapid.Int64Range(-1<<22, 1<<22),
		rapid.Int64Range(-1<<30, 1<<30),
	).Draw(t, "tick"))
}

func drawUnits(t *rapid.T) uint64 {
	return rapid.OneOf(rapid.Just[uint64](1e6), rapid.Uint64Range(1, 1e18)).Draw(t, "units")
}

func drawMass(t *rapid.T) Mass {
	if rapid.IntRange(0, 9).Draw(t, "zero") == 0 {
		return Mass{}
	}
	return MakeMass(drawUnits(t), drawTick(t))
}

func TestMakeMass_IsWithin62Bits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tick, units := drawTick(t), drawUnits(t)
		got := MakeMass(units, tick)
		want := exactPow(tick)
		want.Mul(want, new(big.Float).SetUint64(units))
		if !got.valid() || !within(exact(got), want, 62) {
			t.Fatalf("MakeMass(%d, %d) = %+v, want %s", units, tick, got, want.Text('g', 25))
		}
	})
}

// Each addition rounds once: a sum of n masses is within n · 2^-64 of the exact one.
func TestMass_AddIsWithinItsBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 256).Draw(t, "n")
		var sum Mass
		want := new(big.Float).SetPrec(2000)
		for range n {
			m := drawMass(t)
			sum = sum.Add(m)
			want.Add(want, exact(m))
		}
		if !sum.valid() || !within(exact(sum), want, 64-8) {
			t.Fatalf("sum of %d = %+v (%s), want %s", n, sum, exact(sum).Text('g', 25), want.Text('g', 25))
		}
	})
}

func TestMass_AddRoundsOnceToNearest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m, o := drawMass(t), drawMass(t)
		sum := m.Add(o)
		if other := o.Add(m); other != sum {
			t.Fatalf("%+v + %+v = %+v, the other way %+v", m, o, sum, other)
		}
		if m.Mant == 0 || o.Mant == 0 {
			return
		}
		want := new(big.Float).SetPrec(2000).Add(exact(m), exact(o))
		// Half a unit in the last bit of sum.
		half := new(big.Float).SetMantExp(big.NewFloat(0.5), int(sum.Exp)-63)
		diff := new(big.Float).SetPrec(2000).Sub(exact(sum), want)
		if diff.Abs(diff).Cmp(half) > 0 {
			t.Fatalf("%+v + %+v = %+v, off by more than half a unit", m, o, sum)
		}
	})
}

func TestMass_CompareIsThatOfItsValue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m, o := drawMass(t), drawMass(t)
		if got, want := m.Compare(o), exact(m).Cmp(exact(o)); got != want {
			t.Fatalf("%+v.Compare(%+v) = %d, want %d", m, o, got, want)
		}
	})
}

func TestMass_CeilingIsTheNextEdge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawMass(t)
		c := m.ceiling()
		if m.Mant == 0 {
			if c != m {
				t.Fatalf("ceiling of nothing = %+v", c)
			}
			return
		}
		if m.Compare(c) >= 0 || !c.valid() {
			t.Fatalf("ceiling of %+v = %+v", m, c)
		}
		log2 := func(m Mass) float64 { return float64(m.Exp) + math.Log2(float64(m.Mant)) - 63 }
		if whole := 16 * log2(c); math.Abs(whole-math.Round(whole)) > 1e-4*max(1, math.Abs(whole)*1e-8) {
			t.Fatalf("ceiling of %+v is at 16·log2 = %g", m, whole)
		}
		if step := 16 * (log2(c) - log2(m)); step > 1.0001 {
			t.Fatalf("ceiling of %+v is %g steps above it", m, step)
		}
	})
}

// A rank is at or above the mass, is the mass of an item with few signals, and stays where it is while
// the mass of one with many grows within a step.
func TestRow_RankHoldsItsMass(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		row := Row{Exists: true}
		for range rapid.IntRange(0, 3).Draw(t, "types") {
			row.Totals = append(row.Totals, Total{
				Type: len(row.Totals), Count: rapid.Uint64Range(1, 2*exactRanks).Draw(t, "count"), Mass: drawMass(t),
			})
		}
		signals := uint64(0)
		for _, total := range row.Totals {
			signals += total.Count
		}
		m, rank := row.Mass(), row.Rank()
		switch {
		case m.Compare(rank) > 0:
			t.Fatalf("rank %+v of mass %+v", rank, m)
		case signals < exactRanks && rank != m:
			t.Fatalf("rank %+v of mass %+v, with %d signals", rank, m, signals)
		case signals >= exactRanks && rank != m.ceiling():
			t.Fatalf("rank %+v of mass %+v, with %d signals", rank, m, signals)
		}
	})
}

func TestMakeTick_IsNearest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(MinMillis, MaxMillis).Draw(t, "ms")
		half := time.Duration(rapid.Int64Range(MinHalfLife.Milliseconds(), MaxHalfLife.Milliseconds()).Draw(t, "half-life")) * time.Millisecond
		h := half.Milliseconds()
		tick := MakeTick(ms, half)
		// |tick·h - ms·65536| <= h/2
		diff := new(big.Int).Mul(big.NewInt(int64(tick)), big.NewInt(h))
		diff.Sub(diff, new(big.Int).Lsh(big.NewInt(ms), tickBits))
		if diff.Abs(diff).Lsh(diff, 1).Cmp(big.NewInt(h)) > 0 {
			t.Fatalf("MakeTick(%d, %s) = %d is off by more than half a tick", ms, half, tick)
		}
	})
}

func TestMakeTick_ClampsTime(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ ms, as int64 }{
		{math.MinInt64, MinMillis}, {math.MaxInt64, MaxMillis}, {MaxMillis + 1, MaxMillis},
	} {
		if got, want := MakeTick(tc.ms, MinHalfLife), MakeTick(tc.as, MinHalfLife); got != want {
			t.Errorf("MakeTick(%d) = %d, want %d", tc.ms, got, want)
		}
	}
}

func TestMass_ScoreIsTheFormula(t *testing.T) {
	t.Parallel()
	c := DefaultCollection()
	rapid.Check(t, func(t *rapid.T) {
		now := rapid.Int64Range(1_600_000_000_000, 1_900_000_000_000).Draw(t, "now")
		var sum Mass
		var want float64
		for range rapid.IntRange(1, 50).Draw(t, "n") {
			age := rapid.Int64Range(-500, 200*24*3600*1000).Draw(t, "age")
			milli := rapid.Uint64Range(MinMilli, MaxMilli).Draw(t, "milli")
			sum = sum.Add(c.Mass(0, milli, now-age))
			want += float64(milli) / 1000 * math.Exp2(-float64(age)/float64(week.Milliseconds()))
		}
		if got := c.Score(sum, now); math.Abs(got-want) > 6e-6*want {
			t.Fatalf("score = %g, want %g", got, want)
		}
	})
}

func TestMass_ExtremesStayFinite(t *testing.T) {
	t.Parallel()
	for _, half := range []time.Duration{MinHalfLife, week, MaxHalfLife} {
		for _, at := range []int64{math.MinInt64, MinMillis, -1, 0, 1, 1_700_000_000_000, MaxMillis, math.MaxInt64} {
			m := MakeMass(1e18, MakeTick(at, half))
			sum := m.Add(MakeMass(1, MakeTick(1_700_000_000_000, half)))
			if !m.valid() || !sum.valid() || sum.Compare(m) < 0 {
				t.Errorf("half-life %s, at %d: mass %+v, sum %+v", half, at, m, sum)
			}
			for _, now := range []int64{math.MinInt64, 0, 1_700_000_000_000, math.MaxInt64} {
				if s := sum.Score(now, half); math.IsNaN(s) || math.IsInf(s, 0) || s < 0 {
					t.Errorf("half-life %s, at %d, now %d: score %g", half, at, now, s)
				}
			}
		}
	}
}

// A view of 1970 is worth nothing today, and does no harm on either side of a view of today.
func TestMass_OldSignalsVanish(t *testing.T) {
	t.Parallel()
	const now = 1_760_000_000_000
	old, today := MakeMass(1e18, MakeTick(0, week)), MakeMass(1e6, MakeTick(now, week))
	if got := old.Add(today); got != today {
		t.Errorf("old + today = %+v, want %+v", got, today)
	}
	if got := today.Add(old); got != today {
		t.Errorf("today + old = %+v, want %+v", got, today)
	}
	if got := old.Score(now, week); got != 0 {
		t.Errorf("score of 1970 = %g", got)
	}
	if got := today.Score(now, week); math.Abs(got-1) > 6e-6 {
		t.Errorf("score of a view now = %g, want 1", got)
	}
	if old.Compare(Mass{}) <= 0 {
		t.Error("an item with an old view ranks with those that have none")
	}
}

func BenchmarkMass_Observe(b *testing.B) {
	c := DefaultCollection()
	var sum Mass
	for i := int64(0); b.Loop(); i++ {
		sum = sum.Add(c.Mass(0, 1000, 1_760_000_000_000+i))
	}
	_ = sum
}
