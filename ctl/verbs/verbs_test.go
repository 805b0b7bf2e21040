package verbs_test

import (
	"bytes"
	"context"
	"flag"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/iostreams"
	"github.com/tidaldb/tidal/ctl/verbs"
	"github.com/tidaldb/tidal/daemon/api"
)

var update = flag.Bool("update", false, "write the golden files")

// run executes one command line against endpoints and returns what a user would see.
func run(t *testing.T, endpoints []string, args ...string) (exit int, out, errs string) {
	t.Helper()
	return runContext(t.Context(), t, endpoints, args...)
}

func runContext(ctx context.Context, t *testing.T, endpoints []string, args ...string) (exit int, out, errs string) {
	t.Helper()
	io, stdout, stderr := iostreams.Test()
	f := newFactory(t, io, endpoints)
	exit = ctl.Run(ctx, f, verbs.All, args)
	return exit, stdout.String(), stderr.String()
}

func newFactory(t *testing.T, io *iostreams.Streams, endpoints []string) *ctl.Factory {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	env := map[string]string{"TIDALCTL_ENDPOINTS": strings.Join(endpoints, ","), "LANG": "C.UTF-8", "HOME": t.TempDir()}
	return &ctl.Factory{
		IO: io, Env: func(name string) string { return env[name] }, Transport: transport,
		Build: api.VersionInfo{Version: "0.1.0", Commit: "5bb4cbe", Go: "go1.26"},
	}
}

// member serves fixtures as a member would.
func member(t *testing.T, status string) string {
	t.Helper()
	serve := func(file string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			body, err := os.ReadFile(filepath.Join("testdata", file))
			if err != nil {
				t.Error(err)
			}
			w.Header().Set(api.HeaderMember, "us-west")
			w.Header().Set(api.HeaderTerm, "7")
			w.Write(body)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /cluster/status", serve(filepath.Join("status", status+".json")))
	mux.Handle("GET /cluster/members", serve("members.json"))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// refusing answers every request with a problem.
func refusing(t *testing.T, code api.Code) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p := api.NewProblem(code, "a detail with 3 in it")
		w.Header().Set("Content-Type", api.ProblemType)
		w.Header().Set(api.HeaderMember, "us-west")
		w.WriteHeader(p.Status)
		w.Write([]byte(`{"code":"` + string(p.Code) + `","detail":"` + p.Detail + `"}`))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// dead is an endpoint at which nothing listens.
func dead(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// silent is an endpoint that takes connections and never answers.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return "http://" + l.Addr().String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update writes it):\n%s\nwant:\n%s", path, got, want)
	}
}

func TestStatus_EveryFormat(t *testing.T) {
	t.Parallel()
	for _, fixture := range []string{"ok", "degraded", "critical", "split", "unknown"} {
		for _, format := range []string{"table", "wide", "json", "yaml", "name"} {
			t.Run(fixture+"/"+format, func(t *testing.T) {
				t.Parallel()
				exit, out, errs := run(t, []string{member(t, fixture)}, "status", "-o", format)
				if exit != 0 || errs != "" {
					t.Errorf("exit %d, stderr %q", exit, errs)
				}
				golden(t, filepath.Join("status", fixture+"."+format+".golden"), out)
			})
		}
	}
}

func TestMembers_EveryFormat(t *testing.T) {
	t.Parallel()
	url := member(t, "degraded")
	for _, tc := range []struct{ name, args string }{
		{"list", "members list"},
		{"show", "members show us-west"},
		{"show-dead", "members show ap-south"},
	} {
		for _, format := range []string{"table", "wide", "json", "yaml", "name"} {
			t.Run(tc.name+"/"+format, func(t *testing.T) {
				t.Parallel()
				exit, out, errs := run(t, []string{url}, append(strings.Fields(tc.args), "-o", format)...)
				if exit != 0 || errs != "" {
					t.Errorf("exit %d, stderr %q", exit, errs)
				}
				golden(t, "members-"+tc.name+"."+format+".golden", out)
			})
		}
	}
}

// On a terminal the same table, cut to its width and with the level in colour.
func TestStatus_OnATerminal(t *testing.T) {
	t.Parallel()
	io, out, _ := iostreams.Test()
	io.OutTTY, io.Width = true, func() int { return 60 }
	if exit := ctl.Run(t.Context(), newFactory(t, io, []string{member(t, "degraded")}), verbs.All, []string{"status"}); exit != 0 {
		t.Errorf("exit %d", exit)
	}
	golden(t, "status/degraded.tty.golden", out.String())
}

func TestCommands_ExitCodes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		endpoint func(*testing.T) string
		args     string
		want     int
		errs     string // part of stderr
	}{
		{"degraded is an answer", fixture("degraded"), "status", 0, ""},
		{"ok", fixture("ok"), "status --exit-code", 0, ""},
		{"degraded", fixture("degraded"), "status --exit-code", 10, ""},
		{"critical", fixture("critical"), "status --exit-code", 11, ""},
		{"unknown", fixture("unknown"), "status --exit-code", 11, ""},
		{"unreachable", dead, "status", 7, "refused: nothing listens there"},
		{"no time", dead, "status --timeout banana", 64, `--timeout "banana": want a time like 90s, 15m or 2h`},
		{"unreachable members", dead, "members list", 7, "[unreachable: no_endpoint]"},
		{"no leader", problem(api.CodeNoLeader), "status", 8, "[no_leader: no_leader]"},
		{"wrong key", problem(api.CodeUnauthorized), "status", 4, "[auth: unauthorized]"},
		{"too old a member", problem(api.CodeNoRoute), "status", 5, "us-west: a detail with 3 in it"},
		{"a member's fault", problem(api.CodeInternal), "status", 1, "state  nothing changed"},
		{"no such member", fixture("ok"), "members show us-eest", 5, "close to it: us-east, us-west"},
		{"typo", dead, "statsu", 64, "tidalctl status"},
		{"typo in a group", dead, "members lst", 64, "tidalctl members list"},
		{"group alone", dead, "members", 64, "list, promote, remove, replace, show"},
		{"help typo", dead, "help nonsense", 64, "unknown_command"},
		{"unknown flag", dead, "status --no-such-flag", 64, "unknown_flag"},
		{"flag without value", dead, "status -o", 64, "bad_flag"},
		{"unknown format", dead, "status -o nonsense", 64, "table, wide, json, yaml, name, template="},
		{"unknown format of version", dead, "version -o nonsense", 64, "table, wide"},
		{"bad template field", fixture("ok"), "status -o template={{.laeder}}", 64, "laeder"},
		{"bad colour", dead, "status --color=blue", 64, "auto, always or never"},
		{"negative timeout", dead, "status --timeout=-1s", 64, "positive"},
		{"bad endpoint", dead, "status --endpoint localhost:9501", 64, "want a URL"},
		{"argument too many", dead, "status now", 64, "bad_argument"},
		{"watch too fast", dead, "status --watch=1ms", 64, "at least 200ms"},
		{"watch and exit code", dead, "status --watch --exit-code", 64, "--watch has no end"},
		{"no condition", dead, "wait", 64, "--for is missing"},
		{"unknown condition", dead, "wait --for=sun", 64, "want leader, healthy"},
		{"unknown role", dead, "wait --for=member=a:king", 64, "voter, learner, removed, leader"},
		{"no shell", dead, "completion", 64, "bash, zsh, fish, powershell"},
		{"unknown shell", dead, "completion tcsh", 64, "bash, zsh, fish, powershell"},
		{"version alone", dead, "version", 0, "members' versions are not known"},
		{"holds", fixture("ok"), "wait --for=healthy", 0, ""},
		{"does not hold", fixture("degraded"), "wait --for=healthy --timeout=1ms", 124, "[timeout: timeout]"},
		{"bad environment", func(*testing.T) string { return "localhost:9501" }, "status", 78, "TIDALCTL_ENDPOINTS"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			exit, out, errs := run(t, []string{tc.endpoint(t)}, strings.Fields(tc.args)...)
			if exit != tc.want || !strings.Contains(errs, tc.errs) {
				t.Errorf("tidalctl %s: exit %d, want %d with %q; stderr:\n%s", tc.args, exit, tc.want, tc.errs, errs)
			}
			if exit != 0 && exit != 10 && exit != 11 && out != "" {
				t.Errorf("a failure wrote to stdout: %q", out)
			}
		})
	}
}

func fixture(name string) func(*testing.T) string {
	return func(t *testing.T) string { return member(t, name) }
}

func problem(code api.Code) func(*testing.T) string {
	return func(t *testing.T) string { return refusing(t, code) }
}

// With -o json an error is one line of JSON, wherever -o stands and even when flags do not parse.
func TestErrors_AsJSON(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"status -o json", "-o json typo", "status --no-such-flag -ojson", "members typo --output=json"} {
		exit, out, errs := run(t, []string{"http://127.0.0.1:1"}, strings.Fields(args)...)
		if exit == 0 || out != "" || !strings.HasPrefix(errs, `{"schema":"tidalctl.error/v1","code":"`) || strings.Count(errs, "\n") != 1 {
			t.Errorf("tidalctl %s: exit %d, stdout %q, stderr %q", args, exit, out, errs)
		}
	}
}

// An endpoint that hangs costs two seconds, whatever is asked.
func TestStatus_HangingEndpointIsBounded(t *testing.T) {
	t.Parallel()
	start := time.Now()
	exit, _, errs := run(t, []string{silent(t)}, "status")
	if took := time.Since(start); exit != 7 || took > 4*time.Second || !strings.Contains(errs, "timeout: no answer in 2") {
		t.Errorf("exit %d after %v: %s", exit, took, errs)
	}
	start = time.Now()
	exit, _, _ = run(t, []string{silent(t)}, "status", "--timeout=100ms")
	if took := time.Since(start); exit != 7 || took > time.Second {
		t.Errorf("with --timeout=100ms: exit %d after %v", exit, took)
	}
}

// A dead and a silent endpoint before the living one: the answer comes, within two seconds.
func TestStatus_FindsTheLivingEndpoint(t *testing.T) {
	t.Parallel()
	exit, out, errs := run(t, []string{dead(t), silent(t), member(t, "ok")}, "status", "-o", "name")
	if exit != 0 || out != "us-east\nus-west\nap-south\n" {
		t.Errorf("exit %d: %s%s", exit, out, errs)
	}
}

func TestVersion_WithAndWithoutCluster(t *testing.T) {
	t.Parallel()
	_, out, _ := run(t, []string{member(t, "degraded")}, "version")
	golden(t, "version.table.golden", out)
	exit, out, errs := run(t, []string{dead(t)}, "version", "-o", "json")
	if exit != 0 || !strings.Contains(out, `"members": null`) || !strings.Contains(errs, "no endpoint answered") {
		t.Errorf("exit %d: %s%s", exit, out, errs)
	}
}

// every command of the tree, with its path.
func walk(cmd *cobra.Command, visit func(path []string, cmd *cobra.Command)) {
	var rec func([]string, *cobra.Command)
	rec = func(path []string, cmd *cobra.Command) {
		visit(path, cmd)
		for _, sub := range cmd.Commands() {
			rec(append(path[:len(path):len(path)], sub.Name()), sub)
		}
	}
	rec(nil, cmd)
}

func TestTree_EveryCommandKeepsTheRules(t *testing.T) {
	t.Parallel()
	io, _, _ := iostreams.Test()
	root := ctl.NewRoot(newFactory(t, io, nil), verbs.All)
	walk(root, func(path []string, cmd *cobra.Command) {
		name := cmd.CommandPath()
		if _, ok := ctl.ImpactOf(cmd); !ok {
			t.Errorf("%s has no impact", name)
		}
		if cmd.Short == "" || cmd.HasParent() && !cmd.Parent().HasParent() && cmd.GroupID == "" {
			t.Errorf("%s has no short help or no group", name)
		}
		if cmd.Runnable() && cmd.Example == "" && cmd.Annotations["topic"] == "" && !strings.HasPrefix(name, "tidalctl help ") {
			t.Errorf("%s has no example", name)
		}
		if cmd.HasSubCommands() {
			if exit, out, errs := run(t, nil, append(path, "no-such-command")...); exit != 64 || out != "" || errs == "" {
				t.Errorf("%s no-such-command: exit %d, stdout %q, stderr %q", name, exit, out, errs)
			}
		}
		if exit, out, errs := run(t, nil, append(path, "--no-such-flag")...); exit != 64 || out != "" {
			t.Errorf("%s --no-such-flag: exit %d, stdout %q, stderr %q", name, exit, out, errs)
		}
		if exit, out, errs := run(t, nil, append(path, "--help")...); exit != 0 || out == "" || errs != "" {
			t.Errorf("%s --help: exit %d, stdout %q, stderr %q", name, exit, out, errs)
		}
	})
}

func TestHelp_Topics(t *testing.T) {
	t.Parallel()
	for topic, want := range map[string]string{"exit-codes": "124  timeout", "environment": "TIDALCTL_ENDPOINTS", "formatting": "tidalctl.status/v1", "safety": "--dry-run", "schemas": "tidalctl schema error"} {
		exit, out, errs := run(t, nil, "help", topic)
		if exit != 0 || !strings.Contains(out, want) || errs != "" {
			t.Errorf("help %s: exit %d, %q %q", topic, exit, out, errs)
		}
	}
	if _, out, _ := run(t, nil, "help", "members", "list"); !strings.Contains(out, "tidalctl members list [flags]") {
		t.Errorf("help members list: %q", out)
	}
	if _, out, _ := run(t, nil); !strings.Contains(out, "127.0.0.1:9501") || !strings.Contains(out, "exit-codes|environment|formatting|safety|schemas") {
		t.Errorf("help of the root: %q", out)
	}
}

// Completion offers members, and keeps silent when nobody answers.
func TestCompletion_OfMembers(t *testing.T) {
	t.Parallel()
	complete := func(endpoint string) string {
		io, _, _ := iostreams.Test()
		root := ctl.NewRoot(newFactory(t, io, []string{endpoint}), verbs.All)
		var out bytes.Buffer
		root.SetOut(&out) // cobra writes completions there
		root.SetErr(&bytes.Buffer{})
		root.SetArgs([]string{"__complete", "members", "show", ""})
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Error(err)
		}
		return out.String()
	}
	if got := complete(member(t, "degraded")); !strings.HasPrefix(got, "us-east\tleader, up\nus-west\tvoter, up\nap-south\tvoter, down\n") || !strings.HasSuffix(got, ":4\n") {
		t.Errorf("completion: %q", got)
	}
	start := time.Now()
	if got := complete(silent(t)); got != ":4\n" || time.Since(start) > time.Second {
		t.Errorf("completion of a silent cluster after %v: %q", time.Since(start), got)
	}
}

// What an example shows can be pasted: the command is there, and takes these flags and arguments.
func TestExamples_CanBeTyped(t *testing.T) {
	t.Parallel()
	io, _, _ := iostreams.Test()
	walk(ctl.NewRoot(newFactory(t, io, nil), verbs.All), func(_ []string, cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " > ")
			words := strings.FieldsFunc(line, spaceOutsideQuotes())
			if len(words) == 0 || words[0] != "tidalctl" {
				continue
			}
			for i, w := range words {
				words[i] = strings.ReplaceAll(w, "'", "")
			}
			root := ctl.NewRoot(newFactory(t, io, nil), verbs.All)
			target, rest, err := root.Find(words[1:])
			if err == nil {
				if err = target.ParseFlags(rest); err == nil {
					if err = target.ValidateArgs(target.Flags().Args()); err == nil {
						err = root.PersistentPreRunE(target, nil)
					}
				}
			}
			if err != nil {
				t.Errorf("%s: %q: %v", cmd.CommandPath(), line, err)
			}
		}
	})
}

// spaceOutsideQuotes separates the words of a line as a shell does.
func spaceOutsideQuotes() func(rune) bool {
	quoted := false
	return func(r rune) bool {
		if r == '\'' {
			quoted = !quoted
		}
		return r == ' ' && !quoted
	}
}
