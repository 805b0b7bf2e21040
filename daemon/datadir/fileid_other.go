//go:build unix && !linux

package datadir

import (
	"fmt"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// statFile identifies the file at path by its inode alone. Zero for a file that is not backed by a
// real one.
func statFile(fs vfs.FS, path string) (FileID, error) {
	f, err := fs.Open(path)
	if err != nil {
		return FileID{}, fmt.Errorf("open %s: %w", path, err)
	}
	defer f.Close() // nothing was written
	if f.Fd() == vfs.InvalidFd {
		return FileID{}, nil
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		return FileID{}, fmt.Errorf("stat %s: %w", path, err)
	}
	return FileID{Inode: st.Ino, Device: uint64(st.Dev)}, nil
}
