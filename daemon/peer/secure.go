package peer

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
)

// secured is TLS on the way to a peer. It keeps what went wrong with it, of which gRPC hands on the text
// alone: whoever waits for the peer is told that no waiting helps.
type secured struct {
	credentials.TransportCredentials
	first *atomic.Pointer[error] // that TLS itself found, here or there
}

// secure returns TLS for one connection; nil: members speak plain text.
func (n *Network) secure() *secured {
	config := n.opts.TLS
	switch {
	case config == nil:
		return nil
	case n.opts.DialTLS != nil:
		config = n.opts.DialTLS()
	}
	return &secured{credentials.NewTLS(config), &atomic.Pointer[error]{}}
}

// failed returns what TLS has against the connection; nil: nothing, or there is no TLS.
func (s *secured) failed() error {
	if s == nil {
		return nil
	}
	if err := s.first.Load(); err != nil {
		return *err
	}
	return nil
}

func (s *secured) note(err error) {
	if ofTLS(err) {
		s.first.CompareAndSwap(nil, &err)
	}
}

// ClientHandshake implements credentials.TransportCredentials.
func (s *secured) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := s.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		s.note(err)
		return nil, nil, err
	}
	return &securedConn{c, s}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (s *secured) Clone() credentials.TransportCredentials {
	return &secured{s.TransportCredentials.Clone(), s.first}
}

// securedConn is a connection whose handshake is over on this side: since TLS 1.3 the other side says only
// then that it does not take the certificate.
type securedConn struct {
	net.Conn
	s *secured
}

func (c *securedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.s.note(err)
	}
	return n, err
}

// ofTLS reports whether err is about TLS itself, not about the way below it or about who gave up.
func ofTLS(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op == "remote error" || op.Op == "local error" // an alert
	}
	_, network := errors.AsType[net.Error](err)
	for _, other := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, context.Canceled} {
		network = network || errors.Is(err, other)
	}
	return !network
}
