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

func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		os.Exit(child(what))
	}
	goleak.VerifyTestMain(m)
}

// child runs a screen of a cluster that is well until what happens.
func child(what string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	o := options(&playing{what: what})
	o.In, o.Out, o.Now = os.Stdin, os.Stdout, time.Now
	err := Run(ctx, o)
	fmt.Printf("ended: %v\r\n", err)
	return 7
}

// playing is a source whose second look is what it is told to be.
type playing struct {
	what  string
	looks int
}

func (p *playing) Look(context.Context) (viewmodel.Sample, error) {
	p.looks++
	if p.looks == 2 && p.what == "panic-in-a-command" {
		panic("a look that panics")
	}
	s := scenes.Status(scenes.Members(3), p.looks)
	if p.looks == 2 && p.what == "panic-in-update" {
		s.Regions = nil
		return viewmodel.Sample{At: scenes.Start().Add(-time.Hour), Status: &s, Failures: nil, Endpoint: p.what}, nil
	}
	return viewmodel.Sample{At: time.Now(), Status: &s}, nil
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
