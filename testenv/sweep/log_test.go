package sweep

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/wal"
	"github.com/tidaldb/tidal/testenv/simfs"
)

const logDir = "/log"

// logOptions are small segments, so that a short script rotates.
func logOptions(fs *simfs.FS) wal.Options {
	return wal.Options{
		FS: fs, Dir: logDir, Group: 7, SegmentBytes: 1400, FirstSegmentBytes: 700, Foreground: true,
		Rand: rand.NewChaCha8([32]byte{1}),
	}
}

var logBase = ident.EntryID{Term: 2, Index: 10}

func entry(term, index uint64, bytes int) *pb.Entry {
	data := fmt.Sprintf("%d/%d%s", term, index, strings.Repeat(".", bytes))
	return &pb.Entry{Term: &term, Index: &index, Type: pb.EntryNormal.Enum(), Data: []byte(data)}
}

func hard(term, vote, commit uint64) *pb.HardState {
	return &pb.HardState{Term: &term, Vote: &vote, Commit: &commit}
}

// logStep is one call; without frames it drops the head.
type logStep struct {
	frames []wal.Frame
	keep   uint64
}

// logSteps appends one frame and several (group commit), rotates, overwrites a suffix within a
// segment and across two, moves commit alone, and drops the head.
func logSteps() []logStep {
	one := func(hs *pb.HardState, entries ...*pb.Entry) wal.Frame {
		return wal.Frame{HardState: hs, Entries: entries}
	}
	put := func(frames ...wal.Frame) logStep { return logStep{frames: frames} }
	return []logStep{
		put(one(hard(2, 1, 10), entry(2, 11, 10))),
		put(one(nil, entry(2, 12, 100)), one(nil, entry(2, 13, 100)), one(hard(2, 1, 12), entry(2, 14, 100))), // group commit
		put(one(hard(2, 1, 13))),                                       // remembered
		put(one(hard(3, 2, 13), entry(3, 14, 50), entry(3, 15, 50))),   // overwrites within the segment
		put(one(nil, entry(3, 16, 400))),                               // rotates
		put(one(hard(4, 3, 14), entry(4, 15, 500), entry(4, 16, 500))), // overwrites across the segments
		put(one(hard(4, 3, 16), entry(4, 17, 900))),
		{keep: 14},
		put(one(hard(5, 0, 17)), one(hard(6, 1, 17))), // votes alone
		put(one(nil, entry(6, 18, 1500))),             // larger than a segment
		put(one(hard(6, 1, 18), entry(6, 19, 10))),
		{keep: 18},
		put(one(nil, entry(6, 20, 10)), one(hard(7, 2, 19), entry(7, 20, 20))), // overwritten before it was written
	}
}

// logModel is what a log holds.
type logModel struct {
	base    uint64
	entries []*pb.Entry
	hs      *pb.HardState
}

func (m logModel) last() uint64 { return m.base + uint64(len(m.entries)) }

func (m logModel) with(s logStep) logModel {
	m.entries = slices.Clone(m.entries)
	for _, f := range s.frames {
		if len(f.Entries) > 0 {
			m.entries = append(m.entries[:f.Entries[0].GetIndex()-m.base-1], f.Entries...)
		}
		if f.HardState != nil {
			m.hs = f.HardState
		}
	}
	return m
}

// from is m without what is at or below base.
func (m logModel) from(base uint64) logModel {
	if base > m.base {
		m.entries, m.base = m.entries[base-m.base:], base
	}
	return m
}

// diff says how got, read from a disk, is not m. Commit may be lower, for moving it alone is not
// worth a sync; never below what was dropped as committed.
func (m logModel) diff(got logModel) error {
	m = m.from(got.base)
	if got.base != m.base || !slices.EqualFunc(got.entries, m.entries, func(a, b *pb.Entry) bool { return proto.Equal(a, b) }) {
		return fmt.Errorf("entries (%d, %d], want (%d, %d]", got.base, got.last(), m.base, m.last())
	}
	if got.hs.GetTerm() != m.hs.GetTerm() || got.hs.GetVote() != m.hs.GetVote() || got.hs.GetCommit() > m.hs.GetCommit() || got.hs.GetCommit() < got.base {
		return fmt.Errorf("hard state %v, want %v", got.hs, m.hs)
	}
	return nil
}

// logRun is what a script was told by its log.
type logRun struct {
	created      bool
	acked, tried logModel // tried: with the call under way
}

// scriptLog runs the steps, closing and opening the log once on the way.
func scriptLog(fs *simfs.FS) (r logRun, err error) {
	r.acked = logModel{base: logBase.Index, hs: hard(2, 0, 10)}
	r.tried = r.acked
	if err := wal.Create(logOptions(fs), logBase, nil); err != nil {
		return r, err
	}
	r.created = true
	l, _, err := wal.Open(logOptions(fs))
	if err != nil {
		return r, err
	}
	defer func() { _ = l.Close() }()
	for i, s := range logSteps() {
		r.tried = r.acked.with(s)
		if len(s.frames) > 0 {
			err = l.Append(s.frames, true)
		} else {
			err = l.DropHead(s.keep)
		}
		if err != nil {
			if l.Append([]wal.Frame{{}}, true) == nil || l.DropHead(0) == nil {
				return r, fmt.Errorf("the log took more after %w", err)
			}
			return r, err
		}
		r.acked = r.tried
		if i == 8 {
			if err := l.Close(); err != nil {
				return r, err
			}
			again, _, err := wal.Open(logOptions(fs))
			if err != nil {
				return r, err
			}
			l = again
		}
	}
	return r, nil
}

// boot opens the log, compares it with what r was told, and appends one more entry.
func (r *logRun) boot(fs *simfs.FS) error {
	l, rec, err := wal.Open(logOptions(fs))
	if err != nil {
		if !r.created {
			return nil // no log yet: the birth is made again
		}
		return err
	}
	defer func() { _ = l.Close() }()
	got := logModel{base: l.Base().Index, hs: rec.HardState}
	if l.LastIndex() >= l.FirstIndex() {
		if got.entries, err = l.Entries(l.FirstIndex(), l.LastIndex()+1, math.MaxUint64); err != nil {
			return err
		}
	}
	if err := r.acked.diff(got); err != nil {
		if also := r.tried.diff(got); also != nil {
			return fmt.Errorf("%w; or with the call under way: %w", err, also)
		}
		r.acked = r.tried
	}
	term := rec.HardState.GetTerm() + 1
	more := wal.Frame{HardState: hard(term, 0, rec.HardState.GetCommit()), Entries: []*pb.Entry{entry(term, got.last()+1, 30)}}
	r.created = true
	r.tried = r.acked.with(logStep{frames: []wal.Frame{more}})
	if err := l.Append([]wal.Frame{more}, true); err != nil {
		return err
	}
	r.acked = r.tried
	return nil
}

func TestLog_CrashEverywhere(t *testing.T) {
	crashEverywhere(t, "log", 1, 4, func(t *testing.T, fs *simfs.FS) func() boot {
		r, err := scriptLog(fs)
		if err != nil && !fs.Off() {
			t.Fatal(err)
		}
		return func() boot {
			r := r
			return r.boot
		}
	})
}

// An error of the log closes it: it takes no more, and what it took before is there whatever becomes
// of the pages that were not written.
func TestLog_FailEverywhere(t *testing.T) {
	failEverywhere(t, "log", 1, func(t *testing.T, fs *simfs.FS, p *trap) func() boot {
		r, err := scriptLog(fs)
		if err == nil && p.sprung.Load() != nil && p.sprung.Load().Path != logDir+"/spare.tmp" {
			t.Errorf("log: %s: nobody was told", p)
		}
		return func() boot {
			r := r
			return r.boot
		}
	})
}
