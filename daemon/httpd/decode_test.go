package httpd

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/entity"
)

// decodeAll reads a body and returns the records that it became.
func decodeAll(body string, read reader) (records []command.Record, array bool, err error) {
	d := &decoder{principal: "me"}
	array, err = d.decodeRecords([]byte(body), read)
	if err != nil {
		return nil, array, err
	}
	w, err := command.DecodeWrite(d.out.Bytes())
	return w.Records, array, err
}

func TestDecodeSignal(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 257)
	at := time.Date(2026, 3, 1, 12, 0, 0, 250e6, time.UTC).UnixMilli()
	for _, tc := range []struct {
		name, in string
		want     command.Signal
		wantErr  string // field: code and detail
	}{
		{name: "least", in: `{"item":"a","signal":"view"}`, want: command.Signal{Collection: "default", Item: "a", Type: "view", Milli: 1000}},
		{
			name: "all, in another order", in: ` {"ts":1772366400250, "weight":2.5,"user":"u","collection":"c","signal":"view","item":"\u0061\u00e9"} `,
			want: command.Signal{Collection: "c", Item: "aé", Type: "view", User: "u", Milli: 2500, At: at},
		},
		{name: "time as text", in: `{"item":"a","signal":"view","ts":"2026-03-01T13:00:00.25+01:00"}`, want: command.Signal{Collection: "default", Item: "a", Type: "view", Milli: 1000, At: at}},
		{name: "time 0 is not now", in: `{"item":"a","signal":"view","ts":0}`, want: command.Signal{Collection: "default", Item: "a", Type: "view", Milli: 1000, At: 1}},
		{name: "time before 1970", in: `{"item":"a","signal":"view","ts":-5}`, want: command.Signal{Collection: "default", Item: "a", Type: "view", Milli: 1000, At: -5}},
		{name: "least weight", in: `{"item":"a","signal":"view","weight":0.001}`, want: command.Signal{Collection: "default", Item: "a", Type: "view", Milli: 1}},
		{name: "most weight", in: `{"item":"a","signal":"view","weight":1e6}`, want: command.Signal{Collection: "default", Item: "a", Type: "view", Milli: 1e9}},
		{name: "weight is rounded", in: `{"item":"a","signal":"view","weight":0.0014999}`, want: command.Signal{Collection: "default", Item: "a", Type: "view", Milli: 1}},
		{name: "longest id", in: `{"item":"` + long[:256] + `","signal":"view"}`, want: command.Signal{Collection: "default", Item: long[:256], Type: "view", Milli: 1000}},

		{name: "no JSON", in: `{`, wantErr: `: the text ends where a string should be at byte 1`},
		{name: "empty", in: ``, wantErr: `: the text ends where '{' should be at byte 0`},
		{name: "a field named like one of another record", in: `{"item":"a","signal":"view","vector":[1]}`, wantErr: `vector: vector: a signal has no such field`},
		{name: "kind outside of a stream", in: `{"kind":"signal","item":"a","signal":"view"}`, wantErr: `kind: kind: a signal has no such field`},
		{name: "trailing", in: `{"item":"a","signal":"view"}{}`, wantErr: `: '{' where the end should be at byte 28`},
		{name: "unknown field", in: `{"item":"a","signal":"view","zz":1}`, wantErr: `zz: zz: a signal has no such field`},
		{name: "fields are matched exactly", in: `{"Item":"a","signal":"view"}`, wantErr: `Item: Item: a signal has no such field`},
		{name: "no item", in: `{"signal":"view"}`, wantErr: `item: item: is missing`},
		{name: "no signal", in: `{"item":"a"}`, wantErr: `signal: signal: is missing`},
		{name: "given twice", in: `{"item":"a","item":"b","signal":"view"}`, wantErr: `item: item: given twice`},
		{name: "empty id", in: `{"item":"","signal":"view"}`, wantErr: `item: item: is empty; an id has 1 to 256 bytes`},
		{name: "long id", in: `{"item":"` + long + `","signal":"view"}`, wantErr: `item: item: "` + long[:64] + `…" has 257 bytes, limit 256 (257/256 bytes)`},
		{name: "null", in: `{"item":null,"signal":"view"}`, wantErr: `item: item: 'n' where a string should be at byte 8`},
		{name: "bad UTF-8", in: "{\"item\":\"\xff\",\"signal\":\"view\"}", wantErr: `item: item: a string is not valid UTF-8 at byte 10`},
		{name: "NaN", in: `{"item":"a","signal":"view","weight":NaN}`, wantErr: `weight: weight: 'N' where a number should be at byte 37`},
		{name: "weight as text", in: `{"item":"a","signal":"view","weight":"1"}`, wantErr: `weight: weight: '"' where a number should be at byte 37`},
		{name: "weight too small", in: `{"item":"a","signal":"view","weight":0.0009}`, wantErr: `weight: weight: 0.0009 is below the least, 0.001 (0.0009/0.001 )`},
		{name: "negative weight", in: `{"item":"a","signal":"view","weight":-1}`, wantErr: `weight: weight: -1 is below the least, 0.001 (-1/0.001 )`},
		{name: "weight too large", in: `{"item":"a","signal":"view","weight":1000000.1}`, wantErr: `weight: weight: 1000000.1 is above the limit 1e+06 (1.0000001e+06/1e+06 )`},
		{name: "weight out of range", in: `{"item":"a","signal":"view","weight":1e999}`, wantErr: `weight: weight: number 1e999 is out of range at byte 42`},
		{name: "time with a fraction", in: `{"item":"a","signal":"view","ts":1.5}`, wantErr: `ts: ts: "1.5" is not a whole number of milliseconds`},
		{name: "time in no calendar", in: `{"item":"a","signal":"view","ts":"2026-02-30T00:00:00Z"}`, wantErr: `ts: ts: "2026-02-30T00:00:00Z" is not a time of RFC 3339`},
		{name: "time far away", in: `{"item":"a","signal":"view","ts":999999999999999}`, wantErr: `ts: ts: 999999999999999 is outside of the years 1 to 9999`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, _, err := decodeAll(tc.in, (*decoder).signal)
			checkProblem(t, err, tc.wantErr)
			if err == nil && (len(got) != 1 || got[0] != command.Record(tc.want)) {
				t.Errorf("decodeSignal(%s) = %+v, want %+v", tc.in, got, tc.want)
			}
		})
	}
}

// checkProblem compares a refusal: "field: detail (measured/threshold unit)".
func checkProblem(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		p, ok := errors.AsType[*api.Problem](err)
		if !ok || p.Status/100 != 4 || p.Effect != api.EffectNone {
			t.Fatalf("error %v is no refusal without effect", err)
		}
		got = p.Field + ": " + p.Detail
		if p.Threshold != nil {
			got += fmt.Sprintf(" (%v/%v %s)", *p.Measured, *p.Threshold, p.Unit)
		}
	}
	if got != want {
		t.Errorf("problem = %s\n   want = %s", got, want)
	}
}

func TestDecodeItems(t *testing.T) {
	t.Parallel()
	pad := func(n int) string { return `{"id":"a","p":"` + strings.Repeat("x", n-len(`{"id":"a","p":""}`)) + `"}` }
	item := func(id, attrs string) command.Record {
		return command.Item{Collection: "default", ID: id, Attrs: []byte(attrs)}
	}
	many := func(n int) string { return "[" + strings.Repeat(`{"id":"a"},`, n-1) + `{"id":"a"}]` }
	for _, tc := range []struct {
		name, in string
		want     []command.Record
		array    bool
		wantErr  string
	}{
		{name: "least", in: `{"id":"a"}`, want: []command.Record{item("a", `{}`)}},
		{name: "attributes are canonical", in: `{"z":[1, 2.0],"id":"a","b":{"d":1,"c":"\u0041"}}`, want: []command.Record{item("a", `{"b":{"c":"A","d":1},"z":[1,2.0]}`)}},
		{name: "a collection", in: `{"collection":"c","id":"a"}`, want: []command.Record{command.Item{Collection: "c", ID: "a", Attrs: []byte(`{}`)}}},
		{name: "an array", in: ` [{"id":"a"} , {"id":"b","x":1}] `, want: []command.Record{item("a", `{}`), item("b", `{"x":1}`)}, array: true},
		{name: "an array of one", in: `[{"id":"a"}]`, want: []command.Record{item("a", `{}`)}, array: true},
		{name: "as large as can be", in: pad(api.MaxItemBytes), want: []command.Record{item("a", `{"p":"`+strings.Repeat("x", api.MaxItemBytes-17)+`"}`)}},

		{name: "too large", in: "[" + pad(api.MaxItemBytes+1) + "]", wantErr: `[0]: an item of 65537 bytes, limit 65536 (65537/65536 bytes)`},
		{name: "an empty array", in: `[]`, wantErr: `: the array is empty`},
		{name: "too many", in: many(api.MaxRecords + 1), wantErr: `: the array has more than 4096 records`},
		{name: "no id", in: `{"x":1}`, wantErr: `id: id: is missing`},
		{name: "no id in an array", in: `[{"id":"a"},{"x":1}]`, wantErr: `[1].id: [1].id: is missing`},
		{name: "id given twice", in: `{"id":"a","id":"a"}`, wantErr: `id: id: given twice`},
		{name: "attribute given twice", in: `{"id":"a","x":1,"x":1}`, wantErr: `: key "x" is given twice at byte 22`},
		{name: "an id that is no text", in: `{"id":5}`, wantErr: `id: id: '5' where a string should be at byte 6`},
		{name: "a bad attribute is named", in: `[{"id":"a","n":[1,nil]}]`, wantErr: `[0].n: [0].n: 'n' where a value should be at byte 18`},
		{name: "too deep", in: `{"id":"d","a":` + strings.Repeat("[", 100_000), wantErr: `a: a: nesting deeper than 32 at byte 45`},
		{name: "no object", in: `"a"`, wantErr: `: '"' where '{' should be at byte 0`},
		{name: "trailing", in: `{"id":"a"} x`, wantErr: `: 'x' where the end should be at byte 11`},
		{name: "trailing after an array", in: `[{"id":"a"}]]`, wantErr: `: ']' where the end should be at byte 12`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, array, err := decodeAll(tc.in, (*decoder).item)
			checkProblem(t, err, tc.wantErr)
			if err == nil && (array != tc.array || !reflect.DeepEqual(got, tc.want)) {
				t.Errorf("decodeItems = %v, %v, want %v, %v", got, array, tc.want, tc.array)
			}
		})
	}
	if got, _, err := decodeAll(many(api.MaxRecords), (*decoder).item); err != nil || len(got) != api.MaxRecords {
		t.Errorf("decodeItems of %d = %d items, %v", api.MaxRecords, len(got), err)
	}
}

func TestDecodeEmbedding(t *testing.T) {
	t.Parallel()
	vector := func(floats ...float32) (b []byte) {
		for _, f := range floats {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
		}
		return b
	}
	long := func(n int) string { return `{"item":"a","vector":[` + strings.Repeat("1,", n-1) + `1]}` }
	for _, tc := range []struct {
		name, in string
		want     []byte
		wantErr  string
	}{
		{name: "floats are kept as the nearest", in: `{"item":"a","vector":[1,-0,0.1,1e-46,3.4028234663852886e38]}`, want: vector(1, float32(math.Copysign(0, -1)), 0.1, 0, math.MaxFloat32)},
		{name: "as long as can be", in: long(api.MaxDimension), want: bytes.Repeat(vector(1), api.MaxDimension)},
		{name: "too long", in: long(api.MaxDimension + 1), wantErr: `vector: vector: has more than 4096 numbers`},
		{name: "empty", in: `{"item":"a","vector":[]}`, wantErr: `vector: vector: is empty; want 1 to 4096 numbers`},
		{name: "beyond 32 bits", in: `[{"item":"a","vector":[0,1e39]}]`, wantErr: `[0].vector: [0].vector: number 1, 1e39, is beyond what 32-bit floats hold`},
		{name: "NaN", in: `{"item":"a","vector":[NaN]}`, wantErr: `vector: vector: 'N' where a number should be at byte 22`},
		{name: "null", in: `{"item":"a","vector":[null]}`, wantErr: `vector: vector: 'n' where a number should be at byte 22`},
		{name: "no vector", in: `{"item":"a"}`, wantErr: `vector: vector: is missing`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, _, err := decodeAll(tc.in, (*decoder).embedding)
			checkProblem(t, err, tc.wantErr)
			if want := (command.Embedding{Collection: "default", Item: "a", Vector: tc.want}); err == nil && !reflect.DeepEqual(got, []command.Record{want}) {
				t.Errorf("decoded %+v, want %+v", got, want)
			}
		})
	}
}

func TestDecodeHardNeg(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in      string
		want    command.HardNeg
		wantErr string
	}{
		{in: `{"user":"u","item":"a","op":"hide"}`, want: command.HardNeg{Collection: "default", Item: "a", User: "u", Hide: true}},
		{in: `{"op":"unhide","collection":"c","item":"a","user":"u"}`, want: command.HardNeg{Collection: "c", Item: "a", User: "u"}},
		{in: `{"user":"u","item":"a","op":"Hide"}`, wantErr: `op: op: "Hide" is neither hide nor unhide`},
		{in: `{"user":"u","item":"a"}`, wantErr: `op: op: is missing`},
		{in: `{"op":"hide","item":"a"}`, wantErr: `user: user: is missing`},
		{in: `{"op":"hide","user":"a"}`, wantErr: `item: item: is missing`},
	} {
		got, _, err := decodeAll(tc.in, (*decoder).hardNeg)
		checkProblem(t, err, tc.wantErr)
		if err == nil && (len(got) != 1 || got[0] != command.Record(tc.want)) {
			t.Errorf("decoded %s as %+v, want %+v", tc.in, got, tc.want)
		}
	}
}

// A record's key names the record by the client's key, and its body by what is asked.
func TestDecode_KeysOfRecords(t *testing.T) {
	t.Parallel()
	got, _, err := decodeAll(`[{"item":"a","signal":"view","key":"k"},{"item":"a","signal":"view"}, {"key":"k","signal":"view" ,"item":"a"}]`, (*decoder).signal)
	if err != nil {
		t.Fatal(err)
	}
	first, ok := got[0].(command.Keyed)
	if !ok || first.Key.Hash != command.HashKey("me", "k") || first.Key.Body == ([16]byte{}) || got[2] != got[0] || got[1] != first.Record {
		t.Errorf("decoded %+v", got)
	}
	if _, _, err := decodeAll(`{"item":"a","signal":"view","key":""}`, (*decoder).signal); err == nil {
		t.Error("an empty key is taken")
	}
	items, _, err := decodeAll(`{"id":"a","key":"k","kind":1}`, (*decoder).item)
	if want := (command.Item{Collection: "default", ID: "a", Attrs: []byte(`{"key":"k","kind":1}`)}); err != nil || !reflect.DeepEqual(items, []command.Record{want}) {
		t.Errorf("an item with an attribute called key = %+v, %v", items, err)
	}
}

func TestDecodeSchema(t *testing.T) {
	t.Parallel()
	got, err := decodeSchema([]byte(`{"half_life":"36h","signals":{"view":{"weight":1},"like":{"weight":2.5},"mute":{"weight":0}},"attributes":{"g":"strings"},"dimension":3}`))
	want := entity.Schema{
		HalfLife: 36 * time.Hour, Dimension: 3,
		Types:      []entity.SignalType{{Name: "view", Milli: 1000}, {Name: "like", Milli: 2500}, {Name: "mute"}},
		Attributes: []entity.Attribute{{Name: "g", Type: entity.AttributeStrings}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("decodeSchema = %+v, %v, want %+v", got, err, want)
	}
	for in, want := range map[string]string{
		`{}`:                                               `half_life: half_life: is missing`,
		`{"half_life":"1h"}`:                               `signals: signals: is missing`,
		`{"half_life":"1h","signals":{}} x`:                `: 'x' where the end should be at byte 32`,
		`{"half_life":3600,"signals":{}}`:                  `half_life: half_life: '3' where a string should be at byte 13`,
		`{"half_life":"x","signals":{}}`:                   `half_life: half_life: "x" is no duration; want one like 168h or 90m`,
		`{"half_life":"1ms","signals":{}}`:                 `: half-life 1ms, want whole milliseconds from 1s to 876000h0m0s`,
		`{"half_life":"1h","signals":{"v":{}}}`:            `signals.v.weight: signals.v.weight: is missing`,
		`{"half_life":"1h","signals":{"v":{"weight":-1}}}`: `signals.v.weight: signals.v.weight: -1 is below the least, 0 (-1/0 )`,
		`{"half_life":"1h","signals":{"v":{"weight":1},"v":{"weight":1}}}`: `signals.v: signals.v: given twice`,
		`{"half_life":"1h","signals":{"":{"weight":1}}}`:                   `signals: signals: is empty; an id has 1 to 256 bytes`,
		`{"half_life":"1h","signals":{"v":{"weight":1,"x":1}}}`:            `x: x: a signal type has no such field`,
		`{"half_life":"1h","signals":{},"attributes":{"a":"text"}}`:        `attributes.a: attributes.a: "text" is no type; [string number bool strings] are`,
		`{"half_life":"1h","signals":{},"dimension":0}`:                    `dimension: dimension: 0 is no whole number from 1 to 4096`,
		`{"half_life":"1h","signals":{},"dimension":1.5}`:                  `dimension: dimension: 1.5 is no whole number from 1 to 4096`,
		`{"half_life":"1h","signals":{},"Dimension":1}`:                    `Dimension: Dimension: a collection has no such field`,
	} {
		_, err := decodeSchema([]byte(in))
		checkProblem(t, err, want)
	}
}

func TestDecodeLine(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in      string
		want    command.Record
		wantErr string
	}{
		{in: `{"kind":"signal","item":"a","signal":"view"}`, want: command.Signal{Collection: "default", Item: "a", Type: "view", Milli: 1000}},
		{in: `{"item":"a","signal":"view","kind":"\u0073ignal"} `, want: command.Signal{Collection: "default", Item: "a", Type: "view", Milli: 1000}},
		{in: `{"x":[{"kind":"signal"}],"id":"a","kind":"item"}`, want: command.Item{Collection: "default", ID: "a", Attrs: []byte(`{"x":[{"kind":"signal"}]}`)}},
		{in: `{"kind":"embedding","item":"a","vector":[0]}`, want: command.Embedding{Collection: "default", Item: "a", Vector: make([]byte, 4)}},
		{in: `{"kind":"hardneg","item":"a","user":"u","op":"hide"}`, want: command.HardNeg{Collection: "default", Item: "a", User: "u", Hide: true}},
		{in: ``, wantErr: `: the text ends where '{' should be at byte 0`},
		{in: `[]`, wantErr: `: '[' where '{' should be at byte 0`},
		{in: `{"item":"a"}`, wantErr: `kind: kind: is missing`},
		{in: `{"kind":"item","kind":"item","id":"a"}`, wantErr: `kind: kind: given twice`},
		{in: `{"kind":7}`, wantErr: `kind: kind: '7' where a string should be at byte 8`},
		{in: `{"kind":"schema"}`, wantErr: `kind: kind: "schema" is none of signal, item, embedding and hardneg`},
		{in: `{"a":nil,"kind":"item"}`, wantErr: `a: a: 'n' where a value should be at byte 5`},
		{in: `{"kind":"signal","item":"a","signal":"view"}{}`, wantErr: `: '{' where the end should be at byte 44`},
	} {
		d := &decoder{line: true}
		err := d.decodeLine([]byte(tc.in))
		checkProblem(t, err, tc.wantErr)
		if err != nil {
			if d.out.Count() != 0 {
				t.Errorf("%s: refused, and a record is left behind", tc.in)
			}
			continue
		}
		w, err := command.DecodeWrite(d.out.Bytes())
		if err != nil || !reflect.DeepEqual(w.Records, []command.Record{tc.want}) {
			t.Errorf("%s: %+v, %v, want %+v", tc.in, w.Records, err, tc.want)
		}
	}
}

// FuzzDecodeSignals: what the scanner takes, encoding/json takes too and means the same by it.
func FuzzDecodeSignals(f *testing.F) {
	for _, s := range []string{
		`{"item":"a","signal":"view"}`, `{"ts":1,"weight":2.5,"user":"u","collection":"c","signal":"view","item":"\u0061"}`,
		`{"item":"a","signal":"view","ts":"2026-03-01T13:00:00.25+01:00"}`, `{"item":"a","signal":"view","zz":1}`, `{"item":"a","signal":"view"}{}`,
		`[{"item":"a","signal":"view","key":"k"},{"item":"b","signal":"view"}]`, `[{"item":"a","signal":"view"},]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		records, array, err := decodeAll(string(in), (*decoder).signal)
		if err != nil {
			return // stricter: which errors, the tables say
		}
		var refs []api.Signal
		strictly(t, in, array, &refs)
		if len(records) != len(refs) {
			t.Fatalf("decoded %q: %d records, encoding/json %d", in, len(records), len(refs))
		}
		for i, ref := range refs {
			keyed, ok := records[i].(command.Keyed)
			if ok {
				records[i] = keyed.Record
			}
			got := records[i].(command.Signal)
			milli := uint64(1000)
			if ref.Weight != nil {
				milli = uint64(math.Round(*ref.Weight * 1000))
			}
			want := command.Signal{Collection: cmp.Or(ref.Collection, "default"), Item: ref.Item, Type: ref.Signal, User: ref.User, Milli: milli, At: got.At}
			if got != want || (got.At == 0) != (ref.TS == nil) || ok != (ref.Key != "") || ok && keyed.Key.Hash != command.HashKey("me", ref.Key) {
				t.Fatalf("decoded %q: %+v, encoding/json %+v", in, got, ref)
			}
		}
	})
}

// FuzzDecodeLine: a line is what encoding/json says it is, of every kind; what is taken can be applied.
func FuzzDecodeLine(f *testing.F) {
	for _, s := range []string{
		`{"kind":"signal","item":"a","signal":"view","weight":2.5}`, `{"kind":"item","id":"a","x":{"y":[1,"\n"]},"key":"k"}`,
		`{"vector":[1,-0.5,1e-40],"kind":"embedding","item":"a"}`, `{"kind":"hardneg","item":"a","user":"u","op":"hide"}`, `{"kind":"x"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		d := &decoder{line: true, principal: "me"}
		if d.decodeLine(in) != nil {
			return
		}
		w, err := command.DecodeWrite(d.out.Bytes())
		if err != nil || len(w.Records) != 1 {
			t.Fatalf("decoded %q: %+v, %v", in, w, err)
		}
		r := w.Records[0]
		if k, ok := r.(command.Keyed); ok {
			r = k.Record
		}
		switch r := r.(type) {
		case command.Signal:
			var refs []struct {
				Kind string
				api.Signal
			}
			strictly(t, in, false, &refs)
			if ref := refs[0]; ref.Kind != "signal" || r.Item != ref.Item || r.Type != ref.Signal.Signal || r.User != ref.User {
				t.Fatalf("decoded %q: %+v, encoding/json %+v", in, r, ref)
			}
		case command.Embedding:
			var refs []struct {
				Kind string
				api.Embedding
			}
			strictly(t, in, false, &refs)
			var want []byte
			for _, v := range refs[0].Vector {
				want = binary.LittleEndian.AppendUint32(want, math.Float32bits(v))
			}
			if ref := refs[0]; ref.Kind != "embedding" || r.Item != ref.Item || !bytes.Equal(r.Vector, want) {
				t.Fatalf("decoded %q: %+v, encoding/json %+v", in, r, ref)
			}
		case command.HardNeg:
			var refs []struct {
				Kind string
				api.HardNeg
			}
			strictly(t, in, false, &refs)
			if ref := refs[0]; ref.Kind != "hardneg" || r.Item != ref.Item || r.User != ref.User || r.Hide != (ref.Op == "hide") {
				t.Fatalf("decoded %q: %+v, encoding/json %+v", in, r, ref)
			}
		case command.Item:
			var ref map[string]any
			if err := json.Unmarshal(in, &ref); err != nil {
				t.Fatalf("decoded %q: %v", in, err)
			}
			if ref["kind"] != "item" || ref["id"] != r.ID {
				t.Fatalf("decoded %q: %+v, encoding/json %+v", in, r, ref)
			}
			for _, name := range []string{"kind", "id", "key", "collection"} {
				delete(ref, name)
			}
			var attrs map[string]any
			if err := json.Unmarshal(r.Attrs, &attrs); err != nil || !reflect.DeepEqual(attrs, ref) {
				t.Fatalf("decoded %q: attributes %s, %v, encoding/json %+v", in, r.Attrs, err, ref)
			}
		default:
			t.Fatalf("decoded %q: %T", in, r)
		}
	})
}

// strictly reads in, one T or an array, as encoding/json does.
func strictly[T any](t *testing.T, in []byte, array bool, into *[]T) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(in))
	dec.DisallowUnknownFields()
	var err error
	if array {
		err = dec.Decode(into)
	} else {
		*into = make([]T, 1)
		err = dec.Decode(&(*into)[0])
	}
	if err != nil || dec.More() {
		t.Fatalf("taken: %q; encoding/json: %v", in, err)
	}
}

func TestParams(t *testing.T) {
	t.Parallel()
	known := append([]string{"limit", "user", "diversity", "ack"}, readParams...)
	for _, tc := range []struct{ query, wantErr string }{
		{query: ""},
		{query: "limit=20&user=u&consistency=linearizable&min_index=18446744073709551615"},
		{query: "diversity=a:b:1000&ack=leader"},
		{query: "colour=us", wantErr: `colour: colour: this route has no such parameter; it has ["limit" "user" "diversity" "ack" "consistency" "min_index" "region"]`},
		{query: "diversity=genre", wantErr: `diversity: diversity: "genre" has no number; want attribute:number`},
		{query: "diversity=genre:0", wantErr: `diversity: diversity: 0 is below the least, 1 (0/1 )`},
		{query: "diversity=:2", wantErr: `diversity: diversity: is empty; an id has 1 to 256 bytes`},
		{query: "ack=local", wantErr: `ack: ack: local is offered by POST /signals and POST /hardnegs alone; quorum and leader are here`},
		{query: "limit=1&limit=2", wantErr: `limit: limit: given 2 times`},
		{query: "limit=%zz", wantErr: `: the query is malformed: invalid URL escape "%zz"`},
		{query: "limit=0", wantErr: `limit: limit: 0 is below the least, 1 (0/1 )`},
		{query: "limit=1001", wantErr: `limit: limit: 1001 is above the limit 1000 (1001/1000 )`},
		{query: "limit=-1", wantErr: `limit: limit: "-1" is not a whole number`},
		{query: "limit=99999999999999999999", wantErr: `limit: limit: "99999999999999999999" is above the limit 1000`},
		{query: "user=", wantErr: `user: user: is empty; an id has 1 to 256 bytes`},
		{query: "user=%ff", wantErr: `user: user: "\xff" is not valid UTF-8`},
		{query: "consistency=strong", wantErr: `consistency: consistency: "strong" is neither local nor linearizable`},
	} {
		p, err := parseParams(tc.query, known)
		if err == nil {
			_, err = p.uint("limit", 20, 1, 1000)
		}
		if err == nil {
			_, err = p.id("user", "")
		}
		if err == nil {
			_, err = p.read()
		}
		if err == nil {
			_, err = p.diversity()
		}
		if err == nil {
			_, err = p.ack("quorum")
		}
		if tc.query == "limit=99999999999999999999" && err != nil {
			if p, _ := errors.AsType[*api.Problem](err); p.Threshold != nil {
				t.Errorf("a number beyond uint64 is not measured")
			}
		}
		checkProblem(t, err, tc.wantErr)
	}
}
