package wal

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Recovered is what reading a log back has found.
type Recovered struct {
	// HardState is that of the newest sound frame. Commit may be lower than what was committed: a
	// frame that moves commit alone is not worth a sync.
	HardState *pb.HardState
	Base      ident.EntryID // the entry before the first one
	Last      ident.EntryID // the last one; Base when there are none
	Segments  int
	// TornBytes counts the bytes of a write that the last crash cut short; 0: there was none.
	TornBytes int64
}

// FrameInfo is one sound frame, as Scan meets it.
type FrameInfo struct {
	Segment   string // file name
	Offset    int64
	Bytes     int64
	HardState *pb.HardState
	Entries   []EntryInfo
	Sealed    bool // the segment is full and ends here
}

// EntryInfo is one entry of a frame. It may have been overwritten by a later frame.
type EntryInfo struct {
	ID   ident.EntryID
	Type pb.EntryType
	Data []byte
}

// Scan reads the log of a group in dir and judges it as Open does, without changing anything. It
// calls visit, if that is not nil, for every sound frame, oldest first; what visit is given is valid
// until it returns, and an error of visit ends the scan. A torn tail is reported, not repaired.
// Damage is a *CorruptError, after the frames before it were visited.
func Scan(fs vfs.FS, dir string, group ident.GroupID, visit func(FrameInfo) error) (Recovered, error) {
	s, err := scan(fs, dir, group, visit)
	if err != nil {
		return Recovered{}, err
	}
	return s.recovered(), s.close()
}

// scanned is a log read back, its files open for reading.
type scanned struct {
	index
	torn int64
	// dropped are files that are no longer part of the log: segments before the head, and one that
	// holds nothing because the crash came before the segment ahead of it was sealed.
	dropped []string
}

func (s *scanned) recovered() Recovered {
	return Recovered{HardState: s.hs.proto(), Base: s.base, Last: s.lastID(), Segments: len(s.segments), TornBytes: s.torn}
}

func (s *scanned) close() error {
	var errs []error
	for _, seg := range s.segments {
		errs = append(errs, seg.release())
	}
	return errors.Join(errs...)
}

func scan(fs vfs.FS, dir string, group ident.GroupID, visit func(FrameInfo) error) (_ *scanned, err error) {
	s := &scanned{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	head, err := readHead(fs, dir)
	if err != nil {
		return nil, err
	}
	names, err := segmentNames(fs, dir)
	if err != nil {
		return nil, err
	}
	for len(names) > 0 && names[0].id < head {
		s.dropped, names = append(s.dropped, names[0].name), names[1:]
	}
	if len(names) == 0 || names[0].id != head {
		return nil, &CorruptError{Segment: dir, Detail: fmt.Sprintf("the first segment, %d, is missing", head)}
	}
	sealed := true // the segment before, or there is none
	for i, named := range names {
		name := named.name
		seg, err := openSegment(fs, dir, name)
		if err != nil {
			return nil, err
		}
		if err := s.checkHeader(seg, name, group); err != nil {
			return nil, errors.Join(err, seg.release())
		}
		if !sealed {
			blank, err := seg.blank()
			if err == nil && !(blank && i == len(names)-1) {
				prev := s.tail()
				err = &CorruptError{prev.name(), prev.end, s.lastIndex() + 1, "not sealed, but followed by " + name}
			}
			if err := errors.Join(err, seg.release()); err != nil {
				return nil, err
			}
			s.dropped = append(s.dropped, name)
			break
		}
		if i == 0 {
			s.base = seg.base
		}
		s.hs, s.segments = seg.hs, append(s.segments, seg)
		if sealed, err = s.readFrames(seg, visit); err != nil {
			return nil, err
		}
	}
	if sealed {
		return nil, &CorruptError{s.tail().name(), s.tail().end, s.lastIndex() + 1, "sealed, but the next segment is missing"}
	}
	if s.hs.commit < s.base.Index {
		return nil, &CorruptError{s.tail().name(), s.tail().end, s.base.Index + 1,
			fmt.Sprintf("commit is %d, but the log begins after index %d", s.hs.commit, s.base.Index)}
	}
	return s, nil
}

// segmentName is a file in the directory of a log that is named as a segment.
type segmentName struct {
	id   uint64
	name string
}

// segmentNames lists the segments in dir, oldest first.
func segmentNames(fs vfs.FS, dir string) ([]segmentName, error) {
	all, err := fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("list the log %s: %w", dir, err)
	}
	var names []segmentName
	for _, name := range all {
		if id, ok := parseSegmentName(name); ok {
			names = append(names, segmentName{id, name})
		}
	}
	slices.SortFunc(names, func(a, b segmentName) int { return cmp.Compare(a.id, b.id) })
	return names, nil
}

// openSegment opens a segment for reading and decodes its header.
func openSegment(fs vfs.FS, dir, name string) (*segment, error) {
	f, err := fs.Open(fs.PathJoin(dir, name))
	if err != nil {
		return nil, fmt.Errorf("open log segment: %w", err)
	}
	seg, err := readHeader(f, name)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return seg, nil
}

func readHeader(f vfs.File, name string) (*segment, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("stat log segment %s: %w", name, err)
	}
	b := make([]byte, min(info.Size(), segmentHeaderBytes))
	if err := readAt(f, b, 0); err != nil {
		return nil, fmt.Errorf("read the header of log segment %s: %w", name, err)
	}
	h, err := decodeSegmentHeader(name, b)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxSegmentBytes+maxFrameBytes+segmentHeaderBytes {
		return nil, &CorruptError{Segment: name, Offset: info.Size(), Detail: "the segment is larger than any that is written"}
	}
	return newSegment(h, f, info.Size(), segmentHeaderBytes), nil
}

// checkHeader judges whether seg continues the log as it stands.
func (s *scanned) checkHeader(seg *segment, name string, group ident.GroupID) error {
	bad := func(format string, args ...any) error {
		return &CorruptError{Segment: name, Index: s.lastIndex() + 1, Detail: fmt.Sprintf(format, args...)}
	}
	if seg.group != group {
		return bad("it belongs to group %s, want %s", seg.group, group)
	}
	if len(s.segments) == 0 {
		return nil
	}
	if want := s.tail().id + 1; seg.id != want {
		return bad("segment %d follows segment %d", seg.id, want-1)
	}
	if last := s.lastID(); seg.base != last {
		return bad("it begins after entry %s, but the segment before ends with entry %s", seg.base, last)
	}
	if err := s.hs.checkNext(seg.hs, s.lastIndex()); err != nil {
		return bad("its header cannot follow: %v", err)
	}
	return nil
}

// readFrames reads seg, the last segment so far, up to its end, and judges what follows.
func (s *scanned) readFrames(seg *segment, visit func(FrameInfo) error) (sealed bool, err error) {
	name := seg.name()
	corrupt := func(format string, args ...any) error {
		return &CorruptError{name, seg.end, s.lastIndex() + 1, fmt.Sprintf(format, args...)}
	}
	w, seed := &window{f: seg.file, size: seg.size}, seg.checksumSeed
	var refs []ref
	for {
		b, err := w.soundFrame(&seg.segmentHeader, seed, seg.end)
		if err != nil {
			return false, fmt.Errorf("read log segment %s: %w", name, err)
		}
		if b == nil {
			break
		}
		if sealed {
			return false, corrupt("a frame follows the one that seals the segment")
		}
		f, err := decodeFrame(b, seg.end, refs)
		if err != nil {
			return false, corrupt("%v", err)
		}
		if err := s.check(f); err != nil {
			return false, corrupt("%v", err)
		}
		if visit != nil {
			info, err := f.info(b, &seg.segmentHeader, seed, seg.end)
			if err != nil {
				return false, corrupt("%v", err)
			}
			if err := visit(info); err != nil {
				return false, err
			}
		}
		s.apply(f)
		seg.end += int64(len(b))
		refs, sealed = f.refs, f.sealed
	}
	torn, next, err := w.residue(&seg.segmentHeader, seed, seg.end)
	switch {
	case err != nil:
		return false, fmt.Errorf("read log segment %s: %w", name, err)
	case next > 0 && !mutantTruncateAnyBad:
		return false, corrupt("bad frame, followed by a sound one at offset %d", next)
	case mutantTornRefused && torn > 0:
		return false, corrupt("%d bytes after the last frame", torn)
	case sealed && torn > 0:
		return false, corrupt("%d bytes follow the frame that seals the segment", torn)
	}
	s.torn = torn
	return sealed, nil
}

// info describes f, whose encoding is b, to a visitor.
func (f *frame) info(b []byte, h *segmentHeader, seed uint32, pos int64) (FrameInfo, error) {
	info := FrameInfo{Segment: h.name(), Offset: pos, Bytes: int64(len(b)), HardState: f.hs.proto(), Sealed: f.sealed}
	for _, r := range f.refs {
		at := int64(r.pos.off) - pos
		var rec record
		if err := rec.decode(b[at:at+int64(r.pos.len)], seed, r.id.Index); err != nil {
			return FrameInfo{}, err
		}
		info.Entries = append(info.Entries, EntryInfo{rec.id, rec.typ, rec.entry.GetData()})
	}
	return info, nil
}

// blank reports whether nothing was ever written to s behind its header.
func (s *segment) blank() (bool, error) {
	w := &window{f: s.file, size: s.size}
	nonzero, _, err := w.residue(&s.segmentHeader, s.checksumSeed, segmentHeaderBytes)
	return nonzero == 0, err
}

// window reads a file through a buffer that moves forward.
type window struct {
	f    vfs.File
	size int64 // of the file
	buf  []byte
	off  int64 // of buf in the file
}

const windowBytes = 1 << 20

// at returns n bytes at offset off, valid until the next call.
// REQUIRES: off+n <= size.
func (w *window) at(off int64, n int) ([]byte, error) {
	if off < w.off || off+int64(n) > w.off+int64(len(w.buf)) {
		want := int(min(max(int64(n), windowBytes), w.size-off))
		w.buf, w.off = slices.Grow(w.buf[:0], want)[:want], off
		if err := readAt(w.f, w.buf, off); err != nil {
			w.buf = w.buf[:0]
			return nil, err
		}
	}
	at := int(off - w.off)
	return w.buf[at : at+n], nil
}

// soundFrame returns the whole frame at pos, or nil if there is no sound one.
func (w *window) soundFrame(h *segmentHeader, seed uint32, pos int64) ([]byte, error) {
	room := w.size - pos
	if room < frameHeaderBytes {
		return nil, nil
	}
	b, err := w.at(pos, frameHeaderBytes)
	if err != nil {
		return nil, err
	}
	n, ok := announcedBytes(b, h, pos, room)
	if !ok {
		return nil, nil
	}
	if b, err = w.at(pos, int(n)); err != nil || !soundFrame(b, seed) {
		return nil, err
	}
	return b, nil
}

// residue looks at what is behind the last sound frame, which ends at pos. torn counts the bytes up
// to the last one that is not zero. next is the offset of the first sound frame there; 0: none.
func (w *window) residue(h *segmentHeader, seed uint32, pos int64) (torn, next int64, err error) {
	for off := pos; off < w.size; off += frameAlign {
		b, err := w.at(off, int(min(frameAlign, w.size-off)))
		if err != nil {
			return 0, 0, err
		}
		if len(b) == frameAlign && binary.LittleEndian.Uint64(b) == 0 {
			continue
		}
		for i, c := range b {
			if c != 0 {
				torn = off + int64(i) + 1 - pos
			}
		}
		switch b, err := w.soundFrame(h, seed, off); {
		case err != nil:
			return 0, 0, err
		case b != nil:
			return torn, off, nil
		}
	}
	return torn, 0, nil
}

// readAt fills b from off. A file that ends early is an error: its length was asked before.
func readAt(f vfs.File, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}
