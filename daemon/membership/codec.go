package membership

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Both records begin with a version; integers are little-endian; a text is its length and its bytes.
//
//	roster    | 1 u8 | version u64 | next id u64 | count u32 | member … | count u32 | tombstone … |
//	          | 2 u8 | as version 1, then | history epoch u64 | history nonce u64 |
//	genesis   | 1 u8 | topology digest 32 | count u32 | member … |
//
//	member    | id u64 | incarnation 16 | role u8 | boot epoch u64 | capabilities u64 | name | grpc | http |
//	tombstone | id u64 | incarnation 16 | flags u8 | removed at i64 (Unix ms) | name |
//	text      | length u32 | bytes |
//
// Flags: 1 told, 2 acked, 4 expired. A record has one encoding: what decodes encodes to the same bytes. A roster is of
// version 2 where its cluster was recovered, which most never are.
const (
	rosterVersion  = 1
	rosterHistory  = 2
	genesisVersion = 1

	minMemberBytes    = 8 + 16 + 1 + 8 + 8 + 3*4
	minTombstoneBytes = 8 + 16 + 1 + 8 + 4

	flagTold    = 1
	flagAcked   = 2
	flagExpired = 4
)

// FormatError refuses bytes that are no record of ours: cut short, of an unknown version, or against
// a rule of the record.
type FormatError struct {
	Record string // "roster" or "genesis"
	Detail string
}

func (e *FormatError) Error() string { return e.Record + " record: " + e.Detail }

// Encode returns the record of r, which must be sorted and valid.
func (r Roster) Encode() []byte {
	b := []byte{rosterVersion}
	if r.History != (ident.History{}) {
		b[0] = rosterHistory
	}
	b = binary.LittleEndian.AppendUint64(b, r.Version)
	b = binary.LittleEndian.AppendUint64(b, r.NextID)
	b = appendMembers(b, r.Members)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.Tombstones)))
	for _, t := range r.Tombstones {
		b = appendTombstone(b, t)
	}
	if r.History != (ident.History{}) {
		b = binary.LittleEndian.AppendUint64(b, r.History.Epoch)
		b = binary.LittleEndian.AppendUint64(b, r.History.Nonce)
	}
	return b
}

// DecodeRoster reads what Encode wrote. The roster shares no memory with b. Any other bytes give a
// *FormatError.
func DecodeRoster(b []byte) (Roster, error) {
	d := decoder{b: b}
	version := d.versionOf(rosterVersion, rosterHistory)
	r := Roster{Version: d.u64(), NextID: d.u64(), Members: d.members()}
	if n := d.count(minTombstoneBytes); n > 0 {
		r.Tombstones = make([]Tombstone, n)
	}
	for i := range r.Tombstones {
		r.Tombstones[i] = d.tombstone()
	}
	if version == rosterHistory {
		r.History = ident.History{Epoch: d.u64(), Nonce: d.u64()}
		if d.err == nil && r.History.Epoch == 0 {
			d.err = errors.New("history of epoch 0")
		}
	}
	if err := d.finish("roster", r.validate); err != nil {
		return Roster{}, err
	}
	return r, nil
}

// Encode returns the record of g, which must be valid.
func (g Genesis) Encode() []byte {
	b := []byte{genesisVersion}
	b = append(b, g.Topology[:]...)
	return appendMembers(b, g.Members)
}

// DecodeGenesis reads what Encode wrote. Any other bytes give a *FormatError.
func DecodeGenesis(b []byte) (Genesis, error) {
	d := decoder{b: b}
	d.version(genesisVersion)
	var g Genesis
	copy(g.Topology[:], d.take(len(g.Topology)))
	g.Members = d.members()
	if err := d.finish("genesis", g.validate); err != nil {
		return Genesis{}, err
	}
	return g, nil
}

func appendMembers(b []byte, members []Member) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(members)))
	for _, m := range members {
		b = binary.LittleEndian.AppendUint64(b, uint64(m.ID))
		b = append(b, m.Incarnation[:]...)
		b = append(b, byte(m.Role))
		b = binary.LittleEndian.AppendUint64(b, m.BootEpoch)
		b = binary.LittleEndian.AppendUint64(b, uint64(m.Capabilities))
		b = appendText(b, m.Name)
		b = appendText(b, m.GRPCAddr)
		b = appendText(b, m.HTTPAddr)
	}
	return b
}

func appendTombstone(b []byte, t Tombstone) []byte {
	var flags byte
	if t.Told {
		flags |= flagTold
	}
	if t.Acked {
		flags |= flagAcked
	}
	if t.Expired {
		flags |= flagExpired
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(t.ID))
	b = append(b, t.Incarnation[:]...)
	b = append(b, flags)
	b = binary.LittleEndian.AppendUint64(b, uint64(t.RemovedAt))
	return appendText(b, t.Name)
}

func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
}

// decoder reads fields one after the other. The first error sticks: later reads give zeros, and
// finish reports it.
type decoder struct {
	b   []byte
	err error
}

// take returns the next n bytes, or nil when there are fewer.
func (d *decoder) take(n int) []byte {
	if d.err == nil && n > len(d.b) {
		d.err = fmt.Errorf("cut short: want %d more bytes, have %d", n, len(d.b))
	}
	if d.err != nil {
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) u8() uint8 {
	if v := d.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if v := d.take(4); v != nil {
		return binary.LittleEndian.Uint32(v)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if v := d.take(8); v != nil {
		return binary.LittleEndian.Uint64(v)
	}
	return 0
}

// count reads how many things of at least minBytes follow, so that what is allocated for them is
// bounded by the bytes at hand.
func (d *decoder) count(minBytes int) int {
	n := d.u32()
	if d.err == nil && uint64(n)*uint64(minBytes) > uint64(len(d.b)) {
		d.err = fmt.Errorf("cut short: %d things of at least %d bytes, have %d bytes", n, minBytes, len(d.b))
	}
	if d.err != nil {
		return 0
	}
	return int(n)
}

func (d *decoder) text() string { return string(d.take(d.count(1))) }

func (d *decoder) incarnation() (i ident.Incarnation) {
	copy(i[:], d.take(len(i)))
	return i
}

func (d *decoder) version(want uint8) { d.versionOf(want, want) }

// versionOf reads a version from first to last.
func (d *decoder) versionOf(first, last uint8) uint8 {
	v := d.u8()
	if d.err == nil && (v < first || v > last) {
		d.err = fmt.Errorf("version %d, this binary reads %d", v, last)
	}
	return v
}

func (d *decoder) members() []Member {
	n := d.count(minMemberBytes)
	if n == 0 {
		return nil
	}
	members := make([]Member, n)
	for i := range members {
		members[i] = Member{
			ID:           ident.MemberID(d.u64()),
			Incarnation:  d.incarnation(),
			Role:         Role(d.u8()),
			BootEpoch:    d.u64(),
			Capabilities: ident.Capabilities(d.u64()),
			Name:         d.text(),
			GRPCAddr:     d.text(),
			HTTPAddr:     d.text(),
		}
	}
	return members
}

func (d *decoder) tombstone() Tombstone {
	t := Tombstone{ID: ident.MemberID(d.u64()), Incarnation: d.incarnation()}
	flags := d.u8()
	if d.err == nil && flags&^(flagTold|flagAcked|flagExpired) != 0 {
		d.err = fmt.Errorf("tombstone %d has unknown flags %#x", t.ID, flags)
	}
	t.Told, t.Acked, t.Expired = flags&flagTold != 0, flags&flagAcked != 0, flags&flagExpired != 0
	t.RemovedAt = int64(d.u64())
	t.Name = d.text()
	return t
}

// finish reports the first error, bytes left over, or what validate finds.
func (d *decoder) finish(record string, validate func() error) error {
	if d.err == nil && len(d.b) > 0 {
		d.err = fmt.Errorf("%d bytes follow its end", len(d.b))
	}
	if d.err == nil {
		d.err = validate()
	}
	if d.err != nil {
		return &FormatError{Record: record, Detail: d.err.Error()}
	}
	return nil
}
