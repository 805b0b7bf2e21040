package nice

import (
	"runtime"
	"syscall"
	"testing"
)

// priority is that of the calling thread: 20 minus its niceness.
func priority(t *testing.T) int {
	t.Helper()
	p, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDo_LowersItsOwnThreadOnly(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, within := priority(t), 0
	Do(func() { within = priority(t) })
	if want := max(before-niceness, 1); within != want {
		t.Errorf("priority %d within Do, want %d", within, want)
	}
	if after := priority(t); after != before {
		t.Errorf("priority %d after Do, want %d", after, before)
	}
}

// Goroutines that others start meanwhile run on threads that are not lowered.
func TestDo_LowersNobodyElse(t *testing.T) {
	runtime.LockOSThread()
	before := priority(t)
	runtime.UnlockOSThread()
	Do(func() {
		const others = 50
		all := make(chan int, others)
		for range others {
			go func() {
				runtime.LockOSThread() // each on a thread of its own
				defer runtime.UnlockOSThread()
				p, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
				if err != nil {
					p = -1
				}
				all <- p
			}()
		}
		for range others {
			if p := <-all; p != before {
				t.Errorf("priority %d of a goroutine beside, want %d", p, before)
			}
		}
	})
}
