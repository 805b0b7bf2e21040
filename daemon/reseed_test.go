package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/config"
	"github.com/tidaldb/tidal/daemon/datadir"
)

// three starts a cluster in this process and returns its configurations and how to stop each member.
func three(t *testing.T) (cs []*config.Config, stops []func()) {
	t.Helper()
	return threeBy(t, func(int) func() time.Time { return nil })
}

// threeBy is three by the clock that clock returns of each member; nil: the real one.
func threeBy(t *testing.T, clock func(int) func() time.Time) (cs []*config.Config, stops []func()) {
	t.Helper()
	home := t.TempDir()
	file := filepath.Join(home, "tidal.yaml")
	text := "members:\n"
	names := []string{"a", "b", "c"}
	for _, name := range names {
		text += fmt.Sprintf("  - {name: %s, grpc_addr: '%s', http_addr: '%s'}\n", name, freeAddr(t), freeAddr(t))
	}
	text += "election: {tick: 20ms, heartbeat_ticks: 1, election_ticks: 15}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		c, err := config.Load(config.Flags{Config: file, Name: name, DataDir: filepath.Join(home, name)}, func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		cs = append(cs, c)
		stops = append(stops, runBy(t, c, clock(i)))
	}
	return cs, stops
}

// local waits until group 0 of a member is as wanted.
func local(t *testing.T, c *config.Config, what string, want func(api.GroupStatus) bool) {
	t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	deadline := time.After(30 * time.Second)
	for {
		var s api.LocalStatus
		_, body := request(t, "GET", "http://"+c.HTTPBind+"/cluster/status/local", "")
		if err := json.Unmarshal([]byte(body), &s); err != nil {
			t.Fatal(err)
		}
		if len(s.Groups) > 0 && want(s.Groups[0]) {
			return
		}
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("after 30 s not %s: %s", what, body)
		}
	}
}

// A latched reseed of a member whose log is damaged is carried out under the leader's barrier: the
// member comes back with everything, and what was damaged is kept beside it.
func TestReseed_UnderABarrier(t *testing.T) {
	cs, stops := three(t)
	url := "http://" + cs[0].HTTPBind
	local(t, cs[0], "led", func(g api.GroupStatus) bool { return g.Leader != nil })
	for i := range 20 {
		if st, b := request(t, "POST", url+"/items", fmt.Sprintf(`{"id":"item-%02d","needle":"here"}`, i)); st != http.StatusCreated {
			t.Fatalf("POST /items = %d %s", st, b)
		}
	}
	c := cs[2]
	local(t, c, "caught up", func(g api.GroupStatus) bool { return g.AppliedIndex >= 20 })
	stops[2]()
	damage(t, c.DataDir, "item-03")
	dir, err := datadir.Open(datadir.Options{Path: c.DataDir, Name: c.Name})
	if err != nil {
		t.Fatal(err)
	}
	files := dir.Group(0)
	gen, _, err := files.Current()
	if err == nil {
		err = files.Latch(datadir.Reseed{Reason: "log_corrupt", Since: 1234, Condemned: gen, Keep: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}

	stops[2] = run(t, c)
	local(t, c, "healed", func(g api.GroupStatus) bool {
		return g.Quarantine == nil && !g.ReseedRequired && g.AppliedIndex >= 20
	})
	if st, b := request(t, "GET", "http://"+c.HTTPBind+"/items/item-03", ""); st != http.StatusOK || !strings.Contains(b, "here") {
		t.Errorf("GET /items = %d %s", st, b)
	}
	kept := filepath.Join(c.DataDir, "groups", "0", "kept-1234-log_corrupt")
	entries, err := os.ReadDir(kept)
	if err != nil || len(entries) != 2 {
		t.Errorf("%s holds %v, %v, want the old log and the old state", kept, entries, err)
	}
	for _, stop := range stops {
		stop()
	}
}

// A reseed replaces data; it brings no directory back that was lost under a member that runs. It says so at once,
// and which verb does, in the place of waiting for what never comes.
func TestReseed_RefusesALostDirectory(t *testing.T) {
	cs, stops := three(t)
	c := cs[2]
	local(t, c, "led", func(g api.GroupStatus) bool { return g.Leader != nil })
	dir, aside := filepath.Join(c.DataDir, "groups", "0"), filepath.Join(c.DataDir, "aside")
	if err := os.Rename(dir, aside); err != nil {
		t.Fatal(err)
	}
	url := "http://" + c.HTTPBind + "/cluster/reseed"
	st, b := request(t, "POST", url, `{"region":"`+c.Name+`","stall_timeout_ms":1000}`)
	if st != http.StatusConflict || !strings.Contains(b, `"not_healed"`) || !strings.Contains(b, "tidalctl members replace "+c.Name) || !strings.Contains(b, dir) {
		t.Errorf("POST /cluster/reseed = %d %s", st, b)
	}
	if st, b = request(t, "POST", url, `{"region":"`+c.Name+`","dry_run":true}`); st != http.StatusOK || !strings.Contains(b, `"ok":false`) || !strings.Contains(b, "put an empty directory") {
		t.Errorf("its dry run = %d %s", st, b)
	}
	if err := os.Rename(aside, dir); err != nil {
		t.Fatal(err)
	}
	for _, stop := range stops {
		stop()
	}
}
