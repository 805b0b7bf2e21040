package httpd

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// wire is a listener that is served by hand, one function a connection, in the order they come.
type wire struct {
	net.Listener
	mu    sync.Mutex
	heard []string // the first line of every request that arrived
}

// newWire serves the connections with conns, one each; later ones are closed at once.
func newWire(t *testing.T, conns ...func(w *wire, c net.Conn)) *wire {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: ln}
	var done sync.WaitGroup
	done.Go(func() {
		for i := 0; ; i++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			done.Go(func() {
				defer c.Close()
				if i < len(conns) {
					conns[i](w, c)
				}
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		done.Wait()
	})
	return w
}

// read takes one whole request from c.
func (w *wire) read(c net.Conn) bool {
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, r.Body)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = append(w.heard, r.Method+" "+r.RequestURI)
	return err == nil
}

func (w *wire) requests() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heard
}

func answerOK(w *wire, c net.Conn) bool {
	if !w.read(c) {
		return false
	}
	_, err := io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
	return err == nil
}

func post(t *testing.T, c *Client, addr string) (*answer, error) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/signals?ack=quorum", nil)
	// Whoever sends this header gets a POST repeated by net/http: it must not travel.
	r.Header.Set("Idempotency-Key", "k")
	return c.forward(r.Context(), "c1", addr, r, []byte(`{"item":"a","signal":"view"}`), 0, 0)
}

func newClient(t *testing.T, opts ClientOptions) *Client {
	t.Helper()
	c := NewClient(opts)
	t.Cleanup(c.Close)
	return c
}

func TestClient_RefusedSendsNothing(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	_, err = post(t, newClient(t, ClientOptions{}), ln.Addr().String())
	if e, ok := errors.AsType[*unreachedError](err); !ok || !errors.Is(e, syscall.ECONNREFUSED) {
		t.Errorf("forward to a closed port = %v, want unreached by ECONNREFUSED", err)
	}
}

func TestClient_LostAnswerIsNeverSentAgain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		conn func(w *wire, c net.Conn)
	}{
		{"closed after the request", func(w *wire, c net.Conn) { w.read(c) }},
		{"reset after the request", func(w *wire, c net.Conn) { w.read(c); c.(*net.TCPConn).SetLinger(0) }},
		{"half an answer", func(w *wire, c net.Conn) { w.read(c); io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Le") }},
		{"half a body", func(w *wire, c net.Conn) {
			w.read(c)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{")
		}},
		{"no HTTP", func(w *wire, c net.Conn) { w.read(c); io.WriteString(c, "SSH-2.0\r\n\r\n") }},
		{"an answer without end", func(w *wire, c net.Conn) {
			w.read(c)
			io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
			for pad := strings.Repeat("x", 1<<16); ; {
				if _, err := io.WriteString(c, pad); err != nil {
					return
				}
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			// The second connection would take the request again. The first one answers a request
			// before, so that it is a reused one that is lost.
			w := newWire(t, func(w *wire, c net.Conn) {
				if answerOK(w, c) {
					tc.conn(w, c)
				}
			}, func(w *wire, c net.Conn) { answerOK(w, c) })
			c := newClient(t, ClientOptions{})
			if _, err := post(t, c, w.Addr().String()); err != nil {
				t.Fatal(err)
			}
			_, err := post(t, c, w.Addr().String())
			if _, ok := errors.AsType[*lostError](err); !ok {
				t.Errorf("forward = %v, want lost", err)
			}
			if got := w.requests(); len(got) != 2 {
				t.Errorf("requests that arrived: %q, want two", got)
			}
		})
	}
}

func TestClient_SlowAnswerIsLostAtTheDeadline(t *testing.T) {
	t.Parallel()
	w := newWire(t, func(w *wire, c net.Conn) { w.read(c); w.read(c) }) // the second read ends when the client hangs up
	_, err := post(t, newClient(t, ClientOptions{RequestTimeout: 30 * time.Millisecond}), w.Addr().String())
	if e, ok := errors.AsType[*lostError](err); !ok || !errors.Is(e, context.DeadlineExceeded) {
		t.Errorf("forward = %v, want lost by the deadline", err)
	}
}

// A connection that the other side closed while it was idle costs nothing: nothing was written to it.
func TestClient_ClosedIdleConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	w := newWire(t,
		func(w *wire, c net.Conn) { answerOK(w, c); c.Close(); close(closed) },
		func(w *wire, c net.Conn) { answerOK(w, c) },
	)
	c := newClient(t, ClientOptions{})
	if _, err := post(t, c, w.Addr().String()); err != nil {
		t.Fatal(err)
	}
	<-closed
	_, err := post(t, c, w.Addr().String())
	// Whether the client sees the close in time is a race; that it is never sent twice is not.
	if _, lost := errors.AsType[*lostError](err); err != nil && !lost {
		t.Errorf("forward = %v, want no error, or lost", err)
	}
	if got := w.requests(); len(got) > 2 || err == nil && len(got) != 2 {
		t.Errorf("requests that arrived: %q, with error %v", got, err)
	}
}

func TestClient_LocalStatus(t *testing.T) {
	t.Parallel()
	var got http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		switch r.URL.Path {
		case "/cluster/status/local":
			io.WriteString(w, `{"name":"b","of_the_future":1}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer srv.Close()
	c := newClient(t, ClientOptions{PeerKey: []byte("secret")})
	s, err := c.LocalStatus(t.Context(), srv.Listener.Addr().String())
	if err != nil || s.Name != "b" {
		t.Errorf("LocalStatus = %+v, %v, want b", s, err)
	}
	if got.Get(api.HeaderInternal) != "1" || got.Get(api.HeaderPeerKey) != "secret" {
		t.Errorf("headers = %v, want the marker and the key", got)
	}
}
