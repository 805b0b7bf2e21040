package sim

import (
	"flag"
	"maps"
	"slices"
	"testing"
	"testing/cryptotest"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "play this one seed")
	seedsFlag = flag.Uint64("seeds", 200, "play this many seeds")
)

// play runs a seed with raft's jitter drawn from it.
func play(t *testing.T, seed uint64) Result {
	t.Helper()
	cryptotest.SetGlobalRandom(t, seed)
	return Run(seed)
}

// Every seed keeps every promise, and the same seed is the same run. A failure is played again with
// "go test ./testenv/sim -run Seeds -seed N".
func TestRun_Seeds(t *testing.T) {
	first, n := uint64(1), *seedsFlag
	switch {
	case *seedFlag != 0:
		first, n = *seedFlag, 1
	case testing.Short():
		n = 20
	}
	seen := map[string]int{}
	for seed := first; seed < first+n; seed++ {
		r := play(t, seed)
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if again := play(t, seed); again.Hash != r.Hash {
			t.Fatalf("seed %d: hash %016x, then %016x", seed, r.Hash, again.Hash)
		}
		for what, times := range r.Seen {
			seen[what] += times
		}
	}
	for _, what := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%8d %s", seen[what], what)
	}
	if n < 200 {
		return // too few to reach everything
	}
	for _, what := range sometimes {
		if seen[what] == 0 {
			t.Errorf("%d seeds never reached: %s", n, what)
		}
	}
}

// sometimes is what the default seeds must reach, or they prove less than they say.
var sometimes = []string{
	"crash", "crash with unsynced frames", "power loss of all", "split", "one-way split", "transfer",
	"message dropped", "message doubled", "log head dropped", "log suffix replaced", "entry read below the ring",
	"opened with state ahead of commit", "opened with state behind commit",
	"dropped", "lost", "not leader", "unknown write is in", "unknown write is not in",
	"write acknowledged", "write acknowledged by the leader", "write acknowledged by the leader was lost", "read",
}
