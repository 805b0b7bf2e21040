package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// Partition cuts members off from each other. Errors as of Promote.
func (c *Client) Partition(ctx context.Context, req api.PartitionRequest) (api.Partitioned, Source, error) {
	return change[api.Partitioned](ctx, c, "/cluster/partition", req, req.OperationID)
}

// Heal ends faults. One member asks all; those that it does not reach, because the network is cut for another
// reason, or because it is the one that is alone, are asked from here. Errors as of Promote.
func (c *Client) Heal(ctx context.Context, req api.HealRequest) (api.Healed, Source, error) {
	done, source, err := change[api.Healed](ctx, c, "/cluster/heal", req, req.OperationID)
	if err == nil && !done.OK {
		c.healFromHere(ctx, req, &done)
	}
	return done, source, err
}

// healFromHere asks every member that the others did not reach, at every address that is known of it, and adds
// what it says to done.
func (c *Client) healFromHere(ctx context.Context, req api.HealRequest, done *api.Healed) {
	places, err := c.Places(ctx)
	if err != nil {
		return
	}
	places = slices.DeleteFunc(places, func(p Place) bool { return !slices.Contains(done.Failed, p.Member) })
	answers := make([]*api.Healed, len(places))
	var asking sync.WaitGroup
	for i, p := range places {
		asking.Go(func() { answers[i] = c.healAt(ctx, req, p) })
	}
	asking.Wait()
	for i, p := range places {
		a := answers[i]
		if a == nil || !slices.Contains(a.Acked, p.Member) {
			continue
		}
		for _, f := range a.Healed {
			if f.Member == p.Member {
				done.Healed = append(done.Healed, f)
			}
		}
		done.Acked = append(done.Acked, p.Member)
		done.Failed = slices.DeleteFunc(done.Failed, func(name string) bool { return name == p.Member })
		done.Errors = slices.DeleteFunc(done.Errors, func(e api.MemberError) bool { return e.Member == p.Member })
	}
	slices.Sort(done.Acked)
	if done.OK = !slices.ContainsFunc(done.Errors, func(e api.MemberError) bool { return !e.Gone }); done.OK {
		done.FaultsUntil = nil
	}
}

// healAt asks one member to heal; nil: it did not answer.
func (c *Client) healAt(ctx context.Context, req api.HealRequest, p Place) *api.Healed {
	req.OperationID = NewOperationID() // the first one is that of the member that was asked first
	raw, err := json.Marshal(req)
	if err != nil {
		return nil
	}
	for _, endpoint := range p.endpoints {
		if a := c.healThere(ctx, raw, endpoint); a != nil {
			return a
		}
	}
	return nil
}

// healThere asks whoever listens at endpoint to heal, and waits as long as that one may wait for others; for a
// member that takes a connection and says nothing else either, for as long as the question takes whether it
// is there. Asked it is all the same: a process that is stopped finds the request when it goes on.
func (c *Client) healThere(ctx context.Context, raw []byte, endpoint *url.URL) *api.Healed {
	ctx, cancel := context.WithTimeout(ctx, 2*EndpointTimeout) // it waits for the others as long as they did for it
	var probing sync.WaitGroup
	defer probing.Wait()
	defer cancel()
	probing.Go(func() {
		ctx, stop := context.WithTimeout(ctx, hedgeAfter)
		defer stop()
		if _, _, err := c.fetch(ctx, endpoint.JoinPath("/healthz")); errors.Is(err, context.DeadlineExceeded) {
			cancel()
		}
	})
	_, body, _, err := c.post(ctx, endpoint.JoinPath("/cluster/heal"), raw)
	var a api.Healed
	if err != nil || json.Unmarshal(body, &a) != nil {
		return nil
	}
	return &a
}

// Faults reads the faults in force, as one member heard of them from all.
func (c *Client) Faults(ctx context.Context) (api.Faults, Source, error) {
	return get[api.Faults](ctx, c, "/cluster/faults")
}

// Operations asks every member that can be found for the operations that it began, and returns them newest
// first, with why each of the others did not answer. The error is an *UnreachableError when none did, or the
// *ProblemError of a request that no member takes.
func (c *Client) Operations(ctx context.Context) ([]api.Operation, []Attempt, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	endpoints := c.everybody(ctx)
	heard := make([]outcome[api.Operations], len(endpoints))
	var asking sync.WaitGroup
	for i, endpoint := range endpoints {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, EndpointTimeout)
			defer cancel()
			start := time.Now()
			h := outcome[api.Operations]{endpoint: i}
			var body []byte
			if _, body, h.err = c.fetch(ctx, endpoint.JoinPath("/cluster/ops")); h.err == nil {
				h.err = json.Unmarshal(body, &h.value)
			}
			h.took = time.Since(start)
			heard[i] = h
		})
	}
	asking.Wait()
	all := []api.Operation{}
	var failed []outcome[api.Operations]
	for _, h := range heard {
		if h.err != nil {
			failed = append(failed, h)
			continue
		}
		all = append(all, h.value.Operations...)
	}
	names := make([]string, len(endpoints))
	for i, e := range endpoints {
		names[i] = e.String()
	}
	if len(failed) == len(heard) {
		return nil, nil, verdict(names, failed)
	}
	var silent []Attempt
	for _, f := range failed {
		silent = append(silent, classify(names[f.endpoint], f.err, f.took))
	}
	slices.SortStableFunc(all, func(a, b api.Operation) int {
		return cmp.Or(b.StartedAt.Compare(a.StartedAt), cmp.Compare(a.Op, b.Op))
	})
	return all, silent, nil
}
