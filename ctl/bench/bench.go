// Package bench puts load on a cluster in a closed loop: so many clients, each of which sends its next
// request when the last one was answered, for so long.
//
// What it measures is what an application would see: whole requests over kept connections, from the
// first byte out to the last byte in. Clients are spread over the endpoints in turn, and every
// endpoint has its own row, so that a member and its leader are compared in one run. Absolute numbers
// say little on a shared machine; ratios of one run do.
//
// Callers: the bench verb.
package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// Op is what a client does over and over.
type Op string

// The operations.
const (
	OpItems   Op = "items"   // POST /items, one a request
	OpSignals Op = "signals" // POST /signals, one a request
	OpIngest  Op = "ingest"  // one POST /ingest a client, window lines on their way
	OpFeed    Op = "feed"    // GET /feed?limit=20
)

// Ops lists them.
func Ops() []string {
	return []string{string(OpItems), string(OpSignals), string(OpIngest), string(OpFeed)}
}

// window is how many lines an ingest client has on their way.
const window = 256

// Options configures Run. All fields but Token, Transport and Progress are required.
type Options struct {
	Endpoints []string // URLs
	Token     string   // bearer key; empty: none

	Op      Op
	Clients int           // 1 to 10,000
	Size    int           // bytes of a record's filling; of a signal at most 256
	For     time.Duration // how long
	Ack     string        // quorum or leader
	Keys    string        // uniform or zipf
	Space   int           // how many different items

	Transport http.RoundTripper                   // nil: the network, with a connection a client
	Progress  func(sent uint64, of time.Duration) // called every second; nil: nobody wants to know
}

// Validate says what cannot be, naming the flag.
func (o Options) Validate() error {
	switch {
	case !slices.Contains(Ops(), string(o.Op)):
		return fmt.Errorf("--op %q: want %s", o.Op, strings.Join(Ops(), ", "))
	case o.Clients < 1 || o.Clients > 10_000:
		return fmt.Errorf("--clients %d: want 1 to 10000", o.Clients)
	case o.Size < 0 || o.Size > api.MaxItemBytes/2:
		return fmt.Errorf("--size %d: want 0 to %d bytes", o.Size, api.MaxItemBytes/2)
	case (o.Op == OpSignals || o.Op == OpIngest) && o.Size > api.MaxIDBytes:
		return fmt.Errorf("--size %d: a signal is filled by its user, which has at most %d bytes", o.Size, api.MaxIDBytes)
	case o.For <= 0:
		return fmt.Errorf("--for %s: want a positive duration", o.For)
	case o.Ack != "quorum" && o.Ack != "leader":
		return fmt.Errorf("--ack %q: want quorum or leader", o.Ack)
	case o.Keys != "uniform" && o.Keys != "zipf":
		return fmt.Errorf("--keys %q: want uniform or zipf", o.Keys)
	case o.Space < 1:
		return fmt.Errorf("--items %d: want at least 1", o.Space)
	}
	return nil
}

// Row is what came of the load on one endpoint, or of all of it.
type Row struct {
	Endpoint   string            `json:"endpoint"` // "all" for the sum
	Clients    int               `json:"clients"`
	Operations uint64            `json:"operations"` // answered as asked
	Errors     uint64            `json:"errors"`
	PerSecond  float64           `json:"per_second"`
	P50MS      float64           `json:"p50_ms"`
	P99MS      float64           `json:"p99_ms"`
	MaxMS      float64           `json:"max_ms"`
	ByError    map[string]uint64 `json:"by_error"` // by code of the problem, or kind of failure
}

// Report is what Run found. Rows has one an endpoint, then the sum where there are several.
type Report struct {
	Op     Op            `json:"op"`
	Keys   string        `json:"keys"`
	Ack    string        `json:"ack"`
	Size   int           `json:"size_bytes"`
	Took   time.Duration `json:"-"`
	TookMS int64         `json:"took_ms"`
	Rows   []Row         `json:"rows"`
}

// Run puts the load on and returns when the time is up or ctx ends, after the last client has
// stopped. Errors of requests are counted, not returned.
func Run(ctx context.Context, o Options) (Report, error) {
	if err := o.Validate(); err != nil {
		return Report{}, err
	}
	transport := o.Transport
	if transport == nil {
		t := &http.Transport{MaxIdleConns: o.Clients, MaxIdleConnsPerHost: o.Clients, DisableCompression: true}
		defer t.CloseIdleConnections()
		transport = t
	}
	ctx, cancel := context.WithTimeout(ctx, o.For)
	defer cancel()
	tallies := make([]tally, o.Clients)
	var sent atomic.Uint64
	start := time.Now()
	var wg sync.WaitGroup
	for i := range tallies {
		c := newClient(o, i, &http.Client{Transport: transport}, &tallies[i], &sent)
		wg.Go(func() { c.run(ctx) })
	}
	stopProgress := o.progress(ctx, start, &sent)
	wg.Wait()
	stopProgress()
	return o.report(tallies, time.Since(start)), nil
}

// progress tells the caller how far it is until the returned func is called.
func (o Options) progress(ctx context.Context, start time.Time, sent *atomic.Uint64) (stop func()) {
	if o.Progress == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				o.Progress(sent.Load(), time.Since(start))
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (o Options) report(tallies []tally, took time.Duration) Report {
	r := Report{Op: o.Op, Keys: o.Keys, Ack: o.Ack, Size: o.Size, Took: took, TookMS: took.Milliseconds()}
	all := tally{}
	for at, endpoint := range o.Endpoints {
		one, clients := tally{}, 0
		for i := at; i < len(tallies); i += len(o.Endpoints) {
			one.add(&tallies[i])
			clients++
		}
		all.add(&one)
		if clients > 0 {
			r.Rows = append(r.Rows, one.row(endpoint, clients, took))
		}
	}
	if len(r.Rows) > 1 {
		r.Rows = append(r.Rows, all.row("all", o.Clients, took))
	}
	return r
}

// tally is what one client saw. It is owned by its goroutine until Run has waited for it.
type tally struct {
	took   histogram
	errors map[string]uint64
}

func (t *tally) fail(kind string) {
	if t.errors == nil {
		t.errors = map[string]uint64{}
	}
	t.errors[kind]++
}

func (t *tally) add(o *tally) {
	t.took.add(&o.took)
	for kind, n := range o.errors {
		for range n {
			t.fail(kind)
		}
	}
}

func (t *tally) row(endpoint string, clients int, took time.Duration) Row {
	r := Row{
		Endpoint: endpoint, Clients: clients, Operations: t.took.count,
		PerSecond: float64(t.took.count) / took.Seconds(),
		P50MS:     millis(t.took.quantile(0.50)), P99MS: millis(t.took.quantile(0.99)), MaxMS: millis(t.took.max),
		ByError: map[string]uint64{},
	}
	for kind, n := range t.errors {
		r.ByError[kind], r.Errors = n, r.Errors+n
	}
	return r
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Unreached is the failure of a request that no member answered.
const Unreached = "connection"

// kindOf names a failure by what an operator would look for.
func kindOf(err error) string {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return string(p.Code)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	return Unreached
}
