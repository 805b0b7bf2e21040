package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
)

// logImage is what a log holds at a moment.
type logImage struct {
	base ident.EntryID // the entry before ents[0]
	ents []*pb.Entry
	hs   *pb.HardState
}

func (l *logImage) last() uint64 { return l.base.Index + uint64(len(l.ents)) }

// has reports whether the log holds the entry, or has dropped its index.
func (l *logImage) has(id ident.EntryID) bool {
	if id.Index <= l.base.Index {
		return true
	}
	return id.Index <= l.last() && l.ents[id.Index-l.base.Index-1].GetTerm() == id.Term
}

// write adds a frame. What it replaces is gone.
func (l *logImage) write(f *consensus.Append) {
	l.hs = f.HardState
	if len(f.Entries) == 0 {
		return
	}
	keep := int(f.Entries[0].GetIndex() - l.base.Index - 1)
	if keep < len(l.ents) {
		l.ents = l.ents[:keep:keep] // readers may hold what was there
	}
	l.ents = append(l.ents, f.Entries...)
}

func (l *logImage) drop(upTo uint64) {
	n := int(upTo - l.base.Index)
	l.base = ident.EntryID{Term: l.ents[n-1].GetTerm(), Index: upTo}
	l.ents = l.ents[n:]
}

// diskLog is a log on a disk that forgets. The machine reads the live image, as it reads wal.Log.
type diskLog struct {
	live    logImage            // every frame written
	durable logImage            // every frame synced
	pending []*consensus.Append // written, not synced
	reads   int                 // entries read from below the machine's ring
}

var _ consensus.Log = (*diskLog)(nil)

func newDiskLog(base ident.EntryID) *diskLog {
	hs := &pb.HardState{Term: proto.Uint64(base.Term), Vote: proto.Uint64(0), Commit: proto.Uint64(base.Index)}
	return &diskLog{live: logImage{base: base, hs: hs}, durable: logImage{base: base, hs: hs}}
}

func (d *diskLog) write(f *consensus.Append) {
	d.live.write(f)
	d.pending = append(d.pending, f)
}

// sync makes the n oldest written frames durable.
func (d *diskLog) sync(n int) {
	for _, f := range d.pending[:n] {
		d.durable.write(f)
	}
	d.pending = slices.Delete(d.pending, 0, n)
}

// crash keeps what is durable and any prefix of the rest.
func (d *diskLog) crash(rng *rand.Rand) {
	d.sync(rng.IntN(len(d.pending) + 1))
	d.pending = nil
	d.live = d.durable
	d.live.ents = slices.Clone(d.durable.ents)
}

// dropHead forgets the entries up to and including upTo, which must be durable.
func (d *diskLog) dropHead(upTo uint64) {
	d.live.drop(upTo)
	d.durable.drop(upTo)
}

func (d *diskLog) FirstIndex() uint64 { return d.live.base.Index + 1 }
func (d *diskLog) LastIndex() uint64  { return d.live.last() }

func (d *diskLog) Term(i uint64) (uint64, error) {
	switch l := &d.live; {
	case i < l.base.Index:
		return 0, raft.ErrCompacted
	case i == l.base.Index:
		return l.base.Term, nil
	case i > l.last():
		return 0, raft.ErrUnavailable
	default:
		return l.ents[i-l.base.Index-1].GetTerm(), nil
	}
}

func (d *diskLog) Entries(lo, hi, maxBytes uint64) ([]*pb.Entry, error) {
	l := &d.live
	if lo <= l.base.Index {
		return nil, raft.ErrCompacted
	}
	if hi > l.last()+1 {
		return nil, fmt.Errorf("read [%d, %d) of a log that ends at %d", lo, hi, l.last())
	}
	var ents []*pb.Entry
	var size uint64
	for _, e := range l.ents[lo-l.base.Index-1 : hi-l.base.Index-1] {
		if size += uint64(proto.Size(e)); len(ents) > 0 && size > maxBytes {
			break
		}
		ents = append(ents, e)
	}
	d.reads += len(ents)
	return ents, nil
}

// position is the part of a state that the cluster must agree on.
type position struct {
	applied ident.EntryID
	conf    *pb.ConfState
	digest  uint64 // of everything applied, in order
}

// diskState is a state without a journal: a crash takes it back to its last flush.
type diskState struct {
	live    position
	flushed position
}

func (s *diskState) flush() { s.flushed = s.live }
func (s *diskState) crash() { s.live = s.flushed }
