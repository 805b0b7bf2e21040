package httpd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/peer"
)

// silenceLimit is how long a request that a fault drops is kept without an answer: longer than any
// member waits for one.
const silenceLimit = 10 * time.Second

// passesFaults reports whether a request between members is heard across every fault: what tells of the
// cluster, so that a drill can be watched, and what ends one.
func passesFaults(method, path string) bool {
	switch method {
	case http.MethodGet:
		return strings.HasPrefix(path, "/cluster/")
	case http.MethodPost:
		return path == "/cluster/partition" || path == "/cluster/heal"
	}
	return false
}

// dropped is how a request of another member fares that a fault drops: nobody hears it, and after a while
// the connection breaks.
func (s *Server) dropped(r *http.Request) {
	from := r.Header.Get(api.HeaderFrom)
	if from == "" || passesFaults(r.Method, r.URL.Path) {
		return
	}
	p := peer.Party{Name: from}
	if !s.opts.Faults.Judge(p, peer.Both).Drop {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), silenceLimit)
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()
	_ = s.opts.Faults.Silence(ctx, p)
	panic(http.ErrAbortHandler)
}

// cuttable is one direction of a stream between members, which ends when a fault cuts it.
type cuttable struct {
	io.ReadCloser
	faults *peer.Faults
	party  peer.Party
}

func (c *cuttable) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if v := c.faults.Judge(c.party, peer.Both); v.Drop {
		return 0, &peer.CutError{Lease: v.Lease, Left: time.Until(v.Until)}
	}
	return n, err
}

// Partition implements ops.Crew.
func (c *Client) Partition(ctx context.Context, cluster ident.ClusterID, addr string, req api.PartitionRequest) (api.Partitioned, error) {
	return instruct[api.Partitioned](ctx, c, cluster, addr, "/cluster/partition", req)
}

// Heal implements ops.Crew.
func (c *Client) Heal(ctx context.Context, cluster ident.ClusterID, addr string, req api.HealRequest) (api.Healed, error) {
	return instruct[api.Healed](ctx, c, cluster, addr, "/cluster/heal", req)
}

// instruct has the member at addr do its own part of a verb. The error is an *api.Problem or wraps one.
func instruct[T any](ctx context.Context, c *Client, cluster ident.ClusterID, addr, path string, req any) (out T, err error) {
	body, err := json.Marshal(req)
	if err != nil {
		return out, fmt.Errorf("encode the request: %w", err)
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if !cluster.IsZero() {
		header.Set(api.HeaderCluster, cluster.String())
	}
	a, err := c.do(ctx, addr, http.MethodPost, &url.URL{Path: path}, header, body)
	if _, unreached := errors.AsType[*unreachedError](err); unreached {
		return out, fmt.Errorf("%w (%w)", api.NewProblem(api.CodeMemberUnreached, err.Error()), err)
	}
	if err != nil {
		return out, fmt.Errorf("%w (%w)", api.NewProblem(api.CodeOutcomeUnknown, err.Error()), err)
	}
	if a.status != http.StatusOK {
		if p, ok := a.problem(); ok {
			return out, p
		}
		return out, api.NewProblem(api.CodeOutcomeUnknown, fmt.Sprintf("%s answers HTTP %d", addr, a.status))
	}
	if err := json.Unmarshal(a.body, &out); err != nil {
		return out, api.NewProblem(api.CodeOutcomeUnknown, fmt.Sprintf("the answer of %s: %v", addr, err))
	}
	return out, nil
}

// decodePartition checks everything about a partition that its request alone tells. Region becomes
// Members.
func decodePartition(body []byte) (api.PartitionRequest, error) {
	var req api.PartitionRequest
	if err := decodeVerb(body, &req, "region", "members", "split", "direction", "duration_ms", "delay_ms", "quorum_loss", "dry_run", "operation_id"); err != nil {
		return req, err
	}
	given := 0
	for _, is := range []bool{req.Region != "", req.Members != nil, req.Split != nil} {
		if is {
			given++
		}
	}
	if given != 1 {
		return req, badField("members", "want one of members, region and split, which say who is cut off from whom; there are %d", given)
	}
	if req.Region != "" {
		req.Members, req.Region = []string{req.Region}, ""
	}
	seen := map[string]bool{}
	side := func(field string, names []string) error {
		if len(names) == 0 {
			return badField(field, "names no member")
		}
		for _, name := range names {
			if seen[name] {
				return badField(field, "%s is named twice", quoted(name))
			}
			seen[name] = true
		}
		return nil
	}
	if req.Members != nil {
		if err := side("members", req.Members); err != nil {
			return req, err
		}
	}
	if n := len(req.Split); req.Split != nil && n < 2 {
		return req, badField("split", "has %d sides, want at least 2", n)
	}
	for i, names := range req.Split {
		if err := side(fmt.Sprintf("split[%d]", i), names); err != nil {
			return req, err
		}
	}
	switch req.Direction {
	case "", api.DirectionBoth, api.DirectionIn, api.DirectionOut:
	default:
		return req, badField("direction", "%s is none of both, in and out", quoted(req.Direction))
	}
	switch req.QuorumLoss {
	case "", api.QuorumLossAllow, api.QuorumLossForbid:
	default:
		return req, badField("quorum_loss", "%s is neither allow nor forbid", quoted(req.QuorumLoss))
	}
	if d := req.DelayMS; d < 0 || d > api.MaxDelayMS {
		return req, exceeds(badField("delay_ms", "%d is not within 0 to %d", d, api.MaxDelayMS), float64(d), api.MaxDelayMS, "ms")
	}
	switch d := req.DurationMS; {
	case d == 0:
		return req, badField("duration_ms", "is missing: a fault always has an end")
	case d < api.MinFaultMS:
		return req, exceeds(badField("duration_ms", "%d is below the least, %d", d, api.MinFaultMS), float64(d), api.MinFaultMS, "ms")
	}
	return req, nil
}

// postPartition cuts members off from each other. With the marker it does this member's own part.
func (s *Server) postPartition(w http.ResponseWriter, r *request) error {
	req, err := decodePartition(r.body)
	if err != nil {
		return err
	}
	if r.marked {
		if req.OperationID == "" {
			return badField("operation_id", "is missing: it names the faults")
		}
		out, err := s.ops.TakePartition(req)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, out)
	}
	started, err := s.ops.Partition(req)
	return s.answerVerb(w, r, started, err, false)
}

// postHeal ends faults. With the marker it ends this member's own.
func (s *Server) postHeal(w http.ResponseWriter, r *request) error {
	var req api.HealRequest
	if len(bytes.TrimSpace(r.body)) > 0 {
		if err := decodeVerb(r.body, &req, "id", "dry_run", "operation_id"); err != nil {
			return err
		}
	}
	if r.marked {
		return writeJSON(w, http.StatusOK, s.ops.TakeHeal(req))
	}
	started, err := s.ops.Heal(req)
	return s.answerVerb(w, r, started, err, false)
}

// getFaults tells the faults of all members. With the marker it tells this member's own.
func (s *Server) getFaults(w http.ResponseWriter, r *request) error {
	if r.marked {
		return writeJSON(w, http.StatusOK, api.Faults{Faults: s.ops.OwnFaults(), Acked: []string{s.ops.Position().Member}, Failed: []string{}, Errors: []api.MemberError{}})
	}
	return writeJSON(w, http.StatusOK, s.ops.Faults(r.Context()))
}
