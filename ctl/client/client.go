// Package client asks the members of a cluster over HTTP.
//
// It knows several endpoints and needs one. A read goes to the endpoint that answered last; when
// that one fails, or is silent for a second, all the others are asked at once and the first answer
// wins. Every endpoint has two seconds and the whole read has five, so a read ends in bounded time
// however the cluster died: with an answer, with a *ProblemError when a member answered that it
// could not, or with an *UnreachableError that says of every endpoint why it was of no use.
//
// Callers: the verbs of ctl. Of ours it imports daemon/api and daemon/reach alone.
package client

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/tidaldb/tidal/daemon/api"
)

// The limits of a read.
const (
	EndpointTimeout = 2 * time.Second
	ReadTimeout     = 5 * time.Second

	// hedgeAfter is how long the first endpoint may be silent before the others are asked too. A
	// member gives another one 500 ms before it calls it unreachable, so a healthy answer is
	// earlier.
	hedgeAfter = time.Second

	// maxJitter spreads the requests of many clients that lost the same endpoint.
	maxJitter = 50 * time.Millisecond

	// maxAnswerBytes bounds what is read of one answer.
	maxAnswerBytes = 16 << 20
)

// Options configures New. The zero value of every field but Endpoints is usable.
type Options struct {
	Endpoints []string // URLs, at least one; required

	// Token is sent as a bearer key. Empty means none.
	Token string

	UserAgent string

	// Timeout bounds a whole read. 0 means ReadTimeout.
	Timeout time.Duration

	// TLS is for https endpoints; nil means the system's authorities and no certificate.
	TLS *tls.Config

	// Transport is the seam to the network, TLS included; nil means a fresh http.Transport.
	Transport http.RoundTripper
}

// EndpointError refuses an endpoint before anything is sent.
type EndpointError struct {
	Endpoint string
	Detail   string
}

func (e *EndpointError) Error() string { return fmt.Sprintf("endpoint %q: %s", e.Endpoint, e.Detail) }

// Client asks a cluster. It is safe for concurrent use.
type Client struct {
	endpoints []*url.URL
	token     string
	agent     string
	timeout   time.Duration
	http      *retryablehttp.Client
	patient   *http.Client // for what changes something: never again, and as long as the caller waits

	mu struct {
		sync.Mutex
		// preferred is the index in endpoints of the one that answered last.
		preferred int
	}
}

// New checks the endpoints and returns a client; it does not dial. The error is an *EndpointError.
func New(o Options) (*Client, error) {
	if len(o.Endpoints) == 0 {
		return nil, &EndpointError{"", "at least one is needed"}
	}
	c := &Client{token: o.Token, agent: o.UserAgent, timeout: o.Timeout}
	for _, e := range o.Endpoints {
		u, err := parseEndpoint(e)
		if err != nil {
			return nil, err
		}
		c.endpoints = append(c.endpoints, u)
	}
	if c.timeout == 0 {
		c.timeout = ReadTimeout
	}
	transport, patient := o.Transport, o.Transport
	if transport == nil {
		t := &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: EndpointTimeout}).DialContext,
			TLSHandshakeTimeout: EndpointTimeout,
			TLSClientConfig:     o.TLS,
			ForceAttemptHTTP2:   true,
		}
		patient = t.Clone()
		t.ResponseHeaderTimeout = EndpointTimeout
		transport = t
	}
	// A member never redirects; whoever does must not be handed the key.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.patient = &http.Client{Transport: patient, CheckRedirect: stay}
	c.http = &retryablehttp.Client{
		HTTPClient:   &http.Client{Transport: transport, CheckRedirect: stay},
		RetryMax:     1,
		RetryWaitMin: maxJitter / 2,
		RetryWaitMax: maxJitter,
		Backoff:      retryablehttp.LinearJitterBackoff,
		CheckRetry:   onlyLostConnections,
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	return c, nil
}

func parseEndpoint(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, &EndpointError{s, "want a URL like http://127.0.0.1:9501"}
	case u.User != nil:
		return nil, &EndpointError{u.Redacted(), "credentials do not belong in a URL; name a file in TIDALCTL_TOKEN_FILE"}
	case u.RawQuery != "" || u.Fragment != "":
		return nil, &EndpointError{s, "a query or fragment does not belong here"}
	}
	return u, nil
}

// Endpoints returns the endpoints in the order given.
func (c *Client) Endpoints() []string {
	list := make([]string, len(c.endpoints))
	for i, u := range c.endpoints {
		list[i] = u.String()
	}
	return list
}

// Source says who gave an answer, from the answer's Tidal-* headers.
type Source struct {
	Endpoint string
	Member   string
	// Term and Index are what the member was at; nil: it did not say.
	Term, Index *uint64
}

// Status reads the cluster as one member sees it.
func (c *Client) Status(ctx context.Context) (api.Status, Source, error) {
	return get[api.Status](ctx, c, "/cluster/status")
}

// Members reads the roster as one member has applied it.
func (c *Client) Members(ctx context.Context) (api.Members, Source, error) {
	return get[api.Members](ctx, c, "/cluster/members")
}

// get reads path from whichever endpoint answers. An answer that is not a T in JSON counts as none:
// something else listens there.
func get[T any](ctx context.Context, c *Client, path string) (T, Source, error) {
	return race(ctx, c, func(ctx context.Context, endpoint *url.URL) (T, Source, error) {
		var value T
		header, body, err := c.fetch(ctx, endpoint.JoinPath(path))
		if err != nil {
			return value, Source{}, err
		}
		if err := json.Unmarshal(body, &value); err != nil {
			return value, Source{}, &foreignError{fmt.Sprintf("the answer is not what %s answers: %v", path, err)}
		}
		return value, sourceOf(endpoint, header), nil
	})
}

func sourceOf(endpoint *url.URL, header http.Header) Source {
	return Source{
		Endpoint: endpoint.String(),
		Member:   header.Get(api.HeaderMember),
		Term:     number(header.Get(api.HeaderTerm)),
		Index:    number(header.Get(api.HeaderIndex)),
	}
}

// number reads a header that holds one; nil when it does not.
func number(s string) *uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return nil
	}
	return &n
}
