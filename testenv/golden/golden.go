// Package golden compares what is generated with the document that shows it.
//
// Callers: tests only.
package golden

import (
	"os"
	"strings"
	"testing"
)

const begin, end = "<!-- table -->\n", "<!-- end -->"

// Table fails the test unless the table in the document file, between its marks, is table. With update it
// writes it there.
func Table(t testing.TB, file, table string, update bool) {
	t.Helper()
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(doc), begin)
	have, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no table", file)
	}
	if update {
		if err := os.WriteFile(file, []byte(before+begin+table+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have != table {
		t.Errorf("%s is not current (go test -update writes it):\n%s\nwant\n%s", file, have, table)
	}
}
