package snapshot

import (
	"errors"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// pushBytes is how much of a file is written before the disk is asked to take it. Where little comes at
	// a time the disk never has much to do at once, and others who sync there wait for little; where much
	// comes, each push takes all that came during the one before.
	pushBytes = 256 << 10
	// maxBehind bounds what was written and the disk has not taken yet.
	maxBehind = 256 << 20
	// fileBytes is what a file counts for beside its bytes while it is synced, so that small ones are
	// bounded too.
	fileBytes = 128 << 10
	// diskCalls is how many calls of the disk are under way at once: those that wait for a journal of the
	// file system share its next commit.
	diskCalls = 4
)

// writeback makes files durable beside the transfer that fills them. Its methods belong to one goroutine,
// which must end with wait.
type writeback struct {
	slots chan struct{} // an element for every call of the disk under way; nil: the owner makes them
	tasks sync.WaitGroup
	room  sync.Cond // behind has become less, or err was set

	// mu guards the fields of every landing as well.
	mu struct {
		sync.Mutex
		behind int64
		err    error // the first one of the disk
	}
}

// newWriteback returns a writeback; foreground has its owner wait for every call.
func newWriteback(foreground bool) *writeback {
	w := &writeback{}
	w.room.L = &w.mu
	if !foreground {
		w.slots = make(chan struct{}, diskCalls)
	}
	return w
}

// landing is a file on its way to the disk.
type landing struct {
	vfs.File
	pushes sync.WaitGroup // of the task that pushes it

	written, pushed int64
	pushing, whole  bool
}

// wrote takes note of n bytes more in f, and waits while the disk is too far behind. It returns the error
// of an earlier call.
func (w *writeback) wrote(f *landing, n int) error {
	if w.slots == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f.written += int64(n)
	w.mu.behind += int64(n)
	if !f.pushing && f.written-f.pushed >= pushBytes {
		f.pushing = true
		f.pushes.Add(1)
		w.tasks.Go(func() { w.push(f) })
	}
	for w.mu.behind > maxBehind && w.mu.err == nil {
		w.room.Wait()
	}
	return w.mu.err
}

// push has the disk take what there is of f, until that is little, or all.
func (w *writeback) push(f *landing) {
	defer f.pushes.Done()
	for {
		w.mu.Lock()
		from, to := f.pushed, f.written
		if to-from < pushBytes || f.whole || w.mu.err != nil {
			f.pushing = false
			w.mu.Unlock()
			return
		}
		f.pushed = to
		w.mu.Unlock()
		w.call(to-from, func() error {
			_, err := f.SyncTo(to)
			return err
		})
	}
}

// end makes f, which is whole, durable and closes it.
func (w *writeback) end(f *landing) error {
	if w.slots == nil {
		return errors.Join(f.Sync(), f.Close())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f.whole = true
	w.mu.behind += fileBytes
	w.tasks.Go(func() {
		f.pushes.Wait() // whoever waits holds no slot
		w.call(f.written-f.pushed+fileBytes, func() error { return errors.Join(f.Sync(), f.Close()) })
	})
	return w.mu.err
}

// call makes a call of the disk, which takes bytes.
func (w *writeback) call(bytes int64, call func() error) {
	w.slots <- struct{}{}
	err := call()
	<-w.slots
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.behind -= bytes
	if w.mu.err == nil {
		w.mu.err = err
	}
	w.room.Signal()
}

// wait waits for all calls and returns the first error of one.
func (w *writeback) wait() error {
	w.tasks.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.err
}

// abandon closes a file that is written anew or removed.
func (f *landing) abandon() {
	f.pushes.Wait()
	_ = f.Close()
}
