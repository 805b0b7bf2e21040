package sim

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"time"
)

var (
	seedFlag   = flag.Uint64("seed", 0, "play this one seed, and nothing else")
	traceFlag  = flag.String("trace", "", "with -seed: write all that happens to this file")
	aloneFlag  = flag.Bool("alone", false, "with -repeat: in this process")
	seedsFlag  = flag.Uint64("seeds", 10, "play this many seeds")
	firstFlag  = flag.Uint64("first", 1, "the first of them")
	repeatFlag = flag.Uint64("repeat", 3, "play this many seeds twice")
	soakFlag   = flag.Duration("soak", 0, "likewise, for this long, seeds of the present time")
	freshFlag  = flag.Uint64("fresh", 0, "play this many seeds from -first on, on every processor, and hold the floors")
	floorsFlag = flag.Bool("floors", true, "with -soak or -fresh: fail below the floors")
	partFlag   = flag.Duration("part", 0, "one processor's part of a soak")
	reportFlag = flag.String("report", "", "write what was reached to this file")
)

// TestMain collects garbage less often: a run allocates much, and holds little.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// play runs a seed with raft's jitter drawn from it.
func play(t *testing.T, seed uint64, opts Options) Result {
	t.Helper()
	cryptotest.SetGlobalRandom(t, seed)
	return Run(seed, opts)
}

// Every seed keeps every promise. A failure is played again with
// "go test -v ./testenv/sim -run Sim -seed N".
func TestSim_Seeds(t *testing.T) {
	first, n := *firstFlag, *seedsFlag
	if *seedFlag != 0 {
		first, n = *seedFlag, 1
	}
	sum := newTotals()
	until := time.Now().Add(*partFlag)
	for seed := first; *partFlag > 0 && time.Now().Before(until) || *partFlag == 0 && seed < first+n; seed++ {
		r := play(t, seed, Options{Trace: traceFile(t)})
		if r.Err != nil {
			fail(t, r)
			break
		}
		sum.add(r)
		if *seedFlag != 0 {
			t.Logf("seed %d: hash %016x after %d events and %s\n%s", seed, r.Hash, r.Events, r.Simulated, strings.Join(r.FaultList, "\n"))
		}
	}
	t.Log(sum)
	if *reportFlag != "" {
		b, err := json.Marshal(sum)
		if err == nil {
			err = os.WriteFile(*reportFlag, b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// traceFile makes the file that -trace names.
func traceFile(t *testing.T) io.Writer {
	t.Helper()
	if *seedFlag == 0 || *traceFlag == "" {
		return nil
	}
	f, err := os.Create(*traceFlag)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func skipForSeed(t *testing.T) {
	t.Helper()
	if *seedFlag != 0 {
		t.Skip("-seed plays one seed")
	}
}

// fail reports a seed: the commit, the violation with the events before it, and the fewest faults that
// still bring one about.
func fail(t *testing.T, r Result) {
	t.Helper()
	commit, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	t.Errorf("commit %s: %v", strings.TrimSpace(string(commit)), r.Err)
	small := Shrink(r, func(o Options) Result { return play(t, r.Seed, o) }, time.Now().Add(20*time.Second))
	t.Errorf("seed %d fails with %d of %d faults: %s\n%s", r.Seed, len(small.FaultList), len(r.FaultList),
		firstLine(small.Err), strings.Join(small.FaultList, "\n"))
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// The seeds that failed once.
func TestSim_Kept(t *testing.T) {
	skipForSeed(t)
	for _, seed := range kept(t) {
		if r := play(t, seed, Options{}); r.Err != nil {
			fail(t, r)
		}
	}
}

// kept lists the seeds of testdata/seeds.txt.
func kept(t *testing.T) (seeds []uint64) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "seeds.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		number, _, _ := strings.Cut(lines.Text(), " ")
		if number == "#" {
			continue
		}
		seed, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		seeds = append(seeds, seed)
	}
	return seeds
}

// reachMissing returns the markers of missing that no kept seed reaches either: some are so rare that a few
// hundred fresh seeds may well miss one.
func reachMissing(t *testing.T, missing []string) []string {
	t.Helper()
	for _, seed := range kept(t) {
		if len(missing) == 0 {
			break
		}
		seen := play(t, seed, Options{}).Seen
		missing = slices.DeleteFunc(missing, func(m string) bool { return seen[m] > 0 })
	}
	return missing
}

// The same seed is the same run, event by event, however many processors there are.
func TestSim_Repeats(t *testing.T) {
	skipForSeed(t)
	if n := uint64(runtime.NumCPU()); *repeatFlag > 8 && n > 1 && !*aloneFlag {
		share := (*repeatFlag + n - 1) / n
		onEveryProcessor(t, func(i uint64) []string {
			from := min(i*share, *repeatFlag)
			return []string{"-test.run", "^TestSim_Repeats$", "-first", strconv.FormatUint(*firstFlag+from, 10),
				"-repeat", strconv.FormatUint(min(share, *repeatFlag-from), 10), "-alone"}
		}, func(*exec.Cmd) {})
		fmt.Printf("simulator: %d seeds played twice, with one processor and with eight\n", *repeatFlag)
		return
	}
	procs := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(procs)
	for seed := *firstFlag; seed < *firstFlag+*repeatFlag; seed++ {
		var hashes []uint64
		runtime.GOMAXPROCS(1)
		first := play(t, seed, Options{Each: func(hash uint64) { hashes = append(hashes, hash) }})
		event, differ := 0, 0
		runtime.GOMAXPROCS(8)
		again := play(t, seed, Options{Each: func(hash uint64) {
			if differ == 0 && (event == len(hashes) || hashes[event] != hash) {
				differ = event + 1
			}
			event++
		}})
		if differ > 0 || first.Hash != again.Hash || event != len(hashes) {
			t.Errorf("seed %d: hash %016x, then %016x; the first event that differs is %d of %d", seed, first.Hash, again.Hash, differ, len(hashes))
		}
	}
}

// onEveryProcessor runs this test binary once for each processor, with the arguments for the i-th, because
// raft's jitter is drawn from a source that a process has once. done is called one at a time.
func onEveryProcessor(t *testing.T, args func(i uint64) []string, done func(*exec.Cmd)) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range uint64(runtime.NumCPU()) {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], args(i)...)
			cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1") // one thread has nobody to make room for
			out, err := cmd.CombinedOutput()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			done(cmd)
		})
	}
	wg.Wait()
}

// floors are what a soak must reach: 400 seeds of it, or five minutes on two processors.
var floors = struct {
	seeds                        int
	markers                      int
	hours, faultsPerMinute, pace float64 // faults a CPU minute; simulated seconds a CPU second
}{300, 60, 10, 1500, 100}

// TestSim_Soak plays fresh seeds in a process for every processor: for as long as -soak says, each a seed
// of its own time, or as many as -fresh says from -first on, which is a run that can be had again.
func TestSim_Soak(t *testing.T) {
	skipForSeed(t)
	if *soakFlag == 0 && *freshFlag == 0 {
		t.Skip("without -soak or -fresh")
	}
	sum := newTotals()
	n := uint64(runtime.NumCPU())
	first, share, limit := uint64(time.Now().Unix())<<20, uint64(1<<16), *soakFlag+2*time.Minute
	until := []string{"-part", soakFlag.String()}
	if *freshFlag > 0 {
		first, share, limit = *firstFlag, (*freshFlag+n-1)/n, time.Hour
		until = []string{"-seeds", strconv.FormatUint(share, 10)}
	}
	dir := t.TempDir()
	report := func(i uint64) string { return filepath.Join(dir, strconv.FormatUint(i, 10)) }
	var reports uint64
	onEveryProcessor(t, func(i uint64) []string {
		return append(until, "-test.run", "^TestSim_Seeds$", "-test.timeout", limit.String(),
			"-first", strconv.FormatUint(first+i*share, 10), "-report", report(i))
	}, func(cmd *exec.Cmd) {
		sum.CPU += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		reports++
	})
	for i := range reports {
		part := newTotals()
		if b, err := os.ReadFile(report(i)); err != nil {
			t.Error(err)
		} else if err := json.Unmarshal(b, part); err != nil {
			t.Error(err)
		}
		sum.join(part)
	}
	var missing, rare []string
	for _, m := range Markers() {
		switch n := sum.Seen[m]; {
		case n == 0:
			missing = append(missing, m)
		case n < 10:
			rare = append(rare, fmt.Sprintf("%s %d", m, n))
		}
	}
	fmt.Printf("simulator: %s; %d of %d markers reached", sum, len(Markers())-len(missing), len(Markers()))
	if len(missing) > 0 {
		fmt.Printf(", never: %q", missing)
	}
	if len(rare) > 0 {
		fmt.Printf(", seldom: %s", strings.Join(rare, ", "))
	}
	fmt.Println()
	if !*floorsFlag {
		return
	}
	if missing = reachMissing(t, missing); len(missing) > 0 {
		t.Errorf("never reached, by kept seeds either: %q", missing)
	}
	minutes := sum.CPU.Minutes()
	if sum.Seeds < floors.seeds || len(Markers()) < floors.markers || sum.Simulated.Hours() < floors.hours || float64(sum.faults()) < floors.faultsPerMinute*minutes ||
		sum.Simulated.Minutes() < floors.pace*minutes {
		t.Errorf("%s, want %+v", sum, floors)
	}
}

// totals is what many runs came to.
type totals struct {
	Seeds     int
	Even      int // with an even number of members
	Events    uint64
	Simulated time.Duration
	CPU       time.Duration
	Faults    map[string]int
	Seen      map[string]int
}

func newTotals() *totals { return &totals{Faults: map[string]int{}, Seen: map[string]int{}} }

func (s *totals) add(r Result) {
	one := totals{Seeds: 1, Events: r.Events, Simulated: r.Simulated, Faults: r.Faults, Seen: r.Seen}
	if r.Members%2 == 0 {
		one.Even = 1
	}
	s.join(&one)
}

func (s *totals) join(o *totals) {
	s.Seeds += o.Seeds
	s.Even += o.Even
	s.Events += o.Events
	s.Simulated += o.Simulated
	for what, n := range o.Faults {
		s.Faults[what] += n
	}
	for what, n := range o.Seen {
		s.Seen[what] += n
	}
}

func (s *totals) faults() (n int) {
	for _, times := range s.Faults {
		n += times
	}
	return n
}

// String is the closing line.
func (s *totals) String() string {
	line := fmt.Sprintf("%d seeds (%d of even size), %.1f simulated hours, %d events, %d faults", s.Seeds, s.Even, s.Simulated.Hours(), s.Events, s.faults())
	if s.CPU > 0 {
		line += fmt.Sprintf(", %.0f simulated seconds a CPU second, %.0f faults a CPU minute", s.Simulated.Seconds()/s.CPU.Seconds(), float64(s.faults())/s.CPU.Minutes())
	}
	var kinds []string
	for kind, n := range s.Faults {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, n))
	}
	slices.Sort(kinds)
	return line + ": " + strings.Join(kinds, ", ")
}
