package daemon

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/config"
)

// joiner returns the configuration of a member that no file declares.
func joiner(t *testing.T, dir, name string, flags config.Flags) *config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tidal.yaml")
	if err := os.WriteFile(file, []byte("election: {tick: 20ms}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	flags.Config, flags.Name, flags.DataDir = file, name, dir
	flags.AdvertiseGRPC, flags.AdvertiseHTTP = freeAddr(t), freeAddr(t)
	c, err := config.Load(flags, func(string) string { return "" })
	if err != nil {
		t.Fatalf("config.Load: %v", err)
	}
	return c
}

// soon polls f until it says yes.
func soon(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-deadline:
			t.Fatalf("waited for %s in vain", what)
		case <-tick.C:
		}
	}
}

func statusOf(t *testing.T, c *config.Config) (s api.LocalStatus) {
	t.Helper()
	_, b := request(t, "GET", "http://"+c.HTTPBind+"/cluster/status/local", "")
	if err := json.Unmarshal([]byte(b), &s); err != nil {
		t.Fatalf("local status: %v in %s", err, b)
	}
	return s
}

func votes(t *testing.T, c *config.Config) func() bool {
	return func() bool {
		s := statusOf(t, c)
		return len(s.Groups) == 1 && s.Groups[0].Role == api.RoleVoter && s.Ready
	}
}

// A member with an empty directory joins a cluster that runs, whatever its first seeds are, and needs none
// at the next start. Its identity is not the other's.
func TestDaemon_JoinsByAnySeed(t *testing.T) {
	first := load(t, filepath.Join(t.TempDir(), "data"), "first")
	stopFirst := run(t, first)
	if st, b := request(t, "POST", "http://"+first.HTTPBind+"/items", `{"id":"a","title":"A"}`); st != http.StatusCreated {
		t.Fatalf("POST /items = %d %s", st, b)
	}
	page := httptest.NewServer(http.NotFoundHandler())
	defer page.Close()
	dir := filepath.Join(t.TempDir(), "data")
	second := joiner(t, dir, "second", config.Flags{Seeds: []string{"http://" + freeAddr(t), page.URL, "http://" + first.HTTPBind}})
	stop := run(t, second)
	soon(t, "a vote of the joiner", votes(t, second))
	s := statusOf(t, second)
	if s.ID != "2" || s.ClusterID != statusOf(t, first).ClusterID || s.Incarnation == statusOf(t, first).Incarnation || s.Phase != api.PhaseServing {
		t.Errorf("the joiner is %+v", s)
	}
	if st, b := request(t, "GET", "http://"+second.HTTPBind+"/items/a?consistency=linearizable", ""); st != http.StatusOK {
		t.Errorf("GET /items/a of the joiner = %d %s", st, b)
	}
	stop()

	second.Join.Seeds = nil
	stop = run(t, second)
	soon(t, "a vote after a restart", votes(t, second))
	if s := statusOf(t, second); s.ID != "2" {
		t.Errorf("after a restart it is member %s", s.ID)
	}
	stop()
	stopFirst()
}

// Without a seed that is of use a member waits, and says for whom and why; told another one, it goes on.
func TestDaemon_SaysWhatAJoinWaitsFor(t *testing.T) {
	first := load(t, filepath.Join(t.TempDir(), "data"), "first")
	stopFirst := run(t, first)
	defer stopFirst()
	page := httptest.NewServer(http.NotFoundHandler())
	defer page.Close()
	dead := "http://" + freeAddr(t)
	second := joiner(t, filepath.Join(t.TempDir(), "data"), "second", config.Flags{Seeds: []string{dead, page.URL}})
	stop := run(t, second)
	url := "http://" + second.HTTPBind
	soon(t, "what it waits for", func() bool {
		st, b := request(t, "GET", url+"/readyz", "")
		return st == http.StatusServiceUnavailable && strings.Contains(b, "waits for "+dead) && strings.Contains(b, "nothing listens there") &&
			strings.Contains(b, "waits for "+page.URL) && strings.Contains(b, "HTTP 404")
	})
	if st, b := request(t, "GET", url+"/items/a", ""); st != http.StatusServiceUnavailable || !strings.Contains(b, `"not_ready"`) {
		t.Errorf("GET /items/a of a member that joins = %d %s", st, b)
	}
	if st, b := request(t, "POST", url+"/cluster/seeds", `{"seeds":["http://`+first.HTTPBind+`"]}`); st != http.StatusOK || !strings.Contains(b, `"accepted":true`) {
		t.Errorf("POST /cluster/seeds = %d %s", st, b)
	}
	soon(t, "a vote of the joiner", votes(t, second))
	if st, b := request(t, "POST", url+"/cluster/seeds", `{"seeds":["http://`+first.HTTPBind+`"]}`); st != http.StatusOK || !strings.Contains(b, `"accepted":false`) {
		t.Errorf("POST /cluster/seeds to a member = %d %s", st, b)
	}
	stop()
}

// A member that waits to be told only listens. One that nobody will ever tell does not start.
func TestDaemon_AwaitsAJoin(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	c := joiner(t, dir, "second", config.Flags{AwaitJoin: true})
	stop := run(t, c)
	if st, b := request(t, "GET", "http://"+c.HTTPBind+"/readyz", ""); st != http.StatusServiceUnavailable || !strings.Contains(b, "tidalctl join --seed") {
		t.Errorf("GET /readyz = %d %s", st, b)
	}
	stop()
	c.Join.Await = false
	d, err := New(Options{Config: c})
	if _, ok := errors.AsType[*NothingToJoinError](err); !ok || d != nil {
		t.Errorf("New without a seed = %v", err)
	}
}
