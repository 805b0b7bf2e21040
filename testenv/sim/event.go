package sim

import (
	"container/heap"
	"fmt"
	"strings"
	"time"
)

// event is something that will happen. Events of the same moment happen in the order they were planned.
type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

type agenda []event

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	if a[i].at != a[j].at {
		return a[i].at < a[j].at
	}
	return a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(event)) }
func (a *agenda) Pop() any {
	old := *a
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*a = old[:len(old)-1]
	return e
}

var _ heap.Interface = (*agenda)(nil)

// line is one line of the trace: what happened to whom, with up to four numbers.
type line struct {
	at     time.Duration
	member uint64 // 0: nobody in particular
	what   string // constant
	n      [4]uint64
}

// trace folds every line into a hash and remembers the newest.
type trace struct {
	lines [200]line
	count uint64
	hash  uint64
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// fold mixes v into the FNV-1a hash h, eight bytes at a time.
func fold(h, v uint64) uint64 { return (h ^ v) * fnvPrime }

func foldBytes(h uint64, b []byte) uint64 {
	for _, c := range b {
		h = (h ^ uint64(c)) * fnvPrime
	}
	return h
}

func foldString(s string) uint64 {
	h := uint64(fnvOffset)
	for i := range len(s) {
		h = fold(h, uint64(s[i]))
	}
	return h
}

func (t *trace) add(l line) {
	if t.hash == 0 {
		t.hash = fnvOffset
	}
	t.lines[t.count%uint64(len(t.lines))] = l
	t.count++
	h := fold(t.hash, uint64(l.at))
	h = fold(h, l.member)
	for i := range len(l.what) {
		h = fold(h, uint64(l.what[i]))
	}
	for _, n := range l.n {
		h = fold(h, n)
	}
	t.hash = h
}

func (l *line) String() string {
	return fmt.Sprintf("%12s  member %d  %-14s %v", l.at, l.member, l.what, l.n)
}

// String prints the newest lines, oldest first.
func (t *trace) String() string {
	var b strings.Builder
	size := uint64(len(t.lines))
	for i := t.count - min(t.count, size); i < t.count; i++ {
		fmt.Fprintln(&b, &t.lines[i%size])
	}
	return b.String()
}
