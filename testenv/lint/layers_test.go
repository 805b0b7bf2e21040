package lint

import (
	"slices"
	"strings"
	"testing"
)

// layers is the import table: a package imports only packages of lower layers. A package that is not
// in it may not exist.
var layers = map[string]int{
	"daemon/ident": 0, "daemon/api": 0, "daemon/durable": 0, "daemon/beat": 0, "daemon/nice": 0, "daemon/reach": 0,
	"daemon/config": 1, "daemon/auth": 1, "daemon/entity": 1, "daemon/membership": 1, "daemon/datadir": 1, "daemon/witness": 1, "daemon/wal": 1, "daemon/state": 1, "daemon/journal": 1,
	"daemon/command": 2, "daemon/peer": 2, "daemon/peer/peerpb": 1, "daemon/snapshot": 2, "daemon/query": 2,
	"daemon/apply": 3, "daemon/consensus": 3, "daemon/outbox": 3, "daemon/shard": 3, "daemon/feed": 3, "daemon/events": 3, "daemon/events/mysql": 4,
	"daemon/inspect": 4,
	"daemon/replica": 4,
	"daemon/member":  5,
	"daemon/ops":     6,
	"daemon/httpd":   7,
	"daemon":         8, "daemon/dev": 8,
	"cmd/tidald": 9,

	"ctl/iostreams": 1, "ctl/output": 2, "ctl/client": 2, "ctl/contexts": 2, "ctl/bench": 2, "ctl/schema": 2,
	"runbooks": 3, "runbooks/checks": 4, "runbooks/drills": 5,
	"tui/words": 0, "tui/silence": 0, "tui/theme": 1, "tui/viewmodel": 2, "tui/viewmodel/scenes": 3, "tui/view": 3, "tui": 4,
	"ctl": 5, "ctl/verbs": 6, "completions": 8, "completions/gen": 9,
	"cmd/tidalctl": 9,
}

// importsAPI are the packages that may speak the wire; the engine may not.
var importsAPI = []string{"daemon/httpd", "daemon/ops", "daemon/dev", "ctl", "tui/viewmodel", "runbooks", "cmd/"}

func TestImports_FollowTheLayers(t *testing.T) {
	for _, p := range packages(t) {
		if strings.HasPrefix(p.path, "testenv") || testOnly(p.path) {
			continue
		}
		layer, known := layers[p.path]
		if !known {
			t.Errorf("%s is not in the table of layers", p.path)
			continue
		}
		for _, f := range p.files {
			for _, imp := range f.ours() {
				if f.test {
					continue // a test may look down and sideways; the compiler forbids cycles
				}
				if strings.HasPrefix(imp, "testenv") || testOnly(imp) {
					t.Errorf("%s imports %s: only tests may", f.name, imp)
				} else if other, ok := layers[imp]; !ok || other >= layer {
					t.Errorf("%s (layer %d) imports %s (layer %d)", f.name, layer, imp, other)
				}
			}
		}
	}
}

// testOnly reports whether a package serves the tests of its neighbour, as net/http/httptest does.
func testOnly(path string) bool { return strings.HasSuffix(path, "test") }

func TestImports_TheEngineDoesNotSpeakTheWire(t *testing.T) {
	for _, p := range packages(t) {
		if strings.HasPrefix(p.path, "testenv") || testOnly(p.path) || slices.ContainsFunc(importsAPI, func(allowed string) bool { return strings.HasPrefix(p.path, allowed) }) {
			continue
		}
		for _, f := range p.files {
			if !f.test && slices.Contains(f.ours(), "daemon/api") {
				t.Errorf("%s imports daemon/api", f.name)
			}
		}
	}
}

// The operator's binary is small and has no storage engine in it.
func TestImports_TidalctlReachesOnlyTheWire(t *testing.T) {
	seen := map[string]bool{}
	byPath := map[string]pkg{}
	for _, p := range packages(t) {
		byPath[p.path] = p
	}
	var walk func(path string)
	walk = func(path string) {
		if seen[path] {
			return
		}
		seen[path] = true
		for _, f := range byPath[path].files {
			if !f.test {
				for _, imp := range f.ours() {
					walk(imp)
				}
			}
		}
	}
	walk("cmd/tidalctl")
	for path := range seen {
		if strings.HasPrefix(path, "daemon") && path != "daemon/api" && path != "daemon/reach" {
			t.Errorf("cmd/tidalctl reaches %s", path)
		}
	}
}

// A fleet's database driver is linked by one optional package alone.
func TestImports_OnlyTheMySQLSourceLinksADriver(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range p.files {
			for _, imp := range f.imports {
				if strings.Contains(imp, "go-sql-driver") && p.path != "daemon/events/mysql" {
					t.Errorf("%s imports %s", f.name, imp)
				}
			}
		}
	}
}
