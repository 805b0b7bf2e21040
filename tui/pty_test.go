//go:build unix

package tui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/viewmodel/scenes"
)

// patience is how long a test waits for what must come, on a machine that is busy.
const patience = 20 * time.Second

// tidalctl builds the real program once.
var tidalctl = sync.OnceValues(func() (string, error) {
	path := filepath.Join(os.Getenv(binEnv), "tidalctl")
	out, err := exec.Command("go", "build", "-o", path, "github.com/tidaldb/tidal/cmd/tidalctl").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build tidalctl: %w\n%s", err, out)
	}
	return path, nil
})

// terminal is a program under a pty, and an emulator of what its user sees.
type terminal struct {
	t      *testing.T
	master *os.File
	slave  *os.File // held open, to look at the modes after the program
	before *term.State
	cmd    *exec.Cmd

	// The emulator belongs to one goroutine; it takes what is to be done with it here.
	todo chan func(*vt.Emulator)
	done chan struct{} // closed when that goroutine has ended

	out   bytes.Buffer // everything that was written; the emulator's goroutine's
	modes map[ansi.Mode]bool
	ended chan error
}

// start runs a command in a terminal of 80x24.
func start(t *testing.T, env []string, name string, args ...string) *terminal {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	w := &terminal{t: t, master: master, slave: slave, todo: make(chan func(*vt.Emulator)), done: make(chan struct{}), modes: map[ansi.Mode]bool{}, ended: make(chan error, 1)}
	if err := pty.Setsize(master, &pty.Winsize{Cols: 80, Rows: 24}); err != nil {
		t.Fatal(err)
	}
	if w.before, err = term.GetState(slave.Fd()); err != nil {
		t.Fatal(err)
	}
	em := vt.NewEmulator(80, 24)
	em.SetCallbacks(vt.Callbacks{
		EnableMode:  func(m ansi.Mode) { w.modes[m] = true },
		DisableMode: func(m ansi.Mode) { w.modes[m] = false },
	})
	chunks := make(chan []byte)
	var running sync.WaitGroup
	running.Go(func() { // the program's output
		defer close(chunks)
		for {
			b := make([]byte, 32<<10)
			n, err := master.Read(b)
			if n > 0 {
				chunks <- b[:n]
			}
			if err != nil {
				return
			}
		}
	})
	running.Go(func() { // the terminal's answers
		b := make([]byte, 1024)
		for {
			n, err := em.Read(b)
			if n > 0 {
				master.Write(b[:n])
			}
			if err != nil {
				return
			}
		}
	})
	go func() {
		defer close(w.done)
		for {
			select {
			case b, ok := <-chunks:
				if !ok {
					return
				}
				w.out.Write(b)
				em.Write(b)
			case f := <-w.todo:
				f(em)
			}
		}
	}()
	w.cmd = exec.Command(name, args...)
	w.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TERM=xterm-256color", "LANG=C.UTF-8"}, env...)
	w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr = slave, slave, slave
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { w.ended <- w.cmd.Wait() }()
	t.Cleanup(func() {
		w.cmd.Process.Kill()
		slave.Close()
		master.Close()
		<-w.done
		em.InputPipe().(io.Closer).Close() // ends its Read; Close of v0.1.0 races with it
		running.Wait()
	})
	return w
}

// top runs the real `tidalctl top` against endpoints.
func top(t *testing.T, endpoints ...string) *terminal {
	t.Helper()
	path, err := tidalctl()
	if err != nil {
		t.Fatal(err)
	}
	return start(t, []string{"TIDALCTL_ENDPOINTS=" + strings.Join(endpoints, ",")}, path, "top", "--interval", "250ms")
}

// with runs f where the emulator lives.
func (w *terminal) with(f func(*vt.Emulator)) {
	w.t.Helper()
	ran := make(chan struct{})
	select {
	case w.todo <- func(em *vt.Emulator) { f(em); close(ran) }:
		<-ran
	case <-w.done:
		w.t.Fatal("the terminal is gone")
	}
}

func (w *terminal) screen() (s string) {
	w.t.Helper()
	w.with(func(em *vt.Emulator) { s = em.String() })
	return s
}

// await waits until the screen shows every one of texts.
func (w *terminal) await(texts ...string) string {
	w.t.Helper()
	return w.until("shows "+strings.Join(texts, ", "), func(s string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(s, text) })
	})
}

func (w *terminal) until(what string, holds func(string) bool) string {
	w.t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		s := w.screen()
		if holds(s) {
			return s
		}
		select {
		case <-tick.C:
		case <-deadline:
			w.t.Fatalf("no screen that %s within %v:\n%s", what, patience, s)
		}
	}
}

func (w *terminal) press(keys string) {
	w.t.Helper()
	if _, err := w.master.WriteString(keys); err != nil {
		w.t.Fatal(err)
	}
}

func (w *terminal) resize(width, height int) {
	w.t.Helper()
	w.with(func(em *vt.Emulator) { em.Resize(width, height) })
	if err := pty.Setsize(w.master, &pty.Winsize{Cols: uint16(width), Rows: uint16(height)}); err != nil {
		w.t.Fatal(err)
	}
}

// exit waits for the end of the program and returns its code: 128 and the signal when one killed it.
func (w *terminal) exit() int {
	w.t.Helper()
	select {
	case <-w.ended:
	case <-time.After(patience):
		w.t.Fatalf("the program did not end:\n%s", w.screen())
	}
	if s := w.cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() {
		return 128 + int(s.Signal())
	}
	return w.cmd.ProcessState.ExitCode()
}

// restored checks that the terminal is as it was before the program.
func (w *terminal) restored() {
	w.t.Helper()
	after, err := term.GetState(w.slave.Fd())
	if err != nil {
		w.t.Fatal(err)
	}
	if !reflect.DeepEqual(after, w.before) {
		w.t.Errorf("termios was %+v, is %+v", w.before, after)
	}
	w.until("has its modes back", func(string) bool {
		ok := false
		w.with(func(*vt.Emulator) {
			ok = !w.modes[ansi.ModeAltScreenSaveCursor] && w.modes[ansi.ModeTextCursorEnable] && !w.modes[ansi.ModeBracketedPaste] &&
				!w.modes[ansi.ModeMouseNormal] && !w.modes[ansi.ModeMouseButtonEvent] && !w.modes[ansi.ModeMouseAnyEvent] && !w.modes[ansi.ModeFocusEvent]
		})
		return ok
	})
}

// member serves the status of a cluster of three, as the member called name, until it is closed.
// hang makes it take requests and not answer.
type member struct {
	*httptest.Server
	asked atomic.Int64
	hang  atomic.Bool
}

func serve(t *testing.T, name, addr string) *member {
	t.Helper()
	m := &member{}
	release := make(chan struct{})
	m.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := m.asked.Add(1)
		if m.hang.Load() {
			select {
			case <-r.Context().Done():
			case <-release:
			}
			return
		}
		s := scenes.Status(scenes.Members(3), int(n))
		s.Observer, s.At = name, time.Now()
		w.Header().Set(api.HeaderMember, name)
		json.NewEncoder(w).Encode(s)
	}))
	if addr != "" {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		m.Listener.Close()
		m.Listener = l
	}
	m.Start()
	t.Cleanup(func() {
		close(release)
		m.CloseClientConnections()
		m.Close()
	})
	return m
}

func (m *member) die() {
	m.CloseClientConnections()
	m.Close()
}

// refused is an endpoint at which nothing listens.
func refused(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

func TestPty_BeginsWithEveryEndpointDead(t *testing.T) {
	t.Parallel()
	silent := serve(t, "us-east", "")
	silent.hang.Store(true)
	a, b := refused(t), silent.URL
	if _, err := tidalctl(); err != nil { // built before the clock starts
		t.Fatal(err)
	}
	began := time.Now()
	w := top(t, a, b)
	w.await("can lose ?", "connecting", a, b)
	if took := time.Since(began); took > time.Second { // 150 ms where nothing else runs
		t.Errorf("the first frame came after %v", took)
	} else {
		t.Logf("first frame after %v", took)
	}
	w.await("NO ANSWER", "refused: nothing listens there", "timeout: no answer in 2", "tidalctl --endpoint")
	w.press("?")
	w.await("everything about the member")
	w.press("?q")
	if code := w.exit(); code != 0 {
		t.Errorf("exit %d after q, want 0", code)
	}
	w.restored()
}

func TestPty_GoesOnWhenMembersDie(t *testing.T) {
	t.Parallel()
	east, west := serve(t, "us-east", ""), serve(t, "us-west", "")
	w := top(t, east.URL, west.URL)
	w.await("OK", "can lose 1", "from us-east", "eu-west")
	east.die()
	w.await("from us-west", "shows the cluster now, us-east did before")
	west.die()
	w.await("NO ANSWER", "Below is the last good view", "us-east", "us-west", "~48,1", "refused")
	west = serve(t, "us-west", west.Listener.Addr().String())
	w.await("from us-west", "answers again", "can lose 1")
	w.press("q")
	if code := w.exit(); code != 0 {
		t.Errorf("exit %d, want 0", code)
	}
	w.restored()
}

// A member that hangs, as a stopped process does, stops neither the keys nor, with another one there,
// the view.
func TestPty_HangingMember(t *testing.T) {
	t.Parallel()
	east, west := serve(t, "us-east", ""), serve(t, "us-west", "")
	w := top(t, east.URL, west.URL)
	w.await("from us-east")
	east.hang.Store(true)
	w.await("from us-west")
	west.hang.Store(true)
	asked := west.asked.Load()
	w.until("is asked again", func(string) bool { return west.asked.Load() > asked })
	w.press("/eu-")
	w.await("/eu-_")
	w.press("\r")
	w.await("filter: eu-", "members 1 of 3")
	w.press("q")
	if code := w.exit(); code != 0 {
		t.Errorf("exit %d, want 0", code)
	}
	w.restored()
}

// Fifty sizes in a second are painted as often as the screen may be drawn, and never blank.
func TestPty_ResizeStorm(t *testing.T) {
	t.Parallel()
	east := serve(t, "us-east", "")
	w := top(t, east.URL)
	w.await("can lose 1")
	var before int
	w.with(func(*vt.Emulator) { before = w.out.Len() })
	began := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := range 50 {
		<-tick.C
		w.resize(40+i*3, 12+i%30)
		if s := w.screen(); strings.TrimSpace(s) == "" {
			t.Fatalf("a blank screen after %d sizes", i)
		}
	}
	took := time.Since(began)
	w.resize(100, 30)
	w.until("is whole again", func(s string) bool {
		lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
		return len(lines) == 30 && strings.Contains(lines[29], "q quit") && strings.Contains(lines[0], "cluster 7f3a9c12") && strings.Contains(lines[1], "can lose 1")
	})
	var painted, cleared int
	w.with(func(*vt.Emulator) {
		out := w.out.Bytes()[before:]
		painted, cleared = bytes.Count(out, []byte("\x1b[H")), bytes.Count(out, []byte("\x1b[2J"))
	})
	if most := int(took.Seconds()*FPS) + 5; painted > most || cleared > 0 {
		t.Errorf("%d paints in %v, at most %d; %d times blank", painted, took, most, cleared)
	}
	w.press("q")
	w.exit()
	w.restored()
}

func TestPty_SignalsRestoreTheTerminal(t *testing.T) {
	t.Parallel()
	for signal, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGHUP: 130} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			east := serve(t, "us-east", "")
			w := top(t, east.URL)
			w.await("can lose 1")
			if err := w.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if got := w.exit(); got != code {
				t.Errorf("exit %d, want %d", got, code)
			}
			w.restored()
			w.await("the screen ended")
		})
	}
	t.Run("ctrl+c", func(t *testing.T) {
		t.Parallel()
		w := top(t, refused(t))
		w.await("can lose ?")
		w.press("\x03")
		if got := w.exit(); got != 130 {
			t.Errorf("exit %d, want 130", got)
		}
		w.restored()
	})
}

// Nothing can be done about SIGKILL; the next screen puts the modes right at its end.
func TestPty_AfterAKillTheNextScreenRestores(t *testing.T) {
	t.Parallel()
	east := serve(t, "us-east", "")
	w := top(t, east.URL)
	w.await("can lose 1")
	w.cmd.Process.Kill()
	w.exit()
	if err := term.Restore(w.slave.Fd(), w.before); err != nil { // as every shell does
		t.Fatal(err)
	}
	next := exec.Command(w.cmd.Path, w.cmd.Args[1:]...)
	next.Env, next.SysProcAttr = w.cmd.Env, &syscall.SysProcAttr{Setsid: true, Setctty: true}
	next.Stdin, next.Stdout, next.Stderr = w.slave, w.slave, w.slave
	var before int
	w.with(func(*vt.Emulator) { before = w.out.Len() })
	w.cmd = next
	if err := next.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { w.ended <- next.Wait() }()
	w.until("is drawn anew", func(string) bool {
		drawn := false
		w.with(func(*vt.Emulator) { drawn = bytes.Contains(w.out.Bytes()[before:], []byte("can lose")) })
		return drawn
	})
	w.press("q")
	if code := w.exit(); code != 0 {
		t.Errorf("exit %d, want 0", code)
	}
	w.restored()
}

// A panic, wherever it is, leaves the terminal as it was.
func TestPty_PanicRestoresTheTerminal(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"command", "update", "view"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := start(t, []string{childEnv + "=" + what}, os.Args[0])
			if code := w.exit(); code != 7 {
				t.Errorf("exit %d, want 7", code)
			}
			w.restored()
			w.await("ended: a panic in a " + what)
		})
	}
}

// The terminal is not asked for its colours: where it does not answer, that takes five seconds, and it
// eats what was typed ahead.
func TestPty_TheTerminalIsNotAsked(t *testing.T) {
	t.Parallel()
	path, err := tidalctl()
	if err != nil {
		t.Fatal(err)
	}
	w := start(t, nil, path, "completion", "--help")
	w.await("Usage")
	w.exit()
	w.with(func(*vt.Emulator) {
		if out := w.out.Bytes(); bytes.Contains(out, []byte("\x1b]")) || bytes.Contains(out, []byte("\x1b[6n")) {
			t.Errorf("the terminal was asked: %q", out[:min(80, len(out))])
		}
	})
}
