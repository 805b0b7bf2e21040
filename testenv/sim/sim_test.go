package sim

import (
	"flag"
	"maps"
	"slices"
	"testing"
	"testing/cryptotest"
	"time"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "play this one seed")
	seedsFlag = flag.Uint64("seeds", 12, "play this many seeds")
	firstFlag = flag.Uint64("first", 1, "the first of them")
)

// play runs a seed with raft's jitter drawn from it.
func play(t *testing.T, seed uint64, opts Options) Result {
	t.Helper()
	cryptotest.SetGlobalRandom(t, seed)
	return Run(seed, opts)
}

// Every seed keeps every promise. A failure is played again with
// "go test ./testenv/sim -run Sim -seed N".
func TestSim_Seeds(t *testing.T) {
	first, n := *firstFlag, *seedsFlag
	if *seedFlag != 0 {
		first, n = *seedFlag, 1
	}
	seen := map[string]int{}
	var simulated time.Duration
	faults, began := 0, time.Now()
	for seed := first; seed < first+n; seed++ {
		r := play(t, seed, Options{})
		if r.Err != nil {
			t.Error(r.Err)
			return
		}
		simulated += r.Simulated
		for _, times := range r.Faults {
			faults += times
		}
		for what, times := range r.Seen {
			seen[what] += times
		}
	}
	for _, what := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%8d %s", seen[what], what)
	}
	t.Logf("%d seeds, %.0f simulated s in %s, %d faults", n, simulated.Seconds(), time.Since(began), faults)
}

// The same seed is the same run, event by event.
func TestSim_Repeats(t *testing.T) {
	for seed := *firstFlag; seed < *firstFlag+*repeatFlag; seed++ {
		var hashes []uint64
		first := play(t, seed, Options{Each: func(_, hash uint64) { hashes = append(hashes, hash) }})
		i := 0
		var differ int
		again := play(t, seed, Options{Each: func(_, hash uint64) {
			if differ == 0 && (i >= len(hashes) || hashes[i] != hash) {
				differ = i + 1
			}
			i++
		}})
		if differ > 0 || first.Hash != again.Hash {
			t.Errorf("seed %d: hash %016x, then %016x; the first event that differs is %d of %d", seed, first.Hash, again.Hash, differ, len(hashes))
		}
	}
}

var repeatFlag = flag.Uint64("repeat", 4, "play this many seeds twice")
