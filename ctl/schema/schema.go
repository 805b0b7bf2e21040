// Package schema makes JSON Schemas (draft 2020-12) of Go types, as encoding/json writes them.
//
// What a schema says: every field that is always there is required; a pointer, a list or a map that may
// be unknown may be null; numbers that Go keeps without a sign are not negative. What it does not say:
// which words an enumeration has, and that there are no other fields, for both may grow.
//
// It is pure. Callers: the schema verb. It imports nothing of ours.
package schema

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// draft names the dialect.
const draft = "https://json-schema.org/draft/2020-12/schema"

// Schema is a schema, or a part of one. The zero Schema admits everything.
type Schema struct {
	Dialect     string      `json:"$schema,omitempty"`
	ID          string      `json:"$id,omitempty"`
	Description string      `json:"description,omitempty"`
	Const       string      `json:"const,omitempty"`
	Type        Types       `json:"type,omitempty"`
	Format      string      `json:"format,omitempty"`
	Minimum     *int        `json:"minimum,omitempty"`
	Properties  *Properties `json:"properties,omitempty"`
	Required    []string    `json:"required,omitempty"`
	Items       *Schema     `json:"items,omitempty"`
	// Values is the schema of what a map holds.
	Values *Schema `json:"additionalProperties,omitempty"`
}

// Types is one name of a type, or several.
type Types []string

// MarshalJSON writes one name alone.
func (t Types) MarshalJSON() ([]byte, error) {
	if len(t) == 1 {
		return json.Marshal(t[0])
	}
	return json.Marshal([]string(t))
}

// Properties are the fields of an object, in the order in which they are written.
type Properties []Property

// Property is one field.
type Property struct {
	Name   string
	Schema *Schema
}

// MarshalJSON writes an object that keeps the order.
func (p Properties) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, x := range p {
		if i > 0 {
			b.WriteByte(',')
		}
		part, err := json.Marshal(x.Schema)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%q:%s", x.Name, part)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Document makes the schema of a document: an object that begins with the field "schema", which is id,
// followed by the fields of value, a struct. It panics on a type that has no schema, which a test
// finds.
func Document(id, description string, value any) *Schema {
	s := of(reflect.TypeOf(value))
	s.Dialect, s.ID, s.Description = draft, id, description
	*s.Properties = append(Properties{{"schema", &Schema{Const: id}}}, *s.Properties...)
	s.Required = append([]string{"schema"}, s.Required...)
	return s
}

// of makes the schema of a value of type t that is there.
func of(t reflect.Type) *Schema {
	switch {
	case t.Kind() == reflect.Pointer:
		return of(t.Elem())
	case t == reflect.TypeFor[time.Time]():
		return &Schema{Type: Types{"string"}, Format: "date-time"}
	case t == reflect.TypeFor[json.RawMessage](), t.Kind() == reflect.Interface:
		return &Schema{}
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return &Schema{Type: Types{"string"}}
	}
	switch t.Kind() {
	case reflect.Bool:
		return &Schema{Type: Types{"boolean"}}
	case reflect.String:
		return &Schema{Type: Types{"string"}}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return &Schema{Type: Types{"integer"}}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &Schema{Type: Types{"integer"}, Minimum: new(int)}
	case reflect.Float32, reflect.Float64:
		return &Schema{Type: Types{"number"}}
	case reflect.Slice, reflect.Array:
		return &Schema{Type: Types{"array"}, Items: of(t.Elem())}
	case reflect.Map:
		return &Schema{Type: Types{"object"}, Values: of(t.Elem())}
	case reflect.Struct:
		return object(t)
	}
	panic(fmt.Sprintf("schema: %s has none", t))
}

func object(t reflect.Type) *Schema {
	s := &Schema{Type: Types{"object"}, Properties: &Properties{}}
	s.addFields(t)
	return s
}

// addFields adds the fields of a struct, and in the place of an embedded struct the fields of that.
func (s *Schema) addFields(t reflect.Type) {
	for f := range t.Fields() {
		tag, tagged := f.Tag.Lookup("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case f.Anonymous && !tagged:
			s.addFields(f.Type)
			continue
		case !f.IsExported() || tag == "-":
			continue
		case name == "":
			name = f.Name
		}
		part := of(f.Type)
		if hasOption(options, "string") {
			part = &Schema{Type: Types{"string"}}
		}
		if !hasOption(options, "omitempty") && !hasOption(options, "omitzero") {
			s.Required = append(s.Required, name)
			if len(part.Type) > 0 && mayBeNil(f.Type) {
				part.Type = append(part.Type, "null")
			}
		}
		*s.Properties = append(*s.Properties, Property{name, part})
	}
}

func hasOption(options, want string) bool {
	for o := range strings.SplitSeq(options, ",") {
		if o == want {
			return true
		}
	}
	return false
}

// mayBeNil reports whether encoding/json may write a value of type t as null.
func mayBeNil(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
		return true
	}
	return false
}
