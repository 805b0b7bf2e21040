package output_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/tidaldb/tidal/ctl/output"
)

type value struct {
	ID    string  `json:"id"`
	Flag  string  `json:"flag"`
	Index uint64  `json:"index"`
	None  *string `json:"none"`
	List  []int   `json:"list"`
	Rows  []row   `json:"rows"`
}

type row struct {
	Name string `json:"name"`
	At   string `json:"at"`
}

func document() output.Document {
	v := value{ID: "18446744073709551615", Flag: "yes", Index: 1 << 63, List: []int{}, Rows: []row{{"a<b", "2026-01-02T03:04:05Z"}}}
	return output.Document{
		Kind: "thing", Value: v, Names: []string{"a", "b"},
		View: func(wide bool) output.View {
			columns := []output.Column{{Title: "name"}, {Title: "lag", Right: true}, {Title: "note"}}
			rows := [][]string{{"us-east", "1,250", ""}, {"a", "?", "down\x1b[2J m\u00fcde"}}
			if wide {
				columns = append(columns, output.Column{Title: "more"})
				rows = [][]string{append(rows[0], "x"), append(rows[1], "y")}
			}
			return output.View{
				Level: "degraded", Headline: "can lose 0 m\u00fcde", Notes: []string{"because\nof this"},
				Sections: []output.Section{{Columns: columns, Rows: rows}},
			}
		},
	}
}

func render(t *testing.T, p output.Printer, format string) string {
	t.Helper()
	f, err := output.ParseFormat(format)
	if err != nil {
		t.Fatal(err)
	}
	p.Format = f
	b, err := p.Render(document())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestPrinter_Formats(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		p      output.Printer
		format string
		want   string
	}{
		{name: "table", format: "table", want: `degraded  can lose 0 müde
  because\nof this
NAME       LAG  NOTE
us-east  1,250
a            ?  down\x1b[2J m\u00fcde
`},
		{name: "wide", format: "wide", want: `degraded  can lose 0 müde
  because\nof this
NAME       LAG  NOTE                   MORE
us-east  1,250                         x
a            ?  down\x1b[2J m\u00fcde  y
`},
		{name: "ascii and no heads", p: output.Printer{ASCII: true, NoHeaders: true}, format: "table", want: `degraded  can lose 0 m\u00fcde
  because\nof this
us-east  1,250
a            ?  down\x1b[2J m\u00fcde
`},
		{name: "colour and width", p: output.Printer{Color: true, Width: func() int { return 20 }}, format: "table",
			want: "\x1b[33mdegraded\x1b[0m  can lose 0 müde\n  because\\nof this\nNAME       LAG  NOTE\nus-east  1,250\na            ?  dow~\n"},
		{name: "json", format: "json", want: `{
  "schema": "tidalctl.thing/v1",
  "id": "18446744073709551615",
  "flag": "yes",
  "index": 9223372036854775808,
  "none": null,
  "list": [],
  "rows": [
    {
      "name": "a<b",
      "at": "2026-01-02T03:04:05Z"
    }
  ]
}
`},
		{name: "json stream", p: output.Printer{Compact: true}, format: "json",
			want: `{"schema":"tidalctl.thing/v1","id":"18446744073709551615","flag":"yes","index":9223372036854775808,"none":null,"list":[],"rows":[{"name":"a<b","at":"2026-01-02T03:04:05Z"}]}` + "\n"},
		{name: "yaml", format: "yaml", want: `schema: tidalctl.thing/v1
id: "18446744073709551615"
flag: "yes"
index: 9223372036854775808
none: null
list: []
rows:
  - name: a<b
    at: "2026-01-02T03:04:05Z"
`},
		{name: "name", format: "name", want: "a\nb\n"},
		{name: "template", format: `template={{.id}} {{.index}}{{range .rows}} {{.name}}{{end}} {{json .list}}`,
			want: "18446744073709551615 9223372036854775808 a<b []\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := render(t, tc.p, tc.format); got != tc.want {
				t.Errorf("Render(%s):\n%s\nwant:\n%s", tc.format, got, tc.want)
			}
		})
	}
}

func TestParseFormat_Refuses(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"nonsense":      "table, wide, json, yaml, name, template=",
		"":              "table, wide, json, yaml, name, template=",
		"jsonpath={.a}": "table, wide, json, yaml, name, template=",
		"json=x":        "takes no argument",
		"template":      "the template is missing",
		"template={{":   "unclosed action",
	} {
		_, err := output.ParseFormat(in)
		bad, ok := errors.AsType[*output.FormatError](err)
		if !ok || !strings.Contains(bad.Error(), want) {
			t.Errorf("ParseFormat(%q) = %v, want a FormatError with %q", in, err, want)
		}
	}
}

// A typo in a template is the user's mistake, not an empty answer.
func TestPrinter_TemplateNamesUnknownField(t *testing.T) {
	t.Parallel()
	f, err := output.ParseFormat("template={{.laeder}}")
	if err != nil {
		t.Fatal(err)
	}
	p := output.Printer{Out: new(bytes.Buffer), Format: f}
	if _, ok := errors.AsType[*output.FormatError](p.Print(document())); !ok {
		t.Errorf("Print = %v, want a FormatError", p.Print(document()))
	}
}

func TestNearest_ClosestFirst(t *testing.T) {
	t.Parallel()
	names := []string{"us-west", "us-east", "ap-south"}
	for in, want := range map[string]string{"us-eas": "us-east", "US-EAST": "us-east,us-west", "apsouth": "ap-south", "zzz": ""} {
		if got := strings.Join(output.Nearest(in, names), ","); got != want {
			t.Errorf("Nearest(%q) = %s, want %s", in, got, want)
		}
	}
}
