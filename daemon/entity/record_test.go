package entity

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"flag"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite the fixtures")

func drawRow(t *rapid.T) Row {
	r := Row{Exists: rapid.Bool().Draw(t, "exists")}
	for typ := range MaxTypes {
		if rapid.IntRange(0, 19).Draw(t, "has") == 0 {
			r.Totals = append(r.Totals, Total{
				Type:  typ,
				Count: rapid.Uint64().Draw(t, "count"),
				Sum:   rapid.Uint64().Draw(t, "sum"),
				Mass:  drawMass(t),
			})
		}
	}
	return r
}

func TestRow_RoundTrip(t *testing.T) {
	t.Parallel()
	var got Row // reused, as the cache does
	rapid.Check(t, func(t *rapid.T) {
		want := drawRow(t)
		if err := got.Decode(want.Append(nil)); err != nil {
			t.Fatalf("decode %+v: %v", want, err)
		}
		if got.Exists != want.Exists || !slices.Equal(got.Totals, want.Totals) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

func TestRow_ObserveKeepsTotalsByType(t *testing.T) {
	t.Parallel()
	var r Row
	now := MakeTick(1_760_000_000_000, week)
	for _, typ := range []int{5, 1, 5, 0} {
		r.Observe(typ, 2000, MakeMass(2e6, now))
	}
	one, two := MakeMass(2e6, now), MakeMass(4e6, now)
	want := []Total{{0, 1, 2000, one}, {1, 1, 2000, one}, {5, 2, 4000, two}}
	if !slices.Equal(r.Totals, want) {
		t.Errorf("totals = %+v, want %+v", r.Totals, want)
	}
	if got := r.Mass(); got != MakeMass(8e6, now) {
		t.Errorf("mass = %+v", got)
	}
	if got := r.Total(4); got != (Total{Type: 4}) {
		t.Errorf("total of a type never seen = %+v", got)
	}
	single := Row{Totals: r.Totals[:1]}
	if single.Mass() != one {
		t.Errorf("the mass of one type is not its own")
	}
}

func TestRow_SumSaturates(t *testing.T) {
	t.Parallel()
	r := Row{Totals: []Total{{Sum: math.MaxUint64 - 1}}}
	for range 2 {
		r.Observe(0, 5, Mass{})
		if got := r.Total(0).Sum; got != math.MaxUint64 {
			t.Fatalf("sum = %d, want the most", got)
		}
	}
}

func drawCollection(t *rapid.T) Collection {
	id := rapid.StringMatching(`[a-zä]{1,12}`)
	c := Collection{
		Name:     id.Draw(t, "name"),
		ID:       CollectionID(rapid.Uint32Min(1).Draw(t, "id")),
		HalfLife: time.Duration(rapid.Int64Range(1000, MaxHalfLife.Milliseconds()).Draw(t, "half-life")) * time.Millisecond,
	}
	for _, name := range rapid.SliceOfNDistinct(id, 0, 8, rapid.ID[string]).Draw(t, "types") {
		c.Types = append(c.Types, SignalType{name, rapid.Uint64Range(0, MaxMilli).Draw(t, "milli")})
	}
	return c
}

func TestCollection_RoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := drawCollection(t)
		got, err := DecodeCollection(want.Name, want.Encode())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	})
}

func TestCollection_RefusesWhatBreaksItsRules(t *testing.T) {
	t.Parallel()
	many := make([]SignalType, MaxTypes+1)
	for i := range many {
		many[i].Name = strings.Repeat("a", i+1)
	}
	for _, tc := range []struct {
		change  func(*Collection)
		wantErr string
	}{
		{func(c *Collection) { c.ID = 0 }, "collection record: id is 0"},
		{func(c *Collection) { c.Name = "" }, "collection record: name: id is empty"},
		{func(c *Collection) { c.HalfLife = time.Millisecond }, "collection record: half-life 1ms, want whole milliseconds from 1s to 876000h0m0s"},
		{func(c *Collection) { c.Types = many }, "collection record: 65 signal types, limit 64"},
		{func(c *Collection) { c.Types[0].Milli = MaxMilli + 1 }, `collection record: signal type "view" weighs 1000000001/1000, limit 1000000000/1000`},
		{func(c *Collection) { c.Types = append(c.Types, c.Types[0]) }, `collection record: signal types 0 and 1 are both named "view"`},
		{func(c *Collection) { c.Types[0].Name = "\xff" }, `collection record: signal type 0: id "\xff" is not valid UTF-8`},
	} {
		c := DefaultCollection()
		tc.change(&c)
		if _, err := DecodeCollection(c.Name, c.Encode()); err == nil || err.Error() != tc.wantErr {
			t.Errorf("error = %v, want %s", err, tc.wantErr)
		}
	}
}

func TestItem_RoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := Item{rapid.Uint64().Draw(t, "version"), rapid.Uint64().Draw(t, "created"), []byte(rapid.String().Draw(t, "attrs"))}
		got, err := DecodeItem(want.Append(nil))
		if err != nil || got.Version != want.Version || got.Created != want.Created || !bytes.Equal(got.Attrs, want.Attrs) {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	})
}

func TestCheckID(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ id, wantErr string }{
		{"a", ""},
		{"\x00", ""},
		{strings.Repeat("ä", 128), ""},
		{"", "id is empty"},
		{strings.Repeat("a", 257), "id has 257 bytes, limit 256"},
		{"a\xff", `id "a\xff" is not valid UTF-8`},
	} {
		got := ""
		if err := CheckID(tc.id); err != nil {
			got = err.Error()
		}
		if got != tc.wantErr {
			t.Errorf("CheckID(%q) = %q, want %q", tc.id, got, tc.wantErr)
		}
	}
}

// Rank keys sort as (collection, bucket falling, id) and give their parts back.
func TestRankKey_SortsAndParses(t *testing.T) {
	t.Parallel()
	type rank struct {
		c  CollectionID
		b  Bucket
		id string
	}
	draw := rapid.Custom(func(t *rapid.T) rank {
		return rank{
			CollectionID(rapid.SampledFrom([]uint32{1, 2, 255, 256, math.MaxUint32}).Draw(t, "collection")),
			Bucket(rapid.OneOf(rapid.Int64Range(-3, 3), rapid.Just(int64(NoBucket)), rapid.Int64()).Draw(t, "bucket")),
			rapid.StringMatching(`[\x00\x01a\xff]{1,4}`).Draw(t, "id"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		x, y := draw.Draw(t, "x"), draw.Draw(t, "y")
		kx, ky := AppendRankKey(nil, x.c, x.b, x.id), AppendRankKey(nil, y.c, y.b, []byte(y.id))
		want := cmp.Or(cmp.Compare(x.c, y.c), cmp.Compare(y.b, x.b), cmp.Compare(x.id, y.id))
		if got := bytes.Compare(kx, ky); got != want {
			t.Fatalf("keys of %+v and %+v compare %d, want %d", x, y, got, want)
		}
		b, id, err := ParseRankKey(kx)
		if err != nil || b != x.b || string(id) != x.id {
			t.Fatalf("parts of %+v = %d, %q, %v", x, b, id, err)
		}
		lower, upper := RankBounds(x.c)
		if in := bytes.Compare(lower, ky) <= 0 && bytes.Compare(ky, upper) < 0; in != (y.c == x.c) {
			t.Fatalf("%+v in the bounds of collection %d: %t", y, x.c, in)
		}
	})
}

func TestParseRankKey_RefusesOthers(t *testing.T) {
	t.Parallel()
	for _, key := range [][]byte{nil, AppendRowKey(nil, 1, "a long enough id"), AppendRankKey(nil, 1, 2, "")} {
		if _, _, err := ParseRankKey(key); err == nil {
			t.Errorf("ParseRankKey(%x) is accepted", key)
		}
	}
}

// fixtures are records and keys as they lie on the disks of the first release.
func fixtures() []struct {
	name  string
	bytes []byte
} {
	mass := MakeMass(2_500_000, MakeTick(1_760_000_000_000, week))
	row := Row{Exists: true, Totals: []Total{{0, 3, 2500, mass}, {2, 1, 1000, Mass{}}}}
	item := Item{Version: 300, Created: 7, Attrs: []byte(`{"title":"Alien"}`)}
	schema := DefaultCollection()
	return []struct {
		name  string
		bytes []byte
	}{
		{"collection", schema.Encode()},
		{"item", item.Append(nil)},
		{"row", row.Append(nil)},
		{"row without signals", (&Row{Exists: true}).Append(nil)},
		{"key roster", RosterKey()},
		{"key collection", CollectionKey("default")},
		{"key item", AppendItemKey(nil, 1, "a")},
		{"key row", AppendRowKey(nil, 1, "a")},
		{"key rank", AppendRankKey(nil, 1, mass.Bucket(), "a")},
		{"key rank without signals", AppendRankKey(nil, 1, NoBucket, "a")},
	}
}

func TestRecords_MatchFixture(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, f := range fixtures() {
		b.WriteString(f.name + ": " + hex.EncodeToString(f.bytes) + "\n")
	}
	path := filepath.Join("testdata", "records-v1.txt")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("records are\n%swant\n%s", b.String(), want)
	}
}

// What decodes, encodes to the same bytes; nothing makes a decoder panic.
func FuzzDecode(f *testing.F) {
	for _, x := range fixtures() {
		f.Add(x.bytes)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Row
		if err := r.Decode(b); err == nil {
			if got := r.Append(nil); !bytes.Equal(got, b) {
				t.Errorf("row %x encodes to %x", b, got)
			}
		}
		if i, err := DecodeItem(b); err == nil {
			if got := i.Append(nil); !bytes.Equal(got, b) {
				t.Errorf("item %x encodes to %x", b, got)
			}
		}
		if c, err := DecodeCollection("default", b); err == nil {
			if got := c.Encode(); !bytes.Equal(got, b) {
				t.Errorf("collection %x encodes to %x", b, got)
			}
		}
		if bucket, id, err := ParseRankKey(b); err == nil {
			c := CollectionID(b[1])<<24 | CollectionID(b[2])<<16 | CollectionID(b[3])<<8 | CollectionID(b[4])
			if got := AppendRankKey(nil, c, bucket, id); !bytes.Equal(got, b) {
				t.Errorf("rank key %x encodes to %x", b, got)
			}
		}
	})
}

func BenchmarkRow(b *testing.B) {
	var r Row
	r.Exists = true
	r.Observe(0, 1000, MakeMass(1e6, MakeTick(1_760_000_000_000, week)))
	record := r.Append(nil)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		var buf []byte
		for b.Loop() {
			buf = r.Append(buf[:0])
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := r.Decode(record); err != nil {
				b.Fatal(err)
			}
		}
	})
}
