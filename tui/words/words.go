// Package words writes what is known for people: counts, ages, what is not known, and text that came
// from somewhere else, made harmless for a terminal.
//
// The tables of ctl/output and the screens of tui use the same words, so a number reads the same
// wherever it stands. It is pure and imports nothing of ours.
package words

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Unknown is the cell of what is not known: never 0, never empty.
const Unknown = "?"

// Or returns s, or Unknown when it is empty.
func Or(s string) string {
	if s == "" {
		return Unknown
	}
	return s
}

// Clean returns s with every character that does not print written as an escape, and with ascii
// every one outside ASCII too. What a member or a network says passes through here before it meets
// a terminal.
func Clean(s string, ascii bool) string {
	plain := func(r rune) bool { return strconv.IsPrint(r) && (!ascii || r < utf8.RuneSelf) }
	if strings.IndexFunc(s, func(r rune) bool { return !plain(r) || r == utf8.RuneError }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if plain(r) {
			b.WriteRune(r)
			continue
		}
		b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
	}
	return b.String()
}

// Count prints n with commas between thousands.
func Count(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// CountOf is Count of a number that may be unknown.
func CountOf(n *uint64) string {
	if n == nil {
		return Unknown
	}
	return Count(*n)
}

// Bytes prints a size in three digits of a unit of 1,024: 17 B, 4.0 KiB, 512 MiB.
func Bytes(n int64) string {
	if n < 1<<10 {
		return strconv.FormatInt(n, 10) + " B"
	}
	v, units := float64(n), []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	unit := ""
	for _, unit = range units {
		if v /= 1 << 10; v < 999.5 {
			break
		}
	}
	digits := 0
	if v < 9.95 {
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64) + " " + unit
}

// Age prints a duration in at most two units: 12ms, 1.2s, 2m14s, 3h5m, 4d2h. What is below a
// millisecond is "<1ms", for nothing is rounded to 0.
func Age(d time.Duration) string {
	n := func(unit time.Duration) string { return strconv.FormatInt(int64(d/unit), 10) }
	const day = 24 * time.Hour
	switch {
	case d < time.Millisecond:
		return "<1ms"
	case d < time.Second:
		return n(time.Millisecond) + "ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', 1, 64) + "s"
	case d < time.Minute:
		return n(time.Second) + "s"
	case d < time.Hour:
		return n(time.Minute) + "m" + strconv.Itoa(int(d/time.Second)%60) + "s"
	case d < day:
		return n(time.Hour) + "h" + strconv.Itoa(int(d/time.Minute)%60) + "m"
	}
	return n(day) + "d" + strconv.Itoa(int(d/time.Hour)%24) + "h"
}

// AgeOf is Age of milliseconds that may be unknown.
func AgeOf(ms *int64) string {
	if ms == nil {
		return Unknown
	}
	return Age(time.Duration(*ms) * time.Millisecond)
}
