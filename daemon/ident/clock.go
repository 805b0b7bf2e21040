package ident

import (
	"fmt"
	"time"
)

// Stamp is a moment on the hybrid logical clock (Kulkarni et al., "Logical Physical Clocks", 2014):
// Unix milliseconds in the upper 48 bits, a counter in the lower 16. Stamps order by value.
type Stamp uint64

const (
	stampCounterBits = 16
	maxStampCounter  = 1<<stampCounterBits - 1
)

// MakeStamp returns the stamp of a millisecond with counter 0. ms must be in [0, 2^48).
func MakeStamp(ms int64) Stamp { return Stamp(ms) << stampCounterBits }

// Millis returns the Unix millisecond of s.
func (s Stamp) Millis() int64 { return int64(s >> stampCounterBits) }

// Counter returns the order of s among the stamps of its millisecond.
func (s Stamp) Counter() uint16 { return uint16(s & maxStampCounter) }

// String returns "milliseconds.counter".
func (s Stamp) String() string { return fmt.Sprintf("%d.%d", s.Millis(), s.Counter()) }

// Clock gives stamps that never go back, whatever the wall clock does. The zero Clock is ready.
// It reads no clock itself and is not safe for concurrent use: its owner passes wall time in.
type Clock struct {
	// last is the newest stamp given or seen in the log. Invariant: never falls.
	last Stamp
}

// Next returns a stamp above every stamp given or seen in the log, at wall or later.
func (c *Clock) Next(wall time.Time) Stamp {
	if now := MakeStamp(max(wall.UnixMilli(), 0)); now > c.last {
		c.last = now
	} else {
		c.last++ // a counter that overflows moves into the next millisecond: still above
	}
	return c.last
}

// Advance takes note of a stamp that is already in the log, however far ahead: what is committed is a
// fact, and the stamps that follow must be above it.
func (c *Clock) Advance(s Stamp) { c.last = max(c.last, s) }
