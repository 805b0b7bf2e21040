package view_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/tidaldb/tidal/tui/theme"
	"github.com/tidaldb/tidal/tui/view"
	"github.com/tidaldb/tidal/tui/viewmodel"
	"github.com/tidaldb/tidal/tui/viewmodel/scenes"
)

var update = flag.Bool("update", false, "write the golden files")

// sizes are those at which the layout differs.
var sizes = [][2]int{{40, 12}, {80, 24}, {120, 40}, {200, 50}}

// screen is what a watcher of a scene sees 400 ms after its last sample.
func screen(s scenes.Scene, c viewmodel.Choices) viewmodel.Screen {
	var state viewmodel.State
	now := scenes.Start()
	for _, sample := range s.Samples {
		state, now = state.Add(sample), sample.At
	}
	now = now.Add(400 * time.Millisecond)
	return viewmodel.Build(state, c, viewmodel.Setting{
		Now: now, Interval: time.Second, RetryAt: now.Add(3 * time.Second),
		Endpoints: []string{"http://10.0.0.1:9501", "http://10.0.0.2:9501", "http://10.0.0.3:9501"},
		Keys: []viewmodel.Key{
			{Key: "?", Word: "help"}, {Key: "/", Word: "filter"}, {Key: "enter", Word: "detail"}, {Key: "s", Word: "sort"},
			{Key: "space", Word: "pause"}, {Key: "e", Word: "export"}, {Key: "q", Word: "quit"}, {Key: "!", Word: "unlock"},
		},
		Help: []viewmodel.Topic{{Title: "keys", Lines: []string{"?  this help"}}},
	})
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update writes it):\n%s\nwant:\n%s", path, got, want)
	}
}

// themes are the looks, by the names of their golden files.
func themes() map[string]theme.Theme {
	return map[string]theme.Theme{
		"plain": theme.New(theme.None, false), "ascii": theme.New(theme.None, true), "color": theme.New(theme.Ansi16, false),
	}
}

// escape makes escape sequences readable in a golden file.
func escape(s string) string { return strings.ReplaceAll(s, "\x1b", "␛") }

func TestFrame_Golden(t *testing.T) {
	for _, scene := range scenes.All() {
		for _, size := range sizes {
			for look, th := range themes() {
				t.Run(fmt.Sprintf("%s/%dx%d/%s", scene.Name, size[0], size[1], look), func(t *testing.T) {
					got := view.Frame(screen(scene, viewmodel.Choices{}), size[0], size[1], th)
					golden(t, fmt.Sprintf("%s/%dx%d.%s", scene.Name, size[0], size[1], look), escape(got)+"\n")
				})
			}
		}
	}
}

func TestFrame_GoldenOverlays(t *testing.T) {
	th := theme.New(theme.None, false)
	for name, c := range map[string]viewmodel.Choices{
		"detail": {Cursor: "ap-south", Detail: true},
		"help":   {Help: true},
		"filter": {Filter: "eu-", Filtering: true},
		"lag":    {Order: viewmodel.ByLag, Cursor: "us-west"},
		"paused": {PausedAt: scenes.Start().Add(7 * time.Second), UnlockedUntil: scenes.Start().Add(time.Minute)},
	} {
		for _, size := range sizes[1:] {
			got := view.Frame(screen(scenes.Named("quarantined"), c), size[0], size[1], th)
			golden(t, fmt.Sprintf("overlays/%s.%dx%d", name, size[0], size[1]), got+"\n")
		}
	}
}

func TestPlain_Golden(t *testing.T) {
	for _, scene := range scenes.All() {
		golden(t, scene.Name+"/plain", view.Plain(screen(scene, viewmodel.Choices{}), true))
	}
}

var sgr = regexp.MustCompile("\x1b\\[[0-9;]*m")

// Colour only repeats what words say.
func TestFrame_ReadsTheSameWithoutColor(t *testing.T) {
	for _, scene := range scenes.All() {
		for _, size := range sizes {
			s := screen(scene, viewmodel.Choices{})
			plain := view.Frame(s, size[0], size[1], theme.New(theme.None, false))
			for _, colors := range []theme.Colors{theme.Ansi16, theme.Ansi256, theme.True} {
				got := sgr.ReplaceAllString(view.Frame(s, size[0], size[1], theme.New(colors, false)), "")
				if got != plain {
					t.Errorf("%s at %v in %d colours, stripped:\n%s\nwant:\n%s", scene.Name, size, colors, got, plain)
				}
			}
		}
	}
}

// hostile is a cluster whose members say what no terminal should see.
func hostile() scenes.Scene {
	s := scenes.Large(40, 3)
	for _, sample := range s.Samples {
		for i := range sample.Status.Regions {
			sample.Status.Regions[i].Name += []string{"\x1b[2J", "\xff\xfe", "日本語日本語日本語", "\u202e\u0301e\u0301", strings.Repeat("x", 300), "\r\n", ""}[i%7]
		}
		scenes.Because(sample.Status, "degraded\x1b]0;owned\x07", "member_behind", "us-east", strings.Repeat("\x9b31m長", 5000))
	}
	return s
}

// Whatever the size and whatever the cluster says, a frame fits and is harmless.
func TestFrame_FitsAnySize(t *testing.T) {
	everything := append(scenes.All(), hostile(), scenes.Large(0, 1), scenes.Large(1, 2))
	for _, scene := range everything {
		for ci, c := range []viewmodel.Choices{{}, {Detail: true}, {Help: true}, {Filtering: true, Filter: "日\x1b"}} {
			s := screen(scene, c)
			for _, th := range []theme.Theme{theme.New(theme.None, true), theme.New(theme.True, false)} {
				// Every size near the limits of a layout; of the others a sample that moves with the scene.
				for h := 1; h <= 60; h++ {
					for w := 1; w <= 220; w++ {
						if near(w, 1, 40, 60, 100, 160) && near(h, 1, 8, 16, 30) || (w+h*3+ci)%397 == 0 {
							fits(t, scene.Name, s, w, h, th)
						}
					}
				}
			}
		}
	}
}

func near(n int, limits ...int) bool {
	for _, l := range limits {
		if n == l-1 || n == l {
			return true
		}
	}
	return false
}

func fits(t *testing.T, name string, s viewmodel.Screen, w, h int, th theme.Theme) {
	t.Helper()
	frame := view.Frame(s, w, h, th)
	lines := strings.Split(frame, "\n")
	if len(lines) > h || w >= 40 && h >= 8 && len(lines) != h {
		t.Fatalf("%s at %dx%d has %d lines", name, w, h, len(lines))
	}
	for i, l := range lines {
		bare := sgr.ReplaceAllString(l, "")
		if got := ansi.StringWidth(bare); got > w {
			t.Fatalf("%s at %dx%d: line %d is %d wide: %q", name, w, h, i, got, l)
		}
		if !utf8.ValidString(l) {
			t.Fatalf("%s at %dx%d: line %d is not UTF-8: %q", name, w, h, i, l)
		}
		for _, r := range bare {
			if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || th.ASCII && r > '~' {
				t.Fatalf("%s at %dx%d: line %d lets %q through: %q", name, w, h, i, r, l)
			}
		}
	}
}

// What a reader came for is on every screen that is one.
func TestFrame_AlwaysSaysWhatCanBeLost(t *testing.T) {
	for _, scene := range scenes.All() {
		for _, size := range sizes {
			frame := view.Frame(screen(scene, viewmodel.Choices{}), size[0], size[1], theme.New(theme.None, true))
			if !strings.Contains(frame, "can lose") {
				t.Errorf("%s at %v does not say what can be lost:\n%s", scene.Name, size, frame)
			}
		}
	}
}

func BenchmarkFrame(b *testing.B) {
	s := screen(scenes.Large(200, 60), viewmodel.Choices{})
	th := theme.New(theme.Ansi256, false)
	b.Run("members=200/120x40", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			view.Frame(s, 120, 40, th)
		}
	})
}
