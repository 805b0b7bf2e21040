package bench

import (
	"math/bits"
	"time"
)

// histogram counts durations in buckets of 1/32 octave, so that a quantile is off by at most 3 %. The
// zero histogram is ready.
type histogram struct {
	buckets [64 * perOctave]uint64
	count   uint64
	max     time.Duration
}

const (
	perOctave     = 32
	perOctaveBits = 5
)

func (h *histogram) observe(d time.Duration) {
	h.buckets[bucketOf(d)]++
	h.count++
	h.max = max(h.max, d)
}

// bucketOf is monotone; durations below 32 ns have a bucket each.
func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < perOctave {
		return int(v)
	}
	shift := bits.Len64(v) - 1 - perOctaveBits
	return (shift+1)*perOctave + int(v>>shift) - perOctave
}

// upper returns the largest duration of a bucket.
func upper(bucket int) time.Duration {
	if bucket < perOctave {
		return time.Duration(bucket)
	}
	shift := bucket/perOctave - 1
	return time.Duration(uint64(bucket%perOctave+perOctave+1)<<shift - 1)
}

func (h *histogram) add(o *histogram) {
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
	h.count += o.count
	h.max = max(h.max, o.max)
}

// quantile returns the duration that a share q of the observations did not exceed; 0 without any.
func (h *histogram) quantile(q float64) time.Duration {
	want := uint64(q * float64(h.count))
	var seen uint64
	for i, n := range h.buckets {
		if seen += n; n > 0 && seen > want || seen == h.count && n > 0 {
			return min(upper(i), h.max)
		}
	}
	return 0
}
