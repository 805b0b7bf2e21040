package httpd

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/config"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/ops"
)

// changeAgain is how soon a change that came too early may be asked for again.
const changeAgain = time.Second

// join admits a member. It runs on the leader.
func (s *Server) join(w http.ResponseWriter, r *request) error {
	var req api.JoinRequest
	if err := decodeVerb(r.body, &req, "name", "incarnation", "grpc_addr", "http_addr", "capabilities", "rejoin"); err != nil {
		return err
	}
	c := membership.Candidate{Name: req.Name, GRPCAddr: req.GRPCAddr, HTTPAddr: req.HTTPAddr, Rejoin: req.Rejoin}
	var err error
	if c.Incarnation, err = ident.ParseIncarnation(req.Incarnation); err != nil {
		return badField("incarnation", "%v", err)
	}
	if req.Capabilities != "" {
		bits, err := strconv.ParseUint(req.Capabilities, 10, 64)
		if err != nil {
			return badField("capabilities", "is %s; want a number, as a string", quoted(req.Capabilities))
		}
		c.Capabilities = ident.Capabilities(bits)
	}
	joined, err := s.ops.Join(r.Context(), c)
	if err != nil {
		return err
	}
	setReflected(w.Header(), joined.Term, joined.Index)
	return writeJSON(w, http.StatusOK, joined)
}

// seeds tells this member, which belongs to no cluster yet, whom to ask.
func (s *Server) seeds(w http.ResponseWriter, r *request) error {
	var req api.SeedRequest
	if err := decodeVerb(r.body, &req, "seeds", "rejoin"); err != nil {
		return err
	}
	if len(req.Seeds) == 0 || len(req.Seeds) > api.MaxSeeds {
		return badField("seeds", "has %d URLs; want 1 to %d", len(req.Seeds), api.MaxSeeds)
	}
	for i, seed := range req.Seeds {
		u, err := config.ParseSeed(seed)
		if err != nil {
			return badField(fmt.Sprintf("seeds[%d]", i), "%v", err)
		}
		req.Seeds[i] = u
	}
	return writeJSON(w, http.StatusOK, s.ops.Invite(req.Seeds, req.Rejoin))
}

// memberVerb returns the handler of a verb about one member, which runs on the leader.
func (s *Server) memberVerb(verb string) handler {
	return func(w http.ResponseWriter, r *request) error {
		req, err := decodeMemberVerb(r.body)
		if err != nil {
			return err
		}
		r.within = time.Duration(req.TimeoutMS)*time.Millisecond + verbGrace
		if err := extend(w, r.within); err != nil {
			return err
		}
		return s.onLeader(w, r, func(w http.ResponseWriter, r *request) error {
			started, err := s.ops.ChangeMember(verb, req)
			return s.answerVerb(w, r, started, err, req.NoWait)
		})
	}
}

func decodeMemberVerb(body []byte) (api.MemberRequest, error) {
	req := api.MemberRequest{TimeoutMS: api.DefaultMemberTimeoutMS}
	if err := decodeVerb(body, &req, "name", "timeout_ms", "dry_run", "no_wait", "override", "operation_id"); err != nil {
		return req, err
	}
	if req.Name == "" {
		return req, badField("name", "is missing: the name of the member")
	}
	if t := req.TimeoutMS; t < api.MinMemberTimeoutMS || t > api.MaxMemberTimeoutMS {
		limit := float64(api.MinMemberTimeoutMS)
		if t > api.MaxMemberTimeoutMS {
			limit = api.MaxMemberTimeoutMS
		}
		return req, exceeds(badField("timeout_ms", "%d is not within %d to %d", t, api.MinMemberTimeoutMS, api.MaxMemberTimeoutMS), float64(t), limit, "ms")
	}
	return req, nil
}

// getWhy explains what holds a member back. Any member answers, with or without a leader; asked by another
// member it tells its own part alone.
func (s *Server) getWhy(w http.ResponseWriter, r *request) error {
	why, err := s.ops.Why(r.Context(), r.PathValue("member"), r.marked)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, why)
}

// getHistory tells the changes of leadership and membership, in the same way.
func (s *Server) getHistory(w http.ResponseWriter, r *request) error {
	return writeJSON(w, http.StatusOK, s.ops.History(r.Context(), r.marked))
}

// membershipProblem makes the problem of an error of the membership; nil: it is none.
func membershipProblem(err error) *api.Problem {
	detail := err.Error()
	if e, ok := errors.AsType[*membership.CandidateError](err); ok {
		return badField(e.Field, "%s", e.Detail)
	}
	if e, ok := errors.AsType[*membership.UnknownMemberError](err); ok {
		p := api.NewProblem(api.CodeNotFound, e.Error())
		p.Try = "tidalctl members list"
		return p
	}
	if e, ok := errors.AsType[*membership.NameTakenError](err); ok {
		p := exceeds(api.NewProblem(api.CodeNameTaken, e.Error()), float64(e.Heard.Milliseconds()), float64(e.Grace.Milliseconds()), "ms")
		p.RetryAfterMS = max((e.Grace - e.Heard).Milliseconds(), changeAgain.Milliseconds())
		return p
	}
	if e, ok := errors.AsType[*membership.RemovedError](err); ok {
		p := api.NewProblem(api.CodeRemoved, e.Error())
		p.Try = "tidald serve --rejoin …"
		if e.Kept {
			p.Try, p.Field = "", "incarnation" // Client.Join tells by it
		}
		return p
	}
	if e, ok := errors.AsType[*membership.ReplaceManualError](err); ok {
		p := api.NewProblem(api.CodeReplaceManual, e.Error())
		p.Try = "tidalctl members replace " + e.Name
		return p
	}
	if e, ok := errors.AsType[*membership.ReplaceFlappingError](err); ok {
		p := exceeds(api.NewProblem(api.CodeReplaceFlapping, e.Error()), float64(e.Times), float64(e.Limit), "replacements")
		p.Try = "tidalctl members replace " + e.Name
		return p
	}
	if _, ok := errors.AsType[*membership.CapabilityMissingError](err); ok {
		return api.NewProblem(api.CodeCapabilityMissing, detail)
	}
	if _, ok := errors.AsType[*membership.ChangeInProgressError](err); ok {
		p := api.NewProblem(api.CodeChangeInProgress, detail)
		p.RetryAfterMS = changeAgain.Milliseconds()
		p.Try = "tidalctl status"
		return p
	}
	if e, ok := errors.AsType[*membership.UnsafeError](err); ok {
		return unsafeChange(e)
	}
	return nil
}

// unsafeChange says which rule refused, with its numbers, and all the others beside it.
func unsafeChange(e *membership.UnsafeError) *api.Problem {
	code := api.CodeUnsafeRemoval
	if e.Verb == "promote" {
		code = api.CodePromotionPending
	}
	if e.Failed.Code == membership.GateSettled {
		code = api.CodeChangeInProgress
	}
	p := api.NewProblem(code, e.Error())
	p.Checks = ops.Checks(e.Checks)
	i := slices.IndexFunc(p.Checks, func(c api.Check) bool { return c.Code == e.Failed.Code })
	if i >= 0 {
		p.Measured, p.Threshold, p.Unit = p.Checks[i].Measured, p.Checks[i].Threshold, p.Checks[i].Unit
	}
	p.Try = "tidalctl why " + e.Name
	return p
}
