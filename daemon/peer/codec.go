package peer

import (
	"fmt"
	"sync"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/peer/peerpb"
)

// codec is protobuf, and moves the data of an artifact with one copy on each side: as generated code does it
// each byte is copied and cleared several times, which took more than to sum it. The bytes on the wire are
// the same.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// frameBuffers are those of frames that were written to a connection.
type frameBuffers struct{ pool *sync.Pool }

func (b frameBuffers) Get(n int) *[]byte {
	buf, _ := b.pool.Get().(*[]byte)
	if buf == nil || cap(*buf) < n {
		return new(make([]byte, n))
	}
	*buf = (*buf)[:n]
	return buf
}

func (b frameBuffers) Put(buf *[]byte) { b.pool.Put(buf) }

// sentFrame is a SnapshotFrame on its way out. Its data may be changed once it was sent.
type sentFrame struct {
	*peerpb.SnapshotFrame
	buffers frameBuffers
}

// snapshotFrame is a SnapshotFrame that came in. The data of its chunk is valid until the next one comes.
type snapshotFrame struct {
	header *peerpb.SnapshotHeader // nil: there is none
	chunk  SnapshotChunk
	empty  bool // there is no chunk
	buf    []byte
}

// Marshal writes v.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(sentFrame)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	buf := f.buffers.Get(proto.Size(f.SnapshotFrame))
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend((*buf)[:0], f.SnapshotFrame)
	if err != nil {
		f.buffers.Put(buf)
		return nil, err
	}
	*buf = b
	return mem.BufferSlice{mem.NewBuffer(buf, f.buffers)}, nil
}

// Unmarshal reads what Marshal wrote into v.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*snapshotFrame)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	if n := data.Len(); cap(f.buf) < n {
		f.buf = make([]byte, n)
	}
	f.buf = f.buf[:data.Len()]
	data.CopyTo(f.buf)
	return f.read()
}

// read reads f.buf: by generated code, but for the data of a chunk, which stays where it is.
func (f *snapshotFrame) read() error {
	f.header, f.chunk = nil, SnapshotChunk{}
	number, kind, n := protowire.ConsumeTag(f.buf)
	if n < 0 || number != chunkField || kind != protowire.BytesType {
		var p peerpb.SnapshotFrame
		if err := proto.Unmarshal(f.buf, &p); err != nil {
			return err
		}
		f.header = p.GetHeader()
		f.take(p.GetChunk(), p.GetChunk().GetData())
		return nil
	}
	body, m := protowire.ConsumeBytes(f.buf[n:])
	if m < 0 || n+m != len(f.buf) {
		return fmt.Errorf("a chunk of an artifact is cut off, or something follows it: %d bytes", len(f.buf))
	}
	rest, data, err := cutData(body)
	if err != nil {
		return err
	}
	var p peerpb.SnapshotChunk
	if err := proto.Unmarshal(rest, &p); err != nil {
		return err
	}
	f.take(&p, data)
	return nil
}

func (f *snapshotFrame) take(p *peerpb.SnapshotChunk, data []byte) {
	f.chunk = SnapshotChunk{At: decodeCursor(p.GetAt()), Data: data, Sum: p.GetChecksum(), Term: p.GetTerm()}
	f.empty = p == nil
}

// The numbers of fields in peer.proto.
const (
	chunkField = 2 // of SnapshotFrame
	dataField  = 2 // of SnapshotChunk
)

// cutData returns an encoded SnapshotChunk without its data, and that. The last of several is it, as always.
func cutData(b []byte) (rest, data []byte, err error) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeField(b)
		if n < 0 {
			return nil, nil, fmt.Errorf("a chunk of an artifact: %w", protowire.ParseError(n))
		}
		if number == dataField && kind == protowire.BytesType {
			_, _, t := protowire.ConsumeTag(b)
			data, _ = protowire.ConsumeBytes(b[t:n])
		} else {
			rest = append(rest, b[:n]...)
		}
		b = b[n:]
	}
	return rest, data, nil
}
