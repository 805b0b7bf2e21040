package query_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/query"
	"github.com/tidaldb/tidal/daemon/state"
)

const now = 1_760_000_000_000

// fixture is an item as a test wants it: its row, and whether it exists.
type fixture struct {
	id     string
	row    entity.Row
	attrs  string // empty: {"id":1}
	hidden string // by whom; "shown": hidden once and not any more, from user u
}

// withItems runs do on a view of a store that holds the items, in two collections: those of "default"
// are given, "other" has one that must never show.
func withItems(t interface{ Fatalf(string, ...any) }, items []fixture, do func(*state.View)) {
	opts := state.Options{FS: vfs.NewMem(), Dir: "/state"}
	pos := state.Position{Applied: ident.EntryID{Term: 1, Index: 1}, Conf: &pb.ConfState{Voters: []uint64{1}}}
	c := entity.DefaultCollection()
	other := c
	other.Name, other.ID = "other", c.ID+1
	put := func(b *state.Batch, c entity.CollectionID, i fixture) {
		b.Set(entity.AppendRowKey(nil, c, i.id), i.row.Append(nil))
		if i.row.Exists {
			doc := entity.Item{Version: 9, Created: 8, Attrs: []byte(cmp.Or(i.attrs, `{"id":1}`))}
			b.Set(entity.AppendItemKey(nil, c, i.id), doc.Append(nil))
			b.Set(entity.AppendRankKey(nil, c, i.row.Rank(), i.id), nil)
		}
		switch i.hidden {
		case "":
		case "shown":
			b.Set(entity.AppendHardNegKey(nil, c, "u", i.id), entity.HardNeg{Stamp: 7}.Append(nil))
		default:
			b.Set(entity.AppendHardNegKey(nil, c, i.hidden, i.id), entity.HardNeg{Hidden: true, Stamp: 7}.Append(nil))
		}
	}
	err := state.Create(opts, pos, func(b *state.Batch) error {
		for _, c := range []entity.Collection{c, other} {
			b.Set(entity.CollectionKey(c.Name), c.Encode())
		}
		for _, i := range items {
			put(b, c.ID, i)
		}
		put(b, other.ID, fixture{id: "stranger", row: entity.Row{Exists: true}})
		return nil
	})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	store, err := state.Open(opts)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	view := store.NewView()
	do(view)
	if err := errors.Join(view.Close(), store.Close()); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func row(exists bool, units uint64, at int64) entity.Row {
	r := entity.Row{Exists: exists}
	if units > 0 {
		r.Observe(0, units/1000, entity.MakeMass(units, entity.MakeTick(at, entity.DefaultCollection().HalfLife)))
	}
	return r
}

// A feed is the front of a full sort, whatever its limit: with ties, with many items of one
// rank, with items that have no signals and rows that have no item.
func TestFeed_IsTheFrontOfAFullSort(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var items []fixture
		for _, id := range rapid.SliceOfNDistinct(rapid.StringMatching(`[\x00abé]{1,4}`), 0, 40, rapid.ID[string]).Draw(t, "ids") {
			units := rapid.OneOf(
				rapid.SampledFrom([]uint64{0, 1e6, 2e6}), // ties
				rapid.Uint64Range(1_000_000, 1_100_000),  // neighbours in a rounded rank or two
				rapid.Uint64Range(1, 1e18),               // anything
			).Draw(t, "units")
			exists := rapid.IntRange(0, 4).Draw(t, "exists") > 0
			r := row(exists, units, now)
			if len(r.Totals) > 0 {
				r.Totals[0].Count = rapid.Uint64Range(1, 50).Draw(t, "signals") // from 24 on ranks are rounded
			}
			items = append(items, fixture{id: id, row: r})
		}
		var want []fixture
		for _, i := range items {
			if i.row.Exists {
				want = append(want, i)
			}
		}
		slices.SortFunc(want, func(x, y fixture) int {
			return cmp.Or(y.row.Mass().Compare(x.row.Mass()), cmp.Compare(x.id, y.id))
		})
		withItems(t, items, func(view *state.View) {
			for _, limit := range []int{0, 1, 2, 3, 5, 8, 20, 100} {
				got, err := query.Feed(view, query.FeedRequest{Collection: "default", Limit: limit, Now: now})
				if err != nil {
					t.Fatalf("feed of %d: %v", limit, err)
				}
				if len(got.Items) != min(limit, len(want)) {
					t.Fatalf("feed of %d has %d, of %d items", limit, len(got.Items), len(want))
				}
				for i, g := range got.Items {
					if g.ID != want[i].id || g.Mass != want[i].row.Mass() {
						t.Fatalf("feed of %d, place %d: %q, want %q", limit, i, g.ID, want[i].id)
					}
				}
			}
		})
	})
}

// A feed of a user, with a bound on what items share, is what a walk along the full sort takes.
func TestFeed_HidesAndDiversifies(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var items []fixture
		for i := range rapid.IntRange(0, 150).Draw(t, "items") {
			f := fixture{id: fmt.Sprintf("i%03d", i), row: row(true, rapid.SampledFrom([]uint64{0, 1e6, 2e6, 9e6}).Draw(t, "units"), now)}
			f.attrs = rapid.SampledFrom([]string{`{}`, `{"g":null}`, `{"g":"a"}`, `{"g":"a"}`, `{"g":"b"}`, `{"g":["a","c"]}`, `{"g":[]}`, `{"f":"a","g":7}`}).Draw(t, "attrs")
			f.hidden = rapid.SampledFrom([]string{"", "", "", "u", "v", "shown"}).Draw(t, "hidden")
			items = append(items, f)
		}
		sorted := slices.SortedFunc(slices.Values(items), func(x, y fixture) int {
			return cmp.Or(y.row.Mass().Compare(x.row.Mass()), cmp.Compare(x.id, y.id))
		})
		sorted = slices.DeleteFunc(sorted, func(f fixture) bool { return f.hidden == "u" })
		limit, most := rapid.IntRange(1, 12).Draw(t, "limit"), rapid.IntRange(1, 3).Draw(t, "most")
		values := map[string][]string{`{"g":"a"}`: {"a"}, `{"g":"b"}`: {"b"}, `{"g":["a","c"]}`: {"a", "c"}, `{"f":"a","g":7}`: {"7"}}
		shares := map[string]int{}
		var want []string
		exhausted := false
		for i, f := range sorted {
			if len(want) == limit {
				break
			}
			if exhausted = i == 50*limit; exhausted {
				break
			}
			if slices.ContainsFunc(values[f.attrs], func(v string) bool { return shares[v] >= most }) {
				continue
			}
			for _, v := range values[f.attrs] {
				shares[v]++
			}
			want = append(want, f.id)
		}
		withItems(t, items, func(view *state.View) {
			r := query.FeedRequest{Collection: "default", Limit: limit, Now: now, User: "u", Diversity: query.Diversity{Attribute: "g", Most: most}}
			feed, err := query.Feed(view, r)
			if err != nil {
				t.Fatalf("feed: %v", err)
			}
			var got []string
			for _, i := range feed.Items {
				got = append(got, i.ID)
			}
			if !slices.Equal(got, want) || feed.Exhausted != exhausted {
				t.Fatalf("feed %v, exhausted %t, want %v, %t", got, feed.Exhausted, want, exhausted)
			}
		})
	})
}

// The scan for diverse items ends, and the feed says so.
func TestFeed_SaysThatDiversityIsExhausted(t *testing.T) {
	t.Parallel()
	for n, exhausted := range map[int]bool{100: false, 101: true} {
		var items []fixture
		for i := range n {
			items = append(items, fixture{id: fmt.Sprintf("i%03d", i), row: row(true, 0, now), attrs: `{"g":"a"}`})
		}
		withItems(t, items, func(view *state.View) {
			feed, err := query.Feed(view, query.FeedRequest{Collection: "default", Limit: 2, Now: now, Diversity: query.Diversity{Attribute: "g", Most: 1}})
			if err != nil || len(feed.Items) != 1 || feed.Exhausted != exhausted {
				t.Errorf("of %d items: %d in the feed, exhausted %t, %v, want 1, %t", n, len(feed.Items), feed.Exhausted, err, exhausted)
			}
		})
	}
}

func TestFeed_GivesScoresAndAttributes(t *testing.T) {
	t.Parallel()
	week := entity.DefaultCollection().HalfLife.Milliseconds()
	items := []fixture{
		{id: "none", row: row(true, 0, 0)},
		{id: "old", row: row(true, 3e6, now-week)},
		{id: "new", row: row(true, 2e6, now)},
		{id: "of 1970", row: row(true, 1e18, 1)},
		{id: "gone", row: row(false, 9e6, now)},
	}
	withItems(t, items, func(view *state.View) {
		feed, err := query.Feed(view, query.FeedRequest{Collection: "default", Limit: 10, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		got := feed.Items
		want := []struct {
			id    string
			score float64
		}{{"new", 2}, {"old", 1.5}, {"of 1970", 0}, {"none", 0}}
		if len(got) != len(want) {
			t.Fatalf("feed %+v", got)
		}
		for i, w := range want {
			if g := got[i]; g.ID != w.id || math.Abs(g.Score-w.score) > 6e-6*w.score || g.Version != 9 || string(g.Attrs) != `{"id":1}` {
				t.Errorf("place %d: %+v, want %+v", i, g, w)
			}
		}
	})
}

func TestItem_GivesTotals(t *testing.T) {
	t.Parallel()
	r := row(true, 2_500_000, now)
	withItems(t, []fixture{{id: "a", row: r}, {id: "ghost", row: row(false, 1e6, now)}, {id: "new", row: row(true, 0, 0)}}, func(view *state.View) {
		got, ok, err := query.Item(view, "default", "a", now)
		if err != nil || !ok || len(got.Signals) != 1 {
			t.Fatalf("item = %+v, %t, %v", got, ok, err)
		}
		s := got.Signals[0]
		if s.Type != "view" || s.Count != 1 || s.Weight != 2.5 || s.Score != got.Score || math.Abs(got.Score-2.5) > 2e-5 {
			t.Errorf("signal %+v, score %g", s, got.Score)
		}
		if got.Collection != "default" || got.ID != "a" || got.Version != 9 || got.Created != 8 || string(got.Attrs) != `{"id":1}` {
			t.Errorf("item %+v", got)
		}
		if got, ok, err := query.Item(view, "default", "new", now); err != nil || !ok || got.Score != 0 || got.Signals[0] != (query.Signal{Type: "view"}) {
			t.Errorf("item without signals = %+v, %t, %v", got, ok, err)
		}
		for _, id := range []string{"ghost", "nobody"} {
			if _, ok, err := query.Item(view, "default", id, now); ok || err != nil {
				t.Errorf("item %q: %t, %v, want none", id, ok, err)
			}
		}
	})
}

func TestQuery_UnknownCollection(t *testing.T) {
	t.Parallel()
	withItems(t, nil, func(view *state.View) {
		_, feedErr := query.Feed(view, query.FeedRequest{Collection: "nowhere", Limit: 1, Now: now})
		_, _, itemErr := query.Item(view, "nowhere", "a", now)
		for _, err := range []error{feedErr, itemErr} {
			if e, ok := errors.AsType[*query.NoCollectionError](err); !ok || e.Name != "nowhere" {
				t.Errorf("error = %v", err)
			}
		}
	})
}

// A rank key without its row or item is a fault of the state, and said so.
func TestFeed_ReportsAFaultyState(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		fill func(*state.Batch)
		want string
	}{
		{"no row", func(b *state.Batch) {
			b.Set(entity.AppendRankKey(nil, 1, entity.Mass{Exp: 7, Mant: 1 << 63}, "a"), nil)
		},
			`rank collection "default": read row of item "a": an item without a row`},
		{"no item", func(b *state.Batch) { b.Set(entity.AppendRankKey(nil, 1, entity.Mass{}, "a"), nil) },
			`rank collection "default": rank of an item "a" that is not there`},
	} {
		opts := state.Options{FS: vfs.NewMem(), Dir: "/state"}
		pos := state.Position{Applied: ident.EntryID{Term: 1, Index: 1}, Conf: &pb.ConfState{Voters: []uint64{1}}}
		if err := state.Create(opts, pos, func(b *state.Batch) error {
			b.Set(entity.CollectionKey("default"), entity.DefaultCollection().Encode())
			tc.fill(b)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		store, err := state.Open(opts)
		if err != nil {
			t.Fatal(err)
		}
		view := store.NewView()
		if _, err := query.Feed(view, query.FeedRequest{Collection: "default", Limit: 1, Now: now}); err == nil || err.Error() != tc.want {
			t.Errorf("%s: feed = %v, want %s", tc.name, err, tc.want)
		}
		if err := errors.Join(view.Close(), store.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkFeed reads feeds of items whose scores are spread evenly, are all the same, and are spread evenly
// with so many signals each that their ranks are rounded.
func BenchmarkFeed(b *testing.B) {
	many := func(r entity.Row) entity.Row {
		r.Totals[0].Count = 100
		return r
	}
	for _, spread := range []struct {
		name string
		row  func(i int) entity.Row
	}{
		{"even", func(i int) entity.Row { return row(true, 1e6+uint64(i)*1e4, now) }},
		{"same", func(int) entity.Row { return row(true, 1e6, now) }},
		{"rounded", func(i int) entity.Row { return many(row(true, 1e6+uint64(i)*1e4, now)) }},
	} {
		for _, n := range []int{10_000, 1_000_000} {
			items := make([]fixture, n)
			for i := range items {
				items[i] = fixture{id: fmt.Sprintf("item-%07d", i), row: spread.row(i)}
			}
			withItems(b, items, func(view *state.View) {
				for _, limit := range []int{20, 1000} {
					b.Run(fmt.Sprintf("%s/items=%d/limit=%d", spread.name, n, limit), func(b *testing.B) {
						b.ReportAllocs()
						for b.Loop() {
							if _, err := query.Feed(view, query.FeedRequest{Collection: "default", Limit: limit, Now: now}); err != nil {
								b.Fatal(err)
							}
						}
					})
				}
			})
		}
	}
}
