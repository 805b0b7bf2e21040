package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/testenv/audit"
)

// Ledger writes signals from many clients and remembers what became of each. Every write carries an
// id of its own as the signal's user, which the log keeps.
type Ledger struct {
	c       *Cluster
	clients []*writer
	http    *http.Client

	acked atomic.Uint64 // writes answered 204
	index atomic.Uint64 // the highest index that was acknowledged

	reads atomic.Uint64 // linearizable reads that were answered

	mu    sync.Mutex
	stale []string // answers that were older than allowed, in words
}

// patience is how long a client waits for an answer: less than a member does for its majority, so that
// clients are not all held up by a member that is paused.
const patience = time.Second

// writer is one client: writes go out one at a time, to the members in turn.
type writer struct {
	ledger *Ledger
	item   string
	count  int
	claims audit.Claims
}

// NewLedger creates the items of n clients.
func NewLedger(c *Cluster, n int) *Ledger {
	c.t.Helper()
	l := &Ledger{c: c, http: &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: n}}}
	c.t.Cleanup(l.http.CloseIdleConnections)
	for i := range n {
		w := &writer{ledger: l, item: fmt.Sprintf("client-%03d", i)}
		l.clients = append(l.clients, w)
		c.Until("the item "+w.item, func() error {
			_, err := c.Do(http.MethodPost, c.Members[i%len(c.Members)], "/items", map[string]string{"id": w.item}, nil)
			return err
		})
	}
	return l
}

// run writes from every client, and reads from every member, until ctx ends.
func (l *Ledger) run(ctx context.Context) {
	var wg sync.WaitGroup
	for i, w := range l.clients {
		wg.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				w.write(ctx, l.c.Members[n%len(l.c.Members)])
			}
		})
	}
	for _, m := range l.c.Members {
		wg.Go(func() {
			for ctx.Err() == nil {
				l.read(m)
				pause(ctx)
			}
		})
	}
	wg.Wait()
}

func (w *writer) write(ctx context.Context, m api.DevMember) {
	l := w.ledger
	id := fmt.Sprintf("%s/%06d", w.item, w.count)
	w.count++
	h, err := do(l.http, http.MethodPost, m, "/signals", api.Signal{Item: w.item, Signal: "view", User: id}, nil)
	if err == nil {
		w.claims.Acked = append(w.claims.Acked, id)
		index, _ := strconv.ParseUint(h.Get(api.HeaderIndex), 10, 64) // 0 where it is missing: less is asked of reads
		raise(&l.index, index)
		l.acked.Add(1)
		return
	}
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Effect == api.EffectNone || errors.Is(err, syscall.ECONNREFUSED) {
		w.claims.Refused = append(w.claims.Refused, id)
	} else {
		w.claims.Unknown = append(w.claims.Unknown, id)
	}
	pause(ctx) // a member that is down refuses at once: do not spin on it
}

// read asks m for a linearizable answer, which must reflect everything that was acknowledged before.
func (l *Ledger) read(m api.DevMember) {
	floor := l.index.Load()
	h, err := do(l.http, http.MethodGet, m, "/items/"+l.clients[0].item+"?consistency=linearizable", nil, nil)
	if err != nil {
		return
	}
	l.reads.Add(1)
	if index, err := strconv.ParseUint(h.Get(api.HeaderIndex), 10, 64); err != nil || index < floor {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.stale = append(l.stale, fmt.Sprintf("%s answered with index %q what was asked after index %d was acknowledged", m.Name, h.Get(api.HeaderIndex), floor))
	}
}

// raise sets v to at least n.
func raise(v *atomic.Uint64, n uint64) {
	for have := v.Load(); have < n && !v.CompareAndSwap(have, n); have = v.Load() {
	}
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(pollEvery):
	}
}

// Acked returns how many writes were acknowledged so far, of all clients.
func (l *Ledger) Acked() uint64 { return l.acked.Load() }

// During runs f while all clients write and every member is read from.
func (l *Ledger) During(f func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.run(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	f()
}

// WaitAcked waits until n more writes were acknowledged.
func (l *Ledger) WaitAcked(n uint64) {
	l.c.t.Helper()
	want := l.Acked() + n
	l.c.Until(fmt.Sprintf("%d more acknowledged writes", n), func() error {
		if got := l.Acked(); got < want {
			return fmt.Errorf("%d to go", want-got)
		}
		return nil
	})
}

// Claims is what the clients know. REQUIRES: no During is under way.
func (l *Ledger) Claims() (all audit.Claims) {
	for _, w := range l.clients {
		all.Acked = append(all.Acked, w.claims.Acked...)
		all.Refused = append(all.Refused, w.claims.Refused...)
		all.Unknown = append(all.Unknown, w.claims.Unknown...)
	}
	return all
}

// Check waits until every member has applied what was acknowledged, and asks them: each client's
// count lies between what was acknowledged and what may have been, on every member. REQUIRES: no
// During is under way.
func (l *Ledger) Check() {
	t := l.c.t
	t.Helper()
	claims, index := l.Claims(), l.index.Load()
	t.Logf("ledger: %d acknowledged, %d unknown, %d refused, up to index %d; %d linearizable reads",
		len(claims.Acked), len(claims.Unknown), len(claims.Refused), index, l.reads.Load())
	for _, m := range l.c.Members {
		for _, w := range l.clients {
			var it api.ItemAnswer
			l.c.Until(fmt.Sprintf("the count of %s on %s", w.item, m.Name), func() error {
				return l.c.Get(m, fmt.Sprintf("/items/%s?min_index=%d", w.item, index), &it)
			})
			acked, unknown := len(w.claims.Acked), len(w.claims.Unknown)
			if got := int(it.Signals["view"].Count); got < acked || got > acked+unknown {
				t.Errorf("%s counts %d views on %s; %d were acknowledged, %d more may be in", w.item, got, m.Name, acked, unknown)
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.stale {
		t.Error("stale read: " + s)
	}
}
