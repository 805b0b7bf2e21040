package member

import "testing"

const (
	mib = 1 << 20
	gib = 1 << 30
	tib = 1 << 40
)

func TestReserveOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ total, low uint64 }{
		{64 * mib, 8 * mib},
		{gib, 128 * mib},
		{2 * gib, 256 * mib},
		{4 * gib, 256 * mib},
		{10 * gib, 512 * mib},
		{20 * gib, gib},
		{4 * tib, gib},
	} {
		if r := reserveOf(c.total); r.low != c.low || r.last >= r.low || r.high <= r.low {
			t.Errorf("reserveOf(%d MiB) = %+v, want low %d MiB", c.total/mib, r, c.low/mib)
		}
	}
}

// Two segments of the log, the one in use and the spare, fit into what is left when clients have to
// stop.
func TestSegmentBytes_FitIntoTheReserve(t *testing.T) {
	t.Parallel()
	for total := uint64(16 * mib); total < 8*tib; total += total / 7 {
		n := segmentBytes(total)
		if n%mib != 0 || n < mib || n > 64*mib || uint64(2*n) > reserveOf(total).low {
			t.Errorf("segmentBytes(%d MiB) = %d, reserve %+v", total/mib, n, reserveOf(total))
		}
	}
	if n := segmentBytes(64 * gib); n != 64*mib {
		t.Errorf("segmentBytes(64 GiB) = %d, want 64 MiB", n)
	}
}

func TestReserve_Next(t *testing.T) {
	t.Parallel()
	r := reserve{low: 100, high: 125, last: 50}
	for _, c := range []struct {
		was  fullness
		free uint64
		want fullness
	}{
		{fullnessNone, 1000, fullnessNone},
		{fullnessNone, 100, fullnessNone},
		{fullnessNone, 99, fullnessFull},
		{fullnessFull, 100, fullnessFull}, // until there is more than the reserve
		{fullnessFull, 124, fullnessFull},
		{fullnessFull, 125, fullnessNone},
		{fullnessFull, 50, fullnessFull},
		{fullnessFull, 49, fullnessLast},
		{fullnessNone, 49, fullnessLast}, // filled up at once
		{fullnessLast, 50, fullnessLast},
		{fullnessLast, 74, fullnessLast},
		{fullnessLast, 75, fullnessFull},
		{fullnessLast, 110, fullnessFull}, // of two marks only one is passed
		{fullnessLast, 125, fullnessNone},
		{fullnessNone, 0, fullnessLast},
	} {
		if got := r.next(c.was, c.free); got != c.want {
			t.Errorf("next(%v, %d free) = %v, want %v", c.was, c.free, got, c.want)
		}
	}
}
