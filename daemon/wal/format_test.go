package wal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"hash/crc32"
	"os"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/ident"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew: only for a version that was never released")

const fixture = "testdata/segment-v1.hex"

// sumHeader makes the checksum of a segment header right again.
func sumHeader(b []byte) {
	binary.LittleEndian.PutUint32(b[76:], crc32.Checksum(b[:76], castagnoli))
}

// writeFixture returns a segment with a frame of two entries, a frame of none, and the seal.
func writeFixture(t *testing.T) []byte {
	h := segmentHeader{group: 7, id: 1, salt: 0x0102030405060708, base: ident.EntryID{Term: 4, Index: 9}, hs: hardState{5, 1, 8}}
	b := h.encode()
	es := []*pb.Entry{entry(5, 10, "data"), {Term: ptr(5), Index: ptr(11), Type: pb.EntryConfChangeV2.Enum()}}
	b = appendFrame(b, &h, h.seed(), int64(len(b)), frame{hs: hardState{5, 1, 9}, refs: make([]ref, 2)}, es)
	b = appendFrame(b, &h, h.seed(), int64(len(b)), frame{hs: hardState{6, 2, 11}}, nil)
	b = appendFrame(b, &h, h.seed(), int64(len(b)), frame{hs: hardState{6, 2, 11}, sealed: true}, nil)
	if *rewrite {
		var text strings.Builder
		for i := 0; i < len(b); i += 16 {
			text.WriteString(hex.EncodeToString(b[i:min(i+16, len(b))]) + "\n")
		}
		if err := os.WriteFile(fixture, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func ptr(n uint64) *uint64 { return &n }

// What version 1 has written is read for ever, and is still what is written.
func TestFormat_Fixture(t *testing.T) {
	written := writeFixture(t)
	text, err := os.ReadFile(fixture)
	if err != nil {
		t.Fatal(err)
	}
	want, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(written, want) {
		t.Errorf("encoded\n%s\nwant\n%s", hex.Dump(written), hex.Dump(want))
	}
	// The segment after it, so that the seal is not the end of the log.
	next := segmentHeader{group: 7, id: 2, base: ident.EntryID{Term: 5, Index: 11}, hs: hardState{6, 2, 11}}
	fs := memLog(t, map[string][]byte{"0000000001-00000000000000000010.wal": want, next.name(): next.encode()})
	var frames []FrameInfo
	r, err := Scan(fs, "log", 7, func(f FrameInfo) error {
		for i := range f.Entries {
			f.Entries[i].Data = bytes.Clone(f.Entries[i].Data)
		}
		frames = append(frames, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Base != (ident.EntryID{Term: 4, Index: 9}) || r.Last != (ident.EntryID{Term: 5, Index: 11}) || makeHardState(r.HardState) != (hardState{6, 2, 11}) || r.Segments != 2 {
		t.Errorf("scanned %+v", r)
	}
	if len(frames) != 3 || len(frames[0].Entries) != 2 || string(frames[0].Entries[0].Data) != "data" ||
		frames[0].Entries[1].Type != pb.EntryConfChangeV2 || frames[1].Sealed || !frames[2].Sealed {
		t.Errorf("frames %+v", frames)
	}
}

func memLog(t testing.TB, files map[string][]byte) *vfs.MemFS {
	fs := vfs.NewMem()
	if err := fs.MkdirAll("log", 0o700); err != nil {
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
	return fs
}

// Whatever stands in a frame whose checksum holds, decoding it ends, and what it accepts is within
// the frame.
func FuzzDecodeFrame(f *testing.F) {
	h := segmentHeader{group: 7, id: 1, salt: 1}
	f.Add(appendFrame(nil, &h, h.seed(), 80, frame{refs: make([]ref, 1)}, []*pb.Entry{entry(1, 2, "data")}))
	f.Add(appendFrame(nil, &h, h.seed(), 80, frame{sealed: true}, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = append(b, make([]byte, max(0, frameHeaderBytes-len(b)))...)
		b = b[:len(b)&^(frameAlign-1)]
		fr, err := decodeFrame(b, 80, nil)
		if err != nil {
			return
		}
		end := uint32(80 + frameHeaderBytes)
		for _, r := range fr.refs {
			if r.pos.off != end || r.pos.len < recordHeaderBytes {
				t.Fatalf("entry %s at %+v, want offset %d", r.id, r.pos, end)
			}
			end += r.pos.len
		}
		if end > uint32(80+len(b)) {
			t.Fatalf("records end at %d, the frame at %d", end, 80+len(b))
		}
	})
}

// Whatever stands in a segment file, reading it ends in a log that keeps the rules or in an error,
// and reading it twice finds the same. The checksums of the header and of the first frame are made
// right, so that what is behind them is reached.
func FuzzScan(f *testing.F) {
	h := segmentHeader{group: 7, id: 1, salt: 1, base: ident.EntryID{Term: 1, Index: 1}, hs: hardState{1, 0, 1}}
	whole := appendFrame(h.encode(), &h, h.seed(), segmentHeaderBytes, frame{hs: h.hs, refs: make([]ref, 1)}, []*pb.Entry{entry(1, 2, "data")})
	f.Add(whole)
	f.Add(append(appendFrame(whole, &h, h.seed(), int64(len(whole)), frame{hs: hardState{2, 1, 2}}, nil), 1, 2, 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= segmentHeaderBytes {
			sumHeader(b)
		}
		if h, err := decodeSegmentHeader("0000000001-00000000000000000002.wal", b); err == nil && len(b) >= segmentHeaderBytes+frameHeaderBytes {
			fr := b[segmentHeaderBytes:]
			if n, ok := announcedBytes(fr, &h, segmentHeaderBytes, int64(len(fr))); ok {
				binary.LittleEndian.PutUint32(fr, crc32.Update(h.seed(), castagnoli, fr[4:n]))
			}
		}
		fs := memLog(t, map[string][]byte{"0000000001-00000000000000000002.wal": b})
		r, err := Scan(fs, "log", 7, nil)
		if err != nil {
			return
		}
		if r.Last.Index < r.Base.Index || r.HardState.GetCommit() > r.Last.Index || r.HardState.GetCommit() < r.Base.Index {
			t.Fatalf("recovered %+v", r)
		}
		l, again, err := Open(Options{FS: fs, Dir: "log", Group: 7, SegmentBytes: 500, FirstSegmentBytes: 100, Foreground: true})
		if err != nil {
			t.Fatal(err)
		}
		if again.Last != r.Last || again.TornBytes != r.TornBytes {
			t.Fatalf("opened %+v, scanned %+v", again, r)
		}
		if n := len(all(t, l)); uint64(n) != r.Last.Index-r.Base.Index {
			t.Fatalf("%d entries, recovered %+v", n, r)
		}
		mustClose(t, l)
	})
}

// Whatever the file that names the head holds: a segment, or a refusal; never a log from the start.
func FuzzReadHead(f *testing.F) {
	f.Add(head(1))
	f.Add(head(1 << 40))
	f.Add([]byte{})
	f.Add(headFormat.Encode(nil))
	f.Add(headFormat.Encode(make([]byte, 9)))
	f.Fuzz(func(t *testing.T, b []byte) {
		fs := vfs.NewMem()
		if err := durable.WriteFile(fs, headName, b); err != nil {
			t.Fatal(err)
		}
		id, err := readHead(fs, "")
		if err != nil {
			_, corrupt := errors.AsType[*CorruptError](err)
			if _, newer := errors.AsType[*VersionError](err); !corrupt && !newer {
				t.Errorf("refused with %v", err)
			}
			return
		}
		if !bytes.Equal(b, head(id)) {
			t.Errorf("%x was read as segment %d", b, id)
		}
	})
}
