package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// Ledger writes signals from many clients and remembers what became of each. Every client has an
// item of its own, so that the item's exact count says how many of its writes are in.
type Ledger struct {
	c       *Cluster
	clients []*writer
}

// writer is one client: writes go out one at a time, to the members in turn.
type writer struct {
	item    string
	acked   atomic.Uint64 // answered 204
	unknown uint64        // the answer was lost, or says that the outcome is not known
	refused uint64        // answered with effect none
	index   uint64        // highest acknowledged
}

// NewLedger creates the items of n clients.
func NewLedger(c *Cluster, n int) *Ledger {
	c.t.Helper()
	l := &Ledger{c: c}
	for i := range n {
		w := &writer{item: fmt.Sprintf("client-%03d", i)}
		l.clients = append(l.clients, w)
		c.Until("the item "+w.item, func() error {
			_, err := c.Do(http.MethodPost, c.Members[i%len(c.Members)], "/items", map[string]string{"id": w.item}, nil)
			return err
		})
	}
	return l
}

// Run writes from every client until ctx ends.
func (l *Ledger) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for i, w := range l.clients {
		wg.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				w.write(ctx, l.c, l.c.Members[n%len(l.c.Members)])
			}
		})
	}
	wg.Wait()
}

func (w *writer) write(ctx context.Context, c *Cluster, m api.DevMember) {
	h, err := c.Do(http.MethodPost, m, "/signals", api.Signal{Item: w.item, Signal: "view"}, nil)
	if err == nil {
		w.acked.Add(1)
		if i, err := strconv.ParseUint(h.Get(api.HeaderIndex), 10, 64); err == nil {
			w.index = max(w.index, i)
		}
		return
	}
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Effect == api.EffectNone {
		w.refused++
	} else {
		w.unknown++ // also a refused connection, which is less than unknown
	}
	select { // a member that is down refuses at once: do not spin on it
	case <-ctx.Done():
	case <-time.After(pollEvery):
	}
}

// Acked returns how many writes were acknowledged so far, of all clients.
func (l *Ledger) Acked() (n uint64) {
	for _, w := range l.clients {
		n += w.acked.Load()
	}
	return n
}

// During runs f while all clients write.
func (l *Ledger) During(f func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Run(ctx)
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

// Audit waits until every member has applied what was acknowledged and compares: each client's count
// lies between what was acknowledged and what may have been, and every member holds the same.
func (l *Ledger) Audit() {
	t := l.c.t
	t.Helper()
	var index, unknown, refused uint64
	for _, w := range l.clients {
		index, unknown, refused = max(index, w.index), unknown+w.unknown, refused+w.refused
	}
	t.Logf("ledger: %d acknowledged, %d unknown, %d refused, up to index %d", l.Acked(), unknown, refused, index)
	l.c.Until("the same state on every member", l.sameState)
	for _, w := range l.clients {
		var it api.ItemAnswer
		l.c.Until("the count of "+w.item, func() error {
			return l.c.Get(l.c.Members[0], fmt.Sprintf("/items/%s?min_index=%d", w.item, index), &it)
		})
		if got, acked := it.Signals["view"].Count, w.acked.Load(); got < acked || got > acked+w.unknown {
			t.Errorf("%s counts %d views; %d were acknowledged, %d more may be in", w.item, got, acked, w.unknown)
		}
	}
}

// sameState compares every client's item on every member, but for the score, which falls with time.
func (l *Ledger) sameState() error {
	for _, w := range l.clients {
		var first map[string]uint64
		for _, m := range l.c.Members {
			var it api.ItemAnswer
			if err := l.c.Get(m, "/items/"+w.item, &it); err != nil {
				return fmt.Errorf("%s on %s: %w", w.item, m.Name, err)
			}
			counts := map[string]uint64{"version": it.Version}
			for name, s := range it.Signals {
				counts[name] = s.Count
			}
			if first == nil {
				first = counts
			} else if !reflect.DeepEqual(first, counts) {
				return fmt.Errorf("%s on %s: %v, on %s: %v", w.item, l.c.Members[0].Name, first, m.Name, counts)
			}
		}
	}
	return nil
}
