package datadir

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/ident"
)

const (
	// removedName names the file of a member that belongs to its cluster no more.
	removedName = "removed"
	// rosterName names the cache of the last roster that was applied here.
	rosterName = "roster"

	removedFixed   = 8 + 8 + 8 + 1
	removedBytes   = durable.EnvelopeBytes + removedFixed
	maxRosterBytes = durable.EnvelopeBytes + 16<<20
)

// Removed says that this member was removed. It is never undone: who is to take part again starts with
// an empty directory.
type Removed struct {
	ID            ident.MemberID // that it had
	At            int64          // when it learned so; Unix ms
	RosterVersion uint64         // of whoever said so
	Expired       bool           // it was never heard of, and may join again
}

func removedFormat() durable.Format { return durable.Format{Magic: "tidalRMV", Version: 1} }

func rosterFormat() durable.Format { return durable.Format{Magic: "tidalRST", Version: 1} }

// encode returns the content of the file: durable.Format around
//
//	0    8    16               24        25
//	+----+----+----------------+---------+
//	| id | at | roster version | expired |
//	| u64| i64| u64            | u8      |
//	+----+----+----------------+---------+
//
// Little-endian.
func (r Removed) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(r.ID))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.At))
	b = binary.LittleEndian.AppendUint64(b, r.RosterVersion)
	expired := byte(0)
	if r.Expired {
		expired = 1
	}
	return removedFormat().Encode(append(b, expired))
}

func decodeRemoved(name string, content []byte) (Removed, error) {
	b, err := removedFormat().Decode(name, content)
	if err != nil {
		return Removed{}, err
	}
	if len(b) != removedFixed || b[24] > 1 {
		return Removed{}, &durable.CorruptError{File: name, Detail: fmt.Sprintf("%d bytes, want %d", len(b), removedFixed)}
	}
	return Removed{
		ID:            ident.MemberID(binary.LittleEndian.Uint64(b)),
		At:            int64(binary.LittleEndian.Uint64(b[8:])),
		RosterVersion: binary.LittleEndian.Uint64(b[16:]),
		Expired:       b[24] == 1,
	}, nil
}

// Removed returns what the directory says of its member's removal; ok is false while it says nothing.
func (d *Dir) Removed() (r Removed, ok bool, err error) {
	content, ok, err := maybeRead(d.path, removedName, removedBytes)
	if err != nil || !ok {
		return Removed{}, false, err
	}
	r, err = decodeRemoved(removedName, content)
	return r, err == nil, err
}

// SetRemoved makes it durable that this member was removed.
func (d *Dir) SetRemoved(r Removed) error { return d.writeSmall(removedName, r.encode()) }

// StartOver lets a member that expired be admitted anew, under another id: it has its incarnation and its
// cluster still, no group, and is removed no more. What its groups held is a copy, of which no other member
// ever heard a word; the next birth deletes it. The groups must be closed.
func (d *Dir) StartOver() error {
	if r, ok, err := d.Removed(); err != nil || !ok || !r.Expired {
		return errors.Join(errors.New("start over: this member did not expire"), err)
	}
	err := d.changeMember(func(m *Member) (bool, error) {
		m.Groups = nil
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("start over: %w", err)
	}
	// Last: until it is gone, the next boot comes here again.
	if err := errors.Join(d.opts.FS.Remove(d.path.of(removedName)), durable.SyncDir(d.opts.FS, d.opts.Path)); err != nil {
		return fmt.Errorf("start over: %w", err)
	}
	return nil
}

// RosterCache returns the record of the roster that was cached last; nil where there is none, or it
// cannot be read: it is only a hint.
func (d *Dir) RosterCache() []byte {
	content, ok, err := maybeRead(d.path, rosterName, maxRosterBytes)
	if err != nil || !ok {
		return nil
	}
	record, err := rosterFormat().Decode(rosterName, content)
	if err != nil {
		return nil
	}
	return record
}

// CacheRoster keeps the record of a roster.
func (d *Dir) CacheRoster(record []byte) error {
	return d.writeSmall(rosterName, rosterFormat().Encode(record))
}

// writeSmall replaces a small file. As after any failed write, nothing more is written then.
func (d *Dir) writeSmall(name string, content []byte) error {
	d.write.Lock()
	defer d.write.Unlock()
	if d.write.failed != nil {
		return d.write.failed
	}
	if err := durable.WriteFile(d.opts.FS, d.path.of(name), content); err != nil {
		d.write.failed = err
		return err
	}
	return nil
}
