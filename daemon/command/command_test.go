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
	"time"

	"github.com/zeebo/blake3"
	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
)

var update = flag.Bool("update", false, "rewrite the fixtures")

func drawRecord(t *rapid.T) command.Record {
	collection := rapid.SampledFrom([]string{"default", "films", "\x00"}).Draw(t, "collection")
	text := func(what string) string { return rapid.String().Draw(t, what) }
	raw := func(what string) []byte { return rapid.SliceOf(rapid.Byte()).Draw(t, what) }
	switch rapid.SampledFrom(command.Kinds()[4:]).Draw(t, "kind").Number {
	case uint8(command.RecordSignal):
		return command.Signal{
			Collection: collection, Item: text("item"), Type: text("type"), User: text("user"),
			Milli: rapid.Uint64().Draw(t, "milli"), At: rapid.Int64().Draw(t, "at"),
		}
	case uint8(command.RecordItem):
		return command.Item{Collection: collection, ID: text("id"), Attrs: raw("attrs")}
	case uint8(command.RecordEmbedding):
		return command.Embedding{Collection: collection, Item: text("item"), Vector: raw("vector")}
	case uint8(command.RecordHardNeg):
		return command.HardNeg{Collection: collection, Item: text("item"), User: text("user"), Hide: rapid.Bool().Draw(t, "hide")}
	case uint8(command.RecordDelete):
		return command.Delete{Collection: collection, ID: text("id")}
	case uint8(command.RecordOutbox):
		return drawOutbox(t)
	case uint8(command.RecordOutboxForget):
		return command.OutboxForget{Before: ident.Stamp(rapid.Uint64().Draw(t, "before"))}
	}
	c := command.Collection{Name: collection, Schema: entity.Schema{
		HalfLife:  time.Duration(rapid.Int64Range(0, entity.MaxHalfLife.Milliseconds()).Draw(t, "half-life")) * time.Millisecond,
		Dimension: rapid.IntRange(0, entity.MaxDimension).Draw(t, "dimension"),
	}}
	for range rapid.IntRange(0, 3).Draw(t, "types") {
		c.Schema.Types = append(c.Schema.Types, entity.SignalType{Name: text("type"), Milli: rapid.Uint64().Draw(t, "milli")})
	}
	for range rapid.IntRange(0, 3).Draw(t, "attributes") {
		c.Schema.Attributes = append(c.Schema.Attributes, entity.Attribute{Name: text("attribute"), Type: entity.AttributeType(rapid.Uint8().Draw(t, "type"))})
	}
	return c
}

func drawOutbox(t *rapid.T) command.Outbox {
	o := command.Outbox{
		Origin: ident.Incarnation{rapid.Byte().Draw(t, "origin"), 1}, Owner: ident.Incarnation{rapid.Byte().Draw(t, "owner")},
		First: rapid.Uint64Range(1, 1<<40).Draw(t, "first"), Before: [16]byte{rapid.Byte().Draw(t, "before")},
	}
	for range rapid.IntRange(1, 3).Draw(t, "operations") {
		o.Ops = append(o.Ops, command.Op{Stamp: ident.Stamp(rapid.Uint64().Draw(t, "stamp")), Write: one(command.HardNeg{
			Item: rapid.String().Draw(t, "item"), User: "u", Hide: rapid.Bool().Draw(t, "hide"),
		})})
	}
	return o
}

// An operation's hash stands for itself and for all before it.
func TestChain_DependsOnEverything(t *testing.T) {
	t.Parallel()
	op := command.Op{Stamp: 7, Write: one(command.Signal{Item: "a"})}
	seen := map[[16]byte]string{}
	for name, hash := range map[string][16]byte{
		"it":     command.Chain([16]byte{}, ident.Incarnation{1}, 1, op),
		"before": command.Chain([16]byte{1}, ident.Incarnation{1}, 1, op),
		"origin": command.Chain([16]byte{}, ident.Incarnation{2}, 1, op),
		"place":  command.Chain([16]byte{}, ident.Incarnation{1}, 2, op),
		"stamp":  command.Chain([16]byte{}, ident.Incarnation{1}, 1, command.Op{Stamp: 8, Write: op.Write}),
		"write":  command.Chain([16]byte{}, ident.Incarnation{1}, 1, command.Op{Stamp: 7, Write: one(command.Signal{Item: "b"})}),
	} {
		if other, ok := seen[hash]; ok {
			t.Errorf("another %s and another %s have one hash", name, other)
		}
		seen[hash] = name
	}
}

// A delivery is told from any other write.
func TestDecodeOutbox(t *testing.T) {
	t.Parallel()
	want := command.Outbox{Origin: ident.Incarnation{1}, First: 4, Ops: []command.Op{{Stamp: 1, Write: one(command.Signal{Item: "a", Collection: "default"})}}}
	if got, err := command.DecodeOutbox(one(want)); err != nil || !reflect.DeepEqual(got, want) || got.Last() != 4 {
		t.Errorf("DecodeOutbox = %+v, %v, want %+v", got, err, want)
	}
	key := command.Key{Hash: [16]byte{1}}
	for name, w := range map[string]command.Write{
		"nothing":         {},
		"a signal":        {Records: []command.Record{command.Signal{Item: "a"}}},
		"two":             {Records: []command.Record{want, want}},
		"a keyed write":   {Key: &key, Records: []command.Record{want}},
		"a keyed record":  {Records: []command.Record{command.Keyed{Key: key, Record: want}}},
		"something after": {Records: []command.Record{want, command.Delete{ID: "a"}}},
	} {
		if _, err := command.DecodeOutbox(command.EncodeWrite(w)); err == nil {
			t.Errorf("DecodeOutbox of %s = nil", name)
		}
	}
}

func drawKey(t *rapid.T) command.Key {
	return command.Key{Hash: [16]byte{rapid.Byte().Draw(t, "hash")}, Body: [16]byte{15: rapid.Byte().Draw(t, "body")}}
}

func drawWrite(t *rapid.T) command.Write {
	w := command.Write{Records: []command.Record{}}
	for range rapid.IntRange(0, 4).Draw(t, "records") {
		r := drawRecord(t)
		if rapid.IntRange(0, 3).Draw(t, "keyed") == 0 {
			r = command.Keyed{Key: drawKey(t), Record: r}
		}
		w.Records = append(w.Records, r)
	}
	if rapid.IntRange(0, 3).Draw(t, "keyed") == 0 {
		w.Key = new(drawKey(t))
	}
	return w
}

// walk collects what a payload of writes holds.
func walk(e command.Entry) []command.Write {
	writes := make([]command.Write, 0, e.Writes.Len())
	for records, ok := e.Writes.Next(); ok; records, ok = e.Writes.Next() {
		w := command.Write{Records: make([]command.Record, 0, records.Len())}
		if k, ok := records.WriteKey(); ok {
			w.Key = &k
		}
		for records.Next() {
			r := records.Record()
			if k, ok := records.Key(); ok {
				r = command.Keyed{Key: k, Record: r}
			}
			w.Records = append(w.Records, r)
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

// A builder makes what EncodeWrite makes of the same records, also when its memory is used again; its
// keys are hashes of what is under them.
func TestBuilder_IsEncodeWrite(t *testing.T) {
	t.Parallel()
	var b command.Builder
	rapid.Check(t, func(t *rapid.T) {
		b.Reset()
		w := command.Write{}
		for range rapid.IntRange(0, 4).Draw(t, "records") {
			r := drawRecord(t)
			switch r := r.(type) {
			case command.Signal:
				b.Signal(r)
			case command.Item:
				b.Item(r)
			case command.Embedding:
				b.Embedding(r)
			case command.HardNeg:
				b.HardNeg(r)
			default:
				b.Add(r)
			}
			if rapid.Bool().Draw(t, "keyed") {
				alone := command.EncodeWrite(command.Write{Records: []command.Record{r}})
				k := command.Key{Hash: command.HashKey("me", "k"), Body: sum16(alone[2:])} // without flags and count
				b.KeyLast(k.Hash)
				r = command.Keyed{Key: k, Record: r}
			}
			w.Records = append(w.Records, r)
		}
		want := command.EncodeWrite(w)
		if got := b.Bytes(); !bytes.Equal(got, want) || b.Count() != len(w.Records) || b.Len() < len(want) {
			t.Fatalf("%+v is %x, by a builder %x", w, want, got)
		}
		w.Key = &command.Key{Hash: command.HashKey("me", "k"), Body: sum16(want[2:])}
		if got, want := b.Keyed(w.Key.Hash), command.EncodeWrite(w); !bytes.Equal(got, want) {
			t.Fatalf("%+v is %x, by a builder %x", w, want, got)
		}
	})
}

func sum16(b []byte) [16]byte {
	sum := blake3.Sum256(b)
	return [16]byte(sum[:16])
}

func TestHashKey_KeepsClientsApart(t *testing.T) {
	t.Parallel()
	seen := map[[16]byte]string{}
	for _, c := range [][2]string{{"", "ab"}, {"a", "b"}, {"ab", ""}, {"b", "a"}, {"", ""}} {
		h := command.HashKey(c[0], c[1])
		if other, ok := seen[h]; ok {
			t.Errorf("%q and %q have the same hash", c, other)
		}
		seen[h] = fmt.Sprint(c)
	}
}

func TestInspect(t *testing.T) {
	t.Parallel()
	at := func(ms int64) command.Signal { return command.Signal{Item: "a", Type: "view", Milli: 1, At: ms} }
	for _, tc := range []struct {
		write command.Write
		want  command.Facts
	}{
		{command.Write{}, command.Facts{}},
		{command.Write{Key: &command.Key{}}, command.Facts{Keyed: true}},
		{command.Write{Records: []command.Record{at(0), command.Item{ID: "a"}}}, command.Facts{}},
		{command.Write{Records: []command.Record{command.Delete{ID: "a"}, at(-5)}}, command.Facts{Latest: -5, Record: 1}},
		{command.Write{Records: []command.Record{at(7), command.Keyed{Record: at(9)}, at(0), at(8)}}, command.Facts{Latest: 9, Record: 1, Keyed: true}},
	} {
		if got := command.Inspect(command.EncodeWrite(tc.write)); got != tc.want {
			t.Errorf("Inspect(%+v) = %+v, want %+v", tc.write, got, tc.want)
		}
	}
}

func TestDecode_GivesTheDefaultCollectionItsName(t *testing.T) {
	t.Parallel()
	unnamed := one(command.Item{ID: "a"})
	named := one(command.Item{Collection: command.DefaultCollection, ID: "a"})
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
	good := string(one(command.Signal{Item: "a"}))
	for _, tc := range []struct {
		name    string
		payload []byte
		want    string
	}{
		{"entry kind", []byte{200, 1}, "upgrade required: unknown entry kind 200"},
		{"version of writes", []byte{1, 2, 99}, "upgrade required: unknown writes version 2"},
		{"version of a roster", []byte{2, 9}, "upgrade required: unknown roster version 9"},
		{"write flag", writes(good, "\x04\x00"), "upgrade required: unknown write flags 4"},
		{"write flag beside a known one", writes(good, "\x03\x00"), "upgrade required: unknown write flags 3"},
		{"record kind", writes(good, "\x00\x01\x09"), "upgrade required: unknown record kind 9"},
		{"record kind with a key", writes(good, "\x00\x01\x89"+strings.Repeat("k", 32)), "upgrade required: unknown record kind 9"},
		{"half a key of a write", writes("\x01" + strings.Repeat("k", 31)), "malformed writes payload: write 0: cut short: want 32 more bytes, have 31"},
		{"half a key of a record", writes("\x00\x01\x85" + strings.Repeat("k", 31)), "malformed writes payload: write 0: cut short: want 32 more bytes, have 31"},
		{"op of a hard negative", writes("\x00\x01\x04\x00\x01i\x01u\x02"), "malformed writes payload: write 0: op 2 of a hard negative"},
		{"dimension", writes("\x00\x01\x06\x00\x01\xff\xff\x7f\x00\x00"), "malformed writes payload: write 0: dimension 2097151, limit 4096"},
		{"no version", []byte{1}, "malformed writes payload: cut short: want 1 more byte, have 0"},
		{"no stamp", []byte{1, 1, 0, 0}, "malformed writes payload: cut short: want 8 more bytes, have 2"},
		{"too few writes", append(writes(good)[:10], 5), "malformed writes payload: cut short: 5 things in 0 bytes"},
		{"too many bytes", append(writes(good), 0), "malformed writes payload: 1 bytes follow its end"},
		{"bytes in a write", writes(good + "x"), "malformed writes payload: write 0: 1 bytes follow the last record"},
		{"empty write", writes(""), "malformed writes payload: write 0: bad varint with 0 bytes left"},
		{"long varint", writes("\x80\x00\x00"), "malformed writes payload: write 0: bad varint with 3 bytes left"},
		{"text past the end", writes("\x00\x01\x02\x00\x7fab"), "malformed writes payload: write 0: cut short: want 127 more bytes, have 2"},
		{"default written out", writes("\x00\x01\x02\x07default\x01a\x00"), "malformed writes payload: write 0: the default collection is written out"},
		{"item in an outbox", writes(outboxOf(one(command.Item{ID: "a"}))), "malformed writes payload: write 0: operation 0: a record item where none may be"},
		{"outbox in an outbox", writes(outboxOf(outboxOf(good))), "malformed writes payload: write 0: operation 0: a record outbox where none may be"},
		{"newer record in an outbox", writes(outboxOf("\x04\x00")), "upgrade required: unknown write flags 4"},
		{"bytes in an operation", writes(outboxOf(good + "x")), "malformed writes payload: write 0: operation 0: 1 bytes follow the last record"},
		{"outbox of nothing", writes(string(one(command.Outbox{Origin: ident.Incarnation{1}, First: 1}))), "malformed writes payload: write 0: 0 operations of an outbox, from 1 on"},
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
	if _, err := command.DecodeWrite([]byte("\x02\x00")); err == nil || err.Error() != "upgrade required: unknown write flags 2" {
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

type fixture struct {
	name    string
	payload []byte
}

// one is a write of one record.
func one(r command.Record) []byte {
	return command.EncodeWrite(command.Write{Records: []command.Record{r}})
}

// outboxOf is a delivery of one operation.
func outboxOf[W string | []byte](write W) string {
	return string(one(command.Outbox{Origin: ident.Incarnation{1}, First: 1, Ops: []command.Op{{Stamp: 1, Write: []byte(write)}}}))
}

// fixtures are payloads as they lie in logs, by the file that holds them.
func fixtures() map[string][]fixture {
	signal := command.Signal{Item: "alien", Type: "view", User: "ripley", Milli: 1500, At: 1_760_000_000_000}
	item := command.Item{Collection: "films", ID: "alien", Attrs: []byte(`{"title":"Alien"}`)}
	stamp := ident.MakeStamp(1_760_000_000_000) + 3
	writes := func(encoded ...[]byte) []byte { return command.EncodeWrites(stamp, encoded) }
	key := command.Key{Hash: command.HashKey("ripley", "k1"), Body: [16]byte{1, 2, 3}}
	schema := entity.Schema{
		HalfLife: 36 * time.Hour, Dimension: 3,
		Types:      []entity.SignalType{{Name: "like", Milli: 2500}, {Name: "view", Milli: 1000}},
		Attributes: []entity.Attribute{{Name: "genre", Type: entity.AttributeStrings}, {Name: "year", Type: entity.AttributeNumber}},
	}
	return map[string][]fixture{
		"payloads-v1.txt": {
			{"writes none", writes()},
			{"writes signal", writes(one(signal))},
			{"writes item", writes(one(item))},
			{"writes two", writes(
				command.EncodeWrite(command.Write{Records: []command.Record{signal, item}}),
				one(command.Signal{Item: "heat", Type: "view", Milli: 1000}),
			)},
			{"roster", command.EncodeRoster(membership.Roster{Version: 7, NextID: 3})},
		},
		"payloads-v2.txt": {
			{"embedding", writes(one(command.Embedding{Item: "alien", Vector: []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x80}}))},
			{"hide", writes(one(command.HardNeg{Item: "alien", User: "ripley", Hide: true}))},
			{"unhide", writes(one(command.HardNeg{Collection: "films", Item: "alien", User: "ripley"}))},
			{"delete", writes(one(command.Delete{ID: "alien"}))},
			{"collection", writes(one(command.Collection{Name: "films", Schema: schema}))},
			{"keyed write", writes(command.EncodeWrite(command.Write{Key: &key, Records: []command.Record{signal, item}}))},
			{"keyed record", writes(command.EncodeWrite(command.Write{Records: []command.Record{item, command.Keyed{Key: key, Record: signal}}}))},
		},
		"payloads-v3.txt": {
			{"check", command.EncodeCheck(0)},
			{"check trusted", command.EncodeCheck(3)},
		},
		"payloads-v4.txt": {
			{"outbox", writes(one(command.Outbox{
				Origin: ident.Incarnation{1, 15: 2}, Owner: ident.Incarnation{3, 15: 4}, First: 300, Before: [16]byte{5, 15: 6},
				Ops: []command.Op{{Stamp: 7 << 16, Write: one(signal)}, {Stamp: 7<<16 + 1, Write: one(command.HardNeg{Item: "alien", User: "ripley", Hide: true})}},
			}))},
			{"outbox forget", writes(one(command.OutboxForget{Before: 9 << 16}))},
		},
	}
}

// The payloads of every release stay what they are, and are read.
func TestPayloads_MatchFixtures(t *testing.T) {
	t.Parallel()
	for file, payloads := range fixtures() {
		var b strings.Builder
		for _, f := range payloads {
			b.WriteString(f.name + ": " + hex.EncodeToString(f.payload) + "\n")
			if _, err := command.Decode(f.payload); err != nil {
				t.Errorf("%s of %s: %v", f.name, file, err)
			}
		}
		path := filepath.Join("testdata", file)
		if *update && file != "payloads-v1.txt" {
			if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if b.String() != string(want) {
			t.Errorf("%s is\n%swant\n%s", file, b.String(), want)
		}
	}
}

// What decodes as writes, encodes to the same bytes; nothing makes Decode or the walk panic.
func FuzzDecode(f *testing.F) {
	for _, payloads := range fixtures() {
		for _, x := range payloads {
			f.Add(x.payload)
		}
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
		encoded[i] = one(command.Signal{Item: fmt.Sprintf("item-%06d", i), Type: "view", User: "u", Milli: 1000})
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

func BenchmarkBuilder(b *testing.B) {
	s := command.Signal{Item: "item-000000", Type: "view", User: "u", Milli: 1000}
	var w command.Builder
	b.ReportAllocs()
	for b.Loop() {
		w.Reset()
		for range 256 {
			w.Signal(s)
		}
		w.Bytes()
	}
}
