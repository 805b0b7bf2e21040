package peer

import (
	"bytes"
	"sync"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/peer/peerpb"
)

// pieces cuts b up as frames of HTTP/2 do.
func pieces(b []byte, each int) (s mem.BufferSlice) {
	for len(b) > 0 {
		n := min(each, len(b))
		s = append(s, mem.SliceBuffer(b[:n]))
		b = b[n:]
	}
	return s
}

// What the codec writes generated code reads, and the other way round.
func TestCodec_IsProtobuf(t *testing.T) {
	t.Parallel()
	c, buffers := newCodec(), frameBuffers{&sync.Pool{}}
	var f snapshotFrame
	rapid.Check(t, func(r *rapid.T) {
		want := &peerpb.SnapshotFrame{}
		if rapid.Bool().Draw(r, "header") {
			want.Header = &peerpb.SnapshotHeader{Needed: rapid.Bool().Draw(r, "needed"), Term: rapid.Uint64().Draw(r, "term"), Manifest: rapid.SliceOf(rapid.Byte()).Draw(r, "manifest")}
		}
		if rapid.Bool().Draw(r, "chunk") {
			want.Chunk = &peerpb.SnapshotChunk{Data: rapid.SliceOfN(rapid.Byte(), 0, 5000).Draw(r, "data"), Checksum: rapid.Uint32().Draw(r, "sum"), Term: rapid.Uint64().Draw(r, "term")}
			if rapid.Bool().Draw(r, "at") {
				want.Chunk.At = &peerpb.SnapshotCursor{File: rapid.Uint32().Draw(r, "file"), Offset: rapid.Uint64().Draw(r, "offset")}
			}
		}
		sent, err := c.Marshal(sentFrame{want, buffers})
		if err != nil {
			r.Fatal(err)
		}
		b := sent.Materialize()
		sent.Free()
		var got peerpb.SnapshotFrame
		if err := proto.Unmarshal(b, &got); err != nil || !proto.Equal(&got, want) {
			r.Fatalf("generated code reads %v, %v, want %v", &got, err, want)
		}
		if err := c.Unmarshal(pieces(b, rapid.IntRange(1, 2000).Draw(r, "piece")), &f); err != nil {
			r.Fatal(err)
		}
		p := want.GetChunk()
		if !proto.Equal(f.header, want.GetHeader()) || f.empty != (p == nil) || !bytes.Equal(f.chunk.Data, p.GetData()) ||
			f.chunk.Sum != p.GetChecksum() || f.chunk.Term != p.GetTerm() || f.chunk.At != decodeCursor(p.GetAt()) {
			r.Fatalf("read header %v and chunk %+v, want %v", f.header, f.chunk, want)
		}
	})
}

func FuzzCodec_Unmarshal(f *testing.F) {
	for _, m := range []*peerpb.SnapshotFrame{
		{Header: &peerpb.SnapshotHeader{Needed: true, Manifest: []byte("m")}},
		{Chunk: &peerpb.SnapshotChunk{At: &peerpb.SnapshotCursor{File: 3, Offset: 9}, Data: []byte("data"), Checksum: 7, Term: 2}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var got snapshotFrame
		if newCodec().Unmarshal(pieces(b, 7), &got) != nil {
			return
		}
		var want peerpb.SnapshotFrame
		if err := proto.Unmarshal(b, &want); err != nil {
			t.Fatalf("generated code refuses %x: %v", b, err)
		}
		if p := want.GetChunk(); !bytes.Equal(got.chunk.Data, p.GetData()) || got.chunk.Term != p.GetTerm() {
			t.Errorf("%x is read as %+v, generated code says %v", b, got.chunk, p)
		}
	})
}

func BenchmarkCodec(b *testing.B) {
	data := make([]byte, 256<<10)
	frame := &peerpb.SnapshotFrame{Chunk: &peerpb.SnapshotChunk{At: &peerpb.SnapshotCursor{File: 3, Offset: 9}, Data: data, Term: 2}}
	wire, err := proto.Marshal(frame)
	if err != nil {
		b.Fatal(err)
	}
	came, f := pieces(wire, 16<<10), snapshotFrame{}
	c, buffers := newCodec(), frameBuffers{&sync.Pool{}}
	for _, side := range []struct {
		name string
		do   func() error
	}{
		{"send/generated", func() error {
			s, err := c.Marshal(frame)
			s.Free()
			return err
		}},
		{"send/ours", func() error {
			s, err := c.Marshal(sentFrame{frame, buffers})
			s.Free()
			return err
		}},
		{"receive/generated", func() error { return c.Unmarshal(came, &peerpb.SnapshotFrame{}) }},
		{"receive/ours", func() error { return c.Unmarshal(came, &f) }},
	} {
		b.Run(side.name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if err := side.do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
