package datadir

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidaldb/tidal/daemon/durable"
)

// ownName is what an entry of a data directory is, by its name.
type ownName struct {
	isDir bool
	marks bool // where it is, a member was
}

// ownNames returns what belongs in the data directory of a member, or may be in a new one.
func ownNames() map[string]ownName {
	return map[string]ownName{
		memberName: {marks: true}, votesName: {marks: true}, groupsName: {isDir: true, marks: true},
		// What a member that died in its first start may leave, and what outlives a member file.
		lockName: {}, memberName + durable.TempSuffix: {}, votesName + durable.TempSuffix: {},
		witnessName: {}, operationsName: {}, removedName: {}, rosterName: {}, outboxName: {isDir: true},
		// A data directory may be a mount root, and a fresh file system has this one.
		"lost+found": {isDir: true},
	}
}

// ForeignError says that the directory holds something, and nothing of a member: it is somebody's home, or
// the data of another program.
type ForeignError struct {
	Path  string
	Found []string // at least one name, sorted; a directory ends in "/"
}

// foundShown bounds the names that the message has.
const foundShown = 3

func (e *ForeignError) Error() string {
	return fmt.Sprintf("foreign_data_dir: %s holds %s, and no data of a member: a member begins in a directory that is empty or not there; "+
		"nothing was changed; name another one, or take away what is in it; more: tidalctl explain foreign_data_dir", e.Path, e.names())
}

func (e *ForeignError) names() string {
	names := strings.Join(e.Found[:min(len(e.Found), foundShown)], ", ")
	if more := len(e.Found) - foundShown; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return names
}

// refuseForeign returns a *ForeignError where path has content that is none of ours and no member ever was.
// It is asked before the lock is taken: the file of the lock would be the first change, and other programs
// have one of that name too.
//
// A member once was where one of the things is that decide looks at, whatever else is there: what a person
// put beside them is let be.
func refuseForeign(fs vfs.FS, path string) error {
	names, err := fs.List(path)
	if err != nil {
		return fmt.Errorf("list data directory %s: %w", path, err)
	}
	own := ownNames()
	var found []string
	for _, name := range names {
		info, err := fs.Stat(fs.PathJoin(path, name))
		isDir := err == nil && info.IsDir() // a link to nowhere is none
		want, ours := own[name]
		switch {
		case ours && want.isDir == isDir && want.marks:
			return nil
		case ours && want.isDir == isDir:
		case isDir:
			found = append(found, name+"/")
		default:
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return nil
	}
	slices.Sort(found)
	return &ForeignError{Path: path, Found: found}
}
