package entity

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Idempotency keys are kept for two periods of log time: the one in which they were first met, and
// the next. Then all receipts of a period go at once.
const (
	KeyPeriod = 12 * time.Hour
	MaxKeys   = 1_000_000 // in both periods
)

// PeriodOf returns the period of a stamp.
func PeriodOf(s ident.Stamp) uint32 {
	return uint32(min(s.Millis()/KeyPeriod.Milliseconds(), math.MaxUint32)) // periods of 48 bits of ms fit
}

// Receipt is what became of a write, or of a record, that carried an idempotency key: what is answered
// when the key comes again.
type Receipt struct {
	Body    [16]byte // hash of what was asked
	ID      ident.EntryID
	Created bool // an item was made that did not exist
	Refused []Refusal
}

// Refusal says why a record was not taken.
type Refusal struct {
	Record int // position in its write, below 2^32
	Code   string
	Detail string
}

// The record of a receipt.
//
//	| 1 u8 | flags u8 | body 16 | term uvarint | index uvarint | refusal … |
//	refusal | record uvarint | code text | detail text |
//
// Flags: 1 created.
const (
	receiptVersion = 1

	receiptCreated = 1
)

// Append appends the record of r to b.
func (r *Receipt) Append(b []byte) []byte {
	var flags byte
	if r.Created {
		flags |= receiptCreated
	}
	b = append(append(b, receiptVersion, flags), r.Body[:]...)
	b = binary.AppendUvarint(b, r.ID.Term)
	b = binary.AppendUvarint(b, r.ID.Index)
	for _, f := range r.Refused {
		b = binary.AppendUvarint(b, uint64(f.Record))
		b = appendText(appendText(b, f.Code), f.Detail)
	}
	return b
}

// DecodeReceipt reads what Append wrote. It shares no memory with b. Other bytes give a *FormatError.
func DecodeReceipt(b []byte) (Receipt, error) {
	d := decoder{b: b}
	d.version(receiptVersion)
	flags := d.u8()
	if flags&^receiptCreated != 0 {
		d.fail("unknown flags %#x", flags)
	}
	r := Receipt{Created: flags == receiptCreated, Body: d.array16()}
	r.ID = ident.EntryID{Term: d.uvarint(), Index: d.uvarint()}
	for d.detail == "" && len(d.b) > 0 {
		record := d.uvarint()
		if record > math.MaxUint32 {
			d.fail("record %d", record)
		}
		r.Refused = append(r.Refused, Refusal{Record: int(record), Code: d.text(), Detail: d.text()})
	}
	if err := d.finish("receipt"); err != nil {
		return Receipt{}, err
	}
	return r, nil
}

// Receipts counts the receipts that are kept.
type Receipts struct {
	Period  uint32 // the present one
	Now     uint64 // of the present period
	Earlier uint64 // of the one before
}

// Advance moves on to a later period: receipts of all before the one before it go.
func (r *Receipts) Advance(period uint32) {
	next := Receipts{Period: period}
	if period == r.Period+1 {
		next.Earlier = r.Now
	}
	*r = next
}

// Periods are those of which receipts are kept.
func (r Receipts) Periods() []uint32 {
	var all []uint32
	if r.Now > 0 {
		all = append(all, r.Period)
	}
	if r.Earlier > 0 {
		all = append(all, r.Period-1)
	}
	return all
}

// The record of Receipts.
//
//	| 1 u8 | period u32 | now uvarint | earlier uvarint |
const receiptsVersion = 1

// Encode returns the record of r.
func (r Receipts) Encode() []byte {
	b := binary.LittleEndian.AppendUint32([]byte{receiptsVersion}, r.Period)
	return binary.AppendUvarint(binary.AppendUvarint(b, r.Now), r.Earlier)
}

// DecodeReceipts reads what Encode wrote. Other bytes give a *FormatError.
func DecodeReceipts(b []byte) (Receipts, error) {
	d := decoder{b: b}
	d.version(receiptsVersion)
	r := Receipts{Period: d.u32(), Now: d.uvarint(), Earlier: d.uvarint()}
	if err := d.finish("receipts"); err != nil {
		return Receipts{}, err
	}
	return r, nil
}
