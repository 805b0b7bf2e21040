package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/reach"
)

// LostError: a request that changes something was sent, and no whole answer came. It may have been
// carried out.
type LostError struct {
	Endpoint  string
	Operation string // ask for it by this id
	Err       error
}

func (e *LostError) Error() string {
	_, why := reach.Why(e.Err)
	return fmt.Sprintf("%s: the answer was lost: %s", e.Endpoint, why)
}

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Err }

// NewOperationID makes the id under which a change can be asked for when its answer is lost.
func NewOperationID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Promote moves leadership to a member. It is sent to one endpoint after the other as long as certainly
// nothing was begun. Errors: *ProblemError, *UnreachableError, *LostError with req.OperationID.
func (c *Client) Promote(ctx context.Context, req api.PromoteRequest) (api.Promoted, Source, error) {
	return change[api.Promoted](ctx, c, "/cluster/promote", req, req.OperationID)
}

// BeginPromote is Promote without waiting for its end.
func (c *Client) BeginPromote(ctx context.Context, req api.PromoteRequest) (api.Operation, Source, error) {
	req.NoWait = true
	return change[api.Operation](ctx, c, "/cluster/promote", req, req.OperationID)
}

// change sends body with POST until a member takes it or refuses it, or its fate is not known.
func change[T any](ctx context.Context, c *Client, path string, body any, operation string) (T, Source, error) {
	var none T
	raw, err := json.Marshal(body)
	if err != nil {
		return none, Source{}, fmt.Errorf("encode the request: %w", err)
	}
	if err := c.preferAwake(ctx); err != nil {
		return none, Source{}, err
	}
	var tried []Attempt
	var refused *ProblemError
	for n, i := range c.order() {
		endpoint := c.endpoints[i]
		start := time.Now()
		if n > 0 { // the first one is awake, or nobody is
			if err := c.awake(ctx, endpoint); err != nil {
				tried = append(tried, classify(endpoint.String(), err, time.Since(start)))
				continue
			}
		}
		header, answer, sent, err := c.post(ctx, endpoint.JoinPath(path), raw)
		p, isProblem := errors.AsType[*ProblemError](err)
		switch {
		case err == nil:
			var value T
			if err := json.Unmarshal(answer, &value); err != nil {
				return none, Source{}, &LostError{Endpoint: endpoint.String(), Operation: operation, Err: err}
			}
			c.prefer(i)
			return value, sourceOf(endpoint, header), nil
		case isProblem && (!p.otherMayAnswer() || p.Problem.Effect != api.EffectNone):
			return none, Source{}, p
		case isProblem:
			refused = p
		case sent:
			return none, Source{}, &LostError{Endpoint: endpoint.String(), Operation: operation, Err: cause(ctx, err)}
		case ctx.Err() != nil:
			return none, Source{}, context.Cause(ctx)
		default:
			tried = append(tried, classify(endpoint.String(), err, time.Since(start)))
		}
	}
	if refused != nil {
		return none, Source{}, refused
	}
	return none, Source{}, &UnreachableError{Tried: tried}
}

// preferAwake makes whoever answers first the one that is asked first: a change is sent once, so it must not be
// sent to a member that takes connections and does not answer, of which nobody could say later what it did. The
// error is an *UnreachableError where nobody answers, or the cause of ctx; nothing was sent then. A member that
// refuses the question, and whatever answers without being one, is left to the change itself.
func (c *Client) preferAwake(ctx context.Context) error {
	_, _, err := race(ctx, c, func(ctx context.Context, endpoint *url.URL) (struct{}, Source, error) {
		_, _, err := c.fetch(ctx, endpoint.JoinPath("/healthz"))
		return struct{}{}, Source{}, err
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	unreachable, ok := errors.AsType[*UnreachableError](err)
	if ok && !slices.ContainsFunc(unreachable.Tried, func(a Attempt) bool { return a.Code == "foreign" }) {
		return unreachable
	}
	return nil
}

// awake returns why nothing answers at an endpoint. Whatever answers, and be it a refusal, is awake.
func (c *Client) awake(ctx context.Context, endpoint *url.URL) error {
	ctx, cancel := context.WithTimeout(ctx, hedgeAfter)
	defer cancel()
	_, _, err := c.fetch(ctx, endpoint.JoinPath("/healthz"))
	_, refuses := errors.AsType[*ProblemError](err)
	_, foreign := errors.AsType[*foreignError](err)
	if refuses || foreign {
		return nil
	}
	return err
}

// cause is why a request ended that ctx ended, or its error.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// post sends one POST, once. sent says that it may have arrived: a connection was there to write to.
func (c *Client) post(ctx context.Context, target *url.URL, body []byte) (_ http.Header, answer []byte, sent bool, _ error) {
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, nil, false, err
	}
	c.dress(ctx, req.Header, "application/json")
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.patient.Do(req)
	if err != nil {
		return nil, nil, connected.Load(), err
	}
	defer resp.Body.Close()
	if err := checkAnswer(resp, target.Host); err != nil {
		// What is no member and refuses has done nothing; a proxy that failed may have passed it on.
		return nil, nil, resp.StatusCode < http.StatusMultipleChoices || resp.StatusCode >= http.StatusInternalServerError, err
	}
	answer, err = readAnswer(resp)
	return resp.Header, answer, true, err
}

// Operation finds out what became of an operation: it asks every member that can be found, and returns
// the word of the one that ran it. Where none knows, the error is a *ProblemError if all of them
// answered, else an *UnreachableError with those that did not.
func (c *Client) Operation(ctx context.Context, id string) (api.Operation, Source, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	endpoints := c.everybody(ctx)
	type word struct {
		op     api.Operation
		source Source
		err    error
		took   time.Duration
	}
	heard := make([]word, len(endpoints))
	var asking sync.WaitGroup
	for i, endpoint := range endpoints {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, EndpointTimeout)
			defer cancel()
			start := time.Now()
			header, body, err := c.fetch(ctx, endpoint.JoinPath("/cluster/ops", id))
			w := &heard[i]
			if w.err = err; err == nil {
				w.err = json.Unmarshal(body, &w.op)
				w.source = sourceOf(endpoint, header)
			}
			w.took = time.Since(start)
		})
	}
	asking.Wait()
	var unknown *ProblemError
	var silent []Attempt
	for i, w := range heard {
		p, isProblem := errors.AsType[*ProblemError](w.err)
		switch {
		case w.err == nil:
			return w.op, w.source, nil
		case isProblem && p.Problem.Code == api.CodeNotFound:
			unknown = p
		case isProblem && !p.otherMayAnswer():
			return api.Operation{}, Source{}, p
		default:
			silent = append(silent, classify(endpoints[i].String(), w.err, w.took))
		}
	}
	if len(silent) > 0 {
		return api.Operation{}, Source{}, &UnreachableError{Tried: silent}
	}
	return api.Operation{}, Source{}, unknown
}

// everybody lists where each member can be asked: the endpoints alone, if they cannot tell.
func (c *Client) everybody(ctx context.Context) []*url.URL {
	places, err := c.Places(ctx)
	if err != nil || len(places) == 0 {
		return c.endpoints
	}
	all := make([]*url.URL, len(places))
	for i, p := range places {
		all[i] = p.endpoints[0]
	}
	return all
}
