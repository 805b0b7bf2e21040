package member

import (
	"errors"
	"slices"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/tidaldb/tidal/daemon/journal"
)

// told returns the facts of one kind that a member has recorded in this boot.
func told[F journal.Fact](m *Member) (all []F) {
	for _, e := range m.opts.Journal.All() {
		if f, ok := e.Fact.(F); ok {
			all = append(all, f)
		}
	}
	return all
}

// What an install heals is told, once, with its cause; the gauge goes back to 0.
func TestReseed_EndsAQuarantine(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3")
	l.write()
	x := l.nodes[0]
	if x == l.leader() {
		x = l.nodes[1]
	}
	gauge := func() float64 {
		var out dto.Metric
		if err := x.m.metrics.quarantined.WithLabelValues("0", string(CauseStateError)).Write(&out); err != nil {
			t.Fatal(err)
		}
		return out.GetGauge().GetValue()
	}
	if ended := told[journal.QuarantineEnded](x.m); len(ended) > 0 {
		t.Errorf("before there was one it has ended: %+v", ended)
	}
	x.m.onFail(x.m.sound(0), &stateError{errors.New("rot")})
	if q := x.m.current(0).quarantine; q == nil || q.Cause != CauseStateError || gauge() != 1 {
		t.Fatalf("quarantine %+v, gauge %v", q, gauge())
	}
	l.until("it is well again", func() bool { g := x.m.current(0); return g.replica != nil && g.quarantine == nil })
	if ended := told[journal.QuarantineEnded](x.m); len(ended) != 1 || ended[0].Group != 0 || ended[0].Cause != string(CauseStateError) || gauge() != 0 {
		t.Errorf("ended: %+v, gauge %v", ended, gauge())
	}
	l.run(time.Second)
	l.write()
}

// Two installs without a verified state in between are told of, and so is each that follows; a verified state
// ends the row.
func TestReseed_AgainIsTold(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1")
	m := l.nodes[0].m
	k := m.current(0).keeper
	for _, step := range []struct {
		what string
		do   func()
		want []int // in a row, of every event so far
	}{
		{"one install", k.installed, nil},
		{"a second one", k.installed, []int{2}},
		{"a third one", k.installed, []int{2, 3}},
		{"a verified state", k.verified, []int{2, 3}},
		{"an install after it", k.installed, []int{2, 3}},
	} {
		step.do()
		var got []int
		for _, f := range told[journal.ReseededAgain](m) {
			got = append(got, f.InRow)
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("after %s: told of rows of %v, want %v", step.what, got, step.want)
		}
	}
}
