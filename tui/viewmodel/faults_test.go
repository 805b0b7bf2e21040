package viewmodel_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/viewmodel"
	"github.com/tidaldb/tidal/tui/viewmodel/scenes"
)

// A fault is a badge of the member that keeps it, a line that says when it heals itself, and a command
// that ends it sooner; what is left counts down between two looks.
func TestBuild_ShowsFaults(t *testing.T) {
	at := scenes.Start()
	st := scenes.Status(scenes.Members(3), 0)
	keep := func(name string, partitioned bool) {
		r := scenes.Row(&st, name)
		r.Partitioned = partitioned
		r.Faults = []api.Fault{
			{ID: "f-1", Member: name, Peer: "us-west", Direction: "both", Effect: "drop", LeftMS: 12_000, ExpiresAt: at.Add(12 * time.Second)},
			{ID: "f-2", Member: name, Peer: "us-west", Direction: "out", Effect: "delay", DelayMS: 5, LeftMS: 41_000, ExpiresAt: at.Add(41 * time.Second)},
		}
		scenes.Because(&st, api.HealthDegraded, "fault_injected", name, "f-1, f-2 against us-west until 14:22:41Z")
	}
	keep("us-east", false)
	keep("eu-west", true)
	s := viewmodel.Build(viewmodel.State{}.Add(viewmodel.Sample{At: at, Status: &st}), viewmodel.Choices{}, viewmodel.Setting{Now: at.Add(time.Second), Interval: time.Second})
	for _, m := range s.Members {
		want := map[string]string{"us-east": "FAULT 40s f-2", "eu-west": "FAULT 40s f-2", "us-west": ""}[m.Name]
		if m.State != want {
			t.Errorf("state of %s: %q, want %q", m.Name, m.State, want)
		}
	}
	if why := strings.Join(s.Why, "; "); !strings.Contains(why, "fault f-2 on us-east heals itself in 40s (14:22:41Z)") {
		t.Errorf("why: %q", why)
	}
	if len(s.Next) == 0 || s.Next[0].Command != "tidalctl heal --all" {
		t.Errorf("next: %+v", s.Next)
	}
	if got, want := viewmodel.Note(*scenes.Row(&st, "eu-west")), "fault f-1, f-2 against us-west, 41s left"; got != want {
		t.Errorf("note %q, want %q", got, want)
	}
}
