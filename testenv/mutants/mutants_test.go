//go:build soak

package mutants

import (
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// mutant is a known bug and the test that must find it.
type mutant struct {
	tag  string // without "mutant_"
	pkg  string // of the test
	test string
	soak bool // the test finds it surely only with every image

	// seeds is how many the simulator needs, with a reserve; 0: another test finds it.
	seeds int
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
		{tag: "speak_early", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 10},
		{tag: "settle_by_index", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 20},
		{tag: "read_at_once", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 100},
		{tag: "replicated_sent", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 10},
		{tag: "votes_skipped", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 10},
		{tag: "append_error_ignored", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 20},
		{tag: "outcomes_reversed", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 30},
		{tag: "deposed_refuses", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 10},
		{tag: "close_refuses", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 20},
		{tag: "votes_forgotten", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 150},
		{tag: "local_clock", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 20},
		{tag: "created_by_store", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 150},
		{tag: "copy_accepted", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 20},
		{tag: "lost_disk_adopts", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 50},
		{tag: "witness_ignored", pkg: "daemon/witness", test: "TestMemory_RefusesWhatWentBack"},
		{tag: "two_sessions", pkg: "daemon/peer", test: "TestSessions_FenceTwoThatAreAlive"},
		{tag: "history_ignored", pkg: "daemon/member", test: "TestHello_RefusesAFormerHistory"},
		{tag: "incarnation_ignored", pkg: "daemon/member", test: "TestHello_RefusesAnotherIncarnation"},
		{tag: "torn_refused", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 50},
		{tag: "suffix_kept", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 150},
		{tag: "tail_in_place", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 150},
		{tag: "id_reused", pkg: "daemon/membership", test: "TestView_AnyLife"},
		{tag: "tombstone_at_enter_joint", pkg: "daemon/membership", test: "TestView_Replacement"},
		{tag: "removal_by_new_set", pkg: "daemon/membership", test: "TestView_Removal"},
		{tag: "learner_counted", pkg: "daemon/membership", test: "TestView_Settling"},
		{tag: "promote_behind", pkg: "daemon/membership", test: "TestView_Pending"},
		{tag: "answer_before_settled", pkg: "daemon/member", test: "TestRegistrar_OneChangeAtATime"},
		{tag: "tombstone_not_delivered", pkg: "daemon/member", test: "TestRegistrar_RemovesTheLeader"},
		{tag: "conf_from_roles", pkg: "daemon/member", test: "TestRegistrar_PowerLostInTheJointState"},
		{tag: "candidate_by_name", pkg: "daemon/membership", test: "TestView_Join"},
		{tag: "joiner_without_conf", pkg: "daemon/member", test: "TestRegistrar_JoinersBecomeVoters"},
		{tag: "delivered_ignored", pkg: "daemon/apply", test: "TestOutbox_CountsOnce"},
		{tag: "hash_ignored", pkg: "daemon/apply", test: "TestOutbox_CountsOnce"},
		{tag: "stamp_unclamped", pkg: "daemon/apply", test: "TestOutbox_ClampsWhatIsAhead"},
		{tag: "overlay_twice", pkg: "daemon/outbox", test: "TestPending_CountsOnce"},
		{tag: "fuse_silent", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 150},
		{tag: "leader_acks_early", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 20},
		{tag: "delete_keeps_totals", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 20},
		{tag: "record_keys_forgotten", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 20},
		{tag: "log_replaced", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 50},
		{tag: "artifact_cached", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 150},
		{tag: "barrier_kept", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 300},
		{tag: "snapshot_failure", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 50},
		{tag: "fault_outlives", pkg: "daemon/peer", test: "TestJudge"},
		{tag: "marked_forwarded", pkg: "daemon/httpd", test: "TestForwarding_AMarkedRequestIsNeverForwarded"},
		{tag: "cut_member_counts", pkg: "daemon/ops", test: "TestAggregate_Faults"},
		{tag: "silent_caught_up", pkg: "daemon/ops", test: "TestAggregate"},
		{tag: "pin_off_by_one", pkg: "daemon/snapshot", test: "TestPinned_KeepsTheStraddlingSegment"},
		{tag: "learner_counted", pkg: "daemon/member", test: "TestJudge"},
		{tag: "tie_blamed", pkg: "daemon/member", test: "TestJudge"},
		{tag: "stored_digest_trusted", pkg: "daemon/member", test: "TestProveArtifact_MakesTheDigestAnew"},
		{tag: "commit_not_passed_on", pkg: "daemon/member", test: "TestLeaving"},
		{tag: "pairs_only", pkg: "daemon/member", test: "TestProveArtifact_FindsRotInAnyFile"},
		{tag: "two_recycles", pkg: "daemon/member", test: "TestPermission"},
		{tag: "heard_unasked", pkg: "daemon/member", test: "TestDeliver_WaitsForTheOwnHello"},
		{tag: "unsound_log_votes", pkg: "testenv/sim", test: "TestSim_Seeds", seeds: 50},
	}
}

const root = "../.."

var (
	some = flag.Int("some", 0, "build only this many, in rotation; 0: all")
	turn = flag.Int("turn", 0, "whose turn it is: a number that grows")
	only = flag.String("only", "", "build only these, by tag, with commas between them")
)

func TestMutants_AreFound(t *testing.T) {
	found, chosen := 0, mutants()
	if *some > 0 {
		from := *turn * *some
		chosen = nil
		for i := range *some {
			chosen = append(chosen, mutants()[(from+i)%len(mutants())])
		}
	}
	if *only != "" {
		chosen = slices.DeleteFunc(mutants(), func(m mutant) bool { return !slices.Contains(strings.Split(*only, ","), m.tag) })
	}
	for _, m := range chosen {
		tags := "mutant_" + m.tag
		if m.soak {
			tags += ",soak"
		}
		args := []string{"test", "-count=1", "-tags", tags, "-run", "^" + m.test + "$", "./" + m.pkg}
		if m.seeds > 0 {
			args = append(args, "-seeds", strconv.Itoa(m.seeds))
		}
		start := time.Now()
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		switch failed := strings.Contains(string(out), "--- FAIL: "+m.test); {
		case err == nil:
			t.Errorf("%s survived %s in %s:\n%s", m.tag, m.test, m.pkg, out)
		case !failed:
			t.Errorf("%s: %s did not run: %v\n%s", m.tag, m.test, err, out)
		default:
			found++
			t.Logf("%s: found in %s", m.tag, time.Since(start).Round(time.Second))
		}
	}
	line := fmt.Sprintf("%d of %d mutants found", found, len(chosen))
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
