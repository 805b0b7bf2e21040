package httpd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ops"
	"github.com/tidaldb/tidal/daemon/replica"
)

// Bounds of gathered writes. What is under way and what waits is bounded together.
const (
	gatherBytes    = 1 << 20 // of one request, unless one write is larger
	gatherRequests = 4       // under way to the leader
	gatherQueue    = 16 << 20

	// maxWritesBytes bounds a request of gathered writes: a single write may be a whole entry.
	maxWritesBytes = 2 << 20

	// handoverBytes is what a waiting write costs beside its bytes.
	handoverBytes = 256

	gatherRetryAfter = 100 * time.Millisecond
)

// pathWrites is where members hand writes over.
const pathWrites = "/internal/writes"

// gatherer hands writes over to the leader, many in one request: those that come while requests are
// under way wait for the next one, so that a lone write waits for nothing and a crowd travels together.
//
// Each write fares as if it had been sent alone: its result is its own, except that what becomes of
// the request becomes of all in it.
type gatherer struct {
	client  *Client
	cluster func() string
	// whoLeads is ops.Leader.
	whoLeads func() (ops.Leader, error)
	metrics  *metrics
	// base ends when requests are cut short.
	base context.Context

	mu struct {
		sync.Mutex
		waiting []*handover // oldest first
		bytes   int64       // of those that wait or are under way; see gatherQueue
		sending int         // requests under way; at most gatherRequests
		done    sync.WaitGroup
	}
}

// handover is one write on its way.
type handover struct {
	ops.Write
	leader ops.Leader
	result result
	done   chan struct{} // closed when result is set
}

func (h *handover) size() int64 { return int64(len(h.Data)) + handoverBytes }

// write hands w over to l and returns what became of it. Errors: *replica.NotLeaderError (l does not
// lead), *unreachedError, *replica.OverloadedError: nothing happened. *lostError: nobody knows.
// *api.Problem: what the leader said.
func (g *gatherer) write(ctx context.Context, l ops.Leader, w ops.Write) (ops.Written, error) {
	h := &handover{Write: w, leader: l, done: make(chan struct{})}
	if err := g.admit(h); err != nil {
		return ops.Written{}, err
	}
	select {
	case <-h.done:
		return h.result.Written, h.result.err
	case <-ctx.Done():
		return ops.Written{}, &lostError{Addr: l.HTTPAddr, Err: context.Cause(ctx)}
	}
}

// admit lets h wait, and starts a request if there is room for one.
func (g *gatherer) admit(h *handover) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.bytes+h.size() > gatherQueue {
		return &replica.OverloadedError{Queue: "forwards", Bytes: g.mu.bytes, Limit: gatherQueue, RetryAfter: gatherRetryAfter}
	}
	g.mu.bytes += h.size()
	g.mu.waiting = append(g.mu.waiting, h)
	if g.mu.sending < gatherRequests {
		g.mu.sending++
		g.mu.done.Go(g.send)
	}
	return nil
}

// send makes requests of what waits until nothing does.
func (g *gatherer) send() {
	for batch := g.next(nil); len(batch) > 0; batch = g.next(batch) {
		g.exchange(batch)
		for _, h := range batch {
			close(h.done)
		}
	}
}

// next returns the writes of the next request, all to one leader; none: this sender has ended. batch
// is the last one, which is over.
func (g *gatherer) next(batch []*handover) []*handover {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range batch {
		g.mu.bytes -= h.size()
	}
	n, bytes := 0, writesHeader
	for ; n < len(g.mu.waiting); n++ {
		h := g.mu.waiting[n]
		if bytes += len(h.Data) + writeOverhead; n > 0 && (bytes > gatherBytes || h.leader != g.mu.waiting[0].leader || n == api.MaxRecords) {
			break
		}
	}
	if n == 0 {
		g.mu.sending--
		g.mu.waiting = nil
		return nil
	}
	out := g.mu.waiting[:n:n]
	g.mu.waiting = g.mu.waiting[n:]
	return out
}

// exchange sends one request and sets the result of every write in it.
func (g *gatherer) exchange(batch []*handover) {
	results, err := g.ask(batch)
	for i, h := range batch {
		if err != nil {
			h.result.err = err
		} else {
			h.result = results[i]
		}
	}
}

// errNotLeader: the member that was asked does not lead. Nothing happened.
var errNotLeader = &replica.NotLeaderError{}

func (g *gatherer) ask(batch []*handover) ([]result, error) {
	l := batch[0].leader
	// The callers' own deadlines end their waits, not the request that they share.
	wait, given := times(0, g.client.opts.RequestTimeout)
	ctx, cancel := context.WithTimeout(g.base, wait)
	defer cancel()
	ctx, stop := follow(ctx, l, g.whoLeads)
	defer stop()
	size := writesHeader
	for _, h := range batch {
		size += len(h.Data) + writeOverhead
	}
	header := http.Header{api.HeaderCluster: {g.cluster()}, "Content-Type": {"application/octet-stream"}}
	give(header, given)
	a, err := g.client.do(ctx, l.HTTPAddr, http.MethodPost, &url.URL{Path: pathWrites}, header, appendWrites(make([]byte, 0, size), batch))
	g.metrics.forwarded(a, err)
	g.metrics.gathered.Observe(float64(len(batch)))
	switch {
	case err != nil:
		return nil, err
	case a.status == http.StatusMisdirectedRequest:
		return nil, errNotLeader
	case a.status != http.StatusOK:
		return nil, answered(l, a)
	}
	results, err := decodeResults(a.body, len(batch))
	if err != nil {
		return nil, &lostError{Addr: l.HTTPAddr, Err: err}
	}
	for i := range results {
		if p, ok := errors.AsType[*api.Problem](results[i].err); ok && p.Code == api.CodeNotLeader {
			results[i].err = errNotLeader
		}
	}
	return results, nil
}

// answered is the error of an answer that is none to the writes that were asked about.
func answered(l ops.Leader, a *answer) error {
	p, ok := a.problem()
	if !ok {
		return &lostError{Addr: l.HTTPAddr, Err: fmt.Errorf("HTTP %d", a.status)}
	}
	return p
}

// waiting returns how many writes wait for a request.
func (g *gatherer) waiting() float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return float64(len(g.mu.waiting))
}

// stop waits for the requests that are under way.
func (g *gatherer) stop() { g.mu.done.Wait() }
