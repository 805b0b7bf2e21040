package sim

import (
	"math/rand/v2"
	"slices"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/query"
	"github.com/tidaldb/tidal/daemon/state"
	"github.com/tidaldb/tidal/testenv/simfs"
)

// The model in maps and the state on a real store are the same after every entry: in what the writes came
// to, in every item and in every feed.
func TestModel_EqualsState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &cluster{rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), seen: map[string]int{}}
		c.plan.items = 1 + c.rng.IntN(6)
		cl := &clients{c: c}
		store, machine := bornState(t)
		defer store.Close()
		m := newModel()
		var sent [][]byte // of all writes, to be sent again
		for index := uint64(firstIndex + 1); index < 40; index++ {
			var writes [][]byte
			for range 1 + c.rng.IntN(3) {
				if len(sent) > 0 && c.chance(0.2) {
					writes = append(writes, sent[c.rng.IntN(len(sent))])
					continue
				}
				cl.number++
				b := command.EncodeWrite(cl.drawWrite(&op{n: cl.number}))
				if c.chance(0.2) {
					b = drawLines(c, cl.number)
				}
				writes, sent = append(writes, b), append(sent, b)
			}
			e := &pb.Entry{Term: proto.Uint64(2), Index: proto.Uint64(index), Data: command.EncodeWrites(ident.MakeStamp(epoch.UnixMilli())+ident.Stamp(index), writes)}
			run := &apply.Run{Entries: []*pb.Entry{e}}
			if err := machine.Apply([]*apply.Run{run}); err != nil {
				t.Fatal(err)
			}
			compareWrites(t, m, e, run)
			compareReads(t, m, store, index, c.plan.items)
		}
	})
}

func bornState(t *rapid.T) (*state.Store, *apply.Machine) {
	opts := state.Options{FS: simfs.New(), Dir: "/state", Foreground: true, CacheBytes: 1 << 20}
	at := state.Position{Applied: ident.EntryID{Term: 1, Index: firstIndex}, Conf: &pb.ConfState{Voters: []uint64{1}}}
	roster := membership.Roster{Version: 1, NextID: 2, Members: []membership.Member{{
		ID: 1, Name: "m1", Incarnation: ident.Incarnation{1}, GRPCAddr: "m1:1", HTTPAddr: "m1:2", Role: membership.RoleVoter,
	}}}
	if err := state.Create(opts, at, func(b *state.Batch) error { return apply.Birth(b, roster) }); err != nil {
		t.Fatal(err)
	}
	store, err := state.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	machine, err := apply.New(store)
	if err != nil {
		t.Fatal(err)
	}
	return store, machine
}

// drawLines draws a part of a stream.
func drawLines(c *cluster, n uint64) []byte {
	var b command.Builder
	for line := range 1 + c.rng.Uint64N(4) {
		b.Signal(command.Signal{Collection: command.DefaultCollection, Item: "item-1", Type: "view", User: userOf(lineName{n, line}), Milli: 1000})
		b.KeyLast(number16(1<<63 | n<<8 | line))
	}
	return b.Bytes()
}

func compareWrites(t *rapid.T, m *model, e *pb.Entry, run *apply.Run) {
	entry, err := command.Decode(e.GetData())
	if err != nil {
		t.Fatal(err)
	}
	id := entryID(e)
	for i := 0; entry.Writes.Len() > 0; i++ {
		records, _ := entry.Writes.Next()
		if w := m.write(id, records); !w.is(run.Outcomes[0][i]) {
			t.Fatalf("write %d at %s came to %+v, the model says %+v", w.number, id, run.Outcomes[0][i], w)
		}
	}
}

func compareReads(t *rapid.T, m *model, store *state.Store, index uint64, items int) {
	view := store.NewView()
	defer view.Close()
	now := epoch.UnixMilli()
	for _, collection := range []string{entity.DefaultCollection().Name, "films", "books"} {
		if !m.exists(collection, index) {
			continue
		}
		for i := range items {
			n := name{collection, itemName(i)}
			got, err := versionIn(view, n, now)
			if err != nil {
				t.Fatal(err)
			}
			if want := m.visible(n, index); got != want {
				t.Fatalf("%s at %d is %s, want %s", n, index, got, want)
			}
		}
		for u := range users {
			got, err := feedIn(view, query.FeedRequest{Collection: collection, Limit: 2 * items, Now: now, User: userName(u)})
			if err != nil {
				t.Fatal(err)
			}
			if want := m.feed(collection, userName(u), index); !slices.Equal(got, want) {
				t.Fatalf("the feed of %s for %s at %d is %q, want %q", collection, userName(u), index, got, want)
			}
		}
	}
}
