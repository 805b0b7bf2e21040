package tui

import (
	"context"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/tidaldb/tidal/tui/viewmodel"
)

// replay plays a recording. The zero value plays none.
type replay struct {
	samples []viewmodel.Sample
	next    int // the sample that comes next
	speed   float64

	// turn counts pauses and changes of speed: a wait that began before one is void.
	turn int
}

func (r replay) on() bool { return len(r.samples) > 0 }

// maxGap is the longest a replay waits, whatever the recording did in between.
const maxGap = 5 * time.Second

// The bounds of the speed.
const (
	minSpeed = 1.0 / 16
	maxSpeed = 1024
)

// play asks for the next sample after d.
func (m model) play(d time.Duration) tea.Cmd {
	turn := m.replay.turn
	return m.do(func(ctx context.Context) tea.Msg {
		if !wait(ctx, d) {
			return nil
		}
		return playMsg(turn)
	})
}

// onPlay shows the next sample, at the time it was taken.
func (m model) onPlay(turn int) (tea.Model, tea.Cmd) {
	r := &m.replay
	if turn != r.turn || !m.choices.PausedAt.IsZero() {
		return m, nil
	}
	if r.next == len(r.samples) {
		m.message = "the recording ends here"
		return m.draw(), nil
	}
	sample := r.samples[r.next]
	r.next++
	m.state, m.now = m.state.Add(sample), sample.At
	if r.next == len(r.samples) {
		return m.draw(), m.play(0)
	}
	gap := max(0, r.samples[r.next].At.Sub(sample.At))
	return m.draw(), m.play(min(maxGap, time.Duration(float64(gap)/r.speed)))
}

// changeSpeed plays twice or half as fast from now on.
func (m model) changeSpeed(c command) (model, tea.Cmd) {
	if c == faster {
		m.replay.speed = min(maxSpeed, m.replay.speed*2)
	} else {
		m.replay.speed = max(minSpeed, m.replay.speed/2)
	}
	m.replay.turn++
	return m, m.play(0)
}
