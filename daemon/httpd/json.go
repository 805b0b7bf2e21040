package httpd

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/entity"
)

// A scanner walks one JSON text (RFC 8259) from left to right, more strictly than encoding/json:
// invalid UTF-8, a lone surrogate, a key given twice, a number that no float64 can hold and nesting
// deeper than api.MaxJSONDepth are errors. It copies nothing that it need not copy.
//
// The methods are called in the order of the text; after an error the scanner is not used again.
// FuzzScanner holds it against encoding/json.
type scanner struct {
	in    []byte
	pos   int
	depth int // objects and arrays that are open
}

// syntaxError says where a text stops being JSON that is accepted here.
type syntaxError struct {
	offset int
	detail string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("%s at byte %d", e.detail, e.offset) }

func (s *scanner) errorf(format string, args ...any) error {
	return &syntaxError{offset: s.pos, detail: fmt.Sprintf(format, args...)}
}

// unexpected describes what stands at the scanner's position.
func (s *scanner) unexpected(want string) error {
	if s.pos >= len(s.in) {
		return s.errorf("the text ends where %s should be", want)
	}
	r, _ := utf8.DecodeRune(s.in[s.pos:])
	return s.errorf("%q where %s should be", r, want)
}

// peek skips white space and returns the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	for ; s.pos < len(s.in); s.pos++ {
		switch c := s.in[s.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// open enters an object or an array: c is '{' or '['.
func (s *scanner) open(c byte) error {
	if s.peek() != c {
		return s.unexpected(strconv.QuoteRune(rune(c)))
	}
	if s.depth == api.MaxJSONDepth {
		return s.errorf("nesting deeper than %d", api.MaxJSONDepth)
	}
	s.pos++
	s.depth++
	return nil
}

// more reports whether another member or element follows; if none does, it leaves the object or
// array that close ends. first is set for the call right after open.
func (s *scanner) more(first bool, close byte) (bool, error) {
	switch c := s.peek(); {
	case c == close:
		s.pos++
		s.depth--
		return false, nil
	case first:
		return true, nil
	case c == ',':
		s.pos++
		return true, nil
	}
	return false, s.unexpected("',' or " + strconv.QuoteRune(rune(close)))
}

// key returns the name of a member, up to its value. It is a part of the text or, with escapes, a
// copy.
func (s *scanner) key() ([]byte, error) {
	k, err := s.str()
	if err != nil {
		return nil, err
	}
	if s.peek() != ':' {
		return nil, s.unexpected("':'")
	}
	s.pos++
	return k, nil
}

// end reports anything but white space after the value.
func (s *scanner) end() error {
	if s.peek(); s.pos < len(s.in) {
		return s.unexpected("the end")
	}
	return nil
}

// str returns the value of a string: a part of the text or, with escapes, a copy.
func (s *scanner) str() ([]byte, error) {
	if s.peek() != '"' {
		return nil, s.unexpected("a string")
	}
	s.pos++
	start, ascii := s.pos, true
	for s.pos < len(s.in) {
		switch c := s.in[s.pos]; {
		case c == '"':
			raw := s.in[start:s.pos]
			if !ascii && !utf8.Valid(raw) {
				return nil, s.errorf("a string is not valid UTF-8")
			}
			s.pos++
			return raw, nil
		case c == '\\':
			if !ascii && !utf8.Valid(s.in[start:s.pos]) {
				return nil, s.errorf("a string is not valid UTF-8")
			}
			return s.unescape(start)
		case c < ' ':
			return nil, s.errorf("control character %#02x in a string", c)
		default:
			ascii = ascii && c < utf8.RuneSelf
			s.pos++
		}
	}
	return nil, s.unexpected("the end of a string")
}

// unescape goes on with a string that began at start and has its first backslash at the position.
func (s *scanner) unescape(start int) ([]byte, error) {
	out := bytes.Clone(s.in[start:s.pos])
	for s.pos < len(s.in) {
		switch c := s.in[s.pos]; {
		case c == '"':
			s.pos++
			return out, nil
		case c < ' ':
			return nil, s.errorf("control character %#02x in a string", c)
		case c == '\\':
			r, err := s.escape()
			if err != nil {
				return nil, err
			}
			out = utf8.AppendRune(out, r)
		default:
			r, n := utf8.DecodeRune(s.in[s.pos:])
			if r == utf8.RuneError && n == 1 {
				return nil, s.errorf("a string is not valid UTF-8")
			}
			out = append(out, s.in[s.pos:s.pos+n]...)
			s.pos += n
		}
	}
	return nil, s.unexpected("the end of a string")
}

// escape reads one escape sequence; a pair of surrogates is one.
func (s *scanner) escape() (rune, error) {
	s.pos++
	if s.pos >= len(s.in) {
		return 0, s.unexpected("an escaped character")
	}
	c := s.in[s.pos]
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		return s.escapeUnicode()
	default:
		return 0, s.unexpected("an escaped character")
	}
	s.pos++
	return rune(c), nil
}

func (s *scanner) escapeUnicode() (rune, error) {
	s.pos++
	r, err := s.hex4()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if bytes.HasPrefix(s.in[s.pos:], []byte(`\u`)) {
		s.pos += 2
		low, err := s.hex4()
		if err != nil {
			return 0, err
		}
		if r := utf16.DecodeRune(r, low); r != utf8.RuneError {
			return r, nil
		}
	}
	return 0, s.errorf("half a surrogate pair in a string")
}

func (s *scanner) hex4() (rune, error) {
	var r rune
	for range 4 {
		if s.pos >= len(s.in) {
			return 0, s.unexpected("a hex digit")
		}
		switch c := s.in[s.pos]; {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case 'A' <= c && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, s.unexpected("a hex digit")
		}
		s.pos++
	}
	return r, nil
}

// number returns the text of a number.
func (s *scanner) number() ([]byte, error) {
	s.peek()
	start := s.pos
	if s.at('-') {
		s.pos++
	}
	switch {
	case s.at('0'):
		s.pos++
	case !s.digits():
		return nil, s.unexpected("a number")
	}
	integer := true
	if s.at('.') {
		integer = false
		s.pos++
		if !s.digits() {
			return nil, s.unexpected("a digit")
		}
	}
	if s.at('e') || s.at('E') {
		integer = false
		s.pos++
		if s.at('+') || s.at('-') {
			s.pos++
		}
		if !s.digits() {
			return nil, s.unexpected("a digit")
		}
	}
	n := s.in[start:s.pos]
	if integer && len(n) < 300 { // below 1e300 without looking
		return n, nil
	}
	if _, err := strconv.ParseFloat(string(n), 64); errors.Is(err, strconv.ErrRange) {
		return nil, s.errorf("number %s is out of range", bounded(n))
	}
	return n, nil
}

func (s *scanner) at(c byte) bool { return s.pos < len(s.in) && s.in[s.pos] == c }

// digits skips digits and reports whether there was one.
func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.in) && '0' <= s.in[s.pos] && s.in[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > start
}

// canonical appends the next value to dst in its one form: no white space, the members of objects
// sorted by the bytes of their keys, strings with the escapes that JSON demands and no others,
// numbers as they were written.
func (s *scanner) canonical(dst []byte) ([]byte, error) {
	switch c := s.peek(); {
	case c == '{':
		if err := s.open('{'); err != nil {
			return nil, err
		}
		var m members
		for first := true; ; first = false {
			more, err := s.more(first, '}')
			if err != nil {
				return nil, err
			}
			if !more {
				return s.join(dst, m)
			}
			k, err := s.key()
			if err != nil {
				return nil, err
			}
			if err := s.member(&m, k); err != nil {
				return nil, err
			}
		}
	case c == '[':
		if err := s.open('['); err != nil {
			return nil, err
		}
		dst = append(dst, '[')
		for first := true; ; first = false {
			more, err := s.more(first, ']')
			if err != nil {
				return nil, err
			}
			if !more {
				return append(dst, ']'), nil
			}
			if !first {
				dst = append(dst, ',')
			}
			if dst, err = s.canonical(dst); err != nil {
				return nil, err
			}
		}
	case c == '"':
		v, err := s.str()
		if err != nil {
			return nil, err
		}
		return entity.AppendString(dst, v), nil
	case c == '-' || '0' <= c && c <= '9':
		n, err := s.number()
		if err != nil {
			return nil, err
		}
		return append(dst, n...), nil
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(s.in[s.pos:], []byte(word)) {
			s.pos += len(word)
			return append(dst, word...), nil
		}
	}
	return nil, s.unexpected("a value")
}

// members are those of one object, in the order of the text until join.
type members struct {
	list   []memberSpan
	values []byte // the canonical values, one after the other
}

type memberSpan struct {
	key        []byte
	start, end int // of its value in values
}

// member takes the value that follows key k into m.
func (s *scanner) member(m *members, k []byte) error {
	start := len(m.values)
	values, err := s.canonical(m.values)
	if err != nil {
		return err
	}
	m.values = values
	m.list = append(m.list, memberSpan{k, start, len(values)})
	return nil
}

// join appends m as one object, and refuses a key that was given twice.
func (s *scanner) join(dst []byte, m members) ([]byte, error) {
	slices.SortFunc(m.list, func(a, b memberSpan) int { return bytes.Compare(a.key, b.key) })
	dst = append(dst, '{')
	for i, x := range m.list {
		if i > 0 {
			if bytes.Equal(m.list[i-1].key, x.key) {
				return nil, s.errorf("key %q is given twice", bounded(x.key))
			}
			dst = append(dst, ',')
		}
		dst = entity.AppendString(dst, x.key)
		dst = append(dst, ':')
		dst = append(dst, m.values[x.start:x.end]...)
	}
	return append(dst, '}'), nil
}

// maxQuoted is how much of a caller's input an error repeats, in bytes.
const maxQuoted = 64

// bounded shortens what a caller sent, for an error text.
func bounded(b []byte) string {
	if len(b) <= maxQuoted {
		return string(b)
	}
	return string(bytes.ToValidUTF8(b[:maxQuoted], nil)) + "…"
}
