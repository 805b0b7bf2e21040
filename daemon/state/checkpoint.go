package state

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidaldb/tidal/daemon/durable"
)

// Format is the version of Pebble's files that this binary writes, and the newest it reads. It is
// raised only by a feature activation.
const Format = uint32(formatMajorVersion)

// Names of files of Pebble that belong to no copy.
const (
	lockName      = "LOCK"
	journalSuffix = ".log"
)

// Checkpoint makes a store in dir, which must not exist and whose parent, which must, holds nothing
// but such copies. The copy stands at some position not before the one of this call; read is shown
// exactly what dir holds. It shares its tables with this store by hard links, so it costs little, and
// commits go on meanwhile. One is made at a time.
//
// Everything in dir is durable when Checkpoint returns nil. After an error dir holds anything, and is
// to be removed; this store is as it was, unless the error is its own.
func (s *Store) Checkpoint(dir string, read func(*View) error) error {
	if err := s.checkpoint(dir, read); err != nil {
		return fmt.Errorf("checkpoint of state in %s: %w", s.dir, err)
	}
	return nil
}

func (s *Store) checkpoint(dir string, read func(*View) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	// There is no journal to take along: what is in memory only would be missing.
	if _, err := s.Flush(); err != nil {
		return err
	}
	if err := s.copyTo(dir); err != nil {
		return err
	}
	if err := s.readCopy(dir, read); err != nil {
		return err
	}
	return s.removeIdle(dir)
}

// removeIdle removes what Pebble puts into a directory and what says nothing here: its lock, and a
// journal without a record.
func (s *Store) removeIdle(dir string) error {
	names, err := s.fs.List(dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	for _, name := range names {
		if name != lockName && !strings.HasSuffix(name, journalSuffix) {
			continue
		}
		if err := s.fs.Remove(s.fs.PathJoin(dir, name)); err != nil {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	return durable.SyncDir(s.fs, dir)
}

// copyTo has Pebble make the copy: of the tables that are flushed, whole batches each.
func (s *Store) copyTo(dir string) (err error) {
	// Pebble panics when it cannot sync the directory of a marker, which is no reason to end the process.
	defer func() {
		v := recover()
		if failed, ok := v.(error); ok {
			err = failed
		} else if v != nil {
			panic(v)
		}
	}()
	root := s.fs.PathDir(dir)
	s.copies.Store(&root)
	return s.db.Checkpoint(dir)
}

// readCopy shows read what is in dir, changing nothing.
func (s *Store) readCopy(dir string, read func(*View) error) (err error) {
	cache := pebble.NewCache(1 << 20)
	defer cache.Unref()
	db, err := pebble.Open(dir, &pebble.Options{
		Cache:             cache,
		DisableTableStats: true,
		ErrorIfNotExists:  true,
		FS:                s.fs,
		Logger:            logger{log: s.log, fuse: newFuse()},
		ReadOnly:          true,
	})
	if err != nil {
		return fmt.Errorf("open the copy in %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	view := (&Store{db: db, fs: s.fs, dir: dir}).NewView()
	defer func() { err = errors.Join(err, view.Close()) }()
	if view.err == nil && view.position.Conf == nil {
		return errors.New("the copy has no position")
	}
	return errors.Join(view.err, read(view))
}
