package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/tidaldb/tidal/daemon/api"
)

// fetch sends one GET. Errors: *ProblemError when a member refused, *foreignError when something
// that is no member answered, else the transport's.
func (c *Client) fetch(ctx context.Context, target *url.URL) (http.Header, []byte, error) {
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Accept", "application/json, "+api.ProblemType)
	if c.agent != "" {
		req.Header.Set("User-Agent", c.agent)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err != nil {
		return nil, nil, err
	}
	if len(body) > maxAnswerBytes {
		return nil, nil, &foreignError{fmt.Sprintf("the answer is larger than %d bytes", maxAnswerBytes)}
	}
	if resp.StatusCode == http.StatusOK {
		if resp.Header.Get(api.HeaderMember) == "" {
			return nil, nil, &foreignError{"the answer names no member: not a tidald"}
		}
		return resp.Header, body, nil
	}
	var p api.Problem
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if media != api.ProblemType || json.Unmarshal(body, &p) != nil || p.Code == "" {
		return nil, nil, &foreignError{fmt.Sprintf("HTTP %s without a problem: not a tidald", resp.Status)}
	}
	p.Status = resp.StatusCode
	return nil, nil, &ProblemError{Endpoint: target.Host, Member: resp.Header.Get(api.HeaderMember), Problem: &p}
}

// onlyLostConnections sends a request once more to the same endpoint when the connection broke under
// it. Whatever else fails is left to the other endpoints, which are asked at once.
func onlyLostConnections(ctx context.Context, _ *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return connectionLost(err), nil
}
