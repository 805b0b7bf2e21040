package simfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrCrashed is what every call returns once the power is off.
var ErrCrashed = errors.New("simfs: the power is off")

// SectorBytes is what a disk writes as a whole; a torn write tears between sectors, a torn sector
// within one.
const SectorBytes = 512

// FS is the file system. Its methods are safe for concurrent use.
type FS struct {
	mu sync.Mutex

	root   *inode
	nextID uint64 // of the next inode
	seq    uint64 // of the newest operation that a crash may lose

	calls   int                             // of every kind, from 1
	changes int                             // calls that change something, from 1
	order   struct{ reads, changes uint64 } // see Order
	harmed  bool                            // a fault, a bound or a cut was set once
	off     bool
	cutAt   int // the change at which the power goes off; 0: never
	fault   func(Op) Fault
	quota   int64 // bytes; 0: none
	used    int64 // bytes that the process sees
}

// New returns an empty file system whose root directory exists.
func New() *FS {
	fs := &FS{}
	fs.root = fs.newInode(true)
	return fs
}

var _ vfs.FS = (*FS)(nil)

// inode is a file or a directory, by whatever names it has.
type inode struct {
	id   uint64 // in order of creation, never reused in one FS
	dir  bool
	path string // under which it was made, or to which it was renamed last; for Op.Path

	// A file: what the process sees, what is on the disk, and the operations between the two in the
	// order they were issued.
	live, disk []byte
	pending    []dataOp

	// A directory, likewise.
	names, diskNames map[string]*inode
	pendingNames     []nameOp

	locked bool
}

// dataOp is a write, or a truncation when data is nil.
type dataOp struct {
	seq  uint64
	off  int64 // truncation: the new size
	data []byte
}

// nameOp sets names of one directory at once; a nil inode takes the name away.
type nameOp struct {
	seq  uint64
	sets []nameSet
}

type nameSet struct {
	name string
	to   *inode
}

func (fs *FS) newInode(dir bool) *inode {
	fs.nextID++
	n := &inode{id: fs.nextID, dir: dir}
	if dir {
		n.names, n.diskNames = map[string]*inode{}, map[string]*inode{}
	}
	return n
}

func (fs *FS) nextSeq() uint64 {
	fs.seq++
	return fs.seq
}

// write changes what the process sees. The caller has checked the quota.
func (fs *FS) write(n *inode, off int64, data []byte) {
	if len(data) == 0 {
		return
	}
	data = slices.Clone(data)
	before := len(n.live)
	n.live = writeAt(n.live, off, data)
	fs.used += int64(len(n.live) - before)
	n.pending = append(n.pending, dataOp{fs.nextSeq(), off, data})
}

// writeAt returns b with data at off, zeros filling a gap.
func writeAt(b []byte, off int64, data []byte) []byte {
	if end := off + int64(len(data)); end > int64(len(b)) {
		b = slices.Grow(b, int(end)-len(b))
		n := len(b)
		b = b[:end]
		clear(b[n:])
	}
	copy(b[off:], data)
	return b
}

// resize truncates b or extends it by zeros.
func resize(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		return b[:size]
	}
	return append(b, make([]byte, size-int64(len(b)))...)
}

func (op dataOp) applyTo(b []byte) []byte {
	if op.data == nil {
		return resize(b, op.off)
	}
	return writeAt(b, op.off, op.data)
}

func (n *inode) setNames(fs *FS, sets ...nameSet) {
	for _, s := range sets {
		setName(n.names, s)
	}
	n.pendingNames = append(n.pendingNames, nameOp{fs.nextSeq(), sets})
}

func setName(names map[string]*inode, s nameSet) {
	if s.to == nil {
		delete(names, s.name)
	} else {
		names[s.name] = s.to
	}
}

// sync moves what the process sees to the disk.
func (n *inode) sync() {
	for _, op := range n.pending {
		n.disk = op.applyTo(n.disk)
	}
	n.pending = nil
	for _, op := range n.pendingNames {
		for _, s := range op.sets {
			setName(n.diskNames, s)
		}
	}
	n.pendingNames = nil
}

// split returns the clean elements of a path; the root has none.
func split(name string) []string {
	name = strings.Trim(path.Clean("/"+name), "/")
	if name == "" {
		return nil
	}
	return strings.Split(name, "/")
}

func pathErr(op, name string, err error) error { return &os.PathError{Op: op, Path: name, Err: err} }

// find returns the inode of a path, or an error that satisfies os.ErrNotExist.
func (fs *FS) find(op, name string) (*inode, error) {
	n := fs.root
	for _, elem := range split(name) {
		next, ok := n.names[elem]
		if !ok || !n.dir {
			return nil, pathErr(op, name, os.ErrNotExist)
		}
		n = next
	}
	return n, nil
}

// parent returns the directory that holds name, and the last element.
func (fs *FS) parent(op, name string) (*inode, string, error) {
	elems := split(name)
	if len(elems) == 0 {
		return nil, "", pathErr(op, name, os.ErrInvalid)
	}
	dir, err := fs.find(op, strings.Join(elems[:len(elems)-1], "/"))
	if err != nil {
		return nil, "", pathErr(op, name, os.ErrNotExist)
	}
	if !dir.dir {
		return nil, "", pathErr(op, name, syscall.ENOTDIR)
	}
	return dir, elems[len(elems)-1], nil
}

func (fs *FS) create(name string) (*inode, error) {
	dir, base, err := fs.parent("create", name)
	if err != nil {
		return nil, err
	}
	if old, ok := dir.names[base]; ok {
		if old.dir {
			return nil, pathErr("create", name, syscall.EISDIR)
		}
		fs.used -= int64(len(old.live))
	}
	n := fs.newInode(false)
	n.path = name
	dir.setNames(fs, nameSet{base, n})
	return n, nil
}

// Create makes a new file, in place of one that has the name.
func (fs *FS) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	defer fs.enter()()
	if err := fs.change(Op{Kind: OpCreate, Path: name}); err != nil {
		return nil, pathErr("create", name, err)
	}
	n, err := fs.create(name)
	if err != nil {
		return nil, err
	}
	return &file{fs: fs, n: n, path: name, writable: true}, nil
}

// Open opens a file or a directory for reading.
func (fs *FS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	defer fs.enter()()
	if err := fs.call(Op{Kind: OpOpen, Path: name}).Err; err != nil {
		return nil, pathErr("open", name, err)
	}
	n, err := fs.find("open", name)
	if err != nil {
		return nil, err
	}
	f := &file{fs: fs, n: n, path: name}
	for _, o := range opts {
		o.Apply(f)
	}
	return f, nil
}

// OpenReadWrite opens a file for reading and writing; it is made if there is none.
func (fs *FS) OpenReadWrite(name string, _ vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File, error) {
	defer fs.enter()()
	n, err := fs.find("open", name)
	if err == nil {
		if err := fs.call(Op{Kind: OpOpen, Path: name}).Err; err != nil {
			return nil, pathErr("open", name, err)
		}
	} else {
		if err := fs.change(Op{Kind: OpCreate, Path: name}); err != nil {
			return nil, pathErr("open", name, err)
		}
		if n, err = fs.create(name); err != nil {
			return nil, err
		}
	}
	return &file{fs: fs, n: n, path: name, writable: true}, nil
}

// OpenDir opens a directory for syncing.
func (fs *FS) OpenDir(name string) (vfs.File, error) {
	defer fs.enter()()
	if err := fs.call(Op{Kind: OpOpen, Path: name}).Err; err != nil {
		return nil, pathErr("open", name, err)
	}
	n, err := fs.find("open", name)
	if err != nil {
		return nil, err
	}
	if !n.dir {
		return nil, pathErr("open", name, syscall.ENOTDIR)
	}
	return &file{fs: fs, n: n, path: name}, nil
}

// Link gives a file a second name.
func (fs *FS) Link(oldname, newname string) error {
	defer fs.enter()()
	if err := fs.change(Op{Kind: OpLink, Path: newname}); err != nil {
		return pathErr("link", newname, err)
	}
	n, err := fs.find("link", oldname)
	if err != nil {
		return err
	}
	dir, base, err := fs.parent("link", newname)
	if err != nil {
		return err
	}
	if _, ok := dir.names[base]; ok {
		return pathErr("link", newname, os.ErrExist)
	}
	dir.setNames(fs, nameSet{base, n})
	return nil
}

// Remove takes a name away; a directory must be empty.
func (fs *FS) Remove(name string) error {
	defer fs.enter()()
	if err := fs.change(Op{Kind: OpRemove, Path: name}); err != nil {
		return pathErr("remove", name, err)
	}
	dir, base, err := fs.parent("remove", name)
	if err != nil {
		return err
	}
	n, ok := dir.names[base]
	if !ok {
		return pathErr("remove", name, os.ErrNotExist)
	}
	if len(n.names) > 0 {
		return pathErr("remove", name, syscall.ENOTEMPTY)
	}
	fs.used -= int64(len(n.live))
	dir.setNames(fs, nameSet{base, nil})
	return nil
}

// RemoveAll takes a name away with everything below it, one name after the other as rm does.
func (fs *FS) RemoveAll(name string) error {
	n, err := func() (*inode, error) {
		defer fs.enter()()
		return fs.find("remove", name)
	}()
	if err != nil {
		return nil // nothing there
	}
	if n.dir {
		children, err := fs.List(name)
		if err != nil {
			return err
		}
		for _, c := range children {
			if err := fs.RemoveAll(fs.PathJoin(name, c)); err != nil {
				return err
			}
		}
	}
	return fs.Remove(name)
}

// Rename moves a name, in place of a file that has the new one. Within one directory it reaches the
// disk whole; between two, each directory's part reaches it on its own.
func (fs *FS) Rename(oldname, newname string) error {
	defer fs.enter()()
	if err := fs.change(Op{Kind: OpRename, Path: oldname, To: newname}); err != nil {
		return pathErr("rename", oldname, err)
	}
	from, oldBase, err := fs.parent("rename", oldname)
	if err != nil {
		return err
	}
	n, ok := from.names[oldBase]
	if !ok {
		return pathErr("rename", oldname, os.ErrNotExist)
	}
	to, newBase, err := fs.parent("rename", newname)
	if err != nil {
		return err
	}
	if old, ok := to.names[newBase]; ok && old != n {
		if old.dir && len(old.names) > 0 {
			return pathErr("rename", newname, syscall.ENOTEMPTY)
		}
		fs.used -= int64(len(old.live))
	}
	n.path = newname
	if from == to {
		from.setNames(fs, nameSet{oldBase, nil}, nameSet{newBase, n})
		return nil
	}
	from.setNames(fs, nameSet{oldBase, nil})
	to.setNames(fs, nameSet{newBase, n})
	return nil
}

// ReuseForWrite renames a file and opens it for writing without truncation.
func (fs *FS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := fs.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return fs.OpenReadWrite(newname, c)
}

// MkdirAll makes a directory and its ancestors, one change each.
func (fs *FS) MkdirAll(dir string, _ os.FileMode) error {
	defer fs.enter()()
	n := fs.root
	for _, elem := range split(dir) {
		next, ok := n.names[elem]
		if !ok {
			if err := fs.change(Op{Kind: OpMkdir, Path: dir}); err != nil {
				return pathErr("mkdir", dir, err)
			}
			next = fs.newInode(true)
			n.setNames(fs, nameSet{elem, next})
		}
		if !next.dir {
			return pathErr("mkdir", dir, syscall.ENOTDIR)
		}
		n = next
	}
	return nil
}

// Lock takes the lock of a file, which is made if there is none.
func (fs *FS) Lock(name string) (io.Closer, error) {
	defer fs.enter()()
	n, err := fs.find("lock", name)
	if err != nil {
		if err := fs.change(Op{Kind: OpCreate, Path: name}); err != nil {
			return nil, pathErr("lock", name, err)
		}
		if n, err = fs.create(name); err != nil {
			return nil, err
		}
	} else if err := fs.call(Op{Kind: OpOpen, Path: name}).Err; err != nil {
		return nil, pathErr("lock", name, err)
	}
	if n.locked {
		return nil, pathErr("lock", name, syscall.EAGAIN)
	}
	n.locked = true
	return &lock{fs, n}, nil
}

type lock struct {
	fs *FS
	n  *inode
}

func (l *lock) Close() error {
	defer l.fs.enter()()
	l.n.locked = false
	return nil
}

// List returns the names in a directory, sorted.
func (fs *FS) List(dir string) ([]string, error) {
	defer fs.enter()()
	if err := fs.call(Op{Kind: OpList, Path: dir}).Err; err != nil {
		return nil, pathErr("list", dir, err)
	}
	n, err := fs.find("list", dir)
	if err != nil {
		return nil, err
	}
	if !n.dir {
		return nil, pathErr("list", dir, syscall.ENOTDIR)
	}
	return sortedNames(n.names), nil
}

func sortedNames(m map[string]*inode) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Stat describes a file or a directory.
func (fs *FS) Stat(name string) (vfs.FileInfo, error) {
	defer fs.enter()()
	if err := fs.call(Op{Kind: OpStat, Path: name}).Err; err != nil {
		return nil, pathErr("stat", name, err)
	}
	n, err := fs.find("stat", name)
	if err != nil {
		return nil, err
	}
	return info{path.Base(name), n.dir, int64(len(n.live))}, nil
}

// PathBase returns the last element of a path.
func (fs *FS) PathBase(p string) string { return path.Base(p) }

// PathJoin joins elements by slashes.
func (fs *FS) PathJoin(elem ...string) string { return path.Join(elem...) }

// PathDir returns all but the last element of a path.
func (fs *FS) PathDir(p string) string { return path.Dir(p) }

// GetDiskUsage says what the quota leaves; without one, a terabyte.
func (fs *FS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	defer fs.enter()()
	total := fs.quota
	if total == 0 {
		total = 1 << 40
	}
	return vfs.DiskUsage{AvailBytes: uint64(max(total-fs.used, 0)), TotalBytes: uint64(total), UsedBytes: uint64(fs.used)}, nil
}

// Unwrap returns nil: there is nothing below.
func (fs *FS) Unwrap() vfs.FS { return nil }

// Inode returns a number that names the file itself, whatever it is called: a copy has another one.
func (fs *FS) Inode(name string) (uint64, error) {
	defer fs.enter()()
	n, err := fs.find("stat", name)
	if err != nil {
		return 0, err
	}
	return n.id, nil
}

// CopyTree copies a directory with everything below it, as `cp -r` and a sync would.
func (fs *FS) CopyTree(from, to string) error {
	defer fs.enter()()
	n, err := fs.find("copy", from)
	if err != nil {
		return err
	}
	dir, base, err := fs.parent("copy", to)
	if err != nil {
		return err
	}
	dir.setNames(fs, nameSet{base, fs.copyOf(n)})
	dir.sync()
	return nil
}

func (fs *FS) copyOf(n *inode) *inode {
	c := fs.newInode(n.dir)
	c.live, c.disk = slices.Clone(n.live), slices.Clone(n.live)
	fs.used += int64(len(n.live))
	for _, name := range sortedNames(n.names) {
		child := fs.copyOf(n.names[name])
		c.names[name], c.diskNames[name] = child, child
	}
	return c
}

// String lists every file the process sees with its size, for messages.
func (fs *FS) String() string {
	defer fs.enter()()
	var b strings.Builder
	var walk func(prefix string, n *inode)
	walk = func(prefix string, n *inode) {
		for _, name := range sortedNames(n.names) {
			c := n.names[name]
			if c.dir {
				walk(prefix+name+"/", c)
			} else {
				fmt.Fprintf(&b, "%s%s %d\n", prefix, name, len(c.live))
			}
		}
	}
	walk("/", fs.root)
	return b.String()
}
