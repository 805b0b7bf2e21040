package httpd

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/ops"
	"github.com/tidaldb/tidal/daemon/replica"
)

func wireWrites() []ops.Write {
	return []ops.Write{
		{Data: command.EncodeSignal(command.Signal{Item: "a", Type: "view", Milli: 1000}), Ack: api.AckQuorum},
		{Data: command.EncodeItem(command.Item{ID: "a", Attrs: []byte(`{}`)}), Ack: api.AckLeader},
	}
}

func wireResults() []result {
	id := ident.EntryID{Term: 2, Index: 300}
	return []result{
		{Written: ops.Written{ID: id, Ack: api.AckQuorum, Created: true, Version: 7, Replicated: 1, Pending: []string{"b", "c"}}},
		{Written: ops.Written{ID: id, Ack: api.AckLeader, Pending: []string{"b"}}},
		{Written: ops.Written{ID: id, Ack: api.AckQuorum, Refused: []command.Refusal{{Record: 200, Code: "unknown_signal", Detail: "x"}}}},
		{Written: ops.Written{ID: id, Ack: api.AckQuorum, Denied: &command.Refusal{Code: "too_many_keys", Detail: "y"}}},
		{err: &replica.OverloadedError{Queue: replica.QueueWrites, Bytes: 9, Limit: 9, RetryAfter: 1}},
	}
}

func encodeWrites(writes []ops.Write) []byte {
	var all []*handover
	for _, w := range writes {
		all = append(all, &handover{Write: w})
	}
	return appendWrites(nil, all)
}

func TestWire_RoundTrip(t *testing.T) {
	t.Parallel()
	writes, err := decodeWrites(encodeWrites(wireWrites()))
	if err != nil || !reflect.DeepEqual(writes, wireWrites()) {
		t.Errorf("writes %+v, %v, want %+v", writes, err, wireWrites())
	}
	want := wireResults()
	results, err := decodeResults(appendResults(nil, want), len(want))
	if err != nil {
		t.Fatal(err)
	}
	last := len(want) - 1
	if p, ok := errors.AsType[*api.Problem](results[last].err); !ok || !reflect.DeepEqual(p, problem(want[last].err)) {
		t.Errorf("error %v, want the problem of %v", results[last].err, want[last].err)
	}
	if !reflect.DeepEqual(results[:last], want[:last]) {
		t.Errorf("results %+v, want %+v", results[:last], want[:last])
	}
	if _, err := decodeResults(appendResults(nil, want), last); err == nil {
		t.Error("more results than writes are taken")
	}
}

// What members of the first release say to each other.
func TestWire_MatchesFixture(t *testing.T) {
	t.Parallel()
	got := "writes: " + hex.EncodeToString(encodeWrites(wireWrites())) + "\nresults: " + hex.EncodeToString(appendResults(nil, wireResults())) + "\n"
	path := filepath.Join("testdata", "writes-v1.txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestWire_RefusesOtherBytes(t *testing.T) {
	t.Parallel()
	for _, b := range []string{"", "\x02\x00", "\x01", "\x01\x01", "\x01\xff\xff\xff\xff\x0f", "\x01\x01\x02\x00", "\x01\x01\x00\x05ab", "\x01\x00x"} {
		if w, err := decodeWrites([]byte(b)); err == nil {
			t.Errorf("decodeWrites(%x) = %+v", b, w)
		}
	}
	for _, b := range []string{"", "\x01\x00", "\x01\x01\x02", "\x01\x01\x00\x03xyz", "\x01\x01\x01\x04\x00\x00\x00\x00\x00\x00", "\x01\x01\x01\x00\x00\x00\x00\x00\x7f"} {
		if r, err := decodeResults([]byte(b), 1); err == nil {
			t.Errorf("decodeResults(%x) = %+v", b, r)
		}
	}
}

// Nothing makes a decoder panic; what is read, is written the same.
func FuzzWire(f *testing.F) {
	f.Add(encodeWrites(wireWrites()))
	f.Add(appendResults(nil, wireResults()))
	f.Fuzz(func(t *testing.T, b []byte) {
		if w, err := decodeWrites(b); err == nil {
			if again, err := decodeWrites(encodeWrites(w)); err != nil || !reflect.DeepEqual(again, w) {
				t.Errorf("%x is %+v, written again %+v, %v", b, w, again, err)
			}
		}
		for want := range 6 {
			r, err := decodeResults(b, want)
			if err != nil || bytes.ContainsAny(b, "\x00") && strings.Contains(string(b), "{") {
				continue // a problem may be written in many ways
			}
			if again, err := decodeResults(appendResults(nil, r), want); err != nil || !reflect.DeepEqual(again, r) {
				t.Errorf("%x is %+v, written again %+v, %v", b, r, again, err)
			}
		}
	})
}
