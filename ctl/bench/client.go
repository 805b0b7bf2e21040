package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// pause is how long a client waits after a failure, so that a dead member is not hammered.
const pause = 10 * time.Millisecond

// zipfSkew is that of the web's popular pages: the first of 100,000 items gets about 7 % of all.
const zipfSkew = 1.1

// client is one closed loop.
type client struct {
	o       Options
	base    string
	http    *http.Client
	tally   *tally
	sent    *atomic.Uint64
	rng     *rand.Rand
	zipf    *rand.Zipf // nil: uniform
	filling string
}

func newClient(o Options, i int, h *http.Client, t *tally, sent *atomic.Uint64) *client {
	c := &client{
		o: o, base: strings.TrimSuffix(o.Endpoints[i%len(o.Endpoints)], "/"), http: h, tally: t, sent: sent,
		rng: rand.New(rand.NewPCG(uint64(i), 1)), filling: strings.Repeat("x", o.Size),
	}
	if o.Keys == "zipf" {
		c.zipf = rand.NewZipf(c.rng, zipfSkew, 1, uint64(o.Space-1))
	}
	return c
}

func (c *client) run(ctx context.Context) {
	once := c.request
	if c.o.Op == OpIngest {
		once = c.stream
	}
	for ctx.Err() == nil {
		err := once(ctx)
		if err == nil || ctx.Err() != nil {
			continue // the end of the run is no failure
		}
		c.tally.fail(kindOf(err))
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (c *client) key() string {
	if c.zipf != nil {
		return "bench-" + strconv.FormatUint(c.zipf.Uint64(), 10)
	}
	return "bench-" + strconv.Itoa(c.rng.IntN(c.o.Space))
}

// record appends the JSON of one record. Nothing in it needs escaping.
func (c *client) record(b []byte) []byte {
	switch c.o.Op {
	case OpItems:
		return fmt.Appendf(b, `{"id":"%s","filling":"%s"}`, c.key(), c.filling)
	case OpIngest:
		b = fmt.Appendf(b, `{"kind":"signal","item":"%s","signal":"view"`, c.key())
	default:
		b = fmt.Appendf(b, `{"item":"%s","signal":"view"`, c.key())
	}
	if c.filling != "" {
		b = fmt.Appendf(b, `,"user":"%s"`, c.filling)
	}
	return append(b, '}')
}

// request sends one request and reads its whole answer.
func (c *client) request(ctx context.Context) error {
	start := time.Now()
	resp, err := c.send(ctx, c.body())
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read an answer: %w", err)
	}
	if resp.StatusCode >= 300 {
		return problem(resp.StatusCode, raw)
	}
	c.tally.took.observe(time.Since(start))
	c.sent.Add(1)
	return nil
}

func (c *client) body() io.Reader {
	if c.o.Op == OpFeed {
		return nil
	}
	return bytes.NewReader(c.record(nil))
}

func (c *client) send(ctx context.Context, body io.Reader) (*http.Response, error) {
	method, path := http.MethodPost, "/"+string(c.o.Op)
	if c.o.Op == OpFeed {
		method, path = http.MethodGet, "/feed?limit=20"
	} else if c.o.Ack != "quorum" {
		path += "?ack=" + c.o.Ack
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	if c.o.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.o.Token)
	}
	return c.http.Do(req)
}

func problem(status int, raw []byte) error {
	p := &api.Problem{}
	if json.Unmarshal(raw, p) != nil || p.Code == "" {
		return fmt.Errorf("status %d without a problem", status)
	}
	return p
}

// stream runs one /ingest request until ctx ends: a writer keeps up to window lines on their way, this
// goroutine reads the cumulative acknowledgements.
func (c *client) stream(ctx context.Context) error {
	pr, pw := io.Pipe()
	slots := make(chan time.Time, window) // when each line on its way was sent, in order
	written := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(written)
		_ = pw.CloseWithError(c.lines(ctx, pw, slots)) // the reader's end says it, if anybody asks
	}()
	defer func() {
		cancel()
		_ = pr.Close()
		<-written
	}()
	resp, err := c.send(ctx, pr)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			return fmt.Errorf("read an answer: %w", err)
		}
		return problem(resp.StatusCode, raw)
	}
	return c.acknowledgements(resp.Body, slots)
}

func (c *client) lines(ctx context.Context, w io.Writer, slots chan<- time.Time) error {
	var b []byte
	for {
		b = append(c.record(b[:0]), '\n')
		select {
		case slots <- time.Now():
		case <-ctx.Done():
			return ctx.Err()
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
}

// errEnded: the server ended the stream before the run was over.
var errEnded = errors.New("the stream ended")

func (c *client) acknowledgements(r io.Reader, slots <-chan time.Time) error {
	var settled uint64
	for sc := bufio.NewScanner(r); ; {
		if !sc.Scan() {
			if err := sc.Err(); err != nil {
				return fmt.Errorf("read an acknowledgement: %w", err)
			}
			return errEnded
		}
		var line struct {
			Acked   uint64        `json:"acked"`
			Refused []api.Refusal `json:"refused"`
			Code    api.Code      `json:"code"` // of a stream that cannot go on
		}
		if err := json.Unmarshal(sc.Bytes(), &line); err != nil {
			// The last line counts the refused ones where others list them.
			return errEnded
		}
		if line.Code != "" {
			return &api.Problem{Code: line.Code}
		}
		now := time.Now()
		for ; settled < line.Acked; settled++ {
			c.tally.took.observe(now.Sub(<-slots))
			c.sent.Add(1)
		}
		for _, refused := range line.Refused {
			c.tally.fail(string(refused.Code))
		}
	}
}
