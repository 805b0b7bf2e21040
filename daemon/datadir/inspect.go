package datadir

import (
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Contents is what a data directory holds, as read from outside.
type Contents struct {
	Path   string
	Member Member
	Groups []GroupContents // those of Member.Groups, in its order
}

// GroupContents is where the current generation of a group is, and what was promised in the group.
type GroupContents struct {
	Group            ident.GroupID
	Vote             Vote
	LogDir, StateDir string
}

// Inspect reads a data directory without its lock and without changing anything, for tools. Of a
// running member it may see a write under way, which looks like damage: its answer is certain for a
// stopped one. Errors as of Open; os.ErrNotExist where no member ever was.
func Inspect(fs vfs.FS, path string) (Contents, error) {
	c, err := inspect(fs, path)
	if err != nil {
		return Contents{}, fmt.Errorf("inspect data directory %s: %w", path, err)
	}
	return c, nil
}

func inspect(fs vfs.FS, path string) (Contents, error) {
	c, p := Contents{Path: path}, paths{fs: fs, root: path}
	content, ok, err := maybeRead(p, memberName, maxMemberBytes)
	if err != nil {
		return c, err
	}
	if !ok {
		return c, fmt.Errorf("no member file: %w", os.ErrNotExist)
	}
	if c.Member, err = decodeMember(memberName, content); err != nil {
		return c, err
	}
	if content, ok, err = maybeRead(p, votesName, votesBytes); err != nil {
		return c, err
	}
	if !ok {
		return c, fmt.Errorf("no votes file: %w", os.ErrNotExist)
	}
	v, err := decodeVotes(votesName, content)
	if err != nil {
		return c, err
	}
	for _, id := range c.Member.Groups {
		g := GroupContents{Group: id, Vote: v.of(id)}
		if g.LogDir, g.StateDir, err = InspectGroup(fs, p.group(id)); err != nil {
			return c, err
		}
		c.Groups = append(c.Groups, g)
	}
	return c, nil
}

// InspectGroup returns the directories of the current generation of the group whose directory is
// dir, without changing anything. A *LostGroupError says that there is none.
func InspectGroup(fs vfs.FS, dir string) (logDir, stateDir string, err error) {
	g := &Group{d: &Dir{opts: Options{FS: fs}}, dir: dir}
	gen, err := g.read()
	if err != nil {
		return "", "", err
	}
	return g.LogDir(gen), g.StateDir(gen), nil
}

// GroupDir returns the directory of a group in the data directory at path.
func GroupDir(fs vfs.FS, path string, g ident.GroupID) string {
	return paths{fs: fs, root: path}.group(g)
}
