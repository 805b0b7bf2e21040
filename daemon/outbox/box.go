package outbox

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
)

const (
	// MaxOpBytes bounds one operation: a delivery of it must fit into an entry.
	MaxOpBytes = 512 << 10

	// defaultMaxBytes bounds what is held.
	defaultMaxBytes = 64 << 20

	// rewriteBytes is how large a file becomes at least before it is written anew without what was delivered.
	rewriteBytes = 4 << 20

	// fullRetryAfter is what a FullError advises: with a leader in reach, operations are delivered by then.
	fullRetryAfter = time.Second
)

// ErrClosed refuses an operation of an outbox that was closed.
var ErrClosed = errors.New("outbox: closed")

// FailedError refuses an operation because the disk failed before, or what was on it is damaged.
type FailedError struct{ Err error }

func (e *FailedError) Error() string { return "the outbox takes no more writes: " + e.Err.Error() }
func (e *FailedError) Unwrap() error { return e.Err }

// UnsureError says that the disk failed while an operation was made durable. If it is there all the same,
// a later opening delivers it.
type UnsureError struct{ Err error }

func (e *UnsureError) Error() string {
	return "it is not known whether the outbox has the write: " + e.Err.Error()
}
func (e *UnsureError) Unwrap() error { return e.Err }

// FullError refuses operations for which there is no room before others are delivered.
type FullError struct {
	Bytes, Limit int64
	RetryAfter   time.Duration
}

func (e *FullError) Error() string {
	return fmt.Sprintf("the outbox is full: %d bytes wait for a leader, limit %d", e.Bytes, e.Limit)
}

// TooLargeError refuses an operation that no entry could hold.
type TooLargeError struct{ Bytes, Limit int }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the write has %d bytes, an operation of an outbox at most %d", e.Bytes, e.Limit)
}

// KeyMismatchError refuses an operation whose idempotency key came with another one that is pending.
type KeyMismatchError struct{ First ID }

func (e *KeyMismatchError) Error() string {
	return fmt.Sprintf("the idempotency key was first used in operation %s, for something else", e.First)
}

// ID names an operation.
type ID struct {
	Origin ident.Incarnation
	Seq    uint64
}

// String returns "origin/seq".
func (id ID) String() string { return fmt.Sprintf("%s/%d", id.Origin, id.Seq) }

// Options configures Open. Fields without a remark are required.
type Options struct {
	FS    vfs.FS            // nil: the operating system's
	Dir   string            // holds the outbox and nothing else; made when it is needed
	Owner ident.Incarnation // of the data directory

	// MaxBytes bounds what this member takes, and with twice that what it holds. 0: 64 MiB.
	MaxBytes int64

	// RunBytes is about how much one delivery holds: less than an entry, but at least one operation.
	// 0: 256 KiB.
	RunBytes int

	// OnChange is told that something can be delivered. It must not block. nil: nobody is.
	OnChange func()

	Rand    io.Reader             // origins are drawn from it; nil: the operating system's
	Now     func() time.Time      // for stamps; nil: time.Now
	Logger  *slog.Logger          // nil: silent
	Metrics prometheus.Registerer // nil: kept, not exported
}

func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" || o.Owner.IsZero() {
		return o, errors.New("outbox: Dir and Owner are required")
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.RunBytes == 0 {
		o.RunBytes = runBytes
	}
	if o.OnChange == nil {
		o.OnChange = func() {}
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Box is an open outbox. Its methods may be called from anywhere.
type Box struct {
	opts    Options
	log     *slog.Logger
	metrics *metrics
	origin  ident.Incarnation // of what this opening takes

	// pending is how many operations are held. Readers ask it before they take a lock.
	pending atomic.Int64

	// io is held by who writes to the disk. Lock order: io before mu.
	io struct {
		sync.Mutex
		file   *file  // nil: there is none
		number uint64 // of the file, or of the last there was
		clock  ident.Clock
		seq    uint64   // of the last operation of this opening
		hash   [16]byte // its hash
		idle   bool     // nothing was written since the last Tidy
	}

	mu struct {
		sync.RWMutex
		chains    map[ident.Incarnation]*chain // none is empty
		delivered map[ident.Incarnation]entity.Delivered
		bytes     int64 // of what is held
		queue     []*taking
		queued    int64 // bytes of queue
		keys      map[[16]byte]keyed
		index     index
		err       error // why nothing is taken any more; nil: it is
	}
}

// taking is an operation on its way. Who put it into the queue waits for io; whoever holds that has
// settled it when done is true.
type taking struct {
	write []byte
	after ident.Stamp
	key   *command.Key

	done bool
	id   ID
	err  error
}

// keyed is the pending operation of this member that an idempotency key came with first.
type keyed struct {
	id   ID
	body [16]byte
}

// Open opens the outbox in Dir, or an empty one. A disk that fails, or a file that is damaged, does not
// keep an outbox from being opened: it takes nothing then, and Status says why. The error is about o.
func Open(o Options) (*Box, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Box{opts: o, log: o.Logger}
	if b.origin, err = ident.MakeIncarnation(o.Rand); err != nil {
		return nil, fmt.Errorf("open outbox: %w", err)
	}
	b.mu.chains = map[ident.Incarnation]*chain{}
	b.mu.delivered = map[ident.Incarnation]entity.Delivered{}
	b.mu.keys = map[[16]byte]keyed{}
	b.mu.index = newIndex()
	b.metrics = newMetrics(o.Metrics, b)
	if err := b.load(); err != nil {
		b.fail(err)
	}
	return b, nil
}

// load takes over what an earlier opening has left, into a file of its own.
func (b *Box) load() error {
	fs, dir := b.opts.FS, b.opts.Dir
	numbers, err := listFiles(fs, dir)
	if err != nil || len(numbers) == 0 {
		return err
	}
	b.io.number = numbers[len(numbers)-1]
	runs, err := readFile(fs, fs.PathJoin(dir, fileName(b.io.number)))
	for _, run := range runs {
		ops := opsOf(run)
		c := b.chainLocked(run.Origin, run.Owner)
		fresh, forked := novel(run.Origin, c.ops, ops, entity.Delivered{})
		if forked != nil {
			return errors.Join(err, forked)
		}
		b.publishLocked(c, fresh)
		b.io.clock.Advance(ops[len(ops)-1].Stamp)
	}
	if err != nil {
		return err
	}
	return b.rewrite()
}

// fail ends the taking of operations, for as long as b is open.
func (b *Box) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.err == nil {
		b.mu.err = &FailedError{Err: err}
		b.log.Error("outbox failed", slog.String("dir", b.opts.Dir), slog.Any("err", err))
	}
}

// Close waits for who takes and closes the file. What is held stays on the disk.
func (b *Box) Close() error {
	b.io.Lock()
	defer b.io.Unlock()
	b.mu.Lock()
	if b.mu.err == nil {
		b.mu.err = ErrClosed
	}
	b.mu.Unlock()
	b.takeQueue() // nothing is taken any more
	b.metrics.unregister()
	if b.io.file == nil {
		return nil
	}
	f := b.io.file
	b.io.file = nil
	if err := f.f.Close(); err != nil {
		return fmt.Errorf("close %s: %w", f.path, err)
	}
	return nil
}

// Take makes a write an operation of this member: it is durable, and what is read here shows it, when
// Take returns. Its stamp is above after, the newest one of the state that the writer can have seen.
//
// A write whose idempotency key is that of a pending operation, and that asks for the same, is that
// operation. Errors: *UnsureError; or *TooLargeError, *FullError, *FailedError, *KeyMismatchError,
// ErrClosed and those of command.CheckOp: nothing was taken.
func (b *Box) Take(write []byte, after ident.Stamp) (ID, error) {
	if len(write) > MaxOpBytes {
		return ID{}, &TooLargeError{Bytes: len(write), Limit: MaxOpBytes}
	}
	if err := command.CheckOp(write); err != nil {
		return ID{}, fmt.Errorf("write for the outbox: %w", err)
	}
	t := &taking{write: bytes.Clone(write), after: after, key: keyOf(write)}
	if err := b.admit(t); err != nil {
		return ID{}, err
	}
	b.io.Lock()
	if !t.done {
		b.takeQueue()
	}
	b.io.Unlock()
	if t.err == nil {
		b.opts.OnChange()
	}
	return t.id, t.err
}

// keyOf returns the idempotency key of a write, or that of the only record of it.
func keyOf(write []byte) *command.Key {
	r := command.MakeRecords(write)
	if key, ok := r.WriteKey(); ok {
		return &key
	}
	if r.Len() == 1 && r.Next() {
		if key, ok := r.Key(); ok {
			return &key
		}
	}
	return nil
}

// admit queues t if there is room.
func (b *Box) admit(t *taking) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	size := int64(len(t.write)) + opOverhead
	switch {
	case b.mu.err != nil:
		return b.mu.err
	case b.mu.bytes+b.mu.queued+size > b.opts.MaxBytes:
		b.metrics.full.Inc()
		return &FullError{Bytes: b.mu.bytes + b.mu.queued, Limit: b.opts.MaxBytes, RetryAfter: fullRetryAfter}
	}
	b.mu.queue = append(b.mu.queue, t)
	b.mu.queued += size
	return nil
}

// takeQueue makes operations of everything queued, with one sync. REQUIRES: io held.
func (b *Box) takeQueue() {
	b.mu.Lock()
	queue, err := b.mu.queue, b.mu.err
	b.mu.queue, b.mu.queued = nil, 0
	b.mu.Unlock()
	if len(queue) == 0 {
		return
	}
	seq, hash := b.io.seq, b.io.hash
	var fresh []op
	came := map[[16]byte]keyed{} // with a key, in this queue
	for _, t := range queue {
		t.done = true
		if t.err = err; err != nil || b.repeats(t, came) {
			continue
		}
		b.io.clock.Advance(t.after)
		o := op{seq: seq + 1, before: hash, Op: command.Op{Stamp: b.io.clock.Next(b.opts.Now()), Write: t.write}}
		o.hash = command.Chain(hash, b.origin, o.seq, o.Op)
		seq, hash, fresh = o.seq, o.hash, append(fresh, o)
		t.id = ID{Origin: b.origin, Seq: o.seq}
		if t.key != nil {
			came[t.key.Hash] = keyed{id: t.id, body: t.key.Body}
		}
	}
	if len(fresh) == 0 {
		return
	}
	if err := b.write(runsOf(b.origin, b.opts.Owner, fresh)); err != nil {
		b.fail(err)
		for _, t := range queue {
			if t.err == nil && t.id.Origin == b.origin && t.id.Seq > b.io.seq {
				t.id, t.err = ID{}, &UnsureError{Err: err}
			}
		}
		return
	}
	b.io.seq, b.io.hash = seq, hash
	b.metrics.taken.Add(float64(len(fresh)))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.publishLocked(b.chainLocked(b.origin, b.opts.Owner), fresh)
	maps.Copy(b.mu.keys, came)
}

// repeats settles t if its idempotency key came before.
func (b *Box) repeats(t *taking, came map[[16]byte]keyed) bool {
	if t.key == nil {
		return false
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	first, ok := b.mu.keys[t.key.Hash]
	if !ok {
		first, ok = came[t.key.Hash]
	}
	switch {
	case !ok:
		return false
	case first.body != t.key.Body:
		t.err = &KeyMismatchError{First: first.id}
	default:
		t.id = first.id
	}
	return true
}

// write makes runs durable. REQUIRES: io held.
func (b *Box) write(runs []command.Outbox) (err error) {
	start := time.Now()
	b.io.idle = false
	if b.io.file != nil {
		err = b.io.file.append(runs)
	} else if b.io.file, err = createFile(b.opts.FS, b.opts.Dir, b.io.number+1, runs); err == nil {
		b.io.number++
	}
	b.metrics.sync.Observe(time.Since(start).Seconds())
	return err
}

// rewrite puts what is held into the next file and removes the others. REQUIRES: io held, or nobody
// else has b.
func (b *Box) rewrite() error {
	runs := b.Snapshot()
	old := b.io.file
	if b.io.file = nil; old != nil {
		_ = old.f.Close() // all of it was synced
	}
	if len(runs) > 0 {
		var err error
		if b.io.file, err = createFile(b.opts.FS, b.opts.Dir, b.io.number+1, runs); err != nil {
			return err
		}
		b.io.number++
	}
	return b.removeOthers()
}

// removeOthers removes every file but the open one, the oldest first. REQUIRES: as rewrite.
func (b *Box) removeOthers() error {
	fs, dir := b.opts.FS, b.opts.Dir
	numbers, err := listFiles(fs, dir)
	if err != nil {
		return err
	}
	for _, n := range numbers {
		if b.io.file != nil && n == b.io.number {
			continue
		}
		if err := fs.Remove(fs.PathJoin(dir, fileName(n))); err != nil {
			return fmt.Errorf("remove %s: %w", fs.PathJoin(dir, fileName(n)), err)
		}
	}
	return durable.SyncDir(fs, dir)
}

// Tidy gives room on the disk back that delivered operations take: those of a large file once they are
// most of it, and the whole file once nothing is pending and nothing came for a while. Call it now and
// then, a second apart.
func (b *Box) Tidy() {
	b.io.Lock()
	defer b.io.Unlock()
	b.mu.RLock()
	held, failed := b.mu.bytes, b.mu.err != nil
	b.mu.RUnlock()
	idle := b.io.idle
	b.io.idle = true
	if f := b.io.file; failed || f == nil || !(held == 0 && idle) && (f.bytes < rewriteBytes || f.bytes < 2*held) {
		return
	}
	if err := b.rewrite(); err != nil {
		b.fail(err)
	}
}

// chainLocked returns the chain of an origin, made if there is none. REQUIRES: mu held.
func (b *Box) chainLocked(origin, owner ident.Incarnation) *chain {
	c, ok := b.mu.chains[origin]
	if !ok {
		c = &chain{origin: origin, owner: owner}
		b.mu.chains[origin] = c
	}
	return c
}

// publishLocked adds operations to a chain. REQUIRES: mu held.
func (b *Box) publishLocked(c *chain, fresh []op) {
	if len(fresh) == 0 {
		return
	}
	c.ops = union(c.ops, fresh)
	for _, o := range fresh {
		b.mu.bytes += o.bytes()
		b.mu.index.add(c.origin, o)
		if key := keyOf(o.Write); key != nil && c.owner == b.opts.Owner {
			if _, ok := b.mu.keys[key.Hash]; !ok {
				b.mu.keys[key.Hash] = keyed{id: ID{Origin: c.origin, Seq: o.seq}, body: key.Body}
			}
		}
	}
	b.pending.Add(int64(len(fresh)))
}

// Delivered is told that this member's state holds the operations of a chain up to a place, before
// anything was read from that state or after: operations up to there are not held any more.
func (b *Box) Delivered(origin ident.Incarnation, d entity.Delivered) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d.Seq < b.mu.delivered[origin].Seq {
		return
	}
	b.mu.delivered[origin] = d
	c, ok := b.mu.chains[origin]
	if !ok || c.forked != "" {
		return
	}
	if seq := contradicts(c.ops, d); seq != 0 {
		b.forkLocked(c, (&ForkedError{Origin: origin, Seq: seq}).Error())
		return
	}
	rest := after(c.ops, d.Seq)
	gone := c.ops[:len(c.ops)-len(rest)]
	for _, o := range gone {
		b.mu.bytes -= o.bytes()
		if key := keyOf(o.Write); key != nil && b.mu.keys[key.Hash].id == (ID{Origin: origin, Seq: o.seq}) {
			delete(b.mu.keys, key.Hash)
		}
	}
	b.mu.index.drop(origin, gone)
	b.pending.Add(-int64(len(gone)))
	b.metrics.delivered.Add(float64(len(gone)))
	if c.ops = rest; len(rest) == 0 {
		delete(b.mu.chains, origin)
	}
}

// Forked is told that the log refuses a chain for good: it is kept, and not delivered.
func (b *Box) Forked(origin ident.Incarnation, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c, ok := b.mu.chains[origin]; ok && c.forked == "" {
		b.forkLocked(c, why)
	}
}

func (b *Box) forkLocked(c *chain, why string) {
	c.forked = why
	b.log.Error("outbox chain cannot be delivered", slog.Any("origin", c.origin), slog.Int("operations", len(c.ops)), slog.String("why", why))
}

// Chain is one that could be delivered.
type Chain struct {
	Origin ident.Incarnation
	Own    bool      // of this member, in this opening or an earlier one
	First  uint64    // place of the first operation that would be delivered
	Came   time.Time // when operations of another member's chain came last
}

// Due returns a delivery for every chain that has one and that pick agrees to, this member's first.
func (b *Box) Due(pick func(Chain) bool) []command.Outbox {
	if b.pending.Load() == 0 {
		return nil
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	var all []command.Outbox
	for _, own := range []bool{true, false} {
		for _, c := range b.sortedLocked() {
			ops := due(c.ops, b.mu.delivered[c.origin], b.opts.RunBytes)
			if c.forked != "" || len(ops) == 0 || (c.owner == b.opts.Owner) != own {
				continue
			}
			if pick(Chain{Origin: c.origin, Own: own, First: ops[0].seq, Came: c.came}) {
				all = append(all, runsOf(c.origin, c.owner, ops)...)
			}
		}
	}
	return all
}

func (b *Box) sortedLocked() []*chain { return slices.SortedFunc(maps.Values(b.mu.chains), byOrigin) }

// Status is what is held.
type Status struct {
	Pending  int   // operations that this member's state does not hold
	Foreign  int   // those of them that came from other members
	Bytes    int64 // of memory, roughly
	MaxBytes int64
	// Oldest is the stamp of the oldest one; 0: there is none.
	Oldest ident.Stamp
	Chains int
	// Forked are the chains that cannot be delivered.
	Forked []ident.Incarnation
	// Failed is why nothing is taken; nil: it is.
	Failed error
}

// Status returns what is held now.
func (b *Box) Status() Status {
	b.mu.RLock()
	defer b.mu.RUnlock()
	s := Status{Pending: int(b.pending.Load()), Bytes: b.mu.bytes, MaxBytes: b.opts.MaxBytes, Chains: len(b.mu.chains), Failed: b.mu.err}
	for _, c := range b.sortedLocked() {
		if c.owner != b.opts.Owner {
			s.Foreign += len(c.ops)
		}
		if c.forked != "" {
			s.Forked = append(s.Forked, c.origin)
		}
		if first := c.ops[0].Stamp; s.Oldest == 0 || first < s.Oldest { // stamps rise along a chain
			s.Oldest = first
		}
	}
	return s
}
