// Package theme holds how the screens of tui look: prepared escape strings and glyphs.
//
// There are few roles, and a role never stands alone for a meaning: state is always a word too, and
// what is critical is also reversed, so a screen reads the same without colour. Nothing here asks the
// terminal or the environment; whether and how to colour is decided by the caller and passed in. A
// Theme is made once and used for every cell of every frame.
//
// Callers: tui/view draws with it, ctl/verbs makes it. It imports nothing of ours.
package theme

import "strings"

// Colors is how many colours may be used.
type Colors int

// The palettes, from none to 24 bits.
const (
	None Colors = iota
	Ansi16
	Ansi256
	True
)

// ColorsOf chooses a palette from the values of TERM and COLORTERM, for a terminal that is to be
// coloured at all.
func ColorsOf(term, colorterm string) Colors {
	switch {
	case colorterm == "truecolor" || colorterm == "24bit":
		return True
	case strings.Contains(term, "256color"):
		return Ansi256
	}
	return Ansi16
}

// Style is the escape string before and after a text. The zero value changes nothing.
type Style struct{ On, Off string }

// Theme is how a frame looks. New makes it.
type Theme struct {
	Dim    Style // old or unimportant; old also has an age
	Warn   Style
	Crit   Style // also reversed, for who sees no colours
	Accent Style // the leader, and what was chosen
	Title  Style // the names of panes

	// ASCII says that nothing outside ASCII may be drawn.
	ASCII bool
	Glyphs
}

// Glyphs are what is drawn beside words, each one column wide.
type Glyphs struct {
	Bars      []string // levels of a sparkline, lowest first; Levels of them
	Up, Down  string   // cells of the quorum bar
	Rule      string   // horizontal
	Pipe      string   // vertical
	Dot       string   // between parts of a line
	Cut       string   // where a text was shortened
	Arrow     string
	Separator string // between the parts of a header, with its spaces
}

// Levels is how many heights a sparkline has.
const Levels = 8

// New returns the theme for a palette; with ascii nothing outside ASCII is drawn.
func New(colors Colors, ascii bool) Theme {
	t := Theme{ASCII: ascii, Glyphs: Glyphs{
		Bars: []string{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"},
		Up:   "■", Down: "□", Rule: "─", Pipe: "│", Dot: "·", Cut: "…", Arrow: "→", Separator: " · ",
	}}
	if ascii {
		t.Glyphs = Glyphs{
			Bars: []string{"_", ".", ":", "-", "=", "+", "#", "@"},
			Up:   "#", Down: "-", Rule: "-", Pipe: "|", Dot: "-", Cut: "~", Arrow: ">", Separator: "  ",
		}
	}
	sgr := func(codes string) Style { return Style{"\x1b[" + codes + "m", "\x1b[0m"} }
	// Orange, vermilion and sky blue of Okabe and Ito: told apart by who cannot tell red from green.
	switch colors {
	case None:
		return t
	case Ansi16:
		t.Warn, t.Crit, t.Accent = sgr("33"), sgr("1;7;91"), sgr("36")
	case Ansi256:
		t.Warn, t.Crit, t.Accent = sgr("38;5;172"), sgr("1;7;38;5;166"), sgr("38;5;74")
	case True:
		t.Warn, t.Crit, t.Accent = sgr("38;2;230;159;0"), sgr("1;7;38;2;213;94;0"), sgr("38;2;86;180;233")
	}
	t.Dim, t.Title = sgr("2"), sgr("1")
	return t
}
