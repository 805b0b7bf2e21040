package beat

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// Pulses of one beat share their moments, whenever they were begun.
func TestBeat_SharesMoments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		beat := New()
		began := time.Now()
		time.Sleep(130 * time.Millisecond)
		fast := beat.Every(100 * time.Millisecond)
		defer fast.Stop()
		time.Sleep(33 * time.Millisecond)
		slow := beat.Every(200 * time.Millisecond)
		defer slow.Stop()
		for i := range 6 {
			<-fast.C
			fast.Took()
			at := time.Since(began)
			if want := time.Duration(i+2) * 100 * time.Millisecond; at != want {
				t.Fatalf("tick %d after %s, want %s", i, at, want)
			}
			if at%(200*time.Millisecond) == 0 {
				<-slow.C
				slow.Took()
				if time.Since(began) != at {
					t.Fatalf("the slow pulse came %s later", time.Since(began)-at)
				}
			}
		}
	})
}

// A pulse that is made faster or slower stays on the beat.
func TestPulse_ChangesItsPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		beat, began := New(), time.Now()
		p := beat.Every(time.Second)
		defer p.Stop()
		time.Sleep(130 * time.Millisecond)
		p.Every(200 * time.Millisecond)
		<-p.C
		p.Took()
		if at := time.Since(began); at != 200*time.Millisecond {
			t.Errorf("the first fast tick came after %s", at)
		}
		p.Every(time.Second)
		p.Every(time.Second)
		<-p.C
		if at := time.Since(began); at != time.Second {
			t.Errorf("the next slow tick came after %s", at)
		}
	})
}

// An owner that is late gets one tick at once, and the next when it would have come anyway.
func TestBeat_DueAfterADelay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		every := time.Duration(rapid.IntRange(1, 1000).Draw(t, "every"))
		last := every * time.Duration(rapid.IntRange(0, 1000).Draw(t, "last"))
		now := last + time.Duration(rapid.IntRange(0, 10_000).Draw(t, "late"))
		next := due(now, last, every)
		if next%every != 0 || next <= last || next <= now-every || next > max(now, last+every) {
			t.Fatalf("due(%d, %d, %d) is %d", now, last, every, next)
		}
	})
}
