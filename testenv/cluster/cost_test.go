//go:build soak

package cluster

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidaldb/tidal/ctl/bench"
	"github.com/tidaldb/tidal/daemon/api"
)

// What digests, checks and scrubs cost, each measured beside the same without it in one run. They say
// something on a quiet machine alone:
//
//	go test -tags soak -run none -bench Cost -benchtime 1x -timeout 30m ./testenv/cluster

// costRounds is how often a measurement and what it is compared with take turns.
const costRounds = 12

// BenchmarkCostOfDigests compares the writes that a cluster takes with those of one that neither digests its
// state nor compares it: both run all the time, and are loaded in turn.
func BenchmarkCostOfDigests(b *testing.B) {
	with, without := Binary(b), undigestedBinary(b)
	for _, load := range []bench.Options{
		{Op: bench.OpSignals, Clients: 64, Ack: "quorum", Keys: "uniform", Space: 100_000, For: 3 * time.Second},
		{Op: bench.OpIngest, Clients: 16, Ack: "quorum", Keys: "uniform", Space: 100_000, For: 3 * time.Second},
	} {
		b.Run(string(load.Op), func(b *testing.B) {
			for range b.N {
				o := Options{Args: []string{"--set", "replication.scrub_every=0s"}} // it would see that nothing was digested
				both := []*Cluster{Start(b, with, o), Start(b, without, o)}
				for _, c := range both { // what is written first makes every row
					throughput(b, c, load)
				}
				var ratios, digested, plain []float64
				for round := range costRounds {
					var rate [2]float64
					for turn := range both {
						which := (turn + round) % 2
						rate[which] = throughput(b, both[which], load)
					}
					digested, plain, ratios = append(digested, rate[0]), append(plain, rate[1]), append(ratios, rate[0]/rate[1])
				}
				for _, c := range both {
					c.Stop()
				}
				for _, x := range [][]float64{digested, plain, ratios} {
					slices.Sort(x)
				}
				mid := costRounds / 2
				b.ReportMetric(ratios[mid], "of-undigested")
				b.Logf("%s: %.0f/s with digests, %.0f/s without (medians); ratio of pairs %.3f [quarters %.3f-%.3f], of medians %.3f; 0.950 is asked",
					load.Op, digested[mid], plain[mid], ratios[mid], ratios[costRounds/4], ratios[costRounds*3/4], digested[mid]/plain[mid])
			}
		})
	}
}

// throughput is what a cluster takes a second at its leader.
func throughput(b *testing.B, c *Cluster, load bench.Options) float64 {
	b.Helper()
	load.Endpoints = []string{c.Member(c.Leader()).HTTP}
	r, err := bench.Run(context.Background(), load)
	if err != nil || len(r.Rows) == 0 {
		b.Fatalf("%+v, %v", r, err)
	}
	if all := r.Rows[len(r.Rows)-1]; all.Errors == 0 {
		return all.PerSecond
	}
	b.Fatalf("errors: %+v", r.Rows)
	return 0
}

func undigestedBinary(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "tidald")
	cmd := exec.Command("go", "build", "-tags", "undigested", "-o", path, "github.com/tidaldb/tidal/cmd/tidald")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("build tidald: %v\n%s", err, out)
	}
	return path
}

// BenchmarkCostOfScrubs compares how long writes take while the states of members are read again at the rate of
// 20 MiB/s, one after the other, of 1 GB each with -figures, with how long they take in between.
func BenchmarkCostOfScrubs(b *testing.B) {
	items, every := 2_000, "25s"
	if *figures {
		items, every = 23_000, "4m"
	}
	for range b.N {
		c := Start(b, Binary(b), Options{Args: []string{"--set", "replication.scrub_every=" + every, "--set", "replication.log_keep=64MiB"}})
		store(c, items, 45_000)
		healthy(c)
		var mu sync.Mutex
		running, ends := false, 0
		stop := make(chan struct{})
		var watching sync.WaitGroup
		watching.Go(func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for {
				scrubs := 0
				for _, m := range c.Members {
					var local api.LocalStatus
					if err := c.Get(m, "/cluster/status/local", &local); err == nil && len(local.Groups) > 0 && local.Groups[0].Scrub != nil && local.Groups[0].Scrub.Running {
						scrubs++
					}
				}
				mu.Lock()
				if running && scrubs == 0 {
					ends++
				}
				running = scrubs > 0
				mu.Unlock()
				select {
				case <-stop:
					return
				case <-tick.C:
				}
			}
		})
		var quiet, scrubbed [][]time.Duration // one a phase
		now := func() (bool, int) {
			mu.Lock()
			defer mu.Unlock()
			return running, ends
		}
		was, _ := now()
		for {
			is, ended := now()
			if ended > 3 {
				break
			}
			took := writeLatency(c, 250*time.Millisecond)
			after, _ := now()
			phases := &quiet
			if is {
				phases = &scrubbed
			}
			if is != was || len(*phases) == 0 {
				*phases = append(*phases, nil)
			}
			if was = is; is == after { // else a part of it was the one, a part the other
				(*phases)[len(*phases)-1] = append((*phases)[len(*phases)-1], took...)
			}
		}
		close(stop)
		watching.Wait()
		calm, busy := slices.Concat(quiet...), slices.Concat(scrubbed...)
		for i := range min(len(quiet), len(scrubbed)) {
			b.Logf("phase %d: p99 of %d writes %s, of %d beside a scrub %s", i, len(quiet[i]), p99(quiet[i]), len(scrubbed[i]), p99(scrubbed[i]))
		}
		ratio := float64(p99(busy)) / float64(p99(calm))
		b.ReportMetric(ratio, "p99-beside-a-scrub")
		b.Logf("%d MB: p99 of %d writes %s, of %d beside a scrub %s: %.2f, 1.10 is allowed",
			size(c.Members[0].Dir)>>20, len(calm), p99(calm), len(busy), p99(busy), ratio)
		c.Stop()
	}
}
