package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/auth/authtest"
	"github.com/tidaldb/tidal/daemon/config"
)

// secure is a cluster of three in this process, with certificates of its own for members and clients.
type secure struct {
	t       *testing.T
	dir     string
	ca      *authtest.CA // of the members
	users   *authtest.CA
	members []*Daemon
	addrs   []string
}

func startSecure(t *testing.T, auth, extra string) *secure {
	t.Helper()
	s := &secure{t: t, dir: t.TempDir()}
	s.ca, s.users = authtest.NewCA(t, s.dir, "ca"), authtest.NewCA(t, s.dir, "users")
	for file, secret := range map[string]string{"keys": "0123456789abcdef-one", "peer.key": strings.Repeat("k", 32)} {
		if err := os.WriteFile(filepath.Join(s.dir, file), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.issue("member", "localhost")
	var text strings.Builder
	text.WriteString("members:\n")
	for _, name := range []string{"a", "b", "c"} {
		http, grpc := freeAddr(t), freeAddr(t)
		s.addrs = append(s.addrs, http)
		fmt.Fprintf(&text, "  - {name: %s, http_addr: %q, grpc_addr: %q, http_bind: %q, grpc_bind: %q}\n", name,
			strings.Replace(http, "127.0.0.1", "localhost", 1), strings.Replace(grpc, "127.0.0.1", "localhost", 1), http, grpc)
	}
	fmt.Fprintf(&text, "election: {tick: 20ms, election_ticks: 15}\n%stls: {cert_file: member.cert, key_file: member.key, ca_file: ca.pem%s}\n", auth, extra)
	file := filepath.Join(s.dir, "tidal.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		c, err := config.Load(config.Flags{Config: file, Name: name, DataDir: filepath.Join(s.dir, name)}, func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		d, err := New(Options{Config: c, Version: "test"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := d.Stop(ctx); err != nil {
				t.Error(err)
			}
		})
		if err := d.Start(); err != nil {
			t.Fatal(err)
		}
		s.members = append(s.members, d)
	}
	return s
}

// issue writes a certificate for host, as name.cert and name.key.
func (s *secure) issue(name, host string) {
	s.ca.Issue(filepath.Join(s.dir, name+".cert"), filepath.Join(s.dir, name+".key"), time.Hour, host)
}

// client returns a client with the certificate called cert, if any.
func (s *secure) client(cert string) *http.Client {
	s.t.Helper()
	pool := x509.NewCertPool()
	b, err := os.ReadFile(s.ca.File)
	if err != nil || !pool.AppendCertsFromPEM(b) {
		s.t.Fatal(err)
	}
	c := &tls.Config{RootCAs: pool, ServerName: "localhost"}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(filepath.Join(s.dir, cert+".cert"), filepath.Join(s.dir, cert+".key"))
		if err != nil {
			s.t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}}
}

// ask sends one request to member i.
func (s *secure) ask(c *http.Client, i int, method, path, body string, header ...string) (int, string, error) {
	req, err := http.NewRequestWithContext(s.t.Context(), method, "https://"+s.addrs[i]+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// healthy waits until member i sees every row answer.
func (s *secure) healthy(c *http.Client, i int, header ...string) {
	s.t.Helper()
	var last string
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		status, body, err := s.ask(c, i, "GET", "/cluster/status", "", header...)
		var st api.Status
		if err == nil && status == 200 && json.Unmarshal([]byte(body), &st) == nil && st.Health.Level == api.HealthOK {
			return
		}
		last = fmt.Sprint(status, body, err)
	}
	s.t.Fatalf("not healthy: %s", last)
}

// With mutual TLS alone members find each other, ask each other and forward, over HTTPS; a client without
// a certificate does not get in, the marker makes nobody a member who has no member's certificate, and
// new certificates are in use without a restart.
func TestDaemon_MutualTLS(t *testing.T) {
	s := startSecure(t, "", ", client_ca_file: users.pem, require_client_cert: true")
	s.users.Issue(filepath.Join(s.dir, "user.cert"), filepath.Join(s.dir, "user.key"), time.Hour, "someone")
	user, member := s.client("user"), s.client("member")
	for i := range s.members {
		s.healthy(user, i)
	}
	for i := range s.members { // two of them forward
		if status, body, err := s.ask(user, i, "POST", "/items", fmt.Sprintf(`{"id":"i%d"}`, i)); err != nil || status != 201 {
			t.Errorf("write through %d = %d %s %v", i, status, body, err)
		}
	}
	if _, _, err := s.ask(s.client(""), 0, "GET", "/healthz", ""); err == nil {
		t.Error("a client without a certificate is served")
	}
	const marker = "X-Tidal-Internal"
	if status, body, err := s.ask(user, 0, "POST", "/internal/writes", "", marker, "1"); err != nil || status != 404 {
		t.Errorf("a user with the marker = %d %s %v, want that there is no such route", status, body, err)
	}
	if status, body, err := s.ask(member, 0, "POST", "/internal/writes", "", marker, "1"); err != nil || status == 404 {
		t.Errorf("a member with the marker = %d %s %v", status, body, err)
	}
	plain, err := http.Get("http://" + s.addrs[0] + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	plain.Body.Close()
	if plain.StatusCode != http.StatusBadRequest {
		t.Errorf("plain text = %s", plain.Status)
	}
	http.DefaultClient.CloseIdleConnections()

	// Another authority takes over, in two steps as it must: first everybody trusts both.
	old := s.ca
	next := authtest.NewCA(t, s.dir, "next")
	both := read(t, old.File) + read(t, next.File)
	put := func(path, content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(old.File, both)
	for _, d := range s.members {
		d.reloader.Check()
	}
	s.ca = next
	s.issue("member", "localhost")
	put(old.File, read(t, next.File))
	for _, d := range s.members {
		d.reloader.Check()
		d.client.Close() // idle connections were made with the old ones
	}
	user = s.client("user")
	for i := range s.members {
		s.healthy(user, i)
		if status, body, err := s.ask(user, i, "POST", "/items", `{"id":"n"}`); err != nil || status/100 != 2 {
			t.Errorf("write through %d with new certificates = %d %s %v", i, status, body, err)
		}
	}
}

// With TLS and keys: the bearer key is asked for, follows its file, and members need none of each other.
func TestDaemon_TLSWithKeys(t *testing.T) {
	s := startSecure(t, "auth: {key_file: keys, peer_key_file: peer.key}\n", "")
	user := s.client("")
	const one, two = "0123456789abcdef-one", "0123456789abcdef-two"
	for i := range s.members {
		s.healthy(user, i, "Authorization", "Bearer "+one)
	}
	if status, body, err := s.ask(user, 1, "POST", "/items", `{"id":"i"}`, "Authorization", "Bearer "+one); err != nil || status != 201 {
		t.Errorf("write = %d %s %v", status, body, err)
	}
	if status, _, err := s.ask(user, 1, "GET", "/cluster/status", "", "X-Tidal-Internal", "1"); err != nil || status != 401 {
		t.Errorf("marked and without a key = %d %v, want 401", status, err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "keys"), []byte(two), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, d := range s.members {
		d.reloader.Check()
	}
	if status, _, err := s.ask(user, 1, "GET", "/feed", "", "Authorization", "Bearer "+one); err != nil || status != 401 {
		t.Errorf("with the old key = %d %v, want 401", status, err)
	}
	s.healthy(user, 1, "Authorization", "Bearer "+two)
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
