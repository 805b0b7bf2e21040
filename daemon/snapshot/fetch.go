package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/zeebo/blake3"

	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/nice"
)

// reserveBytes is the room that an artifact must leave on the disk at least.
const reserveBytes = 16 << 20

// Source is a member that artifacts are fetched from.
type Source interface {
	// Open asks for an artifact and returns the answer. The stream, if an artifact is needed, must be
	// closed; it ends with ctx.
	Open(ctx context.Context, r Request) (Header, Stream, error)
}

// Stream is the chunks of an artifact, in order.
type Stream interface {
	// Next returns io.EOF after the last chunk.
	Next() (Chunk, error)
	Close()
}

// Request asks for an artifact of a group.
type Request struct {
	Group ident.GroupID
	// From is the next entry that the consumer needs. Unless Always is set, an artifact is needed only
	// where the log of the source does not hold it.
	From   uint64
	Always bool
	// Least is an index that the artifact must hold, or 0: see Barrier in DESIGN.md.
	Least uint64
	// Have is the artifact of which everything before Resume has arrived; zero: none.
	Have   ID
	Resume Cursor
}

// Header is the answer to a Request.
type Header struct {
	Needed bool
	Term   uint64 // of the source; every chunk has the same
	// Manifest is encoded; nil where none is needed. From is where the chunks begin.
	Manifest []byte
	From     Cursor
}

// Cursor is a place in an artifact: a file by its position in the manifest, and an offset in it.
type Cursor struct {
	File   int
	Offset int64
}

// Chunk is a piece of a file.
type Chunk struct {
	Cursor
	Data []byte
	Sum  uint32 // durable.Checksum of Data
	Term uint64 // of the source
}

// FetcherOptions configures NewFetcher. Fields without a remark are required.
type FetcherOptions struct {
	FS      vfs.FS
	Dir     func(id string) string // where the artifact of this id is gathered; its parent exists
	Cluster ident.ClusterID
	Group   ident.GroupID // 0 is a group too
	// Prove says whether the state whose files are in dir is the one that the manifest promises: nobody has
	// it open, and it is not durable yet. nil: nobody asks.
	Prove func(dir string, m *Manifest) error
	// Reserve returns the room that an artifact must leave on the disk, for what goes on beside it. nil: 16 MiB,
	// and never less.
	Reserve func() uint64
	// Foreground has nothing done beside the caller, so that file operations have one order.
	Foreground bool
}

// Fetcher fetches one artifact, in as many attempts as it takes. Only Progress may be called from
// elsewhere than the goroutine that owns it.
type Fetcher struct {
	opts FetcherOptions
	in   *incoming // nil: nothing arrived yet

	arrived, total atomic.Int64
}

// incoming is an artifact of which some has arrived.
//
// Invariant: everything before next is written, and every whole file before it has the right sum. Between
// two attempts all whole files are durable too.
type incoming struct {
	id       ID
	manifest *Manifest
	dir      string
	next     Cursor
	whole    int64          // bytes of the files before next
	file     *landing       // next.File, open for writing; nil: at its beginning
	hash     *blake3.Hasher // of its first next.Offset bytes
	done     bool           // all of it is proved and durable
}

// NewFetcher returns a fetcher that has fetched nothing.
func NewFetcher(o FetcherOptions) *Fetcher { return &Fetcher{opts: o} }

// Progress returns how many bytes of how many have arrived; 0 of 0 before the manifest has.
func (f *Fetcher) Progress() (arrived, total int64) { return f.arrived.Load(), f.total.Load() }

// Artifact is what a Fetcher brought: proved, durable, and not yet installed.
type Artifact struct {
	ID       ID
	Term     uint64 // of the source when it began
	Manifest *Manifest
}

// Fetch asks src and takes what it sends. It returns nil and no error when the source's log has what
// is needed. After an error Fetch may be called again, with any source: what has arrived stays, and is
// not sent again if the source still has the same artifact. It runs at a low priority.
func (f *Fetcher) Fetch(ctx context.Context, src Source, r Request) (a *Artifact, err error) {
	nice.Do(func() { a, err = f.fetch(ctx, src, r) })
	return a, err
}

func (f *Fetcher) fetch(ctx context.Context, src Source, r Request) (*Artifact, error) {
	if in := f.in; in != nil {
		r.Have, r.Resume = in.id, in.next
	}
	h, stream, err := src.Open(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("ask for an artifact of group %s: %w", r.Group, err)
	}
	if stream != nil {
		defer stream.Close()
	}
	if !h.Needed {
		return nil, nil
	}
	if err := f.begin(h, r); err != nil {
		return nil, err
	}
	disk := newWriteback(f.opts.Foreground)
	err = f.receive(stream, h.Term, disk)
	if err == nil {
		err = f.prove() // while the disk works
	}
	if failed := disk.wait(); failed != nil { // what is whole cannot be told from what is not
		id := f.in.id
		return nil, errors.Join(fmt.Errorf("write artifact %s of group %s: %w", id, r.Group, failed), f.Discard())
	}
	if err == nil {
		err = f.in.finish(f.opts.FS)
	}
	if errors.As(err, new(*ProofError)) {
		return nil, errors.Join(err, f.Discard())
	}
	if err != nil {
		return nil, fmt.Errorf("fetch artifact %s of group %s: %w", f.in.id, r.Group, err)
	}
	return &Artifact{ID: f.in.id, Term: h.Term, Manifest: f.in.manifest}, nil
}

// Needed asks src whether an artifact is needed at all, and takes none.
func Needed(ctx context.Context, src Source, r Request) (bool, error) {
	h, stream, err := src.Open(ctx, r)
	if err != nil {
		return false, fmt.Errorf("ask whether an artifact of group %s is needed: %w", r.Group, err)
	}
	if stream != nil {
		stream.Close()
	}
	return h.Needed, nil
}

// begin judges the manifest and makes the directory, unless the artifact is the one under way.
func (f *Fetcher) begin(h Header, r Request) error {
	m, err := DecodeManifest(h.Manifest)
	if err != nil {
		return err
	}
	id := idOf(h.Manifest)
	if in := f.in; in != nil && in.id == id && h.From == in.next {
		return nil
	}
	if h.From != (Cursor{}) {
		return &ManifestError{fmt.Sprintf("artifact %s is sent from file %d, offset %d", id, h.From.File, h.From.Offset)}
	}
	switch at := m.Position.Applied; {
	case m.Cluster != f.opts.Cluster || m.Group != f.opts.Group:
		return &ManifestError{fmt.Sprintf("it is of group %s in cluster %s, want group %s in %s", m.Group, m.Cluster, f.opts.Group, f.opts.Cluster)}
	case at.Index < r.Least:
		return &BehindError{Want: r.Least, Have: at.Index}
	}
	if err := f.Discard(); err != nil {
		return err
	}
	dir := f.opts.Dir(id.String())
	if err := f.room(f.opts.FS.PathDir(dir), uint64(m.Bytes())); err != nil {
		return err
	}
	if err := f.opts.FS.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	if err := durable.MkdirAll(f.opts.FS, dir, 0o700); err != nil {
		return err
	}
	f.in = &incoming{id: id, manifest: m, dir: dir}
	f.arrived.Store(0)
	f.total.Store(m.Bytes())
	return nil
}

// room reports whether what has still to arrive of an artifact fits. A file system that does not say is taken to
// have room.
func (f *Fetcher) room(dir string, need uint64) error {
	reserve := uint64(reserveBytes)
	if f.opts.Reserve != nil {
		reserve = max(reserve, f.opts.Reserve())
	}
	need += reserve
	usage, err := f.opts.FS.GetDiskUsage(dir)
	if err == nil && usage.AvailBytes < need {
		return &NoRoomError{Need: need, Free: usage.AvailBytes}
	}
	if err != nil && !errors.Is(err, vfs.ErrUnsupported) {
		return fmt.Errorf("measure the room in %s: %w", dir, err)
	}
	return nil
}

// receive takes chunks until the artifact is whole. What it leaves to disk may not be durable yet.
func (f *Fetcher) receive(stream Stream, term uint64, disk *writeback) error {
	in := f.in
	for {
		if err := in.skipEmpty(f.opts.FS, disk); err != nil {
			return err
		}
		if in.next.File == len(in.manifest.Files) {
			return nil
		}
		if in.next.Offset == 0 { // others have written to the disk meanwhile
			if err := f.room(in.dir, uint64(in.manifest.Bytes()-in.whole)); err != nil {
				return err
			}
		}
		c, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("it ends in file %d, offset %d: %w", in.next.File, in.next.Offset, io.ErrUnexpectedEOF)
		}
		if err != nil {
			return err
		}
		err = in.take(f.opts.FS, c, term, disk)
		f.arrived.Store(in.whole + in.next.Offset)
		if err != nil {
			return err
		}
	}
}

// skipEmpty makes the empty files that come next: no chunk stands for them.
func (in *incoming) skipEmpty(fs vfs.FS, disk *writeback) error {
	for in.next.File < len(in.manifest.Files) && in.next.Offset == 0 && in.manifest.Files[in.next.File].Bytes == 0 {
		if err := in.create(fs); err != nil {
			return err
		}
		if err := in.endFile(disk); err != nil {
			return err
		}
	}
	return nil
}

// take writes one chunk, which must be the next one and what it says to be.
func (in *incoming) take(fs vfs.FS, c Chunk, term uint64, disk *writeback) error {
	file := in.manifest.Files[in.next.File]
	refuse := func(format string, args ...any) error {
		return &TransferError{Source: in.manifest.Source, File: file.Name, Detail: fmt.Sprintf(format, args...)}
	}
	switch {
	case c.Term != term:
		return refuse("a chunk of term %d, the stream began in term %d", c.Term, term)
	case c.Cursor != in.next:
		return refuse("a chunk for file %d, offset %d, want file %d, offset %d", c.File, c.Offset, in.next.File, in.next.Offset)
	case len(c.Data) == 0 || int64(len(c.Data)) > file.Bytes-c.Offset:
		return refuse("a chunk of %d bytes at offset %d of %d", len(c.Data), c.Offset, file.Bytes)
	case durable.Checksum(c.Data) != c.Sum:
		return refuse("checksum %08x at offset %d, want %08x", durable.Checksum(c.Data), c.Offset, c.Sum)
	}
	if in.file == nil {
		if err := in.create(fs); err != nil {
			return err
		}
	}
	_, _ = in.hash.Write(c.Data) // a hash does not fail; before the write, which may scribble
	if _, err := in.file.Write(c.Data); err != nil {
		in.spoiled()
		return fmt.Errorf("write %d bytes of %s: %w", len(c.Data), file.Name, err)
	}
	if err := disk.wrote(in.file, len(c.Data)); err != nil {
		return err
	}
	if in.next.Offset += int64(len(c.Data)); in.next.Offset == file.Bytes {
		return in.endFile(disk)
	}
	return nil
}

// create begins the next file.
func (in *incoming) create(fs vfs.FS) error {
	file, err := fs.Create(fs.PathJoin(in.dir, in.manifest.Files[in.next.File].Name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	in.file, in.hash = &landing{File: file}, blake3.New()
	return nil
}

// spoiled goes back to the beginning of the file, of which nothing is certain.
func (in *incoming) spoiled() {
	if in.file != nil {
		in.file.abandon()
	}
	in.file, in.next.Offset = nil, 0
}

// endFile verifies the file whose last byte was written, and leaves it to disk to make it durable.
func (in *incoming) endFile(disk *writeback) error {
	file := in.manifest.Files[in.next.File]
	if sum := [sumBytes]byte(in.hash.Sum(nil)); sum != file.Sum {
		in.spoiled()
		return &TransferError{Source: in.manifest.Source, File: file.Name, Detail: fmt.Sprintf("BLAKE3 %x, want %x", sum, file.Sum)}
	}
	landed := in.file
	in.file = nil
	if err := disk.end(landed); err != nil {
		in.spoiled()
		return fmt.Errorf("sync and close %s: %w", file.Name, err)
	}
	in.next = Cursor{File: in.next.File + 1}
	in.whole += file.Bytes
	return nil
}

// prove judges an artifact all of which has arrived.
func (f *Fetcher) prove() error {
	if f.in.done || f.opts.Prove == nil {
		return nil
	}
	if err := f.opts.Prove(f.in.dir, f.in.manifest); err != nil {
		return &ProofError{Source: f.in.manifest.Source, Artifact: f.in.id, Err: err}
	}
	return nil
}

// finish makes the names durable.
func (in *incoming) finish(fs vfs.FS) error {
	if in.done {
		return nil
	}
	if err := durable.SyncDir(fs, in.dir); err != nil {
		return err
	}
	in.done = true
	return nil
}

// Discard removes what has arrived. The Fetcher can begin again.
func (f *Fetcher) Discard() error {
	if f.in == nil {
		return nil
	}
	if f.in.file != nil {
		f.in.file.abandon()
	}
	dir := f.in.dir
	f.in = nil
	f.arrived.Store(0)
	f.total.Store(0)
	if err := f.opts.FS.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}
