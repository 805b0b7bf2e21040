package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/zeebo/blake3"

	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/nice"
	"github.com/tidaldb/tidal/daemon/state"
)

const (
	// chunkBytes is how much of a file travels at once.
	chunkBytes = 256 << 10
	// hashBytes is how much of a file is read at once to be summed.
	hashBytes = 256 << 10
	// hashCost is how many bytes are summed at the cost of sending one, about.
	hashCost = 4
)

// Store is the state to be staged. *state.Store implements it.
type Store interface {
	Checkpoint(dir string, read func(*state.View) error) error
	FlushedIndex() uint64
}

// StagerOptions configures NewStager. Fields without a remark are required.
type StagerOptions struct {
	FS      vfs.FS
	Dir     string // for artifacts, and nothing else
	Cluster ident.ClusterID
	Group   ident.GroupID // 0 is a group too
	Self    ident.MemberID
	Store   Store // closed by its owner after the Stager

	TTL          time.Duration // how long an artifact is offered again; 0: 10 min
	PinAge       time.Duration // how long a pin holds at most; 0: 30 min
	MaxTransfers int           // at a time; 0: 2
	Rate         int64         // bytes a second, of all transfers together; 0: unlimited
	// Load is what the source does for its clients, who go first; nil: nobody is looked after.
	Load func() Load
	// PinEnded is told of a consumer that did not come up to its artifact in time: the log does not wait for it
	// any more. nil: nobody is. It must not block.
	PinEnded func(consumer ident.MemberID, index uint64)
	// Foreground has nothing done beside the caller, so that file operations have one order.
	Foreground bool

	Now     func() time.Time      // nil: time.Now
	Logger  *slog.Logger          // nil: silent
	Metrics prometheus.Registerer // nil: kept, not exported
}

func (o StagerOptions) withDefaults() (StagerOptions, error) {
	if o.FS == nil || o.Dir == "" || o.Store == nil || o.Self == 0 || o.Cluster.IsZero() {
		return o, errors.New("snapshot: FS, Dir, Store, Self and Cluster are required")
	}
	o.TTL = cmp.Or(o.TTL, 10*time.Minute)
	o.PinAge = cmp.Or(o.PinAge, 30*time.Minute)
	o.MaxTransfers = cmp.Or(o.MaxTransfers, 2)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Stager stages artifacts of one group, one at a time, and lends them to consumers. It also keeps the
// pins that their log has to respect. Its methods are safe for concurrent use.
type Stager struct {
	opts     StagerOptions
	metrics  *metrics
	throttle throttle // of everything that is summed and sent

	life context.Context // until Close
	end  context.CancelFunc

	mu struct {
		sync.Mutex
		closed    bool
		staging   bool
		transfers int // counted before an artifact is there for them
		serving   map[ident.MemberID]int
		made      int       // artifacts so far: names their directories
		current   *artifact // offered to the next consumer; nil: none
		pins      pins
	}
}

// artifact is one staged artifact. Its directory goes with its last user.
type artifact struct {
	dir      string
	manifest *Manifest
	encoded  []byte
	id       ID
	at       time.Time
	users    int // leases, and one while it is current; guarded by Stager.mu
}

// NewStager returns a Stager that has staged nothing.
func NewStager(o StagerOptions) (*Stager, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Stager{opts: o, throttle: throttle{most: o.Rate, load: o.Load, rate: math.Inf(1)}}
	s.life, s.end = context.WithCancel(context.Background())
	s.mu.pins.consumers, s.mu.serving = map[ident.MemberID]pin{}, map[ident.MemberID]int{}
	s.metrics, err = newMetrics(o.Metrics, o.Group, s)
	return s, err
}

// Close refuses every later call and ends transfers at their next chunk; what they hold is removed
// when they let go. It is idempotent.
func (s *Stager) Close() {
	s.mu.Lock()
	s.mu.closed = true
	gone := s.dropCurrentLocked()
	s.mu.Unlock()
	s.end()
	s.remove(gone)
	s.metrics.unregister()
}

// Lend lends an artifact that holds index least at least to a consumer, staging one if there is none
// that will do. The log keeps what follows the artifact from then on. Errors that say "ask again":
// ErrStaging, ErrBusy, *BehindError, ErrClosed.
func (s *Stager) Lend(consumer ident.MemberID, least uint64) (*Lease, error) {
	s.mu.Lock()
	switch {
	case s.mu.closed:
		s.mu.Unlock()
		return nil, ErrClosed
	case s.mu.staging:
		s.mu.Unlock()
		return nil, ErrStaging
	case s.mu.transfers >= s.opts.MaxTransfers:
		s.mu.Unlock()
		return nil, ErrBusy
	}
	s.mu.transfers++
	if a := s.mu.current; a != nil && a.index() >= least && s.opts.Now().Sub(a.at) < s.opts.TTL {
		l := s.leaseLocked(a, consumer)
		s.mu.Unlock()
		return l, nil
	}
	// The pin comes before the checkpoint: state is at the flushed index or later, and the log is
	// never dropped beyond that.
	s.mu.staging = true
	s.mu.pins.staging = pin{index: s.opts.Store.FlushedIndex() + 1, since: s.opts.Now()}
	s.mu.made++
	dir := s.opts.FS.PathJoin(s.opts.Dir, fmt.Sprintf("%06d", s.mu.made))
	s.mu.Unlock()

	a, err := s.stage(dir)

	s.mu.Lock()
	s.mu.staging, s.mu.pins.staging = false, pin{}
	if err == nil && s.mu.closed {
		err = ErrClosed
	}
	if err != nil {
		s.mu.transfers--
		s.mu.Unlock()
		s.metrics.stageFailures.Inc()
		return nil, errors.Join(fmt.Errorf("stage an artifact of group %s: %w", s.opts.Group, err), s.opts.FS.RemoveAll(dir))
	}
	old := s.dropCurrentLocked()
	a.users = 1
	s.mu.current = a
	s.mu.pins.staged = pin{index: a.index() + 1, since: a.at}
	var l *Lease
	if a.index() >= least {
		l = s.leaseLocked(a, consumer)
	} else {
		s.mu.transfers--
		err = &BehindError{Want: least, Have: a.index()}
	}
	s.mu.Unlock()
	s.remove(old)
	return l, err
}

func (a *artifact) index() uint64 { return a.manifest.Position.Applied.Index }

// leaseLocked lends a. REQUIRES: s.mu held, the transfer is counted.
func (s *Stager) leaseLocked(a *artifact, consumer ident.MemberID) *Lease {
	a.users++
	s.mu.serving[consumer]++
	s.mu.pins.consumers[consumer] = pin{index: a.index() + 1, since: s.opts.Now()}
	return &Lease{s: s, a: a, consumer: consumer}
}

// Serves reports whether a transfer to a consumer is under way.
func (s *Stager) Serves(consumer ident.MemberID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.serving[consumer] > 0
}

// dropCurrentLocked stops offering the current artifact and returns it if nobody uses it any more.
// REQUIRES: s.mu held.
func (s *Stager) dropCurrentLocked() *artifact {
	a := s.mu.current
	s.mu.current, s.mu.pins.staged = nil, pin{}
	if a == nil {
		return nil
	}
	if a.users--; a.users > 0 {
		return nil
	}
	return a
}

// remove removes the files of an artifact that nobody uses; nil: there is none. What stays is removed
// at the next start.
func (s *Stager) remove(a *artifact) {
	if a == nil {
		return
	}
	if err := s.opts.FS.RemoveAll(a.dir); err != nil {
		s.opts.Logger.Warn("staged artifact not removed", slog.Any("group", s.opts.Group), slog.Any("err", err))
	}
}

// stage makes an artifact in dir.
func (s *Stager) stage(dir string) (*artifact, error) {
	start := s.opts.Now()
	if err := durable.MkdirAll(s.opts.FS, s.opts.Dir, 0o700); err != nil {
		return nil, err
	}
	m := &Manifest{
		Cluster: s.opts.Cluster, Group: s.opts.Group, Source: s.opts.Self,
		PebbleFormat: state.Format, StateFormat: StateFormat,
	}
	err := s.opts.Store.Checkpoint(dir, func(v *state.View) error {
		m.Position = v.Position()
		roster, _, err := v.Get(entity.RosterKey())
		if err != nil {
			return err
		}
		m.Roster = slices.Clone(roster)
		features, used, err := v.Get(entity.FeaturesKey())
		if err == nil && used {
			m.Features, err = entity.DecodeFeatures(features)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	names, err := s.opts.FS.List(dir)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	slices.Sort(names)
	if m.Files, err = s.sumAll(dir, names); err != nil {
		return nil, err
	}
	if detail := m.flaw(); detail != "" {
		return nil, errors.New("the checkpoint cannot be shipped: " + detail)
	}
	a := &artifact{dir: dir, manifest: m, encoded: m.Encode(), at: s.opts.Now()}
	a.id = idOf(a.encoded)
	s.metrics.staged.Inc()
	s.opts.Logger.Info("artifact staged", slog.Any("group", s.opts.Group), slog.String("artifact", a.id.String()),
		slog.Uint64("index", a.index()), slog.Int64("bytes", m.Bytes()), slog.Duration("took", a.at.Sub(start)))
	return a, nil
}

// sumAll reads all files of an artifact, as many at a time as there are processors.
func (s *Stager) sumAll(dir string, names []string) ([]File, error) {
	workers := min(runtime.GOMAXPROCS(0), len(names))
	if s.opts.Foreground {
		workers = 1
	}
	files, errs := make([]File, len(names)), make([]error, workers)
	var next atomic.Int64
	sum := func(worker int) {
		buf := make([]byte, hashBytes)
		for i := next.Add(1) - 1; i < int64(len(names)); i = next.Add(1) - 1 {
			if files[i], errs[worker] = s.sum(dir, names[i], buf); errs[worker] != nil {
				return
			}
		}
	}
	var others sync.WaitGroup
	for i := 1; i < workers; i++ {
		others.Go(func() { nice.Do(func() { sum(i) }) })
	}
	if workers > 0 {
		nice.Do(func() { sum(0) })
	}
	others.Wait()
	return files, errors.Join(errs...)
}

// sum reads one file of an artifact by way of buf. A table that has rotted is not shipped: what is summed is also
// verified, block by block.
func (s *Stager) sum(dir, name string, buf []byte) (_ File, err error) {
	f, err := s.opts.FS.Open(s.opts.FS.PathJoin(dir, name), vfs.SequentialReadsOption)
	if err != nil {
		return File{}, fmt.Errorf("open %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var check *state.TableCheck // nil: it is no table
	if strings.HasSuffix(name, state.TableSuffix) {
		if check, err = state.NewTableCheck(f); err != nil {
			return File{}, fmt.Errorf("verify %s: %w", name, err)
		}
	}
	h := blake3.New()
	out := File{Name: name}
	for {
		if err := s.throttle.work(s.life, int64(len(buf)/hashCost)); err != nil {
			return File{}, ErrClosed
		}
		n, err := f.Read(buf)
		_, _ = h.Write(buf[:n]) // a hash does not fail
		out.Bytes += int64(n)
		end := errors.Is(err, io.EOF)
		if err := verify(check, buf[:n], end); err != nil {
			return File{}, fmt.Errorf("verify %s: %w", name, err)
		}
		if end {
			h.Sum(out.Sum[:0])
			return out, nil
		}
		if err != nil {
			return File{}, fmt.Errorf("read %s at offset %d: %w", name, out.Bytes, err)
		}
	}
}

// verify hands to check, where there is one, what comes next in a table, and maybe last.
func verify(check *state.TableCheck, b []byte, last bool) error {
	if check == nil {
		return nil
	}
	err := check.Take(b)
	if err == nil && last {
		err = check.End()
	}
	return err
}

// Lease is an artifact in the hands of one consumer. It belongs to one goroutine and must be closed.
type Lease struct {
	s        *Stager
	a        *artifact
	consumer ident.MemberID
}

// Manifest returns the encoded manifest.
func (l *Lease) Manifest() []byte { return l.a.encoded }

// ID names the artifact.
func (l *Lease) ID() ID { return l.a.id }

// Send sends the files of the artifact from a cursor on, as fast as the stager's rate allows. The data of
// a chunk is send's until it returns. It ends with the first error of send, with ctx, or with the stager, and
// runs at a low priority.
func (l *Lease) Send(ctx context.Context, from Cursor, send func(Chunk) error) (err error) {
	nice.Do(func() { err = l.send(ctx, from, send) })
	return err
}

func (l *Lease) send(ctx context.Context, from Cursor, send func(Chunk) error) error {
	files := l.a.manifest.Files
	if from.File < 0 || from.File > len(files) || from.File < len(files) && (from.Offset < 0 || from.Offset > files[from.File].Bytes) {
		return fmt.Errorf("send artifact %s from file %d, offset %d: there is no such place", l.a.id, from.File, from.Offset)
	}
	buf := make([]byte, min(chunkBytes, l.a.manifest.Bytes()))
	for i := from.File; i < len(files); i++ {
		if err := l.sendFile(ctx, i, from.Offset, buf, send); err != nil {
			return fmt.Errorf("send file %s of artifact %s: %w", files[i].Name, l.a.id, err)
		}
		from.Offset = 0
	}
	return nil
}

func (l *Lease) sendFile(ctx context.Context, i int, offset int64, buf []byte, send func(Chunk) error) (err error) {
	fs, file := l.s.opts.FS, l.a.manifest.Files[i]
	if offset == file.Bytes {
		return nil
	}
	f, err := fs.Open(fs.PathJoin(l.a.dir, file.Name), vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for offset < file.Bytes {
		if err := l.s.throttle.send(ctx, l.s.life, int64(len(buf))); err != nil {
			return err
		}
		b := buf[:min(int64(len(buf)), file.Bytes-offset)]
		if n, err := f.ReadAt(b, offset); n < len(b) {
			return fmt.Errorf("read %d bytes at offset %d: %w", len(b), offset, cmp.Or(err, io.ErrUnexpectedEOF))
		}
		if err := send(Chunk{Cursor: Cursor{File: i, Offset: offset}, Data: b, Sum: durable.Checksum(b)}); err != nil {
			return err
		}
		l.s.metrics.sent.Add(float64(len(b)))
		offset += int64(len(b))
	}
	return nil
}

// Close gives the artifact back. delivered says that the consumer got all of it: what follows it stays
// in the log until the consumer has reached it.
func (l *Lease) Close(delivered bool) {
	s := l.s
	s.mu.Lock()
	s.mu.transfers--
	if s.mu.serving[l.consumer]--; s.mu.serving[l.consumer] == 0 {
		delete(s.mu.serving, l.consumer)
	}
	if !delivered {
		delete(s.mu.pins.consumers, l.consumer)
	}
	var gone *artifact
	if l.a.users--; l.a.users == 0 {
		gone = l.a
	}
	s.mu.Unlock()
	s.remove(gone)
}
