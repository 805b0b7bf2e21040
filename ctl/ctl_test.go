package ctl_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/ctl/iostreams"
	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/auth/authtest"
)

// runVerb runs a verb of impact that does act, with vars as the environment.
func runVerb(t *testing.T, impact ctl.Impact, vars map[string]string, act func(*ctl.Factory) error, args ...string) (exit int, out, errs string) {
	t.Helper()
	io, stdout, stderr := iostreams.Test()
	f := &ctl.Factory{IO: io, Env: func(name string) string { return vars[name] }, Build: api.VersionInfo{Version: "1.2.3"}}
	exit = ctl.Run(t.Context(), f, func(f *ctl.Factory) []*cobra.Command {
		return []*cobra.Command{{Use: "act", Short: "Act", Annotations: impact.Annotation(), RunE: func(*cobra.Command, []string) error { return act(f) }}}
	}, append([]string{"act"}, args...))
	return exit, stdout.String(), stderr.String()
}

// Every code that a member can send has an exit code of the table, and so has one that a newer member
// may send.
func TestExitCodes_OfProblems(t *testing.T) {
	t.Parallel()
	classes := map[int]bool{}
	for _, c := range ctl.ExitClasses() {
		if classes[c.Code] || c.Class == "" || c.Means == "" {
			t.Errorf("row %+v is double or not whole", c)
		}
		classes[c.Code] = true
	}
	if classes[2] {
		t.Error("2 is what Go ends a panic with")
	}
	exitOf := func(p *api.Problem) int {
		return ctl.Explain(&client.ProblemError{Problem: p}, ctl.ImpactChange).Exit
	}
	for _, spec := range api.Codes() {
		if got := exitOf(api.NewProblem(spec.Code, "d")); got != spec.Exit || !classes[got] || got == 0 {
			t.Errorf("%s: exit %d, want %d, in the table", spec.Code, got, spec.Exit)
		}
	}
	for status, want := range map[int]int{
		http.StatusBadRequest: 64, http.StatusForbidden: 4, http.StatusNotFound: 5, http.StatusConflict: 6, http.StatusTooManyRequests: 1,
		http.StatusInternalServerError: 1, http.StatusServiceUnavailable: 8, http.StatusGatewayTimeout: 9,
	} {
		if got := exitOf(&api.Problem{Code: "of_the_future", Status: status}); got != want {
			t.Errorf("unknown code with status %d: exit %d, want %d", status, got, want)
		}
	}
}

// The page of exit codes is made of both tables: every code stands under its exit code.
func TestHelp_ExitCodesNameEveryCode(t *testing.T) {
	t.Parallel()
	streams, out, _ := iostreams.Test()
	f := &ctl.Factory{IO: streams, Env: func(string) string { return "" }}
	if exit := ctl.Run(t.Context(), f, func(*ctl.Factory) []*cobra.Command {
		return []*cobra.Command{{Use: "act", Run: func(*cobra.Command, []string) {}}}
	}, []string{"help", "exit-codes"}); exit != 0 {
		t.Fatalf("exit %d", exit)
	}
	_, page, _ := strings.Cut(out.String(), "by the exit code")
	under := map[string]string{}
	var exit string
	for line := range strings.Lines(page) {
		for _, word := range strings.Fields(line) {
			if strings.Trim(word, "0123456789") == "" {
				exit = word
			}
			under[word] = exit
		}
	}
	for _, spec := range api.Codes() {
		if got := under[string(spec.Code)]; got != fmt.Sprint(spec.Exit) {
			t.Errorf("%s stands under %q, want %d", spec.Code, got, spec.Exit)
		}
	}
	for _, c := range ctl.ExitClasses() {
		if !strings.Contains(out.String(), fmt.Sprintf("%4d  %s", c.Code, c.Class)) {
			t.Errorf("exit code %d is not on the page", c.Code)
		}
	}
}

func TestError_FourParts(t *testing.T) {
	t.Parallel()
	measured, threshold := 18402.0, 5000.0
	problem := &client.ProblemError{Endpoint: "db1:9501", Member: "td-1", Problem: &api.Problem{
		Code: "lag_too_high", Status: http.StatusConflict, Detail: "td-2 is behind", Effect: api.EffectNone, Retryable: true,
		Measured: &measured, Threshold: &threshold, Unit: "entries", Leader: "td-1", Try: "tidalctl wait --for=healthy", RetryAfterMS: 1500,
	}}
	act := func(*ctl.Factory) error {
		return fmt.Errorf("act: %w", ctl.Failed("td-2 was not made leader", problem))
	}

	exit, out, errs := runVerb(t, ctl.ImpactChange, nil, act)
	want := `error: td-2 was not made leader  [refused: lag_too_high]
  why    td-1: td-2 is behind
         measured 18402 entries, limit 5000 entries
         the leader is td-1
         it may work in 1.5s
  state  nothing changed
  try    tidalctl wait --for=healthy
`
	if exit != 6 || out != "" || errs != want {
		t.Errorf("exit %d, stdout %q, stderr:\n%s\nwant:\n%s", exit, out, errs, want)
	}
	_, _, errs = runVerb(t, ctl.ImpactChange, nil, act, "-o", "json")
	want = `{"schema":"tidalctl.error/v1","code":"lag_too_high","class":"refused","exit":6,"message":"td-2 was not made leader",` +
		`"why":"td-1: td-2 is behind\nmeasured 18402 entries, limit 5000 entries\nthe leader is td-1\nit may work in 1.5s","state":"nothing changed",` +
		`"effect":"none","retryable":true,"details":{"endpoint":"db1:9501","leader":"td-1","measured":18402,"member":"td-1","retry_after_ms":1500,"threshold":5000,"unit":"entries"},` +
		`"try":["tidalctl wait --for=healthy"]}` + "\n"
	if errs != want {
		t.Errorf("JSON:\n%s\nwant:\n%s", errs, want)
	}
}

// What a lost answer leaves is unknown for a command that changes, and nothing for one that reads.
func TestError_StateDependsOnTheImpact(t *testing.T) {
	t.Parallel()
	act := func(*ctl.Factory) error {
		return &client.ProblemError{Problem: api.NewProblem(api.CodeOutcomeUnknown, "d")}
	}
	for impact, want := range map[ctl.Impact]string{ctl.ImpactChange: "state  unknown: it may have happened", ctl.ImpactRead: "state  nothing changed"} {
		if exit, _, errs := runVerb(t, impact, nil, act); exit != 9 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d, want %q in\n%s", impact, exit, want, errs)
		}
	}
}

func TestError_CannotControlTheTerminal(t *testing.T) {
	t.Parallel()
	_, _, errs := runVerb(t, ctl.ImpactRead, nil, func(*ctl.Factory) error { return errors.New("a\x1b[2Jb\nc m\u00fcde") })
	if !strings.HasPrefix(errs, `error: a\x1b[2Jb\nc m\u00fcde  [failed: failed]`) {
		t.Errorf("stderr %q", errs)
	}
}

// A panic is caught, kept in a file of the user's, and ends with 70; where no file can be written the
// stack is shown.
func TestRun_KeepsAReportOfABug(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bug := func(*ctl.Factory) error { panic("index out of sorts") }
	exit, _, errs := runVerb(t, ctl.ImpactRead, map[string]string{"XDG_STATE_HOME": dir}, bug)
	files, err := filepath.Glob(filepath.Join(dir, "tidalctl", "bug-*.txt"))
	if err != nil || len(files) != 1 {
		t.Fatalf("reports %v, %v", files, err)
	}
	if exit != 70 || !strings.Contains(errs, "[bug: panic]") || !strings.Contains(errs, "index out of sorts") || !strings.Contains(errs, files[0]) {
		t.Errorf("exit %d:\n%s", exit, errs)
	}
	report, err := os.ReadFile(files[0])
	if err != nil || !strings.Contains(string(report), "tidalctl 1.2.3") || !strings.Contains(string(report), "ctl_test.go") {
		t.Errorf("report: %v\n%s", err, report)
	}
	blocked := filepath.Join(dir, "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if exit, _, errs := runVerb(t, ctl.ImpactRead, map[string]string{"XDG_STATE_HOME": blocked}, bug); exit != 70 || !strings.Contains(errs, "ctl_test.go") {
		t.Errorf("exit %d:\n%s", exit, errs)
	}
}

// The key comes from a file; a file that holds none is a fault of the configuration, and is not shown.
func TestFactory_TokenFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	act := func(f *ctl.Factory) error {
		_, err := f.Client(0)
		return err
	}
	for content, want := range map[string]int{"k3y\n": 0, "": 78, "two words": 78, "bin\x00ary": 78} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		exit, _, errs := runVerb(t, ctl.ImpactRead, map[string]string{"TIDALCTL_TOKEN_FILE": file}, act)
		if exit != want || content != "" && strings.Contains(errs, content) {
			t.Errorf("file %q: exit %d, want %d; %s", content, exit, want, errs)
		}
	}
	if exit, _, _ := runVerb(t, ctl.ImpactRead, map[string]string{"TIDALCTL_TOKEN_FILE": file + "-missing"}, act); exit != 78 {
		t.Errorf("missing file: exit %d, want 78", exit)
	}
}

// TLS comes from files that the environment names; what cannot be used is a fault of the configuration.
func TestFactory_TLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := authtest.NewCA(t, dir, "ca")
	file := func(name string) string { return filepath.Join(dir, name) }
	ca.Issue(file("cert"), file("key"), time.Hour, "127.0.0.1")
	pair, err := tls.LoadX509KeyPair(file("cert"), file("key"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pem, err := os.ReadFile(ca.File)
	if err != nil || !pool.AppendCertsFromPEM(pem) {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(api.HeaderMember, "a")
		io.WriteString(w, "{}")
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	act := func(f *ctl.Factory) error {
		c, err := f.Client(0)
		if err != nil {
			return err
		}
		_, _, err = c.Status(t.Context())
		return err
	}
	for _, tc := range []struct {
		ca, cert, key string
		want          int
	}{
		{ca.File, file("cert"), file("key"), 0},
		{ca.File, "", "", 7},
		{"", file("cert"), file("key"), 7},
		{ca.File, file("cert"), "", 78},
		{ca.File, "", file("key"), 78},
		{file("none"), "", "", 78},
		{file("key"), "", "", 78},
		{ca.File, ca.File, file("key"), 78},
	} {
		env := map[string]string{"TIDALCTL_ENDPOINTS": s.URL, "TIDALCTL_CA_FILE": tc.ca, "TIDALCTL_CERT_FILE": tc.cert, "TIDALCTL_KEY_FILE": tc.key}
		if exit, _, errs := runVerb(t, ctl.ImpactRead, env, act); exit != tc.want || exit == 7 && !strings.Contains(errs, "tls") {
			t.Errorf("%+v: exit %d, want %d; %s", tc, exit, tc.want, errs)
		}
	}
}

// The flag wins over the variable, the variable over the cluster of tidald dev.
func TestFactory_Endpoints(t *testing.T) {
	t.Parallel()
	var got []string
	act := func(f *ctl.Factory) error {
		c, err := f.Client(0)
		if err == nil {
			got = c.Endpoints()
		}
		return err
	}
	env := map[string]string{"TIDALCTL_ENDPOINTS": "http://a:1, http://b:2,"}
	for _, tc := range []struct {
		vars map[string]string
		args []string
		want string
	}{
		{nil, nil, "http://127.0.0.1:9501 http://127.0.0.1:9502 http://127.0.0.1:9503"},
		{env, nil, "http://a:1 http://b:2"},
		{env, []string{"--endpoint", "http://c:3", "--endpoint", "https://d"}, "http://c:3 https://d"},
	} {
		if exit, _, errs := runVerb(t, ctl.ImpactRead, tc.vars, act, tc.args...); exit != 0 || strings.Join(got, " ") != tc.want {
			t.Errorf("exit %d, endpoints %v, want %s; %s", exit, got, tc.want, errs)
		}
	}
}
