package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidaldb/tidal/daemon/config"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/durable"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// load returns the configuration of a member alone on free ports.
func load(t *testing.T, dir, name string) *config.Config {
	t.Helper()
	c, err := config.Load(config.Flags{DataDir: dir, Name: name, HTTP: freeAddr(t), GRPC: freeAddr(t), Metrics: freeAddr(t)}, func(string) string { return "" })
	if err != nil {
		t.Fatalf("config.Load: %v", err)
	}
	return c
}

// freeAddr returns an address at which nothing listens. Its port is below those that the system gives to
// whoever connects: one of these could be taken before the member listens.
func freeAddr(t testing.TB) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(20000)))
		if err != nil {
			continue
		}
		addr := l.Addr().String()
		_ = l.Close()
		return addr
	}
	t.Fatal("found no free port")
	return ""
}

// run starts a member and returns how to stop it.
func run(t *testing.T, c *config.Config) (stop func()) {
	t.Helper()
	return runBy(t, c, nil)
}

// runBy is run by a clock; nil: the real one.
func runBy(t *testing.T, c *config.Config, now func() time.Time) (stop func()) {
	t.Helper()
	d, err := New(Options{Config: c, Version: "test", Now: now})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	if err := d.Start(); err != nil {
		t.Fatalf("Start: %v", err)
	}
	return func() {
		t.Helper()
		if err := d.Stop(context.Background()); err != nil {
			t.Errorf("Stop: %v", err)
		}
	}
}

// request returns status and body; a write waits for the first leader by itself.
func request(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return resp.StatusCode, string(b)
}

func TestDaemon_AloneIsACompleteCluster(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	c := load(t, dir, "")
	stop := run(t, c)
	url := "http://" + c.HTTPBind
	if st, b := request(t, "POST", url+"/items", `{"id":"a","title":"A"}`); st != http.StatusCreated {
		t.Fatalf("POST /items = %d %s", st, b)
	}
	if st, b := request(t, "POST", url+"/signals", `{"item":"a","signal":"view"}`); st != http.StatusNoContent {
		t.Fatalf("POST /signals = %d %s", st, b)
	}
	if st, b := request(t, "GET", "http://"+c.MetricsBind+"/metrics", ""); st != http.StatusOK || !strings.Contains(b, "tidal_replica_") {
		t.Errorf("GET /metrics = %d", st)
	}
	stop()

	stop = run(t, c) // what was acknowledged is there after a restart
	defer stop()
	if st, b := request(t, "GET", url+"/feed?consistency=linearizable", ""); st != http.StatusOK || !strings.Contains(b, `"id":"a"`) {
		t.Errorf("GET /feed = %d %s", st, b)
	}
}

// Whatever is wrong with the directory is refused by name, gives everything back and changes nothing.
func TestNew_RefusesADirectoryItMustNotUse(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, "data")
	c := load(t, dir, "alice")
	stop := run(t, c)
	if st, b := request(t, "POST", "http://"+c.HTTPBind+"/items", `{"id":"a"}`); st != http.StatusCreated {
		t.Fatalf("POST /items = %d %s", st, b)
	}

	other := load(t, dir, "alice") // other ports, the same directory
	_, err := New(Options{Config: other})
	if err == nil {
		t.Error("a directory was opened twice")
	}
	stop()

	_, err = New(Options{Config: load(t, dir, "bob")})
	if _, ok := errors.AsType[*datadir.WrongNameError](err); !ok {
		t.Errorf("another name: %v, want a WrongNameError", err)
	}

	twin := filepath.Join(home, "copy")
	if err := os.CopyFS(twin, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	_, err = New(Options{Config: load(t, twin, "alice")})
	if _, ok := errors.AsType[*datadir.CopiedError](err); !ok {
		t.Errorf("a copy: %v, want a CopiedError", err)
	}

	for _, name := range []string{"member", "votes"} {
		path := filepath.Join(dir, name)
		sound, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		bad := append([]byte(nil), sound...)
		for i := range bad { // votes has two slots: damage both
			bad[i] ^= 0x40
		}
		overwrite(t, path, bad)
		_, err = New(Options{Config: load(t, dir, "alice")})
		if corrupt, ok := errors.AsType[*durable.CorruptError](err); !ok || corrupt.File != name {
			t.Errorf("a damaged %s: %v, want a CorruptError of it", name, err)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != string(bad) {
			t.Errorf("the refusal changed %s (%v)", name, err)
		}
		overwrite(t, path, sound)
	}

	stop = run(t, c) // nothing was harmed
	defer stop()
	if st, b := request(t, "GET", "http://"+c.HTTPBind+"/items/a", ""); st != http.StatusOK {
		t.Errorf("GET /items/a = %d %s", st, b)
	}
}

// overwrite changes a file in place: its inode is part of the identity.
func overwrite(t *testing.T, path string, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(b, 0)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatalf("overwrite %s: %v", path, err)
	}
}

// A log that is damaged in the middle puts the replica in quarantine: the member stays up, says why,
// serves no reads, and leaves the files as they are.
func TestDaemon_QuarantinesADamagedLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	c := load(t, dir, "")
	url := "http://" + c.HTTPBind
	stop := run(t, c)
	for i := range 20 {
		if st, b := request(t, "POST", url+"/items", fmt.Sprintf(`{"id":"item-%02d","needle":"here"}`, i)); st != http.StatusCreated {
			t.Fatalf("POST /items = %d %s", st, b)
		}
	}
	stop()
	segment := damage(t, dir, "item-03")

	stop = run(t, c)
	defer stop()
	if st, b := request(t, "GET", url+"/items/item-01", ""); st != http.StatusServiceUnavailable || !strings.Contains(b, `"quarantined"`) {
		t.Errorf("GET /items = %d %s, want 503 quarantined", st, b)
	}
	if st, b := request(t, "GET", url+"/readyz", ""); st != http.StatusServiceUnavailable || !strings.Contains(b, "log_corrupt") {
		t.Errorf("GET /readyz = %d %s, want 503 with the cause", st, b)
	}
	if st, b := request(t, "GET", url+"/cluster/status", ""); st != http.StatusOK || !strings.Contains(b, filepath.Base(segment)) {
		t.Errorf("GET /cluster/status = %d %s, want it to name %s", st, b, segment)
	}
	if st, _ := request(t, "GET", url+"/healthz", ""); st != http.StatusOK {
		t.Errorf("GET /healthz = %d, want 200: the process lives", st)
	}
}

// damage flips a bit of the record that holds text and returns the segment.
func damage(t *testing.T, dir, text string) string {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(dir, "groups", "0", "log-*", "*.wal"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range segments {
		b, err := os.ReadFile(s)
		if err != nil {
			t.Fatal(err)
		}
		if at := strings.Index(string(b), text); at >= 0 {
			b[at] ^= 1
			overwrite(t, s, b)
			return s
		}
	}
	t.Fatalf("no segment of %v holds %q", segments, text)
	return ""
}
