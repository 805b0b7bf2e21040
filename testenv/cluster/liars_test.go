package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A data directory that cannot be what it says is refused, in words that name the file and the way on, and
// nothing in it is changed. What was put right starts again.
func TestServe_RefusesDisksThatLie(t *testing.T) {
	binary := Binary(t)
	c := Start(t, binary, Options{Nodes: 1})
	fill(c, c.Members[0], 2)
	m := c.Members[0]
	c.Stop()
	in := func(elem ...string) string { return filepath.Join(append([]string{m.Dir}, elem...)...) }
	flip := func(file string) (undo func()) {
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		damaged := bytes.Clone(whole)
		for i := range damaged {
			damaged[i] ^= 0xff
		}
		write := func(b []byte) {
			if err := os.WriteFile(file, b, 0o600); err != nil { // in place: the inode stays
				t.Fatal(err)
			}
		}
		write(damaged)
		return func() { write(whole) }
	}
	away := func(path string) (undo func()) {
		aside := filepath.Join(t.TempDir(), "aside")
		move := func(from, to string) {
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
		}
		move(path, aside)
		return func() { move(aside, path) }
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.Command("cp", "-r", m.Dir, copied).CombinedOutput(); err != nil {
		t.Fatalf("cp -r: %v: %s", err, out)
	}
	for _, tc := range []struct {
		name string
		dir  string
		lie  func() (undo func())
		code string
		says string
	}{
		{"a copied directory", copied, func() func() { return func() {} }, "copied_data_dir", "is a copy"},
		{"a damaged member file", m.Dir, func() func() { return flip(in("member")) }, "corrupt_data_dir", "member"},
		{"damaged votes", m.Dir, func() func() { return flip(in("votes")) }, "corrupt_data_dir", "votes"},
		{"no votes", m.Dir, func() func() { return away(in("votes")) }, "corrupt_data_dir", "votes"},
		{"no member file", m.Dir, func() func() { return away(in("member")) }, "corrupt_data_dir", "member"},
		{"no group directory", m.Dir, func() func() { return away(in("groups", "0")) }, "lost_group", "group 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			undo := tc.lie()
			defer undo()
			before := listing(t, tc.dir)
			code, _, words := runOnce(t, binary, "serve", "--config", filepath.Join(c.Dir, "tidal.yaml"), "--name", m.Name, "--data-dir", tc.dir)
			if code != 78 || !strings.Contains(words, tc.says) || !strings.Contains(words, "nothing was changed") ||
				!strings.Contains(words, "tidalctl members replace "+m.Name) || !strings.Contains(words, "tidalctl explain "+tc.code) {
				t.Errorf("serve = %d, want 78, %q, the way on and %s:\n%s", code, tc.says, tc.code, words)
			}
			code, out, words := runOnce(t, binary, "inspect", "-o", "json", tc.dir)
			var v struct {
				State    string
				Findings []struct{ Code, Detail string }
			}
			if err := json.Unmarshal([]byte(out), &v); err != nil || code != 12 || v.State != "broken" || len(v.Findings) == 0 || v.Findings[0].Code != tc.code {
				t.Errorf("inspect = %d, %v, %+v, want 12 and %s:\n%s", code, err, v, tc.code, words)
			}
			if after := listing(t, tc.dir); after != before {
				t.Errorf("the directory was changed:\n%s\nis now\n%s", before, after)
			}
		})
	}
	again := Start(t, binary, Options{Nodes: 1, Dir: c.Dir})
	code, out, words := runOnce(t, binary, "inspect", m.Dir)
	if code != 0 || !strings.Contains(out, "in use by process") {
		t.Errorf("inspect of a running member = %d:\n%s%s", code, out, words)
	}
	again.Stop()
	if code, out, words = runOnce(t, binary, "inspect", m.Dir); code != 0 || !strings.Contains(out, "state        sound") {
		t.Errorf("inspect of a stopped member = %d:\n%s%s", code, out, words)
	}
	if code, _, words = runOnce(t, binary, "inspect", t.TempDir()); code != 5 {
		t.Errorf("inspect of an empty directory = %d, want 5: %s", code, words)
	}
}

func runOnce(t *testing.T, binary string, args ...string) (code int, out, words string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return code, stdout.String(), stderr.String()
}

// listing is every file below dir but the lock, with its size and when it was written.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() && info.Name() != "LOCK" {
			fmt.Fprintf(&b, "%s %d %s\n", path, info.Size(), info.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
