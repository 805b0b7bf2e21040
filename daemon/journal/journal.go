// Package journal keeps what one member saw happen: a bounded ring of events in memory, each with an
// id to resume by.
//
// What it promises: ids rise by one within a boot of the data directory and are never given twice,
// because the boot is a part of them; a reader that asks for what follows an event which the ring does
// not reach any more is told where the ring begins, never given a list with a hole; Add never blocks
// and calls nobody, so it may be called with any lock held.
//
// It is for people and dashboards. What a cluster decided stands in its log; what became of a fleet is
// the matter of package events.
//
// Callers: member adds, daemon closes, ops reads for GET /cluster/events. The kinds are in kinds.go
// and EVENTS.md.
package journal

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// Capacity is how many events a Journal keeps: a day of a restless cluster, some 2 MiB.
	Capacity = 4096
	// MaxFollowers is how many may follow at once.
	MaxFollowers = 32

	// page is how many events a Follower gets at a time.
	page = 256
)

// ID names one event of a member. Events that a member saw later have greater ids, across restarts
// too. The zero ID is before every event.
type ID struct {
	Boot uint64 // of the member's data directory, from 1
	Seq  uint64 // within the boot, from 1; 0: before its first event
}

// Less orders ids by time.
func (id ID) Less(o ID) bool {
	if id.Boot != o.Boot {
		return id.Boot < o.Boot
	}
	return id.Seq < o.Seq
}

// String returns "boot-seq".
func (id ID) String() string {
	return strconv.FormatUint(id.Boot, 10) + "-" + strconv.FormatUint(id.Seq, 10)
}

// ParseID reads what String prints.
func ParseID(s string) (ID, error) {
	boot, seq, _ := strings.Cut(s, "-")
	var id ID
	var err error
	if id.Boot, err = strconv.ParseUint(boot, 10, 64); err == nil {
		id.Seq, err = strconv.ParseUint(seq, 10, 64)
	}
	if err != nil || id.String() != s {
		return ID{}, fmt.Errorf("event id %q: want BOOT-NUMBER, like 3-17", s)
	}
	return id, nil
}

// Event is one thing that happened.
type Event struct {
	ID   ID
	At   time.Time
	Fact Fact
}

// CompactedError: what follows After is not whole here any more. Reading after Floor gives everything
// that there still is.
type CompactedError struct{ After, Floor ID }

func (e *CompactedError) Error() string {
	if e.After.Boot < e.Floor.Boot {
		return fmt.Sprintf("event %s is of boot %d; this is boot %d, and what came before it is not kept", e.After, e.After.Boot, e.Floor.Boot)
	}
	return fmt.Sprintf("events after %s up to %s are not kept any more", e.After, e.Floor)
}

// UnknownIDError: this member has given no such id yet, so the reader has it from another one, or from
// a disk that is gone.
type UnknownIDError struct{ ID, Last ID }

func (e *UnknownIDError) Error() string {
	return fmt.Sprintf("event %s is none of this member's; the newest is %s", e.ID, e.Last)
}

// BusyError refuses one follower more.
type BusyError struct{ Limit int }

func (e *BusyError) Error() string { return fmt.Sprintf("%d follow the events already", e.Limit) }

// ErrClosed ends a Follower after the last event.
var ErrClosed = errors.New("the journal is closed")

// Options configures New. The zero value is usable.
type Options struct {
	Boot    uint64           // of the data directory
	Now     func() time.Time // nil: time.Now
	Metrics prometheus.Registerer
}

// Journal is the ring. Its methods are safe for concurrent use.
type Journal struct {
	boot    uint64
	now     func() time.Time
	metrics *metrics

	mu struct {
		sync.Mutex
		// ring holds event seq at ring[(seq-1)%Capacity].
		ring []Event
		// last is the number of the newest event; 0: none.
		last      uint64
		followers int
		closed    bool
		// more is closed and replaced when an event comes, and closed for good by Close.
		more chan struct{}
	}
}

// New makes an empty journal.
func New(opts Options) *Journal {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	j := &Journal{boot: opts.Boot, now: opts.Now, metrics: newMetrics(opts.Metrics)}
	j.mu.more = make(chan struct{})
	return j
}

// Add records f as happening now. After Close it records nothing.
func (j *Journal) Add(f Fact) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.mu.closed {
		j.add(f)
	}
}

func (j *Journal) add(f Fact) {
	j.mu.last++
	e := Event{ID: ID{j.boot, j.mu.last}, At: j.now(), Fact: f}
	if len(j.mu.ring) < Capacity {
		j.mu.ring = append(j.mu.ring, e)
	} else {
		j.mu.ring[(j.mu.last-1)%Capacity] = e
	}
	j.metrics.events.WithLabelValues(string(f.Kind())).Inc()
	close(j.mu.more)
	j.mu.more = make(chan struct{})
}

// Close records f as the last event and lets every follower end once it has read that. It is
// idempotent.
func (j *Journal) Close(f Fact) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.closed {
		return
	}
	j.add(f)
	j.mu.closed = true
	close(j.mu.more)
}

// floor is the least id after which everything is here.
func (j *Journal) floor() ID { return ID{j.boot, j.mu.last - uint64(len(j.mu.ring))} }

// Newest returns the id after which the newest n events, or all that there are, follow.
func (j *Journal) Newest(n int) ID {
	j.mu.Lock()
	defer j.mu.Unlock()
	return ID{j.boot, j.mu.last - uint64(min(n, len(j.mu.ring)))}
}

// After returns the first events after id, at most limit, oldest first; none is no error. Errors:
// *CompactedError, *UnknownIDError.
func (j *Journal) After(id ID, limit int) ([]Event, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.after(id, limit)
}

func (j *Journal) after(id ID, limit int) ([]Event, error) {
	last := ID{j.boot, j.mu.last}
	switch floor := j.floor(); {
	case id.Less(floor):
		return nil, &CompactedError{After: id, Floor: floor}
	case last.Less(id):
		return nil, &UnknownIDError{ID: id, Last: last}
	}
	n := min(j.mu.last-id.Seq, uint64(limit))
	events := make([]Event, 0, n)
	for seq := id.Seq + 1; seq <= id.Seq+n; seq++ {
		events = append(events, j.mu.ring[(seq-1)%Capacity])
	}
	return events, nil
}

// Follower reads one event after the other as they come. It belongs to one goroutine.
type Follower struct {
	journal *Journal
	at      ID
}

// Follow begins after id. The caller closes the follower. Errors: those of After, and *BusyError.
func (j *Journal) Follow(id ID) (*Follower, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.after(id, 0); err != nil {
		return nil, err
	}
	if j.mu.followers == MaxFollowers {
		return nil, &BusyError{Limit: MaxFollowers}
	}
	j.mu.followers++
	j.metrics.followers.Inc()
	return &Follower{journal: j, at: id}, nil
}

// Close makes room for another follower.
func (f *Follower) Close() {
	f.journal.mu.Lock()
	defer f.journal.mu.Unlock()
	f.journal.mu.followers--
	f.journal.metrics.followers.Dec()
}

// At is the id of the last event that Next returned, or where the follower begins.
func (f *Follower) At() ID { return f.at }

// Next returns the events that follow, at least one, as soon as there are any. Errors: the cause of
// ctx; ErrClosed; a *CompactedError when the reader was too slow, after which the next call goes on at
// its floor.
func (f *Follower) Next(ctx context.Context) ([]Event, error) {
	for {
		f.journal.mu.Lock()
		events, err := f.journal.after(f.at, page)
		more, closed := f.journal.mu.more, f.journal.mu.closed
		f.journal.mu.Unlock()
		if compacted, ok := errors.AsType[*CompactedError](err); ok {
			f.at = compacted.Floor
		}
		switch {
		case err != nil:
			return nil, err
		case len(events) > 0:
			f.at = events[len(events)-1].ID
			return events, nil
		case closed:
			return nil, ErrClosed
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
