package state

import (
	"context"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// foregroundSublevels is how many overlapping layers of fresh tables make Flush compact where nothing does
// beside it.
const foregroundSublevels = 4

// settleLocked does what Pebble would do in the background: it compacts, now and then, and removes the files
// that are not needed. REQUIRES: write held.
func (s *Store) settleLocked() error {
	if n, err := s.sublevels(); err != nil {
		return err
	} else if n >= foregroundSublevels {
		// A compaction that fails waits in the fuse for Close.
		ctx, cancel := context.WithCancel(context.Background())
		stop := make(chan struct{})
		var watch sync.WaitGroup
		watch.Go(func() {
			defer cancel()
			select {
			case <-s.fuse.blown:
			case <-stop:
			}
		})
		err := s.db.Compact(ctx, []byte{table}, []byte{0xff}, false)
		close(stop)
		watch.Wait()
		if err != nil {
			s.fuse.blow(err)
		}
	}
	if err := s.fuse.error(); err != nil {
		return err
	}
	s.removeObsolete()
	return s.fuse.error()
}

// removeObsolete removes the files that Pebble does not need any more.
func (s *Store) removeObsolete() {
	s.db.TestOnlyWaitForCleaning()
	s.obsolete.remove(s.fs)
}

// obsolete takes note of files rather than removing them: Pebble cleans on a goroutine of its own, beside
// whatever it does next, and the order of file operations would differ from one run to another.
type obsolete struct {
	mu    sync.Mutex
	names []string
}

// note takes note of a file that nobody needs.
func (o *obsolete) note(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.names = append(o.names, name)
}

// remove removes what was noted since the last call. A file that stays is found when the store is opened.
func (o *obsolete) remove(fs vfs.FS) {
	o.mu.Lock()
	names := o.names
	o.names = nil
	o.mu.Unlock()
	slices.Sort(names)
	for _, name := range names {
		_ = fs.Remove(name)
	}
}
