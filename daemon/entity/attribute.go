package entity

import (
	"bytes"
	"fmt"
)

// AttributeType is what the values of a declared attribute are. An attribute that is missing or null
// fits every type.
type AttributeType uint8

// The types. A number is never given another meaning.
const (
	AttributeString  AttributeType = 1
	AttributeNumber  AttributeType = 2
	AttributeBool    AttributeType = 3
	AttributeStrings AttributeType = 4 // an array of strings
)

// AttributeTypes returns every type, by number.
func AttributeTypes() []AttributeType {
	return []AttributeType{AttributeString, AttributeNumber, AttributeBool, AttributeStrings}
}

// String returns the type's name in JSON.
func (t AttributeType) String() string {
	switch t {
	case AttributeString:
		return "string"
	case AttributeNumber:
		return "number"
	case AttributeBool:
		return "bool"
	case AttributeStrings:
		return "strings"
	}
	return fmt.Sprintf("type%d", uint8(t))
}

func (t AttributeType) valid() bool { return t >= AttributeString && t <= AttributeStrings }

// fits reports whether value, in the canonical form, is of type t.
func (t AttributeType) fits(value []byte) bool {
	switch c := value[0]; t {
	case AttributeString:
		return c == '"'
	case AttributeNumber:
		return c == '-' || '0' <= c && c <= '9'
	case AttributeBool:
		return c == 't' || c == 'f'
	case AttributeStrings:
		if c != '[' {
			return false
		}
		for v := range Elements(value) {
			if v[0] != '"' {
				return false
			}
		}
		return true
	}
	return false
}

// CheckAttributes reports an attribute of an item that is not of its declared type. attrs is an
// object in the canonical form.
func (s *Schema) CheckAttributes(attrs []byte) error {
	for _, a := range s.Attributes {
		v, ok := AttributeOf(attrs, AppendString(nil, a.Name))
		if ok && v[0] != 'n' && !a.Type.fits(v) {
			return fmt.Errorf("attribute %q is no %s", a.Name, a.Type)
		}
	}
	return nil
}

// The canonical form of JSON, in which attributes are stored: no white space, the members of objects
// sorted by the bytes of their keys, strings with the escapes that JSON demands and no others, numbers
// as they were written. What follows reads that form alone; other bytes give nothing, and no panic.

// AppendString appends v, valid UTF-8, as a string in the canonical form.
func AppendString[S string | []byte](b []byte, v S) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := range len(v) {
		switch c := v[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// AttributeOf returns the value in object of the member whose key is key, as AppendString writes it.
// The value is a part of object, and not empty.
func AttributeOf(object, key []byte) (value []byte, ok bool) {
	if len(object) == 0 || object[0] != '{' {
		return nil, false
	}
	for rest := object[1:]; ; {
		n := valueEnd(rest)
		if n == 0 || n >= len(rest) || rest[n] != ':' {
			return nil, false
		}
		k := rest[:n]
		rest = rest[n+1:]
		if n = valueEnd(rest); n == 0 || n >= len(rest) {
			return nil, false
		}
		if bytes.Equal(k, key) {
			return rest[:n:n], true
		}
		if rest[n] != ',' {
			return nil, false
		}
		rest = rest[n+1:]
	}
}

// Elements walks the elements of an array; of another value, the value alone. They are parts of
// value, and not empty.
func Elements(value []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		if len(value) == 0 || value[0] != '[' {
			if len(value) > 0 {
				yield(value)
			}
			return
		}
		for rest := value[1:]; ; {
			n := valueEnd(rest)
			if n == 0 || !yield(rest[:n:n]) || n >= len(rest) || rest[n] != ',' {
				return
			}
			rest = rest[n+1:]
		}
	}
}

// valueEnd returns the length of the value that b begins with; 0: there is none.
func valueEnd(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			if i >= len(b) {
				return 0
			}
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // the end of what b is in
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ':':
			if depth == 0 {
				return i
			}
		}
	}
	if depth > 0 {
		return 0
	}
	return len(b)
}
