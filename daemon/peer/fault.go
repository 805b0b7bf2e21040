package peer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Bounds of the fault table. A drill needs one lease with one row a peer.
const (
	MaxLeases = 16
	MaxFaults = 64 // of one lease
)

// Direction is a way between two members, as the one that holds a fault sees it.
type Direction uint8

// The directions.
const (
	In   Direction = 1 << iota // what the peer sends
	Out                        // what is sent to the peer
	Both = In | Out
)

// String returns the word of the wire.
func (d Direction) String() string {
	switch d {
	case In:
		return "in"
	case Out:
		return "out"
	}
	return "both"
}

// Party is the other end of a link, by whatever is known of it where a message leaves or arrives.
type Party struct {
	ID   ident.MemberID // 0: not known
	Name string         // empty: not known
	Addr string         // of gRPC or of HTTP; empty: not known
}

// Target is the member that a fault is about, by everything that it goes by.
type Target struct {
	ID                 ident.MemberID
	Name               string
	GRPCAddr, HTTPAddr string
}

func (t *Target) is(p Party) bool {
	return p.ID != 0 && p.ID == t.ID ||
		p.Name != "" && p.Name == t.Name ||
		p.Addr != "" && (p.Addr == t.GRPCAddr || p.Addr == t.HTTPAddr)
}

// Fault is one row of the table: what this member does to what goes between it and a peer.
type Fault struct {
	Target    Target
	Direction Direction
	// Delay holds up what is sent; it needs Direction Out. 0: what goes the way of Direction is dropped.
	Delay time.Duration
}

// Lease is a set of faults that begin together and end together.
type Lease struct {
	ID     string
	Faults []Fault
	Until  time.Time // by the monotonic clock: setting the clock of the machine neither ends nor prolongs it
	Ends   time.Time // what a clock on the wall says then, for people
}

// Verdict is what becomes of a message. The zero Verdict lets it pass.
type Verdict struct {
	Lease string
	Until time.Time // of the lease
	Drop  bool
	Delay time.Duration
}

// judge returns the verdict of the leases in force at now about what goes the way of d, or of either
// way of Both, between this member and p: dropping goes before delaying, a long delay before a short one.
func judge(leases []Lease, now time.Time, p Party, d Direction) (v Verdict) {
	for i := range leases {
		l := &leases[i]
		if !now.Before(l.Until) && !mutantFaultOutlives {
			continue
		}
		for j := range l.Faults {
			f := &l.Faults[j]
			if f.Direction&d == 0 || !f.Target.is(p) || v.Drop || f.Delay != 0 && f.Delay <= v.Delay {
				continue
			}
			v = Verdict{Lease: l.ID, Until: l.Until, Drop: f.Delay == 0, Delay: f.Delay}
		}
	}
	return v
}

// granted returns the leases in force at now with l among them, in the place of an older one of its id.
func granted(leases []Lease, now time.Time, l Lease) ([]Lease, error) {
	if len(l.Faults) > MaxFaults {
		return nil, &FaultLimitError{What: "faults of one lease", Count: len(l.Faults), Limit: MaxFaults}
	}
	kept, _ := parted(leases, func(x *Lease) bool { return now.Before(x.Until) && x.ID != l.ID })
	if len(kept) == MaxLeases {
		return nil, &FaultLimitError{What: "leases", Count: len(kept) + 1, Limit: MaxLeases}
	}
	return append(kept, l), nil
}

// parted splits leases, in their order, into those to keep and the others.
func parted(leases []Lease, keep func(*Lease) bool) (kept, others []Lease) {
	for i := range leases {
		if keep(&leases[i]) {
			kept = append(kept, leases[i])
		} else {
			others = append(others, leases[i])
		}
	}
	return kept, others
}

// FaultLimitError refuses a lease that the table has no room for.
type FaultLimitError struct {
	What         string
	Count, Limit int
}

func (e *FaultLimitError) Error() string {
	return fmt.Sprintf("%d %s, limit %d", e.Count, e.What, e.Limit)
}

// CutError: a fault of this member keeps it from the peer.
type CutError struct {
	Lease string
	Left  time.Duration
}

func (e *CutError) Error() string {
	return fmt.Sprintf("fault %s of a drill cuts the way for another %s", e.Lease, e.Left.Round(10*time.Millisecond))
}

// FaultOptions configures NewFaults. The zero value is usable.
type FaultOptions struct {
	// OnEnd is told of every lease that is over: early says that it was revoked before its time. It is called
	// from several goroutines, and must not call the table.
	OnEnd   func(l Lease, early bool)
	Metrics prometheus.Registerer // nil: kept, not exported
}

// Faults is the fault table of a member, for drills: what it does to its own links, for a time. It is
// enforced where it is kept, so that it ends without anybody's help: when its time is up, when it is
// revoked, and with the process. A nil *Faults has no faults and takes none.
//
// What is asked of members about the table itself, and about their status, passes every fault; see
// package httpd.
type Faults struct {
	opts FaultOptions

	// leases is nil while there are none, the only state in which a message costs next to nothing. What
	// was published is never changed. Leases that are over may still stand in it.
	leases atomic.Pointer[[]Lease]

	mu struct {
		sync.Mutex
		changed chan struct{} // closed at the next change
		timer   *time.Timer   // at the next end of a lease; nil: none
		closed  bool          // nothing ends any more, but with the process
	}
	ticking sync.WaitGroup // the timer
}

// NewFaults returns an empty table. Its owner closes it.
func NewFaults(opts FaultOptions) *Faults {
	if opts.OnEnd == nil {
		opts.OnEnd = func(Lease, bool) {}
	}
	t := &Faults{opts: opts}
	t.mu.changed = make(chan struct{})
	gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidal_peer_fault_leases", Help: "Leases of drill faults in force on this member.",
	}, func() float64 { return float64(len(t.Leases())) })
	if opts.Metrics != nil {
		opts.Metrics.MustRegister(gauge)
	}
	return t
}

// Grant puts a lease in force, in the place of an older one of its id. The error is a *FaultLimitError.
func (t *Faults) Grant(l Lease) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	leases, err := granted(t.all(), time.Now(), l)
	if err != nil {
		return err
	}
	t.publishLocked(leases)
	return nil
}

// Revoke ends the lease with this id, or all where it is empty, and returns those that were in force.
func (t *Faults) Revoke(id string) []Lease {
	if t == nil {
		return nil
	}
	now := time.Now()
	t.mu.Lock()
	kept, ended := parted(t.all(), func(l *Lease) bool { return id != "" && l.ID != id })
	ended, _ = parted(ended, func(l *Lease) bool { return now.Before(l.Until) })
	t.publishLocked(kept)
	t.mu.Unlock()
	for _, l := range ended {
		t.opts.OnEnd(l, true)
	}
	return ended
}

// Leases returns the leases in force, by their end.
func (t *Faults) Leases() []Lease {
	now := time.Now()
	leases, _ := parted(t.all(), func(l *Lease) bool { return now.Before(l.Until) })
	slices.SortStableFunc(leases, func(a, b Lease) int { return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.ID, b.ID)) })
	return leases
}

// Close ends all faults.
func (t *Faults) Close() {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.publishLocked(nil)
	t.mu.closed = true
	t.mu.Unlock()
	t.ticking.Wait()
}

// Judge returns what becomes of a message that goes the way of d between this member and p; of Both:
// the worse of what becomes of a question and its answer.
func (t *Faults) Judge(p Party, d Direction) Verdict {
	leases := t.all()
	if leases == nil {
		return Verdict{}
	}
	return judge(leases, time.Now(), p, d)
}

// Pass waits until a question to p may be sent: it returns a *CutError where a fault drops the question
// or its answer, and holds it up where one delays it. Otherwise the error is the cause of ctx.
func (t *Faults) Pass(ctx context.Context, p Party) error {
	v := t.Judge(p, Both)
	switch {
	case v.Drop:
		return &CutError{Lease: v.Lease, Left: time.Until(v.Until)}
	case v.Delay == 0:
		return nil
	}
	delay := time.NewTimer(v.Delay)
	defer delay.Stop()
	select {
	case <-delay.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Silence returns at once where p may be heard and answered. Otherwise it is how a question that a
// fault drops fares: nothing answers it while the fault lasts, and the error is the cause of ctx or, when
// the fault is over, a *CutError.
func (t *Faults) Silence(ctx context.Context, p Party) error {
	v := t.Judge(p, Both)
	if !v.Drop {
		return nil
	}
	cut := &CutError{Lease: v.Lease}
	for {
		t.mu.Lock()
		changed := t.mu.changed
		t.mu.Unlock()
		if !t.Judge(p, Both).Drop {
			return cut // it was dropped: whoever asked asks again
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// all returns what was published last.
func (t *Faults) all() []Lease {
	if t == nil {
		return nil
	}
	if p := t.leases.Load(); p != nil {
		return *p
	}
	return nil
}

// publishLocked switches the table and sets the timer to the next end. REQUIRES: t.mu held.
func (t *Faults) publishLocked(leases []Lease) {
	if len(leases) == 0 {
		t.leases.Store(nil)
	} else {
		t.leases.Store(&leases)
	}
	close(t.mu.changed)
	t.mu.changed = make(chan struct{})
	if t.mu.timer != nil && t.mu.timer.Stop() {
		t.ticking.Done()
	}
	t.mu.timer = nil
	if len(leases) == 0 || t.mu.closed {
		return
	}
	next := slices.MinFunc(leases, func(a, b Lease) int { return a.Until.Compare(b.Until) })
	t.ticking.Add(1)
	t.mu.timer = time.AfterFunc(time.Until(next.Until), func() {
		defer t.ticking.Done()
		t.expire()
	})
}

// expire removes the leases whose time is up, and tells of them.
func (t *Faults) expire() {
	now := time.Now()
	t.mu.Lock()
	kept, ended := parted(t.all(), func(l *Lease) bool { return now.Before(l.Until) })
	t.publishLocked(kept)
	t.mu.Unlock()
	for _, l := range ended {
		t.opts.OnEnd(l, false)
	}
}
