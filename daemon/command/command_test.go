package command_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
)

var update = flag.Bool("update", false, "rewrite the fixtures")

func drawRecord(t *rapid.T) command.Record {
	collection := rapid.SampledFrom([]string{"default", "films", "\x00"}).Draw(t, "collection")
	if rapid.Bool().Draw(t, "signal") {
		return command.Signal{
			Collection: collection,
			Item:       rapid.String().Draw(t, "item"),
			Type:       rapid.String().Draw(t, "type"),
			User:       rapid.String().Draw(t, "user"),
			Milli:      rapid.Uint64().Draw(t, "milli"),
			At:         rapid.Int64().Draw(t, "at"),
		}
	}
	attrs := rapid.SliceOf(rapid.Byte()).Draw(t, "attrs")
	return command.Item{Collection: collection, ID: rapid.String().Draw(t, "id"), Attrs: attrs}
}

func drawWrite(t *rapid.T) command.Write {
	return command.Write{Records: rapid.SliceOfN(rapid.Custom(drawRecord), 0, 4).Draw(t, "records")}
}

// walk collects what a payload of writes holds.
func walk(e command.Entry) []command.Write {
	writes := make([]command.Write, 0, e.Writes.Len())
	for records, ok := e.Writes.Next(); ok; records, ok = e.Writes.Next() {
		w := command.Write{Records: make([]command.Record, 0, records.Len())}
		for records.Next() {
			switch records.Kind() {
			case command.RecordSignal:
				w.Records = append(w.Records, records.Signal())
			case command.RecordItem:
				w.Records = append(w.Records, records.Item())
			}
		}
		writes = append(writes, w)
	}
	return writes
}

func TestWrites_RoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Custom(drawWrite), 0, 5).Draw(t, "writes")
		stamp := ident.Stamp(rapid.Uint64().Draw(t, "stamp"))
		var encoded [][]byte
		for _, w := range want {
			b := command.EncodeWrite(w)
			if got, err := command.DecodeWrite(b); err != nil || !reflect.DeepEqual(got, w) {
				t.Fatalf("DecodeWrite = %+v, %v, want %+v", got, err, w)
			}
			encoded = append(encoded, b)
		}
		payload := command.EncodeWrites(stamp, encoded)
		e, err := command.Decode(payload)
		if err != nil || e.Kind != command.KindWrites || e.Stamp != stamp {
			t.Fatalf("Decode = %+v, %v", e, err)
		}
		if got := walk(e); len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("writes = %+v, want %+v", got, want)
		}
		if got, ok := command.StampOf(payload); !ok || got != stamp {
			t.Fatalf("StampOf = %s, %t, want %s", got, ok, stamp)
		}
	})
}

func TestEncodeSingle_IsEncodeWrite(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := drawRecord(t)
		want := command.EncodeWrite(command.Write{Records: []command.Record{r}})
		var got []byte
		switch r := r.(type) {
		case command.Signal:
			got = command.EncodeSignal(r)
		case command.Item:
			got = command.EncodeItem(r)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%+v alone is %x, in a write %x", r, got, want)
		}
	})
}

func TestDecode_GivesTheDefaultCollectionItsName(t *testing.T) {
	t.Parallel()
	unnamed := command.EncodeItem(command.Item{ID: "a"})
	named := command.EncodeItem(command.Item{Collection: command.DefaultCollection, ID: "a"})
	if !bytes.Equal(unnamed, named) {
		t.Errorf("unnamed %x, named %x, want the same", unnamed, named)
	}
	w, err := command.DecodeWrite(unnamed)
	if err != nil || w.Records[0].(command.Item).Collection != command.DefaultCollection {
		t.Errorf("DecodeWrite = %+v, %v", w, err)
	}
}

func TestObservedAt_IsNeverTheStamp(t *testing.T) {
	t.Parallel()
	for ms, want := range map[int64]int64{0: 1, 1: 1, -1: -1, 1_760_000_000_000: 1_760_000_000_000} {
		if got := command.ObservedAt(ms); got != want {
			t.Errorf("ObservedAt(%d) = %d, want %d", ms, got, want)
		}
	}
}

func TestDecode_EmptyPayloadIsRaftsOwn(t *testing.T) {
	t.Parallel()
	if e, err := command.Decode(nil); err != nil || e.Kind != command.KindEmpty {
		t.Errorf("Decode(nil) = %+v, %v", e, err)
	}
	if _, ok := command.StampOf(nil); ok {
		t.Error("an empty payload has a stamp")
	}
}

func TestDecode_Roster(t *testing.T) {
	t.Parallel()
	want := membership.Roster{Version: 7, NextID: 3}
	e, err := command.Decode(command.EncodeRoster(want))
	if err != nil || e.Kind != command.KindRoster {
		t.Fatalf("Decode = %+v, %v", e, err)
	}
	if got, err := membership.DecodeRoster(e.Roster); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("roster = %+v, %v, want %+v", got, err, want)
	}
}

// writes is a payload of writes, given byte by byte.
func writes(encoded ...string) []byte {
	var all [][]byte
	for _, w := range encoded {
		all = append(all, []byte(w))
	}
	return command.EncodeWrites(1, all)
}

// A newer member's entries are told apart from bytes that nobody wrote.
func TestDecode_UnknownIsNotMalformed(t *testing.T) {
	t.Parallel()
	good := string(command.EncodeSignal(command.Signal{Item: "a"}))
	for _, tc := range []struct {
		name    string
		payload []byte
		want    string
	}{
		{"entry kind", []byte{200, 1}, "upgrade required: unknown entry kind 200"},
		{"version of writes", []byte{1, 2, 99}, "upgrade required: unknown writes version 2"},
		{"version of a roster", []byte{2, 9}, "upgrade required: unknown roster version 9"},
		{"write flag", writes(good, "\x04\x00"), "upgrade required: unknown write flags 4"},
		{"record kind", writes(good, "\x00\x01\x09"), "upgrade required: unknown record kind 9"},
		{"no version", []byte{1}, "malformed writes payload: cut short: want 1 more byte, have 0"},
		{"no stamp", []byte{1, 1, 0, 0}, "malformed writes payload: cut short: want 8 more bytes, have 2"},
		{"too few writes", append(writes(good)[:10], 5), "malformed writes payload: cut short: 5 things in 0 bytes"},
		{"too many bytes", append(writes(good), 0), "malformed writes payload: 1 bytes follow its end"},
		{"bytes in a write", writes(good + "x"), "malformed writes payload: write 0: 1 bytes follow the last record"},
		{"empty write", writes(""), "malformed writes payload: write 0: bad varint with 0 bytes left"},
		{"long varint", writes("\x80\x00\x00"), "malformed writes payload: write 0: bad varint with 3 bytes left"},
		{"text past the end", writes("\x00\x01\x02\x00\x7fab"), "malformed writes payload: write 0: cut short: want 127 more bytes, have 2"},
		{"default written out", writes("\x00\x01\x02\x07default\x01a\x00"), "malformed writes payload: write 0: the default collection is written out"},
		{"genesis", []byte{3, 1}, "malformed genesis payload: it never travels"},
		{"kind 0 with a payload", []byte{0, 1}, "malformed empty payload: it never travels"},
	} {
		_, err := command.Decode(tc.payload)
		if err == nil || err.Error() != tc.want {
			t.Errorf("%s: Decode(%x) = %v, want %s", tc.name, tc.payload, err, tc.want)
		}
		_, unknown := errors.AsType[*command.UnknownKindError](err)
		if want := strings.HasPrefix(tc.want, "upgrade"); unknown != want {
			t.Errorf("%s: %T", tc.name, err)
		}
	}
	if _, err := command.DecodeWrite([]byte("\x01\x00")); err == nil || err.Error() != "upgrade required: unknown write flags 1" {
		t.Errorf("DecodeWrite of unknown flags = %v", err)
	}
}

func TestKinds_MatchTheDocument(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, line := range strings.Split(string(doc), "\n") {
		if strings.HasPrefix(line, "| entry ") || strings.HasPrefix(line, "| record ") {
			rows = append(rows, line)
		}
	}
	var want []string
	for _, k := range command.Kinds() {
		want = append(want, fmt.Sprintf("| %s | %d | %s | %s |", k.Scope, k.Number, k.Name, k.Capability))
	}
	if !reflect.DeepEqual(rows, want) {
		t.Errorf("README.md has\n%s\nkind.go has\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
	}
	if command.KindWrites.String() != "writes" || command.RecordItem.String() != "item" || command.Kind(99).String() != "entry99" {
		t.Error("kinds do not print as their names")
	}
}

func fixtures() []struct {
	name    string
	payload []byte
} {
	signal := command.Signal{Item: "alien", Type: "view", User: "ripley", Milli: 1500, At: 1_760_000_000_000}
	item := command.Item{Collection: "films", ID: "alien", Attrs: []byte(`{"title":"Alien"}`)}
	stamp := ident.MakeStamp(1_760_000_000_000) + 3
	return []struct {
		name    string
		payload []byte
	}{
		{"writes none", command.EncodeWrites(stamp, nil)},
		{"writes signal", command.EncodeWrites(stamp, [][]byte{command.EncodeSignal(signal)})},
		{"writes item", command.EncodeWrites(stamp, [][]byte{command.EncodeItem(item)})},
		{"writes two", command.EncodeWrites(stamp, [][]byte{
			command.EncodeWrite(command.Write{Records: []command.Record{signal, item}}),
			command.EncodeSignal(command.Signal{Item: "heat", Type: "view", Milli: 1000}),
		})},
		{"roster", command.EncodeRoster(membership.Roster{Version: 7, NextID: 3})},
	}
}

func TestPayloads_MatchFixture(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, f := range fixtures() {
		b.WriteString(f.name + ": " + hex.EncodeToString(f.payload) + "\n")
	}
	path := filepath.Join("testdata", "payloads-v1.txt")
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
		t.Errorf("payloads are\n%swant\n%s", b.String(), want)
	}
}

// What decodes as writes, encodes to the same bytes; nothing makes Decode or the walk panic.
func FuzzDecode(f *testing.F) {
	for _, x := range fixtures() {
		f.Add(x.payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		e, err := command.Decode(payload)
		if err != nil || e.Kind != command.KindWrites {
			return
		}
		var encoded [][]byte
		for _, w := range walk(e) {
			encoded = append(encoded, command.EncodeWrite(w))
		}
		if got := command.EncodeWrites(e.Stamp, encoded); !bytes.Equal(got, payload) {
			t.Errorf("%x encodes to %x", payload, got)
		}
	})
}

func manySignals(n int) []byte {
	encoded := make([][]byte, n)
	for i := range encoded {
		encoded[i] = command.EncodeSignal(command.Signal{Item: fmt.Sprintf("item-%06d", i), Type: "view", User: "u", Milli: 1000})
	}
	return command.EncodeWrites(1, encoded)
}

func TestDecode_WalksWithoutAllocation(t *testing.T) {
	payload := manySignals(100)
	if n := testing.AllocsPerRun(100, func() { decodeAll(t, payload) }); n != 0 {
		t.Errorf("decoding 100 signals allocates %g times", n)
	}
}

func decodeAll(t testing.TB, payload []byte) (milli uint64) {
	e, err := command.Decode(payload)
	if err != nil {
		t.Fatal(err)
	}
	for records, ok := e.Writes.Next(); ok; records, ok = e.Writes.Next() {
		for records.Next() {
			milli += records.Signal().Milli
		}
	}
	return milli
}

func BenchmarkDecode(b *testing.B) {
	for _, n := range []int{1, 256, 2048} {
		b.Run(fmt.Sprintf("signals=%d", n), func(b *testing.B) {
			payload := manySignals(n)
			b.ReportAllocs()
			b.SetBytes(int64(len(payload)))
			for b.Loop() {
				decodeAll(b, payload)
			}
		})
	}
}

func BenchmarkEncodeSignal(b *testing.B) {
	s := command.Signal{Item: "item-000000", Type: "view", User: "u", Milli: 1000}
	b.ReportAllocs()
	for b.Loop() {
		command.EncodeSignal(s)
	}
}
