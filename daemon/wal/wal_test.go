package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/ident"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testOptions are small segments in a memory file system, with one order of file operations.
func testOptions(fs vfs.FS) Options {
	return Options{
		FS: fs, Dir: "log", Group: 7, SegmentBytes: 1000, FirstSegmentBytes: 500, Foreground: true,
		Rand: rand.NewChaCha8([32]byte{1}),
	}
}

func entry(term, index uint64, data string) *pb.Entry {
	e := &pb.Entry{Term: &term, Index: &index, Type: pb.EntryNormal.Enum()}
	if data != "" {
		e.Data = []byte(data)
	}
	return e
}

func hard(term, vote, commit uint64) *pb.HardState { return hardState{term, vote, commit}.proto() }

func mustCreate(t testing.TB, o Options, base ident.EntryID) {
	t.Helper()
	if err := Create(o, base, nil); err != nil {
		t.Fatal(err)
	}
}

func mustOpen(t testing.TB, o Options) (*Log, Recovered) {
	t.Helper()
	l, r, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return l, r
}

func mustAppend(t testing.TB, l *Log, frames ...Frame) {
	t.Helper()
	if err := l.Append(frames, true); err != nil {
		t.Fatal(err)
	}
}

func mustClose(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// all reads every entry of l.
func all(t testing.TB, l *Log) []*pb.Entry {
	t.Helper()
	es, err := l.Entries(l.FirstIndex(), l.LastIndex()+1, math.MaxUint64)
	if err != nil {
		t.Fatal(err)
	}
	return es
}

func same(a, b []*pb.Entry) bool {
	return slices.EqualFunc(a, b, func(a, b *pb.Entry) bool { return proto.Equal(a, b) })
}

// contents is what a log holds, as a reader sees it. It is also the model: put and drop change it as
// a log is meant to change.
type contents struct {
	base    ident.EntryID
	entries []*pb.Entry
	hs      hardState
}

func contentsOf(t testing.TB, l *Log, r Recovered) contents {
	t.Helper()
	c := contents{base: l.Base(), entries: all(t, l), hs: makeHardState(r.HardState)}
	if want := (ident.EntryID{Term: c.term(c.last()), Index: c.last()}); r.Base != c.base || r.Last != want || l.LastIndex() != c.last() {
		t.Fatalf("recovered base %s and last %s, the log has %s and %s", r.Base, r.Last, c.base, want)
	}
	for i := c.base.Index; i <= c.last(); i++ {
		if got, err := l.Term(i); err != nil || got != c.term(i) {
			t.Fatalf("term of %d is %d, %v; want %d", i, got, err, c.term(i))
		}
	}
	return c
}

func (c *contents) last() uint64 { return c.base.Index + uint64(len(c.entries)) }

func (c *contents) term(i uint64) uint64 {
	if i == c.base.Index {
		return c.base.Term
	}
	return c.entries[i-c.base.Index-1].GetTerm()
}

func (c *contents) put(frames []Frame) {
	for _, f := range frames {
		if len(f.Entries) > 0 {
			c.entries = slices.Concat(c.entries[:f.Entries[0].GetIndex()-c.base.Index-1], f.Entries)
		}
		if f.HardState != nil {
			c.hs = makeHardState(f.HardState)
		}
	}
}

// dropTo is what remains behind a new base.
func (c *contents) dropTo(base uint64) {
	if base > c.base.Index {
		term := c.term(base)
		c.entries = c.entries[base-c.base.Index:]
		c.base = ident.EntryID{Term: term, Index: base}
	}
}

// diff says how got differs from c. Commit may be lower: a move of commit alone is not synced.
func (c *contents) diff(got contents) string {
	if got.base != c.base || !same(got.entries, c.entries) {
		return fmt.Sprintf("after %s: %v\nwant after %s: %v", got.base, got.entries, c.base, c.entries)
	}
	if got.hs.commit > c.hs.commit || got.hs.commit < c.base.Index || got.hs.term != c.hs.term || got.hs.vote != c.hs.vote {
		return fmt.Sprintf("hard state %+v, want %+v", got.hs, c.hs)
	}
	return ""
}

// drawFrames makes frames that raft might ask for next.
func (c contents) drawFrames(t *rapid.T) []Frame {
	var frames []Frame
	for range rapid.IntRange(1, 3).Draw(t, "frames") {
		var f Frame
		hs := c.hs
		if n := rapid.IntRange(0, 4).Draw(t, "entries"); n > 0 {
			first := rapid.Uint64Range(max(c.hs.commit, c.last()-min(c.last(), 3))+1, c.last()+1).Draw(t, "first")
			if first <= c.last() {
				hs.term, hs.vote = hs.term+1, 0 // only another leader overwrites
			}
			for i := range uint64(n) {
				f.Entries = append(f.Entries, entry(hs.term, first+i, rapid.StringN(0, 60, 60).Draw(t, "data")))
			}
		}
		c.put([]Frame{{Entries: f.Entries}})
		if hs.vote == 0 && rapid.Bool().Draw(t, "voted") {
			hs.vote = 3
		}
		hs.commit = rapid.Uint64Range(hs.commit, c.last()).Draw(t, "commit")
		if hs != c.hs || rapid.Bool().Draw(t, "whole") {
			f.HardState = hs.proto()
		}
		c.hs = hs
		frames = append(frames, f)
	}
	return frames
}

// Whatever is appended, overwritten, dropped and reopened, in whatever order, and with power cut in
// between: the log holds what the model holds.
func TestLog_Model(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		fs := vfs.NewCrashableMem()
		o := testOptions(fs)
		want := contents{base: ident.EntryID{Term: 2, Index: 10}, hs: hardState{term: 2, commit: 10}}
		mustCreate(t, o, want.base)
		l, _ := mustOpen(t, o)
		defer func() { mustClose(t, l) }()
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				frames := want.drawFrames(rt)
				if err := l.Append(frames, rapid.Bool().Draw(rt, "sync")); err != nil {
					rt.Fatal(err)
				}
				want.put(frames)
			},
			"drop": func(rt *rapid.T) {
				keep := rapid.Uint64Range(0, want.hs.commit+1).Draw(rt, "keep")
				if err := l.DropHead(keep); err != nil {
					rt.Fatal(err)
				}
				if base := l.Base().Index; base >= max(keep, want.base.Index+1) {
					rt.Fatalf("dropped up to %d, want to keep %d", base, keep)
				}
				want.dropTo(l.Base().Index)
			},
			"close": func(rt *rapid.T) {
				mustClose(t, l)
				var r Recovered
				l, r = mustOpen(t, o)
				if d := want.diff(contentsOf(t, l, r)); d != "" || makeHardState(r.HardState) != want.hs {
					rt.Fatal(d, r.HardState, want.hs)
				}
			},
			"crash": func(rt *rapid.T) {
				crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(1, rapid.Uint64().Draw(rt, "seed")))})
				mustClose(t, l)
				fs, o.FS = crashed, crashed
				var r Recovered
				l, r = mustOpen(t, o)
				if d := want.diff(contentsOf(t, l, r)); d != "" {
					rt.Fatal(d)
				}
				want.hs.commit = r.HardState.GetCommit()
			},
			"": func(rt *rapid.T) {
				if got := all(t, l); !same(got, want.entries) {
					rt.Fatalf("got %v\nwant %v", got, want.entries)
				}
			},
		})
	})
}

// step is one call of the script that the sweeps below run.
type step struct {
	frames []Frame
	keep   uint64 // without frames: DropHead
}

// script fills several segments, overwrites across a boundary, moves commit alone, and drops.
func script() []step {
	pad := func(n int) string { return string(bytes.Repeat([]byte{'x'}, n)) }
	return []step{
		{frames: []Frame{{HardState: hard(2, 1, 10), Entries: []*pb.Entry{entry(2, 11, "a"), entry(2, 12, pad(200))}}}},
		{frames: []Frame{{HardState: hard(2, 1, 12)}}},
		{frames: []Frame{{Entries: []*pb.Entry{entry(2, 13, pad(200))}}, {HardState: hard(3, 0, 12), Entries: []*pb.Entry{entry(3, 14, pad(300))}}}},
		{frames: []Frame{{HardState: hard(4, 3, 13), Entries: []*pb.Entry{entry(4, 14, pad(500)), entry(4, 15, "b")}}}},
		{frames: []Frame{{HardState: hard(4, 3, 15), Entries: []*pb.Entry{entry(4, 16, pad(700))}}}},
		{keep: 13},
		{frames: []Frame{{HardState: hard(4, 3, 16)}, {HardState: hard(5, 0, 16)}}},
		{frames: []Frame{{Entries: []*pb.Entry{entry(5, 17, pad(1500))}}}},
		{frames: []Frame{{Entries: []*pb.Entry{entry(5, 18, pad(600))}}}},
		{frames: []Frame{{HardState: hard(5, 0, 18)}}},
		{keep: 18},
		{frames: []Frame{{Entries: []*pb.Entry{entry(5, 19, "c")}}}},
	}
}

// run runs the script from the creation of the log on, reopening it once in the middle. It returns
// what was acknowledged, and the same with the call that failed, if one did.
func runScript(o Options) (acked, tried contents, err error) {
	base := ident.EntryID{Term: 2, Index: 10}
	acked = contents{base: base, hs: hardState{term: 2, commit: 10}}
	if err := Create(o, base, nil); err != nil {
		return contents{}, acked, err
	}
	l, _, err := Open(o)
	if err != nil {
		return acked, acked, err
	}
	defer func() { _ = l.Close() }()
	for i, s := range script() {
		tried = acked
		if len(s.frames) > 0 {
			tried.put(s.frames)
			err = l.Append(s.frames, true)
		} else {
			err = l.DropHead(s.keep)
			tried.dropTo(l.Base().Index)
		}
		if err != nil {
			if again := l.Append([]Frame{{}}, true); again == nil {
				return acked, tried, errors.New("the log took more after an error")
			}
			if again := l.DropHead(0); again == nil {
				return acked, tried, errors.New("the log dropped its head after an error")
			}
			if _, again := l.Entries(acked.last(), acked.last()+1, 0); again == nil {
				return acked, tried, errors.New("the log was read after an error")
			}
			return acked, tried, err
		}
		acked = tried
		if i == 6 {
			_ = l.Close()
			reopened, _, err := Open(o)
			if err != nil {
				return acked, acked, err
			}
			l = reopened
		}
	}
	return acked, acked, l.Close()
}

func isWrite(op errorfs.Op) bool {
	switch op.Kind {
	case errorfs.OpFileClose, errorfs.OpFilePreallocate:
		return false
	}
	return op.Kind.ReadOrWrite() == errorfs.OpIsWrite
}

// Power is cut before every call that changes the disk, with what was not synced lost, or half of it
// kept: what was acknowledged is there, and at most the call under way beside it. (I5, I6)
func TestLog_CrashEverywhere(t *testing.T) {
	for round, percent := range []int{0, 50, 50, 50, 100} {
		crashes := 0
		for at := 0; ; at++ {
			mem := vfs.NewCrashableMem()
			var crashed *vfs.MemFS
			n := 0
			o := testOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if crashed == nil && isWrite(op) {
					if n == at {
						crashed = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(uint64(at), uint64(round)))})
					}
					n++
				}
				if crashed != nil {
					return errorfs.ErrInjected
				}
				return nil
			})))
			acked, tried, err := runScript(o)
			if crashed == nil {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			crashes++
			o.FS = crashed
			l, r, err := Open(o)
			if err != nil {
				if len(acked.entries) == 0 && acked.base.Index == 0 {
					continue // it was never created
				}
				t.Fatalf("crash before call %d: %v", at, err)
			}
			got := contentsOf(t, l, r)
			if acked.base.Index == 0 {
				acked = tried
			}
			acked.dropTo(got.base.Index)
			if a, b := acked.diff(got), tried.diff(got); a != "" && b != "" {
				t.Fatalf("crash before call %d:\n%s\nand %s", at, a, b)
			}
			mustAppend(t, l, Frame{HardState: hard(9, 0, got.hs.commit), Entries: []*pb.Entry{entry(9, got.last()+1, "more")}})
			mustClose(t, l)
			l, r = mustOpen(t, o)
			if r.Last.Term != 9 {
				t.Fatalf("crash before call %d: what was appended after it is gone", at)
			}
			mustClose(t, l)
		}
		if crashes < 100 {
			t.Fatalf("%d crashes, want many", crashes)
		}
	}
}

// Every call that changes the disk fails in turn, once: nothing is acknowledged after that, and what
// was acknowledged before is there when the log is opened again. (I8)
func TestLog_FailEverywhere(t *testing.T) {
	for at := 0; ; at++ {
		mem := vfs.NewCrashableMem()
		n, failed := 0, false
		o := testOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if !isWrite(op) {
				return nil
			}
			if n++; n-1 == at {
				failed = true
				return errorfs.ErrInjected
			}
			return nil
		})))
		acked, tried, err := runScript(o)
		if !failed {
			break
		}
		if err != nil && !errors.Is(err, errorfs.ErrInjected) {
			t.Fatalf("call %d failed: %v", at, err)
		}
		o.FS = mem.CrashClone(vfs.CrashCloneCfg{})
		l, r, err := Open(o)
		if err != nil {
			if acked.base.Index == 0 {
				continue
			}
			t.Fatalf("call %d failed: %v", at, err)
		}
		got := contentsOf(t, l, r)
		if acked.base.Index == 0 {
			acked = tried
		}
		acked.dropTo(got.base.Index)
		if a, b := acked.diff(got), tried.diff(got); a != "" && b != "" {
			t.Fatalf("call %d failed:\n%s\nand %s", at, a, b)
		}
		mustClose(t, l)
	}
}

// A spare that cannot be prepared is done without.
func TestLog_SpareFails(t *testing.T) {
	o := testOptions(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWriteAt && bytes.HasSuffix([]byte(op.Path), []byte(spareName)) {
			return errorfs.ErrInjected
		}
		return nil
	})))
	mustCreate(t, o, ident.EntryID{Term: 1, Index: 1})
	l, _ := mustOpen(t, o)
	for i := range uint64(100) {
		mustAppend(t, l, Frame{Entries: []*pb.Entry{entry(1, 2+i, "some data that fills segments")}})
	}
	mustClose(t, l)
	if _, r := mustOpenClose(t, o); r.Last.Index != 101 || r.Segments < 5 {
		t.Fatalf("recovered %+v", r)
	}
}

func mustOpenClose(t testing.TB, o Options) (contents, Recovered) {
	l, r := mustOpen(t, o)
	defer mustClose(t, l)
	return contentsOf(t, l, r), r
}

// damaged is a log of two segments that tests of damage start from: each file's bytes, and the
// contents after every frame of the last one.
type damaged struct {
	o      Options
	files  map[string][]byte
	tail   string
	frames []int64 // offsets of the tail's frames, and their end
	after  []contents
}

func newDamaged(t *testing.T) damaged {
	fs := vfs.NewMem()
	d := damaged{o: testOptions(fs), files: map[string][]byte{}}
	d.o.SegmentBytes, d.o.FirstSegmentBytes = 600, 500
	mustCreate(t, d.o, ident.EntryID{Term: 1, Index: 1})
	l, _ := mustOpen(t, d.o)
	now := contents{base: ident.EntryID{Term: 1, Index: 1}, hs: hardState{term: 1, commit: 1}}
	put := func(f Frame) {
		mustAppend(t, l, f)
		now.put([]Frame{f})
	}
	put(Frame{Entries: []*pb.Entry{entry(1, 2, "first"), entry(1, 3, "")}})
	put(Frame{HardState: hard(1, 1, 3), Entries: []*pb.Entry{entry(1, 4, "of the first segment, to be overwritten")}})
	put(Frame{HardState: hard(2, 1, 3), Entries: []*pb.Entry{entry(2, 4, "of the first segment, overwriting")}})
	d.after = append(d.after, now)
	put(Frame{HardState: hard(2, 1, 4), Entries: []*pb.Entry{entry(2, 5, "first of the second segment")}})
	d.after = append(d.after, now)
	put(Frame{HardState: hard(3, 2, 4), Entries: []*pb.Entry{entry(3, 5, "overwritten"), entry(3, 6, "!")}})
	d.after = append(d.after, now)
	put(Frame{HardState: hard(3, 2, 6)})
	d.after = append(d.after, now)
	// Not closed in order: what is on the disk is what a crash leaves.
	names, err := segmentNames(fs, d.o.Dir)
	if err != nil || len(names) != 2 {
		t.Fatalf("segments %v, %v; want 2", names, err)
	}
	d.tail = names[1].name
	if _, err := Scan(fs, d.o.Dir, d.o.Group, func(f FrameInfo) error {
		if f.Segment == d.tail {
			d.frames = append(d.frames, f.Offset)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	d.frames = append(d.frames, l.mu.tail().end)
	for _, n := range names {
		b, err := fs.UnsafeGetFileDataBuffer("log/" + n.name)
		if err != nil {
			t.Fatal(err)
		}
		d.files[n.name] = bytes.Clone(b)
	}
	mustClose(t, l)
	return d
}

// open opens a log of these files.
func (d damaged) open(t *testing.T, files map[string][]byte) (contents, Recovered, error) {
	t.Helper()
	fs := vfs.NewMem()
	d.o.FS = fs
	if err := fs.MkdirAll(d.o.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, b := range files {
		f, err := fs.Create("log/"+name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(bytes.Clone(b)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	l, r, err := Open(d.o)
	if err != nil {
		return contents{}, r, err
	}
	defer mustClose(t, l)
	return contentsOf(t, l, r), r, nil
}

func (d damaged) with(name string, b []byte) map[string][]byte {
	files := map[string][]byte{}
	for n, old := range d.files {
		files[n] = old
	}
	files[name] = b
	return files
}

// The last write is cut short at every byte of the last three frames: what was before it is there.
func TestOpen_CutTail(t *testing.T) {
	d := newDamaged(t)
	whole := d.files[d.tail]
	for frame := range 3 {
		from, to := d.frames[frame], d.frames[frame+1]
		for cut := from; cut < to; cut++ {
			short := whole[:cut]
			zeroed := append(bytes.Clone(short), make([]byte, len(whole)-len(short))...)
			for _, b := range [][]byte{short, zeroed} {
				if bytes.Equal(b[:min(len(b), int(to))], whole[:to]) {
					continue // only padding was cut, by as many zeros
				}
				got, r, err := d.open(t, d.with(d.tail, b))
				if err != nil {
					t.Fatalf("cut at %d: %v", cut, err)
				}
				if diff := d.after[frame].diff(got); diff != "" {
					t.Fatalf("cut at %d: %s", cut, diff)
				}
				if torn := len(bytes.TrimRight(whole[from:cut], "\x00")); r.TornBytes != int64(torn) {
					t.Fatalf("cut at %d: %d torn bytes, want %d", cut, r.TornBytes, torn)
				}
			}
		}
	}
}

// Every bit of a log is flipped: that is damage, unless it is in the last frame or behind it, where
// nobody can tell it from a torn write. What comes back is never something else.
func TestOpen_FlipEveryBit(t *testing.T) {
	d := newDamaged(t)
	last := d.after[len(d.after)-1]
	for name, whole := range d.files {
		for bit := range len(whole) * 8 {
			b := bytes.Clone(whole)
			b[bit/8] ^= 1 << (bit % 8)
			got, _, err := d.open(t, d.with(name, b))
			at, want := int64(bit/8), &last
			if lastFrame := d.frames[len(d.frames)-2]; name == d.tail && at >= lastFrame {
				if at < d.frames[len(d.frames)-1] {
					want = &d.after[len(d.after)-2]
				}
				if err != nil {
					t.Fatalf("%s: bit %d: %v", name, bit, err)
				}
				if diff := want.diff(got); diff != "" {
					t.Fatalf("%s: bit %d: %s", name, bit, diff)
				}
				continue
			}
			if e, ok := errors.AsType[*CorruptError](err); !ok || e.Segment == "" || e.Detail == "" {
				t.Fatalf("%s: bit %d: got %v, want a CorruptError", name, bit, err)
			}
		}
	}
}

// Missing, swapped, foreign and shortened files.
func TestOpen_Damage(t *testing.T) {
	d := newDamaged(t)
	names := []string{}
	for name := range d.files {
		names = append(names, name)
	}
	slices.Sort(names)
	first, tail := names[0], names[1]
	for _, tc := range []struct {
		name  string
		files map[string][]byte
		want  string // of the error; empty: opens
	}{
		{"as it was", d.files, ""},
		{"nothing", map[string][]byte{}, "the first segment, 1, is missing"},
		{"tail missing", map[string][]byte{first: d.files[first]}, "the next segment is missing"},
		{"first missing", map[string][]byte{tail: d.files[tail]}, "the first segment, 1, is missing"},
		{"head damaged", d.with(headName, []byte("TIDALHED?")), "head"},
		{"first and tail missing", d.with(headName, head(3)), "the first segment, 3, is missing"},
		{"empty tail file", d.with(tail, nil), "shorter than its header"},
		{"first in the place of the tail", d.with(tail, d.files[first]), "the header belongs to " + first},
		{"sealed segment cut", d.with(first, d.files[first][:d.frames[0]+8]), "it begins after entry 2/4, but the segment before ends with entry 1/1"},
		{"seal lost", d.with(first, bytes.Replace(d.files[first], seal(d.files[first]), make([]byte, frameHeaderBytes), 1)), "not sealed, but followed by " + tail},
		{"gap", map[string][]byte{
			first: d.files[first], "0000000003-00000000000000000005.wal": reheader(d.files[tail], func(h *segmentHeader) { h.id = 3 }),
		}, "segment 3 follows segment 1"},
		{"other group", d.with(tail, reheader(d.files[tail], func(h *segmentHeader) { h.group = 8 })), "belongs to group 8"},
		{"other base", d.with(tail, reheader(d.files[tail], func(h *segmentHeader) { h.base.Term-- })), "it begins after entry"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, _, err := d.open(t, tc.files)
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if tc.name == "as it was" {
					if diff := d.after[len(d.after)-1].diff(got); diff != "" {
						t.Fatal(diff)
					}
				}
				return
			}
			if e, ok := errors.AsType[*CorruptError](err); !ok || !bytes.Contains([]byte(e.Error()), []byte(tc.want)) {
				t.Fatalf("got %v, want a CorruptError with %q", err, tc.want)
			}
		})
	}
	newer := bytes.Clone(d.files[tail])
	newer[8] = version + 1
	sumHeader(newer)
	if _, _, err := d.open(t, d.with(tail, newer)); !isVersion(err) {
		t.Fatalf("got %v, want a VersionError", err)
	}
}

// seal finds the frame that ends a sealed segment: the last one, and it has no records.
func seal(b []byte) []byte {
	end := (len(bytes.TrimRight(b, "\x00")) + frameAlign - 1) &^ (frameAlign - 1)
	return b[end-frameHeaderBytes : end]
}

func head(id uint64) []byte {
	return headFormat.Encode(binary.LittleEndian.AppendUint64(nil, id))
}

func isVersion(err error) bool {
	_, ok := errors.AsType[*VersionError](err)
	return ok
}

func reheader(b []byte, change func(*segmentHeader)) []byte {
	h := segmentHeader{
		group: 7, id: 2,
		base: ident.EntryID{Term: 2, Index: 4}, hs: readHardState(b[48:]),
	}
	change(&h)
	return append(h.encode(), b[segmentHeaderBytes:]...)
}

// What must not be written is refused, and refuses everything after it.
func TestAppend_Refuses(t *testing.T) {
	for _, tc := range []struct {
		name   string
		frames []Frame
	}{
		{"gap", []Frame{{Entries: []*pb.Entry{entry(2, 14, "")}}}},
		{"gap between frames", []Frame{{Entries: []*pb.Entry{entry(2, 13, "")}}, {Entries: []*pb.Entry{entry(2, 15, "")}}}},
		{"gap within", []Frame{{Entries: []*pb.Entry{entry(2, 13, ""), entry(2, 15, "")}}}},
		{"below commit", []Frame{{Entries: []*pb.Entry{entry(2, 11, "")}}}},
		{"below a commit of the same batch", []Frame{{HardState: hard(2, 1, 12)}, {Entries: []*pb.Entry{entry(2, 12, "")}}}},
		{"term falls", []Frame{{Entries: []*pb.Entry{entry(1, 13, "")}}}},
		{"term of the hard state falls", []Frame{{HardState: hard(1, 1, 11)}}},
		{"entry ahead of the hard state", []Frame{{Entries: []*pb.Entry{entry(3, 13, "")}}}},
		{"second vote", []Frame{{HardState: hard(2, 2, 11)}}},
		{"commit falls", []Frame{{HardState: hard(2, 1, 10)}}},
		{"commit beyond the end", []Frame{{HardState: hard(2, 1, 13)}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := testOptions(vfs.NewMem())
			mustCreate(t, o, ident.EntryID{Term: 2, Index: 10})
			l, _ := mustOpen(t, o)
			mustAppend(t, l, Frame{HardState: hard(2, 1, 11), Entries: []*pb.Entry{entry(2, 11, "a"), entry(2, 12, "b")}})
			err := l.Append(tc.frames, true)
			if err == nil {
				t.Fatal("taken")
			}
			if again := l.Append(nil, true); !errors.Is(again, err) {
				t.Fatalf("then %v, want %v", again, err)
			}
			mustClose(t, l)
			if got, _ := mustOpenClose(t, o); got.last() != 12 || got.hs != (hardState{2, 1, 11}) {
				t.Fatalf("on disk: %+v", got)
			}
		})
	}
}

func TestCreate_Refuses(t *testing.T) {
	o := testOptions(vfs.NewMem())
	if err := Create(o, ident.EntryID{Term: 3, Index: 10}, hard(3, 0, 9)); err == nil {
		t.Error("commit below base was taken")
	}
	if err := Create(o, ident.EntryID{Term: 3, Index: 10}, hard(2, 0, 10)); err == nil {
		t.Error("a term below base's was taken")
	}
	if err := Create(o, ident.EntryID{Term: 3, Index: 10}, hard(4, 2, 10)); err != nil {
		t.Fatal(err)
	}
	if err := Create(o, ident.EntryID{Term: 3, Index: 10}, nil); err == nil {
		t.Error("a second log was made over the first")
	}
	if got, _ := mustOpenClose(t, o); got.hs != (hardState{4, 2, 10}) || got.base != (ident.EntryID{Term: 3, Index: 10}) {
		t.Errorf("created %+v", got)
	}
}

func TestEntries_Bounds(t *testing.T) {
	o := testOptions(vfs.NewMem())
	mustCreate(t, o, ident.EntryID{Term: 1, Index: 1})
	l, _ := mustOpen(t, o)
	defer mustClose(t, l)
	for i := range uint64(20) {
		mustAppend(t, l, Frame{Entries: []*pb.Entry{entry(1, 2+i, "0123456789")}})
	}
	one := uint64(recordHeaderBytes + 10)
	for _, tc := range []struct {
		lo, hi, maxBytes uint64
		n                int
		err              error
	}{
		{2, 22, math.MaxUint64, 20, nil},
		{2, 22, 0, 1, nil},
		{2, 22, 3 * one, 3, nil},
		{2, 22, 4*one - 1, 3, nil},
		{5, 5, 100, 0, nil},
		{1, 3, 100, 0, raft.ErrCompacted},
		{21, 23, 100, 0, raft.ErrUnavailable},
	} {
		es, err := l.Entries(tc.lo, tc.hi, tc.maxBytes)
		if len(es) != tc.n || !errors.Is(err, tc.err) || (tc.n > 0 && es[0].GetIndex() != tc.lo) {
			t.Errorf("[%d, %d) up to %d: %d entries, %v; want %d, %v", tc.lo, tc.hi, tc.maxBytes, len(es), err, tc.n, tc.err)
		}
	}
	for i, want := range map[uint64]error{0: raft.ErrCompacted, 1: nil, 21: nil, 22: raft.ErrUnavailable} {
		if _, err := l.Term(i); !errors.Is(err, want) {
			t.Errorf("term of %d: %v, want %v", i, err, want)
		}
	}
}

// An entry that has rotted since it was written is not handed out.
func TestEntries_Rot(t *testing.T) {
	mem := vfs.NewMem()
	o := testOptions(mem)
	mustCreate(t, o, ident.EntryID{Term: 1, Index: 1})
	l, _ := mustOpen(t, o)
	defer mustClose(t, l)
	mustAppend(t, l, Frame{Entries: []*pb.Entry{entry(1, 2, "sound"), entry(1, 3, "rotten")}})
	b, err := mem.UnsafeGetFileDataBuffer("log/" + l.mu.tail().name())
	if err != nil {
		t.Fatal(err)
	}
	b[bytes.Index(b, []byte("rotten"))] ^= 1
	if _, err := l.Entries(2, 3, 100); err != nil {
		t.Error(err)
	}
	_, err = l.Entries(2, 4, 100)
	if e, ok := errors.AsType[*CorruptError](err); !ok || e.Index != 3 {
		t.Errorf("got %v, want a CorruptError of index 3", err)
	}
}

// Reads run beside appends, overwrites, rotations and drops, and see whole entries.
func TestLog_Concurrent(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Foreground, o.SegmentBytes = false, 4000
	mustCreate(t, o, ident.EntryID{Term: 1, Index: 1})
	l, _ := mustOpen(t, o)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				lo, hi := l.FirstIndex(), l.LastIndex()+1
				es, err := l.Entries(lo, hi, 1<<20)
				if err != nil && !errors.Is(err, raft.ErrCompacted) && !errors.Is(err, raft.ErrUnavailable) {
					t.Errorf("read [%d, %d): %v", lo, hi, err)
					return
				}
				for i, e := range es {
					if want := fmt.Sprintf("%d/%d", e.GetTerm(), e.GetIndex()); string(e.GetData()) != want || e.GetIndex() != lo+uint64(i) {
						t.Errorf("entry %d is %v", lo+uint64(i), e)
						return
					}
				}
			}
		})
	}
	term, last := uint64(1), uint64(1)
	for i := range 400 {
		first := last + 1
		if i%7 == 3 {
			first, term = last, term+1
		}
		var es []*pb.Entry
		for last = first; last < first+5; last++ {
			es = append(es, entry(term, last, fmt.Sprintf("%d/%d", term, last)))
		}
		last--
		mustAppend(t, l, Frame{HardState: hard(term, 0, first-1), Entries: es})
		if i%20 == 19 {
			if err := l.DropHead(first - min(first, 100)); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	readers.Wait()
	if l.FirstIndex() < 1000 {
		t.Errorf("first index is %d: nothing was dropped", l.FirstIndex())
	}
	mustClose(t, l)
	if _, err := l.Entries(last, last+1, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
	if err := l.Append([]Frame{{}}, true); !errors.Is(err, ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
}

// A log is opened again with the same registry, as when a replica is recycled, and only a torn tail
// is counted as one.
func TestOpen_Metrics(t *testing.T) {
	o := testOptions(vfs.NewMem())
	reg := prometheus.NewRegistry()
	o.Metrics = reg
	mustCreate(t, o, ident.EntryID{Term: 1, Index: 1})
	for range 2 {
		l, _ := mustOpen(t, o)
		mustAppend(t, l, Frame{Entries: []*pb.Entry{entry(1, l.LastIndex()+1, "x")}})
		families, err := reg.Gather()
		if err != nil || len(families) != 4 { // nothing was rotated yet
			t.Errorf("%d metrics, %v", len(families), err)
		}
		mustClose(t, l)
	}
}

// On the real file system.
func TestLog_OperatingSystem(t *testing.T) {
	o := Options{Dir: t.TempDir() + "/a/log", FirstSegmentBytes: 4096, SegmentBytes: 1 << 20}
	mustCreate(t, o, ident.EntryID{Term: 1, Index: 1})
	l, _ := mustOpen(t, o)
	data := string(bytes.Repeat([]byte{'x'}, 100<<10))
	for i := range uint64(40) {
		mustAppend(t, l, Frame{Entries: []*pb.Entry{entry(1, 2+i, data)}})
	}
	if err := l.Append([]Frame{{HardState: hard(1, 0, 41)}}, false); err != nil {
		t.Fatal(err)
	}
	if err := l.DropHead(30); err != nil {
		t.Fatal(err)
	}
	first := l.FirstIndex()
	mustClose(t, l)
	got, r := mustOpenClose(t, o)
	if got.last() != 41 || got.base.Index+1 != first || first == 2 || got.hs.commit != 41 || r.TornBytes != 0 {
		t.Fatalf("recovered %+v, first %d", r, got.base.Index+1)
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, batch := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("entries=%d", batch), func(b *testing.B) {
			o := Options{Dir: b.TempDir() + "/log"}
			mustCreate(b, o, ident.EntryID{Term: 1, Index: 1})
			l, _ := mustOpen(b, o)
			defer mustClose(b, l)
			data := bytes.Repeat([]byte{'x'}, 256)
			frames := make([]Frame, batch)
			for i := range frames {
				frames[i].Entries = []*pb.Entry{{Term: proto.Uint64(1), Data: data}}
			}
			last := uint64(1)
			b.SetBytes(int64(batch * len(data)))
			b.ReportAllocs()
			for b.Loop() {
				for i := range frames {
					last++
					frames[i].Entries[0].Index = proto.Uint64(last)
				}
				mustAppend(b, l, frames...)
			}
		})
	}
}

func BenchmarkEntries(b *testing.B) {
	o := Options{Dir: b.TempDir() + "/log"}
	mustCreate(b, o, ident.EntryID{Term: 1, Index: 1})
	l, _ := mustOpen(b, o)
	defer mustClose(b, l)
	var es []*pb.Entry
	for i := range uint64(1000) {
		es = append(es, entry(1, 2+i, string(bytes.Repeat([]byte{'x'}, 256))))
	}
	mustAppend(b, l, Frame{Entries: es})
	b.SetBytes(1000 * 256)
	for b.Loop() {
		if got, err := l.Entries(2, 1002, math.MaxUint64); err != nil || len(got) != 1000 {
			b.Fatal(len(got), err)
		}
	}
}
