package state

import (
	"encoding/binary"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/ident"
)

// Position says what a store reflects.
type Position struct {
	// Applied is the last entry whose effects are in the store.
	Applied ident.EntryID
	// Stamp is the newest of the entries up to Applied; 0: none had one. Stamps never fall along a log, and
	// the log may not go back to an entry that had one.
	Stamp ident.Stamp
	// Conf is raft's configuration after Applied, whole: voters, learners, and both sides of a joint
	// configuration. Not nil; read-only.
	Conf *pb.ConfState
	// Digest sums up the primary tables after Applied. Version 0 in a store that was never written to
	// since it was born, or by a binary that knew of none: whoever applies entries makes it at opening.
	Digest Digest
}

// table is the first byte of every key of this package.
const table = 0x00

// positionKey holds the position, in every batch.
var positionKey = []byte{table, 'p'}

// A position without a digest is of version 1, one with a digest of version 2.
const (
	positionVersion  = 1
	digestedPosition = 2

	positionHeader = 1 + 8 + 8 + 8 + 1
	digestHeader   = 2 + 1
)

// The three values of auto leave, which raft tells apart.
const (
	autoLeaveUnset = iota
	autoLeaveFalse
	autoLeaveTrue
)

// EncodePosition is the value under positionKey.
//
//	0         1        9        17       25           26
//	+---------+--------+--------+--------+------------+------------------------------------+
//	| version | term   | index  | stamp  | auto leave | voters, learners, outgoing voters, |
//	| u8      | u64    | u64    | u64    | u8: 0 … 2  | next learners: each count u32,     |
//	|         |        |        |        |            | then count ids u64                 |
//	+---------+--------+--------+--------+------------+------------------------------------+
//
// and, in version 2,
//
//	0                2       3
//	+----------------+-------+---------------------------+
//	| digest version | count | count sums of 32 bytes    |
//	| u16, not 0     | u8    |                           |
//	+----------------+-------+---------------------------+
//
// Little-endian.
func EncodePosition(p Position) []byte {
	digested := p.Digest.Version != 0
	b := append(make([]byte, 0, 96+SumBytes*len(p.Digest.Sums)), positionVersion)
	if digested {
		b[0] = digestedPosition
	}
	b = binary.LittleEndian.AppendUint64(b, p.Applied.Term)
	b = binary.LittleEndian.AppendUint64(b, p.Applied.Index)
	b = binary.LittleEndian.AppendUint64(b, uint64(p.Stamp))
	switch auto := p.Conf.AutoLeave; {
	case auto == nil:
		b = append(b, autoLeaveUnset)
	case *auto:
		b = append(b, autoLeaveTrue)
	default:
		b = append(b, autoLeaveFalse)
	}
	for _, ids := range [][]uint64{p.Conf.Voters, p.Conf.Learners, p.Conf.VotersOutgoing, p.Conf.LearnersNext} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(ids)))
		for _, id := range ids {
			b = binary.LittleEndian.AppendUint64(b, id)
		}
	}
	if digested {
		b = binary.LittleEndian.AppendUint16(b, p.Digest.Version)
		b = append(b, byte(len(p.Digest.Sums)))
		for _, sum := range p.Digest.Sums {
			b = sum.Append(b)
		}
	}
	return b
}

// DecodePosition reads what EncodePosition wrote. The errors are *durable.CorruptError and
// *durable.VersionError.
func DecodePosition(b []byte) (Position, error) {
	const name = "the position"
	corrupt := func(format string, args ...any) (Position, error) {
		return Position{}, &durable.CorruptError{File: name, Detail: fmt.Sprintf(format, args...)}
	}
	if len(b) < positionHeader {
		return corrupt("%d bytes, the header alone has %d", len(b), positionHeader)
	}
	version := b[0]
	if version < positionVersion || version > digestedPosition {
		return Position{}, &durable.VersionError{File: name, Have: uint16(version), Max: digestedPosition}
	}
	p := Position{Conf: &pb.ConfState{}}
	p.Applied.Term = binary.LittleEndian.Uint64(b[1:])
	p.Applied.Index = binary.LittleEndian.Uint64(b[9:])
	p.Stamp = ident.Stamp(binary.LittleEndian.Uint64(b[17:]))
	switch auto := b[25]; auto {
	case autoLeaveUnset:
	case autoLeaveFalse, autoLeaveTrue:
		p.Conf.AutoLeave = proto.Bool(auto == autoLeaveTrue)
	default:
		return corrupt("auto leave is %d", auto)
	}
	b = b[positionHeader:]
	for _, ids := range []*[]uint64{&p.Conf.Voters, &p.Conf.Learners, &p.Conf.VotersOutgoing, &p.Conf.LearnersNext} {
		if len(b) < 4 {
			return corrupt("a list of ids is cut off")
		}
		n := binary.LittleEndian.Uint32(b)
		if b = b[4:]; uint64(n)*8 > uint64(len(b)) {
			return corrupt("a list of %d ids in %d bytes", n, len(b))
		}
		for range n {
			*ids = append(*ids, binary.LittleEndian.Uint64(b))
			b = b[8:]
		}
	}
	if version == digestedPosition {
		if len(b) < digestHeader {
			return corrupt("its digest is cut off")
		}
		p.Digest.Version = binary.LittleEndian.Uint16(b)
		n := int(b[2])
		if b = b[digestHeader:]; p.Digest.Version == 0 || len(b) < n*SumBytes {
			return corrupt("a digest of version %d with %d sums in %d bytes", p.Digest.Version, n, len(b))
		}
		p.Digest.Sums = make([]Sum, n)
		for i := range p.Digest.Sums {
			p.Digest.Sums[i] = DecodeSum(b)
			b = b[SumBytes:]
		}
	}
	if len(b) > 0 {
		return corrupt("%d bytes after its end", len(b))
	}
	return p, nil
}
