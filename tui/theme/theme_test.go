package theme_test

import (
	"testing"
	"unicode/utf8"

	"github.com/tidaldb/tidal/tui/theme"
)

func TestColorsOf(t *testing.T) {
	for _, tc := range []struct {
		term, colorterm string
		want            theme.Colors
	}{
		{"xterm", "", theme.Ansi16},
		{"xterm-256color", "", theme.Ansi256},
		{"screen-256color", "truecolor", theme.True},
		{"", "", theme.Ansi16},
	} {
		if got := theme.ColorsOf(tc.term, tc.colorterm); got != tc.want {
			t.Errorf("ColorsOf(%q, %q) = %d, want %d", tc.term, tc.colorterm, got, tc.want)
		}
	}
}

func TestNew_GlyphsAreOneColumn(t *testing.T) {
	for _, ascii := range []bool{false, true} {
		th := theme.New(theme.None, ascii)
		if len(th.Bars) != theme.Levels {
			t.Errorf("ascii %t: %d levels, want %d", ascii, len(th.Bars), theme.Levels)
		}
		for _, g := range append(th.Bars, th.Up, th.Down, th.Rule, th.Pipe, th.Dot, th.Cut, th.Arrow) {
			if utf8.RuneCountInString(g) != 1 || ascii && len(g) != 1 {
				t.Errorf("ascii %t: glyph %q is not one character", ascii, g)
			}
		}
		if th.Crit != (theme.Style{}) {
			t.Errorf("without colours critical is %q, want nothing", th.Crit.On)
		}
	}
}
