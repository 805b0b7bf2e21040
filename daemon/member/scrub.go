package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/nice"
	"github.com/tidaldb/tidal/daemon/snapshot"
	"github.com/tidaldb/tidal/daemon/state"
)

// Scrub is how everything that states hold is read again, in the background. 0: the default.
type Scrub struct {
	Every time.Duration // from the end of one pass to the beginning of the next; 24 h. Negative: never
	After time.Duration // from the opening of a replica to the first pass; 1 min, and see first
	Rate  int64         // bytes a second; 20 MiB. Negative: unlimited
}

func (s Scrub) withDefaults() Scrub {
	return Scrub{Every: cmp.Or(s.Every, 24*time.Hour), After: cmp.Or(s.After, time.Minute), Rate: cmp.Or(s.Rate, 20<<20)}
}

// scrubApart is what lies at most between the first passes of two members: at the usual rate 12 GiB are read in
// that time.
const scrubApart = 10 * time.Minute

// first is how long after the opening of its replica the member that comes nth among count begins: members that
// start together do not read together.
func (s Scrub) first(nth, count int) time.Duration {
	if count < 2 {
		return s.After
	}
	return s.After + time.Duration(nth)*min(s.Every/time.Duration(count), scrubApart)
}

// ScrubStatus is what the scrubs of a replica came to, since this process started.
type ScrubStatus struct {
	Running bool
	Bytes   int64 // read by the pass that runs, or ran last
	// At and Index are of the last pass that ended and found nothing wrong: the state of that index was
	// what had been written. Zero: none did.
	At    time.Time
	Index uint64
}

// scrubs are the passes over one replica.
type scrubs struct {
	mu struct {
		sync.Mutex
		ScrubStatus
	}
}

func (s *scrubs) status() ScrubStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.ScrubStatus
}

// scrubber scrubs an open replica again and again, on a goroutine of its own.
type scrubber struct {
	stop context.CancelFunc
	done sync.WaitGroup
}

// startScrubber begins to scrub g. end is called before the store is closed, which waits for views.
func (m *Member) startScrubber(g *group) (end func()) {
	o := m.opts.Scrub.withDefaults()
	if m.opts.Foreground || o.Every < 0 {
		return func() {}
	}
	m.mu.RLock()
	members, self := m.mu.roster.Members, m.mu.identity.ID
	m.mu.RUnlock()
	nth := max(0, slices.IndexFunc(members, func(x membership.Member) bool { return x.ID == self }))
	var s scrubber
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.done.Go(func() {
		timer := time.NewTimer(o.first(nth, len(members)))
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			g.scrub(ctx, m, newPace(o.Rate))
			timer.Reset(o.Every)
		}
	})
	return func() {
		s.stop()
		s.done.Wait()
	}
}

// scrub is one pass. What it finds puts the replica into quarantine. pace is told of all that is read; nil:
// nobody holds it up.
func (g *group) scrub(ctx context.Context, m *Member, pace *pace) {
	s := &g.keeper.scrubs
	s.mu.Lock()
	s.mu.Running, s.mu.Bytes = true, 0
	s.mu.Unlock()
	view := g.store.NewView()
	at := view.Position().Applied
	var err error
	nice.Do(func() {
		err = readAll(view, func(bytes int) error {
			s.mu.Lock()
			s.mu.Bytes += int64(bytes)
			s.mu.Unlock()
			m.metrics.scrubbed.Add(float64(bytes))
			return pace.wait(ctx, bytes)
		})
	})
	err = errors.Join(err, view.Close())
	s.mu.Lock()
	s.mu.Running = false
	if err == nil {
		s.mu.At, s.mu.Index = m.opts.Now(), at.Index
	}
	s.mu.Unlock()
	switch {
	case err == nil:
		m.metrics.scrubs.WithLabelValues("sound").Inc()
		m.log.Info("state scrubbed", slog.Any("group", g.id), slog.Uint64("index", at.Index), slog.Int64("bytes", s.status().Bytes))
	case ctx.Err() != nil || errors.Is(err, state.ErrClosed):
		m.metrics.scrubs.WithLabelValues("ended").Inc()
	default:
		m.metrics.scrubs.WithLabelValues("rot").Inc()
		m.onStateFatal(g, fmt.Errorf("scrub: %w", err))
	}
}

// readAll reads everything that view shows, and everything of its tables that shows nothing. pace is told of what is
// read; nil: nobody is.
func readAll(view *state.View, pace func(bytes int) error) error {
	if err := apply.Scrub(view, pace); err != nil {
		return err
	}
	return view.VerifyTables(pace)
}

// pace holds up a reader so that it reads no more than rate bytes a second. nil holds up nobody.
type pace struct {
	rate  int64
	began time.Time
	read  int64
	since int64 // read since the clock was looked at
}

// newPace begins to count. A rate below 1 is no limit.
func newPace(rate int64) *pace {
	if rate < 1 {
		return nil
	}
	return &pace{rate: rate, began: time.Now()}
}

// paceStep is how much is read between two looks at the clock.
const paceStep = 64 << 10

func (p *pace) wait(ctx context.Context, bytes int) error {
	if p == nil {
		return ctx.Err()
	}
	p.read += int64(bytes)
	if p.since += int64(bytes); p.since < min(paceStep, p.rate) {
		return ctx.Err()
	}
	p.since = 0
	early := time.Duration(float64(p.read)/float64(p.rate)*float64(time.Second)) - time.Since(p.began)
	if early <= 0 { // what was not used is lost: no burst makes up for it
		p.began, p.read = time.Now(), 0
		return ctx.Err()
	}
	timer := time.NewTimer(early)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// proveArtifact makes the digest of the state in dir, which nobody has open, from its pairs and holds it
// against what the manifest of the artifact promises. What is in its tables beside the pairs has to be sound too:
// it is read by whoever opens it.
func (m *Member) proveArtifact(dir string, manifest *snapshot.Manifest) error {
	readers := runtime.GOMAXPROCS(0)
	if m.opts.Foreground {
		readers = 1
	}
	return state.Inspect(m.opts.FS, dir, func(view *state.View) error {
		at := view.Position()
		var tables sync.WaitGroup
		var rot error
		tables.Go(func() { nice.Do(func() { rot = view.VerifyTables(nil) }) })
		defer tables.Wait()
		if m.opts.Foreground {
			tables.Wait()
		}
		if !mutantStoredDigestTrusted {
			digest, err := apply.Digest(view, readers)
			if err != nil {
				return fmt.Errorf("digest the state at %s: %w", at.Applied, err)
			}
			at.Digest = digest
		}
		tables.Wait()
		return errors.Join(rot, manifest.Promises(at))
	})
}

// prove scrubs a state that was installed before this start, and whose artifact is gone.
func prove(store *state.Store) error {
	view := store.NewView()
	defer view.Close()
	return readAll(view, nil)
}
