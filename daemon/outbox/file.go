package outbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/durable"
)

// A file of an outbox, version 1. Everything is little-endian.
//
//	header  | TIDALOUT 8 | version u16 | zero u16 | crc u32, of what stands before it |
//	frame   | length u32, of the write | crc u32 | write: one delivery, as package command has it |
//
// crc: CRC32C; that of a frame covers its offset in the file (u64), its length and the write. Frames
// stand back to back up to the end. In a file that has its name, a frame is durable before the next is written.
//
// There is one file, <number>.outbox, number in 16 hex digits. An opening never appends to the file that
// it finds: it writes what is held into the next one, durable before it has its name, and then removes
// the old one. (After a sync that failed, the old one may read well and not be on the disk.) So it is
// when most of a file is delivered. Of two files the higher number counts.
const (
	fileMagic   = "TIDALOUT"
	fileVersion = 1
	fileHeader  = 16
	fileSuffix  = ".outbox"
	tempName    = "next.tmp"

	frameHeader = 8

	// runBytes is about how much goes into one frame, one delivery and one frame of an exchange; a single
	// operation may be larger, up to MaxOpBytes. maxFrameBytes is more than any has.
	runBytes      = 256 << 10
	maxFrameBytes = 2 << 20
)

// CorruptError says that a file holds a bad frame before a good one: what was written there is lost.
type CorruptError struct {
	File   string
	Offset int64
	Detail string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is corrupt at offset %d: %s", e.File, e.Offset, e.Detail)
}

// file is the open one. Its owner is who holds Box.io.
type file struct {
	f     vfs.File
	path  string
	bytes int64
}

func fileName(number uint64) string { return fmt.Sprintf("%016x%s", number, fileSuffix) }

// appendHeader begins a file.
func appendHeader(b []byte) []byte {
	start := len(b)
	b = append(b, fileMagic...)
	b = binary.LittleEndian.AppendUint16(b, fileVersion)
	b = binary.LittleEndian.AppendUint16(b, 0)
	return binary.LittleEndian.AppendUint32(b, durable.Checksum(b[start:]))
}

// appendFrame appends the frame that begins at offset.
func appendFrame(b []byte, offset int64, run command.Outbox) []byte {
	write := encodeRun(run)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(write)))
	b = binary.LittleEndian.AppendUint32(b, frameChecksum(offset, write))
	return append(b, write...)
}

func frameChecksum(offset int64, write []byte) uint32 {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, 12+len(write)), uint64(offset))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(write)))
	return durable.Checksum(append(b, write...))
}

// encodeRun makes the write that delivers run.
func encodeRun(run command.Outbox) []byte {
	return command.EncodeWrite(command.Write{Records: []command.Record{run}})
}

// createFile makes the file number with these runs, durable with its name.
func createFile(fs vfs.FS, dir string, number uint64, runs []command.Outbox) (*file, error) {
	if err := durable.MkdirAll(fs, dir, 0o700); err != nil {
		return nil, err
	}
	temp := fs.PathJoin(dir, tempName)
	f, err := fs.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", temp, err)
	}
	out := &file{f: f, path: fs.PathJoin(dir, fileName(number))}
	err = out.write(appendHeader(nil))
	for _, run := range runs {
		if err == nil {
			err = out.write(appendFrame(nil, out.bytes, run))
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = durable.Rename(fs, temp, out.path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", out.path, err), f.Close())
	}
	return out, nil
}

// append makes runs durable, one after the other: power that fails while two frames are on their way may
// leave the second without the first, which reads like damage. There is hardly ever more than one.
func (f *file) append(runs []command.Outbox) error {
	for _, run := range runs {
		b := appendFrame(nil, f.bytes, run)
		if err := f.write(b); err != nil {
			return fmt.Errorf("write %d bytes to %s: %w", len(b), f.path, err)
		}
		if err := f.f.Sync(); err != nil {
			return fmt.Errorf("sync %s: %w", f.path, err)
		}
	}
	return nil
}

// write writes b, which is not used again.
func (f *file) write(b []byte) error {
	n, err := f.f.Write(b)
	f.bytes += int64(n)
	return err
}

// listFiles returns the numbers of the files in dir, ascending; none where there is no dir.
func listFiles(fs vfs.FS, dir string) ([]uint64, error) {
	names, err := fs.List(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	var numbers []uint64
	for _, name := range names {
		hex, ok := strings.CutSuffix(name, fileSuffix)
		if n, err := strconv.ParseUint(hex, 16, 64); ok && err == nil && fileName(n) == name {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// readFile returns the runs in a file. What follows the last good frame is a torn tail, which nobody was
// told of; with a good frame behind it, it is damage: the runs before it and a *CorruptError.
func readFile(fs vfs.FS, path string) ([]command.Outbox, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("stat %s: %w", path, err)
	}
	b := make([]byte, info.Size())
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("read %d bytes of %s: %w", len(b), path, err)
	}
	return scan(path, b)
}

// scan is readFile for the whole content of a file. The runs are parts of b.
func scan(path string, b []byte) (runs []command.Outbox, err error) {
	corrupt := func(offset int64, format string, args ...any) ([]command.Outbox, error) {
		return runs, &CorruptError{File: path, Offset: offset, Detail: fmt.Sprintf(format, args...)}
	}
	header := appendHeader(nil)
	if len(b) < fileHeader || string(b[:len(fileMagic)]) != fileMagic || durable.Checksum(b[:12]) != binary.LittleEndian.Uint32(b[12:]) {
		return corrupt(0, "no header") // it was durable before the file had its name
	}
	if version := binary.LittleEndian.Uint16(b[8:]); version != fileVersion {
		return nil, &durable.VersionError{File: path, Have: version, Max: fileVersion}
	}
	if string(b[:fileHeader]) != string(header) {
		return corrupt(0, "header %x", b[:fileHeader])
	}
	for offset := int64(fileHeader); offset < int64(len(b)); {
		write, ok := frameAt(b, offset)
		if !ok {
			for next := offset + 1; next < int64(len(b)); next++ {
				if _, ok := frameAt(b, next); ok {
					return corrupt(offset, "a bad frame, and a good one at %d", next)
				}
			}
			return runs, nil
		}
		run, err := command.DecodeOutbox(write)
		if err != nil {
			return corrupt(offset, "%v", err)
		}
		runs = append(runs, run)
		offset += frameHeader + int64(len(write))
	}
	return runs, nil
}

// frameAt returns the write of the frame at offset, if there is a good one.
func frameAt(b []byte, offset int64) ([]byte, bool) {
	rest := b[offset:]
	if len(rest) < frameHeader {
		return nil, false
	}
	n := int64(binary.LittleEndian.Uint32(rest))
	if n == 0 || n > maxFrameBytes || n > int64(len(rest)-frameHeader) {
		return nil, false
	}
	write := rest[frameHeader : frameHeader+n : frameHeader+n]
	return write, frameChecksum(offset, write) == binary.LittleEndian.Uint32(rest[4:])
}
