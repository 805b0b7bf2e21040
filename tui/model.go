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

	// screen and frame are what is shown. They are made where something that shows has changed:
	// bubbletea asks for the frame after every message, most of which show nothing.
	screen viewmodel.Screen
	frame  string

	// looks counts the looks that were asked for: an answer to wait of an older one is void.
	looks   int
	looking bool // a look is under way

	// ticks counts the frames that time alone may change: a tick of an older one is void.
	ticks int

	replay replay
	// interrupted says that Ctrl-C ended the program.
	interrupted bool
}

// The messages.
type (
	clockMsg struct { // nothing else has happened for a while: ages grow
		now  time.Time
		tick int
	}
	lookMsg   int // it is time for this look
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
	case lookMsg:
		if int(msg) != m.looks || m.looking {
			return m, nil
		}
		m.looking = true
		return m, m.look()
	case clockMsg:
		if msg.tick != m.ticks {
			return m, nil
		}
		m.now = msg.now
		m.ticks++
		return m.draw(), m.clock()
	case sampleMsg:
		return m.onSample(msg)
	case playMsg:
		return m.onPlay(int(msg))
	case tea.KeyMsg:
		return m.onKeys(msg)
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case exportedMsg:
		m.message = "wrote " + msg.path
		if msg.err != nil {
			m.message = "not exported: " + msg.err.Error()
		}
	case tea.ResumeMsg:
		return m, tea.ClearScreen
	default:
		return m, nil
	}
	return m.draw(), nil
}

// onKeys takes a message of keys. A slow line brings several letters in one, which are as many keys;
// what was pasted is text for a filter and no keys.
func (m model) onKeys(msg tea.KeyMsg) (tea.Model, tea.Cmd) {
	if msg.Type != tea.KeyRunes || msg.Alt || !msg.Paste && len(msg.Runes) == 1 {
		return m.onKey(msg.String())
	}
	var cmds []tea.Cmd
	for _, r := range msg.Runes {
		if msg.Paste && !m.choices.Filtering {
			break
		}
		next, cmd := m.onKey(string(r))
		m = next.(model)
		cmds = append(cmds, cmd)
	}
	return m, tea.Batch(cmds...)
}

func (m model) onKey(key string) (tea.Model, tea.Cmd) {
	m.message = ""
	var c command
	m.choices, c = onKey(m.table, m.choices, key, m.rows(), m.now)
	next, cmd := m.obey(c)
	return next.draw(), cmd
}

// obey does what a key asks for beyond the choices.
func (m model) obey(c command) (model, tea.Cmd) {
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
func (m model) pause() (model, tea.Cmd) {
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
	m.ticks++
	return m.draw(), tea.Batch(m.lookAfter(wait), m.clock())
}

// backoff is the pause after n looks in a row that nobody answered: doubled each time, and spread by
// jitter in [0,1) so that many screens do not ask in step.
func backoff(n int, jitter func() float64) time.Duration {
	wait := min(minRetry<<min(n-1, 8), maxRetry)
	return wait - time.Duration(jitter()*float64(wait)/4)
}

// quiet is how long nothing may happen before ages are drawn anew. It is a little longer than the
// usual pause between two looks, which draw them too.
const quiet = 1200 * time.Millisecond

func (m model) clock() tea.Cmd {
	tick := m.ticks
	return m.do(func(ctx context.Context) tea.Msg {
		if !wait(ctx, quiet) {
			return nil
		}
		return clockMsg{m.opts.Now(), tick}
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

// draw makes the frame of what the model has become.
func (m model) draw() model {
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
	m.screen = viewmodel.Build(m.shown(), m.choices, e)
	m.frame = view.Frame(m.screen, m.width, m.height, m.opts.Theme)
	return m
}

// rows names the members as they stand on the screen.
func (m model) rows() []string {
	names := make([]string, len(m.screen.Members))
	for i := range names {
		names[i] = m.screen.Members[i].Name
	}
	return names
}

// View returns the frame.
func (m model) View() string { return m.frame }
