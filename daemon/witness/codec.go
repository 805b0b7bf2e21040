package witness

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/ident"
)

const (
	recordBytes = 8 + 16 + 8 + 8 + 4 // of a member without groups
	groupBytes  = 4 + 4*8

	// maxMembers bounds what is remembered; the members with the highest ids are, where there are more.
	maxMembers = 4096
	maxGroups  = 384 // as package datadir has it

	// MaxBytes is more than any encoding has.
	MaxBytes = durable.EnvelopeBytes + 4 + maxMembers*(recordBytes+maxGroups*groupBytes)
)

func format() durable.Format { return durable.Format{Magic: "tidalWIT", Version: 1} }

// Encode returns the content of the file: durable.Format around
//
//	+------------+----------------------------------------------------------------+
//	| members u32| member …, by id                                                |
//	+------------+----------------------------------------------------------------+
//
//	0      8             24      32     40          44
//	+------+-------------+-------+------+-----------+----------------------------+
//	| id   | incarnation | epoch | life | groups u32| group …, by id             |
//	| u64  | 16          | u64   | u64  |           |                            |
//	+------+-------------+-------+------+-----------+----------------------------+
//
//	group: id u32, spoke u64, ack term u64, ack index u64, ack entry u64
//
// Little-endian. A memory has one encoding.
func (m *Memory) Encode() []byte {
	ids := slices.Sorted(maps.Keys(m.members))
	ids = ids[max(0, len(ids)-maxMembers):]
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(ids)))
	for _, id := range ids {
		r := m.members[id]
		b = binary.LittleEndian.AppendUint64(b, uint64(id))
		b = append(b, r.incarnation[:]...)
		b = binary.LittleEndian.AppendUint64(b, r.epoch)
		b = binary.LittleEndian.AppendUint64(b, r.life)
		groups := slices.Sorted(maps.Keys(r.groups))
		groups = groups[:min(len(groups), maxGroups)]
		b = binary.LittleEndian.AppendUint32(b, uint32(len(groups)))
		for _, g := range groups {
			mark := r.groups[g]
			b = binary.LittleEndian.AppendUint32(b, uint32(g))
			b = binary.LittleEndian.AppendUint64(b, mark.Spoke)
			b = binary.LittleEndian.AppendUint64(b, mark.AckTerm)
			b = binary.LittleEndian.AppendUint64(b, mark.AckIndex)
			b = binary.LittleEndian.AppendUint64(b, mark.AckEntry)
		}
	}
	return format().Encode(b)
}

// Decode reads what Encode wrote; name is the file's, for errors: *durable.CorruptError and
// *durable.VersionError.
func Decode(name string, content []byte) (Memory, error) {
	b, err := format().Decode(name, content)
	if err != nil {
		return Memory{}, err
	}
	m, err := parse(b)
	if err != nil {
		return Memory{}, &durable.CorruptError{File: name, Detail: err.Error()}
	}
	return m, nil
}

func parse(b []byte) (Memory, error) {
	var err error
	take := func(n int) []byte {
		if err == nil && n > len(b) {
			err = fmt.Errorf("cut short: want %d more bytes, have %d", n, len(b))
		}
		if err != nil {
			return make([]byte, n)
		}
		v := b[:n]
		b = b[n:]
		return v
	}
	u32 := func() uint32 { return binary.LittleEndian.Uint32(take(4)) }
	u64 := func() uint64 { return binary.LittleEndian.Uint64(take(8)) }

	m := Memory{members: map[ident.MemberID]*record{}}
	var lastID ident.MemberID
	for range count(&err, u32(), maxMembers) {
		id := ident.MemberID(u64())
		r := &record{incarnation: ident.Incarnation(take(16)), epoch: u64(), life: u64(), groups: map[ident.GroupID]Mark{}}
		last := -1
		for range count(&err, u32(), maxGroups) {
			g := ident.GroupID(u32())
			mark := Mark{Spoke: u64(), AckTerm: u64(), AckIndex: u64(), AckEntry: u64()}
			switch {
			case err != nil:
				return Memory{}, err
			case int(g) <= last:
				return Memory{}, fmt.Errorf("group %s of member %s does not ascend", g, id)
			case mark.AckEntry > mark.AckTerm || mark.AckTerm > mark.Spoke:
				return Memory{}, fmt.Errorf("group %s of member %s: %+v", g, id, mark)
			}
			r.groups[g], last = mark, int(g)
		}
		if err == nil && id <= lastID {
			err = fmt.Errorf("member %s follows %s", id, lastID)
		}
		if err != nil {
			return Memory{}, err
		}
		m.members[id], lastID = r, id
	}
	if err == nil && len(b) > 0 {
		err = fmt.Errorf("%d bytes follow the end", len(b))
	}
	return m, err
}

// count checks a number of things that is read; every one of them takes bytes, so a number that lies
// within the limit ends at the end of the bytes.
func count(err *error, n uint32, most int) uint32 {
	if *err == nil && n > uint32(most) {
		*err = fmt.Errorf("%d things, at most %d", n, most)
	}
	if *err != nil {
		return 0
	}
	return n
}
