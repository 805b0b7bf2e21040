package verbs_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/iostreams"
	"github.com/tidaldb/tidal/ctl/verbs"
	"github.com/tidaldb/tidal/daemon/api"
)

// tab completes the last of args and returns what is offered, with XDG_CACHE_HOME in cache.
func tab(t *testing.T, cache string, endpoints []string, args ...string) (offered string, took time.Duration) {
	t.Helper()
	io, _, _ := iostreams.Test()
	f := newFactory(t, io, endpoints)
	env := f.Env
	f.Env = func(name string) string {
		if name == "XDG_CACHE_HOME" {
			return cache
		}
		return env(name)
	}
	root := ctl.NewRoot(f, verbs.All)
	var out, errs bytes.Buffer
	root.SetOut(&out) // cobra writes completions there
	root.SetErr(&errs)
	root.SetArgs(append([]string{"__complete"}, args...))
	start := time.Now()
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Errorf("%v: %v", args, err)
	}
	took = time.Since(start)
	if took > 600*time.Millisecond {
		t.Errorf("%v: a Tab took %s", args, took)
	}
	offered, ok := strings.CutSuffix(out.String(), ":4\n") // no file names
	if !ok {
		t.Errorf("%v: %q", args, out.String())
	}
	return offered, took
}

// Each verb is offered the members that fit it.
func TestComplete_MembersThatFit(t *testing.T) {
	t.Parallel()
	url := []string{member(t, "ok")}
	for line, want := range map[string]string{
		"members show":                    "us-east\tleader, up\nus-west\tvoter, up\nap-south\tvoter, up\n",
		"members show us-west":            "", // it takes one
		"promote":                         "us-west\tlag 0, heard the leader 12ms ago\nap-south\tlag 4, heard the leader 48ms ago\n",
		"leader transfer":                 "us-west\tlag 0, heard the leader 12ms ago\nap-south\tlag 4, heard the leader 48ms ago\n",
		"events us-west":                  "us-east\tleader, up\nap-south\tvoter, up\n", // as many as one likes
		"schema":                          "status\tT",
		"events us-west us-east ap-south": "",
	} {
		got, _ := tab(t, t.TempDir(), url, append(strings.Fields(line), "")...)
		if line == "schema" {
			got, _, _ = strings.Cut(got, "he")
		}
		if got != want {
			t.Errorf("%s offers\n%s\nwant\n%s", line, got, want)
		}
	}
	if got, _ := tab(t, t.TempDir(), []string{member(t, "degraded")}, "promote", ""); !strings.HasPrefix(got, "us-west\tlag ") || strings.Contains(got, "ap-south") {
		t.Errorf("a member that is down is offered for a leader: %q", got)
	}
}

// Where nobody answers in time, the last answer serves for a while; later there is silence.
func TestComplete_FallsBackOnWhatWasAnsweredMomentsAgo(t *testing.T) {
	t.Parallel()
	status, err := os.ReadFile("testdata/status/ok.json")
	if err != nil {
		t.Fatal(err)
	}
	hang := make(chan bool, 1)
	hang <- false
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		dead := <-hang
		hang <- dead
		if dead {
			<-r.Context().Done()
			return
		}
		w.Header().Set(api.HeaderMember, "us-west")
		w.Write(status) // as a roster it is empty
	}))
	t.Cleanup(s.Close)
	cache := t.TempDir()
	want, _ := tab(t, cache, []string{s.URL}, "members", "show", "")
	if want == "" {
		t.Fatal("nothing is offered")
	}
	files, err := filepath.Glob(filepath.Join(cache, "tidalctl", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, %v", files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	<-hang
	hang <- true
	if got, _ := tab(t, cache, []string{s.URL}, "members", "show", ""); got != want {
		t.Errorf("in silence %q, want %q", got, want)
	}
	if got, _ := tab(t, cache, []string{silent(t)}, "members", "show", ""); got != "" {
		t.Errorf("of another cluster: %q", got)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	old := bytes.Replace(b, []byte(`"at":"`+time.Now().UTC().Format("2006")), []byte(`"at":"2020`), 1)
	for name, content := range map[string][]byte{"old": old, "of the future": bytes.Replace(old, []byte("2020"), []byte("2999"), 1), "broken": b[:20], "empty": nil} {
		if err := os.WriteFile(files[0], content, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, _ := tab(t, cache, []string{s.URL}, "members", "show", ""); got != "" {
			t.Errorf("what is kept is %s: %q", name, got)
		}
	}
}

// A member that waits for others which are silent knows their names meanwhile.
func TestComplete_FromTheRoster(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/cluster/status" {
			<-r.Context().Done()
			return
		}
		body, err := os.ReadFile("testdata/members.json")
		if err != nil {
			t.Error(err)
		}
		w.Header().Set(api.HeaderMember, "us-west")
		w.Write(body)
	}))
	t.Cleanup(s.Close)
	if got, _ := tab(t, t.TempDir(), []string{s.URL}, "promote", ""); got != "us-west\tvoter\nap-south\tvoter\n" {
		t.Errorf("offered %q", got)
	}
	if got, _ := tab(t, t.TempDir(), []string{s.URL}, "members", "show", ""); got != "us-east\tleader\nus-west\tvoter\nap-south\tvoter\n" {
		t.Errorf("offered %q", got)
	}
}

// Silence, refusals and a wrong configuration offer nothing, say nothing, and cost little; behind a
// silent endpoint the living one is found.
func TestComplete_IsSilent(t *testing.T) {
	t.Parallel()
	for name, endpoint := range map[string]string{
		"silent": silent(t), "dead": dead(t), "wrong key": refusing(t, api.CodeUnauthorized), "no URL": "localhost:9501",
	} {
		if got, _ := tab(t, t.TempDir(), []string{endpoint}, "promote", ""); got != "" {
			t.Errorf("%s: offered %q", name, got)
		}
	}
	if got, _ := tab(t, "/proc/nowhere", []string{silent(t), member(t, "ok")}, "promote", ""); !strings.Contains(got, "us-west") {
		t.Errorf("behind a silent endpoint: offered %q", got)
	}
}

func TestComplete_Flags(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"status --output": "table\nwide\njson\nyaml\nname\n",
		"status --color":  "auto\nalways\nnever\n",
	} {
		if got, _ := tab(t, t.TempDir(), nil, append(strings.Fields(line), "")...); got != want {
			t.Errorf("%s offers %q, want %q", line, got, want)
		}
	}
}
