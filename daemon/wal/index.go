package wal

import (
	"fmt"
	"slices"
	"sort"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidaldb/tidal/daemon/ident"
)

// index knows where every entry is, and holds the rules that a frame has to keep. It does no I/O:
// the same rules judge what is about to be written and what is read back.
type index struct {
	// base is the entry before the first one. Invariant: base.Index <= hs.commit, except while the
	// frames of the first segment are being read back.
	base ident.EntryID

	// hs is the newest HardState. Its commit may be ahead of the newest frame: see Log.Append.
	hs hardState

	// segments is never empty once the first one was read; oldest first, ids without a gap. Only
	// the last one grows.
	segments []*segment
}

// segment is one file, and where the live entries are in it. An entry is live until a later frame
// overwrites it.
type segment struct {
	segmentHeader
	file         vfs.File
	checksumSeed uint32
	size         int64 // preallocated; the append that would cross it begins the next segment
	end          int64 // where the next frame goes

	// first is the index of positions[0]. With no positions it is where the next live entry would
	// be, so that first never falls from one segment to the next.
	first     uint64
	positions []position
	terms     []termRun

	// refs counts the log itself and every read under way; the last one out closes the file.
	refs atomic.Int32
}

// termRun says that the entries from index on, up to the next run, have this term.
type termRun struct{ index, term uint64 }

func newSegment(h segmentHeader, file vfs.File, size, end int64) *segment {
	s := &segment{segmentHeader: h, checksumSeed: h.seed(), file: file, size: size, end: end, first: h.base.Index + 1}
	s.refs.Store(1)
	return s
}

func (s *segment) release() error {
	if s.refs.Add(-1) == 0 {
		return s.file.Close()
	}
	return nil
}

// next is the index after the last live entry of s.
func (s *segment) next() uint64 { return s.first + uint64(len(s.positions)) }

func (x *index) tail() *segment { return x.segments[len(x.segments)-1] }

func (x *index) lastIndex() uint64 {
	if len(x.segments) == 0 {
		return x.base.Index
	}
	return max(x.tail().next()-1, x.base.Index)
}

// lastID is the entry that a new segment begins after.
func (x *index) lastID() ident.EntryID {
	last := x.lastIndex()
	return ident.EntryID{Term: x.term(last), Index: last}
}

// holder returns the segment with the live entry i. REQUIRES: base.Index < i <= lastIndex().
func (x *index) holder(i uint64) *segment {
	n := sort.Search(len(x.segments), func(n int) bool { return x.segments[n].first > i })
	return x.segments[n-1]
}

// term returns the term of entry i. REQUIRES: base.Index <= i <= lastIndex().
func (x *index) term(i uint64) uint64 {
	if i == x.base.Index {
		return x.base.Term
	}
	runs := x.holder(i).terms
	n := sort.Search(len(runs), func(n int) bool { return runs[n].index > i })
	return runs[n-1].term
}

// check reports why f may not follow what the log holds:
//
//  1. indexes are contiguous, terms never fall;
//  2. nothing is left out, and nothing at or below commit is overwritten;
//  3. the HardState only moves forward, has the one vote of its term, commits nothing that is not
//     there, and is not behind the entries that came with it.
func (x *index) check(f frame) error {
	last := x.lastIndex()
	if len(f.refs) > 0 {
		first := f.refs[0].id
		switch floor := max(x.hs.commit, x.base.Index); {
		case first.Index > last+1:
			return fmt.Errorf("entry %s leaves a gap after index %d", first, last)
		case first.Index <= floor:
			return fmt.Errorf("entry %s overwrites what is committed, up to index %d", first, floor)
		}
		prev := ident.EntryID{Term: x.term(first.Index - 1), Index: first.Index - 1}
		for _, r := range f.refs {
			if r.id.Index != prev.Index+1 || r.id.Term < prev.Term {
				return fmt.Errorf("entry %s cannot follow entry %s", r.id, prev)
			}
			prev = r.id
		}
		if prev.Term > f.hs.term {
			return fmt.Errorf("entry %s is ahead of the hard state's term %d", prev, f.hs.term)
		}
		last = prev.Index
	}
	return x.hs.checkNext(f.hs, last)
}

// checkNext reports why n may not take the place of h in a log that ends at index last.
func (h hardState) checkNext(n hardState, last uint64) error {
	switch {
	case n.term < h.term:
		return fmt.Errorf("the term falls from %d to %d", h.term, n.term)
	case n.term == h.term && h.vote != 0 && n.vote != h.vote:
		return fmt.Errorf("the vote of term %d changes from %d to %d", n.term, h.vote, n.vote)
	case n.commit < h.commit:
		return fmt.Errorf("commit falls from %d to %d", h.commit, n.commit)
	case n.commit > last:
		return fmt.Errorf("commit %d is beyond the last index %d", n.commit, last)
	}
	return nil
}

// apply makes f part of the last segment. REQUIRES: check(f) == nil.
func (x *index) apply(f frame) {
	x.hs = f.hs
	if len(f.refs) == 0 {
		return
	}
	if !mutantSuffixKept || f.refs[0].id.Index > x.lastIndex() {
		x.truncateTail(f.refs[0].id.Index)
	}
	s := x.tail()
	for _, r := range f.refs {
		if n := len(s.terms); n == 0 || s.terms[n-1].term != r.id.Term {
			s.terms = append(s.terms, termRun{r.id.Index, r.id.Term})
		}
		s.positions = append(s.positions, r.pos)
	}
}

// truncateTail forgets the entries from i on. What they occupy in their segments stays there.
func (x *index) truncateTail(i uint64) {
	for _, s := range slices.Backward(x.segments) {
		if s.next() <= i {
			return
		}
		keep := max(s.first, i) - s.first
		s.positions = s.positions[:keep]
		for n := len(s.terms); n > 0 && s.terms[n-1].index >= i; n-- {
			s.terms = s.terms[:n-1]
		}
		s.first = min(s.first, i)
	}
}

// droppable returns how many of the oldest segments hold nothing from index keep on. What remains
// must begin after an entry that is still live, for its term is what the log begins with.
func (x *index) droppable(keep uint64) int {
	for n := len(x.segments) - 1; n > 0; n-- {
		if base := x.segments[n].base; base.Index < keep && base.Index >= x.base.Index && x.term(base.Index) == base.Term {
			return n
		}
	}
	return 0
}

// dropHead forgets the n oldest segments and returns them. REQUIRES: n <= droppable(...).
func (x *index) dropHead(n int) []*segment {
	old := slices.Clone(x.segments[:n])
	x.segments = slices.Delete(x.segments, 0, n)
	x.base = x.segments[0].base
	return old
}
