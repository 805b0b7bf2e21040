package httpd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ops"
)

// verbGrace is what a verb's answer may take beyond the time that the verb was given: members confirm
// what it did, and the answer travels.
const verbGrace = api.MaxPromoteConfirmationMS*time.Millisecond + time.Second

// decodeVerb reads the body of a cluster verb, an object with the fields known, into v. It is as strict
// as for data, and names the field that it refuses.
func decodeVerb(body []byte, v any, known ...string) error {
	s := scanner{in: body}
	if err := s.open('{'); err != nil {
		return inField("", err)
	}
	var fields members
	for first := true; ; first = false {
		more, err := s.more(first, '}')
		if err != nil {
			return inField("", err)
		}
		if !more {
			break
		}
		k, err := s.key()
		if err != nil {
			return inField("", err)
		}
		if !slices.Contains(known, string(k)) {
			return badField(bounded(k), "there is no such field; there are %q", known)
		}
		if err := s.member(&fields, k); err != nil {
			return inField(string(k), err)
		}
	}
	if err := s.end(); err != nil {
		return inField("", err)
	}
	canonical, err := s.join(nil, fields)
	if err != nil {
		return inField("", err)
	}
	if err := json.NewDecoder(bytes.NewReader(canonical)).Decode(v); err != nil {
		if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return badField(e.Field, "is a JSON %s, want %s", e.Value, e.Type)
		}
		return badField("", "%v", err)
	}
	return nil
}

func decodePromote(body []byte) (api.PromoteRequest, error) {
	req := api.PromoteRequest{TimeoutMS: api.DefaultPromoteTimeoutMS}
	if err := decodeVerb(body, &req, "region", "timeout_ms", "dry_run", "no_wait", "operation_id"); err != nil {
		return req, err
	}
	if req.Region == "" {
		return req, badField("region", "is missing: the name of the member that should lead")
	}
	if t := req.TimeoutMS; t < api.MinPromoteTimeoutMS || t > api.MaxPromoteTimeoutMS {
		limit := float64(api.MinPromoteTimeoutMS)
		if t > api.MaxPromoteTimeoutMS {
			limit = api.MaxPromoteTimeoutMS
		}
		return req, exceeds(badField("timeout_ms", "%d is not within %d to %d", t, api.MinPromoteTimeoutMS, api.MaxPromoteTimeoutMS), float64(t), limit, "ms")
	}
	return req, nil
}

// postPromote moves leadership. It runs on the leader; where none is known, on the member that is to
// lead, which stands for it.
func (s *Server) postPromote(w http.ResponseWriter, r *request) error {
	req, err := decodePromote(r.body)
	if err != nil {
		return err
	}
	r.within = time.Duration(req.TimeoutMS)*time.Millisecond + verbGrace
	if err := extend(w, r.within); err != nil {
		return err
	}
	run := func(w http.ResponseWriter, r *request) error {
		started, err := s.ops.Promote(req)
		return s.answerVerb(w, r, started, err, req.NoWait)
	}
	if r.marked { // here or nowhere: ops knows which
		return run(w, r)
	}
	err = s.onLeader(w, r, run)
	if p, ok := errors.AsType[*api.Problem](err); ok && (p.Code == api.CodeNoLeader || p.Code == api.CodeLeaderUnreached) && p.Checks == nil {
		return s.onMember(w, r, req.Region, run)
	}
	return err
}

// answerVerb waits for an operation, unless noWait is set, and answers with what became of it. err is that of
// its beginning. A caller whose time is over learns under which id it goes on.
func (s *Server) answerVerb(w http.ResponseWriter, r *request, started *ops.Started, err error, noWait bool) error {
	if err != nil {
		return err
	}
	if noWait {
		op, err := started.Describe()
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusAccepted, operation(op))
	}
	result, err := started.Wait(r.Context())
	if e, overdue := errors.AsType[*overdueError](err); overdue {
		p := api.NewProblem(api.CodeOutcomeUnknown, fmt.Sprintf("%v; operation %s goes on", e, started.ID()))
		p.Try = "tidalctl ops wait " + started.ID()
		return p
	}
	if err != nil {
		return err
	}
	p := s.ops.Position()
	setReflected(w.Header(), p.Term, p.Applied)
	return writeJSON(w, http.StatusOK, result)
}

// getOperation tells what became of a verb, whichever member ran it. With the marker it tells of this
// member's own.
func (s *Server) getOperation(w http.ResponseWriter, r *request) error {
	find := s.ops.AskOperation
	if r.marked {
		find = func(_ context.Context, id string) (ops.Operation, error) { return s.ops.Operation(id) }
	}
	op, err := find(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, operation(op))
}

// getOperations tells of the verbs that this member began, newest first.
func (s *Server) getOperations(w http.ResponseWriter, _ *request) error {
	all, err := s.ops.Operations()
	if err != nil {
		return err
	}
	out := api.Operations{Operations: make([]api.Operation, len(all))}
	for i, op := range all {
		out.Operations[i] = operation(op)
	}
	return writeJSON(w, http.StatusOK, out)
}

func operation(op ops.Operation) api.Operation {
	if op.Err != nil {
		op.Problem = problem(op.Err)
	}
	return op.Operation
}

// extend lets the answer of a verb take d instead of what any answer may. The request was read whole.
func extend(w http.ResponseWriter, d time.Duration) error {
	c := http.NewResponseController(w)
	if err := errors.Join(c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Now().Add(d+verbGrace))); err != nil {
		return fmt.Errorf("extend the deadlines of a request: %w", err)
	}
	return nil
}
