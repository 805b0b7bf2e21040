package sim

import (
	"flag"
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
// go test ./testenv/sim -run Seeds -seed N.
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
	var names []string
	for what := range seen {
		names = append(names, what)
	}
	slices.Sort(names)
	for _, what := range names {
		t.Logf("%8d %s", seen[what], what)
	}
}
