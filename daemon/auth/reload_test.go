package auth

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidaldb/tidal/daemon/auth/authtest"
)

// watching is a reloader with what it says and what it measures.
func watching() (*Reloader, *bytes.Buffer, *prometheus.Registry) {
	said, reg := &bytes.Buffer{}, prometheus.NewRegistry()
	return NewReloader(slog.New(slog.NewTextHandler(said, nil)), reg), said, reg
}

// value returns the only sample of a metric with this label, or -1.
func value(t *testing.T, reg *prometheus.Registry, name, what string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (len(m.GetLabel()) == 0 || m.GetLabel()[0].GetValue() == what) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return -1
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

const (
	keyOne = "0123456789abcdef-one"
	keyTwo = "0123456789abcdef-two"
	keyEnv = "0123456789abcdef-env"
)

// A new file is in use at the next look; a broken one leaves the old keys in force and says so, without
// a word of what it holds.
func TestReloader_Keys(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys")
	put(t, path, keyOne)
	r, said, reg := watching()
	keys, err := r.Keys(path, keyEnv)
	if err != nil {
		t.Fatal(err)
	}
	want := func(when string, one, two bool, failed float64) {
		t.Helper()
		r.Check()
		if keys.Allows(keyOne) != one || keys.Allows(keyTwo) != two || !keys.Allows(keyEnv) {
			t.Errorf("%s: one %t, two %t", when, keys.Allows(keyOne), keys.Allows(keyTwo))
		}
		if got := value(t, reg, "tidal_auth_reload_failed", "api_keys"); got != failed {
			t.Errorf("%s: reload failed = %v, want %v", when, got, failed)
		}
	}
	want("at first", true, false, 0)
	put(t, path, "secret-short")
	want("broken", true, false, 1)
	if !strings.Contains(said.String(), "changed file is not used") || strings.Contains(said.String(), "secret-short") {
		t.Errorf("said %q", said)
	}
	said.Reset()
	want("still broken", true, false, 1)
	if said.Len() > 0 {
		t.Errorf("said again: %q", said)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	want("gone", true, false, 1)
	put(t, path, keyTwo)
	want("replaced", false, true, 0)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	want("the same, readable by all", false, true, 0) // what it holds did not change
	put(t, path, keyOne+"\n")
	want("changed, readable by all", false, true, 1)
	if got := value(t, reg, "tidal_auth_reloads_total", "api_keys"); got != 1 {
		t.Errorf("reloads = %v, want 1", got)
	}
}

func TestReloader_NoKeysAreNoKeySet(t *testing.T) {
	t.Parallel()
	r, _, _ := watching()
	if k, err := r.Keys("", ""); k != nil || err != nil {
		t.Errorf("Keys = %v, %v, want none", k, err)
	}
	if _, err := r.Keys(filepath.Join(t.TempDir(), "no"), ""); err == nil {
		t.Error("a file that is not there is taken at the start")
	}
}

func TestReloader_Run(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	put(t, path, keyOne)
	synctest.Test(t, func(t *testing.T) {
		r, _, _ := watching()
		keys, err := r.Keys(path, "")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Run(ctx)
		}()
		put(t, path, keyTwo)
		time.Sleep(reloadEvery + time.Second)
		if !keys.Allows(keyTwo) || keys.Allows(keyOne) {
			t.Error("the new file is not in use after an interval")
		}
		cancel()
		<-done
	})
}

// pair is a server and the files of its certificate.
type pair struct{ cert, key string }

func (p pair) dial(t *testing.T, server *tls.Config, client *tls.Config) (*x509.Certificate, error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	served := make(chan error, 1)
	go func() {
		a, err := ln.Accept()
		if err == nil {
			defer a.Close()
			err = tls.Server(a, server).Handshake()
		}
		served <- err
	}()
	b, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	c := tls.Client(b, client)
	// In TLS 1.3 the server refuses a client's certificate after the client is done.
	if err := errors.Join(c.Handshake(), <-served); err != nil {
		return nil, err
	}
	return c.ConnectionState().PeerCertificates[0], nil
}

func TestReloader_TLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := authtest.NewCA(t, dir, "ca")
	p := pair{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	ca.Issue(p.cert, p.key, time.Hour, "a.example", "127.0.0.1")
	r, said, reg := watching()
	s, err := r.TLS(TLSFiles{Cert: p.cert, Key: p.key, CA: ca.File, ClientCA: ca.File})
	if err != nil {
		t.Fatal(err)
	}
	dial := func(host string) (*x509.Certificate, error) {
		c := s.Dial()
		c.ServerName = host
		return p.dial(t, s.ForPeers(), c)
	}
	first, err := dial("a.example")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dial("b.example"); err == nil {
		t.Error("the certificate is taken for another host")
	}
	if err := s.ServesName("127.0.0.1"); err != nil {
		t.Error(err)
	}
	if err := s.ServesName("b.example"); err == nil || !strings.Contains(err.Error(), "a.example") {
		t.Errorf("ServesName = %v, want the names that it has", err)
	}
	if _, err := p.dial(t, s.ForPeers(), &tls.Config{RootCAs: s.Dial().RootCAs, ServerName: "a.example"}); err == nil {
		t.Error("a peer without a certificate is served")
	}
	if _, err := p.dial(t, s.ForClients(), &tls.Config{RootCAs: s.Dial().RootCAs, ServerName: "a.example"}); err != nil {
		t.Errorf("a client without a certificate: %v", err)
	}

	// One of the two files is new: they do not fit, and the old pair serves on.
	old, err := os.ReadFile(p.cert)
	if err != nil {
		t.Fatal(err)
	}
	server := s.ForPeers() // as a listener holds it
	ca.Issue(p.cert, p.key, 2*time.Hour, "a.example")
	fresh, err := os.ReadFile(p.cert)
	if err != nil {
		t.Fatal(err)
	}
	put(t, p.cert, string(old))
	r.Check()
	got, err := p.dial(t, server, func() *tls.Config { c := s.Dial(); c.ServerName = "a.example"; return c }())
	if err != nil || !got.Equal(first) {
		t.Errorf("after half a change: %v", err)
	}
	if value(t, reg, "tidal_auth_reload_failed", "tls") != 1 || !strings.Contains(said.String(), "private key does not match") {
		t.Errorf("said %q", said)
	}
	put(t, p.cert, string(fresh))
	r.Check()
	got, err = p.dial(t, server, func() *tls.Config { c := s.Dial(); c.ServerName = "a.example"; return c }())
	if err != nil || got.Equal(first) {
		t.Errorf("after the change: %v", err)
	}
	if at := value(t, reg, "tidal_auth_certificate_expiry_timestamp_seconds", ""); at != float64(got.NotAfter.Unix()) || value(t, reg, "tidal_auth_reload_failed", "tls") != 0 {
		t.Errorf("expiry %v, want %v", at, got.NotAfter)
	}
	ca.Issue(p.cert, p.key, -time.Minute, "a.example") // expired
	r.Check()
	if _, err := dial("a.example"); err != nil {
		t.Errorf("an expired certificate replaced a good one: %v", err)
	}
}

func TestTLS_RequiresClientCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, users, strangers := authtest.NewCA(t, dir, "ca"), authtest.NewCA(t, dir, "users"), authtest.NewCA(t, dir, "strangers")
	file := func(name string) string { return filepath.Join(dir, name) }
	ca.Issue(file("cert"), file("key"), time.Hour, "a")
	r, _, _ := watching()
	s, err := r.TLS(TLSFiles{Cert: file("cert"), Key: file("key"), CA: ca.File, ClientCA: users.File, RequireClientCert: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		by *authtest.CA // nil: the client has no certificate
		ok bool
	}{{nil, false}, {users, true}, {strangers, false}, {ca, true}} {
		c := &tls.Config{RootCAs: s.Dial().RootCAs, ServerName: "a"}
		if tc.by != nil {
			tc.by.Issue(file("u.cert"), file("u.key"), time.Hour, "u")
			cert, err := tls.LoadX509KeyPair(file("u.cert"), file("u.key"))
			if err != nil {
				t.Fatal(err)
			}
			c.Certificates = []tls.Certificate{cert}
		}
		if _, err := (pair{}).dial(t, s.ForClients(), c); (err == nil) != tc.ok {
			t.Errorf("client of %v: %v, want ok %t", tc.by, err, tc.ok)
		}
	}
}

func TestTLS_RefusesFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := authtest.NewCA(t, dir, "ca")
	file := func(name string) string { return filepath.Join(dir, name) }
	ca.Issue(file("cert"), file("key"), time.Hour, "a")
	put(t, file("empty"), "")
	put(t, file("open"), "x")
	if err := os.Chmod(file("open"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]TLSFiles{
		"no key":          {Cert: file("cert")},
		"missing":         {Cert: file("cert"), Key: file("no")},
		"not PEM":         {Cert: file("empty"), Key: file("key")},
		"key for all":     {Cert: file("cert"), Key: file("open")},
		"CA without cert": {Cert: file("cert"), Key: file("key"), CA: file("empty")},
	} {
		r, _, _ := watching()
		if _, err := r.TLS(f); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
