package wal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
)

// The format, version 1. Everything is little-endian.
//
//	segment   header, frames back to back, zeros up to the preallocated size
//
//	 0        8        12      16       24       32             48                 72     76     80
//	 +--------+--------+-------+--------+--------+--------------+------------------+------+------+
//	 |TIDALWAL|version |group  |segment |salt    |base          |hard state        |zero  |crc   |
//	 |8 bytes |u32     |u32    |u64     |u64     |term, index   |term, vote, commit|u32   |u32   |
//	 +--------+--------+-------+--------+--------+--------------+------------------+------+------+
//	 crc: CRC32C of the 76 bytes before it. base: the entry before the first one of the segment, as
//	 the log stood when the segment was begun. salt: random.
//
//	frame     at a multiple of 8 bytes
//
//	 0      4       8        16        24                  48      56     60     64
//	 +------+-------+--------+---------+-------------------+-------+------+------+---------------+
//	 |crc   |length |segment |position |hard state         |first  |count |flags |records, zeros |
//	 |u32   |u32    |u64     |u64      |term, vote, commit |u64    |u32   |u32   |length bytes   |
//	 +------+-------+--------+---------+-------------------+-------+------+------+---------------+
//	 crc: CRC32C of the segment's salt and of everything after the field itself. length: a multiple
//	 of 8. position: offset of the frame in its segment. first: index of the first record, 0 with no
//	 records. flags: 1, the segment is sealed and this is its last frame; the others are 0.
//
//	record    one entry
//
//	 0      4       8     9       17      25
//	 +------+-------+-----+-------+-------+----------------+
//	 |crc   |length |type |term   |index  |data            |
//	 |u32   |u32    |u8   |u64    |u64    |length bytes    |
//	 +------+-------+-----+-------+-------+----------------+
//	 crc: CRC32C of the segment's salt and of everything after the field itself, so that one entry
//	 can be read and checked without the rest of its frame.
const (
	magic              = "TIDALWAL"
	version            = 1
	segmentHeaderBytes = 80
	frameHeaderBytes   = 64
	recordHeaderBytes  = 25
	frameAlign         = 8

	flagSealed = 1

	// maxIndex keeps index arithmetic from wrapping around. It is never reached.
	maxIndex = 1 << 62

	// maxFrameBytes bounds one frame, and maxSegmentBytes the preallocated size of a segment, so
	// that every offset in a segment fits 32 bits.
	maxFrameBytes   = 1 << 30
	maxSegmentBytes = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// hardState is raft's HardState as a value.
type hardState struct{ term, vote, commit uint64 }

func makeHardState(hs *pb.HardState) hardState {
	return hardState{hs.GetTerm(), hs.GetVote(), hs.GetCommit()}
}

func (h hardState) proto() *pb.HardState {
	return &pb.HardState{Term: &h.term, Vote: &h.vote, Commit: &h.commit}
}

func (h hardState) put(b []byte) {
	binary.LittleEndian.PutUint64(b, h.term)
	binary.LittleEndian.PutUint64(b[8:], h.vote)
	binary.LittleEndian.PutUint64(b[16:], h.commit)
}

func readHardState(b []byte) hardState {
	le := binary.LittleEndian
	return hardState{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])}
}

// segmentHeader is the beginning of a segment.
type segmentHeader struct {
	group ident.GroupID
	id    uint64
	salt  uint64
	base  ident.EntryID
	hs    hardState
}

// seed is what the checksums of the segment's frames and records begin with. The salt keeps a client
// from writing data that would pass for a frame, and tells a frame of another segment that once had
// the same id.
func (h *segmentHeader) seed() uint32 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], h.salt)
	return crc32.Checksum(b[:], castagnoli)
}

func (h *segmentHeader) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, segmentHeaderBytes)
	copy(b, magic)
	le.PutUint32(b[8:], version)
	le.PutUint32(b[12:], uint32(h.group))
	le.PutUint64(b[16:], h.id)
	le.PutUint64(b[24:], h.salt)
	le.PutUint64(b[32:], h.base.Term)
	le.PutUint64(b[40:], h.base.Index)
	h.hs.put(b[48:])
	le.PutUint32(b[76:], crc32.Checksum(b[:76], castagnoli))
	return b
}

// decodeSegmentHeader reads the beginning of the segment file called name.
func decodeSegmentHeader(name string, b []byte) (segmentHeader, error) {
	le := binary.LittleEndian
	bad := func(format string, args ...any) (segmentHeader, error) {
		return segmentHeader{}, &CorruptError{Segment: name, Detail: fmt.Sprintf(format, args...)}
	}
	if len(b) < segmentHeaderBytes {
		return bad("segment of %d bytes is shorter than its header of %d", len(b), segmentHeaderBytes)
	}
	b = b[:segmentHeaderBytes]
	if string(b[:8]) != magic {
		return bad("no segment of a log: it begins with %q", b[:8])
	}
	if want, have := le.Uint32(b[76:]), crc32.Checksum(b[:76], castagnoli); want != have {
		return bad("checksum of the segment header is %08x, want %08x", have, want)
	}
	if v := le.Uint32(b[8:]); v > version {
		return segmentHeader{}, &VersionError{Segment: name, Have: v, Max: version}
	} else if v == 0 {
		return bad("segment of version 0")
	}
	h := segmentHeader{
		group: ident.GroupID(le.Uint32(b[12:])),
		id:    le.Uint64(b[16:]),
		salt:  le.Uint64(b[24:]),
		base:  ident.EntryID{Term: le.Uint64(b[32:]), Index: le.Uint64(b[40:])},
		hs:    readHardState(b[48:]),
	}
	if zero := le.Uint32(b[72:]); zero != 0 {
		return bad("reserved field of the segment header is %d", zero)
	}
	if h.base.Index > maxIndex || h.hs.commit > h.base.Index || h.hs.term < h.base.Term {
		return bad("hard state %+v does not go with a beginning after entry %s", h.hs, h.base)
	}
	if want := h.name(); want != name {
		return bad("the header belongs to %s", want)
	}
	return h, nil
}

// name is "<segment id>-<first index>.wal". Order is by segment id: the first indexes of neighbours
// repeat, or fall, when a suffix was overwritten.
func (h *segmentHeader) name() string {
	return fmt.Sprintf("%010d-%020d%s", h.id, h.base.Index+1, segmentSuffix)
}

const segmentSuffix = ".wal"

// parseSegmentName returns the id of the segment that name was given to.
func parseSegmentName(name string) (id uint64, ok bool) {
	digits, rest, found := strings.Cut(name, "-")
	if !found || !strings.HasSuffix(rest, segmentSuffix) {
		return 0, false
	}
	id, err := strconv.ParseUint(digits, 10, 64)
	return id, err == nil
}

// ref says where one entry is: its record in a segment.
type ref struct {
	id  ident.EntryID
	pos position
}

// position is a record's place in its segment, header included.
type position struct{ off, len uint32 }

// frame is what one frame does to the log.
type frame struct {
	hs     hardState
	refs   []ref // contiguous
	sealed bool
}

// frameBytes returns the length of a frame with records of the given total size.
func frameBytes(records int) int {
	return frameHeaderBytes + (records+frameAlign-1)&^(frameAlign-1)
}

func recordBytes(e *pb.Entry) int { return recordHeaderBytes + len(e.GetData()) }

// appendFrame encodes f at offset pos of the segment h and fills the positions of f.refs, one for
// each entry.
func appendFrame(b []byte, h *segmentHeader, seed uint32, pos int64, f frame, entries []*pb.Entry) []byte {
	le := binary.LittleEndian
	start := len(b)
	b = append(b, make([]byte, frameHeaderBytes)...)
	for i, e := range entries {
		at := len(b)
		b = append(b, 0, 0, 0, 0)
		b = le.AppendUint32(b, uint32(len(e.GetData())))
		b = append(b, byte(e.GetType()))
		b = le.AppendUint64(b, e.GetTerm())
		b = le.AppendUint64(b, e.GetIndex())
		b = append(b, e.GetData()...)
		le.PutUint32(b[at:], crc32.Update(seed, castagnoli, b[at+4:]))
		f.refs[i].pos = position{off: uint32(pos) + uint32(at-start), len: uint32(len(b) - at)}
	}
	for (len(b)-start)%frameAlign != 0 {
		b = append(b, 0)
	}
	hd := b[start:]
	le.PutUint32(hd[4:], uint32(len(hd)-frameHeaderBytes))
	le.PutUint64(hd[8:], h.id)
	le.PutUint64(hd[16:], uint64(pos))
	f.hs.put(hd[24:])
	if len(entries) > 0 {
		le.PutUint64(hd[48:], entries[0].GetIndex())
	}
	le.PutUint32(hd[56:], uint32(len(entries)))
	if f.sealed {
		le.PutUint32(hd[60:], flagSealed)
	}
	le.PutUint32(hd, crc32.Update(seed, castagnoli, hd[4:]))
	return b
}

// announcedBytes returns the length of the frame whose header is b, if b can be the header of a
// frame at offset pos of the segment h, with room bytes left in the file.
func announcedBytes(b []byte, h *segmentHeader, pos, room int64) (n int64, ok bool) {
	le := binary.LittleEndian
	n = frameHeaderBytes + int64(le.Uint32(b[4:]))
	ok = le.Uint64(b[8:]) == h.id && le.Uint64(b[16:]) == uint64(pos) &&
		n <= room && n <= maxFrameBytes && n%frameAlign == 0
	return n, ok
}

// soundFrame reports whether the checksum of b, a whole frame, holds.
func soundFrame(b []byte, seed uint32) bool {
	return binary.LittleEndian.Uint32(b) == crc32.Update(seed, castagnoli, b[4:])
}

// decodeFrame reads b, a whole frame whose checksum holds. refs is reused. An error says what is
// wrong with a frame that was written so.
func decodeFrame(b []byte, pos int64, refs []ref) (frame, error) {
	le := binary.LittleEndian
	f := frame{hs: readHardState(b[24:]), refs: refs[:0]}
	first, count, flags := le.Uint64(b[48:]), le.Uint32(b[56:]), le.Uint32(b[60:])
	if flags&^flagSealed != 0 {
		return frame{}, fmt.Errorf("unknown flags %#x", flags)
	}
	f.sealed = flags&flagSealed != 0
	rest := b[frameHeaderBytes:]
	if uint64(count) > uint64(len(rest)/recordHeaderBytes) {
		return frame{}, fmt.Errorf("%d records in %d bytes", count, len(rest))
	}
	for i := range uint64(count) {
		if len(rest) < recordHeaderBytes {
			return frame{}, fmt.Errorf("record %d is cut off", i)
		}
		n := recordHeaderBytes + uint64(le.Uint32(rest[4:]))
		if n > uint64(len(rest)) {
			return frame{}, fmt.Errorf("record %d has %d bytes of %d", i, n, len(rest))
		}
		id := ident.EntryID{Term: le.Uint64(rest[9:]), Index: le.Uint64(rest[17:])}
		if id.Index != first+i {
			return frame{}, fmt.Errorf("record %d has index %d, want %d", i, id.Index, first+i)
		}
		f.refs = append(f.refs, ref{id, position{uint32(pos) + uint32(len(b)-len(rest)), uint32(n)}})
		rest = rest[n:]
	}
	if len(rest) >= frameAlign || strings.Trim(string(rest), "\x00") != "" {
		return frame{}, fmt.Errorf("%d bytes follow the last record", len(rest))
	}
	if count == 0 && first != 0 {
		return frame{}, fmt.Errorf("no records, but a first index of %d", first)
	}
	return f, nil
}

// record is an entry and what its fields point to.
type record struct {
	entry pb.Entry
	id    ident.EntryID
	typ   pb.EntryType
}

// decode reads b, one whole record of the segment with the given seed, which must hold the entry
// with this index. The entry's data is a part of b.
func (r *record) decode(b []byte, seed uint32, index uint64) error {
	le := binary.LittleEndian
	if want, have := le.Uint32(b), crc32.Update(seed, castagnoli, b[4:]); want != have {
		return fmt.Errorf("checksum of the record is %08x, want %08x", have, want)
	}
	if n := le.Uint32(b[4:]); uint64(n) != uint64(len(b)-recordHeaderBytes) {
		return fmt.Errorf("record of %d bytes announces %d of data", len(b), n)
	}
	r.typ = pb.EntryType(b[8])
	r.id = ident.EntryID{Term: le.Uint64(b[9:]), Index: le.Uint64(b[17:])}
	if r.id.Index != index {
		return fmt.Errorf("the record holds index %d, want %d", r.id.Index, index)
	}
	r.entry.Type, r.entry.Term, r.entry.Index = &r.typ, &r.id.Term, &r.id.Index
	if len(b) > recordHeaderBytes {
		r.entry.Data = b[recordHeaderBytes:len(b):len(b)]
	}
	return nil
}

// CorruptError says that what was written durably cannot be read back, or contradicts itself. The
// log must not be used: the replica is quarantined, nothing is truncated.
type CorruptError struct {
	Segment string // file name
	Offset  int64  // of the first byte in doubt
	Index   uint64 // of the first entry in doubt; 0 where none is known
	Detail  string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("log corrupt: segment %s, offset %d, from index %d: %s", e.Segment, e.Offset, e.Index, e.Detail)
}

// VersionError says that a segment was written by a newer binary.
type VersionError struct {
	Segment   string
	Have, Max uint32
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("log segment %s has version %d, this binary reads up to %d", e.Segment, e.Have, e.Max)
}
