package wal

import (
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidaldb/tidal/daemon/ident"
)

// GroupOf returns the group whose log is in dir, by the header of its oldest segment, for tools that
// know no more than a directory. os.ErrNotExist: there is no segment; a *CorruptError: its header is
// damaged.
func GroupOf(fs vfs.FS, dir string) (ident.GroupID, error) {
	names, err := segmentNames(fs, dir)
	if err != nil {
		return 0, err
	}
	if len(names) == 0 {
		return 0, fmt.Errorf("%s holds no log segment: %w", dir, os.ErrNotExist)
	}
	seg, err := openSegment(fs, dir, names[0].name)
	if err != nil {
		return 0, err
	}
	return seg.group, seg.release()
}
