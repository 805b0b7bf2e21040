package datadir

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/ident"
)

// Member is who this member is.
type Member struct {
	// Cluster and ID are zero while the member is fresh: until it first belongs to a cluster.
	Cluster ident.ClusterID
	ID      ident.MemberID
	// Incarnation was made with the directory: the life of this disk.
	Incarnation ident.Incarnation
	Name        string
	// BootEpoch is how many times the directory was opened, this time included.
	BootEpoch uint64
	// Groups is every group that was ever opened here, ascending.
	Groups []ident.GroupID
	// Genesis is the encoded genesis record that the member was born by or learned. Empty: none yet.
	Genesis []byte
	// File is the identity of the file that holds all this.
	File FileID
}

func (m Member) clone() Member {
	m.Groups, m.Genesis = slices.Clone(m.Groups), slices.Clone(m.Genesis)
	return m
}

const (
	maxNameBytes    = 255
	maxGenesisBytes = 1 << 20
	memberFixed     = 16 + 8 + 16 + 8 + 3*8
	maxMemberBytes  = durable.EnvelopeBytes + memberFixed + 2 + maxNameBytes + 4 + 4*maxGroups + 4 + maxGenesisBytes
)

func memberFormat() durable.Format { return durable.Format{Magic: "tidalMBR", Version: 1} }

// encode returns the content of the file: durable.Format around
//
//	0         16      24            40           48      56      64       72
//	+---------+-------+-------------+------------+-------+-------+--------+
//	| cluster | id    | incarnation | boot epoch | inode | birth | device |
//	| 16      | u64   | 16          | u64        | u64   | i64   | u64    |
//	+---------+-------+-------------+------------+-------+-------+--------+
//	| name: bytes u16, then the bytes                                     |
//	| groups: count u32, then count ids u32, ascending                    |
//	| genesis: bytes u32, then the bytes                                  |
//	+---------------------------------------------------------------------+
//
// Little-endian. Inode, birth and device are those of this very file.
func (m Member) encode() []byte {
	b := make([]byte, 0, memberFixed+len(m.Name)+4*len(m.Groups)+len(m.Genesis)+10)
	b = append(b, m.Cluster[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.ID))
	b = append(b, m.Incarnation[:]...)
	b = binary.LittleEndian.AppendUint64(b, m.BootEpoch)
	b = binary.LittleEndian.AppendUint64(b, m.File.Inode)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.File.Birth))
	b = binary.LittleEndian.AppendUint64(b, m.File.Device)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.Name)))
	b = append(b, m.Name...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Groups)))
	for _, g := range m.Groups {
		b = binary.LittleEndian.AppendUint32(b, uint32(g))
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Genesis)))
	b = append(b, m.Genesis...)
	return memberFormat().Encode(b)
}

// decodeMember reads the content of the file called name.
func decodeMember(name string, content []byte) (Member, error) {
	b, err := memberFormat().Decode(name, content)
	if err != nil {
		return Member{}, err
	}
	m, err := parseMember(b)
	if err != nil {
		return Member{}, &durable.CorruptError{File: name, Detail: err.Error()}
	}
	return m, nil
}

func parseMember(b []byte) (m Member, err error) {
	if len(b) < memberFixed {
		return m, fmt.Errorf("%d bytes, want at least %d", len(b), memberFixed)
	}
	m.Cluster = ident.ClusterID(b)
	m.ID = ident.MemberID(binary.LittleEndian.Uint64(b[16:]))
	m.Incarnation = ident.Incarnation(b[24:])
	m.BootEpoch = binary.LittleEndian.Uint64(b[40:])
	m.File.Inode = binary.LittleEndian.Uint64(b[48:])
	m.File.Birth = int64(binary.LittleEndian.Uint64(b[56:]))
	m.File.Device = binary.LittleEndian.Uint64(b[64:])
	b = b[memberFixed:]

	// take returns the next size*count bytes, count being the number that stands before them.
	take := func(what string, width, size, most int) []byte {
		if err != nil {
			return nil
		}
		if len(b) < width {
			err = fmt.Errorf("%s: cut off", what)
			return nil
		}
		n := int(binary.LittleEndian.Uint16(b))
		if width == 4 {
			n = int(binary.LittleEndian.Uint32(b))
		}
		if b = b[width:]; n > most || n*size > len(b) {
			err = fmt.Errorf("%s: %d, at most %d, in %d bytes", what, n, most, len(b))
			return nil
		}
		taken := b[:n*size]
		b = b[n*size:]
		return taken
	}
	m.Name = string(take("name", 2, 1, maxNameBytes))
	for g := take("groups", 4, 4, maxGroups); len(g) > 0; g = g[4:] {
		m.Groups = append(m.Groups, ident.GroupID(binary.LittleEndian.Uint32(g)))
	}
	m.Genesis = append(m.Genesis, take("genesis", 4, 1, maxGenesisBytes)...)
	if err == nil && len(b) > 0 {
		err = fmt.Errorf("%d bytes after its end", len(b))
	}
	if err == nil {
		err = m.validate()
	}
	return m, err
}

// validate reports whether m is something that this package writes.
func (m Member) validate() error {
	switch {
	case m.Name == "" || m.Incarnation.IsZero() || m.BootEpoch == 0:
		return fmt.Errorf("name %q, incarnation %s, boot epoch %d", m.Name, m.Incarnation, m.BootEpoch)
	case (m.ID == 0) != m.Cluster.IsZero():
		return fmt.Errorf("member %s of cluster %s", m.ID, m.Cluster)
	case m.ID == 0 && (len(m.Groups) > 0 || len(m.Genesis) > 0):
		return fmt.Errorf("%d groups and %d bytes of genesis without a cluster", len(m.Groups), len(m.Genesis))
	}
	for i := 1; i < len(m.Groups); i++ {
		if m.Groups[i] <= m.Groups[i-1] {
			return fmt.Errorf("group %s follows group %s", m.Groups[i], m.Groups[i-1])
		}
	}
	return nil
}
