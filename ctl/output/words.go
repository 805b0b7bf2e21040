package output

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

// Nearest returns up to three of names that are close to s: for "did you mean". Order: closest
// first, then as given.
func Nearest(s string, names []string) []string {
	limit := max(2, len(s)/3)
	var found []string
	for dist := 0; dist <= limit && len(found) < 3; dist++ {
		for _, name := range names {
			if len(found) < 3 && distance(strings.ToLower(s), strings.ToLower(name)) == dist {
				found = append(found, name)
			}
		}
	}
	return found
}

// distance is the Levenshtein distance of a and b in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
