// Package nice has work that nobody waits for give way to requests: on a machine with few processors a
// transfer or a scrub would otherwise take whole time slices from the goroutines that answer clients.
package nice

import (
	"runtime"
	"sync"
)

// Do runs f on a thread of its own with a low priority, and returns when f has. Where the operating system
// has no priorities of threads it only runs f. What f hands to other goroutines is not lowered.
func Do(f func()) {
	var thread sync.WaitGroup
	thread.Go(func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with f, since its priority cannot be raised again
		lower()
		f()
	})
	thread.Wait()
}
