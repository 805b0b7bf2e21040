package view

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/tidaldb/tidal/tui/theme"
	"github.com/tidaldb/tidal/tui/words"
)

// span is a text in one style.
type span struct {
	style theme.Style
	text  string
}

func plain(text string) span { return span{text: text} }

// line is one line in the making.
//
// Invariant: used <= width.
type line struct {
	b           strings.Builder
	used, width int // columns
	theme       *theme.Theme
}

// room is how many columns are left.
func (l *line) room() int { return l.width - l.used }

// text adds s, harmless and cut to the room that is left.
func (l *line) text(style theme.Style, s string) {
	s, w := fit(l.theme, s, l.room())
	l.styled(style, s, w)
}

// styled adds s, which is w columns wide and fits.
func (l *line) styled(style theme.Style, s string, w int) {
	if w == 0 {
		return
	}
	l.b.WriteString(style.On)
	l.b.WriteString(s)
	l.b.WriteString(style.Off)
	l.used += w
}

func (l *line) spans(list []span) {
	for _, s := range list {
		l.text(s.style, s.text)
	}
}

// repeat adds up to n of a glyph that is one column wide.
func (l *line) repeat(style theme.Style, glyph string, n int) {
	if n = min(n, l.room()); n > 0 {
		l.styled(style, strings.Repeat(glyph, n), n)
	}
}

// to moves to a column, if it is ahead.
func (l *line) to(column int) {
	if n := min(column, l.width) - l.used; n > 0 {
		l.b.WriteString(spaces(n))
		l.used += n
	}
}

// cell adds a text of exactly width columns.
func (l *line) cell(style theme.Style, s string, width int, right bool) {
	start := l.used
	s, w := fit(l.theme, s, min(width, l.room()))
	if right {
		l.to(start + width - w)
	}
	l.styled(style, s, w)
	l.to(start + width)
}

// finished adds a finished line, which fits.
func (l *line) finished(d drawn) {
	l.b.WriteString(d.text)
	l.used += d.width
}

// blanks is what spaces are cut from.
const blanks = "                                                                                                                                "

func spaces(n int) string {
	if n <= len(blanks) {
		return blanks[:n]
	}
	return strings.Repeat(" ", n)
}

// fit makes s harmless, cuts it to at most width columns, and says how wide it is then.
func fit(t *theme.Theme, s string, width int) (string, int) {
	if width <= 0 {
		return "", 0
	}
	s, w := clean(t, s)
	if w <= width {
		return s, w
	}
	if w == len(s) { // ASCII
		return s[:width-1] + t.Cut, width
	}
	s = ansi.Truncate(s, width, t.Cut)
	return s, ansi.StringWidth(s)
}

// clean makes s harmless and says how wide it is.
func clean(t *theme.Theme, s string) (string, int) {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			s = words.Clean(s, t.ASCII)
			return s, ansi.StringWidth(s)
		}
	}
	return s, len(s)
}

// shorten cuts a name in its middle: its end tells it from others as much as its beginning.
func shorten(t *theme.Theme, s string, width int) string {
	s, w := clean(t, s)
	if w <= width || w != len(s) || width < 5 { // what is not ASCII is cut at its end, by fit
		return s
	}
	head := width / 3
	return s[:head] + t.Cut + s[len(s)-(width-head-1):]
}
