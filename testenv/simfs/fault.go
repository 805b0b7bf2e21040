package simfs

import (
	"fmt"
	"slices"
	"syscall"
)

// OpKind is the kind of a call.
type OpKind uint8

// The kinds.
const (
	OpOpen OpKind = iota
	OpRead
	OpList
	OpStat
	OpCreate // the first of those that change something
	OpWrite
	OpSync
	OpLink
	OpRemove
	OpRename
	OpMkdir
)

// String returns the name of the call.
func (k OpKind) String() string {
	return [...]string{"open", "read", "list", "stat", "create", "write", "sync", "link", "remove", "rename", "mkdir"}[k]
}

// Changes reports whether a call of this kind changes what is on the disk or what will be.
func (k OpKind) Changes() bool { return k >= OpCreate }

// Op is one call, before it is carried out.
type Op struct {
	N     int // among all calls of this FS, from 1
	Kind  OpKind
	Path  string
	To    string // rename
	Off   int64  // read, write
	Bytes int    // read, write
}

// String describes a call for messages.
func (o Op) String() string { return fmt.Sprintf("#%d %s %s", o.N, o.Kind, o.Path) }

// Fault is what happens to a call. The zero Fault lets it pass.
type Fault struct {
	Err error // returned; the call does nothing but for Short and DropPages
	// Short is how many bytes a failing write has written.
	Short int
	// DropPages makes a sync forget what it should have written: what the process reads stays, what
	// is on the disk never changes. With Err it is the failed sync of a real kernel, without it the
	// lying disk.
	DropPages bool
	// Misdirect is added to the offset of a write that succeeds.
	Misdirect int64
	// Before runs first, without any lock: latency, or a hang.
	Before func()
}

// SetFault has f decide over every call from now on; nil lets all pass. f runs under no lock but must
// not call the file system.
func (fs *FS) SetFault(f func(Op) Fault) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.fault, fs.harmed = f, fs.harmed || f != nil
}

// SetQuota bounds the bytes of all files; a write beyond it writes what fits and fails with ENOSPC.
// 0 lifts the bound.
func (fs *FS) SetQuota(bytes int64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.quota, fs.harmed = bytes, fs.harmed || bytes != 0
}

// CutPowerAt turns the power off at the nth change from now, which does not happen any more. 0
// unsets it.
func (fs *FS) CutPowerAt(n int) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.cutAt = 0
	if n > 0 {
		fs.harmed = true
		fs.cutAt = fs.changes + n
	}
}

// CutPower turns the power off now. To draw an image of a disk that is in use, turn it off first: what
// its process says after the image was drawn is not in the image.
func (fs *FS) CutPower() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.off = true
}

// Off reports whether the power is off.
func (fs *FS) Off() bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.off
}

// Calls returns how many calls there were, and how many of them changed something.
func (fs *FS) Calls() (all, changing int) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.calls, fs.changes
}

// Order returns two numbers that tell the calls so far from others, or from the same in another order, by their
// kinds, offsets and lengths. Those that change nothing are apart, because a table is written beside the
// reading of what goes into it; and they count for nothing once calls may have failed, because how much was
// read by then is chance.
func (fs *FS) Order() (reads, changes uint64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.harmed {
		return 0, fs.order.changes
	}
	return fs.order.reads, fs.order.changes
}

// Flip turns one bit of a file around, on the disk and for the process: rot.
func (fs *FS) Flip(name string, off int64, bit uint) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n, err := fs.find("flip", name)
	if err != nil {
		return err
	}
	if off < 0 || off >= int64(len(n.live)) {
		return pathErr("flip", name, fmt.Errorf("offset %d of %d bytes", off, len(n.live)))
	}
	n.live[off] ^= 1 << (bit % 8)
	if off < int64(len(n.disk)) {
		n.disk[off] ^= 1 << (bit % 8)
	}
	return nil
}

// Truncate cuts a file, on the disk and for the process.
func (fs *FS) Truncate(name string, size int64) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n, err := fs.find("truncate", name)
	if err != nil {
		return err
	}
	fs.used += size - int64(len(n.live))
	n.live, n.pending = resize(n.live, size), nil
	n.disk = slices.Clone(n.live)
	return nil
}

func (fs *FS) enter() (leave func()) {
	fs.mu.Lock()
	return fs.mu.Unlock
}

// call counts a call and decides what becomes of it. The lock is held; it is released while the
// fault's Before runs.
func (fs *FS) call(op Op) Fault {
	if fs.off {
		return Fault{Err: ErrCrashed}
	}
	fs.calls++
	op.N = fs.calls
	order := &fs.order.reads
	if op.Kind.Changes() {
		order = &fs.order.changes
	}
	*order = *order*1099511628211 + uint64(op.Off)<<24 + uint64(op.Bytes)<<8 + uint64(op.Kind) + 1
	if op.Kind.Changes() {
		fs.changes++
		if fs.changes == fs.cutAt {
			fs.off = true
			return Fault{Err: ErrCrashed}
		}
	}
	if fs.fault == nil {
		return Fault{}
	}
	decide := fs.fault
	fs.mu.Unlock()
	f := decide(op)
	if f.Before != nil {
		f.Before()
	}
	fs.mu.Lock()
	if fs.off {
		return Fault{Err: ErrCrashed}
	}
	return f
}

// change is call for those that cannot be half done.
func (fs *FS) change(op Op) error {
	f := fs.call(op)
	if f.Err == nil && fs.quota > 0 && fs.used >= fs.quota && (op.Kind == OpCreate || op.Kind == OpMkdir) {
		return syscall.ENOSPC
	}
	return f.Err
}
