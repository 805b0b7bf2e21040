package tui

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"go.uber.org/goleak"

	"github.com/tidaldb/tidal/tui/theme"
	"github.com/tidaldb/tidal/tui/viewmodel"
	"github.com/tidaldb/tidal/tui/viewmodel/scenes"
)

// childEnv makes the test binary a program with a screen, for the tests under a pty. It says what is
// to go wrong.
const childEnv = "TIDAL_TUI_CHILD"

// binEnv names the directory that programs are built into.
const binEnv = "TIDAL_TUI_BIN"

func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		os.Exit(child(what))
	}
	dir, err := os.MkdirTemp("", "tidal-tui")
	if err != nil {
		panic(err)
	}
	os.Setenv(binEnv, dir)
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// child runs a screen of a cluster that is well until what panics.
func child(what string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	looks := 0
	o := options(sourceFunc(func(context.Context) (viewmodel.Sample, error) {
		looks++
		if looks == 1 || what == "view" {
			s := scenes.Status(scenes.Members(3), looks)
			return viewmodel.Sample{At: time.Now(), Status: &s}, nil
		}
		if what == "command" {
			panic("a panic in a command")
		}
		return viewmodel.Sample{At: time.Now()}, nil
	}))
	o.In, o.Out, o.Now, o.Interval = os.Stdin, os.Stdout, time.Now, 300*time.Millisecond
	o.Jitter = func() float64 { panic("a panic in a update") } // of a look that failed
	if what == "view" {
		o.Theme.Bars = nil // a sparkline needs them
	}
	err := Run(ctx, o)
	if what == "view" && err != nil {
		err = fmt.Errorf("a panic in a view: %w", err)
	}
	fmt.Printf("ended: %v\r\n", err)
	return 7
}

func options(source Source) Options {
	return Options{
		Source: source, Interval: time.Second, Endpoints: []string{"http://a:1", "http://b:1"}, Speed: 1,
		Theme: theme.New(theme.None, true), Now: scenes.Start, Jitter: func() float64 { return 0 },
	}
}

// directly makes commands that run where they are called.
func directly(f func(context.Context) tea.Msg) tea.Cmd {
	return func() tea.Msg { return f(context.Background()) }
}
