package outbox

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
)

// op is an operation at its place.
type op struct {
	seq          uint64
	before, hash [16]byte // of the operation before it, and its own
	command.Op
}

// opOverhead is about what an operation costs beside its write: itself, and its place in the index.
const opOverhead = 224

func (o op) bytes() int64 { return int64(len(o.Write)) + opOverhead }

// chain is what is held of one.
type chain struct {
	origin, owner ident.Incarnation
	ops           []op // by seq, ascending; some may be missing. Published ones are never changed
	// forked says that the chain contradicts what was delivered under its origin; empty: it does not.
	forked string
	// came is when operations of another member's chain came last; zero: the chain is of this member.
	came time.Time
}

// ops returns the operations of a run at their places.
func opsOf(run command.Outbox) []op {
	ops := make([]op, len(run.Ops))
	before := run.Before
	for i, x := range run.Ops {
		o := op{seq: run.First + uint64(i), before: before, Op: x}
		o.hash = command.Chain(before, run.Origin, o.seq, x)
		before, ops[i] = o.hash, o
	}
	return ops
}

// runsOf cuts operations into runs without gaps, of about runBytes.
func runsOf(origin, owner ident.Incarnation, ops []op) []command.Outbox {
	var runs []command.Outbox
	size := 0
	for i, o := range ops {
		if i == 0 || o.seq != ops[i-1].seq+1 || size+len(o.Write) > runBytes {
			runs = append(runs, command.Outbox{Origin: origin, Owner: owner, First: o.seq, Before: o.before})
			size = 0
		}
		run := &runs[len(runs)-1]
		run.Ops = append(run.Ops, o.Op)
		size += len(o.Write) + 16
	}
	return runs
}

// ForkedError says that two operations claim one place of a chain. No disk of ours makes such chains;
// whatever did, nobody can say which of them counts.
type ForkedError struct {
	Origin ident.Incarnation
	Seq    uint64 // of the first operation that contradicts
}

func (e *ForkedError) Error() string {
	return fmt.Sprintf("outbox %s is forked: operation %d is not the one that is known", e.Origin, e.Seq)
}

// novel returns the operations of in that are neither held nor delivered: what union adds to have. Both
// ascend by seq.
func novel(origin ident.Incarnation, have, in []op, done entity.Delivered) ([]op, error) {
	var fresh []op
	at := 0
	for i, x := range in {
		for at < len(have) && have[at].seq < x.seq {
			at++
		}
		held := at < len(have) && have[at].seq == x.seq
		switch {
		case i > 0 && !follows(in[i-1], x),
			held && have[at].hash != x.hash,
			!held && at > 0 && !follows(have[at-1], x),
			!held && at < len(have) && !follows(x, have[at]),
			x.seq == done.Seq && x.hash != done.Hash,
			x.seq == done.Seq+1 && x.before != done.Hash:
			return nil, &ForkedError{Origin: origin, Seq: x.seq}
		case held, x.seq <= done.Seq, i > 0 && in[i-1].seq == x.seq:
		default:
			fresh = append(fresh, x)
		}
	}
	return fresh, nil
}

// follows reports whether y, whose seq is not lower, may be of the same chain as x.
func follows(x, y op) bool {
	switch y.seq - x.seq {
	case 0:
		return y.hash == x.hash
	case 1:
		return y.before == x.hash
	}
	return true
}

// union returns both, by seq. They have nothing in common.
func union(have, fresh []op) []op {
	if len(have) == 0 || have[len(have)-1].seq < fresh[0].seq {
		return append(have, fresh...)
	}
	all := slices.Concat(have, fresh)
	slices.SortFunc(all, bySeq)
	return all
}

func bySeq(x, y op) int { return cmp.Compare(x.seq, y.seq) }

// after returns the operations beyond seq.
func after(ops []op, seq uint64) []op {
	i, found := slices.BinarySearchFunc(ops, seq, func(o op, seq uint64) int { return cmp.Compare(o.seq, seq) })
	if found {
		i++
	}
	return ops[i:]
}

// contradicts returns the place at which what is held of a chain is not what was delivered; 0: nowhere.
func contradicts(ops []op, done entity.Delivered) uint64 {
	rest := after(ops, done.Seq)
	if held := len(ops) - len(rest); held > 0 && ops[held-1].seq == done.Seq && ops[held-1].hash != done.Hash {
		return done.Seq
	}
	if len(rest) > 0 && rest[0].seq == done.Seq+1 && rest[0].before != done.Hash {
		return rest[0].seq
	}
	return 0
}

// due returns the operations that follow what was delivered, without a gap, about limit bytes of them.
func due(ops []op, done entity.Delivered, limit int) []op {
	rest := after(ops, done.Seq)
	if len(rest) == 0 || rest[0].seq != done.Seq+1 {
		return nil
	}
	n, size := 0, 0
	for n < len(rest) && rest[n].seq == rest[0].seq+uint64(n) && (n == 0 || size+len(rest[n].Write)+16 <= limit) {
		size += len(rest[n].Write) + 16
		n++
	}
	return rest[:n]
}

func byOrigin(x, y *chain) int { return bytes.Compare(x.origin[:], y.origin[:]) }
