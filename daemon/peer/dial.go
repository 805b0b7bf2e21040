package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidaldb/tidal/daemon/reach"
)

const (
	// tcpTimeout bounds one TCP connection attempt. A SYN that is lost costs a new attempt, which
	// resolves the name again.
	tcpTimeout = time.Second
	// resolveTimeout bounds one look-up; a resolver that asks its second server first waits 5 s for
	// the first one.
	resolveTimeout = 12 * time.Second
	// openTimeout bounds what follows on a TCP connection: TLS, HTTP/2, handshake or probe.
	openTimeout = 3 * time.Second

	// keepaliveTime and keepaliveTimeout find a peer that is gone without a word. The timeout is
	// also TCP's for data that is not acknowledged, so a link in use is found dead sooner.
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 2 * time.Second

	// windowBytes is how much one stream may have under way: 16 MiB at 100 ms are 160 MB/s. Fixed
	// windows also spare the probing pings of gRPC.
	windowBytes = 16 << 20
	bufferBytes = 128 << 10 // socket reads and writes

	// maxFrameBytes is the largest frame that is taken; one message larger than that never leaves.
	maxFrameBytes = 64 << 20
)

// Failure says why a peer is not reached.
type Failure string

// The failures.
const (
	FailureNone            Failure = ""
	FailureRefused         Failure = "refused"         // its port refuses the connection: no process listens
	FailureTimeout         Failure = "timeout"         // no answer in time
	FailureUnresolved      Failure = "unresolved"      // its name has no address
	FailureUnauthenticated Failure = "unauthenticated" // it does not take our key
	FailureTLS             Failure = "tls"             // one of the two does not take the other's certificate, or does not speak TLS
	FailureRefusal         Failure = "refusal"         // it refused the handshake: ConnectError.Refusal
	FailureWrongMember     Failure = "wrong_member"    // another member, or another cluster, answers there
	FailureBroken          Failure = "broken"          // the stream was open and ended
	FailureFault           Failure = "fault"           // a fault of a drill cuts the way: ConnectError.Err is a *CutError
	FailureError           Failure = "error"           // anything else
)

// ConnectError says why a peer was not reached.
type ConnectError struct {
	Addr    string
	Failure Failure
	Refusal *Refusal // FailureRefusal only
	Err     error
}

func (e *ConnectError) Error() string {
	return fmt.Sprintf("peer at %s: %s: %v", e.Addr, e.Failure, e.Err)
}

func (e *ConnectError) Unwrap() error { return e.Err }

// conn is one attempt to reach a peer: a gRPC connection over one TCP connection that is already there.
type conn struct {
	*grpc.ClientConn
	tcp    net.Conn
	addr   string
	secure *secured // nil: plain text
}

// connect resolves and dials addr, unless a fault cuts the way. Close what it returns. Resolving and dialling
// here, not inside gRPC, keeps one place that waits between attempts and says exactly why one failed.
func (n *Network) connect(ctx context.Context, addr string) (*conn, *ConnectError) {
	if failed := n.pass(ctx, Party{Addr: addr}); failed != nil {
		return nil, failed
	}
	tcp, failed := dial(ctx, n.opts.Resolve, addr)
	if failed != nil {
		return nil, failed
	}
	creds := insecure.NewCredentials()
	secure := n.secure()
	if secure != nil {
		creds = secure
	}
	unused := make(chan net.Conn, 1)
	unused <- tcp
	client, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case tcp := <-unused:
				return tcp, nil
			default:
				return nil, net.ErrClosed // the attempt is over; its owner makes a new one
			}
		}),
		grpc.WithNoProxy(),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: openTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout, PermitWithoutStream: true}),
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(windowBytes),
		grpc.WithReadBufferSize(bufferBytes),
		grpc.WithWriteBufferSize(bufferBytes),
	)
	if err != nil {
		tcp.Close()
		return nil, &ConnectError{Addr: addr, Failure: FailureError, Err: err}
	}
	return &conn{ClientConn: client, tcp: tcp, addr: addr, secure: secure}, nil
}

// pass waits until the faults let something be asked of p.
func (n *Network) pass(ctx context.Context, p Party) *ConnectError {
	err := n.opts.Faults.Pass(ctx, p)
	if err == nil {
		return nil
	}
	failure := FailureTimeout
	if _, cut := errors.AsType[*CutError](err); cut {
		failure = FailureFault
	}
	return &ConnectError{Addr: p.Addr, Failure: failure, Err: err}
}

// Close ends the connection, whether or not gRPC ever took it over.
func (c *conn) Close() {
	c.ClientConn.Close()
	c.tcp.Close()
}

// dial resolves the host of addr now and connects to the first of its addresses that answers. The
// failure is "refused" only if all of them refuse.
func dial(ctx context.Context, resolve func(context.Context, string) ([]string, error), addr string) (net.Conn, *ConnectError) {
	fail := func(f Failure, err error) (net.Conn, *ConnectError) {
		return nil, &ConnectError{Addr: addr, Failure: f, Err: reach.Worded(err)}
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fail(FailureUnresolved, err)
	}
	ips := []string{host}
	if net.ParseIP(host) == nil {
		ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
		ips, err = resolve(ctx, host)
		cancel()
		if err != nil {
			return fail(FailureUnresolved, err)
		}
	}
	worst := &ConnectError{Addr: addr, Failure: FailureUnresolved, Err: errors.New("the name has no address")}
	for i, ip := range ips {
		d := net.Dialer{Timeout: tcpTimeout}
		tcp, err := d.DialContext(ctx, "tcp", net.JoinHostPort(ip, port))
		if err == nil {
			return tcp, nil
		}
		if f := dialFailure(err); i == 0 || f != FailureRefused {
			worst = &ConnectError{Addr: addr, Failure: f, Err: reach.Worded(err)}
		}
	}
	return nil, worst
}

func dialFailure(err error) Failure {
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return FailureRefused
	case ok && timeout.Timeout():
		return FailureTimeout
	}
	return FailureError
}

// explain turns the error of a call on c into one that says why. trailer is the call's.
func (c *conn) explain(ctx context.Context, err error, trailer metadata.MD) *ConnectError {
	e := &ConnectError{Addr: c.addr, Failure: FailureError, Err: worded(err)}
	s := status.Convert(err)
	if reason := trailer.Get(refusalTrailer); len(reason) > 0 {
		e.Failure, e.Refusal = FailureRefusal, parseRefusal(reason[0], s.Message())
		e.Err = e.Refusal
		return e
	}
	switch failed := c.secure.failed(); {
	case failed != nil:
		e.Failure, e.Err = FailureTLS, failed
	case s.Code() == codes.Unauthenticated:
		e.Failure = FailureUnauthenticated
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded) || s.Code() == codes.DeadlineExceeded:
		e.Failure = FailureTimeout
	}
	return e
}

// worded gives the error of a call the words of an operator: what gRPC says of its own transport is replaced,
// what the other side said stays.
func worded(err error) error {
	s, ok := status.FromError(err)
	if !ok || s.Code() == codes.OK {
		return reach.Worded(err)
	}
	said := s.Message()
	switch {
	case s.Code() == codes.DeadlineExceeded:
		return reach.As(reach.Timeout, "nothing came in time", err)
	case s.Code() == codes.Unavailable && strings.HasPrefix(said, "keepalive ping failed"):
		return reach.As(reach.Timeout, "it does not answer a ping", err)
	case s.Code() == codes.Unavailable && slices.ContainsFunc(transportSays(), func(prefix string) bool { return strings.HasPrefix(said, prefix) }):
		return reach.As(reach.Lost, "the connection broke", err)
	}
	return reach.As(reach.Other, said, err)
}

// transportSays are the beginnings of what gRPC says of a connection that ended.
func transportSays() []string {
	return []string{"error reading from server", "connection error", "transport is closing", "the connection is draining", "closing transport", "unexpected EOF", "stream terminated", "last connection error"}
}

// outgoing puts on a call who makes it, and the peer key.
func (n *Network) outgoing(ctx context.Context) context.Context {
	if name := n.opts.Self().Name; name != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, callerName, name)
	}
	if n.bearer == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, authorization, n.bearer)
}
