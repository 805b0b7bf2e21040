package consensus

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/ident"
)

// wholeLog has every entry, as the log on disk does.
type wholeLog struct {
	base ident.EntryID
	ents []*pb.Entry
}

func (l *wholeLog) FirstIndex() uint64 { return l.base.Index + 1 }
func (l *wholeLog) LastIndex() uint64  { return l.base.Index + uint64(len(l.ents)) }

func (l *wholeLog) Term(i uint64) (uint64, error) {
	switch {
	case i < l.base.Index:
		return 0, raft.ErrCompacted
	case i == l.base.Index:
		return l.base.Term, nil
	case i > l.LastIndex():
		return 0, raft.ErrUnavailable
	}
	return l.ents[i-l.base.Index-1].GetTerm(), nil
}

func (l *wholeLog) Entries(lo, hi, _ uint64) ([]*pb.Entry, error) {
	if lo <= l.base.Index {
		return nil, raft.ErrCompacted
	}
	return slices.Clone(l.ents[lo-l.base.Index-1 : hi-l.base.Index-1]), nil
}

// Whatever has left memory, a tail reads like the whole log, and never holds more than its bound.
func TestTail_ReadsLikeTheWholeLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := ident.EntryID{Term: 1, Index: rapid.Uint64Range(1, 5).Draw(t, "start")}
		log := &wholeLog{base: start}
		tl := &tail{log: log, at: start, base: start, first: start.Index + 1, maxBytes: rapid.IntRange(1, 2000).Draw(t, "maxBytes")}
		term := uint64(1)
		var handed [][]*pb.Entry // slices that raft still holds
		var copies [][]*pb.Entry
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				lo := rapid.Uint64Range(max(tl.at.Index, tl.last()-min(tl.last(), 5))+1, tl.last()+1).Draw(t, "lo")
				if lo <= tl.last() {
					term++
				}
				var ents []*pb.Entry
				for i := range rapid.Uint64Range(1, 5).Draw(t, "entries") {
					data := make([]byte, rapid.IntRange(0, 300).Draw(t, "size"))
					ents = append(ents, &pb.Entry{Term: proto.Uint64(term), Index: proto.Uint64(lo + i), Data: data})
				}
				log.ents = append(slices.Clip(log.ents[:lo-log.base.Index-1]), ents...)
				if err := tl.append(ents); err != nil {
					t.Fatal(err)
				}
			},
			"apply": func(t *rapid.T) {
				if tl.at.Index < tl.last() {
					i := rapid.Uint64Range(tl.at.Index+1, tl.last()).Draw(t, "index")
					tl.applied(&Apply{Entries: log.ents[i-log.base.Index-1 : i-log.base.Index]})
				}
			},
			"compact": func(t *rapid.T) {
				i := rapid.Uint64Range(log.base.Index, tl.at.Index).Draw(t, "index")
				ents := log.ents[i-log.base.Index:]
				id := ident.EntryID{Index: i}
				id.Term, _ = log.Term(i)
				log.base, log.ents = id, ents
				if err := tl.compact(i); err != nil {
					t.Fatal(err)
				}
			},
			"read": func(t *rapid.T) {
				if first := log.FirstIndex(); first <= tl.last() {
					lo := rapid.Uint64Range(first, tl.last()).Draw(t, "lo")
					hi := rapid.Uint64Range(lo+1, tl.last()+1).Draw(t, "hi")
					maxBytes := rapid.Uint64Range(0, 2000).Draw(t, "maxBytes")
					got, err := tl.Entries(lo, hi, maxBytes)
					if err != nil || len(got) == 0 || !slices.Equal(got, log.ents[lo-log.base.Index-1:][:len(got)]) {
						t.Fatalf("Entries(%d, %d, %d) = %v, %v", lo, hi, maxBytes, got, err)
					}
					if uint64(len(got)) > hi-lo {
						t.Fatalf("Entries(%d, %d) returned %d entries", lo, hi, len(got))
					}
					handed, copies = append(handed, got), append(copies, slices.Clone(got))
				}
			},
			"": func(t *rapid.T) {
				if tl.last() != log.LastIndex() || tl.base != log.base {
					t.Fatalf("tail (%s, %d], log (%s, %d]", tl.base, tl.last(), log.base, log.LastIndex())
				}
				if i := log.base.Index; i > 0 {
					if _, err := tl.Term(i - 1); err != raft.ErrCompacted {
						t.Fatalf("Term(%d) below the base: %v", i-1, err)
					}
				}
				for i := log.base.Index; i <= tl.last(); i++ {
					want, _ := log.Term(i)
					if got, err := tl.Term(i); err != nil || got != want {
						t.Fatalf("Term(%d) = %d, %v, want %d", i, got, err, want)
					}
				}
				if _, err := tl.Term(tl.last() + 1); err != raft.ErrUnavailable {
					t.Fatalf("Term above the last: %v", err)
				}
				size := 0
				for _, e := range tl.ents {
					size += weight(e)
				}
				if size != tl.bytes || size > tl.maxBytes && len(tl.ents) > 1 {
					t.Fatalf("%d bytes in memory, counted %d, bound %d", size, tl.bytes, tl.maxBytes)
				}
				for i := range handed {
					if !slices.Equal(handed[i], copies[i]) {
						t.Fatal("a slice changed in the hands of raft")
					}
				}
			},
		})
	})
}

// What a frame may not do.
func TestTail_RefusesFramesThatCannotBe(t *testing.T) {
	ent := func(index uint64) []*pb.Entry {
		return []*pb.Entry{{Term: proto.Uint64(2), Index: proto.Uint64(index)}}
	}
	start := ident.EntryID{Term: 1, Index: 5}
	tl := &tail{log: &wholeLog{base: start}, at: start, base: start, first: 6, maxBytes: 1 << 20}
	for _, tc := range []struct {
		name string
		ents []*pb.Entry
		want string
	}{
		{"over what is applied", ent(5), "frame begins at 5, applied is 5"},
		{"after a gap", ent(7), "frame begins at 7, log ends at 5"},
	} {
		if err := tl.append(tc.ents); err == nil || err.Error() != tc.want {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	if err := tl.compact(6); err == nil {
		t.Error("compact(6) over applied 5: no error")
	}
}

// What left memory by the bound is not held on to by the array that it was in.
func TestTail_LetsGoOfWhatItDropped(t *testing.T) {
	const maxBytes = 1 << 20
	start := ident.EntryID{Term: 1, Index: 1}
	tl := &tail{log: &wholeLog{base: start}, at: start, base: start, first: 2, maxBytes: maxBytes}
	var released atomic.Int64
	index := start.Index
	add := func(n, size int) {
		t.Helper()
		for range n {
			index++
			e := &pb.Entry{Term: proto.Uint64(1), Index: proto.Uint64(index), Data: make([]byte, size)}
			runtime.AddCleanup(e, func(n int64) { released.Add(n) }, int64(size))
			if err := tl.append([]*pb.Entry{e}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for cap(tl.ents)-len(tl.ents) < 1000 { // a large array of small entries, with much room behind them
		add(1, 1)
	}
	const large, count = 100 << 10, 200
	add(count, large)
	for range 20 {
		if runtime.GC(); released.Load() >= count*large-3*maxBytes {
			break
		}
	}
	if held := count*large - released.Load(); held > 3*maxBytes {
		t.Errorf("%d bytes are held, want at most three times the bound, %d", held, 3*maxBytes)
	}
	runtime.KeepAlive(tl)
}
