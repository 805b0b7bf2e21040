//go:build soak

package mutants

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mutant is a known bug and the test that must find it.
type mutant struct {
	tag  string // without "mutant_"
	pkg  string // of the test
	test string
	soak bool // the test finds it surely only with every image
}

func mutants() []mutant {
	return []mutant{
		{tag: "split_frame", pkg: "testenv/sweep", test: "TestLeaders_OneATermAfterTwoQuickChanges"},
		{tag: "ack_before_sync", pkg: "testenv/sweep", test: "TestLog_CrashEverywhere"},
		{tag: "vote_not_synced", pkg: "testenv/sweep", test: "TestMember_CrashEverywhere"},
		{tag: "fsync_retried", pkg: "testenv/sweep", test: "TestLog_FailEverywhere"},
		{tag: "truncate_any_bad", pkg: "daemon/wal", test: "TestOpen_FlipEveryBit"},
		{tag: "applied_own_batch", pkg: "testenv/sweep", test: "TestState_CrashEverywhere", soak: true},
		{tag: "no_dir_sync", pkg: "testenv/sweep", test: "TestMember_CrashEverywhere"},
		{tag: "commit_not_raised", pkg: "testenv/sweep", test: "TestSentence_CommitIsRaised"},
	}
}

const root = "../.."

func TestMutants_AreFound(t *testing.T) {
	found := 0
	for _, m := range mutants() {
		tags := "mutant_" + m.tag
		if m.soak {
			tags += ",soak"
		}
		cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-tags", tags, "-run", "^"+m.test+"$", "./"+m.pkg)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		switch failed := strings.Contains(string(out), "--- FAIL: "+m.test); {
		case err == nil:
			t.Errorf("%s survived %s in %s:\n%s", m.tag, m.test, m.pkg, out)
		case !failed:
			t.Errorf("%s: %s did not run: %v\n%s", m.tag, m.test, err, out)
		default:
			found++
		}
	}
	line := fmt.Sprintf("%d of %d mutants found", found, len(mutants()))
	t.Log(line)
	fmt.Println("mutants:", line)
}

// Every mutant in the source is in the table, and the other way round.
func TestMutants_AreListed(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "daemon", "*", "mutant_*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var built, listed []string
	for _, f := range files {
		if tag := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), "mutant_"), ".go"); !strings.HasSuffix(tag, "_off") {
			built = append(built, tag)
		}
	}
	for _, m := range mutants() {
		listed = append(listed, m.tag)
	}
	slices.Sort(built)
	slices.Sort(listed)
	if !slices.Equal(built, listed) {
		t.Errorf("mutants in the source: %v\nin the table: %v", built, listed)
	}
}
