package inspect

import (
	"errors"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/state"
	"github.com/tidaldb/tidal/daemon/wal"
)

// Directory is the data directory of a member as it was found: whole, broken or in use.
type Directory struct {
	Path string
	PID  int // the process that has it open; 0: none, or it is not visible from here
	// Findings speak against starting, or going on, from it. Empty: nothing was found.
	Findings []Finding

	Identity datadir.Member // zero where the member file cannot be read
	Group    ident.GroupID
	Vote     datadir.Vote // zero where the votes cannot be read
	// Latched is the reason of the reseed, or of the fence, that is latched; empty: none is.
	Latched string

	// Log says that the log was read: Term, Last and Commit are known. State says so of the state: Applied,
	// Conf and Roster are. The state of a running member is what it last flushed.
	Log, State bool

	Term    uint64        // that it will not go back below
	Last    ident.EntryID // of the log
	Commit  uint64        // as far as the disk knows the log to be committed
	Applied ident.EntryID // of the state; a start applies the rest of what is committed
	Digest  state.Digest  // of the state at Applied; version 0: none is kept
	// Roster and Conf are the membership at the end of the log, committed or not. Those of another group
	// than 0 have no roster.
	Roster membership.Roster
	Conf   *pb.ConfState
}

// Finding is one thing that is wrong. Codes are those of tidalctl explain.
type Finding struct {
	Code   string
	Detail string
}

// The codes of findings beside those of datadir.Code.
const (
	FindingLogCorrupt = "log_corrupt"
	FindingState      = "state_error"
	FindingUnreadable = "unreadable" // the disk, or a file beside, could not be read
	FindingNoGroup    = "no_group"   // the member holds no such group
)

// Whole reports whether everything was read and nothing speaks against the directory.
func (d Directory) Whole() bool { return d.Log && d.State && len(d.Findings) == 0 }

// ReadDirectory reads the data directory at path, of which group says which group is meant, without
// changing anything: whole, broken or in use. Of one in use the parts are read one after the other while
// they move. Errors: os.ErrNotExist where no member ever was, and those of the disk.
func ReadDirectory(fs vfs.FS, path string, group ident.GroupID) (Directory, error) {
	x, err := datadir.Examine(fs, path)
	if err != nil {
		return Directory{}, err
	}
	d := Directory{Path: path, PID: x.Holder, Identity: x.Member, Group: group}
	for _, p := range x.Problems {
		code := datadir.Code(p)
		if code == "" {
			code = FindingUnreadable
		}
		d.find(code, p.Error())
	}
	held := false
	for i, g := range x.Groups {
		if g.Group != group {
			continue
		}
		held, d.Vote = true, g.Vote
		if r := x.Latched[i]; r != nil {
			d.Latched = r.Reason
		}
		d.readGroup(fs, g)
	}
	if !held && x.Named && len(x.Problems) == 0 {
		d.find(FindingNoGroup, fmt.Sprintf("the member holds no group %s", group))
	}
	return d, nil
}

func (d *Directory) find(code, detail string) {
	d.Findings = append(d.Findings, Finding{code, detail})
}

func (d *Directory) readGroup(fs vfs.FS, g datadir.GroupContents) {
	if err := d.readState(fs, g.StateDir); err != nil {
		// A running member removes tables while they are looked for: that is no damage.
		if d.PID == 0 {
			d.find(FindingState, err.Error())
		}
	} else {
		d.State = true
	}
	after, err := d.readLog(fs, g)
	if err != nil || !d.Log || !d.State {
		if err != nil {
			d.find(FindingUnreadable, err.Error())
		}
		return
	}
	d.Commit = max(d.Commit, d.Applied.Index)
	if d.Conf, d.Roster, err = apply.Foresee(d.Conf, d.Roster, after); err != nil {
		d.find(FindingLogCorrupt, err.Error())
	}
	if d.Last.Index < d.Applied.Index && d.PID == 0 {
		d.find("committed_missing", fmt.Sprintf("the log ends at index %d, the state reflects index %d", d.Last.Index, d.Applied.Index))
	}
}

func (d *Directory) readState(fs vfs.FS, dir string) error {
	return state.Inspect(fs, dir, func(v *state.View) (err error) {
		pos := v.Position()
		d.Applied, d.Digest, d.Conf = pos.Applied, pos.Digest, pos.Conf
		d.Roster, err = apply.Roster(v)
		return err
	})
}

// readLog reads the log, and returns the changes of membership in it that the state does not reflect.
func (d *Directory) readLog(fs vfs.FS, g datadir.GroupContents) ([]*pb.Entry, error) {
	log := Log{Group: g.Group, Dir: g.LogDir}
	v, err := log.Verify(fs)
	if err != nil {
		return nil, err
	}
	if v.Damage != nil {
		d.find(FindingLogCorrupt, fmt.Sprintf("segment %s, offset %d: %s", v.Damage.Segment, v.Damage.Offset, v.Damage.Detail))
		return nil, nil
	}
	hs := v.Recovered.HardState
	d.Log, d.Last, d.Term, d.Commit = true, v.Recovered.Last, max(hs.GetTerm(), g.Vote.Term), hs.GetCommit()
	changes, err := log.membership(fs)
	if err != nil {
		return nil, err
	}
	var after []*pb.Entry
	for _, e := range changes {
		if e.GetIndex() > d.Applied.Index {
			after = append(after, e)
		}
	}
	return after, nil
}

// membership returns the entries of the log that change the membership, without those that a later frame
// overwrote.
func (l Log) membership(fs vfs.FS) ([]*pb.Entry, error) {
	var kept []*pb.Entry
	_, err := wal.Scan(fs, l.Dir, l.Group, func(f wal.FrameInfo) error {
		if len(f.Entries) == 0 {
			return nil
		}
		for n := len(kept); n > 0 && kept[n-1].GetIndex() >= f.Entries[0].ID.Index; n = len(kept) {
			kept = kept[:n-1]
		}
		for _, e := range f.Entries {
			if e.Type == pb.EntryNormal {
				if entry, err := command.Decode(e.Data); err != nil || entry.Kind != command.KindRoster {
					continue
				}
			}
			kept = append(kept, &pb.Entry{Type: e.Type.Enum(), Term: new(e.ID.Term), Index: new(e.ID.Index), Data: append([]byte(nil), e.Data...)})
		}
		return nil
	})
	return kept, err
}

// IsNone reports whether err says that no member ever was in a directory.
func IsNone(err error) bool { return errors.Is(err, os.ErrNotExist) }
