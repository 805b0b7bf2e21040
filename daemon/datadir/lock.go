package datadir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// lock takes the lock at path, or says who has it.
//
// The holder is asked of the kernel rather than read from the file: vfs.FS.Lock empties the file, a
// written pid outlives its process, and a process that opens and closes the file of a lock it holds
// loses the lock. So nothing here opens it, but for a lock that another process holds.
func lock(fs vfs.FS, path string) (io.Closer, error) {
	closer, err := fs.Lock(path)
	if err == nil {
		return closer, nil
	}
	// Only a bare errno comes from locking; of a file that cannot be created it is in a PathError.
	errno, bare := err.(syscall.Errno) //nolint:errorlint // see above
	if !bare || !errors.Is(errno, syscall.EAGAIN) && !errors.Is(errno, syscall.EACCES) {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return nil, &LockedError{Path: path, PID: lockHolder(fs, path)}
}

// lockHolder returns the process that holds the lock at path, 0 if it cannot be known.
func lockHolder(fs vfs.FS, path string) int {
	f, err := fs.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close() // nothing was written
	if f.Fd() == vfs.InvalidFd {
		return os.Getpid() // in memory, where only this process can be
	}
	query := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &query); err != nil || query.Type == syscall.F_UNLCK {
		return 0
	}
	return int(query.Pid)
}
