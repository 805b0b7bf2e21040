package state

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// TableSuffix is how the names of tables end.
const TableSuffix = ".sst"

// verifyBytes is how much of a table is read at once.
const verifyBytes = 256 << 10

// VerifyTables verifies every block of the tables that are on the disk now, in their files and past every
// cache. Whoever reads the pairs does not read all of them: a filter is for those who look for a key, and what
// a deletion hides is for nobody. pace is as that of VerifyTable. Tables that a compaction removes meanwhile
// are left out.
func (v *View) VerifyTables(pace func(bytes int) error) error {
	names, err := v.tables()
	if err != nil {
		return err
	}
	for _, name := range names {
		err := VerifyTable(v.s.fs, v.s.fs.PathJoin(v.s.dir, name), pace)
		if errors.Is(err, os.ErrNotExist) {
			left, failed := v.tables()
			if failed == nil && !slices.Contains(left, name) {
				continue
			}
			err = errors.Join(err, failed)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tables returns the names of the files that hold the tables of now.
func (v *View) tables() ([]string, error) {
	if v.err != nil {
		return nil, v.err
	}
	levels, err := v.s.db.SSTables()
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	var names []string
	for _, level := range levels {
		for _, t := range level {
			names = append(names, t.BackingSSTNum.String()+TableSuffix)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// VerifyTable verifies the table in a file, see TableCheck. pace is told of the bytes before they are read and may
// wait, or end it with an error; nil: nobody is told.
func VerifyTable(fs vfs.FS, name string, pace func(bytes int) error) (err error) {
	f, err := fs.Open(name, vfs.SequentialReadsOption)
	if err != nil {
		return fmt.Errorf("verify table: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	check, err := NewTableCheck(f)
	if err != nil {
		return fmt.Errorf("verify table %s: %w", name, err)
	}
	buf := make([]byte, min(verifyBytes, check.size+1)) // one more, for it may be empty
	for {
		if pace != nil {
			if err := pace(len(buf)); err != nil {
				return err
			}
		}
		n, err := f.Read(buf)
		end := errors.Is(err, io.EOF)
		if end || err == nil {
			err = check.Take(buf[:n])
		}
		if end && err == nil {
			err = check.End()
		}
		if err != nil {
			return fmt.Errorf("verify table %s: %w", name, err)
		}
		if end {
			return nil
		}
	}
}

// TableCheck verifies the footer and every block of a table, of whatever kind, while somebody reads its file from
// the beginning to the end; it does not decode what is in them. It belongs to one goroutine.
type TableCheck struct {
	size   uint64         // of the file
	blocks []block.Handle // that were not verified yet, ascending
	sum    block.Checksummer
	at     uint64 // what comes next, as an offset into the file
	part   []byte // of the first of blocks, that ends in what comes next
}

// NewTableCheck reads from f where the blocks are, without moving on in it, and verifies what says so.
func NewTableCheck(f vfs.File) (*TableCheck, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	c := &TableCheck{size: uint64(info.Size())}
	if mutantPairsOnly {
		return c, nil
	}
	if c.blocks, c.sum, err = blocksOf(f); err != nil {
		return nil, err
	}
	for _, b := range c.blocks {
		if b.Offset > c.size || b.Length > c.size {
			return nil, fmt.Errorf("a block of %d bytes at offset %d of %d", b.Length, b.Offset, c.size)
		}
	}
	return c, nil
}

// Take takes what comes next in the file.
func (c *TableCheck) Take(b []byte) error {
	for len(b) > 0 && len(c.blocks) > 0 {
		next := c.blocks[0]
		if next.Offset+uint64(len(c.part)) < c.at {
			return fmt.Errorf("a block begins at offset %d, the one before it ends at %d", next.Offset, c.at)
		}
		if between := next.Offset - min(c.at, next.Offset); between > 0 {
			n := min(between, uint64(len(b)))
			b, c.at = b[n:], c.at+n
			continue
		}
		n := min(next.Length+block.TrailerLen-uint64(len(c.part)), uint64(len(b)))
		whole := b[:n]
		if c.at += n; len(c.part) > 0 || c.at < next.Offset+next.Length+block.TrailerLen {
			c.part = append(c.part, whole...)
			whole = c.part
		}
		if b = b[n:]; uint64(len(whole)) < next.Length+block.TrailerLen {
			continue
		}
		// Behind the block are the kind of its compression and the checksum of both.
		content, trailer := whole[:next.Length], whole[next.Length:]
		if have, want := c.sum.Checksum(content, trailer[0]), binary.LittleEndian.Uint32(trailer[1:]); have != want {
			return fmt.Errorf("block of %d bytes at offset %d: checksum %08x, want %08x", next.Length, next.Offset, have, want)
		}
		c.blocks, c.part = c.blocks[1:], c.part[:0]
	}
	c.at += uint64(len(b))
	return nil
}

// End reports whether all of the table was taken.
func (c *TableCheck) End() error {
	if len(c.blocks) > 0 || c.at != c.size {
		return fmt.Errorf("it ends at offset %d of %d, before %d of its blocks: %w", c.at, c.size, len(c.blocks), io.ErrUnexpectedEOF)
	}
	return nil
}

// blocksOf returns where the blocks of the table in f are, ascending, and what makes their checksums. Pebble's
// own ValidateBlockChecksums leaves out value blocks, unpacks everything, and cannot be held up.
func blocksOf(f vfs.File) (blocks []block.Handle, sum block.Checksummer, err error) {
	readable, err := sstable.NewSimpleReadable(kept{f})
	if err != nil {
		return nil, sum, err
	}
	var opts pebble.Options
	opts.EnsureDefaults()
	r, err := sstable.NewReader(context.Background(), readable, opts.MakeReaderOptions())
	if err != nil {
		return nil, sum, errors.Join(err, readable.Close())
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	// From this format on the footer has a checksum, and no store here was ever written in an older one.
	if format, err := r.TableFormat(); err != nil || format < sstable.TableFormatPebblev6 {
		return nil, sum, errors.Join(fmt.Errorf("it says to be in format %s", format), err)
	}
	layout, err := r.Layout()
	if err != nil {
		return nil, sum, err
	}
	blocks = slices.Concat(layout.Index, layout.ValueBlock, []block.Handle{
		layout.TopIndex, layout.RangeDel, layout.RangeKey, layout.ValueIndex, layout.Properties, layout.MetaIndex, layout.BlobReferenceIndex,
	})
	for _, b := range layout.Data {
		blocks = append(blocks, b.Handle)
	}
	for _, b := range layout.Filter {
		blocks = append(blocks, b.Handle)
	}
	blocks = slices.DeleteFunc(blocks, func(b block.Handle) bool { return b.Length == 0 }) // there is none of its kind
	slices.SortFunc(blocks, func(a, b block.Handle) int { return cmp.Compare(a.Offset, b.Offset) })
	sum.Init(r.BlockReader().ChecksumType())
	return blocks, sum, nil
}

// kept is a file that stays open when its reader is closed.
type kept struct{ vfs.File }

func (kept) Close() error { return nil }
