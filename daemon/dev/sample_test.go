package dev

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSample_IsWhatItsDocumentSays(t *testing.T) {
	films, err := parseFilms(movies)
	if err != nil {
		t.Fatalf("parseFilms: %v", err)
	}
	seen := map[string]bool{}
	unvoted := 0
	for _, f := range films {
		if f.ID == "" || seen[f.ID] {
			t.Errorf("id %q is empty or stands twice", f.ID)
		}
		seen[f.ID] = true
		if f.Votes <= 0 {
			unvoted++
		}
	}
	if len(films) != 3200 || unvoted != 213 {
		t.Errorf("%d films, %d without votes, want 3200 and 213", len(films), unvoted)
	}
}

func TestOptions_RefuseWhatCannotBe(t *testing.T) {
	good := Options{Nodes: 3, HTTPBase: 9500, GRPCBase: 9600}
	if err := good.validate(); err != nil {
		t.Fatalf("validate(%+v) = %v", good, err)
	}
	for name, spoil := range map[string]func(*Options){
		"no nodes":        func(o *Options) { o.Nodes = 0 },
		"too many nodes":  func(o *Options) { o.Nodes = 8 },
		"a port too high": func(o *Options) { o.HTTPBase = 65533 },
		"overlap":         func(o *Options) { o.GRPCBase = o.HTTPBase + 2 },
		"time backwards":  func(o *Options) { o.For = -1 },
	} {
		o := good
		spoil(&o)
		if _, ok := o.validate().(*UsageError); !ok {
			t.Errorf("%s: validate = %v, want a usage error", name, o.validate())
		}
	}
}

// A cluster is kept only in a directory of its own: an earlier run's, or one in which nothing is.
func TestDirectory_RefusesWhatIsNotItsOwn(t *testing.T) {
	for _, tc := range []struct {
		name  string
		holds map[string]string // content by name
		own   bool
	}{
		{"empty", nil, true},
		{"a fresh file system", map[string]string{"lost+found": ""}, true},
		{"a run that was cut short", map[string]string{"peer.key": "k"}, true},
		{"a disk for a member", map[string]string{"us-east/": ""}, true},
		{"an earlier run", map[string]string{"tidal.yaml": configHead + "members:\n", "us-east.log": ""}, true},
		{"somebody's notes", map[string]string{"notes.txt": "x"}, false},
		{"somebody's configuration", map[string]string{"tidal.yaml": "members:\n"}, false},
		{"a member's data", map[string]string{"member": "x", "votes": "y"}, false},
	} {
		dir := t.TempDir()
		for name, content := range tc.holds {
			path := filepath.Join(dir, name)
			write := func() error { return os.WriteFile(path, []byte(content), 0o600) }
			if strings.HasSuffix(name, "/") {
				write = func() error { return os.Mkdir(path, 0o700) }
			}
			if err := write(); err != nil {
				t.Fatal(err)
			}
		}
		_, _, err := Options{Dir: dir}.directory()
		if _, refused := err.(*UsageError); refused == tc.own || tc.own && err != nil {
			t.Errorf("%s: directory = %v, want it to be taken: %t", tc.name, err, tc.own)
		}
	}
}
