// Package datadir is what a member has on its disk, and what may be concluded from it at the start:
// the lock, the identity (`member`), the promises (`votes`), and for every group which log and state
// generation is current.
//
//	<data-dir>/        may be a mount root: nothing renames it; mode 0700
//	  LOCK             held while the process runs
//	  member           identity, see member.go
//	  votes            term and vote of every group, see votes.go
//	  witness          what other members promised, see witness.go
//	  operations       what became of verbs that it ran, see operations.go
//	  outbox/          writes that the log has not taken over, see package outbox
//	  groups/0/
//	    marker.current.*         names the current generation, see group.go
//	    log-000001/  state-000001/
//	    reseed                   there while a reseed is latched, see reseed.go
//	    incoming-<id>/           an artifact that is being fetched, see install.go
//	    kept-<name>/             replaced data that an operator may want to look at
//	    artifacts/               artifacts for others
//
// What it promises: identity and votes survive a crash at any point, whole; neither is in a
// generation, so an install can neither ship them nor lose them. A file that is missing where it
// must be, or damaged, or copied from elsewhere, is an error and never "fresh": a member that forgot
// a vote could vote twice. A refusal changes nothing on the disk (it may leave a LOCK, but
// never among the files of somebody else). An error of a
// write is final: every later write returns it.
//
// Callers: daemon (Open), member (birth, boot), replica (votes).
package datadir

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/ident"
)

const (
	lockName    = "LOCK"
	memberName  = "member"
	votesName   = "votes"
	witnessName = "witness"
	groupsName  = "groups"
	outboxName  = "outbox"

	dirPerm = 0o700
)

// ErrClosed is returned by every write after Close.
var ErrClosed = errors.New("data directory closed")

// Options configures Open.
type Options struct {
	Path string // required; absolute where FS has no working directory
	// Name is the member's name, at most 255 bytes. Required. A directory belongs to one name for life.
	Name string

	FS     vfs.FS    // nil: the operating system's
	Rand   io.Reader // nil: the operating system's; the incarnation is drawn from it
	Logger *slog.Logger
	// FileID tells files apart, for recognising a copied directory. nil: by inode and time of birth
	// where FS is backed by real files; elsewhere files are not told apart.
	FileID func(path string) (FileID, error)
}

func (o Options) withDefaults() (Options, error) {
	if o.Path == "" {
		return o, errors.New("datadir: Path is required")
	}
	if o.Name == "" || len(o.Name) > maxNameBytes {
		return o, fmt.Errorf("datadir: Name has %d bytes, want 1 to %d", len(o.Name), maxNameBytes)
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.FileID == nil {
		o.FileID = func(path string) (FileID, error) { return statFile(o.FS, path) }
	}
	return o, nil
}

// Dir is an open data directory. Its methods may be called from anywhere.
type Dir struct {
	opts Options
	path paths
	lock io.Closer

	// write is held by whoever changes the disk. Lock order: write -> mu.
	write struct {
		sync.Mutex
		votes  vfs.File // open for writing
		failed error    // of the first write that failed, or ErrClosed
	}

	saving sync.Mutex // held by SaveWitness

	// mu is never held over I/O.
	mu struct {
		sync.RWMutex
		member Member
		votes  votes
	}
}

// paths names the files of a directory.
type paths struct {
	fs   vfs.FS
	root string
}

func (p paths) of(elem ...string) string {
	return p.fs.PathJoin(append([]string{p.root}, elem...)...)
}

func (p paths) group(g ident.GroupID) string { return p.of(groupsName, g.String()) }

// Open locks the directory, reads and checks everything in it, and only then raises the boot epoch.
// A directory that is not there, or empty, is made: with an incarnation, and without an id.
//
// The refusals are *ForeignError, *LockedError, *WrongNameError, *CopiedError, *LostGroupError,
// *durable.CorruptError and *durable.VersionError. What was read is written anew before it is
// relied on, since the page cache may claim what a failed sync never brought to the disk.
func Open(o Options) (*Dir, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &Dir{opts: o, path: paths{fs: o.FS, root: o.Path}}
	if err := durable.MkdirAll(o.FS, o.Path, dirPerm); err != nil {
		return nil, err
	}
	if err := refuseForeign(o.FS, o.Path); err != nil {
		return nil, err
	}
	if d.lock, err = lock(o.FS, d.path.of(lockName)); err != nil {
		return nil, err
	}
	if err := d.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", o.Path, err), d.lock.Close())
	}
	return d, nil
}

func (d *Dir) open() error {
	f, err := d.look()
	var what verdict
	if err == nil {
		what, err = decide(d.opts.Name, f)
	}
	if err != nil {
		return withWayOn(d.opts.Name, err)
	}
	member, votes := f.member, f.votes
	if what == makeAnew {
		if member.Incarnation, err = ident.MakeIncarnation(d.opts.Rand); err != nil {
			return err
		}
		member.Name = d.opts.Name
		votes = makeVotes(member.Incarnation)
	}
	for _, g := range member.Groups {
		if err := durable.SyncDir(d.opts.FS, d.path.group(g)); err != nil {
			return err
		}
	}
	// votes goes first: the directory exists once member does.
	if err := durable.WriteFile(d.opts.FS, d.path.of(votesName), votes.encode()); err != nil {
		return err
	}
	member.BootEpoch++
	if err := d.writeMember(&member); err != nil {
		return err
	}
	d.mu.member, d.mu.votes = member, votes
	if d.write.votes, err = d.opts.FS.OpenReadWrite(d.path.of(votesName), vfs.WriteCategoryUnspecified); err != nil {
		return fmt.Errorf("open votes for writing: %w", err)
	}
	d.opts.Logger.Info("data directory opened",
		slog.String("path", d.opts.Path),
		slog.Any("node", member.ID),
		slog.Any("cluster", member.Cluster),
		slog.String("incarnation", member.Incarnation.String()),
		slog.Uint64("boot", member.BootEpoch))
	return nil
}

// writeMember replaces the file, after putting the new file's identity into m.
func (d *Dir) writeMember(m *Member) error {
	return durable.WriteFileFunc(d.opts.FS, d.path.of(memberName), func(temp string) ([]byte, error) {
		id, err := d.opts.FileID(temp)
		if err != nil {
			return nil, fmt.Errorf("identify %s: %w", temp, err)
		}
		m.File = id
		return m.encode(), nil
	})
}

// Close lets go of the lock. A second Close is ErrClosed.
func (d *Dir) Close() error {
	d.write.Lock()
	defer d.write.Unlock()
	if errors.Is(d.write.failed, ErrClosed) {
		return ErrClosed
	}
	d.write.failed = ErrClosed
	return errors.Join(d.write.votes.Close(), d.lock.Close())
}

// OutboxDir is where the outbox of this member is; it may not be there.
func (d *Dir) OutboxDir() string { return d.path.of(outboxName) }

// Member returns the identity as it is on the disk.
func (d *Dir) Member() Member {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.mu.member.clone()
}

// Admit gives a fresh member its place in a cluster, durably: a member that ever belonged to one is
// not fresh again. genesis is the encoded genesis record it was born by or learned. Admitting it
// again to the same place changes nothing; to another is an error, but for a new id in the same cluster
// where no group was ever opened here: nobody can have heard anything of the old id.
func (d *Dir) Admit(cluster ident.ClusterID, id ident.MemberID, genesis []byte) error {
	if id == 0 || cluster.IsZero() || len(genesis) > maxGenesisBytes {
		return fmt.Errorf("admit member %s to cluster %s with %d bytes of genesis: out of range", id, cluster, len(genesis))
	}
	return d.changeMember(func(m *Member) (bool, error) {
		if m.ID == id && m.Cluster == cluster {
			return false, nil
		}
		if m.ID != 0 && (m.Cluster != cluster || len(m.Groups) > 0) {
			return false, fmt.Errorf("admit member %s to cluster %s: it is member %s of cluster %s already", id, cluster, m.ID, m.Cluster)
		}
		m.Cluster, m.ID, m.Genesis = cluster, id, slices.Clone(genesis)
		return true, nil
	})
}

// AddGroup writes down that this member has group g, which must have a generation. From then on a
// group that is not there is a lost disk; before, it may be born again. Adding it twice changes
// nothing.
func (d *Dir) AddGroup(g ident.GroupID) error {
	if _, err := d.Group(g).read(); err != nil {
		return fmt.Errorf("add group %s: %w", g, err)
	}
	return d.changeMember(func(m *Member) (bool, error) {
		at, ok := slices.BinarySearch(m.Groups, g)
		switch {
		case ok:
			return false, nil
		case m.ID == 0:
			return false, fmt.Errorf("add group %s: the member belongs to no cluster", g)
		case len(m.Groups) == maxGroups:
			return false, fmt.Errorf("add group %s: a member has at most %d", g, maxGroups)
		}
		m.Groups = slices.Insert(m.Groups, at, g)
		return true, nil
	})
}

// changeMember makes durable what change did to a copy of the identity, if it returns true.
func (d *Dir) changeMember(change func(*Member) (bool, error)) error {
	d.write.Lock()
	defer d.write.Unlock()
	if d.write.failed != nil {
		return d.write.failed
	}
	m := d.Member()
	if changed, err := change(&m); err != nil || !changed {
		return err
	}
	if err := d.writeMember(&m); err != nil {
		d.write.failed = err
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.member = m
	return nil
}

// Vote returns what was promised in group g: zero, if nothing ever was.
func (d *Dir) Vote(g ident.GroupID) Vote {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.mu.votes.of(g)
}

// SetVote makes a promise durable, with one sync; nothing that depends on it may leave before it
// returns nil. A term that falls, and another vote in the same term, are refused. The same promise
// again costs nothing.
func (d *Dir) SetVote(g ident.GroupID, v Vote) error {
	d.write.Lock()
	defer d.write.Unlock()
	if d.write.failed != nil {
		return d.write.failed
	}
	if d.Member().ID == 0 {
		return fmt.Errorf("vote in group %s: the member belongs to no cluster", g)
	}
	d.mu.RLock()
	next, err := d.mu.votes.with(g, v)
	same := err == nil && d.mu.votes.of(g) == v
	d.mu.RUnlock()
	if err != nil || same {
		return err
	}
	if err := next.write(d.write.votes); err != nil {
		d.write.failed = fmt.Errorf("write votes of %s: %w", d.opts.Path, err)
		return d.write.failed
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.votes = next
	return nil
}

// FileID tells a file from its copies. The zero FileID says that the file system cannot.
type FileID struct {
	Inode uint64
	// Birth is when the inode was made, in Unix nanoseconds; 0 where the file system does not say.
	Birth int64
	// Device is for people only: it changes from boot to boot.
	Device uint64
}

// same reports whether a file recorded as f may be the one that is now at hand.
func (f FileID) same(now FileID) bool {
	if f.Inode == 0 {
		return true // not known when it was written
	}
	births := f.Birth == now.Birth || f.Birth == 0 || now.Birth == 0
	return f.Inode == now.Inode && births
}

func (f FileID) String() string {
	return fmt.Sprintf("inode %d born %d on device %d", f.Inode, f.Birth, f.Device)
}
