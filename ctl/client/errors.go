package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
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
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the method and the URL, which the endpoint says already
	}
	attempt := func(code, detail string) Attempt { return Attempt{endpoint, code, detail} }

	if e, ok := errors.AsType[*foreignError](err); ok {
		return attempt("foreign", e.detail)
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok && !e.IsTimeout {
		return attempt("unresolved", fmt.Sprintf("no address for %s: %s", e.Name, e.Err))
	}
	_, handshake := errors.AsType[tls.RecordHeaderError](err)
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok || handshake {
		if ok {
			err = e.Err
		}
		return attempt("tls", err.Error())
	}
	netErr, isNet := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), isNet && netErr.Timeout():
		return attempt("timeout", "no answer in "+took.Round(10*time.Millisecond).String())
	case errors.Is(err, syscall.ECONNREFUSED):
		return attempt("refused", "nothing listens there")
	case connectionLost(err):
		return attempt("lost", "the connection broke: "+err.Error())
	}
	return attempt("error", err.Error())
}

// connectionLost reports whether a connection broke under a request that was sent.
func connectionLost(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}
