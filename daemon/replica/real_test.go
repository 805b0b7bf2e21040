package replica_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/replica"
	"github.com/tidaldb/tidal/daemon/state"
	"github.com/tidaldb/tidal/daemon/wal"
)

// votes survive every loss of power: package datadir has its own tests.
type votes struct {
	mu sync.Mutex
	v  datadir.Vote
}

func (v *votes) Vote(ident.GroupID) datadir.Vote {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.v
}

func (v *votes) SetVote(_ ident.GroupID, to datadir.Vote) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.v = to
	return nil
}

// member is a replica with the real log, state and apply on a disk that can lose power.
type member struct {
	*replica.Replica
	id    ident.MemberID
	fs    *vfs.MemFS
	votes *votes
	store *state.Store
	log   *wal.Log
}

func walOptions(fs vfs.FS) wal.Options {
	return wal.Options{FS: fs, Dir: "log", SegmentBytes: 1 << 20, FirstSegmentBytes: 1 << 20}
}

// born makes the log and state of a member of the genesis record.
func born(t testing.TB, id ident.MemberID, g membership.Genesis) *member {
	t.Helper()
	fs := vfs.NewCrashableMem()
	for _, dir := range []string{"log", "state"} {
		if err := fs.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	root, err := fs.OpenDir("")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(root.Sync(), root.Close()); err != nil {
		t.Fatal(err)
	}
	if err := wal.Create(walOptions(fs), genesis, &pb.HardState{Term: new(genesis.Term), Commit: new(genesis.Index)}); err != nil {
		t.Fatal(err)
	}
	pos := state.Position{Applied: genesis, Conf: g.ConfState()}
	if err := state.Create(state.Options{FS: fs, Dir: "state"}, pos, func(b *state.Batch) error { return apply.Birth(b, g.Roster()) }); err != nil {
		t.Fatal(err)
	}
	return &member{id: id, fs: fs, votes: &votes{v: datadir.Vote{Term: genesis.Term}}}
}

// boot opens what is on the member's disk.
func (m *member) boot(t testing.TB, n *network) {
	t.Helper()
	log, recovered, err := wal.Open(walOptions(m.fs))
	if err != nil {
		t.Fatalf("member %s: %v", m.id, err)
	}
	store, err := state.Open(state.Options{FS: m.fs, Dir: "state"})
	if err != nil {
		t.Fatalf("member %s: %v", m.id, err)
	}
	machine, err := apply.New(store)
	if err != nil {
		t.Fatalf("member %s: %v", m.id, err)
	}
	r, err := replica.Open(replica.Options{
		Self: m.id, Log: log, Recovered: recovered, Votes: m.votes, State: store, Apply: machine, Net: n,
		Tick: 10 * time.Millisecond, FlushEvery: 20 * time.Millisecond,
		Observe: replica.Observer{OnFail: func(err error) { t.Errorf("member %s: %v", m.id, err) }},
	})
	if err != nil {
		t.Fatalf("member %s: %v", m.id, err)
	}
	m.Replica, m.log, m.store = r, log, store
	n.attach(m.id, r)
	r.Start()
}

func (m *member) shut(t testing.TB) {
	t.Helper()
	if err := errors.Join(m.Close(), m.store.Close(), m.log.Close()); err != nil {
		t.Errorf("member %s: %v", m.id, err)
	}
}

// count returns how often item was signalled in state.
func (m *member) count(t testing.TB, item string) uint64 {
	t.Helper()
	view := m.View()
	defer view.Close()
	b, ok, err := view.Get(entity.AppendRowKey(nil, entity.DefaultCollection().ID, item))
	if err != nil {
		t.Fatal(err)
	}
	var row entity.Row
	if ok {
		if err := row.Decode(b); err != nil {
			t.Fatal(err)
		}
	}
	return row.Total(0).Count
}

func genesisOf(n int) membership.Genesis {
	var g membership.Genesis
	for i := range n {
		name := fmt.Sprintf("m%d", i+1)
		g.Members = append(g.Members, membership.Member{
			ID: ident.MemberID(i + 1), Name: name, Incarnation: ident.Incarnation{byte(i + 1)}, Role: membership.RoleVoter,
			GRPCAddr: name + ":7001", HTTPAddr: name + ":7000", Capabilities: ident.Supported,
		})
	}
	return g
}

func TestReal_ASingleMemberGoesOnWhereItStopped(t *testing.T) {
	m, n := born(t, 1, genesisOf(1)), newNetwork(t)
	for life := range uint64(3) {
		m.boot(t, n)
		leads(t, m.Replica)
		if got := m.count(t, "a"); got != life {
			t.Errorf("life %d begins with %d signals, want %d", life, got, life)
		}
		res, err := m.Write(deadline(t), signal("a"))
		if err != nil || len(res.Outcome.Refused) != 0 {
			t.Fatalf("Write = %+v, %v", res, err)
		}
		index, err := m.ReadIndex(deadline(t))
		if err != nil || index < res.ID.Index {
			t.Errorf("ReadIndex after entry %s = %d, %v", res.ID, index, err)
		}
		if got := m.count(t, "a"); got != life+1 {
			t.Errorf("an acknowledged write is in state %d times, want %d", got, life+1)
		}
		m.shut(t)
	}
}

func TestReal_ReportsWhichRecordsWereRefused(t *testing.T) {
	m, n := born(t, 1, genesisOf(1)), newNetwork(t)
	m.boot(t, n)
	defer m.shut(t)
	leads(t, m.Replica)
	res, err := m.Write(deadline(t), command.EncodeWrite(command.Write{Records: []command.Record{
		command.Signal{Item: "a", Type: "view", Milli: 1000},
		command.Signal{Item: "a", Type: "no such type", Milli: 1000},
	}}))
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Outcome.Refused) != 1 || res.Outcome.Refused[0].Record != 1 {
		t.Errorf("outcome %+v, want record 1 refused", res.Outcome)
	}
}

func TestReal_ARosterIsProposedAndObserved(t *testing.T) {
	g := genesisOf(1)
	m, n := born(t, 1, g), newNetwork(t)
	m.boot(t, n)
	defer m.shut(t)
	leads(t, m.Replica)
	roster := g.Roster()
	roster.Version++
	roster.Members[0].GRPCAddr = "elsewhere:7001"
	id, err := m.Propose(deadline(t), command.EncodeRoster(roster), nil)
	if err != nil || id.Index == 0 {
		t.Fatalf("Propose = %s, %v", id, err)
	}
	// What does not fit is in the log, and its proposer is told that it changed nothing.
	_, err = m.Propose(deadline(t), command.EncodeRoster(roster), nil) // a version that is already in force
	if _, ok := errors.AsType[*replica.ChangeRefusedError](err); !ok {
		t.Errorf("Propose of an old roster = %v", err)
	}
	_, err = m.Propose(deadline(t), nil, &pb.ConfChangeV2{
		Changes: []*pb.ConfChangeSingle{{Type: pb.ConfChangeAddLearnerNode.Enum(), NodeId: new(uint64(2))}},
		Context: roster.Encode(),
	})
	if _, ok := errors.AsType[*replica.ChangeRefusedError](err); !ok {
		t.Errorf("Propose of a change with an old roster = %v", err)
	}
	if s := m.Status(); len(s.Conf.GetLearners()) != 0 || s.Failed != nil {
		t.Errorf("Status after a refused change = %+v", s)
	}
}

// Power goes out under all three at once, unsynced data being lost or kept at random: what was
// acknowledged before is there afterwards, once, on all of them.
func TestReal_AcknowledgedWritesSurvivePowerLossOfAll(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			g, n := genesisOf(3), newNetwork(t)
			var members []*member
			for _, m := range g.Members {
				members = append(members, born(t, m.ID, g))
			}
			fates := map[string]error{}
			for round := range 3 {
				for _, m := range members {
					n.isolate(m.id, false)
				}
				for _, m := range members {
					m.boot(t, n)
				}
				work(t, round, members, fates, 200)
				for _, m := range members { // what was said is said: nothing leaves from here on
					n.isolate(m.id, true)
				}
				for _, m := range members {
					crashed := m.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
					vote := m.votes.Vote(0)
					m.shut(t)
					m.fs, m.votes = crashed, &votes{v: vote}
				}
			}
			for _, m := range members {
				n.isolate(m.id, false)
			}
			for _, m := range members {
				m.boot(t, n)
				defer m.shut(t)
			}
			leader := leads(t, members[0].Replica, members[1].Replica, members[2].Replica)
			last, err := leader.Write(deadline(t), signal("last"))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range members {
				if err := m.WaitApplied(deadline(t), last.ID.Index); err != nil {
					t.Fatal(err)
				}
				for item, fate := range fates {
					got := m.count(t, item)
					_, unknown := errors.AsType[*replica.UnknownOutcomeError](fate)
					if fate == nil && got != 1 || fate != nil && !unknown && got != 0 || got > 1 {
						t.Errorf("member %s holds %s %d times, its writer was told %v", m.id, item, got, fate)
					}
				}
			}
		})
	}
}

// work writes through whoever leads until want writes were acknowledged, with more under way, and
// notes what every writer was told.
func work(t *testing.T, round int, members []*member, fates map[string]error, want int) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	leader := leads(t, members[0].Replica, members[1].Replica, members[2].Replica)
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		acked int
	)
	for c := range 16 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				item := fmt.Sprintf("%d/%d/%d", round, c, i)
				_, err := leader.Write(ctx, signal(item))
				mu.Lock()
				fates[item] = err
				if err == nil {
					acked++
				}
				if acked == want {
					cancel() // the others are left in the middle
				}
				mu.Unlock()
				if _, ok := errors.AsType[*replica.NotLeaderError](err); ok {
					return
				}
			}
		})
	}
	wg.Wait()
	if acked < want {
		t.Logf("%d of %d writes acknowledged before leadership moved", acked, want)
	}
}
