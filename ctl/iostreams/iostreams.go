// Package iostreams is the one place where tidalctl touches the process's streams: standard input,
// output and error, whether each is a terminal, how wide it is, and whether to colour.
//
// Data goes to Out, words go to Err. Everything above takes a *Streams, so a test sees exactly what
// a user would; nothing above names os.Stdout.
//
// Callers: ctl and its verbs, cmd/tidalctl. It imports nothing of ours.
package iostreams

import (
	"bytes"
	"io"
	"os"
	"strings"

	"github.com/charmbracelet/x/term"
)

// Streams are the three streams of one run.
type Streams struct {
	In  io.Reader
	Out io.Writer // data
	Err io.Writer // words

	InTTY  bool
	OutTTY bool
	ErrTTY bool

	// Width returns the columns of the terminal behind Out, asked anew at each call because
	// terminals are resized; 0 when Out is none. Never nil.
	Width func() int
}

// System returns the streams of the process.
func System() *Streams {
	out := os.Stdout.Fd()
	return &Streams{
		In:     os.Stdin,
		Out:    os.Stdout,
		Err:    os.Stderr,
		InTTY:  term.IsTerminal(os.Stdin.Fd()),
		OutTTY: term.IsTerminal(out),
		ErrTTY: term.IsTerminal(os.Stderr.Fd()),
		Width: func() int {
			w, _, err := term.GetSize(out)
			if err != nil {
				return 0
			}
			return w
		},
	}
}

// Test returns streams that are no terminals, with the buffers behind Out and Err.
func Test() (s *Streams, out, errs *bytes.Buffer) {
	out, errs = new(bytes.Buffer), new(bytes.Buffer)
	return &Streams{In: strings.NewReader(""), Out: out, Err: errs, Width: func() int { return 0 }}, out, errs
}

// The values of --color.
const (
	ColorAuto   = "auto"
	ColorAlways = "always"
	ColorNever  = "never"
)

// UseColor decides whether to colour a stream. In order: flag (ColorAlways, ColorNever), NO_COLOR
// (any value but the empty one), FORCE_COLOR and CLICOLOR_FORCE ("0" and "false" mean off),
// CLICOLOR=0, TERM=dumb, and last whether the stream is a terminal.
func UseColor(flag string, env func(string) string, tty bool) bool {
	switch flag {
	case ColorAlways:
		return true
	case ColorNever:
		return false
	}
	if env("NO_COLOR") != "" {
		return false
	}
	for _, name := range []string{"FORCE_COLOR", "CLICOLOR_FORCE"} {
		switch env(name) {
		case "":
		case "0", "false":
			return false
		default:
			return true
		}
	}
	if env("CLICOLOR") == "0" || env("TERM") == "dumb" {
		return false
	}
	return tty
}

// UseASCII decides whether text outside tables is kept to ASCII: when asked by the flag, when the
// locale is not UTF-8, and when it is Chinese, Japanese or Korean, where the width of many other
// characters is ambiguous. The locale is the first of LC_ALL, LC_CTYPE and LANG that is set.
func UseASCII(flag bool, env func(string) string) bool {
	if flag {
		return true
	}
	var locale string
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale = env(name); locale != "" {
			break
		}
	}
	language, charset, _ := strings.Cut(locale, ".")
	language, _, _ = strings.Cut(language, "_")
	switch language {
	case "zh", "ja", "ko":
		return true
	}
	charset, _, _ = strings.Cut(charset, "@")
	switch strings.ToLower(charset) {
	case "utf-8", "utf8":
		return false
	}
	return true
}
