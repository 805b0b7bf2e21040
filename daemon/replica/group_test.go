package replica_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/replica"
)

// group is three replicas on fake disks. Every message that leaves is checked against the disk.
type group struct {
	net      *network
	disks    map[ident.MemberID]*disk
	replicas []*replica.Replica
}

func three(t *testing.T) *group {
	g := &group{net: newNetwork(t), disks: map[ident.MemberID]*disk{}}
	for id := range ident.MemberID(3) {
		id++
		g.disks[id] = newDisk(1, 2, 3)
		g.net.disks[id] = g.disks[id]
		g.replicas = append(g.replicas, start(t, g.net, options(id, g.disks[id], g.net)))
	}
	return g
}

func (g *group) others(r *replica.Replica) []*replica.Replica {
	return slices.DeleteFunc(slices.Clone(g.replicas), func(o *replica.Replica) bool { return o == r })
}

func TestGroup_FollowersRefuseWritesAndNameTheLeader(t *testing.T) {
	g := three(t)
	leader := leads(t, g.replicas...)
	id := leader.Status().Leader
	for _, f := range g.others(leader) {
		eventually(t, "follower", func() bool { return f.Status().Leader == id })
		_, err := f.Write(t.Context(), signal("a"))
		if e, ok := errors.AsType[*replica.NotLeaderError](err); !ok || e.Leader != id || e.Term == 0 {
			t.Errorf("Write on a follower = %v", err)
		}
	}
}

func TestGroup_AWriteSaysWhoHoldsIt(t *testing.T) {
	g := three(t)
	leader := leads(t, g.replicas...)
	res, err := leader.Write(deadline(t), signal("a"))
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Replicated) == 0 || slices.Contains(res.Replicated, leader.Status().Leader) {
		t.Errorf("Replicated = %v, want at least one other member", res.Replicated)
	}
	for _, id := range res.Replicated {
		if last := g.disks[id].LastIndex(); last < res.ID.Index {
			t.Errorf("member %s is said to hold entry %s, its log ends at %d", id, res.ID, last)
		}
	}
}

func TestGroup_FollowersKnowHowFarTheLeaderIs(t *testing.T) {
	g := three(t)
	leader := leads(t, g.replicas...)
	res, err := leader.Write(deadline(t), signal("a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range g.others(leader) {
		eventually(t, "word of the leader", func() bool {
			s := f.Status()
			return s.LeaderLast >= res.ID.Index && !s.LeaderHeard.IsZero() && s.Durable >= res.ID.Index && s.DurableTerm == res.ID.Term
		})
	}
	s := leader.Status()
	if s.LeaderLast != s.Last || s.LeaderHeard.IsZero() || len(s.Progress) != 2 {
		t.Errorf("Status of the leader = %+v", s)
	}
}

// A leader that is cut off answers no write and no linearizable read, and the others go on.
func TestGroup_AnIsolatedLeaderAcknowledgesNothing(t *testing.T) {
	g := three(t)
	old := leads(t, g.replicas...)
	id := old.Status().Leader
	g.net.isolate(id, true)
	ctx, cancel := context.WithCancel(t.Context())
	lost := write(ctx, old, "lost")
	reads := make(chan error, 1)
	go func() {
		_, err := old.ReadIndex(ctx)
		reads <- err
	}()
	now := leads(t, g.others(old)...)
	if _, err := now.Write(deadline(t), signal("kept")); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-reads:
		t.Errorf("an isolated leader answered a read index: %v", err)
	default:
	}
	g.net.isolate(id, false)
	got := <-lost
	_, refused := errors.AsType[*replica.NotLeaderError](got.err) // it noticed before it proposed
	if !refused && got.err != replica.ErrLost {
		t.Errorf("a write of the isolated leader ended with %v, want ErrLost", got.err)
	}
	if err := <-reads; err != nil {
		t.Errorf("the read that waited ended with %v", err)
	}
	cancel()
	for id, d := range g.disks {
		eventually(t, "agreement", func() bool { return d.count("kept") == 1 })
		if d.count("lost") != 0 {
			t.Errorf("member %s applied a write that was answered with: nothing happened", id)
		}
	}
}

func TestGroup_TransfersLeadership(t *testing.T) {
	g := three(t)
	old := leads(t, g.replicas...)
	to := ident.MemberID(1)
	if old.Status().Leader == to {
		to = 2
	}
	old.Transfer(to)
	next := g.replicas[to-1]
	eventually(t, "transfer", func() bool { return next.Status().State == raft.StateLeader })
}

// Whatever is cut off and whenever: what was acknowledged is on every member exactly once, what was
// refused is nowhere, what is unknown is there at most once; and a linearizable read that began
// after an acknowledgement sees the write, wherever it is asked.
func TestGroup_AcknowledgedWritesSurvive(t *testing.T) {
	g := three(t)
	leads(t, g.replicas...)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var (
		wg    sync.WaitGroup
		acked atomic.Int64
		mu    sync.Mutex
		fates = map[string]string{}
	)
	done := make(chan struct{})
	for c := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				item := fmt.Sprintf("%d/%d", c, i)
				short, stop := context.WithTimeout(ctx, 300*time.Millisecond)
				_, err := g.replicas[(c+i)%3].Write(short, signal(item))
				stop()
				fate := "none"
				if err == nil {
					fate = "done"
					acked.Add(1)
				} else if _, ok := errors.AsType[*replica.UnknownOutcomeError](err); ok {
					fate = "unknown"
				}
				if fate != "none" || err == replica.ErrLost || i%8 == 0 {
					mu.Lock()
					fates[item] = fate
					mu.Unlock()
				}
				reader := ident.MemberID(i%3 + 1)
				if fate == "done" && i%4 == 0 {
					short, stop := context.WithTimeout(ctx, time.Second)
					index, err := g.replicas[reader-1].ReadIndex(short)
					if err == nil {
						err = g.replicas[reader-1].WaitApplied(short, index)
					}
					stop()
					if err == nil && g.disks[reader].count(item) != 1 {
						t.Errorf("member %s served a linearizable read at %d without %s", reader, index, item)
					}
				}
			}
		})
	}
	for round := range 6 {
		target := acked.Load() + 50
		eventually(t, "progress", func() bool { return acked.Load() >= target })
		victim := leads(t, g.replicas...).Status().Leader
		if round%2 == 1 {
			victim = victim%3 + 1 // a follower
		}
		g.net.isolate(victim, true)
		rest := slices.Clone(g.replicas)
		rest = slices.Delete(rest, int(victim)-1, int(victim))
		leads(t, rest...)
		target = acked.Load() + 50
		eventually(t, "progress of the majority", func() bool { return acked.Load() >= target })
		g.net.isolate(victim, false)
	}
	close(done)
	wg.Wait()
	leader := leads(t, g.replicas...)
	if _, err := leader.Write(ctx, signal("last")); err != nil {
		t.Fatal(err)
	}
	for id, d := range g.disks {
		eventually(t, "agreement", func() bool { return d.count("last") == 1 })
		for item, fate := range fates {
			switch n := d.count(item); {
			case fate == "done" && n != 1, fate == "none" && n != 0, fate == "unknown" && n > 1:
				t.Errorf("member %s holds %s %d times, its outcome was %s", id, item, n, fate)
			}
		}
	}
	t.Logf("%d acknowledged", acked.Load())
}
