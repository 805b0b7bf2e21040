package httpd

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ops"
	"github.com/tidaldb/tidal/daemon/ops/opstest"
)

// The marker counts with the credential of the members and never without, whatever else a request
// carries; and only the credential spares the caller a key of the API.
func TestMarker_NeedsTheCredential(t *testing.T) {
	t.Parallel()
	key := []byte("the-peer-key")
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SampledFrom([]string{"", "1", "0", "true", "the-peer-key", "the-peer-ke", "the-peer-keyy", "THE-PEER-KEY", "api-key", "Bearer api-key", "Bearer the-peer-key", "\u00e4", " "})
		r := httptest.NewRequest(http.MethodPost, "/signals", nil)
		for _, name := range []string{api.HeaderInternal, api.HeaderPeerKey, "Authorization", "X-Tidal-Internal-1", "Peer-Key", "Tidal-Member", "X-Forwarded-For"} {
			for range rapid.IntRange(0, 2).Draw(t, name) {
				if v := value.Draw(t, name); v != "" {
					r.Header.Add(name, v)
				}
			}
		}
		hasKey := r.Header.Get(api.HeaderPeerKey) == string(key)
		hasCert := rapid.Bool().Draw(t, "certificate")
		if hasCert {
			r.TLS = &tls.ConnectionState{}
		}
		cert := func(s *tls.ConnectionState) bool { return s != nil }
		for _, tc := range []struct {
			opts       Options
			credential bool
		}{
			{Options{PeerKey: key}, hasKey},
			{Options{PeerKey: key, PeerCert: cert}, hasKey}, // a certificate is no key
			{Options{PeerCert: cert}, hasCert},
		} {
			tc.opts.Authorize = func(k string) bool { return k == "api-key" }
			s := &Server{opts: tc.opts}
			marked, err := s.fromPeer(r)
			if want := r.Header.Get(api.HeaderInternal) != "" && tc.credential; marked != want || marked && err != nil {
				t.Fatalf("%v: marked %t, %v; want %t", r.Header, marked, err, want)
			}
			allowed := s.authorize(&request{Request: r, marked: marked}, route{}) == nil
			if want := marked || r.Header.Get("Authorization") == "Bearer api-key"; allowed != want {
				t.Fatalf("%v: allowed %t, want %t", r.Header, allowed, want)
			}
		}
	})
}

func TestCheckHost(t *testing.T) {
	t.Parallel()
	keyless := &Server{opts: Options{Hosts: func() []string { return []string{"db1.example", "10.0.0.7"} }}, origin: http.NewCrossOriginProtection()}
	open := &Server{}
	for _, tc := range []struct {
		host string
		ok   bool
	}{
		{"127.0.0.1:9501", true}, {"localhost:9501", true}, {"LOCALHOST", true}, {"localhost.", true}, {"[::1]:9501", true}, {"127.8.9.1", true},
		{"tidal-1", true}, {"tidal-1:9501", true}, {"tidal-1.", false},
		{"db1.example:9501", true}, {"DB1.example", true}, {"10.0.0.7:9501", true},
		{"evil.example:9501", false}, {"", false}, {"10.0.0.8", false}, {"localhost.evil.example", false}, {"127.0.0.1.evil.example", false}, {"2130706433", false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/feed", nil)
		r.Host = tc.host
		if err := keyless.checkHost(r); (err == nil) != tc.ok || err != nil && problem(err).Code != api.CodeForeignHost {
			t.Errorf("host %q: %v, want ok %t", tc.host, err, tc.ok)
		}
		if err := open.checkHost(r); err != nil {
			t.Errorf("host %q where keys are asked for: %v", tc.host, err)
		}
	}
	for _, tc := range []struct {
		method, header, value string
		ok                    bool
	}{
		{"POST", "Origin", "http://127.0.0.1:9501", true},
		{"POST", "Origin", "http://evil.example", false},
		{"POST", "Sec-Fetch-Site", "cross-site", false},
		{"POST", "Sec-Fetch-Site", "same-origin", true},
		{"DELETE", "Origin", "null", false},
		{"GET", "Origin", "http://evil.example", true}, // the browser shows the page nothing of it
	} {
		r := httptest.NewRequest(tc.method, "/signals", nil)
		r.Host = "127.0.0.1:9501"
		r.Header.Set(tc.header, tc.value)
		if err := keyless.checkHost(r); (err == nil) != tc.ok {
			t.Errorf("%s with %s %s: %v, want ok %t", tc.method, tc.header, tc.value, err, tc.ok)
		}
	}
}

// piped is a listener whose connections are made by dial, in memory: their deadlines follow fake time.
type piped struct{ conns chan net.Conn }

func (p *piped) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p *piped) Close() error {
	close(p.conns)
	return nil
}

func (p *piped) Addr() net.Addr { return &net.TCPAddr{} }

func (p *piped) dial() net.Conn {
	here, there := net.Pipe()
	p.conns <- there
	return here
}

// serveOne serves a member that is alone; the returned function ends it.
func serveOne(t *testing.T, o Options, ln net.Listener) (stop func()) {
	t.Helper()
	m := opstest.New(t, opstest.Genesis("a"), "a")
	client := NewClient(ClientOptions{})
	verbs, err := ops.New(ops.Options{Member: m, Replica: m.Open, Asker: client})
	if err != nil {
		t.Fatal(err)
	}
	o.Ops, o.Client = verbs, client
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	return func() {
		t.Helper()
		if err := errors.Join(s.Stop(context.Background()), <-served); err != nil {
			t.Error(err)
		}
		client.Close()
		verbs.Close()
	}
}

// Nobody keeps a connection by doing nothing: every wait for a client has an end.
func TestServer_CutsOffTheSlow(t *testing.T) {
	for _, tc := range []struct {
		name   string
		sends  string
		within time.Duration
		says   string
	}{
		{"says nothing", "", readHeaderTimeout, ""},
		{"half a header", "GET /feed HTTP/1.1\r\nHost: x\r\nX-", readHeaderTimeout, ""},
		{"half a body", "POST /signals HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", readTimeout, "400 Bad Request"},
		{"half a chunk", "POST /signals HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n{", readTimeout, "400 Bad Request"},
		{"goes idle", "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", idleTimeout, "200 OK"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := &piped{make(chan net.Conn)}
				stop := serveOne(t, Options{}, ln)
				defer stop()
				c := ln.dial()
				defer c.Close()
				start := time.Now()
				go func() { _, _ = io.WriteString(c, tc.sends) }()
				answer, err := io.ReadAll(c)
				if took := time.Since(start); err != nil || took < tc.within || took > tc.within+2*time.Second {
					t.Errorf("cut off after %s, want %s; %v", took, tc.within, err)
				}
				if !strings.Contains(string(answer), tc.says) {
					t.Errorf("answer %q, want %q", answer, tc.says)
				}
			})
		})
	}
}

// A client that asks and does not read is cut off when an answer may no longer take.
func TestServer_CutsOffWhoDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := &piped{make(chan net.Conn)}
		stop := serveOne(t, Options{}, ln)
		defer stop()
		c := ln.dial()
		defer c.Close()
		start := time.Now()
		for { // a pipe holds nothing: the first answer waits for a reader
			if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				break
			}
		}
		if took := time.Since(start); took < writeTimeout || took > writeTimeout+10*time.Second {
			t.Errorf("cut off after %s, want %s", took, writeTimeout)
		}
	})
}

func TestServer_BoundsHeaders(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer serveOne(t, Options{}, ln)()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		fmt.Fprintf(c, "GET /feed HTTP/1.1\r\nHost: x\r\nX-Big: %s\r\n\r\n", strings.Repeat("x", 2*maxHeaderBytes))
	}()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d, want 431", resp.StatusCode)
	}
}

// Connections that do nothing cost the others nothing, and one too many is closed at once. Both ends are
// in this process: TIDAL_TEST_CONNECTIONS=10000 needs 20,000 descriptors.
func TestServer_IdleConnections(t *testing.T) {
	t.Parallel()
	idle := 500
	if n, err := strconv.Atoi(os.Getenv("TIDAL_TEST_CONNECTIONS")); err == nil && n > 0 {
		idle = n
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	defer serveOne(t, Options{MaxConnections: idle + 1, Metrics: reg}, ln)()
	open := make([]net.Conn, idle)
	for i := range open {
		if open[i], err = net.Dial("tcp", ln.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer open[i].Close()
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	get := func() error { // on one connection, the last that there is room for
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+ln.Addr().String()+"/healthz", nil)
		if err != nil {
			return err
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return errors.Join(err, resp.Body.Close())
	}
	start := time.Now()
	for range 20 {
		if err := get(); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("20 requests beside %d idle connections took %s", idle, took)
	}
	extra, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer extra.Close()
	if _, err := extra.Read(make([]byte, 1)); err == nil {
		t.Error("one connection too many is served")
	}
	if got := counterValue(t, reg, "tidal_httpd_connections_refused_total"); got != 1 {
		t.Errorf("%v connections were refused, want 1", got)
	}
	transport.CloseIdleConnections()
	for get() != nil { // until the server noticed
	}
}

// counterValue returns the value of the one counter called name.
func counterValue(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
