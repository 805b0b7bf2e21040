package datadir

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidaldb/tidal/daemon/durable"
)

// Examined is what a data directory holds, as far as it can be read, and what speaks against it.
type Examined struct {
	// Contents has the groups whose current generation is there; its votes are zero where the file of the
	// votes cannot be read.
	Contents
	Named  bool // the member file was read: Contents.Member is known
	Voted  bool // the votes file was read
	Holder int  // process that has the directory open; 0: none, or it is not visible from here
	// Problems are what a start would refuse the directory for, or could not read: *CopiedError,
	// *LostGroupError, *durable.CorruptError, *durable.VersionError and errors of the disk.
	Problems []error
	// Latched are the reseeds that are latched, in the order of Contents.Groups; nil: none is.
	Latched []*Reseed
}

// Examine reads whatever can be read of a data directory, without its lock and without changing
// anything. Beside a running member it may see a write under way; it looks twice before it says so. The
// error is os.ErrNotExist where no member ever was, or one of the disk.
func Examine(fs vfs.FS, path string) (Examined, error) {
	x, err := examine(fs, path)
	if err == nil && x.Holder != 0 && len(x.Problems) > 0 {
		x, err = examine(fs, path)
	}
	if err != nil {
		return Examined{}, fmt.Errorf("examine data directory %s: %w", path, err)
	}
	return x, nil
}

func examine(fs vfs.FS, path string) (Examined, error) {
	d := &Dir{opts: Options{FS: fs}, path: paths{fs: fs, root: path}}
	x := Examined{Contents: Contents{Path: path}, Holder: lockHolder(fs, d.path.of(lockName))}
	complain := func(err error) { x.Problems = append(x.Problems, err) }
	if foreign, ok := errors.AsType[*ForeignError](refuseForeign(fs, path)); ok {
		return x, &noMemberError{"it holds " + foreign.names() + " and nothing of a member"}
	}

	member, hasMember, err := maybeRead(d.path, memberName, maxMemberBytes)
	if err != nil {
		complain(err)
	}
	votes, hasVotes, err := maybeRead(d.path, votesName, votesBytes)
	if err != nil {
		complain(err)
	}
	_, err = fs.Stat(d.path.of(groupsName))
	hasGroups := err == nil
	if !hasMember && !hasVotes && !hasGroups && len(x.Problems) == 0 {
		return x, &noMemberError{"it is empty or not there"}
	}
	x.examineMember(d, member, hasMember, complain)
	x.examineVotes(votes, hasVotes, complain)
	x.examineGroups(d, complain)
	return x, nil
}

func (x *Examined) examineMember(d *Dir, content []byte, ok bool, complain func(error)) {
	if !ok {
		complain(&durable.CorruptError{File: memberName, Detail: "it is missing, and what a member wrote later is there"})
		return
	}
	m, err := decodeMember(memberName, content)
	if err != nil {
		complain(err)
		return
	}
	x.Member, x.Named = m, true
	file, err := statFile(d.opts.FS, d.path.of(memberName))
	switch {
	case err != nil:
		complain(err)
	case !m.File.same(file):
		complain(&CopiedError{Path: x.Path, Written: m.File, Found: file})
	}
}

func (x *Examined) examineVotes(content []byte, ok bool, complain func(error)) {
	if !ok {
		complain(&durable.CorruptError{File: votesName, Detail: "it is missing, and what a member wrote is there"})
		return
	}
	v, err := decodeVotes(votesName, content)
	if err == nil && x.Named && v.incarnation != x.Member.Incarnation {
		err = &durable.CorruptError{File: votesName, Detail: fmt.Sprintf("it is of incarnation %s, the member of %s", v.incarnation, x.Member.Incarnation)}
	}
	if err != nil {
		complain(err)
		return
	}
	x.Voted = true
	for _, g := range v.groups {
		x.Groups = append(x.Groups, GroupContents{Group: g.group, Vote: g.Vote})
	}
}

// examineGroups completes the groups of the member, and drops what the votes file says of others.
func (x *Examined) examineGroups(d *Dir, complain func(error)) {
	votes := x.Groups
	x.Groups = nil
	for _, id := range x.Member.Groups {
		g := GroupContents{Group: id}
		if i := slices.IndexFunc(votes, func(v GroupContents) bool { return v.Group == id }); i >= 0 {
			g = votes[i]
		}
		group := &Group{d: d, id: id, dir: d.path.group(id)}
		gen, err := group.read()
		if err != nil {
			complain(err)
			continue
		}
		g.LogDir, g.StateDir = group.LogDir(gen), group.StateDir(gen)
		r, latched, err := group.Reseed()
		if err != nil {
			complain(err)
		}
		x.Groups, x.Latched = append(x.Groups, g), append(x.Latched, nil)
		if latched {
			x.Latched[len(x.Latched)-1] = &r
		}
	}
}

// Code returns the stable name of what a data directory is refused for; empty: err is no such refusal.
func Code(err error) string {
	_, corrupt := errors.AsType[*durable.CorruptError](err)
	_, newer := errors.AsType[*durable.VersionError](err)
	_, copied := errors.AsType[*CopiedError](err)
	_, lost := errors.AsType[*LostGroupError](err)
	_, locked := errors.AsType[*LockedError](err)
	_, foreign := errors.AsType[*ForeignError](err)
	switch {
	case foreign:
		return "foreign_data_dir"
	case copied:
		return "copied_data_dir"
	case lost:
		return "lost_group"
	case corrupt:
		return "corrupt_data_dir"
	case newer:
		return "upgrade_required"
	case locked:
		return "locked"
	}
	return ""
}

// noMemberError says that no member ever was in a directory. It is os.ErrNotExist.
type noMemberError struct{ detail string }

func (e *noMemberError) Error() string   { return "no member ever was in it: " + e.detail }
func (e *noMemberError) Is(t error) bool { return t == os.ErrNotExist }
