package httpd

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/reach"
)

const (
	// maxAnswerBytes bounds the answer of another member.
	maxAnswerBytes = 8 << 20

	// idleConn is how long a connection to another member is kept unused: shorter than the server
	// keeps it (idleTimeout), so that this side closes first and no request runs into a closing one.
	idleConn = 30 * time.Second

	// maxConns bounds the connections to one member; more requests wait within their deadline.
	maxConns = 512
)

// ClientOptions configures NewClient. 0 means the default.
type ClientOptions struct {
	PeerKey        []byte        // what proves to another member that a member asks; nil: nothing
	ConnectTimeout time.Duration // 1 s
	RequestTimeout time.Duration // of a forwarded request, at most; 5 s
	// TLS is how another member is called, asked at every dial; the name of its server is that of the
	// address. nil: plain text.
	TLS func() *tls.Config
	// Self is the name of this member.
	Self string
	// Faults is its fault table: it cuts requests to others, but for what passesFaults. nil: there are no
	// drills.
	Faults *peer.Faults
}

// Client speaks HTTP to the other members, on one pool of connections. It never follows a redirect,
// uses no proxy, and sends a request that changes something at most once.
type Client struct {
	opts      ClientOptions
	transport *http.Transport
	streams   *http.Transport // for requests that last: they must not take the connections of those that do not
}

// NewClient makes a client. Close it.
func NewClient(opts ClientOptions) *Client {
	if opts.ConnectTimeout == 0 {
		opts.ConnectTimeout = time.Second
	}
	if opts.RequestTimeout == 0 {
		opts.RequestTimeout = 5 * time.Second
	}
	c := &Client{opts: opts}
	c.transport = &http.Transport{
		DialContext:            c.dial,
		DialTLSContext:         c.dialTLS,
		MaxIdleConnsPerHost:    maxConns,
		MaxConnsPerHost:        maxConns,
		IdleConnTimeout:        idleConn,
		MaxResponseHeaderBytes: maxHeaderBytes,
		DisableCompression:     true,
	}
	c.streams = c.transport.Clone()
	return c
}

func (c *Client) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: c.opts.ConnectTimeout}
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &countedConn{Conn: conn}, nil
}

// dialTLS counts what goes into TLS: a handshake sends nothing of a request.
func (c *Client) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.ConnectTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	config := c.opts.TLS()
	config.ServerName = host
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return &countedConn{Conn: secure}, nil
}

// scheme is that of every member's URL.
func (c *Client) scheme() string {
	if c.opts.TLS != nil {
		return "https"
	}
	return "http"
}

// Close drops the idle connections.
func (c *Client) Close() {
	c.transport.CloseIdleConnections()
	c.streams.CloseIdleConnections()
}

// countedConn counts the bytes that were handed to it for sending, before they are sent.
type countedConn struct {
	net.Conn
	written atomic.Int64
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.written.Add(int64(len(b)))
	return c.Conn.Write(b)
}

// unreachedError: the member at Addr could not be asked. Nothing was sent.
type unreachedError struct {
	Addr string
	Err  error
}

func (e *unreachedError) Error() string {
	return fmt.Sprintf("%s was not reached: %s", e.Addr, reasonOf(e.Err))
}
func (e *unreachedError) Unwrap() error { return e.Err }

// lostError: the request, or a part of it, was sent to Addr and no whole answer came.
type lostError struct {
	Addr string
	Err  error
}

func (e *lostError) Error() string {
	return fmt.Sprintf("no whole answer of %s: %s", e.Addr, reasonOf(e.Err))
}
func (e *lostError) Unwrap() error { return e.Err }

// reasonOf is why, in words.
func reasonOf(err error) string {
	_, words := reach.Why(err)
	return words
}

// answer is what another member said, whole.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// problem returns the problem in the answer, if that is what it is.
func (a *answer) problem() (*api.Problem, bool) {
	p := &api.Problem{}
	ok := a.header.Get("Content-Type") == api.ProblemType && json.Unmarshal(a.body, p) == nil && p.Code != ""
	return p, ok
}

// LocalStatus asks the member at addr for its own view. It implements ops.Asker.
func (c *Client) LocalStatus(ctx context.Context, addr string) (api.LocalStatus, error) {
	a, err := c.do(ctx, addr, http.MethodGet, &url.URL{Path: "/cluster/status/local"}, nil, nil)
	if err != nil {
		return api.LocalStatus{}, err
	}
	if a.status != http.StatusOK {
		return api.LocalStatus{}, fmt.Errorf("local status of %s: HTTP %d", addr, a.status)
	}
	var s api.LocalStatus
	if err := json.Unmarshal(a.body, &s); err != nil {
		return api.LocalStatus{}, fmt.Errorf("local status of %s: %w", addr, err)
	}
	return s, nil
}

// forwarded are the headers of a request that travel along. Idempotency-Key must not be among them:
// net/http takes it as leave to send a POST twice. A write carries its key inside.
var forwarded = []string{"Authorization", "Content-Type"}

// travelling returns the header of a request that is forwarded to a member of cluster.
func travelling(cluster string, r *http.Request) http.Header {
	header := http.Header{api.HeaderCluster: {cluster}} // at a stale address may live another one
	for _, name := range forwarded {
		if v := r.Header.Values(name); len(v) > 0 {
			header[name] = v
		}
	}
	return header
}

// forward sends r with its body to the member of cluster at addr. It ends with ctx, which is the caller's,
// whose connection carries no deadline of its own, and with the caller's time, of which left is left, or at
// the latest after most, or RequestTimeout where that is 0. Errors: *unreachedError, *lostError.
func (c *Client) forward(ctx context.Context, cluster, addr string, r *http.Request, body []byte, left, most time.Duration) (*answer, error) {
	wait, given := times(left, cmp.Or(most, c.opts.RequestTimeout))
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	header := travelling(cluster, r)
	give(header, given)
	return c.do(ctx, addr, r.Method, r.URL, header, body)
}

// openStream sends the header of r to the member of cluster at addr, and body as it comes, and returns
// the answer once its header is there, within RequestTimeout. The stream ends with ctx. An error is an
// *unreachedError.
func (c *Client) openStream(ctx context.Context, cluster, addr string, r *http.Request, body io.Reader) (*http.Response, error) {
	party := peer.Party{Addr: addr}
	if err := c.opts.Faults.Pass(ctx, party); err != nil {
		return nil, &unreachedError{Addr: addr, Err: err}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(c.opts.RequestTimeout, func() { cancel(context.DeadlineExceeded) })
	defer late.Stop()
	body = &cuttable{io.NopCloser(body), c.opts.Faults, party}
	req, err := c.request(ctx, addr, r.Method, r.URL, travelling(cluster, r), body)
	if err != nil {
		return nil, &unreachedError{Addr: addr, Err: err}
	}
	req.ContentLength = -1
	resp, err := c.streams.RoundTrip(req)
	if err != nil {
		cancel(nil)
		return nil, &unreachedError{Addr: addr, Err: err}
	}
	resp.Body = &cuttable{resp.Body, c.opts.Faults, party}
	return resp, nil
}

// request makes a marked request.
func (c *Client) request(ctx context.Context, addr, method string, at *url.URL, header http.Header, body io.Reader) (*http.Request, error) {
	u := url.URL{Scheme: c.scheme(), Host: addr, Path: at.Path, RawPath: at.RawPath, RawQuery: at.RawQuery}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header
	}
	if until, ends := ctx.Deadline(); ends && req.Header.Get(api.HeaderTimeout) == "" {
		give(req.Header, time.Until(until))
	}
	req.Header.Set(api.HeaderInternal, "1")
	if c.opts.Self != "" {
		req.Header.Set(api.HeaderFrom, c.opts.Self)
	}
	if len(c.opts.PeerKey) > 0 {
		req.Header.Set(api.HeaderPeerKey, string(c.opts.PeerKey))
	}
	return req, nil
}

// do sends one marked request. Errors: *unreachedError, *lostError.
func (c *Client) do(ctx context.Context, addr, method string, at *url.URL, header http.Header, body []byte) (*answer, error) {
	if !passesFaults(method, at.Path) {
		if err := c.opts.Faults.Pass(ctx, peer.Party{Addr: addr}); err != nil {
			return nil, &unreachedError{Addr: addr, Err: err}
		}
	}
	var conn *countedConn
	var before int64
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		// A connection carries one request at a time. GotConn comes again when net/http takes a fresh
		// connection, which for a POST it does only if nothing was written to the first.
		conn = info.Conn.(*countedConn)
		before = conn.written.Load()
	}})
	req, err := c.request(ctx, addr, method, at, header, bytes.NewReader(body))
	if err != nil {
		return nil, &unreachedError{Addr: addr, Err: err}
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		if moved, ok := errors.AsType[*movedError](context.Cause(ctx)); ok {
			err = moved
		}
		// After an error nothing writes any more: RoundTrip waited for the writer of the connection.
		if conn == nil || conn.written.Load() == before {
			return nil, &unreachedError{Addr: addr, Err: err}
		}
		return nil, &lostError{Addr: addr, Err: err}
	}
	defer resp.Body.Close()
	return readAnswer(resp, addr)
}

// readAnswer reads the answer of the member at addr. The error is a *lostError.
func readAnswer(resp *http.Response, addr string) (*answer, error) {
	whole, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err == nil && len(whole) > maxAnswerBytes {
		err = fmt.Errorf("more than %d bytes", maxAnswerBytes)
	}
	if err != nil {
		return nil, &lostError{Addr: addr, Err: err}
	}
	return &answer{status: resp.StatusCode, header: resp.Header, body: whole}, nil
}
