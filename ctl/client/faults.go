package client

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// Partition cuts members off from each other. Errors as of Promote.
func (c *Client) Partition(ctx context.Context, req api.PartitionRequest) (api.Partitioned, Source, error) {
	return change[api.Partitioned](ctx, c, "/cluster/partition", req, req.OperationID)
}

// Heal ends faults. Errors as of Promote.
func (c *Client) Heal(ctx context.Context, req api.HealRequest) (api.Healed, Source, error) {
	return change[api.Healed](ctx, c, "/cluster/heal", req, req.OperationID)
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
