package snapshot

import (
	"math"
	"testing"
	"time"
)

func TestSteer(t *testing.T) {
	const ms = time.Millisecond
	inf := math.Inf(1)
	for _, c := range []struct {
		name    string
		rate    float64
		usual   time.Duration
		writes  uint64
		mean    time.Duration
		waiting int
		want    float64
	}{
		{"nobody writes", inf, ms, 0, 0, 0, inf},
		{"nobody writes any more", 100 << 20, ms, 0, 0, 0, 200 << 20},
		{"nobody has written for long", paceMost - 1, ms, 0, 0, 0, inf},
		{"the first writes", inf, ms, 3, ms, 0, paceFirst},
		{"as usual", 100 << 20, ms, 9, ms, 1, 100<<20 + paceStep},
		{"half as long again", 100 << 20, ms, 9, 3*ms/2 + paceSlack, 1, 100<<20 + paceStep},
		{"slow", 100 << 20, ms, 9, 2 * ms, 1, 75 << 20},
		{"slow, and the least", paceLeast, ms, 9, 200 * ms, 1, paceLeast},
		{"none is answered", 100 << 20, ms, 0, 0, 2, 75 << 20},
		{"none is answered from the start", inf, ms, 0, 0, 2, paceFirst},
		{"nothing is known, and it is quick", 100 << 20, 0, 9, 2 * ms, 0, 100<<20 + paceStep},
		{"nothing is known, and it is slow", 100 << 20, 0, 9, 9 * ms, 0, 75 << 20},
		{"at the top", paceMost, ms, 9, ms, 0, inf},
	} {
		if got := steer(c.rate, c.usual, c.writes, c.mean, c.waiting); got != c.want {
			t.Errorf("%s: steer = %.0f, want %.0f", c.name, got, c.want)
		}
	}
}

func TestLearn(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name        string
		usual, mean time.Duration
		beside      bool
		want        time.Duration
	}{
		{"the first second", 0, 4 * ms, false, 4 * ms},
		{"a slower second", 10 * ms, 20 * ms, false, 12 * ms},
		{"a quicker second", 10 * ms, 5 * ms, false, 9 * ms},
		{"quicker beside a transfer", 10 * ms, ms, true, 5500 * time.Microsecond},
		{"slower beside a transfer", ms, 9 * ms, true, ms},
		{"nothing is known beside a transfer", 0, ms, true, 0},
	} {
		if got := learn(c.usual, c.mean, c.beside); got != c.want {
			t.Errorf("%s: %s after %s of %s, want %s", c.name, got, c.mean, c.usual, c.want)
		}
	}
}

// A transfer beside writes begins slowly, slows down as they do, and has no limit once they end.
func TestThrottle_FollowsTheLoad(t *testing.T) {
	var load Load
	writes := func(n uint64, each time.Duration) {
		load.Writes += n
		load.Took += time.Duration(n) * each
	}
	x := throttle{load: func() Load { return load }, rate: math.Inf(1)}
	now := time.Unix(1000, 0)
	// send books a mebibyte every paceEvery, n times, and returns how long the last one has to wait.
	send := func(n int, meanwhile func()) (pause time.Duration) {
		for range n {
			meanwhile()
			now = now.Add(max(pause, paceEvery))
			pause = x.book(now, 1<<20, x.most)
		}
		return pause
	}
	if pause := send(3, func() {}); pause != 0 {
		t.Errorf("without writes a chunk waits %s", pause)
	}
	writes(100, time.Millisecond)
	x.rest()
	writes(100, time.Millisecond)
	x.rest()
	if x.usual != time.Millisecond || x.rate != paceFirst {
		t.Errorf("after seconds of writes: usual %s, rate %.0f", x.usual, x.rate)
	}
	send(40, func() { writes(9, time.Millisecond) })
	quick := x.rate
	send(40, func() { writes(9, 3*time.Millisecond) })
	if quick <= paceFirst || x.rate != paceLeast {
		t.Errorf("rate %.0f beside quick writes, %.0f beside slow ones", quick, x.rate)
	}
	if pause := send(20, func() {}); pause != 0 || !math.IsInf(x.rate, 1) {
		t.Errorf("after the last write a chunk waits %s", pause)
	}
	if x.usual != time.Millisecond {
		t.Errorf("usual is %s: a transfer is not", x.usual)
	}
	x.most = 1 << 20
	if pause := send(3, func() {}); pause < time.Second/2 {
		t.Errorf("with a limit of 1 MiB a second a chunk waits %s", pause)
	}
}
