package verbs_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/iostreams"
	"github.com/tidaldb/tidal/ctl/verbs"
	"github.com/tidaldb/tidal/tui/viewmodel"
	"github.com/tidaldb/tidal/tui/viewmodel/scenes"
)

// One view, without a terminal: every member, and what can be lost.
func TestTop_Once(t *testing.T) {
	t.Parallel()
	for fixture, want := range map[string][]string{
		"ok":       {"OK  voters 3/3 up, need 2, can lose 1", "us-east", "us-west", "ap-south"},
		"degraded": {"DEGRADED  voters 2/3 up, need 2, can lose 0", "ap-south  voter    DOWN", "eu-north", "next: "},
		"critical": {"CRITICAL", "can lose 0"},
		"split":    {"SPLIT VIEW", "can lose 0"},
		"unknown":  {"can lose ?"},
	} {
		exit, out, errs := run(t, []string{member(t, fixture)}, "top", "--once", "--color=always")
		if exit != 0 || errs != "" {
			t.Errorf("%s: exit %d, stderr %q", fixture, exit, errs)
		}
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s does not say %q:\n%s", fixture, w, out)
			}
		}
		if strings.Contains(out, "\x1b") {
			t.Errorf("%s: escapes in a plain frame: %q", fixture, out)
		}
	}
}

func TestTop_OnceInOtherFormats(t *testing.T) {
	t.Parallel()
	exit, out, _ := run(t, []string{member(t, "ok")}, "top", "--once", "-o", "json")
	if exit != 0 || !strings.Contains(out, `"schema": "tidalctl.status/v1"`) {
		t.Errorf("exit %d:\n%s", exit, out)
	}
}

func TestTop_Refuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	exists := filepath.Join(dir, "exists")
	if err := os.WriteFile(exists, []byte("evidence"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		exit int
		errs []string
	}{
		{[]string{"top"}, ctl.ExitUsage, []string{"needs a terminal", "tidalctl status --watch", "tidalctl top --once"}},
		{[]string{"top", "--interval", "10ms"}, ctl.ExitUsage, []string{"want 250ms to 1m0s"}},
		{[]string{"top", "--speed", "2"}, ctl.ExitUsage, []string{"--speed is for --replay"}},
		{[]string{"top", "--once", "--replay", exists, "--record", "x"}, ctl.ExitUsage, []string{"do not go together"}},
		{[]string{"top", "--once", "--replay", exists, "--speed", "NaN"}, ctl.ExitUsage, []string{"--speed"}},
		{[]string{"top", "--once", "--replay", exists}, ctl.ExitFailed, []string{"line 1 of the recording"}},
		{[]string{"top", "--once", "--replay", filepath.Join(dir, "none")}, ctl.ExitNotFound, []string{"there is no recording"}},
		{[]string{"top", "--once", "--record", exists}, ctl.ExitUsage, []string{"the file exists"}},
		{[]string{"top", "--once"}, ctl.ExitUnreachable, []string{"refused"}},
	} {
		exit, out, errs := run(t, []string{dead(t)}, tc.args...)
		if exit != tc.exit || out != "" {
			t.Errorf("%v: exit %d, want %d; stdout %q", tc.args, exit, tc.exit, out)
		}
		for _, w := range tc.errs {
			if !strings.Contains(errs, w) {
				t.Errorf("%v does not say %q: %s", tc.args, w, errs)
			}
		}
	}
	if b, _ := os.ReadFile(exists); string(b) != "evidence" {
		t.Errorf("the file that exists was changed: %q", b)
	}
}

// A terminal that cannot be drawn on is none.
func TestTop_RefusesADumbTerminal(t *testing.T) {
	t.Parallel()
	io, _, errs := iostreams.Test()
	io.InTTY, io.OutTTY = true, true
	f := newFactory(t, io, []string{dead(t)})
	env := f.Env
	f.Env = func(name string) string {
		if name == "TERM" {
			return "dumb"
		}
		return env(name)
	}
	if exit := ctl.Run(t.Context(), f, verbs.All, []string{"top"}); exit != ctl.ExitUsage || !strings.Contains(errs.String(), "needs a terminal") {
		t.Errorf("exit %d, stderr %q", exit, errs)
	}
}

// What --record kept, --replay shows.
func TestTop_RecordsAndReplays(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rec.ndjson")
	exit, live, errs := run(t, []string{member(t, "degraded")}, "top", "--once", "--record", file)
	if exit != 0 {
		t.Fatalf("exit %d, stderr %q", exit, errs)
	}
	exit, replayed, errs := run(t, []string{dead(t)}, "top", "--once", "--replay", file)
	if exit != 0 || replayed != live {
		t.Errorf("exit %d, stderr %q; replayed\n%s\nwas\n%s", exit, errs, replayed, live)
	}
}

// Every command that a screen tells to paste is one that there is.
func TestTop_AdvisesCommandsThatExist(t *testing.T) {
	t.Parallel()
	checked := map[string]bool{}
	for _, scene := range scenes.All() {
		var state viewmodel.State
		for _, x := range scene.Samples {
			state = state.Add(x)
			for _, a := range viewmodel.Build(state, viewmodel.Choices{}, viewmodel.Setting{Now: x.At, Interval: time.Second}).Next {
				checked[a.Command] = true
			}
		}
	}
	if len(checked) < 5 {
		t.Errorf("only %d commands are advised: %v", len(checked), checked)
	}
	for command := range checked {
		args, ok := strings.CutPrefix(command, "tidalctl ")
		if !ok {
			t.Errorf("%q is no tidalctl command", command)
			continue
		}
		if exit, _, errs := run(t, []string{dead(t)}, append(strings.Fields(args), "--timeout", "300ms", "--endpoint", dead(t))...); exit == ctl.ExitUsage {
			t.Errorf("%q is refused as wrong usage: %s", command, errs)
		}
	}
}

// panics is a network with a bug in it.
type panics struct{}

func (panics) RoundTrip(*http.Request) (*http.Response, error) { panic("a bug in a goroutine") }

// A panic far from the command is a bug like any other: a report, and exit 70.
func TestTop_ReportsAPanic(t *testing.T) {
	t.Parallel()
	io, _, errs := iostreams.Test()
	f := newFactory(t, io, []string{dead(t)})
	f.Transport = panics{}
	if exit := ctl.Run(t.Context(), f, verbs.All, []string{"top", "--once"}); exit != ctl.ExitBug {
		t.Errorf("exit %d, want %d: %s", exit, ctl.ExitBug, errs)
	}
	_, path, _ := strings.Cut(errs.String(), "report: ")
	path, _, _ = strings.Cut(path, "\n")
	report, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(report), "panics.RoundTrip") {
		t.Errorf("the report (%v) does not have the stack of the panic:\n%s", err, report)
	}
}
