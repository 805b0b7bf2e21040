package simfs

import (
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// file is an open file or directory.
type file struct {
	fs       *FS
	n        *inode
	path     string
	pos      int64
	writable bool
	closed   bool
}

var _ vfs.File = (*file)(nil)

// name is what f is called now: its own path, until it is renamed.
func (f *file) name() string {
	if f.n.path != "" {
		return f.n.path
	}
	return f.path
}

func (f *file) err(op string, err error) error { return pathErr(op, f.path, err) }

func (f *file) Read(p []byte) (int, error) {
	defer f.fs.enter()()
	n, err := f.readAt(p, f.pos)
	f.pos += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	defer f.fs.enter()()
	return f.readAt(p, off)
}

func (f *file) readAt(p []byte, off int64) (int, error) {
	if f.closed {
		return 0, f.err("read", os.ErrClosed)
	}
	if err := f.fs.call(Op{Kind: OpRead, Path: f.name(), Off: off, Bytes: len(p)}).Err; err != nil {
		return 0, f.err("read", err)
	}
	if f.n.dir {
		return 0, f.err("read", syscall.EISDIR)
	}
	if off >= int64(len(f.n.live)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.live[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *file) Write(p []byte) (int, error) {
	defer f.fs.enter()()
	n, err := f.writeAt(p, f.pos)
	f.pos += int64(n)
	return n, err
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	defer f.fs.enter()()
	return f.writeAt(p, off)
}

func (f *file) writeAt(p []byte, off int64) (int, error) {
	if f.closed {
		return 0, f.err("write", os.ErrClosed)
	}
	if !f.writable || f.n.dir {
		return 0, f.err("write", syscall.EBADF)
	}
	fault := f.fs.call(Op{Kind: OpWrite, Path: f.name(), Off: off, Bytes: len(p)})
	if fault.Err != nil {
		n := min(fault.Short, len(p))
		f.fs.write(f.n, off, p[:n])
		return n, f.err("write", fault.Err)
	}
	if grow := off + int64(len(p)) - int64(len(f.n.live)); f.fs.quota > 0 && grow > 0 && f.fs.used+grow > f.fs.quota {
		n := int(max(int64(len(p))-(f.fs.used+grow-f.fs.quota), 0))
		if n > 0 {
			f.fs.write(f.n, off, p[:n])
		}
		return n, f.err("write", syscall.ENOSPC)
	}
	f.fs.write(f.n, off+fault.Misdirect, p)
	return len(p), nil
}

func (f *file) Sync() error     { return f.sync() }
func (f *file) SyncData() error { return f.sync() }

// SyncTo syncs the whole file, which it may.
func (f *file) SyncTo(int64) (fullSync bool, err error) {
	if f.n.dir {
		return false, nil
	}
	return true, f.sync()
}

func (f *file) sync() error {
	defer f.fs.enter()()
	if f.closed {
		return f.err("sync", os.ErrClosed)
	}
	fault := f.fs.call(Op{Kind: OpSync, Path: f.name()})
	if fault.DropPages {
		// What the kernel does after a failed write-back: the pages are clean now, the process goes
		// on reading its own bytes, and no later sync will ever bring them to the disk.
		f.n.pending = nil
	}
	if fault.Err != nil {
		return f.err("sync", fault.Err)
	}
	f.n.sync()
	return nil
}

// Preallocate reserves nothing: a file grows by being written.
func (f *file) Preallocate(int64, int64) error { return nil }

func (f *file) Prefetch(int64, int64) error { return nil }

func (f *file) Fd() uintptr { return vfs.InvalidFd }

func (f *file) Stat() (vfs.FileInfo, error) {
	defer f.fs.enter()()
	if err := f.fs.call(Op{Kind: OpStat, Path: f.name()}).Err; err != nil {
		return nil, f.err("stat", err)
	}
	return info{f.fs.PathBase(f.path), f.n.dir, int64(len(f.n.live))}, nil
}

// Close syncs nothing.
func (f *file) Close() error {
	defer f.fs.enter()()
	if f.closed {
		return f.err("close", os.ErrClosed)
	}
	f.closed = true
	return nil
}

type info struct {
	name string
	dir  bool
	size int64
}

func (i info) Name() string           { return i.name }
func (i info) Size() int64            { return i.size }
func (i info) ModTime() time.Time     { return time.Time{} }
func (i info) IsDir() bool            { return i.dir }
func (i info) Sys() any               { return nil }
func (i info) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
func (i info) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o700
	}
	return 0o600
}
