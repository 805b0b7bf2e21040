package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/tidaldb/tidal/tui/silence"
	"github.com/tidaldb/tidal/tui/theme"
	"github.com/tidaldb/tidal/tui/viewmodel"
)

// Here bubbletea is initialised, for this package imports it: the silence has done its work.
var _ = silence.Over()

// FPS is how often the screen may be drawn in a second. bubbletea's own 60 cost more than the rest.
const FPS = 10

// Source looks at the cluster.
type Source interface {
	// Look returns what came of asking once, in bounded time; a cluster that does not answer is a
	// sample too. The error is about something else that was to be done with it.
	Look(context.Context) (viewmodel.Sample, error)
}

// Options configures Run. In, Out, Now, Jitter and one of Source and Replay are required.
type Options struct {
	In  io.Reader // a terminal
	Out io.Writer // a terminal

	Source   Source
	Interval time.Duration // between two looks
	Replay   []viewmodel.Sample
	Speed    float64 // of a replay; 1 is as it was

	Endpoints []string // as they are shown until one answers
	Recording bool
	ExportDir string // where a view is exported to; empty: the working directory
	Theme     theme.Theme

	Now    func() time.Time
	Jitter func() float64 // in [0,1)
}

// ErrInterrupted: Ctrl-C was pressed.
var ErrInterrupted = errors.New("interrupted")

// PanicError is a panic in a command, in Update or in View, caught so that the terminal could be
// restored.
type PanicError struct {
	Value any
	stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprint(e.Value) }

// Stack returns the stack of the panic.
func (e *PanicError) Stack() []byte { return e.stack }

// Run shows the screen until the user leaves, ctx ends, or something panics; the error then is
// ErrInterrupted, the cause of ctx, a *PanicError, or of the terminal.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g := &guard{ctx: ctx, cancel: cancel}
	program := tea.NewProgram(guarded{newModel(o, g.do), g},
		tea.WithContext(ctx), tea.WithInput(o.In), tea.WithOutput(o.Out),
		tea.WithAltScreen(), tea.WithFPS(FPS), tea.WithoutSignalHandler())
	last, err := program.Run()
	cause := context.Cause(ctx)
	cancel(nil)
	g.close()
	if cause != nil {
		return cause
	}
	if err != nil {
		return fmt.Errorf("run the screen: %w", err)
	}
	if m, ok := last.(guarded); ok && m.model.(model).interrupted {
		return ErrInterrupted
	}
	return nil
}

// guard owns the goroutines of the commands and catches panics, wherever they happen: it ends the
// program through its context, whereupon bubbletea restores the terminal.
type guard struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	running sync.WaitGroup
	mu      struct {
		sync.Mutex
		closed bool // no command begins anymore
	}
}

// do makes a command that ends with the program.
func (g *guard) do(f func(context.Context) tea.Msg) tea.Cmd {
	return func() (msg tea.Msg) {
		if !g.begin() {
			return nil
		}
		defer g.running.Done()
		defer func() {
			if v := recover(); v != nil {
				g.caught(v)
				msg = nil
			}
		}()
		return f(g.ctx)
	}
}

func (g *guard) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.mu.closed {
		g.running.Add(1)
	}
	return !g.mu.closed
}

// close lets no command begin anymore and waits for those that run; their context has ended.
func (g *guard) close() {
	g.mu.Lock()
	g.mu.closed = true
	g.mu.Unlock()
	g.running.Wait()
}

// caught ends the program over a panic; the first one is told. A panic that was carried here from
// another goroutine brings its stack.
func (g *guard) caught(v any) {
	stack := debug.Stack()
	if carried, ok := v.(interface{ Stack() []byte }); ok {
		stack = carried.Stack()
	}
	g.cancel(&PanicError{v, stack})
}

// guarded is a model whose panics are caught.
type guarded struct {
	model tea.Model
	guard *guard
}

func (m guarded) Init() tea.Cmd { return m.model.Init() }

func (m guarded) Update(msg tea.Msg) (next tea.Model, cmd tea.Cmd) {
	defer func() {
		if v := recover(); v != nil {
			m.guard.caught(v)
			next, cmd = m, nil
		}
	}()
	inner, cmd := m.model.Update(msg)
	return guarded{inner, m.guard}, cmd
}

func (m guarded) View() (text string) {
	defer func() {
		if v := recover(); v != nil {
			m.guard.caught(v)
			text = ""
		}
	}()
	return m.model.View()
}
