package entity

import (
	"encoding/binary"
	"fmt"
)

// FormatError refuses a record or a key that this binary did not write: cut short, of an unknown
// version, or against a rule of the record.
type FormatError struct {
	Record string // collection, item, row, …
	Detail string
}

func (e *FormatError) Error() string { return e.Record + " record: " + e.Detail }

// decoder reads fields one after the other. The first error sticks: later reads give zeros, and
// finish reports it. It allocates nothing unless there is an error.
type decoder struct {
	b      []byte
	detail string // of the first error
}

func (d *decoder) fail(format string, args ...any) {
	if d.detail == "" {
		d.detail = fmt.Sprintf(format, args...)
	}
	d.b = nil
}

// bytes returns the next n bytes, capped so that an append to them copies.
func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail("cut short: want %d more bytes, have %d", n, len(d.b))
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) u8() uint8 {
	if len(d.b) < 1 {
		d.fail("cut short: want 1 more byte, have 0")
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) u32() uint32 {
	if v := d.bytes(4); v != nil {
		return binary.LittleEndian.Uint32(v)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if len(d.b) < 8 {
		d.fail("cut short: want 8 more bytes, have %d", len(d.b))
		return 0
	}
	v := binary.LittleEndian.Uint64(d.b)
	d.b = d.b[8:]
	return v
}

// uvarint reads a number in its shortest form; a longer one is refused, so that a record has one
// encoding.
func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || n > 1 && d.b[n-1] == 0 {
		d.fail("bad varint with %d bytes left", len(d.b))
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) svarint() int64 {
	u := d.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (d *decoder) version(want uint8) {
	if v := d.u8(); v != want {
		d.fail("version %d, this binary reads %d", v, want)
	}
}

// versions reads the version of a record of which this binary reads several, and returns it.
func (d *decoder) versions(first, last uint8) uint8 {
	v := d.u8()
	if v < first || v > last {
		d.fail("version %d, this binary reads %d to %d", v, first, last)
	}
	return v
}

// count reads how many things of at least a byte each follow: at most limit.
func (d *decoder) count(what string, limit uint64) int {
	n := d.uvarint()
	switch {
	case n > limit:
		d.fail("%d %s, limit %d", n, what, limit)
		return 0
	case n > uint64(len(d.b)):
		d.fail("cut short: %d %s in %d bytes", n, what, len(d.b))
		return 0
	}
	return int(n)
}

// text reads a length and a copy of that many bytes.
func (d *decoder) text() string { return string(d.bytes(d.uvarint())) }

// array16 reads 16 bytes.
func (d *decoder) array16() (v [16]byte) {
	copy(v[:], d.bytes(16))
	return v
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// finish reports the first error, or bytes left over.
func (d *decoder) finish(record string) error {
	if len(d.b) > 0 {
		d.fail("%d bytes follow its end", len(d.b))
	}
	if d.detail != "" {
		return &FormatError{Record: record, Detail: d.detail}
	}
	return nil
}
