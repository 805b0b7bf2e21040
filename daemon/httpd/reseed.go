package httpd

import (
	"errors"
	"net/http"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// reseedWithin is how long the answer of a reseed may take in all: it ends by itself when nothing moves.
const reseedWithin = 24 * time.Hour

func decodeReseed(body []byte) (api.ReseedRequest, error) {
	req := api.ReseedRequest{StallTimeoutMS: api.DefaultStallTimeoutMS}
	if err := decodeVerb(body, &req, "region", "from", "stall_timeout_ms", "dry_run", "no_wait", "operation_id"); err != nil {
		return req, err
	}
	if req.Region == "" {
		return req, badField("region", "is missing: the name of the member whose data is replaced")
	}
	if req.From == req.Region {
		return req, badField("from", "is the member itself")
	}
	return req, within("stall_timeout_ms", req.StallTimeoutMS, api.MinStallTimeoutMS, api.MaxStallTimeoutMS)
}

// within refuses a number of milliseconds outside [low, high].
func within(field string, v, low, high int64) error {
	limit := low
	switch {
	case v > high:
		limit = high
	case v >= low:
		return nil
	}
	return exceeds(badField(field, "%d is not within %d to %d", v, low, high), float64(v), float64(limit), "ms")
}

// postReseed has the data of the member that the body names replaced.
func (s *Server) postReseed(w http.ResponseWriter, r *request) error {
	req, err := decodeReseed(r.body)
	if err != nil {
		return err
	}
	if !req.NoWait && !req.DryRun {
		r.within = reseedWithin
		if err := extend(w, r.within); err != nil {
			return err
		}
	}
	err = s.onMember(w, r, req.Region, func(w http.ResponseWriter, r *request) error {
		started, err := s.ops.Reseed(req)
		return s.answerVerb(w, r, started, err, req.NoWait)
	})
	if lost, ok := errors.AsType[*lostError](err); ok && req.DryRun { // it would have changed nothing
		return silent(req.Region, lost)
	}
	return err
}

// postVerify has the members compare their states. It runs on the leader.
func (s *Server) postVerify(w http.ResponseWriter, r *request) error {
	req := api.VerifyRequest{TimeoutMS: api.DefaultVerifyTimeoutMS}
	if err := decodeVerb(r.body, &req, "trust", "timeout_ms"); err != nil {
		return err
	}
	if err := within("timeout_ms", req.TimeoutMS, api.MinVerifyTimeoutMS, api.MaxVerifyTimeoutMS); err != nil {
		return err
	}
	r.within = time.Duration(req.TimeoutMS)*time.Millisecond + verbGrace
	if err := extend(w, r.within); err != nil {
		return err
	}
	return s.onLeader(w, r, func(w http.ResponseWriter, r *request) error {
		out, err := s.ops.Verify(r.Context(), req)
		if err != nil {
			return err
		}
		p := s.ops.Position()
		setReflected(w.Header(), p.Term, p.Applied)
		return writeJSON(w, http.StatusOK, out)
	})
}

// postClear removes the replaced data that the member which the body names has kept.
func (s *Server) postClear(w http.ResponseWriter, r *request) error {
	var req api.ClearRequest
	if err := decodeVerb(r.body, &req, "region", "dry_run", "operation_id"); err != nil {
		return err
	}
	if req.Region == "" {
		return badField("region", "is missing: the name of the member whose kept data is removed")
	}
	return s.onMember(w, r, req.Region, func(w http.ResponseWriter, r *request) error {
		started, err := s.ops.ClearKept(req)
		return s.answerVerb(w, r, started, err, false)
	})
}
