package journal

import (
	"encoding/json"
	"flag"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tidaldb/tidal/testenv/golden"
)

var update = flag.Bool("update", false, "write the table into EVENTS.md")

func TestKinds_DocumentIsCurrent(t *testing.T) {
	var b strings.Builder
	b.WriteString("| kind | level | shared | fields | means |\n|---|---|---|---|---|\n")
	for _, s := range Kinds() {
		shared := "no"
		if s.Fact.Same() != "" {
			shared = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", s.Fact.Kind(), s.Level, shared, strings.Join(fields(s.Fact), ", "), s.Means)
	}
	golden.Table(t, "EVENTS.md", b.String(), *update)
}

// fields are the names of a fact's fields on the wire, in order.
func fields(f Fact) []string {
	var names []string
	for field := range reflect.TypeOf(f).Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// The table is an interface: a row a kind, and facts that say something and name their fields.
func TestKinds(t *testing.T) {
	seen := map[Kind]bool{}
	for _, s := range Kinds() {
		k := s.Fact.Kind()
		if seen[k] || s.Means == "" || s.Fact.Text() == "" {
			t.Errorf("row of %s is double or not whole", k)
		}
		seen[k] = true
		if LevelOf(k) != s.Level || !slices.Contains([]Level{LevelInfo, LevelWarn, LevelError}, s.Level) {
			t.Errorf("%s has level %s", k, s.Level)
		}
		if same := s.Fact.Same(); same != "" && !strings.HasPrefix(same, string(k)+"/") {
			t.Errorf("%s shares the name %q", k, same)
		}
		b, err := json.Marshal(s.Fact)
		if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		if err := json.Unmarshal(b, &object); err != nil || len(object) != len(fields(s.Fact)) || slices.Contains(fields(s.Fact), "") {
			t.Errorf("%s is %s on the wire, want the fields %v", k, b, fields(s.Fact))
		}
	}
}

func TestDetail(t *testing.T) {
	if got := Detail("short"); got != "short" {
		t.Errorf("Detail = %q", got)
	}
	if got := Detail(strings.Repeat("ü", 600)); len(got) > maxDetail+3 || !strings.HasSuffix(got, "ü…") {
		t.Errorf("Detail of 1200 bytes has %d, ends in %q", len(got), got[len(got)-5:])
	}
}
