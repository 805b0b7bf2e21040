package tui

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/tidaldb/tidal/tui/viewmodel"
	"github.com/tidaldb/tidal/tui/viewmodel/scenes"
)

// sourceFunc is a source that is a function.
type sourceFunc func(context.Context) (viewmodel.Sample, error)

func (f sourceFunc) Look(ctx context.Context) (viewmodel.Sample, error) { return f(ctx) }

func healthy(context.Context) (viewmodel.Sample, error) {
	s := scenes.Status(scenes.Members(3), 0)
	return viewmodel.Sample{At: scenes.Start(), Status: &s}, nil
}

// send updates m with msg and returns it with what its command answers.
func send(t *testing.T, m model, msg tea.Msg) (model, tea.Msg) {
	t.Helper()
	next, cmd := m.Update(msg)
	if cmd == nil {
		return next.(model), nil
	}
	return next.(model), cmd()
}

func key(s string) tea.KeyMsg { return tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(s)} }

// sized is a model of a screen that is there.
func sized(t *testing.T, o Options) model {
	t.Helper()
	m, _ := send(t, newModel(o, directly), tea.WindowSizeMsg{Width: 80, Height: 24})
	return m
}

func TestModel_FirstFrameWaitsForNobody(t *testing.T) {
	asked := false
	m := sized(t, options(sourceFunc(func(context.Context) (viewmodel.Sample, error) {
		asked = true
		return viewmodel.Sample{}, nil
	})))
	if frame := m.View(); !strings.Contains(frame, "connecting") || !strings.Contains(frame, "http://b:1") || asked {
		t.Errorf("asked %t, the first frame:\n%s", asked, frame)
	}
}

// One look at a time, whatever is pressed.
func TestModel_LooksDoNotOverlap(t *testing.T) {
	m := sized(t, options(sourceFunc(healthy)))
	next, cmd := m.Update(lookMsg(0))
	m = next.(model)
	if cmd == nil || !m.looking {
		t.Fatal("the first look was not begun")
	}
	if _, cmd := m.Update(lookMsg(0)); cmd != nil {
		t.Error("a second look began beside the first")
	}
	if _, cmd := m.Update(key("r")); cmd != nil {
		t.Error("r began a look beside the first")
	}
	m, _ = func() (model, tea.Cmd) {
		next, cmd := m.Update(cmd())
		return next.(model), cmd
	}()
	if m.looking || !m.state.Known() {
		t.Fatalf("after the answer: looking %t, known %t", m.looking, m.state.Known())
	}
	next, cmd = m.Update(key("r"))
	if cmd == nil || !next.(model).looking {
		t.Error("r does not look")
	}
	if _, cmd := next.(model).Update(lookMsg(1)); cmd != nil {
		t.Error("the wait that r overtook looks too")
	}
}

// While nobody answers, the pauses grow and are bounded.
func TestBackoff(t *testing.T) {
	still := func() float64 { return 0 }
	for n, want := range map[int]time.Duration{1: 500 * time.Millisecond, 2: time.Second, 3: 2 * time.Second, 4: 4 * time.Second, 5: 5 * time.Second, 1000: 5 * time.Second} {
		if got := backoff(n, still); got != want {
			t.Errorf("backoff(%d) = %v, want %v", n, got, want)
		}
		if got := backoff(n, func() float64 { return 0.999 }); got < want*3/4 || got > want {
			t.Errorf("backoff(%d) with jitter = %v, want %v to %v", n, got, want*3/4, want)
		}
	}
}

// A network that hangs stops no key, and ages grow.
func TestModel_KeysWorkWhileALookHangs(t *testing.T) {
	m := sized(t, options(sourceFunc(healthy)))
	sample, _ := healthy(t.Context())
	m, _ = send(t, m, sampleMsg{sample: sample})
	next, _ := m.Update(lookMsg(m.looks)) // its command is never run
	m = next.(model)
	next, _ = m.Update(clockMsg{scenes.Start().Add(14 * time.Second), m.ticks})
	m, _ = send(t, next.(model), key("j"))
	frame := m.View()
	if m.choices.Cursor != "us-west" || !strings.Contains(frame, "STALE, from us-west 14s ago") {
		t.Errorf("cursor %q, frame:\n%s", m.choices.Cursor, frame)
	}
}

func TestModel_PauseFreezesAndGoesOn(t *testing.T) {
	m := sized(t, options(sourceFunc(healthy)))
	add := func(second int) {
		s := scenes.Status(scenes.Members(3), second)
		next, _ := m.Update(sampleMsg{sample: viewmodel.Sample{At: scenes.Start().Add(time.Duration(second) * time.Second), Status: &s}})
		m = next.(model)
	}
	space := tea.KeyMsg{Type: tea.KeySpace, Runes: []rune{' '}}
	add(0)
	m, _ = send(t, m, space)
	add(1)
	if frame := m.View(); !strings.Contains(frame, "48,120,000") || !strings.Contains(frame, "PAUSED 1.0s") {
		t.Errorf("paused:\n%s", frame)
	}
	m, _ = send(t, m, space)
	if frame := m.View(); !strings.Contains(frame, "48,121,800") || strings.Contains(frame, "PAUSED") {
		t.Errorf("after the pause:\n%s", frame)
	}
}

func TestModel_Exports(t *testing.T) {
	o := options(sourceFunc(healthy))
	o.ExportDir = t.TempDir()
	m := sized(t, o)
	sample, _ := healthy(t.Context())
	m, _ = func() (model, tea.Msg) {
		next, _ := m.Update(sampleMsg{sample: sample})
		return next.(model), nil
	}()
	m, msg := send(t, m, key("e"))
	m, _ = send(t, m, msg)
	path := filepath.Join(o.ExportDir, "tidalctl-top-20260304T142200.000Z.json")
	if frame := m.View(); !strings.Contains(frame, "wrote ") {
		t.Errorf("the frame does not say what was written:\n%s", frame)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var doc exported
	if err := json.Unmarshal(b, &doc); err != nil || len(doc.Frame) != 24 || doc.Sample.Status == nil || doc.Schema != "tidalctl.frame/v1" {
		t.Errorf("exported %d lines, sample %v, error %v:\n%s", len(doc.Frame), doc.Sample.Status, err, b)
	}
	m, msg = send(t, m, key("e"))
	if m, _ = send(t, m, msg); !strings.Contains(m.View(), "not exported") {
		t.Errorf("a file that exists was written over:\n%s", m.View())
	}
}

func TestRecording_IsReadBack(t *testing.T) {
	var b bytes.Buffer
	looks := 0
	source, err := Record(sourceFunc(func(context.Context) (viewmodel.Sample, error) {
		looks++
		return scenes.Named("dead").Samples[looks-1], nil
	}), &b, scenes.Start(), 2*time.Second, []string{"http://a:1"})
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		if _, err := source.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	rec, err := ReadRecording(bytes.NewReader(b.Bytes()))
	if err != nil || len(rec.Samples) != 8 || rec.Interval != 2*time.Second || rec.Endpoints[0] != "http://a:1" || !rec.StartedAt.Equal(scenes.Start()) {
		t.Fatalf("read %d samples, %v, error %v", len(rec.Samples), rec.Interval, err)
	}
	if s := rec.Samples[7]; s.Status != nil || len(s.Failures) != 3 || s.Failures[0].Code != "refused" {
		t.Errorf("the last sample is %+v", s)
	}
	if s := rec.Samples[4]; *s.Status.RelayLogLen != 48_127_200 {
		t.Errorf("sample 4 has the log at %d", *s.Status.RelayLogLen)
	}
	// A writer that was killed leaves half a line.
	half, err := ReadRecording(bytes.NewReader(b.Bytes()[:b.Len()-20]))
	if err != nil || len(half.Samples) != 7 {
		t.Errorf("of a recording cut short: %d samples, %v; want 7", len(half.Samples), err)
	}
}

func TestReadRecording_Refuses(t *testing.T) {
	head := `{"schema":"tidalctl.recording/v1","interval_ms":1000}` + "\n"
	good := `{"at":"2026-03-04T14:22:00Z"}` + "\n"
	for in, want := range map[string]string{
		"":                                 "line 1 of the recording: it has no samples",
		"{}\n":                             "line 1 of the recording: want a header with the schema tidalctl.recording/v1",
		"not json\n":                       "line 1 of the recording: want a header with the schema tidalctl.recording/v1",
		head:                               "line 1 of the recording: it has no samples",
		head + "{}\n":                      "line 2 of the recording: the sample has no time",
		head + good + "x\n" + good:         "line 3 of the recording: invalid character 'x' looking for beginning of value",
		head + strings.Repeat("x", 17<<20): "read the recording: bufio.Scanner: token too long",
	} {
		if _, err := ReadRecording(strings.NewReader(in)); err == nil || err.Error() != want {
			t.Errorf("ReadRecording(%.60q) = %v, want %s", in, err, want)
		}
	}
}

// brokenWriter takes n writes.
type brokenWriter struct{ n int }

func (w *brokenWriter) Write(b []byte) (int, error) {
	if w.n--; w.n < 0 {
		return 0, errors.New("no space left on device")
	}
	return len(b), nil
}

// A full disk ends the recording, says so once, and not the looking.
func TestRecord_TellsOnceThatItEnded(t *testing.T) {
	w := &brokenWriter{n: 2}
	source, err := Record(sourceFunc(healthy), w, scenes.Start(), time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	var told []bool
	for range 4 {
		sample, err := source.Look(t.Context())
		told = append(told, err != nil)
		if sample.Status == nil {
			t.Error("the look has no answer")
		}
	}
	if told[0] || !told[1] || told[2] || told[3] || w.n != -1 {
		t.Errorf("told %v, %d writes too many; want the second alone", told, -w.n-1)
	}
}

// A recording plays in its own time, stands still while paused, and says where it ends.
func TestReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(nil)
		o.Replay, o.Speed = scenes.Named("ok").Samples, 2
		m := sized(t, o)
		if !strings.Contains(m.View(), "REPLAY x2") {
			t.Errorf("the header does not say that it is a replay:\n%s", m.View())
		}
		start := time.Now()
		msg := m.Init()()
		for range 3 {
			m, msg = send(t, m, msg)
		}
		if took := time.Since(start); took != 1500*time.Millisecond || m.replay.next != 3 {
			t.Errorf("3 samples, a second apart, took %v at twice the speed", took)
		}
		space := tea.KeyMsg{Type: tea.KeySpace, Runes: []rune{' '}}
		m, _ = send(t, m, space)
		if next, cmd := m.Update(msg); cmd != nil || next.(model).replay.next != 3 {
			t.Error("a paused recording plays on")
		}
		m, msg = send(t, m, space)
		m, _ = send(t, m, key("+"))
		if m.replay.speed != 4 {
			t.Errorf("speed %g after +, want 4", m.replay.speed)
		}
		if next, _ := m.Update(msg); next.(model).replay.next != 3 {
			t.Error("a wait from before the change of speed still plays")
		}
		msg = m.play(0)()
		for msg != nil {
			m, msg = send(t, m, msg)
		}
		if frame := m.View(); m.replay.next != 8 || !strings.Contains(frame, "the recording ends here") || !strings.Contains(frame, "48,132,600") {
			t.Errorf("at the end, %d of 8 played:\n%s", m.replay.next, frame)
		}
	})
}

// A panic anywhere ends the program through its context, with its own stack.
func TestGuard_CatchesPanics(t *testing.T) {
	boom := func() { panic("boom") }
	for name, run := range map[string]func(*guard){
		"command": func(g *guard) { g.do(func(context.Context) tea.Msg { boom(); return nil })() },
		"update":  func(g *guard) { guarded{panicking{}, g}.Update(nil) },
		"view":    func(g *guard) { guarded{panicking{}, g}.View() },
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		g := &guard{ctx: ctx, cancel: cancel}
		run(g)
		p, ok := errors.AsType[*PanicError](context.Cause(ctx))
		if !ok || p.Error() != "boom" || !strings.Contains(string(p.Stack()), "model_test.go") {
			t.Errorf("%s: the context ended with %v", name, context.Cause(ctx))
		}
		g.close()
		if msg := g.do(func(context.Context) tea.Msg { return 1 })(); msg != nil {
			t.Errorf("%s: a command began after the end", name)
		}
	}
}

type panicking struct{}

func (panicking) Init() tea.Cmd                       { return nil }
func (panicking) Update(tea.Msg) (tea.Model, tea.Cmd) { panic("boom") }
func (panicking) View() string                        { panic("boom") }

// A slow line brings several keys at once; what was pasted is none, but it may be a filter.
func TestModel_KeysInOneMessage(t *testing.T) {
	m := sized(t, options(sourceFunc(healthy)))
	sample, _ := healthy(t.Context())
	next, _ := m.Update(sampleMsg{sample: sample})
	paste := tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("q/us"), Paste: true}
	if next, _ := next.(model).Update(paste); next.(model).choices != (viewmodel.Choices{}) {
		t.Errorf("pasted text acts as keys: %+v", next.(model).choices)
	}
	next, _ = next.(model).Update(key("jjk/us"))
	if c := next.(model).choices; c.Cursor != "us-west" || !c.Filtering || c.Filter != "us" {
		t.Errorf("jjk/us gives %+v", c)
	}
	next, _ = next.(model).Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("-q"), Paste: true})
	if c := next.(model).choices; c.Filter != "us-q" {
		t.Errorf("a pasted filter is %q, want us-q", c.Filter)
	}
}

func BenchmarkView(b *testing.B) {
	o := options(nil)
	m := newModel(o, directly)
	m.width, m.height = 120, 40
	for _, x := range scenes.Large(200, 60).Samples {
		m.state, m.now = m.state.Add(x), x.At
	}
	b.Run("members=200/120x40", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m = m.draw()
		}
	})
}
