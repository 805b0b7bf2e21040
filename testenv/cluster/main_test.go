package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestMain builds tidald once for all tests of the package.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getenv("TIDALD") != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "tidal-cluster-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "tidald")
	cmd := exec.Command("go", "build", "-o", binary, "github.com/tidaldb/tidal/cmd/tidald")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build tidald: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv("TIDALD", binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
