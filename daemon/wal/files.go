package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/ident"
)

// Names of files that are not segments yet. What a crash leaves of them is removed by Open.
const (
	tempSuffix = ".tmp"
	nextName   = "next" + tempSuffix  // becomes the next segment
	spareName  = "spare" + tempSuffix // zeros, in reserve to become one
	copyName   = "copy" + tempSuffix  // the copy of a segment that Open makes
)

// zeroChunk is how much is zeroed before it is synced. A sync of the log may have to wait for what
// another file has dirty, so that is kept small.
const zeroChunk = 1 << 20

// errStopped ends the preparation of a spare that nobody waits for any more.
var errStopped = errors.New("log closed")

// zero writes zeros to f from offset from up to offset to, and syncs them. Where that goes on beside appends,
// stop is not nil, and ends it: the disk is left to others for as long as it was kept busy.
func zero(f vfs.File, from, to int64, stop <-chan struct{}) error {
	if from >= to {
		return nil
	}
	// Best effort, for files in one piece: what makes appends cheap is that zeros are written.
	_ = f.Preallocate(0, to)
	zeros := make([]byte, min(zeroChunk, to-from))
	for off := from; off < to; {
		start := time.Now()
		n := min(int64(len(zeros)), to-off)
		if _, err := f.WriteAt(zeros[:n], off); err != nil {
			return fmt.Errorf("write %d zeros at offset %d: %w", n, off, err)
		}
		if err := f.SyncData(); err != nil {
			return fmt.Errorf("sync %d zeros at offset %d: %w", n, off, err)
		}
		off += n
		if stop == nil {
			continue
		}
		select {
		case <-stop:
			return errStopped
		case <-time.After(time.Since(start)):
		}
	}
	return nil
}

// createTemp makes an empty file of that name, in place of any old one.
func createTemp(fs vfs.FS, dir, name string) (vfs.File, error) {
	path := fs.PathJoin(dir, name)
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	// WriteAt is promised only for files that were opened like this.
	f, err = fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return f, nil
}

// createZeroed makes a file of that name with size bytes of zeros, synced. stop is that of zero.
func createZeroed(fs vfs.FS, dir, name string, size int64, stop <-chan struct{}) (vfs.File, error) {
	f, err := createTemp(fs, dir, name)
	if err != nil {
		return nil, err
	}
	err = zero(f, 0, size, stop)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare %s: %w", name, err), f.Close())
	}
	return f, nil
}

// begin makes the file f, which has the name temp, the segment h: header first, then the name. When
// it returns, the empty segment is durable.
func begin(fs vfs.FS, dir, temp string, f vfs.File, h segmentHeader, size int64) (*segment, error) {
	if _, err := f.WriteAt(h.encode(), 0); err != nil {
		return nil, fmt.Errorf("write the header of log segment %d: %w", h.id, err)
	}
	if err := f.Sync(); err != nil {
		return nil, fmt.Errorf("sync the header of log segment %d: %w", h.id, err)
	}
	if err := durable.Rename(fs, fs.PathJoin(dir, temp), fs.PathJoin(dir, h.name())); err != nil {
		return nil, fmt.Errorf("begin log segment %d: %w", h.id, err)
	}
	return newSegment(h, f, size, segmentHeaderBytes), nil
}

// copySegment puts a copy in the place of the segment s: its sound prefix, then room up to size. A failed
// sync in an earlier life may have left pages in the cache that read well and are not on the disk;
// only what this process has written and synced itself may be built upon. s goes on with the copy.
func copySegment(fs vfs.FS, dir string, s *segment, size int64) error {
	f, err := createTemp(fs, dir, copyName)
	if err != nil {
		return err
	}
	err = func() error {
		buf := make([]byte, min(windowBytes, s.end))
		for off := int64(0); off < s.end; {
			b := buf[:min(int64(len(buf)), s.end-off)]
			if err := readAt(s.file, b, off); err != nil {
				return fmt.Errorf("read at offset %d: %w", off, err)
			}
			if _, err := f.WriteAt(b, off); err != nil {
				return fmt.Errorf("write at offset %d: %w", off, err)
			}
			off += int64(len(b))
		}
		if err := zero(f, s.end, size, nil); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return fmt.Errorf("sync: %w", err)
		}
		return durable.Rename(fs, fs.PathJoin(dir, copyName), fs.PathJoin(dir, s.name()))
	}()
	if err != nil {
		return errors.Join(fmt.Errorf("copy %s: %w", s.name(), err), f.Close())
	}
	old := s.file
	s.file, s.size = f, max(s.end, size)
	return old.Close()
}

// removeLeftovers removes the files called dropped, and what a crash left of those that were not
// segments yet.
func removeLeftovers(fs vfs.FS, dir string, dropped []string) error {
	names, err := fs.List(dir)
	if err != nil {
		return fmt.Errorf("list the log %s: %w", dir, err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, tempSuffix) {
			dropped = append(dropped, name)
		}
	}
	return removeAll(fs, dir, dropped)
}

// removeAll removes the files called names from dir, durably.
func removeAll(fs vfs.FS, dir string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	for _, name := range names {
		if err := fs.Remove(fs.PathJoin(dir, name)); err != nil {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	return durable.SyncDir(fs, dir)
}

// The file head names the segment that the log begins with. Whatever comes before it is not part of
// the log. It is made when the first segment is dropped; until then the log begins with segment 1.
const headName = "head"

var headFormat = durable.Format{Magic: "TIDALHED", Version: 1} // payload: segment id u64

func writeHead(fs vfs.FS, dir string, id uint64) error {
	b := headFormat.Encode(binary.LittleEndian.AppendUint64(nil, id))
	return durable.WriteFile(fs, fs.PathJoin(dir, headName), b)
}

func readHead(fs vfs.FS, dir string) (id uint64, err error) {
	b, err := durable.ReadFile(fs, fs.PathJoin(dir, headName), 1<<10)
	if oserror.IsNotExist(err) {
		return 1, nil
	}
	if err == nil {
		b, err = headFormat.Decode(headName, b)
	}
	if e, ok := errors.AsType[*durable.VersionError](err); ok {
		return 0, &VersionError{Segment: headName, Have: uint32(e.Have), Max: uint32(e.Max)}
	}
	if e, ok := errors.AsType[*durable.CorruptError](err); ok {
		return 0, &CorruptError{Segment: headName, Detail: e.Detail}
	}
	if err != nil {
		return 0, fmt.Errorf("read the head of the log: %w", err)
	}
	if len(b) != 8 {
		return 0, &CorruptError{Segment: headName, Detail: fmt.Sprintf("payload of %d bytes, want 8", len(b))}
	}
	return binary.LittleEndian.Uint64(b), nil
}

func drawSalt(r io.Reader) (uint64, error) {
	var b [8]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, fmt.Errorf("draw the salt of a log segment: %w", err)
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// spare prepares the file of the next segment, a little at a time, while the present one fills up.
// It belongs to the writer of a Log; only its goroutine is elsewhere.
type spare struct {
	fs   vfs.FS
	dir  string
	size int64
	log  *slog.Logger

	// asked is set from the moment a spare is wanted until it is taken.
	asked bool
	want  chan struct{} // nil: prepared in the foreground
	ready chan vfs.File // holds one; nil in it: the preparation did not succeed
	stop  chan struct{}
	done  chan struct{}
}

// newSpare starts the goroutine, which stopAndWait joins. In the foreground there is none.
func newSpare(fs vfs.FS, dir string, group ident.GroupID, size int64, foreground bool, log *slog.Logger) *spare {
	s := &spare{
		fs: fs, dir: dir, size: size, log: log.With(slog.Any("group", group)),
		ready: make(chan vfs.File, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	if foreground {
		close(s.done)
		return s
	}
	s.want = make(chan struct{}, 1)
	go s.run()
	return s
}

func (s *spare) run() {
	defer close(s.done)
	for {
		select {
		case <-s.stop:
			return
		case <-s.want:
			s.ready <- s.prepare()
		}
	}
}

// prepare returns nil where it does not succeed: the next segment then does without.
func (s *spare) prepare() vfs.File {
	var stop <-chan struct{}
	if s.want != nil {
		stop = s.stop
	}
	f, err := createZeroed(s.fs, s.dir, spareName, s.size, stop)
	if err != nil {
		_ = s.fs.Remove(s.fs.PathJoin(s.dir, spareName)) // give the space back; Open removes it otherwise
		if !errors.Is(err, errStopped) {
			s.log.Warn("log segment not prepared", slog.Any("err", err))
		}
	}
	return f
}

// ask has a spare prepared, once until it is taken.
func (s *spare) ask() {
	if s.asked {
		return
	}
	s.asked = true
	if s.want == nil {
		s.ready <- s.prepare()
		return
	}
	s.want <- struct{}{}
}

// take returns the spare, or nil if there is none yet.
func (s *spare) take() vfs.File {
	select {
	case f := <-s.ready:
		s.asked = false
		return f
	default:
		return nil
	}
}

// stopAndWait ends the goroutine and closes a spare that was not used.
func (s *spare) stopAndWait() error {
	close(s.stop)
	<-s.done
	if f := s.take(); f != nil {
		return f.Close()
	}
	return nil
}
