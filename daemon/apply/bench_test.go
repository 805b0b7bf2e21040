package apply

import (
	"fmt"
	"math/rand/v2"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/command"
)

const benchItems = 1 << 20

// BenchmarkApply applies signals to a million items, in memory. A run is one entry of so many signals.
func BenchmarkApply(b *testing.B) { benchKeys(b, false) }

// BenchmarkApplyUndigested is BenchmarkApply without the digest of the state: what is less is what it costs.
func BenchmarkApplyUndigested(b *testing.B) { benchKeys(b, true) }

func benchKeys(b *testing.B, undigested bool) {
	for _, keys := range []string{"uniform", "zipf"} {
		for _, n := range []int{1, 256, 2048} {
			b.Run(fmt.Sprintf("keys=%s/signals=%d", keys, n), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(1, 2))
				draw := func() uint64 { return rng.Uint64N(benchItems) }
				if keys == "zipf" {
					draw = rand.NewZipf(rng, 1.1, 1, benchItems-1).Uint64
				}
				benchApply(b, n, draw, undigested)
			})
		}
	}
}

func benchApply(b *testing.B, n int, draw func() uint64, undigested bool) {
	g := newGroup(b)
	defer g.close()
	g.m.undigested = undigested
	next := func() *Run {
		encoded := make([][]byte, n)
		for i := range encoded {
			encoded[i] = command.EncodeWrite(command.Write{Records: []command.Record{view(fmt.Sprintf("item-%07d", draw()))}})
		}
		return &Run{Entries: []*pb.Entry{g.next(command.EncodeWrites(stamp, encoded))}}
	}
	b.ReportAllocs()
	signals := 0
	for b.Loop() {
		b.StopTimer()
		run := next()
		b.StartTimer()
		if err := g.m.Apply([]*Run{run}); err != nil {
			b.Fatal(err)
		}
		signals += n
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(signals), "ns/signal")
}
