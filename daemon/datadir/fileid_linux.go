package datadir

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// statFile identifies the file at path. Zero for a file that is not backed by a real one.
func statFile(fs vfs.FS, path string) (FileID, error) {
	f, err := fs.Open(path)
	if err != nil {
		return FileID{}, fmt.Errorf("open %s: %w", path, err)
	}
	defer f.Close() // nothing was written
	if f.Fd() == vfs.InvalidFd {
		return FileID{}, nil
	}
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return FileID{}, fmt.Errorf("statx %s: %w", path, err)
	}
	id := FileID{Inode: st.Ino, Device: unix.Mkdev(st.Dev_major, st.Dev_minor)}
	if st.Mask&unix.STATX_BTIME != 0 {
		id.Birth = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return id, nil
}
