package httpd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/ops"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/replica"
	"github.com/tidaldb/tidal/daemon/state"
)

// diskFullRetryAfter is how soon another member may lead, or somebody may have made room.
const diskFullRetryAfter = 2 * time.Second

// Problem words an error as an answer would.
func Problem(err error) *api.Problem { return problem(err) }

// problem is the one place where errors become codes. What it does not know is internal: the caller
// learns nothing of it, the log everything.
func problem(err error) *api.Problem {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p
	}
	detail := err.Error()
	// Unknown first: its cause may be any of the others.
	if _, ok := errors.AsType[*replica.UnknownOutcomeError](err); ok {
		return api.NewProblem(api.CodeOutcomeUnknown, detail+"; it may still happen")
	}
	if _, ok := errors.AsType[*lostError](err); ok {
		return api.NewProblem(api.CodeOutcomeUnknown, detail+"; the request may have been carried out")
	}
	if e, ok := errors.AsType[*unreachedError](err); ok {
		return api.NewProblem(api.CodeLeaderUnreached, e.Error())
	}
	if e, ok := errors.AsType[*replica.NotLeaderError](err); ok {
		return api.NewProblem(api.CodeNotLeader, e.Error())
	}
	if e, ok := errors.AsType[*replica.OverloadedError](err); ok {
		p := api.NewProblem(api.CodeOverloaded, e.Error())
		p.RetryAfterMS = e.RetryAfter.Milliseconds()
		return p
	}
	if e, ok := errors.AsType[*replica.DiskFullError](err); ok {
		p := api.NewProblem(api.CodeDiskFull, e.Error())
		p.RetryAfterMS = diskFullRetryAfter.Milliseconds()
		return exceeds(p, float64(e.FreeBytes), float64(e.NeedBytes), "bytes")
	}
	if e, ok := errors.AsType[*replica.TooLargeError](err); ok {
		return exceeds(api.NewProblem(api.CodeTooLarge, e.Error()), float64(e.Bytes), float64(e.Limit), "bytes")
	}
	if p := outboxProblem(err); p != nil {
		return p
	}
	if _, ok := errors.AsType[*replica.NotProposedError](err); ok {
		return api.NewProblem(api.CodeNoQuorum, detail)
	}
	if _, ok := errors.AsType[*replica.FailedError](err); ok {
		return api.NewProblem(api.CodeQuarantined, detail)
	}
	if _, ok := errors.AsType[*member.QuarantinedError](err); ok {
		return api.NewProblem(api.CodeQuarantined, detail)
	}
	if e, ok := errors.AsType[*ops.FutureError](err); ok {
		p := api.NewProblem(api.CodeBadRequest, e.Error())
		if p.Field = "ts"; e.Record > 0 {
			p.Field = fmt.Sprintf("[%d].ts", e.Record)
		}
		return exceeds(p, float64(e.Ahead.Milliseconds()), float64(e.Limit.Milliseconds()), "ms")
	}
	if e, ok := errors.AsType[*ops.IndexTimeoutError](err); ok {
		return exceeds(api.NewProblem(api.CodeIndexTimeout, e.Error()), float64(e.Applied), float64(e.Want), "index")
	}
	if _, ok := errors.AsType[*ops.ReadTimeoutError](err); ok {
		return api.NewProblem(api.CodeReadTimeout, detail)
	}
	if e, ok := errors.AsType[*ops.NotFoundError](err); ok {
		if e.What == "collection" {
			return api.NewProblem(api.CodeUnknownCollection, detail)
		}
		p := api.NewProblem(api.CodeNotFound, detail)
		switch e.What { // of what there is a list
		case "member":
			p.Try = "tidalctl members list"
		case "operation":
			p.Try = "tidalctl ops list"
		}
		return p
	}
	if e, ok := errors.AsType[*ops.EventIDError](err); ok {
		return badField("after", "%s", e.Error())
	}
	if e, ok := errors.AsType[*journal.UnknownIDError](err); ok {
		return badField("after", "%s", e.Error())
	}
	if e, ok := errors.AsType[*journal.CompactedError](err); ok {
		p := api.NewProblem(api.CodeCompacted, e.Error())
		p.Floor = e.Floor.String()
		return p
	}
	if e, ok := errors.AsType[*journal.BusyError](err); ok {
		return exceeds(api.NewProblem(api.CodeOverloaded, e.Error()), float64(e.Limit), float64(e.Limit), "followers")
	}
	if e, ok := errors.AsType[*ops.BadOperationError](err); ok {
		p := api.NewProblem(api.CodeBadRequest, e.Error())
		p.Field = "operation_id"
		return p
	}
	if _, ok := errors.AsType[*ops.ReusedOperationError](err); ok {
		return api.NewProblem(api.CodeOperationReused, detail)
	}
	if e, ok := errors.AsType[*peer.FaultLimitError](err); ok {
		return exceeds(api.NewProblem(api.CodeOverloaded, e.Error()), float64(e.Count), float64(e.Limit), e.What)
	}
	if e, ok := errors.AsType[*ops.BusyOperationsError](err); ok {
		p := exceeds(api.NewProblem(api.CodeOverloaded, e.Error()), float64(e.Running), float64(e.Limit), "operations")
		p.RetryAfterMS = time.Second.Milliseconds()
		return p
	}
	if _, ok := errors.AsType[*member.StalePlanError](err); ok {
		return api.NewProblem(api.CodePlanStale, detail)
	}
	if _, ok := errors.AsType[*member.StillAnswersError](err); ok {
		return api.NewProblem(api.CodeStillAnswers, detail)
	}
	if _, ok := errors.AsType[*member.HasLeaderError](err); ok {
		return api.NewProblem(api.CodeHasLeader, detail)
	}
	if e, ok := errors.AsType[*ops.BadPlanError](err); ok {
		return badField(e.Field, "%s", e.Detail)
	}
	if p := membershipProblem(err); p != nil {
		return p
	}
	if e, ok := errors.AsType[*overdueError](err); ok {
		return e.problem(detail)
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge("body", e.Limit)
	}
	switch {
	case errors.Is(err, member.ErrHandOver):
		return api.NewProblem(api.CodeTransferFailed, detail)
	case errors.Is(err, replica.ErrLost):
		return api.NewProblem(api.CodeWriteLost, detail)
	case errors.Is(err, member.ErrNotBorn), errors.Is(err, member.ErrJoining), errors.Is(err, member.ErrRemoved), errors.Is(err, member.ErrNoGroup), errors.Is(err, replica.ErrClosed), errors.Is(err, state.ErrClosed), errors.Is(err, errStopping), errors.Is(err, ops.ErrStopping):
		return api.NewProblem(api.CodeNotReady, detail)
	case errors.Is(err, context.Canceled):
		return api.NewProblem(api.CodeReadTimeout, "the caller went away")
	}
	return api.NewProblem(api.CodeInternal, "the member could not carry this out; its log has the details")
}

// badField refuses a request for one field, named as the caller wrote it.
func badField(field, format string, args ...any) *api.Problem {
	p := api.NewProblem(api.CodeBadRequest, fmt.Sprintf(format, args...))
	if p.Field = field; field != "" {
		p.Detail = field + ": " + p.Detail
	}
	return p
}

// exceeds adds the number that a rule refused, and the rule's.
func exceeds(p *api.Problem, measured, threshold float64, unit string) *api.Problem {
	p.Measured, p.Threshold, p.Unit = &measured, &threshold, unit
	return p
}

func tooLarge(what string, limit int64) *api.Problem {
	p := api.NewProblem(api.CodeTooLarge, fmt.Sprintf("the %s is larger than %d bytes", what, limit))
	threshold := float64(limit)
	p.Threshold, p.Unit = &threshold, "bytes"
	return p
}

// quoted repeats what a caller sent, shortened, in quotation marks.
func quoted(s string) string { return strconv.Quote(bounded([]byte(s))) }

func writeProblem(w http.ResponseWriter, p *api.Problem) {
	h := w.Header()
	if p.RetryAfterMS > 0 {
		seconds := (time.Duration(p.RetryAfterMS)*time.Millisecond + time.Second - 1) / time.Second
		h.Set("Retry-After", strconv.Itoa(int(seconds)))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	writeAs(w, p.Status, api.ProblemType, p)
}
