package outbox_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/outbox"
)

// live has the members do anything that they can do, a number of steps.
func (w *world) live(t *rapid.T, steps int, check func()) {
	pick := func(what string) *site { return w.sites[rapid.IntRange(0, len(w.sites)-1).Draw(t, what)] }
	item := func() string { return rapid.SampledFrom(items).Draw(t, "item") }
	for range steps {
		switch rapid.IntRange(0, 9).Draw(t, "step") {
		case 0, 1, 2:
			pick("taker").take(item())
		case 3:
			pick("hider").hide(item(), rapid.Bool().Draw(t, "hide"))
		case 4, 5:
			pick("one side").exchange(pick("other side"))
		case 6:
			pick("holder").deliver()
		case 7, 8:
			pick("applier").apply(rapid.IntRange(1, 4).Draw(t, "entries"))
		case 9:
			s := pick("restarted")
			s.restart(rapid.Bool().Draw(t, "power"))
			if rapid.Bool().Draw(t, "tidy") {
				s.box.Tidy()
				s.box.Tidy()
			}
		}
		check()
	}
}

// settle has everything that is held delivered and applied everywhere.
func (w *world) settle() {
	for range 100 {
		busy := 0
		for _, s := range w.sites {
			busy += s.deliver()
		}
		for _, s := range w.sites {
			s.apply(len(w.log))
		}
		if busy == 0 {
			return
		}
	}
	w.t.Fatalf("something is due for ever")
}

// set is what a snapshot holds.
func set(runs []command.Outbox) map[outbox.ID]string {
	all := map[outbox.ID]string{}
	for _, run := range runs {
		for i, op := range run.Ops {
			all[outbox.ID{Origin: run.Origin, Seq: run.First + uint64(i)}] = fmt.Sprintf("%s %x", op.Stamp, op.Write)
		}
	}
	return all
}

// merged merges snapshots, one after the other, into an empty outbox.
func merged(t fataler, snapshots ...[]command.Outbox) []command.Outbox {
	b, err := outbox.Open(outbox.Options{FS: vfs.NewMem(), Dir: "/o", Owner: ident.Incarnation{99}})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	defer b.Close()
	for _, s := range snapshots {
		if m, err := b.Merge(s, false); err != nil || len(m.Forked) > 0 {
			t.Fatalf("merge: %+v, %v", m, err)
		}
	}
	return b.Snapshot()
}

// Merging is a join: whatever members can come to hold, it commutes, associates and is idempotent.
func TestMerge_IsAJoin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 3)
		defer w.close()
		w.live(t, rapid.IntRange(1, 25).Draw(t, "steps"), func() {})
		a, b, c := w.sites[0].box.Snapshot(), w.sites[1].box.Snapshot(), w.sites[2].box.Snapshot()
		same := func(law string, x, y []command.Outbox) {
			if !maps.Equal(set(x), set(y)) {
				t.Fatalf("%s: %v and %v", law, set(x), set(y))
			}
		}
		same("identity", merged(t, a), a)
		same("idempotence", merged(t, a, a), a)
		same("commutativity", merged(t, a, b), merged(t, b, a))
		same("associativity", merged(t, merged(t, a, b), c), merged(t, a, merged(t, b, c)))
		union := set(a)
		maps.Copy(union, set(b))
		if got := set(merged(t, a, b)); !maps.Equal(got, union) {
			t.Fatalf("merged %v, union %v", got, union)
		}
	})
}

// After an exchange both sides hold the same, but for what one of their states holds already; another
// exchange brings nothing.
func TestExchange_Converges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 3)
		defer w.close()
		w.live(t, rapid.IntRange(1, 25).Draw(t, "steps"), func() {})
		a, b := w.sites[0], w.sites[1]
		a.exchange(b)
		if n := a.exchange(b); n != 0 {
			t.Fatalf("a second exchange brought %d operations", n)
		}
		for _, id := range items {
			if x, y := a.shows(id), b.shows(id); x != a.knows(id) || y != b.knows(id) {
				t.Fatalf("%s: %d of %d and %d of %d", id, x, a.knows(id), y, b.knows(id))
			}
		}
		for _, s := range w.sites {
			s.apply(len(w.log))
		}
		a.exchange(b)
		if x, y := set(a.box.Snapshot()), set(b.box.Snapshot()); !maps.Equal(x, y) {
			t.Fatalf("with equal states, one holds %v, the other %v", x, y)
		}
		if x, y := a.feed(), b.feed(); !slices.Equal(x, y) {
			t.Fatalf("with equal states, one feed is %v, the other %v", x, y)
		}
	})
}

// Whatever happens in whatever order, every operation is in the log once in the end, on every member, and
// the last word about what is hidden counts.
func TestDelivery_IsExactlyOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 3)
		defer w.close()
		w.live(t, rapid.IntRange(1, 40).Draw(t, "steps"), func() {})
		w.settle()
		want := map[string]uint64{}
		for _, item := range w.taken {
			want[item]++
		}
		for _, s := range w.sites {
			if st := s.box.Status(); st.Pending != 0 || st.Bytes != 0 || st.Chains != 0 {
				t.Fatalf("%s still holds %+v", s.name, st)
			}
			for _, id := range items {
				if got := s.shows(id); got != want[id] {
					t.Fatalf("%s counts %d signals of %s, %d were taken", s.name, got, id, want[id])
				}
				if hidden := !slices.Contains(s.feed(), id); hidden != w.hides[id].Hidden {
					t.Fatalf("%s hides %s: %t, the last word is %+v", s.name, id, hidden, w.hides[id])
				}
			}
		}
	})
}

// At every moment a member shows what its state and its outbox hold together, each operation once.
func TestPending_CountsOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 2)
		defer w.close()
		w.live(t, rapid.IntRange(1, 30).Draw(t, "steps"), func() {
			for _, s := range w.sites {
				for _, id := range items {
					if got, want := s.shows(id), s.knows(id); got != want {
						t.Fatalf("%s shows %d signals of %s, knows of %d", s.name, got, id, want)
					}
				}
			}
		})
		// An outbox that was not told yet what its state holds: the state has the last word. What is left of
		// a chain whose beginning another member delivered is not due before the state has that beginning.
		w.settle()
		s := w.sites[0]
		s.take("a")
		s.deliver()
		held := s.box.OfItem("default", "a")
		s.apply(len(w.log))
		view := s.store.NewView()
		defer view.Close()
		if pending, err := held.Beyond(view); err != nil || len(pending.Signals) > 0 {
			t.Fatalf("beside a state that holds it: %+v, %v", pending, err)
		}
	})
}

// A disk that was restored from an old copy brings back operations that were delivered, and takes new
// ones: each counts once.
func TestOldDisk_ForksNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	defer w.close()
	s, other := w.sites[0], w.sites[1]
	for range 3 {
		s.take("a")
	}
	old := s.disk.CrashClone(vfs.CrashCloneCfg{})
	for range 2 {
		s.take("a") // before the disk is lost, with the process still going on
	}
	s.exchange(other)
	_ = s.box.Close()
	s.disk, s.fs = old, old
	s.open()
	for range 4 {
		s.take("a")
	}
	s.restart(true)
	s.take("a")
	for range 4 {
		for _, x := range w.sites {
			x.deliver()
			x.apply(len(w.log))
		}
	}
	for _, x := range w.sites {
		if got := x.shows("a"); got != 10 {
			t.Errorf("%s counts %d signals, 10 were taken", x.name, got)
		}
		if st := x.box.Status(); st.Pending != 0 || len(st.Forked) > 0 {
			t.Errorf("%s: %+v", x.name, st)
		}
	}
}

// A member that dies for good after an exchange takes nothing with it: whoever holds its operations
// delivers them.
func TestExchange_SurvivesTheOrigin(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	defer w.close()
	dead, heir := w.sites[0], w.sites[1]
	for range 5 {
		dead.take("b")
	}
	dead.hide("a", true)
	if n := dead.exchange(heir); n != 6 {
		t.Fatalf("the exchange brought %d operations, want 6", n)
	}
	heir.restart(true)
	if got, feed := heir.shows("b"), heir.feed(); got != 5 || slices.Contains(feed, "a") {
		t.Errorf("before delivery: %d signals, feed %v", got, feed)
	}
	heir.deliver()
	heir.apply(len(w.log))
	if got, feed := heir.shows("b"), heir.feed(); got != 5 || slices.Contains(feed, "a") {
		t.Errorf("after delivery: %d signals, feed %v", got, feed)
	}
}

// What contradicts what is known is left alone, and said.
func TestMerge_RefusesAFork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	defer w.close()
	s := w.sites[0]
	s.take("a")
	s.take("b")
	held := s.box.Snapshot()
	forged := held[0]
	forged.Ops = slices.Clone(forged.Ops)
	forged.Ops[1].Stamp++
	for name, runs := range map[string][]command.Outbox{
		"another operation in a place": {forged},
		"another past":                 {{Origin: forged.Origin, Owner: forged.Owner, First: 3, Before: [16]byte{1}, Ops: forged.Ops[1:]}},
		"itself":                       {held[0], forged},
	} {
		m, err := s.box.Merge(runs, false)
		if err != nil || m.Ops != 0 || !slices.Equal(m.Forked, []ident.Incarnation{forged.Origin}) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	if got := s.box.Snapshot(); !maps.Equal(set(got), set(held)) {
		t.Errorf("it holds %v, held %v", set(got), set(held))
	}
	// The log says otherwise: the chain is kept and not delivered.
	s.box.Forked(forged.Origin, command.CodeOutboxForked)
	if st := s.box.Status(); !slices.Equal(st.Forked, []ident.Incarnation{forged.Origin}) || st.Pending != 2 || s.deliver() != 0 {
		t.Errorf("status %+v", st)
	}
}

// Stamps rise along a chain and over what the writer can have seen, however the clock is set.
func TestTake_StampsRise(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	defer w.close()
	s := w.sites[0]
	s.take("a")
	w.clock = w.clock.Add(-time.Hour)
	s.take("a")
	seen := ident.MakeStamp(w.clock.Add(2 * time.Hour).UnixMilli())
	if _, err := s.box.Take(one(command.HardNeg{Item: "a", User: "u", Hide: true}), seen); err != nil {
		t.Fatal(err)
	}
	s.restart(false)
	s.take("a")
	var last ident.Stamp
	for _, run := range slices.SortedFunc(slices.Values(s.box.Snapshot()), func(x, y command.Outbox) int { return int(x.Ops[0].Stamp>>16) - int(y.Ops[0].Stamp>>16) }) {
		for _, op := range run.Ops {
			if op.Stamp <= last {
				t.Errorf("stamp %s follows %s", op.Stamp, last)
			}
			last = op.Stamp
		}
	}
	if last <= seen {
		t.Errorf("the last stamp is %s, seen was %s", last, seen)
	}
}
