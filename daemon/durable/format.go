package durable

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

// Format is the envelope of a small file: what it is, in which version, how long, and a checksum.
//
//	0        8        10       12        16       20
//	+--------+--------+--------+---------+--------+-----------------+
//	| magic  | version| zero   | payload | crc32c | payload         |
//	|        | u16    | u16    | bytes   | u32    |                 |
//	|        |        |        | u32     |        |                 |
//	+--------+--------+--------+---------+--------+-----------------+
//
// Numbers are little-endian. The checksum covers everything but itself. The envelope is the same in
// every version of every file, so that a file of a newer version is told from a damaged one.
type Format struct {
	// Magic is 8 bytes that say which file this is.
	Magic string
	// Version is the version of the payload that is written, and the only one that is read.
	Version uint16
}

const (
	magicBytes = 8
	crcOffset  = 16

	// EnvelopeBytes is how much longer an encoded file is than its payload.
	EnvelopeBytes = 20
)

// CorruptError says that a file is not what was written. It is never treated as a missing file.
type CorruptError struct {
	File   string // path
	Detail string
}

func (e *CorruptError) Error() string { return fmt.Sprintf("%s is corrupt: %s", e.File, e.Detail) }

// VersionError says that a file is sound but in a version that this binary does not read.
type VersionError struct {
	File      string // path
	Have, Max uint16 // of the file; the newest that this binary reads
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s has format version %d, this binary reads up to %d", e.File, e.Have, e.Max)
}

// Encode wraps payload, which must be shorter than 4 GiB.
func (f Format) Encode(payload []byte) []byte {
	if len(f.Magic) != magicBytes || len(payload) > math.MaxUint32 {
		panic(fmt.Sprintf("durable: magic %q of %d bytes, payload of %d", f.Magic, len(f.Magic), len(payload))) // a mistake in our own code
	}
	b := make([]byte, 0, EnvelopeBytes+len(payload))
	b = append(b, f.Magic...)
	b = binary.LittleEndian.AppendUint16(b, f.Version)
	b = binary.LittleEndian.AppendUint16(b, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, checksum(b, payload))
	return append(b, payload...)
}

// Decode returns the payload of b, which is the whole content of the file called name; the payload
// shares b's memory. The errors are *CorruptError and *VersionError.
func (f Format) Decode(name string, b []byte) ([]byte, error) {
	corrupt := func(format string, args ...any) ([]byte, error) {
		return nil, &CorruptError{File: name, Detail: fmt.Sprintf(format, args...)}
	}
	if len(b) < EnvelopeBytes {
		return corrupt("%d bytes, the envelope alone has %d", len(b), EnvelopeBytes)
	}
	if got := string(b[:magicBytes]); got != f.Magic {
		return corrupt("magic %q, want %q", got, f.Magic)
	}
	payload := b[EnvelopeBytes:]
	if want := binary.LittleEndian.Uint32(b[12:]); uint64(want) != uint64(len(payload)) {
		return corrupt("payload of %d bytes, want %d", len(payload), want)
	}
	if got, want := checksum(b[:crcOffset], payload), binary.LittleEndian.Uint32(b[crcOffset:]); got != want {
		return corrupt("checksum %08x, want %08x", got, want)
	}
	// The checksum holds: from here on the file is as it was written.
	if have := binary.LittleEndian.Uint16(b[8:]); have != f.Version {
		return nil, &VersionError{File: name, Have: have, Max: f.Version}
	}
	if zero := binary.LittleEndian.Uint16(b[10:]); zero != 0 {
		return corrupt("reserved field is %d, want 0", zero)
	}
	return payload, nil
}

// Checksum is CRC32C (Castagnoli), the checksum of every format of ours.
func Checksum(b []byte) uint32 { return checksum(b, nil) }

func checksum(header, payload []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli) // the library keeps one
	return crc32.Update(crc32.Update(0, table, header), table, payload)
}
