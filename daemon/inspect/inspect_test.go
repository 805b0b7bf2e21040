package inspect_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/inspect"
	"github.com/tidaldb/tidal/daemon/wal"
)

const dir = "/log"

// makeLog writes a log of three segments: an election, then entries of one signal each.
func makeLog(t *testing.T) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	o := wal.Options{FS: fs, Dir: dir, Group: 3, SegmentBytes: 1536, FirstSegmentBytes: 1536, Foreground: true}
	if err := wal.Create(o, ident.EntryID{Term: 1, Index: 1}, nil); err != nil {
		t.Fatal(err)
	}
	log, _, err := wal.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(2); i < 32; i++ {
		e := entry(i, command.EncodeWrites(ident.Stamp(i), [][]byte{command.EncodeSignal(command.Signal{Collection: "default", Item: "a", Type: "view", Milli: 1000})}))
		if i == 2 {
			e.Data = nil
		}
		hs := &pb.HardState{Term: proto.Uint64(2), Vote: proto.Uint64(1), Commit: proto.Uint64(i - 1)}
		if err := log.Append([]wal.Frame{{HardState: hs, Entries: []*pb.Entry{e}}}, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return fs
}

func entry(index uint64, data []byte) *pb.Entry {
	return &pb.Entry{Term: proto.Uint64(2), Index: proto.Uint64(index), Data: data}
}

func verify(t *testing.T, fs vfs.FS) inspect.Verdict {
	t.Helper()
	log, err := inspect.Find(fs, dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	v, err := log.Verify(fs)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestLog_DumpShowsWhatIsThere(t *testing.T) {
	t.Parallel()
	fs := makeLog(t)
	before := contents(t, fs)
	v := verify(t, fs)
	if v.Damage != nil || v.Group != 3 || v.Entries != 30 || v.Recovered.Segments < 3 || v.Recovered.Last != (ident.EntryID{Term: 2, Index: 31}) {
		t.Fatalf("Verify = %+v", v)
	}
	kinds, records, sealed, frames := map[string]int{}, map[string]int{}, 0, 0
	err := v.Dump(fs, v, func(f inspect.Frame) error {
		frames++
		for k, n := range f.Kinds {
			kinds[k] += n
		}
		for k, n := range f.Records {
			records[k] += n
		}
		if f.Sealed {
			sealed++
		}
		if f.Entries > 0 && f.Commit+1 != f.First.Index {
			t.Errorf("frame at %d of %s has commit %d and begins with %s", f.Offset, f.Segment, f.Commit, f.First)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if frames != v.Frames || kinds["empty"] != 1 || kinds["writes"] != 29 || records["signal"] != 29 || sealed != v.Recovered.Segments-1 {
		t.Errorf("%d frames of %d, kinds %v, records %v, %d sealed", frames, v.Frames, kinds, records, sealed)
	}
	if !bytes.Equal(contents(t, fs), before) {
		t.Error("reading the log has changed it")
	}
}

// Whatever bit rots is found, and named by segment, offset and index, unless it is in the last frame
// or behind it: that looks like a write that was cut short.
func TestLog_VerifyNamesEveryFlippedByte(t *testing.T) {
	t.Parallel()
	fs := makeLog(t)
	var lastSegment string
	var lastOffset int64 // of the last frame
	v := verify(t, fs)
	frames := map[string][]inspect.Frame{}
	if err := v.Dump(fs, v, func(f inspect.Frame) error {
		frames[f.Segment] = append(frames[f.Segment], f)
		lastSegment, lastOffset = f.Segment, f.Offset
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for segment := range frames {
		sound := read(t, fs, segment)
		for at := range sound {
			rotten := bytes.Clone(sound)
			rotten[at] ^= 0x10
			write(t, fs, segment, rotten)
			v := verify(t, fs)
			switch d := v.Damage; {
			case segment == lastSegment && int64(at) >= lastOffset:
				if d != nil || v.Recovered.TornBytes == 0 {
					t.Fatalf("byte %d of %s, in the last frame: %+v, want a torn tail", at, segment, v)
				}
			case d == nil:
				t.Fatalf("byte %d of %s: not found", at, segment)
			case d.Kind != inspect.DamageLog || d.Segment != segment || d.Offset > int64(at) || d.Index == 0:
				t.Fatalf("byte %d of %s: %+v", at, segment, d)
			}
		}
		write(t, fs, segment, sound)
	}
}

// An entry that no member ever wrote is damage, though the log around it is sound.
func TestLog_VerifyNamesAMalformedRecord(t *testing.T) {
	t.Parallel()
	fs := makeLog(t)
	log, _, err := wal.Open(wal.Options{FS: fs, Dir: dir, Group: 3, SegmentBytes: 1536, Foreground: true})
	if err != nil {
		t.Fatal(err)
	}
	frame := wal.Frame{Entries: []*pb.Entry{entry(32, []byte{byte(command.KindWrites), 1, 2, 3}), entry(33, []byte{200, 1})}}
	if err := errors.Join(log.Append([]wal.Frame{frame}, true), log.Close()); err != nil {
		t.Fatal(err)
	}
	v := verify(t, fs)
	if d := v.Damage; d == nil || d.Kind != inspect.DamageRecord || d.Index != 32 {
		t.Errorf("Damage = %+v, want a record at index 32; the unknown kind at 33 is none", d)
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	fs := makeLog(t)
	if err := fs.MkdirAll("/empty", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/empty", "/nowhere"} {
		_, err := inspect.Find(fs, path, 0)
		if e, ok := errors.AsType[*inspect.NotFoundError](err); !ok || e.Path != path {
			t.Errorf("Find(%s) = %v, want a *NotFoundError", path, err)
		}
	}
}

func read(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(fs.PathJoin(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, fs vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.Create(fs.PathJoin(dir, name), vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// contents is every file of the log with its name.
func contents(t *testing.T, fs vfs.FS) []byte {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	var all []byte
	for _, name := range names {
		all = append(append(all, name...), read(t, fs, name)...)
	}
	return all
}
