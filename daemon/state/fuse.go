package state

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidaldb/tidal/daemon/durable"
)

// fuse is what makes a store fail closed.
//
// Pebble retries a failed flush for ever, syncs a manifest again that failed to sync before, and
// calls Fatalf where it cannot go on, expecting the process to end. After a failed sync the page
// cache may claim what the disk does not have, so none of that is right here, and one group must not
// end the process. So the first error of a write path blows the fuse: from then on Pebble cannot
// change a byte or a name of its directory, and the store answers every call with that error.
type fuse struct {
	// blown is closed when err is set and the owner was told: what a caller that waited does next, it does
	// after that.
	blown chan struct{}

	// armed is set once there is an owner to be told, who will call Close.
	armed atomic.Bool

	mu struct {
		sync.Mutex
		err     error       // set once
		onFatal func(error) // may be nil
	}

	// released is closed when the store closes. Until then, Pebble's background work waits in the
	// first change it tries after the fuse has blown, instead of trying again and again.
	released chan struct{}
	release  func()
}

func newFuse() *fuse {
	f := &fuse{blown: make(chan struct{}), released: make(chan struct{})}
	f.release = sync.OnceFunc(func() { close(f.released) })
	return f
}

// blow makes err the end of the store, unless one came before, and tells the owner.
func (f *fuse) blow(err error) {
	f.mu.Lock()
	if f.mu.err != nil {
		f.mu.Unlock()
		return
	}
	f.mu.err = err
	tell := f.mu.onFatal
	f.mu.Unlock()
	if tell != nil {
		tell(err)
	}
	close(f.blown)
}

// arm names the owner to tell; nil: nobody. An error that came before is returned instead.
func (f *fuse) arm(onFatal func(error)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.err != nil {
		return f.mu.err
	}
	f.mu.onFatal = onFatal
	f.armed.Store(true)
	return nil
}

// pace slows down what Pebble does again at once when it fails, as reading the statistics of its
// tables: a store that waits to be closed must not take a whole core.
func (f *fuse) pace() {
	select {
	case <-f.released:
	case <-time.After(10 * time.Millisecond):
	}
}

// error returns what blew the fuse, or nil.
func (f *fuse) error() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.err
}

// change runs one change of the file system.
//
// Before the fuse is armed, a change that fails, or is not made any more, is said to be made. There is
// no Close yet to release what waits; pebble.Open repeats a flush until it succeeds; and if it gives
// up after that, it leaves background work behind which panics. So it is led to its end, and who
// opens looks at the fuse afterwards.
func (f *fuse) change(do func() error) error {
	err := f.error()
	switch {
	case err == nil:
		if err = do(); err != nil && !mutantFuseSilent {
			f.blow(err)
		}
	case f.armed.Load():
		<-f.released
	}
	if !f.armed.Load() {
		return nil
	}
	return err
}

// logger is Pebble's logger.
type logger struct {
	log  *slog.Logger
	fuse *fuse
}

func (l logger) Infof(format string, args ...any) {
	l.log.Debug("pebble says", slog.String("text", fmt.Sprintf(format, args...)))
}

func (l logger) Errorf(format string, args ...any) {
	l.log.Warn("pebble complains", slog.String("text", fmt.Sprintf(format, args...)))
}

// Fatalf returns, which Pebble does not expect; the fuse keeps what it does next off the disk.
func (l logger) Fatalf(format string, args ...any) {
	l.fuse.blow(fmt.Errorf("pebble: "+format, args...))
}

// fusedFS lets changes through while the fuse is whole, and reads always. What Pebble does to make a
// checkpoint, elsewhere than in the store's own directory, is no business of the fuse: it may fail
// without harm to the store.
type fusedFS struct {
	vfs.FS
	fuse   *fuse
	dir    string                  // of the store
	copies *atomic.Pointer[string] // where checkpoints are made
	// obsolete takes note of files instead of having them removed. nil: they are removed.
	obsolete *obsolete
}

// ofCopy reports whether name is a checkpoint, one of its files, or the directory above.
func (fs *fusedFS) ofCopy(name string) bool {
	root := fs.copies.Load()
	if root == nil || name == fs.dir || fs.PathDir(name) == fs.dir {
		return false
	}
	return name == *root || fs.PathDir(name) == *root || fs.PathDir(fs.PathDir(name)) == *root
}

func (fs *fusedFS) Unwrap() vfs.FS { return fs.FS }

// Create syncs the directory before a marker is made in it. Pebble makes a manifest, syncs its
// content, makes the marker that names it, and only then syncs their directory; a file system that
// keeps the later name and not the earlier would leave a marker to nothing.
func (fs *fusedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if fs.ofCopy(name) {
		return fs.FS.Create(name, c)
	}
	if err := fs.beforeMarker(name); err != nil {
		return nil, err
	}
	return fs.open(func() (vfs.File, error) { return fs.FS.Create(name, c) })
}

// beforeMarker syncs the directory that name is in, if it is a marker's.
func (fs *fusedFS) beforeMarker(name string) error {
	if !isMarker(fs.PathBase(name)) {
		return nil
	}
	return fs.fuse.change(func() error { return durable.SyncDir(fs.FS, fs.PathDir(name)) })
}

// isMarker reports whether base is the name of a file that says which of others is valid.
func isMarker(base string) bool { return strings.HasPrefix(base, "marker.") }

func (fs *fusedFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return fs.open(func() (vfs.File, error) { return fs.FS.OpenReadWrite(name, c, opts...) })
}

func (fs *fusedFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return fs.open(func() (vfs.File, error) { return fs.FS.ReuseForWrite(from, to, c) })
}

func (fs *fusedFS) open(do func() (vfs.File, error)) (vfs.File, error) {
	var file vfs.File
	err := fs.fuse.change(func() (err error) { file, err = do(); return err })
	if err == nil && file == nil { // only said to be made: what is written to it goes nowhere
		file, err = vfs.NewMem().Create("discard", vfs.WriteCategoryUnspecified)
	}
	if err != nil {
		return nil, err
	}
	return &fusedFile{File: file, fuse: fs.fuse}, nil
}

// List counts as a change because pebble.Open lists the directory once more near its end.
func (fs *fusedFS) List(dir string) (names []string, err error) {
	if fs.ofCopy(dir) {
		return fs.FS.List(dir)
	}
	err = fs.fuse.change(func() (err error) { names, err = fs.FS.List(dir); return err })
	return names, err
}

// OpenDir returns a directory whose failed sync blows the fuse and is not reported to Pebble, which
// would panic (atomicfs.Marker).
func (fs *fusedFS) OpenDir(name string) (vfs.File, error) {
	dir, err := fs.FS.OpenDir(name)
	if err != nil || fs.ofCopy(name) {
		return dir, err
	}
	return &fusedDir{File: dir, fuse: fs.fuse}, nil
}

func (fs *fusedFS) Link(from, to string) error {
	if fs.ofCopy(to) {
		return fs.FS.Link(from, to)
	}
	return fs.fuse.change(func() error { return fs.FS.Link(from, to) })
}

func (fs *fusedFS) Rename(from, to string) error {
	return fs.fuse.change(func() error { return fs.FS.Rename(from, to) })
}

func (fs *fusedFS) MkdirAll(dir string, perm os.FileMode) error {
	if fs.ofCopy(dir) {
		return fs.FS.MkdirAll(dir, perm)
	}
	return fs.fuse.change(func() error { return fs.FS.MkdirAll(dir, perm) })
}

// Remove does not blow the fuse: a file that stays is garbage, not a lie. It syncs the directory
// before a marker goes: Pebble makes the new marker, removes the old one, and only then syncs; a file
// system that keeps the removal and not the new name would leave a store without any.
func (fs *fusedFS) Remove(name string) error {
	if fs.ofCopy(name) {
		return fs.FS.Remove(name)
	}
	if err := fs.beforeMarker(name); err != nil {
		return err
	}
	if err := fs.fuse.error(); err != nil {
		return err
	}
	if fs.obsolete != nil && !isMarker(fs.PathBase(name)) {
		fs.obsolete.note(name)
		return nil
	}
	return fs.FS.Remove(name)
}

func (fs *fusedFS) RemoveAll(name string) error {
	if fs.ofCopy(name) {
		return fs.FS.RemoveAll(name)
	}
	if err := fs.fuse.error(); err != nil {
		return err
	}
	return fs.FS.RemoveAll(name)
}

type fusedDir struct {
	vfs.File
	fuse *fuse
}

func (d *fusedDir) Sync() error {
	_ = d.fuse.change(d.File.Sync)
	return nil
}

type fusedFile struct {
	vfs.File
	fuse *fuse
}

func (f *fusedFile) Write(b []byte) (n int, err error) {
	err = f.fuse.change(func() (err error) {
		if n, err = f.File.Write(b); err == nil && n < len(b) {
			err = io.ErrShortWrite
		}
		return err
	})
	return said(n, b, err)
}

// said is what a write returns: one that is only said to be made has written all, for a writer that
// hears of no error and no progress tries for ever.
func said(n int, b []byte, err error) (int, error) {
	if err == nil {
		n = len(b)
	}
	return n, err
}

func (f *fusedFile) WriteAt(b []byte, at int64) (n int, err error) {
	err = f.fuse.change(func() (err error) { n, err = f.File.WriteAt(b, at); return err })
	return said(n, b, err)
}

func (f *fusedFile) Sync() error     { return f.fuse.change(f.File.Sync) }
func (f *fusedFile) SyncData() error { return f.fuse.change(f.File.SyncData) }

func (f *fusedFile) SyncTo(n int64) (full bool, err error) {
	err = f.fuse.change(func() (err error) { full, err = f.File.SyncTo(n); return err })
	return full, err
}
