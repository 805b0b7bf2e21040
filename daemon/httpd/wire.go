package httpd

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/ops"
)

// Gathered writes on their way between members: POST /internal/writes. uvarint is that of
// encoding/binary, a text is its length as uvarint and its bytes.
//
//	request | 1 u8 | count uvarint | write … |
//	write   | ack u8: 0 quorum, 1 leader | text: as command has it |
//
//	answer  | 1 u8 | count uvarint | result … |
//	result  | 0 u8 | text: a problem, JSON |                  the write failed
//	        | 1 u8 | flags u8 | term uvarint | index uvarint | version uvarint | replicated uvarint |
//	        | count uvarint | text: a pending member … | count uvarint | refusal … |
//	refusal | record uvarint | code text | detail text |
//
// Flags: 1 created, 2 ack is leader, 4 the last refusal is about the whole write.
const (
	wireVersion = 1

	wireFailed  = 0
	wireWritten = 1

	wireCreated = 1
	wireLeader  = 2
	wireDenied  = 4
)

// result is what became of one write that another member handed over.
type result struct {
	ops.Written
	err error
}

// writeOverhead is what a write takes beside its bytes in a request, at most; writesHeader what a
// request takes beside its writes.
const (
	writeOverhead = 1 + binary.MaxVarintLen32
	writesHeader  = 1 + binary.MaxVarintLen32
)

func appendWrites(b []byte, writes []*handover) []byte {
	b = binary.AppendUvarint(append(b, wireVersion), uint64(len(writes)))
	for _, w := range writes {
		var ack byte
		if w.Ack == api.AckLeader {
			ack = 1
		}
		b = appendBytes(append(b, ack), w.Data)
	}
	return b
}

// decodeWrites reads what appendWrites wrote. The writes are parts of b, and not checked.
func decodeWrites(b []byte) ([]ops.Write, error) {
	d := wireDecoder{b: b}
	d.version()
	writes := make([]ops.Write, 0, d.count(2))
	for range cap(writes) {
		w := ops.Write{Ack: api.AckQuorum}
		switch ack := d.u8(); ack {
		case 0:
		case 1:
			w.Ack = api.AckLeader
		default:
			d.fail("ack %d", ack)
		}
		w.Data = d.bytes()
		writes = append(writes, w)
	}
	return writes, d.finish()
}

func appendResults(b []byte, results []result) []byte {
	b = binary.AppendUvarint(append(b, wireVersion), uint64(len(results)))
	for _, r := range results {
		b = r.append(b)
	}
	return b
}

func (r *result) append(b []byte) []byte {
	if r.err != nil {
		text, err := json.Marshal(problem(r.err))
		if err != nil {
			panic(err) // a type of our own
		}
		return appendBytes(append(b, wireFailed), text)
	}
	var flags byte
	if r.Created {
		flags |= wireCreated
	}
	if r.Ack == api.AckLeader {
		flags |= wireLeader
	}
	refused := r.Refused
	if r.Denied != nil {
		flags |= wireDenied
		refused = append(refused[:len(refused):len(refused)], *r.Denied)
	}
	b = append(b, wireWritten, flags)
	for _, n := range []uint64{r.ID.Term, r.ID.Index, r.Version, uint64(r.Replicated), uint64(len(r.Pending))} {
		b = binary.AppendUvarint(b, n)
	}
	for _, name := range r.Pending {
		b = appendBytes(b, name)
	}
	b = binary.AppendUvarint(b, uint64(len(refused)))
	for _, f := range refused {
		b = binary.AppendUvarint(b, uint64(f.Record))
		b = appendBytes(appendBytes(b, f.Code), f.Detail)
	}
	return b
}

// decodeResults reads what appendResults wrote of want writes.
func decodeResults(b []byte, want int) ([]result, error) {
	d := wireDecoder{b: b}
	d.version()
	if n := d.count(1); d.err == nil && n != want {
		d.fail("%d results of %d writes", n, want)
	}
	results := make([]result, 0, want)
	for range want {
		if d.err != nil {
			break
		}
		results = append(results, d.result())
	}
	return results, d.finish()
}

func (d *wireDecoder) result() (r result) {
	switch kind := d.u8(); kind {
	case wireFailed:
		p := &api.Problem{}
		if err := json.Unmarshal(d.bytes(), p); err != nil {
			d.fail("problem: %v", err)
		}
		r.err = p
	case wireWritten:
		flags := d.u8()
		r.Created = flags&wireCreated != 0
		if r.Ack = api.AckQuorum; flags&wireLeader != 0 {
			r.Ack = api.AckLeader
		}
		r.ID = ident.EntryID{Term: d.uvarint(), Index: d.uvarint()}
		r.Version, r.Replicated = d.uvarint(), int(d.uvarint())
		for n := d.count(1); n > 0 && d.err == nil; n-- {
			r.Pending = append(r.Pending, string(d.bytes()))
		}
		for n := d.count(3); n > 0 && d.err == nil; n-- {
			r.Refused = append(r.Refused, command.Refusal{Record: int(d.uvarint()), Code: string(d.bytes()), Detail: string(d.bytes())})
		}
		if last := len(r.Refused) - 1; flags&wireDenied != 0 {
			if last < 0 {
				d.fail("denied without a reason")
				return r
			}
			r.Denied, r.Refused = &r.Refused[last], r.Refused[:last:last]
			if last == 0 {
				r.Refused = nil
			}
		}
	default:
		d.fail("result of kind %d", kind)
	}
	return r
}

func appendBytes[S string | []byte](b []byte, s S) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errCutShort = errors.New("cut short")

// wireDecoder reads fields one after the other. The first error sticks, and later reads give zeros.
type wireDecoder struct {
	b   []byte
	err error
}

func (d *wireDecoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
	d.b = nil
}

func (d *wireDecoder) version() {
	if v := d.u8(); v != wireVersion {
		d.fail("version %d of gathered writes, this member reads %d", v, wireVersion)
	}
}

func (d *wireDecoder) u8() uint8 {
	if len(d.b) == 0 {
		d.fail("%w", errCutShort)
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *wireDecoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("%w", errCutShort)
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count reads how many things of at least size bytes follow.
func (d *wireDecoder) count(size int) int {
	n := d.uvarint()
	if n > uint64(len(d.b)/size) {
		d.fail("%w", errCutShort)
		return 0
	}
	return int(n)
}

func (d *wireDecoder) bytes() []byte {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.fail("%w", errCutShort)
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *wireDecoder) finish() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail("%d bytes follow the end", len(d.b))
	}
	return d.err
}
