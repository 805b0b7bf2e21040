// Package durable holds the few idioms that make a file survive power loss, over Pebble's file
// system interface: replace a file, create directories, rename, sync a directory; and the envelope
// (Format) that every small file of ours wears.
//
// What it promises: when a function returns nil, what it did is on the disk, names included. When it
// returns an error, the old content or the new one is there, whole, and the caller must not go on as
// if it knew which: a failed sync is never retried.
//
// Callers: everything that touches the disk. It knows nothing of what the files mean.
package durable

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TempSuffix names the file that WriteFile prepares beside the real one. A crash may leave one
// behind; the next WriteFile of the same path replaces it, and nobody reads it.
const TempSuffix = ".tmp"

// WriteFile replaces the file at path by one that holds data. After a crash at any point the file
// holds what it held before, or data, and after a nil error it holds data.
func WriteFile(fs vfs.FS, path string, data []byte) error {
	return WriteFileFunc(fs, path, func(string) ([]byte, error) { return data, nil })
}

// WriteFileFunc is WriteFile for content that depends on the file which will hold it: content is
// called once the new file exists under the name temp, from which it is renamed to path. An error of
// content is returned as it is, and path is as it was.
func WriteFileFunc(fs vfs.FS, path string, content func(temp string) ([]byte, error)) error {
	temp := path + TempSuffix
	f, err := fs.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("create %s: %w", temp, err)
	}
	data, err := content(temp)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if err := fill(f, data); err != nil {
		return fmt.Errorf("write %d bytes to %s: %w", len(data), temp, err)
	}
	if err := fs.Rename(temp, path); err != nil {
		return fmt.Errorf("rename %s to %s: %w", temp, path, err)
	}
	return SyncDir(fs, fs.PathDir(path))
}

// fill writes data to f, syncs and closes it. f is closed whatever happens.
func fill(f vfs.File, data []byte) error {
	// vfs.File.Write may scribble on what it is given.
	_, err := f.Write(bytes.Clone(data))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// ReadFile returns the content of the file at path. A file of more than maxBytes is not read: it is
// a *CorruptError, since nobody writes one. A missing file is fs.ErrNotExist.
func ReadFile(fs vfs.FS, path string, maxBytes int64) (data []byte, err error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("stat %s: %w", path, err)
	}
	if info.Size() > maxBytes {
		return nil, &CorruptError{File: path, Detail: fmt.Sprintf("is %d bytes long, at most %d are ever written", info.Size(), maxBytes)}
	}
	data = make([]byte, info.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, fmt.Errorf("read %d bytes of %s: %w", len(data), path, err)
	}
	return data, nil
}

// SyncDir makes the names in dir durable.
func SyncDir(fs vfs.FS, dir string) error {
	if mutantNoDirSync {
		return nil
	}
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("open directory %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}

// Rename moves from to to, both names durable. What was at to is replaced.
func Rename(fs vfs.FS, from, to string) error {
	if err := fs.Rename(from, to); err != nil {
		return fmt.Errorf("rename %s to %s: %w", from, to, err)
	}
	into, outOf := fs.PathDir(to), fs.PathDir(from)
	if err := SyncDir(fs, into); err != nil {
		return err
	}
	if outOf == into {
		return nil
	}
	return SyncDir(fs, outOf)
}

// MkdirAll makes dir and whatever ancestors are missing, with perm, and returns when dir is durable.
//
// Directories are made one at a time from the top, each durable before the next is made. So when a
// process died in an earlier MkdirAll, at most the deepest directory found may still be unsynced,
// and that one is synced again. A directory that cannot have been made by us is let be: one that
// another file system is mounted on, or whose parent we may not open.
func MkdirAll(fs vfs.FS, dir string, perm os.FileMode) error {
	info, err := fs.Stat(dir)
	switch parent := fs.PathDir(dir); {
	case err == nil && !info.IsDir():
		return fmt.Errorf("make directory %s: a file is in its place", dir)
	case err == nil:
		return syncFound(fs, dir, parent, info)
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("stat %s: %w", dir, err)
	case parent == dir:
		return fmt.Errorf("make directory %s: its file system has no root", dir)
	default:
		if err := MkdirAll(fs, parent, perm); err != nil {
			return err
		}
		if err := fs.MkdirAll(dir, perm); err != nil {
			return fmt.Errorf("make directory %s: %w", dir, err)
		}
		return SyncDir(fs, parent)
	}
}

// syncFound makes the name of a directory durable that was there already.
func syncFound(fs vfs.FS, dir, parent string, info vfs.FileInfo) error {
	if parent == dir {
		return nil // a root has no name
	}
	above, err := fs.Stat(parent)
	if err != nil {
		return fmt.Errorf("stat %s: %w", parent, err)
	}
	if above.DeviceID() != info.DeviceID() {
		return nil // a mount point
	}
	if err := SyncDir(fs, parent); err != nil && !errors.Is(err, os.ErrPermission) {
		return err
	}
	return nil
}
