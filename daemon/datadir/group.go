package datadir

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"

	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/ident"
)

// markerName names the marker of a group: an empty file whose own name says which generation is
// current, for a name is replaced at once or not at all.
const markerName = "current"

// Generation names a log and a state that belong together. An install replaces the state, or both.
type Generation struct {
	Log, State uint64 // from 1
}

func (gen Generation) logName() string   { return fmt.Sprintf("log-%06d", gen.Log) }
func (gen Generation) stateName() string { return fmt.Sprintf("state-%06d", gen.State) }

// String is the value of the marker.
func (gen Generation) String() string { return gen.logName() + "." + gen.stateName() }

func parseGeneration(s string) (gen Generation, ok bool) {
	if _, err := fmt.Sscanf(s, "log-%d.state-%d", &gen.Log, &gen.State); err != nil {
		return Generation{}, false
	}
	return gen, gen.Log > 0 && gen.State > 0 && gen.String() == s
}

// Group is the directory of one group. One goroutine at a time uses it.
type Group struct {
	d   *Dir
	id  ident.GroupID
	dir string
}

// Group returns the directory of g, which need not exist.
func (d *Dir) Group(g ident.GroupID) *Group {
	return &Group{d: d, id: g, dir: d.path.group(g)}
}

// LogDir returns the path of a generation's log.
func (g *Group) LogDir(gen Generation) string { return g.path(gen.logName()) }

// StateDir returns the path of a generation's state.
func (g *Group) StateDir(gen Generation) string { return g.path(gen.stateName()) }

func (g *Group) path(name string) string { return g.d.opts.FS.PathJoin(g.dir, name) }

// added reports whether the group is in the member file.
func (g *Group) added() bool { return slices.Contains(g.d.Member().Groups, g.id) }

// Current returns the current generation. ok is false for a group that was never added, whatever its
// directory holds: a birth that did not end. For one that was, anything missing is a
// *LostGroupError.
func (g *Group) Current() (gen Generation, ok bool, err error) {
	if !g.added() {
		return Generation{}, false, nil
	}
	gen, err = g.read()
	return gen, err == nil, err
}

// read returns the generation that the marker names, if it is there.
func (g *Group) read() (Generation, error) {
	fs := g.d.opts.FS
	lost := func(format string, args ...any) (Generation, error) {
		return Generation{}, &LostGroupError{Group: g.id, Path: g.dir, Detail: fmt.Sprintf(format, args...)}
	}
	value, err := atomicfs.ReadMarker(fs, g.dir, markerName)
	if errors.Is(err, os.ErrNotExist) {
		return lost("there is no such directory")
	}
	if err != nil {
		return Generation{}, fmt.Errorf("read the marker of group %s: %w", g.id, err)
	}
	if value == "" {
		return lost("no marker says which generation is current")
	}
	gen, ok := parseGeneration(value)
	if !ok {
		return Generation{}, &durable.CorruptError{File: g.dir, Detail: fmt.Sprintf("the marker names %q", value)}
	}
	for _, dir := range []string{g.LogDir(gen), g.StateDir(gen)} {
		switch _, err := fs.Stat(dir); {
		case errors.Is(err, os.ErrNotExist):
			return lost("the marker names %s, which is not there", fs.PathBase(dir))
		case err != nil:
			return Generation{}, fmt.Errorf("stat %s: %w", dir, err)
		}
	}
	return gen, nil
}

// Birth makes the first generation. build makes both directories and returns when all in them is
// durable. A crash at any point leaves a group that was not added, to be born again: whatever an
// earlier birth left is removed first. A group that was added is refused, untouched; so is any group
// before the member belongs to a cluster.
//
// The group counts, and may be opened, once AddGroup has returned.
func (g *Group) Birth(build func(logDir, stateDir string) error) (Generation, error) {
	gen := Generation{Log: 1, State: 1}
	if err := g.birth(gen, build); err != nil {
		return Generation{}, fmt.Errorf("birth of group %s: %w", g.id, err)
	}
	return gen, nil
}

func (g *Group) birth(gen Generation, build func(logDir, stateDir string) error) error {
	fs := g.d.opts.FS
	if err := g.empty(); err != nil {
		return err
	}
	if err := build(g.LogDir(gen), g.StateDir(gen)); err != nil {
		return err
	}
	for _, dir := range []string{g.LogDir(gen), g.StateDir(gen), g.dir} {
		if err := durable.SyncDir(fs, dir); err != nil {
			return err
		}
	}
	return g.moveMarker(gen)
}

// empty makes the directory of a group that was not born, with nothing in it.
func (g *Group) empty() error {
	fs := g.d.opts.FS
	if g.d.Member().ID == 0 {
		return errors.New("the member belongs to no cluster")
	}
	if g.added() {
		return errors.New("it was born before")
	}
	if err := fs.RemoveAll(g.dir); err != nil {
		return fmt.Errorf("remove what an earlier birth left: %w", err)
	}
	return durable.MkdirAll(fs, g.dir, dirPerm)
}

// moveMarker makes gen the current generation: the one commit point.
func (g *Group) moveMarker(gen Generation) (err error) {
	marker, _, err := atomicfs.LocateMarker(markerFS{g.d.opts.FS}, g.dir, markerName)
	if err != nil {
		return fmt.Errorf("locate the marker: %w", err)
	}
	defer func() { err = errors.Join(err, marker.Close()) }()
	// Move panics when the directory cannot be synced, which is no reason to end the process.
	defer func() {
		if failed, ok := recover().(error); ok {
			err = fmt.Errorf("move the marker to %s: %w", gen, failed)
		}
	}()
	if err := marker.Move(gen.String()); err != nil {
		return fmt.Errorf("move the marker to %s: %w", gen, err)
	}
	return nil
}

// markerFS removes the old marker only when the new one is durable: a file system may keep the
// removal of one name and lose the other name that was made before it.
type markerFS struct{ vfs.FS }

func (fs markerFS) Remove(name string) error {
	if err := durable.SyncDir(fs.FS, fs.PathDir(name)); err != nil {
		return err
	}
	return fs.FS.Remove(name)
}

// Clean removes what is not current: other generations, artifacts that were being fetched or staged,
// old markers. It is called once the current generation has opened and proved sound. What a quarantine
// kept (kept-*) stays, as does everything else.
func (g *Group) Clean() error {
	if err := g.clean(); err != nil {
		return fmt.Errorf("clean up group %s: %w", g.id, err)
	}
	return nil
}

func (g *Group) clean() (err error) {
	fs := g.d.opts.FS
	gen, ok, err := g.Current()
	if err != nil || !ok {
		return err
	}
	names, err := fs.List(g.dir)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		old := strings.HasPrefix(name, "log-") && name != gen.logName() ||
			strings.HasPrefix(name, "state-") && name != gen.stateName() ||
			strings.HasPrefix(name, incomingPrefix) || name == artifactsName
		if !old {
			continue
		}
		if err := fs.RemoveAll(g.path(name)); err != nil {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	marker, _, err := atomicfs.LocateMarker(fs, g.dir, markerName)
	if err != nil {
		return err
	}
	if err := errors.Join(marker.RemoveObsolete(), marker.Close()); err != nil {
		return err
	}
	return durable.SyncDir(fs, g.dir)
}
