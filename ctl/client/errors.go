package client

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/reach"
)

// ProblemError is a member's answer that it could or would not. It unwraps to the *api.Problem.
type ProblemError struct {
	Endpoint string // host and port
	Member   string // empty: it did not say
	Problem  *api.Problem
}

func (e *ProblemError) Error() string {
	who := e.Endpoint
	if e.Member != "" {
		who = e.Member
	}
	return who + ": " + e.Problem.Error()
}

// Unwrap returns the problem.
func (e *ProblemError) Unwrap() error { return e.Problem }

// otherMayAnswer reports whether another member may do better: this one is at fault, not the request.
func (e *ProblemError) otherMayAnswer() bool {
	return e.Problem.Status >= http.StatusInternalServerError || e.Problem.Status == http.StatusTooManyRequests
}

// UnreachableError: no endpoint answered.
type UnreachableError struct {
	Tried []Attempt // every endpoint, in the order given
}

func (e *UnreachableError) Error() string {
	parts := make([]string, len(e.Tried))
	for i, a := range e.Tried {
		parts[i] = a.String()
	}
	return "no endpoint answered: " + strings.Join(parts, "; ")
}

// Transient reports whether asking again later may help: nobody answered, or a member that is not able
// to now. A wrong key or a wrong request stays wrong.
func Transient(err error) bool {
	if _, ok := errors.AsType[*UnreachableError](err); ok {
		return true
	}
	p, ok := errors.AsType[*ProblemError](err)
	return ok && p.otherMayAnswer()
}

// Attempt says why one endpoint was of no use. Codes: refused, timeout, unresolved, tls, lost,
// foreign (something answered that is no tidald), error.
type Attempt struct {
	Endpoint string `json:"endpoint"`
	Code     string `json:"code"`
	Detail   string `json:"detail"`
}

func (a Attempt) String() string { return a.Endpoint + " " + a.Code + ": " + a.Detail }

// foreignError: whatever listens at an endpoint is no member of ours.
type foreignError struct{ detail string }

func (e *foreignError) Error() string { return e.detail }

// classify turns the error of asking endpoint for took into the reason that is shown.
func classify(endpoint string, err error, took time.Duration) Attempt {
	attempt := func(code, detail string) Attempt { return Attempt{endpoint, code, detail} }

	if e, ok := errors.AsType[*foreignError](err); ok {
		return attempt("foreign", e.detail)
	}
	code, words := reach.Why(err)
	if code == reach.Timeout || errors.Is(err, context.Canceled) {
		code, words = reach.Timeout, "no answer in "+roughly(took)
	}
	return attempt(string(code), words)
}

// roughly renders how long was waited: in hundredths of a second, but never as none.
func roughly(took time.Duration) string {
	const step = 10 * time.Millisecond
	if took < step {
		return "<" + step.String()
	}
	return took.Round(step).String()
}
