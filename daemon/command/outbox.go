package command

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/zeebo/blake3"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Outbox delivers operations of an outbox into the log: a run of one chain, without a gap. A second
// delivery of an operation has no effect.
//
// Each operation carries a hash of itself and of the one before it, so the hash of the last one stands
// for all of them: two chains that agree in it are the same.
type Outbox struct {
	Origin ident.Incarnation // which chain: one opening of one outbox
	Owner  ident.Incarnation // of the data directory whose outbox that is
	First  uint64            // place of the first operation in the chain; chains begin with 1
	Before [16]byte          // hash of the operation before it; zero before the first of all
	Ops    []Op              // at least one
}

// Op is a write that a member took by itself, for the log to take over later.
type Op struct {
	Stamp ident.Stamp // given by the member that took it; it rises along a chain
	Write []byte      // as EncodeWrite has it: signals and hard negatives alone
}

// Last is the place of the last operation.
func (o Outbox) Last() uint64 { return o.First + uint64(len(o.Ops)) - 1 }

// Chain returns the hash of op, which stands at place seq of the chain of an origin, after the operation
// with the hash before: the first half of BLAKE3.
func Chain(before [16]byte, origin ident.Incarnation, seq uint64, op Op) [16]byte {
	var room [256]byte
	b := append(append(append(room[:0], "tidal outbox 1"...), before[:]...), origin[:]...)
	b = binary.LittleEndian.AppendUint64(b, seq)
	b = binary.LittleEndian.AppendUint64(b, uint64(op.Stamp))
	sum := blake3.Sum256(append(b, op.Write...))
	return [16]byte(sum[:16])
}

// OutboxForget drops what the log knows of chains whose owner is no member any more, since before a
// moment of log time. From then on operations of that age are not taken over from anybody: somebody
// who was away may still hold what was delivered long ago.
type OutboxForget struct{ Before ident.Stamp }

func (o Outbox) append(b []byte) []byte {
	b = append(append(append(b, byte(RecordOutbox)), o.Origin[:]...), o.Owner[:]...)
	b = append(binary.AppendUvarint(b, o.First), o.Before[:]...)
	b = binary.AppendUvarint(b, uint64(len(o.Ops)))
	for _, op := range o.Ops {
		b = appendText(binary.LittleEndian.AppendUint64(b, uint64(op.Stamp)), op.Write)
	}
	return b
}

func (f OutboxForget) append(b []byte) []byte {
	return binary.LittleEndian.AppendUint64(append(b, byte(RecordOutboxForget)), uint64(f.Before))
}

func (d *decoder) outbox() Outbox {
	o := Outbox{Origin: d.array16(), Owner: d.array16(), First: d.uvarint(), Before: d.array16()}
	n := d.count()
	switch {
	case d.err != nil:
	case n == 0 || o.First == 0 || o.First > math.MaxUint64-uint64(n):
		d.fail("%d operations of an outbox, from %d on", n, o.First)
	case o.Origin.IsZero():
		d.fail("an outbox without an origin")
	}
	if d.err != nil {
		return Outbox{}
	}
	o.Ops = make([]Op, 0, n)
	for range n {
		op := Op{Stamp: ident.Stamp(d.u64()), Write: d.bytes()}
		if d.err != nil {
			return Outbox{}
		}
		o.Ops = append(o.Ops, op)
	}
	return o
}

// checkOutbox reads the record, and checks the writes in it.
func (d *decoder) checkOutbox() {
	for i, op := range d.outbox().Ops {
		inner := opDecoder(op.Write)
		if inner.checkWrite(); len(inner.b) > 0 {
			inner.fail("%d bytes follow the last record", len(inner.b))
		}
		if inner.err != nil {
			d.err, d.b = fmt.Errorf("operation %d: %w", i, inner.err), nil
			return
		}
	}
}

func (d *decoder) outboxForget() OutboxForget { return OutboxForget{Before: ident.Stamp(d.u64())} }

// CheckOp is CheckWrite for a write that an outbox may take. A record that it may not is malformed.
func CheckOp(write []byte) error {
	d := opDecoder(write)
	d.checkWrite()
	return d.finish(KindWrites)
}

func opDecoder(write []byte) decoder {
	return decoder{b: write, only: func(kind RecordKind) bool { return kind == RecordSignal || kind == RecordHardNeg }}
}

// DecodeOutbox reads a write that is one delivery and nothing else. Errors: *UnknownKindError,
// *MalformedError.
func DecodeOutbox(write []byte) (Outbox, error) {
	if err := CheckWrite(write); err != nil {
		return Outbox{}, err
	}
	r := MakeRecords(write)
	if _, keyed := r.WriteKey(); keyed || r.Len() != 1 || !r.Next() || r.Kind() != RecordOutbox || r.key != nil {
		return Outbox{}, &MalformedError{Kind: KindWrites, Detail: "it is not one delivery of an outbox"}
	}
	return r.Outbox(), nil
}

// Outbox returns the present record. Its writes are parts of the payload.
func (r *Records) Outbox() Outbox {
	r.unread = false
	return r.d.outbox()
}

// OutboxForget returns the present record.
func (r *Records) OutboxForget() OutboxForget {
	r.unread = false
	return r.d.outboxForget()
}

func (d *decoder) array16() (v [16]byte) {
	copy(v[:], d.take(16))
	return v
}
