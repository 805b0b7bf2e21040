package httpd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/reach"
)

// Join asks the member at seed, which asks the leader, to admit c. It implements member.Introducer. A seed
// without a scheme is the address of a member.
func (c *Client) Join(ctx context.Context, seed string, who membership.Candidate) (member.Introduction, error) {
	body, err := json.Marshal(api.JoinRequest{
		Name: who.Name, Incarnation: who.Incarnation.String(), GRPCAddr: who.GRPCAddr, HTTPAddr: who.HTTPAddr,
		Capabilities: strconv.FormatUint(uint64(who.Capabilities), 10), Rejoin: who.Rejoin,
	})
	if err != nil {
		return member.Introduction{}, err
	}
	var joined api.Joined
	err = c.askSeed(ctx, seed, http.MethodPost, "/cluster/join", body, &joined)
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Code == api.CodeRemoved && p.Field == "incarnation" {
		err = &membership.RemovedError{Name: who.Name, Kept: true}
	}
	if err != nil {
		return member.Introduction{}, err
	}
	return introduction(joined)
}

// introduction reads what a leader answered, which comes from the network.
func introduction(j api.Joined) (in member.Introduction, err error) {
	if in.ID, err = ident.ParseMemberID(j.ID); err != nil {
		return in, err
	}
	if in.Cluster, err = ident.ParseClusterID(j.ClusterID); err != nil {
		return in, err
	}
	in.Term = j.Term
	for _, m := range j.Roster.Members {
		id, err := ident.ParseMemberID(m.ID)
		if err != nil {
			return in, err
		}
		x := membership.Member{ID: id, Name: m.Name, GRPCAddr: m.GRPCAddr, HTTPAddr: m.HTTPAddr, Role: membership.RoleLearner}
		if m.Role == api.RoleVoter {
			x.Role = membership.RoleVoter
		}
		in.Members = append(in.Members, x)
		if m.ID == j.Leader.ID {
			in.Leader = x
		}
	}
	return in, nil
}

// Locate returns where its peers reach the member at seed, or nothing where it belongs to no cluster. It
// implements member.Introducer.
func (c *Client) Locate(ctx context.Context, seed string) (string, error) {
	var s api.LocalStatus
	if err := c.askSeed(ctx, seed, http.MethodGet, "/cluster/status/local", nil, &s); err != nil {
		return "", err
	}
	if s.ClusterID == "" {
		return "", nil
	}
	return s.GRPCAddr, nil
}

// askSeed sends one request as an outsider does, without the marker: the member that gets it may forward
// it. It shows the peer key, which admits it where the surface asks for keys. The error says what a person
// would want to know of a seed that is of no use.
func (c *Client) askSeed(ctx context.Context, seed, method, path string, body []byte, into any) error {
	if !strings.Contains(seed, "://") {
		seed = c.scheme() + "://" + seed
	}
	u, err := url.Parse(seed)
	if err != nil {
		return err
	}
	if u.Scheme == "https" && c.opts.TLS == nil {
		return errors.New("its URL says https, and this member has no TLS configured (tls.cert_file)")
	}
	req, err := http.NewRequestWithContext(ctx, method, u.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	if len(c.opts.PeerKey) > 0 {
		req.Header.Set(api.HeaderPeerKey, string(c.opts.PeerKey))
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return reach.Worded(err)
	}
	defer resp.Body.Close()
	a, err := readAnswer(resp, u.Host)
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		if p, ok := a.problem(); ok {
			return p
		}
		return fmt.Errorf("HTTP %d from something that is no member of a cluster that can be joined", a.status)
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("the answer is not what a member answers: %w", err)
	}
	return nil
}

// Why asks the member at addr, the leader, which gates it sees before the member called name.
func (c *Client) Why(ctx context.Context, addr, name string) (api.Why, error) {
	var w api.Why
	err := c.tell(ctx, addr, "/cluster/why/"+url.PathEscape(name), &w)
	return w, err
}

// History asks the member at addr what it remembers.
func (c *Client) History(ctx context.Context, addr string) (api.History, error) {
	var h api.History
	err := c.tell(ctx, addr, "/cluster/history", &h)
	return h, err
}

// Operation asks the member at addr for an operation that it ran.
func (c *Client) Operation(ctx context.Context, addr, id string) (api.Operation, error) {
	var op api.Operation
	err := c.tell(ctx, addr, "/cluster/ops/"+url.PathEscape(id), &op)
	return op, err
}

// tell reads a member's own part of an answer.
func (c *Client) tell(ctx context.Context, addr, path string, into any) error {
	at, err := url.Parse(path)
	if err != nil {
		return err
	}
	a, err := c.do(ctx, addr, http.MethodGet, at, nil, nil)
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		if p, ok := a.problem(); ok {
			return p
		}
		return fmt.Errorf("GET %s of %s: HTTP %d", path, addr, a.status)
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("GET %s of %s: %w", path, addr, err)
	}
	return nil
}
