package output

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/template"
)

// The names of the formats, as -o takes them.
const (
	Table    = "table"
	Wide     = "wide"
	JSON     = "json"
	YAML     = "yaml"
	Name     = "name"
	Template = "template"
)

// Formats lists every format as it is written after -o, in the order of the help.
func Formats() []string {
	return []string{Table, Wide, JSON, YAML, Name, Template + "=GO-TEMPLATE"}
}

// Format is a format that was asked for. ParseFormat makes it.
type Format struct {
	Name string

	// template is set iff Name is Template.
	template *template.Template
}

// FormatError refuses the value of -o.
type FormatError struct {
	Value  string
	Detail string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("output format %q: %s", e.Value, e.Detail)
}

// ParseFormat reads the value of -o. The error is a *FormatError.
func ParseFormat(s string) (Format, error) {
	name, arg, hasArg := strings.Cut(s, "=")
	switch name {
	case Table, Wide, JSON, YAML, Name:
		if hasArg {
			return Format{}, &FormatError{s, name + " takes no argument"}
		}
		return Format{Name: name}, nil
	case Template:
		if arg == "" {
			return Format{}, &FormatError{s, "the template is missing: -o 'template={{.leader}}'"}
		}
		t, err := template.New("-o").Option("missingkey=error").Funcs(template.FuncMap{"json": toJSON}).Parse(arg)
		if err != nil {
			return Format{}, &FormatError{s, err.Error()}
		}
		return Format{Name: Template, template: t}, nil
	}
	return Format{}, &FormatError{s, "want one of " + strings.Join(Formats(), ", ")}
}

// toJSON is the template function "json".
func toJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}
