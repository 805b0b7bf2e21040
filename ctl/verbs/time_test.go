package verbs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/iostreams"
	"github.com/tidaldb/tidal/ctl/verbs"
	"github.com/tidaldb/tidal/daemon/api"
)

// script is a cluster that changes with time: what it answers is decided by how long the test has run.
type script struct {
	start  time.Time
	answer func(elapsed time.Duration) (api.Status, error)
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	status, err := s.answer(time.Since(s.start))
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	h := http.Header{}
	h.Set(api.HeaderMember, status.Observer)
	return &http.Response{StatusCode: 200, Header: h, Body: io.NopCloser(bytes.NewReader(body))}, nil
}

// play runs a command line against a script in a bubble of fake time.
func play(t *testing.T, ctx context.Context, streams *iostreams.Streams, answer func(time.Duration) (api.Status, error), args string) (exit int, took time.Duration) {
	t.Helper()
	s := &script{time.Now(), answer}
	f := &ctl.Factory{IO: streams, Env: func(string) string { return "" }, Transport: s}
	exit = ctl.Run(ctx, f, verbs.All, strings.Fields(args))
	return exit, time.Since(s.start)
}

func readStatus(t *testing.T, name string) api.Status {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "status", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var s api.Status
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

func TestWait_UntilTheConditionHolds(t *testing.T) {
	ok, degraded, critical, split, unknown := readStatus(t, "ok"), readStatus(t, "degraded"), readStatus(t, "critical"), readStatus(t, "split"), readStatus(t, "unknown")
	without := readStatus(t, "ok")
	without.Regions = without.Regions[:2]
	// phases answers with one status after another, each for a second; nil: nobody answers.
	phases := func(list ...*api.Status) func(time.Duration) (api.Status, error) {
		return func(elapsed time.Duration) (api.Status, error) {
			if s := list[min(int(elapsed/time.Second), len(list)-1)]; s != nil {
				return *s, nil
			}
			return api.Status{}, errRefused
		}
	}
	old := readStatus(t, "ok")
	old.Term = 5
	for _, tc := range []struct {
		name   string
		answer func(time.Duration) (api.Status, error)
		args   string
		exit   int
		atMost time.Duration
		tell   string // part of the progress
	}{
		{"at once", phases(&ok), "wait --for=leader", 0, 0, ""},
		{"a cluster that starts", phases(nil, nil, &unknown, &critical, &ok), "wait --for=leader", 0, 5 * time.Second, "no endpoint answered"},
		{"never", phases(&critical), "wait --for=leader --timeout 10s", 124, 10 * time.Second, "no leader, 1 of 3 voters up"},
		{"nobody ever answers", phases(nil), "wait --for=healthy --timeout 10s", 124, 10 * time.Second, "refused"},
		{"one minute where nothing is said", phases(nil), "wait --for=healthy", 124, time.Minute, ""},
		{"two leaders are none", phases(&split), "wait --for=leader --timeout 3s", 124, 3 * time.Second, "members disagree"},
		{"degraded is not healthy", phases(&degraded, &ok), "wait --for=healthy", 0, 1500 * time.Millisecond, "member_unreachable  ap-south"},
		{"a learner that is promoted", phases(&without, &degraded, &ok), "wait --for=member=ap-south:voter", 0, 1500 * time.Millisecond, "ap-south is no member"},
		{"a learner", phases(&degraded), "wait --for=member=eu-north:learner", 0, 0, ""},
		{"the leader", phases(&ok), "wait --for=member=us-east:leader", 0, 0, ""},
		{"removed", phases(&ok, &without), "wait --for=member=ap-south:removed", 0, 1500 * time.Millisecond, "ap-south is voter"},
		{"an unborn cluster removes nobody", phases(&unknown), "wait --for=member=eu-west:removed --timeout 2s", 124, 2 * time.Second, ""},
		{"a side left behind is not believed", phases(&critical, &old), "wait --for=leader --timeout 3s", 124, 3 * time.Second, "in term 5, behind term 7"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				streams, out, errs := iostreams.Test()
				exit, took := play(t, t.Context(), streams, tc.answer, tc.args)
				if exit != tc.exit || took > tc.atMost+200*time.Millisecond || !strings.Contains(errs.String(), tc.tell) {
					t.Errorf("tidalctl %s: exit %d after %v, want %d within %v\n%s%s", tc.args, exit, took, tc.exit, tc.atMost, out, errs)
				}
				if (exit == 0) != strings.Contains(out.String(), "holds after") {
					t.Errorf("exit %d with stdout %q", exit, out)
				}
			})
		})
	}
}

// Progress: nothing is said twice, but something every half minute; on a terminal one line.
func TestWait_Progress(t *testing.T) {
	critical := readStatus(t, "critical")
	answer := func(time.Duration) (api.Status, error) { return critical, nil }
	synctest.Test(t, func(t *testing.T) {
		streams, _, errs := iostreams.Test()
		play(t, t.Context(), streams, answer, "wait --for=leader --timeout 65s")
		if n := strings.Count(errs.String(), "waiting for leader"); n != 3 {
			t.Errorf("%d lines of progress in 65 s, want 3:\n%s", n, errs)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		streams, _, errs := iostreams.Test()
		streams.ErrTTY = true
		play(t, t.Context(), streams, answer, "wait --for=leader --timeout 3s --color=never")
		progress, rest, _ := strings.Cut(errs.String(), "\n")
		if !strings.HasPrefix(progress, "\r\x1b[Kwaiting for leader: ") || !strings.HasPrefix(rest, "error: leader did not come to hold  [timeout: timeout]") {
			t.Errorf("on a terminal:\n%q\n%q", progress, rest)
		}
	})
}

func TestWait_Interrupted(t *testing.T) {
	for signal, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(1100*time.Millisecond, func() { cancel(&ctl.InterruptedError{Signal: signal}) })
			streams, _, errs := iostreams.Test()
			exit, took := play(t, ctx, streams, func(time.Duration) (api.Status, error) { return api.Status{}, errRefused }, "wait --for=leader")
			if exit != want || took != 1100*time.Millisecond || !strings.Contains(errs.String(), "stopped waiting for leader  [interrupted: interrupted]") {
				t.Errorf("%v: exit %d after %v, want %d\n%s", signal, exit, took, want, errs)
			}
		})
	}
}

// watch stops a --watch after a time and returns what it wrote.
func watch(t *testing.T, streams *iostreams.Streams, length time.Duration, answer func(time.Duration) (api.Status, error), args string) int {
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(length, func() { cancel(&ctl.InterruptedError{Signal: syscall.SIGINT}) })
	exit, _ := play(t, ctx, streams, answer, args)
	return exit
}

// In a pipe a block is appended when something changed; an age that grows is no change, and silence
// does not end the watch.
func TestWatch_AppendsWhatChanged(t *testing.T) {
	ok, degraded := readStatus(t, "ok"), readStatus(t, "degraded")
	answer := func(elapsed time.Duration) (api.Status, error) {
		s := ok
		switch {
		case elapsed > 30*time.Second && elapsed < 60*time.Second:
			return api.Status{}, errRefused
		case elapsed > 60*time.Second:
			s = degraded
		}
		s.At = time.Now()
		s.Regions = append([]api.Region(nil), s.Regions...)
		age := elapsed.Milliseconds()
		s.Regions[1].AgeMS = &age
		return s, nil
	}
	synctest.Test(t, func(t *testing.T) {
		streams, out, errs := iostreams.Test()
		exit := watch(t, streams, 90*time.Second, answer, "status --watch")
		if exit != 130 || strings.Count(out.String(), "can lose 1") != 1 || strings.Count(out.String(), "can lose 0") != 1 {
			t.Errorf("exit %d:\n%s", exit, out)
		}
		if n := strings.Count(errs.String(), "[unreachable: no_endpoint]"); n != 1 {
			t.Errorf("silence was told %d times, want once:\n%s", n, errs)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		streams, out, errs := iostreams.Test()
		watch(t, streams, 90*time.Second, answer, "status --watch=500ms -o json")
		docs := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(docs) != 2 || !strings.HasPrefix(docs[1], `{"schema":"tidalctl.status/v1","leader":`) {
			t.Errorf("%d lines of JSON, want 2:\n%s", len(docs), out)
		}
		if lines := strings.Split(strings.TrimSpace(errs.String()), "\n"); len(lines) != 2 { // silence, and the end
			t.Errorf("%d errors, want 2:\n%s", len(lines), errs)
		}
	})
}

// A terminal is redrawn from its upper corner, with the reasons while nobody answers.
func TestWatch_RedrawsATerminal(t *testing.T) {
	ok := readStatus(t, "ok")
	synctest.Test(t, func(t *testing.T) {
		streams, out, _ := iostreams.Test()
		streams.OutTTY = true
		watch(t, streams, 5*time.Second, func(elapsed time.Duration) (api.Status, error) {
			if elapsed > 3*time.Second {
				return api.Status{}, errRefused
			}
			return ok, nil
		}, "status --watch --color=never")
		frames := strings.Split(out.String(), "\x1b[H")[1:]
		if len(frames) != 3 || !strings.HasPrefix(frames[0], "ok  3 of 3") || !strings.HasPrefix(frames[2], "unknown  nobody answers, can lose ?") || !strings.Contains(frames[2], "refused: nothing listens there") {
			t.Errorf("%d frames, want 3: %q", len(frames), frames)
		}
	})
}
