package state

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Inspect shows read the store in dir, which nobody has open, without its lock and without changing
// anything. It shows what is flushed: what a start would find before it applies the log.
func Inspect(fs vfs.FS, dir string, read func(*View) error) error {
	if _, err := fs.Stat(dir); err != nil {
		return fmt.Errorf("inspect state: %w", err)
	}
	s := &Store{fs: readOnlyFS{fs}, log: slog.New(slog.DiscardHandler)}
	if err := s.readCopy(dir, read); err != nil {
		return fmt.Errorf("inspect state in %s: %w", dir, err)
	}
	return nil
}

// readOnlyFS refuses whatever would change a file, and locks nothing.
type readOnlyFS struct{ vfs.FS }

var errReadOnly = fmt.Errorf("inspection changes nothing: %w", os.ErrPermission)

func (readOnlyFS) Create(string, vfs.DiskWriteCategory) (vfs.File, error) { return nil, errReadOnly }
func (readOnlyFS) OpenReadWrite(string, vfs.DiskWriteCategory, ...vfs.OpenOption) (vfs.File, error) {
	return nil, errReadOnly
}
func (readOnlyFS) Link(string, string) error          { return errReadOnly }
func (readOnlyFS) Remove(string) error                { return errReadOnly }
func (readOnlyFS) RemoveAll(string) error             { return errReadOnly }
func (readOnlyFS) Rename(string, string) error        { return errReadOnly }
func (readOnlyFS) MkdirAll(string, os.FileMode) error { return errReadOnly }
func (readOnlyFS) Lock(string) (io.Closer, error)     { return io.NopCloser(nil), nil }
func (readOnlyFS) ReuseForWrite(string, string, vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, errors.ErrUnsupported
}
