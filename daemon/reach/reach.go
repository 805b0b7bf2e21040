// Package reach says why another process was not reached, or did not answer, in the words of an operator.
//
// The errors of the standard library name system calls and addresses that stand beside them already: "dial
// tcp 10.0.0.2:9501: connect: connection refused". Whatever tidald and tidalctl show of such an error, in an
// answer, a table or a log, goes through here, so that one reason has one name and one wording everywhere.
//
// Listen is the other side: who cannot listen is told which setting says where, and who has the port.
//
// Callers: whoever dials: peer, httpd, ops and ctl/client; whoever listens: daemon and dev.
package reach

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
)

// Code is the stable name of a reason. Status rows and the JSON of tidalctl have it.
type Code string

// The codes.
const (
	Refused    Code = "refused"    // the machine answers, and no process listens at the port
	Timeout    Code = "timeout"    // nothing came in time
	Unresolved Code = "unresolved" // the name has no address
	TLS        Code = "tls"        // no secure connection came about
	Lost       Code = "lost"       // the connection broke
	Other      Code = "error"
)

// Why returns the reason of an error that came of dialling, of asking or of reading the answer. err is not nil.
func Why(err error) (Code, string) {
	if e, ok := errors.AsType[*wordedError](err); ok {
		return e.code, e.words
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		if e.IsTimeout {
			return Timeout, fmt.Sprintf("the name service said nothing of %s in time", e.Name)
		}
		return Unresolved, fmt.Sprintf("no address for %s: %s", e.Name, e.Err)
	}
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return TLS, e.Err.Error()
	}
	if e, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return TLS, "no TLS is spoken there: " + e.Msg
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return TLS, "no TLS is spoken there: its URL begins with http://"
	}
	switch timeout, isNet := errors.AsType[net.Error](err); {
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused, "nothing listens there"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return Other, "no route leads there"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return Timeout, "nothing came in time"
	case isNet && timeout.Timeout():
		if text := plain(err); !strings.HasPrefix(text, "net/http: ") {
			return Timeout, text // of ours, which says how long
		}
		return Timeout, "nothing came in time"
	case Broke(err):
		return Lost, "the connection broke"
	}
	return Other, plain(err)
}

// Broke reports whether a connection broke under a request or its answer.
func Broke(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// plain is the text of err without what its wrappers of the standard library say of the call.
func plain(err error) string {
	for {
		switch e := err.(type) { //nolint:errorlint // one layer at a time
		case *url.Error:
			err = e.Err
		case *net.OpError:
			err = e.Err
		case *os.SyscallError:
			err = e.Err
		default:
			return strings.TrimPrefix(err.Error(), "http: ")
		}
	}
}

// Worded returns err with the words of Why in the place of its own; the chain below it stays. nil stays nil.
func Worded(err error) error {
	if err == nil {
		return nil
	}
	code, words := Why(err)
	return &wordedError{code, words, err}
}

// As returns err under a code and words that a caller knows better, for a chain whose errors do not say it.
func As(code Code, words string, err error) error { return &wordedError{code, words, err} }

type wordedError struct {
	code  Code
	words string
	err   error
}

func (e *wordedError) Error() string { return e.words }
func (e *wordedError) Unwrap() error { return e.err }
