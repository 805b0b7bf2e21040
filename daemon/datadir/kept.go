package datadir

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/tidaldb/tidal/daemon/durable"
)

// Kept is replaced data of a quarantined replica, which is only removed when somebody says so.
type Kept struct {
	Name   string // of its directory
	Since  int64  // Unix ms, when the quarantine was latched; 0: the name does not say
	Reason string
	Bytes  int64
}

// Kept lists what is kept, oldest first.
func (g *Group) Kept() ([]Kept, error) {
	names, err := g.d.opts.FS.List(g.dir)
	if err != nil {
		return nil, fmt.Errorf("list group %s: %w", g.id, err)
	}
	var all []Kept
	for _, name := range names {
		rest, ok := strings.CutPrefix(name, keptPrefix)
		if !ok {
			continue
		}
		k := Kept{Name: name, Reason: rest}
		if since, reason, ok := strings.Cut(rest, "-"); ok {
			if ms, err := strconv.ParseInt(since, 10, 64); err == nil {
				k.Since, k.Reason = ms, reason
			}
		}
		if k.Bytes, err = g.sizeOf(g.path(name)); err != nil {
			return nil, err
		}
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b Kept) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// sizeOf adds up the files in a directory and below. What is gone meanwhile has no size.
func (g *Group) sizeOf(dir string) (bytes int64, err error) {
	fs := g.d.opts.FS
	names, err := fs.List(dir)
	if err != nil {
		return 0, fmt.Errorf("list %s: %w", dir, err)
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		info, err := fs.Stat(path)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return 0, fmt.Errorf("stat %s: %w", path, err)
		case info.IsDir():
			below, err := g.sizeOf(path)
			if err != nil {
				return 0, err
			}
			bytes += below
		default:
			bytes += info.Size()
		}
	}
	return bytes, nil
}

// ClearKept removes what is kept, and returns it.
func (g *Group) ClearKept() ([]Kept, error) {
	all, err := g.Kept()
	if err != nil {
		return nil, err
	}
	for _, k := range all {
		if err := g.d.opts.FS.RemoveAll(g.path(k.Name)); err != nil {
			return nil, fmt.Errorf("remove %s of group %s: %w", k.Name, g.id, err)
		}
	}
	if len(all) > 0 {
		if err := durable.SyncDir(g.d.opts.FS, g.dir); err != nil {
			return nil, fmt.Errorf("clear kept data of group %s: %w", g.id, err)
		}
	}
	return all, nil
}
