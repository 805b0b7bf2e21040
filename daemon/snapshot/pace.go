package snapshot

import (
	"context"
	"math"
	"sync"
	"time"
)

const (
	// paceEvery is how long a source looks at its writes before it judges what a transfer does to them.
	paceEvery = 25 * time.Millisecond
	// paceLeast is what a transfer gets however slow writes are: it has to end.
	paceLeast = 24 << 20
	// paceFirst is what a transfer begins with beside writes.
	paceFirst = 64 << 20
	// paceStep is what it gets more for each look at writes that it does not slow down.
	paceStep = 4 << 20
	// paceMost is the rate above which there is no limit.
	paceMost = 1 << 30
	// paceSlack is how much longer writes may take than they do usually, beside half of that.
	paceSlack = 200 * time.Microsecond
	// paceUnknown is how long writes take usually where none were seen yet.
	paceUnknown = 2 * time.Millisecond
	// usualWeight is that of a second among the seconds by which it is judged what is usual, and
	// quickerWeight that of a look during a transfer at writes that are quicker.
	usualWeight   = 0.2
	quickerWeight = 0.5
)

// Load is what a source had to do for its clients since it started.
type Load struct {
	Writes uint64        // that were answered; those that were together in the log count as one
	Took   time.Duration // from their proposal to their answer, added up
	// Waiting are proposed and not answered yet.
	Waiting int
}

// since returns how many writes came after before, and how long they took on average.
func (l Load) since(before Load) (writes uint64, mean time.Duration) {
	if l.Writes <= before.Writes {
		return 0, 0
	}
	writes = l.Writes - before.Writes
	return writes, (l.Took - before.Took) / time.Duration(writes)
}

// steer returns the rate of the transfers of the next moment, in bytes a second: without writes it soon has no
// limit, and with them it is as high as lets them take what they take usually, and half more. writes were
// answered in the last moment, after mean, and waiting were not.
func steer(rate float64, usual time.Duration, writes uint64, mean time.Duration, waiting int) float64 {
	if usual == 0 {
		usual = paceUnknown
	}
	switch {
	case writes == 0 && waiting == 0:
		rate *= 2
	case math.IsInf(rate, 1):
		rate = paceFirst
	case writes == 0: // none was answered all the while
		rate *= 0.75
	case mean > usual*3/2+paceSlack:
		rate *= 0.75
	default:
		rate += paceStep
	}
	if rate > paceMost {
		return math.Inf(1)
	}
	return max(rate, paceLeast)
}

// learn returns how long writes take usually, where that was thought to be usual, after some that took mean.
// A transfer makes none quicker: those that are quicker beside one say that usual is too high, as it is
// after large ones, and those that are slower say nothing.
func learn(usual, mean time.Duration, beside bool) time.Duration {
	weight := usualWeight
	switch {
	case usual == 0 && beside:
		return 0
	case usual == 0:
		return mean
	case beside && mean >= usual:
		return usual
	case beside:
		weight = quickerWeight
	}
	return usual + time.Duration(weight*float64(mean-usual))
}

// throttle spreads the bytes of all transfers over time. Writes of clients go first.
type throttle struct {
	most int64       // bytes a second, whatever the load is; 0: no limit
	load func() Load // nil: writes are not looked at

	mu     sync.Mutex
	rate   float64 // what the load allows
	usual  time.Duration
	seen   Load
	judged time.Time // when seen was looked at
	next   time.Time // when the next byte may go
}

// rest is called about once a second while nothing is sent: it learns how long writes take usually.
func (t *throttle) rest() {
	if t.load == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.load()
	writes, mean := now.since(t.seen)
	t.seen, t.judged = now, time.Time{}
	if writes == 0 {
		t.rate = math.Inf(1)
		return
	}
	t.rate = paceFirst
	t.usual = learn(t.usual, mean, false)
}

// judgeLocked has the rate follow the load. REQUIRES: t.mu held.
func (t *throttle) judgeLocked(now time.Time) {
	if t.load == nil || now.Sub(t.judged) < paceEvery {
		return
	}
	load := t.load()
	if !t.judged.IsZero() {
		writes, mean := load.since(t.seen)
		if writes > 0 {
			t.usual = learn(t.usual, mean, true)
		}
		t.rate = steer(t.rate, t.usual, writes, mean, load.Waiting)
	}
	t.seen, t.judged = load, now
}

// send returns when n more bytes may go, or with the error of whichever context ends first.
func (t *throttle) send(ctx, life context.Context, n int64) error {
	return t.wait(ctx, life, t.book(time.Now(), n, t.most))
}

// work returns when something may be done that costs what n bytes cost to send. most is no limit of it.
func (t *throttle) work(life context.Context, n int64) error {
	return t.wait(life, life, t.book(time.Now(), n, 0))
}

func (t *throttle) wait(ctx, life context.Context, pause time.Duration) error {
	if pause <= 0 {
		if life.Err() != nil {
			return ErrClosed
		}
		return context.Cause(ctx)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-life.Done():
		return ErrClosed
	}
}

// book returns how long whoever sends n bytes has to wait before. most is a limit beside that of the load; 0: none.
func (t *throttle) book(now time.Time, n, most int64) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.judgeLocked(now)
	rate := math.Inf(1)
	if t.load != nil {
		rate = t.rate
	}
	if most > 0 {
		rate = min(rate, float64(most))
	}
	if t.next.Before(now) {
		t.next = now
	}
	pause := t.next.Sub(now)
	t.next = t.next.Add(time.Duration(float64(n) / rate * float64(time.Second)))
	return pause
}
