// Package inspect reads the disk of a member from outside, for people who want to know what is on it:
// which frames and entries a log has, of which kinds, whether anything is damaged, and what a data
// directory is: whose, how far it goes, and what speaks against starting from it.
//
// What it promises: it creates, locks and changes nothing, and it works beside a running member. A log
// that grows and is shortened while it is read can look damaged for a moment; damage is reported only
// when a second reading finds the same.
//
// Callers: cmd/tidald (wal dump, wal verify, inspect), tests.
package inspect

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/wal"
)

// NotFoundError says that a directory holds no log.
type NotFoundError struct {
	Path   string
	Detail string
}

func (e *NotFoundError) Error() string { return fmt.Sprintf("no log in %s: %s", e.Path, e.Detail) }

// Log is the log of one group on a disk.
type Log struct {
	Group ident.GroupID
	Dir   string
}

// Find returns the log at path: the directory of a log, that of a group, or a whole data directory,
// of which group says which log is meant. A *NotFoundError says that there is none.
func Find(fs vfs.FS, path string, group ident.GroupID) (Log, error) {
	names, err := fs.List(path)
	if errors.Is(err, os.ErrNotExist) {
		return Log{}, &NotFoundError{path, "there is no such directory"}
	}
	if err != nil {
		return Log{}, fmt.Errorf("list %s: %w", path, err)
	}
	var isLog, isGroup, isDataDir bool
	for _, name := range names {
		isLog = isLog || strings.HasSuffix(name, ".wal")
		isGroup = isGroup || strings.HasPrefix(name, "marker.")
		isDataDir = isDataDir || name == "groups"
	}
	dir := path
	switch {
	case isLog:
		return logIn(fs, path)
	case isDataDir:
		dir = datadir.GroupDir(fs, path, group)
	case !isGroup:
		return Log{}, &NotFoundError{path, "neither a data directory, nor a group's, nor a log's"}
	}
	logDir, _, err := datadir.InspectGroup(fs, dir)
	if lost, ok := errors.AsType[*datadir.LostGroupError](err); ok {
		return Log{}, &NotFoundError{dir, lost.Detail}
	}
	if err != nil {
		return Log{}, err
	}
	if isDataDir {
		return Log{Group: group, Dir: logDir}, nil
	}
	return logIn(fs, logDir)
}

// logIn asks the log itself whose it is. A log whose first header is damaged does not say; reading
// it will name the damage.
func logIn(fs vfs.FS, dir string) (Log, error) {
	group, err := wal.GroupOf(fs, dir)
	if _, damaged := errors.AsType[*wal.CorruptError](err); damaged {
		err = nil
	}
	if errors.Is(err, os.ErrNotExist) {
		return Log{}, &NotFoundError{dir, "it has no segment"}
	}
	return Log{Group: group, Dir: dir}, err
}

// Verdict is what reading a whole log has found.
type Verdict struct {
	Log
	// Recovered is what opening the log would find; zero where it is damaged.
	Recovered wal.Recovered
	// Frames and Entries count what is sound, up to the damage; entries that a later frame
	// overwrites are among them.
	Frames, Entries int
	Damage          *Damage // nil: sound; a torn tail is sound, it is repaired by the next start
}

// What kind of damage a log has.
const (
	DamageLog    = "log"    // the log contradicts itself, or its checksums: it must not be opened
	DamageRecord = "record" // the log is sound, an entry in it is not: no member can apply it
)

// Damage is the first damage in a log. What follows it was not read.
type Damage struct {
	Kind    string
	Segment string // file name
	Offset  int64  // of the first byte in doubt
	Index   uint64 // of the first entry in doubt
	Detail  string
}

// attempts is how often a log that seems damaged is read until twice in a row the same was found.
const attempts = 5

// Verify reads the log and judges it as opening it would. An error says that it could not be read;
// damage is no error.
func (l Log) Verify(fs vfs.FS) (Verdict, error) {
	v, err := l.verify(fs)
	for range attempts - 1 {
		if err == nil && v.Damage == nil {
			return v, nil
		}
		again, errAgain := l.verify(fs)
		same := err != nil && errAgain != nil && err.Error() == errAgain.Error() ||
			v.Damage != nil && again.Damage != nil && *v.Damage == *again.Damage
		if v, err = again, errAgain; same {
			return v, err
		}
	}
	return v, err
}

func (l Log) verify(fs vfs.FS) (Verdict, error) {
	v := Verdict{Log: l}
	var bad *Damage // of a record; damage of the log goes before it
	rec, err := wal.Scan(fs, l.Dir, l.Group, func(f wal.FrameInfo) error {
		v.Frames++
		v.Entries += len(f.Entries)
		if bad == nil {
			bad = badRecord(f)
		}
		return nil
	})
	if e, ok := errors.AsType[*wal.CorruptError](err); ok {
		v.Damage = &Damage{DamageLog, e.Segment, e.Offset, e.Index, e.Detail}
		if e.Index == 0 {
			v.Damage.Index = firstIndexOf(e.Segment)
		}
		return v, nil
	}
	v.Recovered, v.Damage = rec, bad
	return v, err
}

// badRecord finds an entry that no member ever wrote. One of a newer binary is none.
func badRecord(f wal.FrameInfo) *Damage {
	for _, e := range f.Entries {
		if e.Type != pb.EntryNormal {
			continue
		}
		_, err := command.Decode(e.Data)
		if malformed, ok := errors.AsType[*command.MalformedError](err); ok {
			return &Damage{DamageRecord, f.Segment, f.Offset, e.ID.Index, malformed.Error()}
		}
	}
	return nil
}

// firstIndexOf is the first index of a segment by its name: a damaged header says nothing else.
func firstIndexOf(segment string) uint64 {
	var id, first uint64
	if n, _ := fmt.Sscanf(segment, "%d-%d.wal", &id, &first); n != 2 {
		return 0
	}
	return first
}

// Frame is one sound frame, and what is in it.
type Frame struct {
	Segment string // file name
	Offset  int64
	Bytes   int64

	Term, Vote, Commit uint64 // the hard state that came with it

	// First and Last are the entries of the frame; zero where it has none.
	First, Last ident.EntryID
	Entries     int
	// Kinds counts the entries by what they are, and Records those of the writes among them, by name.
	Kinds, Records map[string]int
	Sealed         bool // the segment is full and ends here
}

// errRead ends a scan that has shown all it was to show.
var errRead = errors.New("read to the end")

// Dump calls visit for every frame that v counted, oldest first. An error of visit ends it. A log
// that was shortened since v was made is an error.
func (l Log) Dump(fs vfs.FS, v Verdict, visit func(Frame) error) error {
	left := v.Frames
	if left == 0 {
		return nil
	}
	_, err := wal.Scan(fs, l.Dir, l.Group, func(f wal.FrameInfo) error {
		if err := visit(describe(f)); err != nil {
			return err
		}
		if left--; left == 0 {
			return errRead
		}
		return nil
	})
	switch {
	case errors.Is(err, errRead):
		return nil
	case err == nil:
		return fmt.Errorf("log %s was shortened while it was read: %d frames of %d are left", l.Dir, v.Frames-left, v.Frames)
	default:
		return err
	}
}

func describe(f wal.FrameInfo) Frame {
	out := Frame{
		Segment: f.Segment, Offset: f.Offset, Bytes: f.Bytes, Entries: len(f.Entries), Sealed: f.Sealed,
		Term: f.HardState.GetTerm(), Vote: f.HardState.GetVote(), Commit: f.HardState.GetCommit(),
		Kinds: map[string]int{}, Records: map[string]int{},
	}
	if n := len(f.Entries); n > 0 {
		out.First, out.Last = f.Entries[0].ID, f.Entries[n-1].ID
	}
	for _, e := range f.Entries {
		out.Kinds[kindOf(e)]++
		if e.Type != pb.EntryNormal {
			continue
		}
		entry, err := command.Decode(e.Data)
		if err != nil {
			continue // kindOf has said so
		}
		for records, ok := entry.Writes.Next(); ok; records, ok = entry.Writes.Next() {
			for records.Next() {
				out.Records[records.Kind().String()]++
			}
		}
	}
	return out
}

// kindOf names what an entry is.
func kindOf(e wal.EntryInfo) string {
	if e.Type != pb.EntryNormal {
		return "conf_change"
	}
	entry, err := command.Decode(e.Data)
	if _, ok := errors.AsType[*command.UnknownKindError](err); ok {
		return "unknown"
	}
	if err != nil {
		return "malformed"
	}
	return entry.Kind.String()
}
