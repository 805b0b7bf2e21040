package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// outcome is what came of asking one endpoint.
type outcome[T any] struct {
	endpoint int
	value    T
	source   Source
	err      error
	took     time.Duration
	panicked *panicError
}

// panicError carries a panic to the goroutine of the caller: left in its own it would end the process
// past everybody who has something to put in order, a terminal for one.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprint(e.value) }

// Stack returns the stack of the panic.
func (e *panicError) Stack() []byte { return e.stack }

// race asks the endpoint that answered last, then, once it failed or was silent for hedgeAfter, all
// the others at once. It returns the first answer, and when there is none the best that is known:
// a member's own words before silence. When it returns, no request of it is left running.
func race[T any](ctx context.Context, c *Client, ask func(context.Context, *url.URL) (T, Source, error)) (T, Source, error) {
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	results := make(chan outcome[T], len(c.endpoints))
	launch := func(endpoint int, delay time.Duration) {
		running.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, EndpointTimeout)
			defer cancel()
			start := time.Now()
			select {
			case <-ctx.Done():
			case <-time.After(delay):
			}
			r := outcome[T]{endpoint: endpoint}
			defer func() {
				if v := recover(); v != nil {
					r.panicked = &panicError{v, debug.Stack()}
				}
				results <- r
			}()
			r.value, r.source, r.err = ask(ctx, c.endpoints[endpoint])
			r.took = time.Since(start)
		})
	}

	waiting := c.order()
	launch(waiting[0], 0)
	waiting = waiting[1:]
	pending := 1
	launchRest := func() {
		for _, endpoint := range waiting {
			launch(endpoint, rand.N(maxJitter))
		}
		pending += len(waiting)
		waiting = nil
	}

	hedge := time.NewTimer(min(hedgeAfter, c.timeout/4)) // with little time, sooner
	defer hedge.Stop()
	var failed []outcome[T]
	for pending > 0 {
		select {
		case <-hedge.C:
			launchRest()
		case r := <-results:
			pending--
			if r.panicked != nil {
				panic(r.panicked)
			}
			if r.err == nil {
				c.prefer(r.endpoint)
				return r.value, r.source, nil
			}
			if p, ok := errors.AsType[*ProblemError](r.err); ok && !p.otherMayAnswer() {
				return r.value, r.source, r.err
			}
			failed = append(failed, r)
			launchRest()
		}
	}
	var none T
	if caller.Err() != nil && !errors.Is(caller.Err(), context.DeadlineExceeded) {
		return none, Source{}, context.Cause(caller)
	}
	return none, Source{}, verdict(c.Endpoints(), failed)
}

// verdict makes one error of the failures of every endpoint.
func verdict[T any](endpoints []string, failed []outcome[T]) error {
	slices.SortFunc(failed, func(a, b outcome[T]) int { return a.endpoint - b.endpoint })
	tried := make([]Attempt, len(failed))
	for i, f := range failed {
		if p, ok := errors.AsType[*ProblemError](f.err); ok {
			return p
		}
		tried[i] = classify(endpoints[f.endpoint], f.err, f.took)
	}
	return &UnreachableError{Tried: tried}
}

// order returns the indexes of all endpoints, the preferred one first, the others as given.
func (c *Client) order() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	order := []int{c.mu.preferred}
	for i := range c.endpoints {
		if i != c.mu.preferred {
			order = append(order, i)
		}
	}
	return order
}

func (c *Client) prefer(endpoint int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.preferred = endpoint
}
