// Package wal is the log of one group on disk: segments of checksummed frames, each frame the whole
// HardState together with the entries that came with it.
//
// What it promises: after a crash at any point Open returns the frames that were synced, in order,
// and at most the one that was being written; an entry never comes back without its HardState. A
// write that the crash cut short is told from damage: the one is left out and counted, the other is
// a *CorruptError, and nothing is truncated. After a failed write or sync the log is closed to
// everything: what a failed sync has left in the page cache proves nothing.
//
// It does not know which entries may go: what commit, state and followers need is its caller's
// business. Term and vote also live in datadir, which outlives a log; the caller compares.
//
// Callers: replica appends and reads, member opens, datadir's birth and snapshot's install create.
// Format and crash analysis: format.go, DESIGN.md.
package wal

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/ident"
)

// ErrClosed is what every call gets after Close.
var ErrClosed = errors.New("log closed")

// Options configures Create and Open. Dir is required.
type Options struct {
	Dir   string
	Group ident.GroupID

	// SegmentBytes is the preallocated size of a segment: the append that would cross it begins the
	// next one. 0 means 64 MiB; at most 1 GiB.
	SegmentBytes int64
	// FirstSegmentBytes is the size of the first segment, and how much room the tail gets when a log
	// is opened: it is zeroed while somebody waits. 0 means 4 MiB, or SegmentBytes if that is less.
	FirstSegmentBytes int64

	// Foreground has the next segment's file prepared within Append rather than beside it, so that
	// file operations have one order. For the simulator and for tests.
	Foreground bool

	// The seams. nil: the operating system, crypto/rand, no logging, no metrics.
	FS      vfs.FS
	Rand    io.Reader
	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("log: Dir is required")
	}
	o.SegmentBytes = cmp.Or(o.SegmentBytes, 64<<20)
	o.FirstSegmentBytes = cmp.Or(o.FirstSegmentBytes, min(4<<20, o.SegmentBytes))
	if o.SegmentBytes < 0 || o.SegmentBytes > maxSegmentBytes {
		return o, fmt.Errorf("log: SegmentBytes is %d, want up to %d", o.SegmentBytes, int64(maxSegmentBytes))
	}
	if o.FirstSegmentBytes < 0 || o.FirstSegmentBytes > o.SegmentBytes {
		return o, fmt.Errorf("log: FirstSegmentBytes is %d, want up to SegmentBytes, %d", o.FirstSegmentBytes, o.SegmentBytes)
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
	return o, nil
}

// Frame is what one raft Ready asks to be stored. A nil HardState stands for the newest one.
type Frame struct {
	HardState *pb.HardState
	Entries   []*pb.Entry
}

// Log is the open log of one group.
//
// Append, DropHead and Close take turns; reads run beside them. Lock order: writer, then mu.
type Log struct {
	opts    Options
	metrics *metrics
	unreg   func()

	writer struct {
		sync.Mutex
		buf     []byte      // the encoded frame; reused
		refs    []ref       // of that frame; reused
		entries []*pb.Entry // of that frame; reused
		spare   *spare

		// lazy: the hard state's commit is ahead of what was written, see Append.
		lazy   bool
		closed bool
	}

	mu struct {
		sync.RWMutex
		// What is here is changed with writer and mu both held, so that either is enough to read it.

		// index knows of durable entries only.
		index
		// failed is set once: by the first error of a write or a sync, or by Close.
		failed error
	}
}

// Create makes a log in Dir that begins after base, as genesis and an install do. hs is the
// HardState that it begins with; nil: base's term, and no vote. Its commit must be base.Index. There
// must be no log in Dir yet. When Create returns, everything is durable.
func Create(o Options, base ident.EntryID, hs *pb.HardState) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	h := segmentHeader{group: o.Group, id: 1, base: base, hs: hardState{term: base.Term, commit: base.Index}}
	if hs != nil {
		h.hs = makeHardState(hs)
	}
	if h.hs.commit != base.Index || h.hs.term < base.Term {
		return fmt.Errorf("create log after entry %s: hard state has term %d, commit %d", base, h.hs.term, h.hs.commit)
	}
	if err := durable.MkdirAll(o.FS, o.Dir, 0o700); err != nil {
		return err
	}
	names, err := segmentNames(o.FS, o.Dir)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("create log in %s: it holds %s already", o.Dir, names[0].name)
	}
	if h.salt, err = drawSalt(o.Rand); err != nil {
		return err
	}
	f, err := createZeroed(o.FS, o.Dir, nextName, o.FirstSegmentBytes, nil)
	if err != nil {
		return err
	}
	_, err = begin(o.FS, o.Dir, nextName, f, h, o.FirstSegmentBytes)
	return errors.Join(err, f.Close())
}

// Open reads the log in Dir back, repairs a torn tail, and makes it ready for appends. It fails with
// a *CorruptError, having changed nothing, where the log must not be used.
func Open(o Options) (_ *Log, _ Recovered, err error) {
	o, err = o.withDefaults()
	if err != nil {
		return nil, Recovered{}, err
	}
	s, err := scan(o.FS, o.Dir, o.Group, nil)
	if err != nil {
		return nil, Recovered{}, err
	}
	l := &Log{opts: o, metrics: newMetrics(o.Group)}
	if err = o.takeOver(s); err == nil {
		l.unreg, err = l.metrics.register(o.Metrics)
	}
	if err != nil {
		return nil, Recovered{}, errors.Join(err, s.close())
	}
	if s.torn > 0 {
		l.metrics.torn.Inc()
		o.Logger.Warn("torn tail of the log left out", slog.Any("group", o.Group),
			slog.Uint64("index", s.lastIndex()), slog.Int64("bytes", s.torn))
	}
	l.mu.index = s.index
	l.metrics.segments.Set(float64(len(s.segments)))
	l.writer.spare = newSpare(o.FS, o.Dir, o.Group, o.SegmentBytes, o.Foreground, o.Logger)
	return l, s.recovered(), nil
}

// takeOver makes the log that s found this process's own: leftovers go, and what the last sync of an
// earlier life may have failed on becomes a file that this process has written. That is the tail, and
// where the tail holds nothing yet also the segment before it: its seal was the last write.
func (o *Options) takeOver(s *scanned) error {
	if err := removeLeftovers(o.FS, o.Dir, s.dropped); err != nil {
		return err
	}
	tail := s.tail()
	if mutantTailInPlace {
		f, err := o.FS.OpenReadWrite(o.FS.PathJoin(o.Dir, tail.name()), vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		tail.file = f
		return nil
	}
	if n := len(s.segments); n > 1 && tail.end == segmentHeaderBytes {
		sealed := s.segments[n-2]
		if err := copySegment(o.FS, o.Dir, sealed, sealed.end); err != nil {
			return err
		}
	}
	return copySegment(o.FS, o.Dir, tail, min(tail.end+o.FirstSegmentBytes, o.SegmentBytes))
}

// Append adds frames, in order, and returns when they are durable: one write and one sync for all of
// them, as one frame on disk with the newest HardState and the entries that are left once later
// frames have overwritten what earlier ones brought. Entries become readable then.
//
// With sync false, frames that do nothing but move commit are only remembered; they go with the next
// frame that is written, or with Close. Everything else is synced in any case, before anything is
// written behind it: a crash can harm the last frame alone.
//
// A frame whose entries begin at or below the last index overwrites the entries from there on; below
// commit that is refused. An error is final: every later call returns it. Entries are not kept.
func (l *Log) Append(frames []Frame, sync bool) error {
	l.writer.Lock()
	defer l.writer.Unlock()
	if l.mu.failed != nil {
		return l.mu.failed
	}
	for len(frames) > 0 {
		n, err := l.appendSome(frames, sync)
		if err != nil {
			return l.fail(fmt.Errorf("append to the log after index %d: %w", l.mu.lastIndex(), err))
		}
		frames = frames[n:]
	}
	return nil
}

// gatherBytes is where a frame on disk stops taking in further frames, and the largest encode buffer
// that is kept.
const gatherBytes = 16 << 20

// appendSome appends the first n of frames, at least one.
func (l *Log) appendSome(frames []Frame, sync bool) (n int, err error) {
	w, x := &l.writer, &l.mu.index
	defer func() {
		clear(w.entries) // they are the caller's
		w.entries = w.entries[:0]
	}()
	f, size := frame{hs: x.hs}, 0
	for ; n < len(frames) && (n == 0 || size < gatherBytes); n++ {
		if err := l.gather(&f, frames[n]); err != nil {
			return 0, err
		}
		for _, e := range frames[n].Entries {
			size += recordBytes(e)
		}
	}
	if len(w.entries) == 0 && f.hs.term == x.hs.term && f.hs.vote == x.hs.vote {
		// Commit alone has moved, or nothing has.
		w.lazy = w.lazy || f.hs != x.hs
		if !w.lazy || !sync {
			l.publish(f)
			return n, nil
		}
	}
	return n, l.write(f)
}

// gather merges a frame into f and w.entries.
func (l *Log) gather(f *frame, in Frame) error {
	w := &l.writer
	if len(in.Entries) > 0 {
		first := in.Entries[0].GetIndex()
		if first <= f.hs.commit {
			return fmt.Errorf("entry %d/%d overwrites what is committed, up to index %d", in.Entries[0].GetTerm(), first, f.hs.commit)
		}
		if len(w.entries) > 0 {
			// Where in.Entries begin beyond the end, that is a gap: check finds it.
			from := w.entries[0].GetIndex()
			keep := min(max(first, from)-from, uint64(len(w.entries)))
			clear(w.entries[keep:])
			w.entries = w.entries[:keep]
		}
		w.entries = append(w.entries, in.Entries...)
	}
	if in.HardState == nil {
		return nil
	}
	last := l.mu.lastIndex()
	if n := len(w.entries); n > 0 {
		last = w.entries[n-1].GetIndex()
	}
	next := makeHardState(in.HardState)
	if err := f.hs.checkNext(next, last); err != nil {
		return err
	}
	f.hs = next
	return nil
}

// write makes f with the entries that were gathered durable, and then readable.
func (l *Log) write(f frame) error {
	w, x := &l.writer, &l.mu.index
	if mutantSplitFrame && len(w.entries) > 0 && f.hs.commit > x.hs.commit {
		ahead := f
		ahead.hs.commit = x.hs.commit
		if err := l.write(ahead); err != nil {
			return err
		}
		w.entries, f.refs = w.entries[:0], nil
	}
	records := 0
	w.refs = w.refs[:0]
	for _, e := range w.entries {
		if t := e.GetType(); t < 0 || t > math.MaxUint8 {
			return fmt.Errorf("entry %d/%d has type %d", e.GetTerm(), e.GetIndex(), t)
		}
		w.refs = append(w.refs, ref{id: ident.EntryID{Term: e.GetTerm(), Index: e.GetIndex()}})
		if records += recordBytes(e); records > maxFrameBytes-2*frameHeaderBytes {
			return fmt.Errorf("frame of more than %d bytes", int64(maxFrameBytes))
		}
	}
	f.refs = w.refs
	if err := x.check(f); err != nil {
		return err
	}
	tail := x.tail()
	// Room for the frame that seals the segment is kept.
	if need := int64(frameBytes(records) + frameBytes(0)); tail.end+need > tail.size && tail.end > segmentHeaderBytes {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	if err := l.writeFrame(x.tail(), f, w.entries); err != nil {
		return err
	}
	l.publish(f)
	w.lazy = false
	if tail = x.tail(); tail.end*2 >= tail.size {
		w.spare.ask()
	}
	return nil
}

// writeFrame writes f to the end of s and syncs it.
func (l *Log) writeFrame(s *segment, f frame, entries []*pb.Entry) error {
	w := &l.writer
	w.buf = appendFrame(w.buf[:0], &s.segmentHeader, s.checksumSeed, s.end, f, entries)
	n := len(w.buf)
	if _, err := s.file.WriteAt(w.buf, s.end); err != nil {
		return fmt.Errorf("write %d bytes at offset %d of %s: %w", n, s.end, s.name(), err)
	}
	if mutantAckBeforeSync {
		s.end += int64(n)
		return nil
	}
	start := time.Now()
	err := s.file.SyncData()
	if mutantFsyncRetried && err != nil {
		err = s.file.SyncData()
	}
	if err != nil {
		return fmt.Errorf("sync %d bytes at offset %d of %s: %w", n, s.end, s.name(), err)
	}
	l.metrics.fsync.Observe(time.Since(start).Seconds())
	l.metrics.appended.Add(float64(n))
	s.end += int64(n)
	if n > gatherBytes {
		w.buf = nil
	}
	return nil
}

// rotate begins the next segment. Its file is durable before the tail is sealed, and the seal is
// durable before the next segment gets a frame: the seal is the moment of the rotation.
func (l *Log) rotate() error {
	w, x := &l.writer, &l.mu.index
	tail := x.tail()
	h := segmentHeader{group: l.opts.Group, id: tail.id + 1, base: x.lastID(), hs: x.hs}
	var err error
	if h.salt, err = drawSalt(l.opts.Rand); err != nil {
		return err
	}
	temp, kind, f := spareName, "spare", w.spare.take()
	if f == nil {
		temp, kind = nextName, "fresh"
		if f, err = createTemp(l.opts.FS, l.opts.Dir, temp); err != nil {
			return err
		}
		_ = f.Preallocate(0, l.opts.SegmentBytes) // best effort
	}
	next, err := begin(l.opts.FS, l.opts.Dir, temp, f, h, l.opts.SegmentBytes)
	if err == nil {
		err = l.writeFrame(tail, frame{hs: x.hs, sealed: true}, nil)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.mu.Lock()
	x.segments = append(x.segments, next)
	l.mu.Unlock()
	l.metrics.rotations.WithLabelValues(kind).Inc()
	l.metrics.segments.Inc()
	return nil
}

func (l *Log) publish(f frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.apply(f)
}

// fail closes the log to every later call.
func (l *Log) fail(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.failed = err
	return err
}

// DropHead removes whole segments, oldest first, all of whose entries are below index keep, which is
// at most commit+1. The segment in use stays. What was dropped reads as raft.ErrCompacted; reads
// that have begun end well. An error of a removal is final.
func (l *Log) DropHead(keep uint64) error {
	l.writer.Lock()
	defer l.writer.Unlock()
	x := &l.mu.index
	if l.mu.failed != nil {
		return l.mu.failed
	}
	if keep > x.hs.commit+1 {
		return fmt.Errorf("drop the log below index %d: commit is %d", keep, x.hs.commit)
	}
	n := x.droppable(keep)
	if n == 0 {
		return nil
	}
	if l.writer.lazy {
		// What is dropped was committed: the log that remains must say so itself.
		if err := l.write(frame{hs: x.hs}); err != nil {
			return l.fail(fmt.Errorf("write commit %d before dropping the log below index %d: %w", x.hs.commit, keep, err))
		}
	}
	if err := l.drop(n); err != nil {
		return l.fail(fmt.Errorf("drop the log below index %d: %w", keep, err))
	}
	return nil
}

// drop removes the n oldest segments. The head is what decides; files are removed after it.
func (l *Log) drop(n int) error {
	if err := writeHead(l.opts.FS, l.opts.Dir, l.mu.segments[n].id); err != nil {
		return err
	}
	l.mu.Lock()
	old := l.mu.dropHead(n)
	l.mu.Unlock()
	l.metrics.segments.Sub(float64(n))
	var names []string
	var errs []error
	for _, s := range old {
		names = append(names, s.name())
		errs = append(errs, s.release())
	}
	return errors.Join(append(errs, removeAll(l.opts.FS, l.opts.Dir, names))...)
}

// FirstIndex returns the index of the first entry; LastIndex()+1 when there is none.
func (l *Log) FirstIndex() uint64 { return l.Base().Index + 1 }

// Base returns the entry before the first one.
func (l *Log) Base() ident.EntryID {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.mu.base
}

// LastIndex returns the index of the last durable entry; Base().Index when there is none.
func (l *Log) LastIndex() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.mu.lastIndex()
}

// Commit returns the newest commit index that was appended, be it written or only remembered.
func (l *Log) Commit() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.mu.hs.commit
}

// Term returns the term of entry i, or of Base: raft.ErrCompacted below that, raft.ErrUnavailable
// above LastIndex.
func (l *Log) Term(i uint64) (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	switch {
	case l.mu.failed != nil:
		return 0, l.mu.failed
	case i < l.mu.base.Index:
		return 0, raft.ErrCompacted
	case i > l.mu.lastIndex():
		return 0, raft.ErrUnavailable
	}
	return l.mu.term(i), nil
}

// Entries returns the entries in [lo, hi), at least one, up to about maxBytes of them, in memory of
// their own. raft.ErrCompacted: lo is below FirstIndex. raft.ErrUnavailable: hi is above LastIndex+1.
// A *CorruptError: what is there is not what was written.
func (l *Log) Entries(lo, hi, maxBytes uint64) ([]*pb.Entry, error) {
	runs, n, err := l.plan(lo, hi, maxBytes)
	if err != nil || n == 0 {
		return nil, err
	}
	records, entries := make([]record, n), make([]*pb.Entry, n)
	next := 0
	for _, r := range runs {
		if err == nil {
			err = r.read(records[next:], lo+uint64(next))
		}
		next += len(r.positions)
		err = errors.Join(err, r.segment.release())
	}
	if err != nil {
		return nil, err
	}
	for i := range records {
		entries[i] = &records[i].entry
	}
	return entries, nil
}

// run is a number of consecutive entries that one read fetches. It holds a reference to its segment.
type run struct {
	segment   *segment
	positions []position
}

// maxGap is how much of what lies between two entries is read along with them: frame headers, and
// entries that were overwritten.
const maxGap = 4 << 10

// plan finds the first n entries of [lo, hi), up to maxBytes.
func (l *Log) plan(lo, hi, maxBytes uint64) (runs []run, n int, err error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	switch {
	case l.mu.failed != nil:
		return nil, 0, l.mu.failed
	case lo <= l.mu.base.Index:
		return nil, 0, raft.ErrCompacted
	case hi > l.mu.lastIndex()+1:
		return nil, 0, raft.ErrUnavailable
	}
	var total uint64
	for i := lo; i < hi; {
		s := l.mu.holder(i)
		from := i
		for end := min(hi, s.next()); i < end; i++ {
			p := s.positions[i-s.first]
			if i > from {
				if prev := s.positions[i-1-s.first]; p.off-(prev.off+prev.len) > maxGap {
					break
				}
			}
			if total += uint64(p.len); total > maxBytes && i > lo {
				hi = i
				break
			}
		}
		if i > from {
			s.refs.Add(1)
			// A copy: a later overwrite changes the positions in place.
			runs = append(runs, run{s, slices.Clone(s.positions[from-s.first : i-s.first])})
		}
	}
	return runs, int(hi - min(lo, hi)), nil
}

// read fetches the entries of r, the first of which has index lo.
func (r run) read(into []record, lo uint64) error {
	s, from, last := r.segment, r.positions[0].off, r.positions[len(r.positions)-1]
	buf := make([]byte, last.off+last.len-from)
	if err := readAt(s.file, buf, int64(from)); err != nil {
		return fmt.Errorf("read %d entries from index %d in log segment %s: %w", len(r.positions), lo, s.name(), err)
	}
	for i, p := range r.positions {
		index := lo + uint64(i)
		if err := into[i].decode(buf[p.off-from:p.off-from+p.len], s.checksumSeed, index); err != nil {
			return &CorruptError{s.name(), int64(p.off), index, err.Error()}
		}
	}
	return nil
}

// Close writes what Append only remembered, waits for the background, and closes the files. Reads
// that are under way end well; every later call returns ErrClosed, or the error that had failed the
// log before.
func (l *Log) Close() error {
	l.writer.Lock()
	defer l.writer.Unlock()
	if l.writer.closed {
		return nil
	}
	l.writer.closed = true
	var errs []error
	if l.mu.failed == nil && l.writer.lazy {
		if err := l.write(frame{hs: l.mu.hs}); err != nil {
			errs = append(errs, fmt.Errorf("write commit %d: %w", l.mu.hs.commit, err))
		}
	}
	errs = append(errs, l.writer.spare.stopAndWait())
	l.mu.Lock()
	l.mu.failed = cmp.Or(l.mu.failed, ErrClosed)
	segments := l.mu.segments
	l.mu.Unlock()
	for _, s := range segments {
		errs = append(errs, s.release())
	}
	l.unreg()
	return errors.Join(errs...)
}
