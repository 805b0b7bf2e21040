package dev

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

const (
	pollEvery      = 20 * time.Millisecond
	requestTimeout = 10 * time.Second
)

// client speaks to the members over HTTP, as an application would.
type client struct {
	members []api.DevMember
	http    *http.Client
}

func newClient(members []api.DevMember) *client {
	return &client{members: members, http: &http.Client{
		Timeout:   requestTimeout,
		Transport: &http.Transport{MaxIdleConnsPerHost: loaders},
	}}
}

// waitReady returns once every member says it is ready.
func (c *client) waitReady(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for _, m := range c.members {
		for {
			err := c.do(ctx, http.MethodGet, m.HTTP+"/readyz", nil, nil)
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s is not ready after %s: %w", m.Name, within, err)
			case <-time.After(pollEvery):
			}
		}
	}
	return nil
}

// do sends one request; a problem in the answer is returned as *api.Problem.
func (c *client) do(ctx context.Context, method, url string, body, into any) error {
	var r io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode the body of %s %s: %w", method, url, err)
		}
		r = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, r)
	if err != nil {
		return fmt.Errorf("make the request %s %s: %w", method, url, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err // says method, URL and cause
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read the answer of %s %s: %w", method, url, err)
	}
	if resp.StatusCode >= 300 {
		p := &api.Problem{}
		if json.Unmarshal(raw, p) == nil && p.Code != "" {
			return p
		}
		return fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("decode the answer of %s %s: %w", method, url, err)
	}
	return nil
}

func (c *client) printFeed(ctx context.Context, w io.Writer) error {
	var feed api.FeedAnswer
	last := c.members[len(c.members)-1]
	if err := c.do(ctx, http.MethodGet, last.HTTP+"/feed?limit=10", nil, &feed); err != nil {
		return fmt.Errorf("read the feed: %w", err)
	}
	fmt.Fprintf(w, "\nThe feed, as %s serves it (applied index %d):\n\n", last.Name, feed.AppliedIndex)
	tw := tabwriter.NewWriter(w, 2, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "#\tSCORE\tFILM\tGENRE\tRELEASED")
	for i, it := range feed.Results {
		fmt.Fprintf(tw, "%d\t%.0f\t%s\t%s\t%s\n", i+1, it.Score, attr(it, "title"), attr(it, "genre"), attr(it, "released"))
	}
	return tw.Flush()
}

// attr is a text attribute of an item, "-" where it has none.
func attr(it api.FeedItem, name string) string {
	var attrs map[string]any
	if err := json.Unmarshal(it.Attrs, &attrs); err != nil {
		return "-"
	}
	if s, ok := attrs[name].(string); ok && s != "" {
		return s
	}
	return "-"
}

func (c *client) printStatus(ctx context.Context, w io.Writer) error {
	var st api.Status
	if err := c.do(ctx, http.MethodGet, c.members[0].HTTP+"/cluster/status", nil, &st); err != nil {
		return fmt.Errorf("read the status: %w", err)
	}
	leader := "none"
	if st.Leader != nil {
		leader = *st.Leader
	}
	fmt.Fprintf(w, "\n%s: %d of %d voters up, can lose %d; leader %s, term %d\n\n", st.Health.Level, st.Quorum.Up, st.Quorum.Voters, st.Quorum.Spare, leader, st.Term)
	tw := tabwriter.NewWriter(w, 2, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "MEMBER\tROLE\tAPPLIED\tLAG\tHTTP\tPID")
	for _, r := range st.Regions {
		lag := "?"
		if r.LagEvents != nil {
			lag = fmt.Sprint(*r.LagEvents)
		}
		fmt.Fprintf(tw, "%s\t%s\t%d\t%s\t%s\t%s\n", r.Name, r.Role, r.AppliedEvents, lag, r.HTTPAddr, c.pid(r.Name))
	}
	return tw.Flush()
}

func (c *client) pid(name string) string {
	for _, m := range c.members {
		if strings.EqualFold(m.Name, name) {
			return fmt.Sprint(m.PID)
		}
	}
	return "?"
}

// isMissing reports whether err says that there is no such thing.
func isMissing(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Code == api.CodeNotFound
}
