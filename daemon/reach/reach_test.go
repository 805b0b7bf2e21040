package reach_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"testing"

	"github.com/tidaldb/tidal/daemon/reach"
)

type overdue struct{}

func (overdue) Error() string   { return "the 2s that the caller gave are over" }
func (overdue) Timeout() bool   { return true }
func (overdue) Temporary() bool { return false }

func TestWhy(t *testing.T) {
	t.Parallel()
	op := func(err error) error {
		return &url.Error{Op: "Get", URL: "http://db2:9500/healthz", Err: &net.OpError{Op: "dial", Net: "tcp", Err: err}}
	}
	call := func(errno syscall.Errno) error { return op(os.NewSyscallError("connect", errno)) }
	for _, tc := range []struct {
		err  error
		code reach.Code
		want string
	}{
		{call(syscall.ECONNREFUSED), reach.Refused, "nothing listens there"},
		{call(syscall.EHOSTUNREACH), reach.Other, "no route leads there"},
		{call(syscall.ETIMEDOUT), reach.Timeout, "nothing came in time"},
		{call(syscall.EMFILE), reach.Other, "too many open files"},
		{op(&net.DNSError{Name: "db2", Err: "no such host", IsNotFound: true}), reach.Unresolved, "no address for db2: no such host"},
		{op(&net.DNSError{Name: "db2", Err: "i/o timeout", IsTimeout: true}), reach.Timeout, "the name service said nothing of db2 in time"},
		{context.DeadlineExceeded, reach.Timeout, "nothing came in time"},
		{op(os.ErrDeadlineExceeded), reach.Timeout, "nothing came in time"},
		{overdue{}, reach.Timeout, "the 2s that the caller gave are over"},
		{op(io.EOF), reach.Lost, "the connection broke"},
		{fmt.Errorf("read: %w", io.ErrUnexpectedEOF), reach.Lost, "the connection broke"},
		{call(syscall.ECONNRESET), reach.Lost, "the connection broke"},
		{op(&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: "db2"}}), reach.TLS, "x509: certificate is not valid for any names, but wanted to match db2"},
		{op(tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}), reach.TLS, "no TLS is spoken there: first record does not look like a TLS handshake"},
		{&url.Error{Op: "Get", URL: "https://db2:9500", Err: http.ErrSchemeMismatch}, reach.TLS, "no TLS is spoken there: its URL begins with http://"},
		{errors.New("cut off by fault f-1"), reach.Other, "cut off by fault f-1"},
	} {
		worded := reach.Worded(tc.err)
		for _, err := range []error{tc.err, worded, fmt.Errorf("reach db2: %w", worded)} {
			if code, words := reach.Why(err); code != tc.code || words != tc.want {
				t.Errorf("Why(%v) = %s, %q, want %s, %q", err, code, words, tc.code, tc.want)
			}
		}
		if worded.Error() != tc.want || !errors.Is(worded, tc.err) {
			t.Errorf("Worded(%v) = %v, want %q above the same chain", tc.err, worded, tc.want)
		}
	}
	if reach.Worded(nil) != nil {
		t.Error("Worded(nil) is an error")
	}
	if code, words := reach.Why(reach.As(reach.Lost, "no pong", io.ErrNoProgress)); code != reach.Lost || words != "no pong" {
		t.Errorf("As = %s, %q", code, words)
	}
}
