package daemon

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidaldb/tidal/testenv/golden"
)

var update = flag.Bool("update", false, "write the table into METRICS.md")

// metric is one family that a member exports.
type metric struct {
	name, kind, help string
	labels           []string
}

var description = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), (?:unit: "\w*", )?constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// exported returns every family of our own of a member that runs, by name: also those that have no sample
// yet.
func exported(t *testing.T, d *Daemon) []metric {
	t.Helper()
	kinds := map[string]string{}
	for line := range strings.Lines(scrape(t, d)) {
		if f := strings.Fields(line); len(f) == 4 && f[1] == "TYPE" {
			kinds[f[2]] = f[3]
		}
	}
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		d.registry.Describe(descs)
	}()
	seen := map[string]bool{}
	var all []metric
	for desc := range descs {
		parts := description.FindStringSubmatch(desc.String())
		if parts == nil {
			t.Errorf("%s is not understood", desc)
			continue
		}
		name, err := strconv.Unquote(parts[1])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(name, "tidal_") || seen[name] {
			continue
		}
		seen[name] = true
		help, err := strconv.Unquote(parts[2])
		if err != nil {
			t.Fatal(err)
		}
		m := metric{name: name, help: help, kind: kinds[name]}
		if m.kind == "" { // a vector without a sample yet; histograms are made with theirs
			m.kind = "gauge"
			if strings.HasSuffix(name, "_total") {
				m.kind = "counter"
			}
		}
		for _, pair := range strings.Split(parts[3], ",") {
			if label, _, ok := strings.Cut(pair, "="); ok {
				m.labels = append(m.labels, label)
			}
		}
		for _, label := range strings.Split(parts[4], ",") {
			if label != "" {
				m.labels = append(m.labels, label)
			}
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return all
}

// scrape returns what Prometheus would read.
func scrape(t *testing.T, d *Daemon) string {
	t.Helper()
	status, text := request(t, "GET", "http://"+d.metricsListener.Addr().String()+"/metrics", "")
	if status != 200 {
		t.Fatalf("GET /metrics = %d", status)
	}
	return text
}

// started returns a member that runs and has taken a write.
func started(t *testing.T) *Daemon {
	t.Helper()
	c := load(t, filepath.Join(t.TempDir(), "data"), "")
	c.Drills.Enabled = true // it has metrics of its own
	d, err := New(Options{Config: c, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	if st, b := request(t, "POST", "http://"+c.HTTPBind+"/items", `{"id":"a"}`); st != 201 {
		t.Fatalf("POST /items = %d %s", st, b)
	}
	return d
}

// Dashboards and alerts rest on these names: every package's, in one table.
func TestMetrics_DocumentIsCurrent(t *testing.T) {
	var b strings.Builder
	b.WriteString("| metric | type | labels | what it says |\n|---|---|---|---|\n")
	for _, m := range exported(t, started(t)) {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, strings.Join(m.labels, ", "), m.help)
	}
	golden.Table(t, "METRICS.md", b.String(), *update)
}

// Names say the package, what is counted and in what unit; a counter ends in _total.
func TestMetrics_NamesKeepTheRules(t *testing.T) {
	packages := map[string]bool{}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		packages[e.Name()] = e.IsDir()
	}
	d := started(t)
	for _, m := range exported(t, d) {
		parts := strings.Split(m.name, "_")
		if !packages[parts[1]] || len(parts) < 3 {
			t.Errorf("%s: %s is no package", m.name, parts[1])
		}
		if (m.kind == "counter") != strings.HasSuffix(m.name, "_total") {
			t.Errorf("%s is a %s", m.name, m.kind)
		}
		if !strings.HasSuffix(m.help, ".") || len(m.help) < 10 {
			t.Errorf("%s: %q is no sentence", m.name, m.help)
		}
		for _, unit := range []string{"_ms", "_millis", "_milliseconds", "_minutes", "_kb", "_mb", "_percent"} {
			if strings.HasSuffix(strings.TrimSuffix(m.name, "_total"), unit) {
				t.Errorf("%s is not in a base unit: seconds, bytes, a ratio", m.name)
			}
		}
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Log("promtool is not installed: the exposition is not linted")
		return
	}
	var text strings.Builder
	for line := range strings.Lines(scrape(t, d)) {
		if strings.HasPrefix(strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE "), "tidal_") {
			text.WriteString(line)
		}
	}
	cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(text.String())
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
