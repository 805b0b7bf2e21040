package apply

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
)

// chain is what one opening of an outbox has taken.
type chain struct {
	origin, owner ident.Incarnation
	ops           []command.Op
}

func oneOf(r command.Record) []byte {
	return command.EncodeWrite(command.Write{Records: []command.Record{r}})
}

// views is a chain of n signals for item.
func views(origin byte, item string, n int) chain {
	c := chain{origin: ident.Incarnation{origin}, owner: ident.Incarnation{1}}
	for i := range n {
		c.ops = append(c.ops, command.Op{Stamp: stamp - 100 + ident.Stamp(i), Write: oneOf(view(item))})
	}
	return c
}

// hash returns the hash of the operation at place seq; zero for 0.
func (c chain) hash(seq uint64) (h [16]byte) {
	for i, op := range c.ops[:seq] {
		h = command.Chain(h, c.origin, uint64(i)+1, op)
	}
	return h
}

// run is the delivery of the operations from first to last.
func (c chain) run(first, last uint64) command.Outbox {
	return command.Outbox{Origin: c.origin, Owner: c.owner, First: first, Before: c.hash(first - 1), Ops: c.ops[first-1 : last]}
}

func (g *group) signals(item string) uint64 {
	g.t.Helper()
	record, ok, err := g.store.Get(entity.AppendRowKey(nil, 1, item))
	if err != nil {
		g.t.Fatal(err)
	}
	var row entity.Row
	if ok {
		if err := row.Decode(record); err != nil {
			g.t.Fatal(err)
		}
	}
	return row.Total(0).Count
}

// code is why a delivery was refused; empty: it was not.
func code(out command.Outcome) string {
	if len(out.Refused) == 0 {
		return ""
	}
	return out.Refused[0].Code
}

// Whatever is delivered, in whatever pieces, how often and in whatever order: each operation counts once,
// in the order of its chain, and what contradicts what was delivered is refused. The state does not
// depend on how the log is cut.
func TestOutbox_CountsOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		type twin struct {
			chains [2]chain
			parted uint64 // the first place at which they differ
		}
		var all []twin
		for origin := range rapid.IntRange(1, 3).Draw(rt, "chains") {
			n := rapid.IntRange(1, 8).Draw(rt, "operations")
			w := twin{parted: uint64(rapid.IntRange(1, n).Draw(rt, "parted"))}
			for side := range w.chains {
				c := chain{origin: ident.Incarnation{byte(origin + 1)}, owner: ident.Incarnation{rapid.SampledFrom([]byte{1, 2, 9}).Draw(rt, "owner")}}
				for i := range n {
					var r command.Record = view(fmt.Sprintf("item%d", i%3))
					if i%2 == 1 {
						r = command.HardNeg{User: "u", Item: fmt.Sprintf("item%d", i%3), Hide: (i+origin)%4 == 1}
					}
					at := stamp - 4 + ident.Stamp(i) // the last ones are ahead of the entry
					if side == 1 && uint64(i)+1 >= w.parted {
						at++
					}
					c.ops = append(c.ops, command.Op{Stamp: at, Write: oneOf(r)})
				}
				w.chains[side] = c
			}
			all = append(all, w)
		}

		var log []*pb.Entry
		var want []string
		counts, hides := map[string]uint64{}, map[string]entity.HardNeg{}
		type known struct {
			seq  uint64
			side int
		}
		delivered := map[int]known{}
		for index := range uint64(rapid.IntRange(1, 12).Draw(rt, "deliveries")) {
			at := rapid.IntRange(0, len(all)-1).Draw(rt, "chain")
			side := max(0, rapid.IntRange(-3, 1).Draw(rt, "side"))
			w, was := all[at], delivered[at]
			c := w.chains[side]
			first := uint64(rapid.IntRange(1, len(c.ops)).Draw(rt, "first"))
			last := uint64(rapid.IntRange(int(first), len(c.ops)).Draw(rt, "last"))
			log = append(log, entry(index+2, payload(command.Write{Records: []command.Record{c.run(first, last)}})))
			switch same := side == was.side || was.seq < w.parted; {
			case first > was.seq+1:
				want = append(want, command.CodeOutboxGap)
				continue
			case last < was.seq:
				want = append(want, "")
				continue
			case !same:
				want = append(want, command.CodeOutboxForked)
				continue
			}
			want = append(want, "")
			for seq := was.seq + 1; seq <= last; seq++ {
				op := c.ops[seq-1]
				r := command.MakeRecords(op.Write)
				r.Next()
				if r.Kind() == command.RecordSignal {
					counts[r.Signal().Item]++
					continue
				}
				h := r.HardNeg()
				neg := entity.HardNeg{Hidden: h.Hide, Stamp: min(op.Stamp, stamp), Origin: c.origin, Seq: entity.OperationSeq(seq) + 1}
				if before, ok := hides[h.Item]; ok {
					neg = before.Merge(neg)
				}
				hides[h.Item] = neg
			}
			if last > was.seq {
				delivered[at] = known{last, side}
			}
		}

		one, cut := newGroup(t), newGroup(t)
		defer one.close()
		defer func() { cut.close() }()
		var got []string
		var deliveries, again []Delivery
		for _, e := range log {
			run := &Run{Entries: []*pb.Entry{e}}
			if err := one.m.Apply([]*Run{run}); err != nil {
				rt.Fatalf("apply: %v", err)
			}
			got, deliveries = append(got, code(run.Outcomes[0][0])), append(deliveries, run.Deliveries...)
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("outcomes %q, want %q", got, want)
		}
		for item, n := range counts {
			if got := one.signals(item); got != n {
				rt.Fatalf("%s has %d signals, want %d", item, got, n)
			}
		}
		for item, neg := range hides {
			record, ok, err := one.store.Get(entity.AppendHardNegKey(nil, 1, "u", item))
			if got, _ := entity.DecodeHardNeg(record); err != nil || !ok || got != neg {
				rt.Fatalf("%s is hidden by %+v, %v, want %+v", item, got, err, neg)
			}
		}
		for rest := log; len(rest) > 0; {
			if rapid.IntRange(0, 3).Draw(rt, "restart") == 0 {
				cut.close()
				cut.open()
			}
			n := rapid.IntRange(1, len(rest)).Draw(rt, "run")
			run := &Run{Entries: rest[:n]}
			if err := cut.m.Apply([]*Run{run}); err != nil {
				rt.Fatalf("apply: %v", err)
			}
			again, rest = append(again, run.Deliveries...), rest[n:]
		}
		if !reflect.DeepEqual(again, deliveries) {
			rt.Fatalf("deliveries %+v, one by one %+v", again, deliveries)
		}
		if got, want := dump(rt, cut.store), dump(rt, one.store); got != want {
			rt.Fatalf("state\n%s\none by one\n%s", got, want)
		}
	})
}

// Clocks that are ahead do not win for ever: nothing is later than the entry that brings it, and what is
// written after that entry follows it.
func TestOutbox_ClampsWhatIsAhead(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	defer g.close()
	ahead := stamp + ident.MakeStamp(3_600_000)
	hide := func(hide bool) command.HardNeg { return command.HardNeg{User: "u", Item: "a", Hide: hide} }
	c := chain{origin: ident.Incarnation{1}, owner: ident.Incarnation{1}, ops: []command.Op{
		{Stamp: ahead, Write: oneOf(command.Signal{Item: "a", Type: "view", Milli: 1000})},
		{Stamp: ahead + 1, Write: oneOf(command.Signal{Item: "a", Type: "view", Milli: 1000, At: ahead.Millis() + 5})},
		{Stamp: ahead + 2, Write: oneOf(hide(false))},
		{Stamp: ahead + 3, Write: oneOf(hide(true))},
	}}
	g.write(doc("a", `{}`))
	if out := g.write(c.run(1, 4)); code(out) != "" {
		t.Fatalf("delivery: %+v", out)
	}
	plain := newGroup(t)
	defer plain.close()
	plain.write(doc("a", `{}`))
	plain.write(view("a"), view("a"))
	got, _ := g.item("default", "a")
	if want, _ := plain.item("default", "a"); got.Score != want.Score || got.Signals[0].Count != 2 {
		t.Errorf("two signals from the future score %g, two of now %g", got.Score, want.Score)
	}
	hidden := func() bool {
		record, _, err := g.store.Get(entity.AppendHardNegKey(nil, 1, "u", "a"))
		if err != nil {
			t.Fatal(err)
		}
		h, err := entity.DecodeHardNeg(record)
		if err != nil || h.Stamp > stamp+1 {
			t.Fatalf("%+v, %v", h, err)
		}
		return h.Hidden
	}
	if !hidden() {
		t.Error("two operations cut to one stamp changed places")
	}
	run := &Run{Entries: []*pb.Entry{g.next(payloadAt(stamp+1, command.Write{Records: []command.Record{hide(false)}}))}}
	if err := g.m.Apply([]*Run{run}); err != nil {
		t.Fatal(err)
	}
	if hidden() {
		t.Error("what the log says later does not win")
	}
}

// An operation with an idempotency key that the log has met, counts there and nowhere else.
func TestOutbox_KeysGoThroughDedupe(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	defer g.close()
	key := command.Key{Hash: command.HashKey("p", "k"), Body: [16]byte{1}}
	keyed := command.Write{Key: &key, Records: []command.Record{view("a")}}
	c := chain{origin: ident.Incarnation{1}, owner: ident.Incarnation{1}, ops: []command.Op{
		{Stamp: stamp, Write: command.EncodeWrite(keyed)},
		{Stamp: stamp + 1, Write: oneOf(command.Keyed{Key: command.Key{Hash: [16]byte{7}}, Record: view("b")})},
		{Stamp: stamp + 2, Write: oneOf(view("nowhere"))},
	}}
	run := &Run{Entries: []*pb.Entry{entry(2, payload(keyed)), entry(3, payload(command.Write{Records: []command.Record{c.run(1, 3)}}))}}
	if err := g.m.Apply([]*Run{run}); err != nil {
		t.Fatal(err)
	}
	g.write(command.Keyed{Key: command.Key{Hash: [16]byte{7}}, Record: view("b")})
	if a, b := g.signals("a"), g.signals("b"); a != 1 || b != 1 {
		t.Errorf("a counts %d, b %d, want 1 and 1", a, b)
	}
	if d := run.Deliveries; len(d) != 1 || d[0].Seq != 3 || d[0].Hash != c.hash(3) {
		t.Errorf("deliveries %+v", d)
	}
}

// What the state does not know is refused record by record, and the chain goes on.
func TestOutbox_RefusesRecordByRecord(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	defer g.close()
	c := views(1, "a", 1)
	c.ops = append(c.ops, command.Op{Stamp: stamp, Write: command.EncodeWrite(command.Write{Records: []command.Record{
		command.Signal{Item: "a", Type: "unheard of", Milli: 1000}, view("a"),
	}})})
	if out := g.write(c.run(1, 2)); code(out) != "" {
		t.Fatalf("delivery: %+v", out)
	}
	if n := g.signals("a"); n != 2 {
		t.Errorf("a counts %d, want 2", n)
	}
}

// setMembers applies a roster with only these members of the first three.
func (g *group) setMembers(version uint64, ids ...ident.MemberID) {
	g.t.Helper()
	roster := genesis().Roster()
	roster.Version = version
	roster.Members = slices.DeleteFunc(roster.Members, func(m membership.Member) bool { return !slices.Contains(ids, m.ID) })
	run := &Run{Entries: []*pb.Entry{g.next(command.EncodeRoster(roster))}}
	if err := g.m.Apply([]*Run{run}); err != nil || run.Roster == nil {
		g.t.Fatalf("roster %d: %v", version, err)
	}
}

// What was delivered of a removed member is forgotten in the end, and does not count again then.
func TestOutbox_ForgetsRemovedMembers(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	defer func() { g.close() }()
	kept, lost, late := views(1, "kept", 2), views(2, "lost", 2), views(3, "late", 2)
	lost.owner, late.owner = ident.Incarnation{2}, ident.Incarnation{2}
	for i := range late.ops {
		late.ops[i].Stamp = stamp + 10 + ident.Stamp(i) // taken after it was removed
	}
	g.write(kept.run(1, 2))
	g.write(lost.run(1, 2))
	forget := func(before ident.Stamp) { g.write(command.OutboxForget{Before: before}) }
	forget(stamp + 1) // nobody was removed
	if out := g.write(lost.run(1, 2)); code(out) != "" || g.signals("lost") != 2 {
		t.Fatalf("delivered again: %+v", out)
	}
	g.setMembers(2, 1, 3)
	if out := g.write(lost.run(1, 2)); code(out) != "" || g.signals("lost") != 2 {
		t.Fatalf("delivered again after the removal: %+v", out)
	}
	g.close()
	g.open()
	forget(stamp + 2)
	if _, ok, err := g.store.Get(entity.AppendDeliveredKey(nil, lost.origin)); ok || err != nil {
		t.Errorf("the row of a removed member is there: %v", err)
	}
	if _, ok, err := g.store.Get(entity.AppendDeliveredKey(nil, kept.origin)); !ok || err != nil {
		t.Errorf("the row of a member is gone: %v", err)
	}
	g.close()
	g.open()
	if out := g.write(lost.run(1, 2)); code(out) != command.CodeOutboxExpired || g.signals("lost") != 2 {
		t.Errorf("delivered again after it was forgotten: %+v, %d signals", out, g.signals("lost"))
	}
	if out := g.write(late.run(1, 2)); code(out) != "" || g.signals("late") != 2 {
		t.Errorf("what is newer than what was forgotten: %+v, %d signals", out, g.signals("late"))
	}
	g.setMembers(3, 1, 2, 3)
	if d := g.m.outboxes.delivered[late.origin]; d.Gone != 0 {
		t.Errorf("%+v of a member that is back", d)
	}
}

// A delivery of what a newer member wrote stops everything, as any record of that kind would.
func TestOutbox_UnknownInsideStops(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	defer g.close()
	c := chain{origin: ident.Incarnation{1}, ops: []command.Op{{Stamp: stamp, Write: []byte{4, 0}}}}
	before := dump(t, g.store)
	e := g.next(payload(command.Write{Records: []command.Record{c.run(1, 1)}}))
	if err := g.m.Apply([]*Run{{Entries: []*pb.Entry{e}}}); err == nil {
		t.Error("it was applied")
	}
	if dump(t, g.store) != before {
		t.Error("it had an effect")
	}
}
