package datadir

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/tidaldb/tidal/daemon/durable"
)

// reseedName names the file that is there while a reseed is latched.
const reseedName = "reseed"

// Reseed is a decision, made durable, to replace the data of a group by an artifact.
type Reseed struct {
	Reason string // one word; at most 64 bytes
	Since  int64  // Unix ms
	Term   uint64 // of the replica when it was latched
	// Condemned is the generation that is to be replaced. While it is the current one the reseed has
	// not been carried out.
	Condemned Generation
	// Keep has the condemned data set aside for the operator rather than removed.
	Keep bool
}

const (
	maxReasonBytes = 64
	reseedFixed    = 8 + 8 + 8 + 8 + 1 + 1
	reseedBytes    = durable.EnvelopeBytes + reseedFixed + maxReasonBytes
)

func reseedFormat() durable.Format { return durable.Format{Magic: "tidalRSD", Version: 1} }

// encode returns the content of the file: durable.Format around
//
//	0       8      16    24      32     33             34
//	+-------+------+-----+-------+------+--------------+--------+
//	| since | term | log | state | keep | reason bytes | reason |
//	| i64   | u64  | u64 | u64   | u8   | u8           |        |
//	+-------+------+-----+-------+------+--------------+--------+
//
// Little-endian. Log and state are the condemned generation.
func (r Reseed) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(r.Since))
	b = binary.LittleEndian.AppendUint64(b, r.Term)
	b = binary.LittleEndian.AppendUint64(b, r.Condemned.Log)
	b = binary.LittleEndian.AppendUint64(b, r.Condemned.State)
	keep := byte(0)
	if r.Keep {
		keep = 1
	}
	b = append(b, keep, byte(len(r.Reason)))
	return reseedFormat().Encode(append(b, r.Reason...))
}

func decodeReseed(name string, content []byte) (Reseed, error) {
	b, err := reseedFormat().Decode(name, content)
	if err != nil {
		return Reseed{}, err
	}
	if len(b) < reseedFixed || len(b) != reseedFixed+int(b[33]) || b[32] > 1 {
		return Reseed{}, &durable.CorruptError{File: name, Detail: fmt.Sprintf("a payload of %d bytes that nobody writes", len(b))}
	}
	return Reseed{
		Since:     int64(binary.LittleEndian.Uint64(b)),
		Term:      binary.LittleEndian.Uint64(b[8:]),
		Condemned: Generation{Log: binary.LittleEndian.Uint64(b[16:]), State: binary.LittleEndian.Uint64(b[24:])},
		Keep:      b[32] == 1,
		Reason:    string(b[reseedFixed:]),
	}, nil
}

// Reseed returns the reseed that is latched, if one is.
func (g *Group) Reseed() (r Reseed, latched bool, err error) {
	path := g.path(reseedName)
	b, err := durable.ReadFile(g.d.opts.FS, path, reseedBytes)
	if errors.Is(err, os.ErrNotExist) {
		return Reseed{}, false, nil
	}
	if err == nil {
		r, err = decodeReseed(path, b)
	}
	return r, err == nil, err
}

// Latch makes r durable, in the place of what was latched before.
func (g *Group) Latch(r Reseed) error {
	if r.Reason == "" || len(r.Reason) > maxReasonBytes {
		return fmt.Errorf("latch a reseed of group %s: a reason of %d bytes, want 1 to %d", g.id, len(r.Reason), maxReasonBytes)
	}
	if err := durable.WriteFile(g.d.opts.FS, g.path(reseedName), r.encode()); err != nil {
		return fmt.Errorf("latch a reseed of group %s: %w", g.id, err)
	}
	return nil
}

// Unlatch forgets the reseed that was latched. Without one it does nothing.
func (g *Group) Unlatch() error {
	fs := g.d.opts.FS
	err := fs.Remove(g.path(reseedName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = durable.SyncDir(fs, g.dir)
	}
	if err != nil {
		return fmt.Errorf("unlatch the reseed of group %s: %w", g.id, err)
	}
	return nil
}
