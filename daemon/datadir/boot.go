package datadir

import (
	"errors"
	"fmt"
	"os"

	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/ident"
)

// found is what a look at the directory saw. Files that are damaged are errors before it comes to
// this.
type found struct {
	path string

	hasMember bool
	member    Member
	file      FileID // of the member file that was read

	hasVotes bool
	votes    votes

	hasGroups bool              // there is a groups directory
	lost      []*LostGroupError // groups of member that have no current generation
}

// verdict is what to do with a directory that is not refused.
type verdict int

const (
	makeAnew verdict = iota // nothing was here: draw an incarnation
	useIt
)

// decide says what to do with what was found, or why the directory is refused. It is pure.
//
//	member              votes             groups/        →
//	absent              absent, or empty  absent         make: first start, or a crash during it
//	absent              with a promise    any            refuse: member is lost
//	absent              any               present        refuse: member is lost
//	of another file     any               any            refuse: copied
//	of another name     any               any            refuse
//	present             absent            any            refuse: votes are lost
//	present             of another disk   any            refuse
//	present             present           one is lost    refuse: lost disk
//	present             present           all there      use
//
// A first start writes votes, then member, then anything else; so whatever else is there without
// member outlived it.
func decide(name string, f found) (verdict, error) {
	corrupt := func(file, detail string) error {
		return &durable.CorruptError{File: file, Detail: detail}
	}
	switch {
	case !f.hasMember && !f.hasGroups && len(f.votes.groups) == 0:
		return makeAnew, nil
	case !f.hasMember:
		return 0, corrupt(memberName, "it is missing, and what a member wrote later is there")
	case !f.member.File.same(f.file) && !mutantCopyAccepted:
		return 0, &CopiedError{Path: f.path, Written: f.member.File, Found: f.file}
	case f.member.Name != name:
		return 0, &WrongNameError{Path: f.path, Name: f.member.Name, Asked: name}
	case !f.hasVotes:
		return 0, corrupt(votesName, "it is missing, and the member file is there")
	case f.votes.incarnation != f.member.Incarnation:
		return 0, corrupt(votesName, fmt.Sprintf("it is of incarnation %s, the member of %s", f.votes.incarnation, f.member.Incarnation))
	case len(f.lost) > 0:
		return 0, f.lost[0]
	default:
		return useIt, nil
	}
}

// look reads everything that decide wants to know, and changes nothing.
func (d *Dir) look() (found, error) {
	fs := d.opts.FS
	f := found{path: d.opts.Path}

	content, ok, err := maybeRead(d.path, memberName, maxMemberBytes)
	if err != nil {
		return f, err
	}
	if f.hasMember = ok; ok {
		if f.member, err = decodeMember(memberName, content); err != nil {
			return f, err
		}
		if f.file, err = d.opts.FileID(d.path.of(memberName)); err != nil {
			return f, fmt.Errorf("identify the member file: %w", err)
		}
	}

	content, ok, err = maybeRead(d.path, votesName, votesBytes)
	if err != nil {
		return f, err
	}
	if f.hasVotes = ok; ok {
		if f.votes, err = decodeVotes(votesName, content); err != nil {
			return f, err
		}
	}

	switch _, err := fs.Stat(d.path.of(groupsName)); {
	case err == nil:
		f.hasGroups = true
	case !errors.Is(err, os.ErrNotExist):
		return f, fmt.Errorf("stat groups: %w", err)
	}
	for _, g := range f.member.Groups {
		_, err := d.Group(g).read()
		if lost, ok := errors.AsType[*LostGroupError](err); ok {
			f.lost = append(f.lost, lost)
		} else if err != nil {
			return f, err
		}
	}
	return f, nil
}

func maybeRead(p paths, name string, maxBytes int64) ([]byte, bool, error) {
	b, err := durable.ReadFile(p.fs, p.of(name), maxBytes)
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	return b, err == nil, err
}

// LockedError says that another process uses the directory.
type LockedError struct {
	Path string // of the lock
	PID  int    // 0: not visible from here, such as in another container
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is held by another process: stop that one first, or name another data directory", e.Path)
	}
	return fmt.Sprintf("%s is held by process %d: stop that one first, or name another data directory", e.Path, e.PID)
}

// CopiedError says that the directory is not the one that its member file was written in. Two
// members with one identity would each vote.
type CopiedError struct {
	Path    string
	Written FileID // what the member file says of itself
	Found   FileID // what it is
}

func (e *CopiedError) Error() string {
	return fmt.Sprintf("copied_data_dir: %s is a copy: its member file was written as %s and is %s", e.Path, e.Written, e.Found)
}

// WrongNameError says that the directory belongs to a member of another name.
type WrongNameError struct {
	Path  string
	Name  string // whose it is
	Asked string // who was to be started
}

func (e *WrongNameError) Error() string {
	return fmt.Sprintf("%s belongs to member %q, not to %q", e.Path, e.Name, e.Asked)
}

// LostGroupError says that a group this member had is not there. It is a lost disk, not a new group.
type LostGroupError struct {
	Group  ident.GroupID
	Path   string
	Detail string
}

func (e *LostGroupError) Error() string {
	return fmt.Sprintf("group %s in %s is lost: %s", e.Group, e.Path, e.Detail)
}

// withWayOn adds what an operator can do when the promises of a member are gone.
func withWayOn(name string, err error) error {
	switch code := Code(err); code {
	case "copied_data_dir", "lost_group", "corrupt_data_dir":
		return fmt.Errorf("%w; nothing was changed; to go on with an empty directory: tidalctl members replace %s; more: tidalctl explain %s", err, name, code)
	}
	return err
}
