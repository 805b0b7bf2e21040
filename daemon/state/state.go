// Package state is the Pebble store of one group.
//
// The raft log is the journal: Pebble runs without a log of its own. One batch carries the effects
// of a run of committed entries together with the position they lead to, all or nothing. What was
// committed lately is in memory only; after a crash the store stands at some earlier position, never
// between two, and the log replays what follows. So the log must keep every entry after
// FlushedIndex.
//
// It fails closed: after the first error on a write path nothing on the disk changes any more, every
// later call returns that error, and the owner is told once (Options.OnFatal). See fuse.go.
//
// Callers: apply (batches), query (views), replica (positions, flushes), member (Create and Open).
// Keys begin with a table byte. Table 0x00 is this package's own; daemon/entity declares the others.
package state

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidaldb/tidal/daemon/durable"
)

const (
	// formatMajorVersion is Pebble's own format. It is raised only by a feature activation, since an
	// older binary cannot go back below it.
	formatMajorVersion = pebble.FormatTableFormatV6

	// memtableBytes bounds one memtable. flushBytes is how much is committed between two flushes: it
	// is lower, so that a memtable rarely fills up before this package flushes it and knows of it.
	// One flush runs at a time, so about three memtables bound what is not yet on the disk.
	memtableBytes = 8 << 20
	flushBytes    = 6 << 20

	// defaultCacheBytes holds blocks and memtables.
	defaultCacheBytes = 32 << 20

	// maxSublevels is the number of overlapping layers of fresh tables above which commits wait for
	// compactions.
	maxSublevels = 20
)

// ErrClosed is returned by every call after Close.
var ErrClosed = errors.New("state: closed")

// Options configures Create and Open. Every field but Dir may be zero.
type Options struct {
	FS vfs.FS // nil: the operating system's
	// Dir holds the store and nothing else. Required; absolute where FS has no working directory.
	Dir    string
	Logger *slog.Logger
	// Metrics takes the metrics for as long as the store is open. Wrap it with a group label where
	// a process has several groups. nil: not exported.
	Metrics prometheus.Registerer
	// CacheBytes is the memory for blocks and memtables. 0: 32 MiB.
	CacheBytes int64
	// Foreground has everything done within Open and Flush that Pebble would do beside them, so that
	// file operations have one order. For the simulator and for tests.
	Foreground bool
	// OnFatal is told, at most once and only after Open has returned, the error by which the store
	// failed closed. It may be called on any goroutine and with locks held: it must not block, nor
	// call the store. What it should bring about is a Close, from elsewhere.
	OnFatal func(error)
}

func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("state: Dir is required")
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = defaultCacheBytes
	}
	return o, nil
}

// Store is an open store. Position, FlushedIndex, Get and NewView may be called from anywhere;
// batches are committed by one goroutine at a time, Flush by any.
type Store struct {
	db       *pebble.DB
	fs       vfs.FS
	log      *slog.Logger
	dir      string
	fuse     *fuse
	metrics  *metrics
	obsolete *obsolete // nil: not foreground
	// compacted has an element when a flush or a compaction ended since it was last taken.
	compacted chan struct{}

	// copies is where checkpoints are made; nil: none was yet.
	copies atomic.Pointer[string]

	// asking counts questions to Pebble that nobody waits for any more; Close does.
	asking sync.WaitGroup

	position atomic.Pointer[Position]
	flushed  atomic.Uint64

	// write is held by a commit or a flush.
	write struct {
		sync.Mutex
		// unflushed is how many bytes were committed since a flush was last begun.
		unflushed int
		// flush is the last flush begun. nil: none since Open.
		flush *flush
	}

	// users counts calls and views under way; Close waits for them.
	users struct {
		sync.Mutex
		sync.WaitGroup
		closed bool
	}
}

// flush is one flush of the memtables.
type flush struct {
	done  <-chan struct{} // closed when the flush is durable; never, if the store fails first
	index uint64          // applied index that is durable then
}

// Create makes a store in Dir, which must hold none: fill's writes and pos, durable when Create
// returns nil. After an error Dir holds anything, and is to be removed.
func Create(o Options, pos Position, fill func(*Batch) error) (err error) {
	if len(pos.Conf.GetVoters()) == 0 {
		return fmt.Errorf("create state at %s: a replica is born with voters", pos.Applied)
	}
	s, err := open(o, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	b := s.NewBatch()
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := fill(b); err != nil {
		return fmt.Errorf("fill new state in %s: %w", o.Dir, err)
	}
	return b.Commit(pos)
}

// Open opens the store that Create, or an install, made. An error of the disk, a store that is
// missing, and one that is corrupt are all errors; nothing is ever made up.
func Open(o Options) (*Store, error) {
	s, err := open(o, false)
	if err != nil {
		return nil, err
	}
	err = s.findPosition()
	if err == nil {
		err = s.fuse.arm(o.OnFatal)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open state in %s: %w", o.Dir, err), s.abandon())
	}
	return s, nil
}

// findPosition reads the position of the store and makes it durable.
//
// Durable, because what was read may be in the operating system's memory only: a process that was
// killed between writing and syncing Pebble's manifest leaves it so. Flushing, even nothing, makes
// Pebble write a new manifest and sync it.
func (s *Store) findPosition() error {
	value, closer, err := s.db.Get(positionKey)
	if err != nil {
		return fmt.Errorf("read the position: %w", err)
	}
	pos, err := DecodePosition(value)
	if err := errors.Join(err, closer.Close()); err != nil {
		return err
	}
	s.position.Store(&pos)
	_, err = s.Flush()
	return err
}

func open(o Options, fresh bool) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if fresh {
		err = durable.MkdirAll(o.FS, o.Dir, 0o700)
	} else if _, err = o.FS.Stat(o.Dir); err != nil {
		err = fmt.Errorf("open state: %w", err) // Pebble would make the directory
	}
	if err != nil {
		return nil, err
	}
	s := &Store{fs: o.FS, log: o.Logger, dir: o.Dir, fuse: newFuse(), compacted: make(chan struct{}, 1)}
	if o.Foreground {
		s.obsolete = &obsolete{}
	}
	s.position.Store(&Position{})
	if s.metrics, err = newMetrics(o.Metrics, s); err != nil {
		return nil, err
	}
	cache := pebble.NewCache(o.CacheBytes)
	defer cache.Unref()
	filter := bloom.FilterPolicy(10)
	opts := &pebble.Options{
		Cache:              cache,
		DisableWAL:         true,
		ErrorIfExists:      fresh,
		ErrorIfNotExists:   !fresh,
		EventListener:      s.listener(),
		FormatMajorVersion: formatMajorVersion,
		FS:                 &fusedFS{FS: o.FS, fuse: s.fuse, dir: o.Dir, copies: &s.copies, obsolete: s.obsolete},
		Logger:             logger{log: o.Logger, fuse: s.fuse},
		MemTableSize:       memtableBytes,
		// Pebble's own stalls wait for flushes and compactions for ever, and would hold up Close when
		// those fail: commits wait in startFlushLocked instead.
		MemTableStopWritesThreshold: 1 << 20,
		L0StopWritesThreshold:       1 << 20,
		DisableAutomaticCompactions: o.Foreground,
		DisableTableStats:           o.Foreground,
	}
	// One compaction at a time, and its end begins the next. Pebble's other scheduler asks ten times a
	// second whether more may run by now, which wakes a member that has nothing to do.
	opts.Experimental.CompactionScheduler = pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = filter
	}
	s.db, err = pebble.Open(o.Dir, opts)
	if err := errors.Join(s.fuse.error(), err); err != nil {
		return nil, errors.Join(fmt.Errorf("open pebble in %s: %w", o.Dir, err), s.abandon())
	}
	if s.obsolete != nil {
		s.removeObsolete()
	}
	return s, nil
}

// abandon lets go of what a failed open took, and returns the errors of doing so.
func (s *Store) abandon() error {
	s.metrics.unregister()
	s.fuse.release()
	if s.db == nil {
		return nil
	}
	return s.db.Close()
}

// listener tells the store what Pebble does in the background.
func (s *Store) listener() *pebble.EventListener {
	signal := func() {
		select {
		case s.compacted <- struct{}{}:
		default:
		}
	}
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			s.fuse.blow(err)
			s.fuse.pace()
		},
		DataCorruption: func(info pebble.DataCorruptionInfo) { s.fuse.blow(fmt.Errorf("%s: %w", info.Path, info.Details)) },
		CompactionEnd:  func(pebble.CompactionInfo) { signal() },
		FlushEnd: func(info pebble.FlushInfo) {
			s.metrics.flush.Observe(info.TotalDuration.Seconds())
			signal()
		},
	}
}

// Position returns the position of the newest commit.
func (s *Store) Position() Position { return *s.position.Load() }

// FlushedIndex returns an applied index that is durable: after a crash the store stands there or
// later, and the log must keep every entry after it. It never falls.
func (s *Store) FlushedIndex() uint64 { return s.flushed.Load() }

// Flush makes everything committed durable, and returns the new FlushedIndex. Commits go on meanwhile.
func (s *Store) Flush() (uint64, error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.leave()
	if err := s.flush(); err != nil {
		return 0, fmt.Errorf("flush state in %s: %w", s.dir, err)
	}
	return s.flushed.Load(), nil
}

func (s *Store) flush() error {
	begun, err := s.beginFlush()
	if err != nil {
		return err
	}
	select {
	case <-begun.done:
	case <-s.fuse.blown:
	}
	s.write.Lock()
	defer s.write.Unlock()
	// If another flush was begun since, whoever began it took note of this one.
	err = s.noteFlushLocked()
	if err == nil && s.obsolete != nil {
		err = s.settleLocked()
	}
	return err
}

func (s *Store) beginFlush() (*flush, error) {
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.startFlushLocked(); err != nil {
		return nil, err
	}
	return s.write.flush, nil
}

// flushLocked flushes while nobody commits. REQUIRES: write held.
func (s *Store) flushLocked() error {
	if err := s.startFlushLocked(); err != nil {
		return err
	}
	return s.awaitFlushLocked()
}

// startFlushLocked begins a flush, once the one before has ended and compactions keep up. This is
// the only place where commits wait for the disk. REQUIRES: write held.
func (s *Store) startFlushLocked() error {
	if err := s.awaitFlushLocked(); err != nil {
		return err
	}
	for {
		n, err := s.sublevels()
		if err != nil {
			return err
		}
		if n <= maxSublevels {
			break
		}
		select {
		case <-s.compacted:
		case <-s.fuse.blown:
			return s.fuse.error()
		}
	}
	index := s.Position().Applied.Index
	done, err := s.db.AsyncFlush()
	if err != nil {
		s.fuse.blow(err)
		return s.fuse.error()
	}
	s.write.flush = &flush{done: done, index: index}
	s.write.unflushed = 0
	return nil
}

// sublevels returns how many overlapping layers of fresh tables there are, or why the store failed.
// Pebble counts them under the lock of its manifest, and a change that waits in the fuse for Close may
// hold that lock: so the question is asked beside, and given up.
func (s *Store) sublevels() (int, error) {
	answer := make(chan int, 1)
	s.asking.Go(func() { answer <- int(s.db.Metrics().Levels[0].Sublevels) })
	select {
	case n := <-answer:
		return n, nil
	case <-s.fuse.blown:
		return 0, s.fuse.error()
	}
}

// awaitFlushLocked waits for the flush that was begun last. REQUIRES: write held.
func (s *Store) awaitFlushLocked() error {
	if s.write.flush == nil {
		return s.fuse.error()
	}
	select {
	case <-s.write.flush.done:
	case <-s.fuse.blown:
	}
	if err := s.fuse.error(); err != nil {
		return err // even if it is done: whatever failed may have been part of it
	}
	s.flushed.Store(s.write.flush.index)
	s.write.flush = nil
	return nil
}

// noteFlushLocked takes note of a flush that ended meanwhile. REQUIRES: write held.
func (s *Store) noteFlushLocked() error {
	if s.write.flush == nil {
		return s.fuse.error()
	}
	select {
	case <-s.write.flush.done:
		return s.awaitFlushLocked()
	default:
		return s.fuse.error()
	}
}

// enter keeps Close waiting until leave.
func (s *Store) enter() error {
	s.users.Lock()
	defer s.users.Unlock()
	if s.users.closed {
		return ErrClosed
	}
	s.users.Add(1)
	return nil
}

func (s *Store) leave() { s.users.Done() }

// Close waits until every view is closed, flushes and closes. The error of a store that failed
// closed is returned again. A second Close is ErrClosed.
func (s *Store) Close() error {
	s.users.Lock()
	if s.users.closed {
		s.users.Unlock()
		return ErrClosed
	}
	s.users.closed = true
	s.users.Unlock()
	s.fuse.release() // a user may wait for a lock of Pebble that a change holds which waits here
	s.users.Wait()
	s.write.Lock()
	defer s.write.Unlock()
	_ = s.flushLocked() // its error is the fuse's
	s.metrics.unregister()
	s.asking.Wait()
	closeErr := s.db.Close()
	if err := errors.Join(s.fuse.error(), closeErr); err != nil {
		return fmt.Errorf("close state in %s: %w", s.dir, err)
	}
	return nil
}
