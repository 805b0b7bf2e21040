package dev

import "testing"

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
