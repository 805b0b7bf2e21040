package replica_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/replica"
	"github.com/tidaldb/tidal/daemon/state"
	"github.com/tidaldb/tidal/daemon/wal"
)

// BenchmarkWrite has clients that each wait for their own write, on three members of one process
// with real files: everything but HTTP and gRPC.
func BenchmarkWrite(b *testing.B) {
	for _, clients := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			g, n := genesisOf(3), newNetwork(b)
			var replicas []*replica.Replica
			for _, m := range g.Members {
				replicas = append(replicas, onDisk(b, n, m.ID, g.ConfState(), func(x *state.Batch) error { return apply.Birth(x, g.Roster()) }))
			}
			leader := leads(b, replicas...)
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for c := range clients {
				wg.Go(func() {
					for i := 0; left.Add(-1) >= 0; i++ {
						if _, err := leader.Write(b.Context(), signal(fmt.Sprintf("item%d", (c*7919+i)%10_000))); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// onDisk starts a member in a directory of the operating system.
func onDisk(b *testing.B, n *network, id ident.MemberID, conf *pb.ConfState, fill func(*state.Batch) error) *replica.Replica {
	b.Helper()
	dir := b.TempDir()
	lo := wal.Options{FS: vfs.Default, Dir: dir + "/log"}
	so := state.Options{FS: vfs.Default, Dir: dir + "/state"}
	err := errors.Join(
		vfs.Default.MkdirAll(lo.Dir, 0o700), vfs.Default.MkdirAll(so.Dir, 0o700),
		wal.Create(lo, genesis, &pb.HardState{Term: new(genesis.Term), Commit: new(genesis.Index)}),
		state.Create(so, state.Position{Applied: genesis, Conf: conf}, fill),
	)
	if err != nil {
		b.Fatal(err)
	}
	log, recovered, err := wal.Open(lo)
	if err != nil {
		b.Fatal(err)
	}
	store, err := state.Open(so)
	if err != nil {
		b.Fatal(err)
	}
	machine, err := apply.New(store)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(store.Close(), log.Close()); err != nil {
			b.Error(err)
		}
	})
	o := options(id, newDisk(), n)
	o.Log, o.Recovered, o.State, o.Apply = log, recovered, store, machine
	o.Votes = &votes{v: datadir.Vote{Term: genesis.Term}}
	return start(b, n, o)
}
