package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tidaldb/tidal/tui/words"
)

// Document is one answer.
type Document struct {
	// Kind names the schema: "status" makes "tidalctl.status/v1". Empty: the value is a document of
	// another making, and is printed as it is.
	Kind string

	// Value is the data; it marshals to a JSON object.
	Value any

	// Names is what -o name prints, one a line.
	Names []string

	// View makes what table and wide print. It must depend on Value alone.
	View func(wide bool) View
}

// Schema returns the schema of documents of a kind.
func Schema(kind string) string { return "tidalctl." + kind + "/v1" }

// Printer prints documents in one format. The zero value of every field but Out and Format is usable.
type Printer struct {
	Out    io.Writer
	Format Format

	Color     bool
	ASCII     bool
	NoHeaders bool

	// Compact prints a JSON document on one line and separates YAML documents: for streams of them.
	Compact bool

	// Width returns the columns at which lines of a table are cut; nil or 0 means never.
	Width func() int
}

// Print writes d in one piece.
func (p *Printer) Print(d Document) error {
	b, err := p.Render(d)
	if err != nil {
		return err
	}
	if _, err := p.Out.Write(b); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// Render returns what Print writes.
func (p *Printer) Render(d Document) ([]byte, error) {
	switch p.Format.Name {
	case JSON:
		return p.json(d)
	case YAML:
		return p.yaml(d)
	case Name:
		var b bytes.Buffer
		for _, name := range d.Names {
			b.WriteString(words.Clean(name, p.ASCII))
			b.WriteByte('\n')
		}
		return b.Bytes(), nil
	case Template:
		return p.template(d)
	case Wide:
		return p.text(d.View(true))
	default:
		return p.text(d.View(false))
	}
}

// object marshals d's value with its schema as the first field.
func object(d Document) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(d.Value); err != nil {
		return nil, fmt.Errorf("encode %s: %w", d.Kind, err)
	}
	fields, ok := bytes.CutPrefix(bytes.TrimSpace(b.Bytes()), []byte("{"))
	if !ok {
		return nil, fmt.Errorf("encode %s: %T is not a JSON object", d.Kind, d.Value)
	}
	if d.Kind == "" {
		return append([]byte("{"), fields...), nil
	}
	head := `{"schema":"` + Schema(d.Kind) + `"`
	if len(fields) > 1 { // more than the closing brace
		head += ","
	}
	return append([]byte(head), fields...), nil
}

func (p *Printer) json(d Document) ([]byte, error) {
	obj, err := object(d)
	if err != nil || p.Compact {
		return append(obj, '\n'), err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, obj, "", "  "); err != nil {
		return nil, fmt.Errorf("indent %s: %w", d.Kind, err)
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// yaml prints the JSON document as YAML: a JSON text is one, so the order of the fields and the
// difference between numbers and strings of digits survive.
func (p *Printer) yaml(d Document) ([]byte, error) {
	obj, err := object(d)
	if err != nil {
		return nil, err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(obj, &node); err != nil {
		return nil, fmt.Errorf("read %s as YAML: %w", d.Kind, err)
	}
	if err := blockStyle(&node); err != nil {
		return nil, fmt.Errorf("style %s as YAML: %w", d.Kind, err)
	}
	var b bytes.Buffer
	if p.Compact {
		b.WriteString("---\n")
	}
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(&node); err != nil {
		return nil, fmt.Errorf("encode %s as YAML: %w", d.Kind, err)
	}
	return b.Bytes(), nil
}

// blockStyle undoes the flow style and the quotes that JSON brought. Quotes stay where a reader of
// YAML 1.1 or 1.2 would take the bare text for something else ("no", "1", a time); empty collections
// keep the flow style, the only one that they have.
func blockStyle(n *yaml.Node) error {
	switch {
	case n.Tag == "!!str":
		var fresh yaml.Node
		if err := fresh.Encode(n.Value); err != nil {
			return err
		}
		n.Style = fresh.Style
	case len(n.Content) > 0:
		n.Style = 0
	}
	for _, c := range n.Content {
		if err := blockStyle(c); err != nil {
			return err
		}
	}
	return nil
}

// template runs the user's template over the document as JSON shows it, with its field names.
func (p *Printer) template(d Document) ([]byte, error) {
	obj, err := object(d)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(obj))
	dec.UseNumber() // 64-bit indexes stay exact
	var data map[string]any
	if err := dec.Decode(&data); err != nil {
		return nil, fmt.Errorf("read back %s: %w", d.Kind, err)
	}
	var b bytes.Buffer
	if err := p.Format.template.Execute(&b, data); err != nil {
		return nil, &FormatError{Template, err.Error()}
	}
	if !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	return b.Bytes(), nil
}
