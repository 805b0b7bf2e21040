// Package beat is the clock of what a process does again and again: whatever is due every d is due at whole
// multiples of d since the beat began, so that a process with nothing else to do wakes once for all of it.
// The beats of different processes have nothing to do with each other: members must not campaign in step.
package beat

import "time"

// Beat is one process's.
type Beat struct{ began time.Time }

// New returns a beat that begins now.
func New() Beat { return Beat{began: time.Now()} }

// Every returns a pulse of the period d, which is positive. Its owner calls Took after every receive from
// C, and Stop at the end.
func (b Beat) Every(d time.Duration) *Pulse {
	now := time.Since(b.began)
	next := after(now, d)
	timer := time.NewTimer(next - now)
	return &Pulse{C: timer.C, beat: b, every: d, next: next, timer: timer}
}

// Pulse is a time.Ticker on a beat: for a slow owner it drops ticks.
type Pulse struct {
	C     <-chan time.Time
	beat  Beat
	every time.Duration
	next  time.Duration // since the beat began: a multiple of every
	timer *time.Timer
}

// Took arms the next tick.
func (p *Pulse) Took() {
	now := time.Since(p.beat.began)
	p.next = due(now, p.next, p.every)
	p.timer.Reset(p.next - now)
}

// Every changes the period from the next tick on. d is positive.
func (p *Pulse) Every(d time.Duration) {
	if d == p.every {
		return
	}
	now := time.Since(p.beat.began)
	p.every, p.next = d, after(now, d)
	p.timer.Reset(p.next - now)
}

// Stop ends the pulse.
func (p *Pulse) Stop() { p.timer.Stop() }

// after returns the first multiple of every beyond now.
func after(now, every time.Duration) time.Duration { return now - now%every + every }

// due returns the multiple of every that comes after last, but not before the newest that has passed
// now: an owner that is late has one tick at once.
func due(now, last, every time.Duration) time.Duration {
	return max(last+every, now-now%every)
}
