package snapshot

import (
	"errors"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// pushBytes is how much of a file is written before the disk is asked to take it: it has something to
	// do while the rest arrives, and never much to do at once.
	pushBytes = 1 << 20
	// maxBehind bounds what was written and the disk was not asked to take yet.
	maxBehind = 128 << 20
	// callBytes is what a call of the disk counts for at least, so that small files are bounded too.
	callBytes = 128 << 10
	// diskCalls is how many calls of the disk are under way at once: those that wait for a journal of the
	// file system share its next commit.
	diskCalls = 4
)

// writeback makes files durable beside the transfer that fills them. All methods but those of the calls
// themselves belong to one goroutine, which must end with wait.
type writeback struct {
	slots chan struct{} // an element for every call under way; nil: calls are made by the owner
	calls sync.WaitGroup
	room  sync.Cond // behind has become less

	mu struct {
		sync.Mutex
		behind int64
		err    error // the first one of a call
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

// landing is a file on its way to the disk. It belongs to the owner of the writeback.
type landing struct {
	vfs.File
	written, pushed int64
	pushes          sync.WaitGroup
}

// wrote takes note of n bytes more in f, and waits while the disk is too far behind. It returns the error
// of an earlier call.
func (w *writeback) wrote(f *landing, n int) error {
	f.written += int64(n)
	if w.slots == nil || f.written-f.pushed < pushBytes {
		return w.failed()
	}
	to := f.written
	bytes := to - f.pushed
	f.pushed = to
	f.pushes.Add(1)
	return w.call(bytes, nil, func() error {
		defer f.pushes.Done()
		_, err := f.SyncTo(to)
		return err
	})
}

// end makes f durable and closes it.
func (w *writeback) end(f *landing) error {
	return w.call(f.written-f.pushed, f.pushes.Wait, func() error {
		return errors.Join(f.Sync(), f.Close())
	})
}

// call makes a call of the disk, which takes bytes, once before has returned; nil: at once.
func (w *writeback) call(bytes int64, before func(), call func() error) error {
	if w.slots == nil {
		return call()
	}
	bytes = max(bytes, callBytes)
	w.mu.Lock()
	for w.mu.behind > maxBehind {
		w.room.Wait()
	}
	w.mu.behind += bytes
	w.mu.Unlock()
	w.calls.Go(func() {
		if before != nil {
			before()
		}
		w.slots <- struct{}{}
		err := call()
		<-w.slots
		w.mu.Lock()
		w.mu.behind -= bytes
		if w.mu.err == nil {
			w.mu.err = err
		}
		w.mu.Unlock()
		w.room.Signal()
	})
	return w.failed()
}

// failed returns the first error of a call beside the owner.
func (w *writeback) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.err
}

// wait waits for all calls and returns the first error of one.
func (w *writeback) wait() error {
	w.calls.Wait()
	return w.failed()
}

// abandon closes a file that is written anew or removed.
func (f *landing) abandon() {
	f.pushes.Wait()
	_ = f.Close()
}
