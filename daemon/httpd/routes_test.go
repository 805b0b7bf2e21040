package httpd

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table into ROUTES.md")

func TestRoutes_DocumentIsCurrent(t *testing.T) {
	const file, begin, end = "ROUTES.md", "<!-- table -->\n", "<!-- end -->"
	var b strings.Builder
	b.WriteString("| route | runs | query | body | key | answers |\n|---|---|---|---|---|---|\n")
	for _, rt := range (*Server)(nil).routes() {
		body, key := "", "yes"
		if rt.maxBody > 0 {
			body = fmt.Sprint(rt.maxBody)
		} else if rt.maxBody == aStream {
			body = "a stream"
		}
		if rt.open {
			key = "no"
		}
		fmt.Fprintf(&b, "| `%s %s` | %s | %s | %s | %s | %s |\n", rt.method, rt.path, rt.class, strings.Join(rt.params, ", "), body, key, rt.answers)
	}
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(doc), begin)
	table, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no table", file)
	}
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+b.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != b.String() {
		t.Errorf("%s is not current:\n%s\nwant\n%s", file, table, b.String())
	}
}
