package datadir

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/tidaldb/tidal/daemon/durable"
)

const (
	incomingPrefix = "incoming-"
	keptPrefix     = "kept-"
	artifactsName  = "artifacts"
)

// IncomingDir returns where an artifact is gathered that is being fetched. id names it: lower-case
// letters and digits.
func (g *Group) IncomingDir(id string) string { return g.path(incomingPrefix + id) }

// ArtifactsDir returns where artifacts are staged for others. What is there means nothing after the
// process that staged it has ended.
func (g *Group) ArtifactsDir() string { return g.path(artifactsName) }

// PrepareBirth empties the directory of a group that was not born, for an artifact to be fetched into:
// the group is born when Install and then AddGroup have returned. A group that was added is refused.
func (g *Group) PrepareBirth() error {
	if err := g.empty(); err != nil {
		return fmt.Errorf("prepare the birth of group %s: %w", g.id, err)
	}
	return nil
}

// Install makes the artifact in IncomingDir(id), whose files are durable, the state of the group; of a
// group that was not born, its first generation, which needs a new log.
// With newLog, which builds a log that is durable when it returns, the log is replaced too; without,
// the current one stays. The replica must be closed.
//
//  1. remove what an install that did not end left under the names of the next generation
//  2. build the log, sync its directory
//  3. rename the artifact to the next state, sync both parents
//  4. move the marker: the one commit point
//
// A crash before 4 leaves the old generation current and whole, one after it the new one. The old one
// stays until Clean or Keep; an error leaves what a crash would.
func (g *Group) Install(id string, newLog func(logDir string) error) (Generation, error) {
	gen, err := g.install(id, newLog)
	if err != nil {
		return Generation{}, fmt.Errorf("install in group %s: %w", g.id, err)
	}
	return gen, nil
}

func (g *Group) install(id string, newLog func(logDir string) error) (Generation, error) {
	fs := g.d.opts.FS
	gen, ok, err := g.Current()
	if err != nil {
		return Generation{}, err
	}
	if !ok && newLog == nil {
		return Generation{}, errors.New("it was not born, and has no log to keep")
	}
	next := Generation{Log: gen.Log, State: gen.State + 1}
	fresh := []string{g.StateDir(next)}
	if newLog != nil {
		next.Log++
		fresh = append(fresh, g.LogDir(next))
	}
	for _, dir := range fresh {
		if err := fs.RemoveAll(dir); err != nil {
			return Generation{}, fmt.Errorf("remove what an earlier install left: %w", err)
		}
	}
	if newLog != nil {
		if err := newLog(g.LogDir(next)); err != nil {
			return Generation{}, fmt.Errorf("build %s: %w", next.logName(), err)
		}
		if err := durable.SyncDir(fs, g.LogDir(next)); err != nil {
			return Generation{}, err
		}
	}
	if err := durable.SyncDir(fs, g.IncomingDir(id)); err != nil {
		return Generation{}, err
	}
	if err := durable.Rename(fs, g.IncomingDir(id), g.StateDir(next)); err != nil {
		return Generation{}, err
	}
	return next, g.moveMarker(next)
}

// Keep sets aside what of a replaced generation is not current any more, as kept-<name>, until the
// operator removes it. Doing it again, or for what is gone, changes nothing.
func (g *Group) Keep(old Generation, name string) error {
	if err := g.keep(old, name); err != nil {
		return fmt.Errorf("keep %s of group %s: %w", old, g.id, err)
	}
	return nil
}

func (g *Group) keep(old Generation, name string) error {
	fs := g.d.opts.FS
	gen, ok, err := g.Current()
	if err != nil || !ok {
		return err
	}
	var moved []string
	if old.Log != gen.Log {
		moved = append(moved, old.logName())
	}
	if old.State != gen.State {
		moved = append(moved, old.stateName())
	}
	kept := g.path(keptPrefix + name)
	for _, dir := range moved {
		switch _, err := fs.Stat(g.path(dir)); {
		case errors.Is(err, os.ErrNotExist):
			continue
		case err != nil:
			return err
		}
		if err := durable.MkdirAll(fs, kept, dirPerm); err != nil {
			return err
		}
		if err := durable.Rename(fs, g.path(dir), fs.PathJoin(kept, dir)); err != nil {
			return err
		}
	}
	return nil
}

// RemoveIncoming removes artifacts that were being fetched and will not be used.
func (g *Group) RemoveIncoming() error {
	fs := g.d.opts.FS
	names, err := fs.List(g.dir)
	if err != nil {
		return fmt.Errorf("list group %s: %w", g.id, err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, incomingPrefix) {
			if err := fs.RemoveAll(g.path(name)); err != nil {
				return fmt.Errorf("remove %s: %w", name, err)
			}
		}
	}
	return nil
}
