package datadir

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/ident"
)

func incarnation() ident.Incarnation {
	return ident.Incarnation{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
}

// voted returns the votes of n groups after another write in each.
func voted(t testing.TB, n int) votes {
	t.Helper()
	v := makeVotes(incarnation())
	var err error
	for g := range n {
		if v, err = v.with(ident.GroupID(g), Vote{Term: uint64(g) + 5, Vote: uint64(g)%3 + 1}); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

func (v votes) equal(o votes) bool {
	return v.incarnation == o.incarnation && v.seq == o.seq && slices.Equal(v.groups, o.groups)
}

// dump prints the lines of 32 bytes that are not all zero, with their offsets.
func dump(b []byte) string {
	var s strings.Builder
	for at := 0; at < len(b); at += 32 {
		line := b[at:min(at+32, len(b))]
		if !bytes.Equal(line, make([]byte, len(line))) {
			fmt.Fprintf(&s, "%05x %x\n", at, line)
		}
	}
	return s.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	want, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%swant\n%s", name, got, want)
	}
}

func TestVotes_Golden(t *testing.T) {
	t.Parallel()
	golden(t, "votes-v1.hex", dump(voted(t, 2).encode()))
}

func TestVotes_RoundTrip(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, votesPerSector, votesPerSector + 1, maxGroups} {
		want := voted(t, n)
		got, err := decodeVotes("votes", want.encode())
		if err != nil || !got.equal(want) {
			t.Errorf("%d groups: decode(encode) = %v, %v", n, got, err)
		}
	}
}

func TestVotes_WithRefusesToBreakAPromise(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		had, next Vote
		wantErr   bool
	}{
		{name: "first", next: Vote{1, 2}},
		{name: "term rises", had: Vote{3, 2}, next: Vote{4, 0}},
		{name: "vote after none", had: Vote{3, 0}, next: Vote{3, 2}},
		{name: "the same", had: Vote{3, 2}, next: Vote{3, 2}},
		{name: "another vote", had: Vote{3, 2}, next: Vote{3, 1}, wantErr: true},
		{name: "vote taken back", had: Vote{3, 2}, next: Vote{3, 0}, wantErr: true},
		{name: "term falls", had: Vote{3, 2}, next: Vote{2, 2}, wantErr: true},
	} {
		v, err := makeVotes(incarnation()).with(7, tc.had)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.with(7, tc.next); (err != nil) != tc.wantErr {
			t.Errorf("%s: with(%v) after %v = %v", tc.name, tc.next, tc.had, err)
		}
	}
	if _, err := voted(t, maxGroups).with(maxGroups, Vote{1, 1}); err == nil {
		t.Errorf("group %d got a place among %d", maxGroups, maxGroups)
	}
}

// The table in the comment of votes.
func TestVotes_NewestSlot(t *testing.T) {
	t.Parallel()
	seqs := func(damaged int, sound ...uint64) slotSeqs { return slotSeqs{sound: sound, damaged: damaged} }
	whole := seqs(0, 8, 8, 8)
	for _, tc := range []struct {
		name  string
		other slotSeqs
		want  int // 0: the whole slot; 1: the other; -1: refused
	}{
		{"older and whole", seqs(0, 7, 7, 7), 0},
		{"newer and whole", seqs(0, 9, 9, 9), 1},
		{"torn", seqs(0, 9, 7, 7), 0},
		{"torn out of order", seqs(0, 7, 9, 7), 0},
		{"older, damaged", seqs(1, 7, 7), 0},
		{"torn and damaged", seqs(1, 9, 7), 0},
		{"damaged, may be newer", seqs(1, 9, 9), -1},
		{"all damaged", seqs(3), -1},
		{"older by three", seqs(0, 5, 5, 5), -1},
		{"newer by three", seqs(0, 11, 11, 11), -1},
		{"a stray sector", seqs(0, 7, 5, 9), -1},
	} {
		for swap := range 2 {
			slots := [2]slotSeqs{whole, tc.other}
			want := tc.want
			if swap == 1 {
				slots = [2]slotSeqs{tc.other, whole}
				want = 1 - tc.want
			}
			got, err := newestSlot(slots)
			if tc.want == -1 && err == nil || tc.want != -1 && (err != nil || got != want) {
				t.Errorf("%s: newestSlot(%v) = %d, %v, want %d", tc.name, slots, got, err, want)
			}
		}
	}
	if got, err := newestSlot([2]slotSeqs{seqs(0, 8, 6), seqs(0, 7, 9)}); err == nil {
		t.Errorf("neither whole: newestSlot = %d", got)
	}
}

// A write that a crash tore, whichever sectors reached the disk, leaves what was promised before it,
// or, if all did, what was promised by it.
func TestVotes_SurviveATornWrite(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := makeVotes(incarnation())
		file := v.encode()
		for range rapid.IntRange(1, 5).Draw(t, "writes") {
			before := v
			v, _ = v.with(rapid.SampledFrom([]ident.GroupID{0, 1, 300}).Draw(t, "group"), Vote{Term: v.seq + 1, Vote: 1})
			torn := bytes.Clone(file)
			want := v
			for i := range slotSectors {
				at := int(slotOffset(v.seq)) + i*sectorBytes
				if rapid.Bool().Draw(t, "written") {
					copy(torn[at:], v.slot()[i*sectorBytes:][:sectorBytes])
				} else {
					want = before
				}
			}
			if got, err := decodeVotes("votes", torn); err != nil || !got.equal(want) {
				t.Fatalf("after a torn write %d: %v, %v, want %v", v.seq, got, err, want)
			}
			copy(file[slotOffset(v.seq):], v.slot())
		}
	})
}

// No damage to a byte, a sector or a slot brings back an older promise: the file is refused, or says
// what is true.
func TestVotes_NeverForgetByDamage(t *testing.T) {
	t.Parallel()
	want := voted(t, 3)
	sound := want.encode()
	newest := int(slotOffset(want.seq))
	check := func(what string, b []byte, mustRefuse bool) {
		t.Helper()
		got, err := decodeVotes("votes", b)
		if err == nil && (!got.equal(want) || mustRefuse) {
			t.Errorf("%s: took %v", what, got)
		}
		if _, ok := errors.AsType[*durable.CorruptError](err); err != nil && !ok {
			t.Errorf("%s: %v, want a *CorruptError", what, err)
		}
	}
	for at := range sound {
		b := bytes.Clone(sound)
		b[at] ^= 0x40
		older := at >= votesHead && (at < newest || at >= newest+slotBytes)
		check(fmt.Sprintf("byte %d", at), b, !older)
	}
	for at := votesHead; at < votesBytes; at += sectorBytes {
		b := bytes.Clone(sound)
		clear(b[at:][:sectorBytes])
		check(fmt.Sprintf("sector at %d zeroed", at), b, at >= newest && at < newest+slotBytes)
	}
	for _, at := range []int{votesHead, votesHead + slotBytes} {
		b := bytes.Clone(sound)
		clear(b[at:][:slotBytes])
		check(fmt.Sprintf("slot at %d zeroed", at), b, true)
	}
	for _, n := range []int{0, votesHead, votesBytes - 1} {
		check(fmt.Sprintf("%d bytes", n), sound[:n], true)
	}
	foreign := want
	foreign.incarnation[0]++
	b := bytes.Clone(sound)
	copy(b[newest:], foreign.slot())
	check("a slot of another disk", b, true)
}

func FuzzVotes_Decode(f *testing.F) {
	f.Add(voted(f, 2).encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := decodeVotes("votes", b)
		if err != nil {
			return
		}
		if again, err := decodeVotes("votes", v.encode()); err != nil || !again.equal(v) {
			t.Errorf("decode(encode(%v)) = %v, %v", v, again, err)
		}
	})
}
