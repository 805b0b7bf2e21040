package apply

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/state"
)

// scrub compares what g holds with its digest.
func (g *group) scrub() error {
	view := g.store.NewView()
	defer view.Close()
	return Scrub(view, nil)
}

// share has several readers make the digest, and compares it with the one that was kept.
func (g *group) share() error {
	if _, err := g.store.Flush(); err != nil { // what is shared out is on the disk
		return err
	}
	view := g.store.NewView()
	defer view.Close()
	for _, readers := range []int{1, 2, 5} {
		d, err := Digest(view, readers)
		if err != nil {
			return err
		}
		if kept := view.Position().Digest; kept.Version != 0 && !d.Equal(kept) {
			return fmt.Errorf("%d readers found digest %v, want %v", readers, d, kept)
		}
	}
	return nil
}

// The digest that is kept from write to write is that of the pairs, whatever the log did.
func TestDigest_IsThatOfThePairs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		g := newGroup(t)
		defer g.close()
		for rest := drawLog(rt); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(rt, "run")
			if err := g.m.Apply([]*Run{{Entries: rest[:n]}}); err != nil {
				rt.Fatalf("apply: %v", err)
			}
			rest = rest[n:]
			if err := errors.Join(g.scrub(), g.share()); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

// The work is shared out whatever is in the tables, and where there are no bounds.
func TestDigest_IsShared(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	defer g.close()
	for i := range uint64(8) {
		id := fmt.Sprintf("item-%d", i)
		if err := g.m.Apply([]*Run{{Entries: []*pb.Entry{entry(2+i, payload(command.Write{Records: []command.Record{doc(id, fmt.Sprintf(`{"n":%d}`, i)), view(id)}}))}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := g.store.Flush(); err != nil { // a table each
			t.Fatal(err)
		}
	}
	if err := g.share(); err != nil {
		t.Error(err)
	}
	view := g.store.NewView()
	defer view.Close()
	keys, err := view.Split(4)
	lower, upper := entity.AllBounds()
	if inside := within(keys, lower, upper); err != nil || len(inside) == 0 {
		t.Errorf("cut at %q, of which %q lie within the bounds, %v", keys, inside, err)
	}
	for i, want := range map[string]bool{"\x00": false, string(lower): false, "\x03": true, "\xff\xff": true} {
		if got := len(within([][]byte{[]byte(i)}, lower, upper)) == 1; got != want {
			t.Errorf("%x is within the bounds: %t", i, got)
		}
	}
}

// A check has the digest of its own index, and what comes after it in the run counts as well.
func TestDigest_OfACheckEndsWithIt(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	defer g.close()
	run := &Run{Entries: []*pb.Entry{
		entry(2, payload(command.Write{Records: []command.Record{view("a")}})),
		entry(3, command.EncodeCheck(0)),
		entry(4, payload(command.Write{Records: []command.Record{view("a"), doc("a", `{}`)}})),
		entry(5, command.EncodeCheck(7)),
	}}
	if err := g.m.Apply([]*Run{run}); err != nil {
		t.Fatal(err)
	}
	if len(run.Outcomes) != 4 || len(run.Checks) != 2 {
		t.Fatalf("%d outcomes and %d checks, want 4 and 2", len(run.Outcomes), len(run.Checks))
	}
	first, second := run.Checks[0], run.Checks[1]
	if first.ID.Index != 3 || first.Trusted != 0 || second.ID.Index != 5 || second.Trusted != 7 || len(first.Conf.GetVoters()) == 0 {
		t.Errorf("checks %+v and %+v", first, second)
	}
	if first.Digest.Equal(second.Digest) {
		t.Error("two states have the same digest")
	}
	if now := g.store.Position().Digest; !now.Equal(second.Digest) {
		t.Errorf("the last check has digest %v, the store %v", second.Digest, now)
	}
}

// A store that an older binary wrote has no digest: the first opening makes it.
func TestDigest_OfAnOldStoreIsMadeAtOpening(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	defer g.close()
	g.write(view("a"), doc("b", `{"x":1}`))
	want := g.store.Position()
	b := g.store.NewBatch()
	old := want
	old.Digest = state.Digest{}
	if err := errors.Join(b.Commit(old), b.Close()); err != nil {
		t.Fatal(err)
	}
	g.close()
	g.open()
	if got := g.m.pos.Digest; !got.Equal(want.Digest) {
		t.Errorf("the digest made at opening is %v, want %v", got, want.Digest)
	}
	g.write(view("a"))
	if err := g.scrub(); err != nil {
		t.Error(err)
	}
}

// Whatever pair is lost, added or changed behind the back of apply, a scrub names its table.
func TestScrub_FindsEveryChange(t *testing.T) {
	t.Parallel()
	pairs := []struct{ table, key, value string }{
		{"roster", "\x01", "x"},
		{"collections", "\x02films", ""},
		{"items", "\x03\x00\x00\x00\x01a", "{}"},
		{"embeddings", "\x06\x00\x00\x00\x01a", "v"},
		{"hard negatives", "\x07\x00\x00\x00\x01\x00\x01ua", "h"},
		{"receipts", "\x08\x00\x00\x00\x02" + strings.Repeat("k", 16), "r"},
		{"counts of receipts", "\x09", "n"},
		{"ranks", "\x0c\x00\x00\x00\x01" + strings.Repeat("b", 16) + "a", ""},
		{"rows", string(entity.AppendRowKey(nil, 1, "a")), "\x01\x00"},
		{"rows", string(entity.AppendRowKey(nil, 1, "b")), "no row"},
	}
	for _, p := range pairs {
		t.Run(fmt.Sprintf("%s %q", p.table, p.value), func(t *testing.T) {
			g := newGroup(t)
			defer g.close()
			g.write(view("c"))
			b := g.store.NewBatch()
			b.Set([]byte(p.key), []byte(p.value))
			if err := errors.Join(b.Commit(g.store.Position()), b.Close()); err != nil {
				t.Fatal(err)
			}
			err := g.scrub()
			if e, ok := errors.AsType[*MismatchError](err); !ok || e.What != p.table || e.Error() == "" {
				t.Errorf("scrub: %v, want a *MismatchError of %s", err, p.table)
			}
		})
	}
}

// A scrub ends when whoever paces it says so.
func TestScrub_EndsWithItsPace(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	defer g.close()
	view := g.store.NewView()
	defer view.Close()
	stop := errors.New("stop")
	read := 0
	err := Scrub(view, func(bytes int) error {
		if read += bytes; read > 20 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) {
		t.Errorf("scrub: %v, want %v", err, stop)
	}
}
