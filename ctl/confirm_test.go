package ctl_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/iostreams"
)

func TestConfirm(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		yes     bool
		tty     bool
		env     string
		answer  string
		refused bool // declined
		usage   bool
		asked   bool
	}{
		{name: "by flag", yes: true},
		{name: "yes", tty: true, answer: "y\n", asked: true},
		{name: "Yes", tty: true, answer: " YES \n", asked: true},
		{name: "no", tty: true, answer: "n\n", asked: true, refused: true},
		{name: "enter is no", tty: true, answer: "\n", asked: true, refused: true},
		{name: "end of input is no", tty: true, answer: "", asked: true, refused: true},
		{name: "yesterday is no", tty: true, answer: "yesterday\n", asked: true, refused: true},
		{name: "no terminal", answer: "y\n", usage: true},
		{name: "CI", tty: true, env: "CI", answer: "y\n", usage: true},
		{name: "told not to ask", tty: true, env: "TIDALCTL_NO_INPUT", answer: "y\n", usage: true},
	} {
		streams, _, errs := iostreams.Test()
		streams.In, streams.InTTY, streams.ErrTTY = strings.NewReader(tc.answer), tc.tty, tc.tty
		f := &ctl.Factory{IO: streams, Env: func(name string) string {
			if name == tc.env {
				return "1"
			}
			return ""
		}}
		err := f.Confirm(t.Context(), tc.yes, "Do it?", ctl.Lines("It will hurt."))
		_, usage := errors.AsType[*ctl.UsageError](err)
		_, declined := errors.AsType[*ctl.DeclinedError](err)
		if usage != tc.usage || declined != tc.refused || (err == nil) != (!tc.usage && !tc.refused) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if asked := strings.Contains(errs.String(), "It will hurt.\nDo it? [y/N] "); asked != tc.asked {
			t.Errorf("%s: stderr %q", tc.name, errs)
		}
	}
}

func TestConfirm_EndsWithASignal(t *testing.T) {
	t.Parallel()
	streams, _, _ := iostreams.Test()
	in, out := io.Pipe()
	defer out.Close() // and with it the goroutine that reads
	streams.In, streams.InTTY, streams.ErrTTY = in, true, true
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("Ctrl-C")
	cancel(why)
	if err := (&ctl.Factory{IO: streams, Env: func(string) string { return "" }}).Confirm(ctx, false, "Do it?", ctl.Lines()); !errors.Is(err, why) {
		t.Errorf("Confirm = %v, want %v", err, why)
	}
}
