package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/reach"
)

// fetch sends one GET and reads the whole answer. Errors: *ProblemError when a member refused,
// *foreignError when something that is no member answered, else the transport's.
func (c *Client) fetch(ctx context.Context, target *url.URL) (http.Header, []byte, error) {
	resp, err := c.send(ctx, target, "application/json")
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := readAnswer(resp)
	return resp.Header, body, err
}

// send sends one GET and returns the answer of a member that did not refuse, with its body open.
// Errors: those of fetch.
func (c *Client) send(ctx context.Context, target *url.URL, accept string) (*http.Response, error) {
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	c.dress(ctx, req.Header, accept)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if err := checkAnswer(resp, target.Host); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// dress puts on what every request carries: how long it is waited for, if that has an end, among it.
func (c *Client) dress(ctx context.Context, h http.Header, accept string) {
	if until, ends := ctx.Deadline(); ends {
		h.Set(api.HeaderTimeout, strconv.FormatInt(max(time.Until(until).Milliseconds(), 1), 10))
	}
	h.Set("Accept", accept+", "+api.ProblemType)
	if c.agent != "" {
		h.Set("User-Agent", c.agent)
	}
	if c.token != "" {
		h.Set("Authorization", "Bearer "+c.token)
	}
}

// checkAnswer returns nil for the answer of a member that did not refuse. It reads the body otherwise.
func checkAnswer(resp *http.Response, endpoint string) error {
	member := resp.Header.Get(api.HeaderMember)
	switch resp.StatusCode {
	case http.StatusOK, http.StatusAccepted:
		if member == "" {
			return &foreignError{"the answer names no member: not a tidald"}
		}
		return nil
	}
	body, err := readAnswer(resp)
	if err != nil {
		return err
	}
	var p api.Problem
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if media != api.ProblemType || json.Unmarshal(body, &p) != nil || p.Code == "" {
		return &foreignError{fmt.Sprintf("HTTP %s without a problem: not a tidald", resp.Status)}
	}
	p.Status = resp.StatusCode
	return &ProblemError{Endpoint: endpoint, Member: member, Problem: &p}
}

func readAnswer(resp *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err == nil && len(body) > maxAnswerBytes {
		err = &foreignError{fmt.Sprintf("the answer is larger than %d bytes", maxAnswerBytes)}
	}
	return body, err
}

// onlyLostConnections sends a request once more to the same endpoint when the connection broke under
// it. Whatever else fails is left to the other endpoints, which are asked at once.
func onlyLostConnections(ctx context.Context, _ *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return reach.Broke(err), nil
}
