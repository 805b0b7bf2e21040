package verbs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A page for every command, in roff that a formatter takes without a word, with the text of the help.
func TestDocsMan(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man")
	exit, out, errs := run(t, nil, "docs", "man", "--dir", dir)
	if exit != 0 || out != "" || !strings.Contains(errs, "pages in") {
		t.Fatalf("exit %d, %s%s", exit, out, errs)
	}
	for file, wants := range map[string][]string{
		"tidalctl.1":            {`.TH "TIDALCTL" 1 "" "tidalctl 0.1.0" "Tidal"`, `\fBtidalctl\-members\fR(1)`, `.SH "EXIT STATUS"`, "degraded", "TIDALCTL_ENDPOINTS", `.SH "SAFETY"`, `.SH "SCHEMAS"`},
		"tidalctl-members.1":    {`tidalctl\-members \- show and change the members`, `.SH "TIDALCTL MEMBERS SHOW"`, `tidalctl members show us\-east`},
		"tidalctl-events.1":     {`\fB\-f\fR, \fB\-\-follow\fR`, "Impact: read"},
		"tidalctl-completion.1": {`> \(ti/.local/share/bash\-completion`},
	} {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(b), want) {
				t.Errorf("%s does not say %s", file, want)
			}
		}
	}
	if exit, _, errs := run(t, nil, "docs", "man"); exit != 64 || !strings.Contains(errs, "--dir") {
		t.Errorf("without --dir: exit %d, %s", exit, errs)
	}
	if exit, _, _ := run(t, nil, "docs", "man", "--dir", filepath.Join(dir, "tidalctl.1")); exit != 1 {
		t.Errorf("into a file: exit %d", exit)
	}
	if _, out, _ := run(t, nil); strings.Contains(out, "docs") {
		t.Errorf("the help lists docs:\n%s", out)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("mandoc", func(t *testing.T) {
		if _, err := exec.LookPath("mandoc"); err != nil {
			t.Skip("skipped: mandoc is not installed")
		}
		// A page has no date, so that it is the same whenever it is made.
		out, _ := exec.CommandContext(t.Context(), "mandoc", append([]string{"-T", "lint", "-W", "warning"}, pages...)...).CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if !strings.Contains(line, "missing date") {
				t.Error(line)
			}
		}
	})
	t.Run("man", func(t *testing.T) {
		if _, err := exec.LookPath("man"); err != nil {
			t.Skip("skipped: man is not installed")
		}
		cmd := exec.CommandContext(t.Context(), "man", "--warnings", "-E", "UTF-8", "-l", filepath.Join(dir, "tidalctl.1"))
		cmd.Env = append(os.Environ(), "MANWIDTH=120", "MANPAGER=cat")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "EXIT STATUS") || strings.Contains(string(out), "warning") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
