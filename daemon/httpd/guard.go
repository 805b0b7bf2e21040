package httpd

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/tidaldb/tidal/daemon/api"
)

// checkHost refuses a request that a page of another site may have sent: one for a host that is not this
// member, and one that changes something and says that it comes from elsewhere.
func (s *Server) checkHost(r *http.Request) error {
	if s.opts.Hosts == nil {
		return nil
	}
	if host := hostOf(r.Host); !isLoopback(host) && !isPrivateName(host) && !slices.ContainsFunc(s.opts.Hosts(), func(h string) bool { return strings.EqualFold(h, host) }) {
		return api.NewProblem(api.CodeForeignHost, fmt.Sprintf("without an API key this member answers as localhost and under the addresses of the cluster, not as %s", quoted(r.Host)))
	}
	if err := s.origin.Check(r); err != nil {
		return api.NewProblem(api.CodeForeignHost, "without an API key nothing is changed for the page of another site: "+err.Error())
	}
	return nil
}

// hostOf returns the host of HOST or HOST:PORT, without brackets.
func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || strings.EqualFold(strings.TrimSuffix(host, "."), "localhost")
}

// isPrivateName reports whether host is a name without a dot, as composed containers and the search list
// of a resolver have them. Public DNS has none, so no page of the internet can be served under one.
func isPrivateName(host string) bool {
	letter := func(c rune) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }
	return strings.ContainsFunc(host, letter) && !strings.ContainsAny(host, ".:")
}

// limit bounds the connections that ln accepts. One too many is closed at once: a client learns of it
// then, and the member keeps the descriptors that its log and its state need.
func (s *Server) limit(ln net.Listener) net.Listener {
	most := s.opts.MaxConnections
	if most == 0 {
		most = halfOfFiles()
	}
	return &limited{Listener: ln, slots: make(chan struct{}, most), metrics: s.metrics}
}

// halfOfFiles is half of what the process may have open; the Go runtime has raised that to the most that
// it may.
func halfOfFiles() int {
	const fallback = 4096
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil || l.Cur < 2 {
		return fallback
	}
	return int(min(l.Cur/2, 1<<20))
}

type limited struct {
	net.Listener
	slots   chan struct{} // one for each connection that is open
	metrics *metrics
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			l.metrics.open.Inc()
			return &limitedConn{Conn: c, free: sync.OnceFunc(func() {
				<-l.slots
				l.metrics.open.Dec()
			})}, nil
		default:
			l.metrics.turned.Inc()
			c.Close()
		}
	}
}

// limitedConn gives its slot back when it is closed.
type limitedConn struct {
	net.Conn
	free func()
}

func (c *limitedConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}
