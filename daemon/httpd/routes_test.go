package httpd

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/tidaldb/tidal/testenv/golden"
)

var update = flag.Bool("update", false, "write the table into ROUTES.md")

func TestRoutes_DocumentIsCurrent(t *testing.T) {
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
	golden.Table(t, "ROUTES.md", b.String(), *update)
}
