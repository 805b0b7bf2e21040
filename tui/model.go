package tui

import (
	"context"
	"fmt"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/tidaldb/tidal/tui/view"
	"github.com/tidaldb/tidal/tui/viewmodel"
)

// maxRetry is the longest pause between two looks while nobody answers.
const maxRetry = 5 * time.Second

// minRetry is the first one.
const minRetry = 500 * time.Millisecond

// model is the whole state of the screen. Only Update changes it.
type model struct {
	opts  Options
	table []binding
	// do makes a command of a function; Run gave it. What it returns ends with the program.
	do func(func(context.Context) tea.Msg) tea.Cmd

	state  viewmodel.State // what has been learned
	frozen viewmodel.State // what a paused screen shows

	choices       viewmodel.Choices
	now           time.Time
	retryAt       time.Time // of the next look
	message       string
	width, height int

	// looks counts the looks that were asked for: an answer to wait of an older one is void.
	looks   int
	looking bool // a look is under way

	replay replay
	// interrupted says that Ctrl-C ended the program.
	interrupted bool
}

// The messages.
type (
	clockMsg  time.Time // once a second: ages grow
	lookMsg   int       // it is time for this look
	sampleMsg struct {
		sample viewmodel.Sample
		err    error // of what the source does beside asking: a recording that cannot be written
	}
	exportedMsg struct {
		path string
		err  error
	}
	playMsg int // it is time for the sample after this one
)

func newModel(o Options, do func(func(context.Context) tea.Msg) tea.Cmd) model {
	m := model{opts: o, do: do, now: o.Now(), replay: replay{samples: o.Replay, speed: o.Speed}}
	m.table = bindings(m.replay.on())
	return m
}

// Init begins to look, or to play.
func (m model) Init() tea.Cmd {
	if m.replay.on() {
		return m.play(0)
	}
	return tea.Batch(m.clock(), m.lookAfter(0))
}

// Update is the one place where the model changes.
func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyMsg:
		return m.onKey(keyName(msg))
	case tea.ResumeMsg:
		return m, tea.ClearScreen
	case clockMsg:
		m.now = time.Time(msg)
		return m, m.clock()
	case lookMsg:
		if int(msg) != m.looks || m.looking {
			return m, nil
		}
		m.looking = true
		return m, m.look()
	case sampleMsg:
		return m.onSample(msg)
	case playMsg:
		return m.onPlay(int(msg))
	case exportedMsg:
		m.message = "wrote " + msg.path
		if msg.err != nil {
			m.message = "not exported: " + msg.err.Error()
		}
	}
	return m, nil
}

// keyName names a key as the table does. Text that was pasted is no key.
func keyName(k tea.KeyMsg) string {
	if k.Paste || k.Type == tea.KeyRunes && len(k.Runes) != 1 {
		return ""
	}
	return k.String()
}

func (m model) onKey(key string) (tea.Model, tea.Cmd) {
	m.message = ""
	var c command
	m.choices, c = onKey(m.table, m.choices, key, m.rows(), m.now)
	switch c {
	case quit:
		return m, tea.Quit
	case interrupt:
		m.interrupted = true
		return m, tea.Quit
	case look:
		if m.looking {
			return m, nil
		}
		m.looks++
		m.looking = true
		return m, m.look()
	case export:
		return m, m.export()
	case repaint:
		return m, tea.ClearScreen
	case suspend:
		return m, tea.Suspend
	case pause:
		return m.pause()
	case faster, slower:
		return m.changeSpeed(c)
	}
	return m, nil
}

// pause freezes the screen or lets it go on. A recording stands still; a cluster is watched on.
func (m model) pause() (tea.Model, tea.Cmd) {
	if !m.choices.PausedAt.IsZero() {
		m.choices.PausedAt, m.frozen = time.Time{}, viewmodel.State{}
		if m.replay.on() {
			m.replay.turn++
			return m, m.play(0)
		}
		return m, nil
	}
	m.choices.PausedAt, m.frozen = m.now, m.state
	return m, nil
}

// onSample folds a look in and asks for the next.
func (m model) onSample(msg sampleMsg) (tea.Model, tea.Cmd) {
	m.looking = false
	m.state = m.state.Add(msg.sample)
	if m.now.Before(msg.sample.At) {
		m.now = msg.sample.At
	}
	if msg.err != nil {
		m.message = msg.err.Error()
	}
	wait := m.opts.Interval
	if n := m.state.Failing(); n > 0 {
		wait = backoff(n, m.opts.Jitter)
	}
	m.retryAt = m.now.Add(wait)
	m.looks++
	return m, m.lookAfter(wait)
}

// backoff is the pause after n looks in a row that nobody answered: doubled each time, and spread by
// jitter in [0,1) so that many screens do not ask in step.
func backoff(n int, jitter func() float64) time.Duration {
	wait := min(minRetry<<min(n-1, 8), maxRetry)
	return wait - time.Duration(jitter()*float64(wait)/4)
}

func (m model) clock() tea.Cmd {
	return m.do(func(ctx context.Context) tea.Msg {
		if !wait(ctx, time.Second) {
			return nil
		}
		return clockMsg(m.opts.Now())
	})
}

// lookAfter asks for the next look.
func (m model) lookAfter(d time.Duration) tea.Cmd {
	number := m.looks
	return m.do(func(ctx context.Context) tea.Msg {
		if !wait(ctx, d) {
			return nil
		}
		return lookMsg(number)
	})
}

func (m model) look() tea.Cmd {
	return m.do(func(ctx context.Context) tea.Msg {
		sample, err := m.opts.Source.Look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		return sampleMsg{sample, err}
	})
}

// wait returns after d, or at once and false when ctx ends.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// shown is the state that is on the screen.
func (m model) shown() viewmodel.State {
	if !m.choices.PausedAt.IsZero() {
		return m.frozen
	}
	return m.state
}

func (m model) screen() viewmodel.Screen {
	e := viewmodel.Setting{
		Now: m.now, Interval: m.opts.Interval, Endpoints: m.opts.Endpoints, RetryAt: m.retryAt,
		Message: m.message, Keys: footer(m.table, m.choices),
	}
	if m.opts.Recording {
		e.Mode = "REC"
	}
	if m.replay.on() {
		e.Mode = fmt.Sprintf("REPLAY x%g", m.replay.speed)
	}
	if m.choices.Help {
		e.Help = help(m.table)
	}
	return viewmodel.Build(m.shown(), m.choices, e)
}

// rows names the members as they stand on the screen.
func (m model) rows() []string {
	s := m.screen()
	names := make([]string, len(s.Members))
	for i := range s.Members {
		names[i] = s.Members[i].Name
	}
	return names
}

// View turns the state into text.
func (m model) View() string {
	return view.Frame(m.screen(), m.width, m.height, m.opts.Theme)
}
