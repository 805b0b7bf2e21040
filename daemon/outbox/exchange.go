package outbox

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/ident"
)

// Snapshot returns everything that is held, as runs. Nobody changes it.
func (b *Box) Snapshot() []command.Outbox {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var runs []command.Outbox
	for _, c := range b.sortedLocked() {
		runs = append(runs, runsOf(c.origin, c.owner, c.ops)...)
	}
	return runs
}

// Merged is what a merge did, or would do.
type Merged struct {
	Ops    int                 // operations that were neither held nor delivered before
	Forked []ident.Incarnation // chains that contradict what is known, of which nothing was taken
}

// Merge takes over what another member holds: union. It is durable when Merge returns. With dry it only
// says what it would do. Errors: *FullError, *FailedError, ErrClosed; nothing was taken then.
func (b *Box) Merge(runs []command.Outbox, dry bool) (Merged, error) {
	b.io.Lock()
	defer b.io.Unlock()
	fresh, out, err := b.novel(runs)
	if err != nil || dry || out.Ops == 0 {
		return out, err
	}
	var write []command.Outbox
	for _, c := range fresh {
		write = append(write, runsOf(c.origin, c.owner, c.ops)...)
	}
	if err := b.write(write); err != nil {
		b.fail(err)
		return Merged{}, &FailedError{Err: err}
	}
	b.mu.Lock()
	now := b.opts.Now()
	for _, f := range fresh {
		// What was delivered meanwhile is not held again.
		ops := after(f.ops, b.mu.delivered[f.origin].Seq)
		if len(ops) == 0 {
			continue
		}
		c := b.chainLocked(f.origin, f.owner)
		if b.publishLocked(c, ops); c.owner != b.opts.Owner {
			c.came = now
		}
	}
	b.mu.Unlock()
	b.metrics.merged.Add(float64(out.Ops))
	b.opts.OnChange()
	return out, nil
}

// novel returns what runs hold that is new here.
func (b *Box) novel(runs []command.Outbox) (fresh []chain, out Merged, err error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.mu.err != nil {
		return nil, out, b.mu.err
	}
	var size int64
	for _, in := range gather(runs) {
		var have []op
		if c, ok := b.mu.chains[in.origin]; ok {
			have = c.ops
		}
		ops, forked := novel(in.origin, have, in.ops, b.mu.delivered[in.origin])
		if forked != nil {
			b.log.Error("outbox chain not merged", slog.Any("err", forked))
			out.Forked = append(out.Forked, in.origin)
			continue
		}
		if len(ops) == 0 {
			continue
		}
		for _, o := range ops {
			size += o.bytes()
		}
		out.Ops += len(ops)
		fresh = append(fresh, chain{origin: in.origin, owner: in.owner, ops: ops})
	}
	if limit := 2 * b.opts.MaxBytes; b.mu.bytes+size > limit {
		b.metrics.full.Inc()
		return nil, Merged{}, &FullError{Bytes: b.mu.bytes + size, Limit: limit, RetryAfter: fullRetryAfter}
	}
	return fresh, out, nil
}

// gather puts the runs of each chain together, by origin.
func gather(runs []command.Outbox) []*chain {
	at := map[ident.Incarnation]*chain{}
	var all []*chain
	for _, run := range runs {
		c, ok := at[run.Origin]
		if !ok {
			c = &chain{origin: run.Origin, owner: run.Owner}
			at[run.Origin] = c
			all = append(all, c)
		}
		c.ops = append(c.ops, opsOf(run)...)
	}
	slices.SortFunc(all, byOrigin)
	for _, c := range all {
		slices.SortStableFunc(c.ops, bySeq)
	}
	return all
}

// A snapshot on its way between members, version 1. Everything is little-endian.
//
//	snapshot | TIDALEXC 8 | version u16 | zero u16 | frame … | end |
//	frame    | length u32, not 0 | crc u32, CRC32C of the write | write: one delivery, as package command has it |
//	end      | 0 u32 | 0 u32 | operations u64: how many there were |
const (
	exchangeMagic   = "TIDALEXC"
	exchangeVersion = 1
)

// WriteSnapshot writes runs to w.
func WriteSnapshot(w io.Writer, runs []command.Outbox) error {
	out := bufio.NewWriter(w)
	b := binary.LittleEndian.AppendUint16([]byte(exchangeMagic), exchangeVersion)
	_, _ = out.Write(append(b, 0, 0)) // errors stick
	ops := uint64(0)
	for _, run := range runs {
		write := encodeRun(run)
		b = binary.LittleEndian.AppendUint32(b[:0], uint32(len(write)))
		b = binary.LittleEndian.AppendUint32(b, durable.Checksum(write))
		_, _ = out.Write(b)
		_, _ = out.Write(write)
		ops += uint64(len(run.Ops))
	}
	b = append(b[:0], make([]byte, frameHeader)...)
	_, _ = out.Write(binary.LittleEndian.AppendUint64(b, ops))
	return out.Flush()
}

// SnapshotError refuses what is no snapshot.
type SnapshotError struct{ Detail string }

func (e *SnapshotError) Error() string { return "snapshot of an outbox: " + e.Detail }

// ReadSnapshot reads what WriteSnapshot wrote, up to its end, of at most limit bytes. Errors:
// *SnapshotError, *command.UnknownKindError, those of r.
func ReadSnapshot(r io.Reader, limit int64) ([]command.Outbox, error) {
	bad := func(format string, args ...any) ([]command.Outbox, error) {
		return nil, &SnapshotError{Detail: fmt.Sprintf(format, args...)}
	}
	in := bufio.NewReader(r)
	var header [12]byte
	if _, err := io.ReadFull(in, header[:]); err != nil {
		return nil, cutShort(err)
	}
	if string(header[:8]) != exchangeMagic || header[10] != 0 || header[11] != 0 {
		return bad("it begins with %x", header)
	}
	if version := binary.LittleEndian.Uint16(header[8:]); version != exchangeVersion {
		return bad("version %d, this binary reads %d", version, exchangeVersion)
	}
	var runs []command.Outbox
	var ops uint64
	for size := int64(0); ; {
		var h [frameHeader]byte
		if _, err := io.ReadFull(in, h[:]); err != nil {
			return nil, cutShort(err)
		}
		n, crc := binary.LittleEndian.Uint32(h[:]), binary.LittleEndian.Uint32(h[4:])
		if n == 0 {
			break
		}
		if size += int64(n); n > maxFrameBytes || size > limit {
			return bad("a frame of %d bytes, limit %d; %d bytes in all, limit %d", n, maxFrameBytes, size, limit)
		}
		write := make([]byte, n)
		if _, err := io.ReadFull(in, write); err != nil {
			return nil, cutShort(err)
		}
		if durable.Checksum(write) != crc {
			return bad("a frame of %d bytes with a wrong checksum", n)
		}
		run, err := command.DecodeOutbox(write)
		if err != nil {
			if _, unknown := errors.AsType[*command.UnknownKindError](err); unknown {
				return nil, err
			}
			return bad("%v", err)
		}
		runs, ops = append(runs, run), ops+uint64(len(run.Ops))
	}
	var count [8]byte
	if _, err := io.ReadFull(in, count[:]); err != nil {
		return nil, cutShort(err)
	}
	if n := binary.LittleEndian.Uint64(count[:]); n != ops {
		return bad("it has %d operations and says %d", ops, n)
	}
	return runs, nil
}

func cutShort(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &SnapshotError{Detail: "it is cut short"}
	}
	return err
}

// SnapshotLimit is how many bytes a snapshot of a sound outbox with this bound can have.
func (b *Box) SnapshotLimit() int64 { return 2 * b.opts.MaxBytes }
