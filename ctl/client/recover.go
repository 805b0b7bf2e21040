package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sync"

	"github.com/tidaldb/tidal/daemon/api"
)

// RecoverViews asks every member that can be found how far its disk goes, and returns what those say
// that answer. Who does not is in no answer; where nobody does, the error is an *UnreachableError.
func (c *Client) RecoverViews(ctx context.Context) ([]api.RecoverView, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	endpoints := c.everybody(ctx)
	heard := make([]*api.RecoverView, len(endpoints))
	tried := make([]Attempt, len(endpoints))
	var asking sync.WaitGroup
	for i, endpoint := range endpoints {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, EndpointTimeout)
			defer cancel()
			_, body, err := c.fetch(ctx, endpoint.JoinPath("/cluster/recover"))
			var v api.RecoverView
			if err == nil {
				err = json.Unmarshal(body, &v)
			}
			if err != nil {
				tried[i] = classify(endpoint.String(), err, 0)
				return
			}
			heard[i] = &v
		})
	}
	asking.Wait()
	var views []api.RecoverView
	var silent []Attempt
	for i, v := range heard {
		if v != nil {
			views = append(views, *v)
		} else {
			silent = append(silent, tried[i])
		}
	}
	if len(views) == 0 {
		return nil, &UnreachableError{Tried: silent}
	}
	return views, nil
}

// Recover sends a plan to its survivor, at the address that the plan names, and to nobody else. Errors:
// *ProblemError, *UnreachableError, *LostError: sending it again tells what became of it.
func (c *Client) Recover(ctx context.Context, plan api.RecoverPlan) (api.RecoverAnswer, error) {
	var answer api.RecoverAnswer
	raw, err := json.Marshal(plan)
	if err != nil {
		return answer, fmt.Errorf("encode the plan: %w", err)
	}
	survivor := &url.URL{Scheme: c.endpoints[0].Scheme, Host: plan.Survivor.HTTPAddr}
	_, body, sent, err := c.post(ctx, survivor.JoinPath("/cluster/recover"), raw)
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	_, refused := errors.AsType[*ProblemError](err)
	switch {
	case err == nil, refused:
		return answer, err
	case sent:
		return answer, &LostError{Endpoint: survivor.String(), Err: cause(ctx, err)}
	}
	return answer, &UnreachableError{Tried: []Attempt{classify(survivor.String(), err, 0)}}
}
