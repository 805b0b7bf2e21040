package httpd

import (
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
)

func TestDecodeSignal(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 257)
	at := time.Date(2026, 3, 1, 12, 0, 0, 250e6, time.UTC).UnixMilli()
	for _, tc := range []struct {
		name, in string
		want     command.Signal
		wantErr  string // field: code and detail
	}{
		{name: "least", in: `{"item":"a","signal":"view"}`, want: command.Signal{Item: "a", Type: "view", Milli: 1000}},
		{
			name: "all, in another order", in: ` {"ts":1772366400250, "weight":2.5,"user":"u","collection":"c","signal":"view","item":"\u0061\u00e9"} `,
			want: command.Signal{Collection: "c", Item: "aé", Type: "view", User: "u", Milli: 2500, At: at},
		},
		{name: "time as text", in: `{"item":"a","signal":"view","ts":"2026-03-01T13:00:00.25+01:00"}`, want: command.Signal{Item: "a", Type: "view", Milli: 1000, At: at}},
		{name: "time 0 is not now", in: `{"item":"a","signal":"view","ts":0}`, want: command.Signal{Item: "a", Type: "view", Milli: 1000, At: 1}},
		{name: "time before 1970", in: `{"item":"a","signal":"view","ts":-5}`, want: command.Signal{Item: "a", Type: "view", Milli: 1000, At: -5}},
		{name: "least weight", in: `{"item":"a","signal":"view","weight":0.001}`, want: command.Signal{Item: "a", Type: "view", Milli: 1}},
		{name: "most weight", in: `{"item":"a","signal":"view","weight":1e6}`, want: command.Signal{Item: "a", Type: "view", Milli: 1e9}},
		{name: "weight is rounded", in: `{"item":"a","signal":"view","weight":0.0014999}`, want: command.Signal{Item: "a", Type: "view", Milli: 1}},
		{name: "longest id", in: `{"item":"` + long[:256] + `","signal":"view"}`, want: command.Signal{Item: long[:256], Type: "view", Milli: 1000}},

		{name: "no JSON", in: `{`, wantErr: `: the text ends where a string should be at byte 1`},
		{name: "empty", in: ``, wantErr: `: the text ends where '{' should be at byte 0`},
		{name: "an array", in: `[{"item":"a","signal":"view"}]`, wantErr: `: an array of signals is not taken; send one object a request`},
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
			got, err := decodeSignal([]byte(tc.in))
			checkProblem(t, err, tc.wantErr)
			if err == nil && got != tc.want {
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
	item := func(id, attrs string) command.Item { return command.Item{ID: id, Attrs: []byte(attrs)} }
	many := func(n int) string { return "[" + strings.Repeat(`{"id":"a"},`, n-1) + `{"id":"a"}]` }
	for _, tc := range []struct {
		name, in string
		want     []command.Item
		array    bool
		wantErr  string
	}{
		{name: "least", in: `{"id":"a"}`, want: []command.Item{item("a", `{}`)}},
		{name: "attributes are canonical", in: `{"z":[1, 2.0],"id":"a","b":{"d":1,"c":"\u0041"}}`, want: []command.Item{item("a", `{"b":{"c":"A","d":1},"z":[1,2.0]}`)}},
		{name: "a collection", in: `{"collection":"c","id":"a"}`, want: []command.Item{{Collection: "c", ID: "a", Attrs: []byte(`{}`)}}},
		{name: "an array", in: ` [{"id":"a"} , {"id":"b","x":1}] `, want: []command.Item{item("a", `{}`), item("b", `{"x":1}`)}, array: true},
		{name: "an array of one", in: `[{"id":"a"}]`, want: []command.Item{item("a", `{}`)}, array: true},
		{name: "as large as can be", in: pad(api.MaxItemBytes), want: []command.Item{item("a", `{"p":"`+strings.Repeat("x", api.MaxItemBytes-17)+`"}`)}},

		{name: "too large", in: "[" + pad(api.MaxItemBytes+1) + "]", wantErr: `[0]: an item of 65537 bytes, limit 65536 (65537/65536 bytes)`},
		{name: "an empty array", in: `[]`, wantErr: `: the array is empty`},
		{name: "too many", in: many(api.MaxRecords + 1), wantErr: `: the array has more than 4096 items`},
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
			got, array, err := decodeItems([]byte(tc.in))
			checkProblem(t, err, tc.wantErr)
			if err == nil && (array != tc.array || !reflect.DeepEqual(got, tc.want)) {
				t.Errorf("decodeItems = %v, %v, want %v, %v", got, array, tc.want, tc.array)
			}
		})
	}
	if got, _, err := decodeItems([]byte(many(api.MaxRecords))); err != nil || len(got) != api.MaxRecords {
		t.Errorf("decodeItems of %d = %d items, %v", api.MaxRecords, len(got), err)
	}
}

// FuzzDecodeSignal: what the scanner takes, encoding/json takes too and means the same by it.
func FuzzDecodeSignal(f *testing.F) {
	for _, s := range []string{
		`{"item":"a","signal":"view"}`, `{"ts":1,"weight":2.5,"user":"u","collection":"c","signal":"view","item":"\u0061"}`,
		`{"item":"a","signal":"view","ts":"2026-03-01T13:00:00.25+01:00"}`, `{"item":"a","signal":"view","zz":1}`, `{"item":"a","signal":"view"}{}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := decodeSignal(in)
		var ref api.Signal
		dec := json.NewDecoder(strings.NewReader(string(in)))
		dec.DisallowUnknownFields()
		refErr := dec.Decode(&ref)
		if err != nil {
			return // stricter: which errors, the tables say
		}
		if refErr != nil || dec.More() {
			t.Fatalf("decodeSignal(%q) = %+v; encoding/json: %v", in, got, refErr)
		}
		milli := uint64(1000)
		if ref.Weight != nil {
			milli = uint64(math.Round(*ref.Weight * 1000))
		}
		want := command.Signal{Collection: ref.Collection, Item: ref.Item, Type: ref.Signal, User: ref.User, Milli: milli, At: got.At}
		if got != want || (got.At == 0) != (ref.TS == nil) {
			t.Fatalf("decodeSignal(%q) = %+v, encoding/json %+v", in, got, ref)
		}
	})
}

func TestParams(t *testing.T) {
	t.Parallel()
	known := append([]string{"limit", "user"}, readParams...)
	for _, tc := range []struct{ query, wantErr string }{
		{query: ""},
		{query: "limit=20&user=u&consistency=linearizable&min_index=18446744073709551615"},
		{query: "diversity=genre:2", wantErr: `diversity: diversity: this route has no such parameter; it has ["limit" "user" "consistency" "min_index"]`},
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
		if tc.query == "limit=99999999999999999999" && err != nil {
			if p, _ := errors.AsType[*api.Problem](err); p.Threshold != nil {
				t.Errorf("a number beyond uint64 is not measured")
			}
		}
		checkProblem(t, err, tc.wantErr)
	}
}
