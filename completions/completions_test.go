package completions_test

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/tidaldb/tidal/completions"
	"github.com/tidaldb/tidal/ctl/verbs"
)

func TestScripts_AreCurrent(t *testing.T) {
	t.Parallel()
	for _, shell := range verbs.Shells() {
		want, err := completions.Script(shell)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(completions.File(shell))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the commands make today: run go generate ./completions", completions.File(shell))
		}
	}
}

// Every shell that is installed reads its script without a complaint.
func TestScripts_Parse(t *testing.T) {
	t.Parallel()
	for shell, check := range map[string][]string{
		"bash": {"bash", "-n"}, "zsh": {"zsh", "-n"}, "fish": {"fish", "--no-execute"},
	} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(shell); err != nil {
				t.Skipf("%s is not installed", shell)
			}
			out, err := exec.CommandContext(t.Context(), check[0], append(check[1:], completions.File(shell))...).CombinedOutput()
			if err != nil || len(out) > 0 {
				t.Errorf("%v: %v\n%s", check, err, out)
			}
		})
	}
}
