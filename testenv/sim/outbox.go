package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/outbox"
	"github.com/tidaldb/tidal/daemon/query"
)

// deliverEvery is the pace at which a process looks into its outbox.
const deliverEvery = 500 * time.Millisecond

// local is a signal that a member took by itself.
type local struct {
	item   string
	write  string // its bytes
	member *member
	acked  bool   // false: it may be there
	lost   bool   // the disk that took it is gone, or may not be read
	index  uint64 // of the entry that delivered it; 0: none has
}

// outboxes is what the run knows of the outboxes of its members. Every operation is in the log at most
// once, one that was acknowledged once in the end, and meanwhile in the reads of whoever holds it (I17).
type outboxes struct {
	c     *cluster
	ops   map[outbox.ID]*local
	order []outbox.ID
	// unsure are writes whose takers were told neither; an operation is found by its bytes then.
	unsure map[string]*local
	done   map[ident.Incarnation]uint64 // the last operation of each chain that the log has
	number uint64
}

func newOutboxes(c *cluster) outboxes {
	o := outboxes{c: c, ops: map[outbox.ID]*local{}, unsure: map[string]*local{}, done: map[ident.Incarnation]uint64{}}
	c.after(c.around(c.plan.opEvery), func() { c.outboxes.think() })
	return o
}

// think has members take writes by themselves and exchange them, for as long as there are faults.
func (b *outboxes) think() {
	c := b.c
	if c.healed {
		return
	}
	c.after(c.around(3*c.plan.opEvery), b.think)
	m := c.members[c.rng.IntN(len(c.members))]
	if !m.serving() || m.bereft != nil || c.now < m.pausedUntil {
		return
	}
	switch o := c.members[c.rng.IntN(len(c.members))]; {
	case c.chance(0.25):
		b.read(m)
	case o != m && c.chance(0.3):
		if o.up() && c.now >= o.pausedUntil && c.net.open(m.id, o.id) && c.net.open(o.id, m.id) {
			b.exchange(m, o)
		}
	default:
		b.take(m)
	}
}

func (b *outboxes) take(m *member) {
	c := b.c
	b.number++
	l := &local{item: itemName(c.rng.IntN(c.plan.items)), member: m, lost: m.damaged || m.forgot != nil}
	if l.item == counter.item {
		return // it is counted by clients alone: see history.go
	}
	write := command.EncodeSignal(command.Signal{Item: l.item, Type: "view", User: fmt.Sprintf("local-%d", b.number), Milli: 1000})
	l.write = string(write)
	view := m.replica.View()
	after := view.Position().Stamp
	m.close(view)
	id, err := m.process.Outbox().Take(write, after)
	c.note(m.id, "takes", b.number, id.Seq)
	if _, unsure := errors.AsType[*outbox.UnsureError](err); unsure {
		c.sometimes("local write of unknown fate")
		b.unsure[l.write] = l
	} else if err == nil {
		c.sometimes("local write taken")
		l.acked = true
		b.add(id, l)
	} else if m.trouble == nil && !m.damaged && !m.disk.Off() {
		c.violated("member %d takes no local write: %w", m.id, err)
	}
	m.dark()
}

func (b *outboxes) add(id outbox.ID, l *local) {
	if _, ok := b.ops[id]; ok {
		b.c.violated("operation %s of an outbox was given twice", id)
	}
	b.ops[id] = l
	b.order = append(b.order, id)
}

// exchange is a reconcile, as bytes; it may end half-way.
func (b *outboxes) exchange(m, o *member) {
	c := b.c
	mine, theirs := b.snapshot(m), b.snapshot(o)
	there, err := o.process.Outbox().Merge(mine, false)
	if o.dark() || err != nil || c.chance(0.2) { // the answer may be lost
		return
	}
	here, err := m.process.Outbox().Merge(theirs, false)
	if len(here.Forked)+len(there.Forked) > 0 {
		c.violated("an exchange of members %d and %d finds forks: %v, %v", m.id, o.id, here.Forked, there.Forked)
	}
	if m.dark() || err != nil {
		return
	}
	c.note(m.id, "exchanges", o.id, uint64(here.Ops), uint64(there.Ops))
	if here.Ops+there.Ops > 0 {
		c.sometimes("outboxes exchanged")
	}
}

func (b *outboxes) snapshot(m *member) []command.Outbox {
	var wire bytes.Buffer
	err := outbox.WriteSnapshot(&wire, m.process.Outbox().Snapshot())
	if err != nil {
		b.c.violated("snapshot of an outbox: %w", err)
	}
	runs, err := outbox.ReadSnapshot(&wire, 1<<30)
	if err != nil {
		b.c.violated("snapshot of an outbox: %w", err)
	}
	return runs
}

// deliver is a round of a process's deliveries.
func (m *member) deliver() {
	m.after(m.c.around(deliverEvery), m.deliver)
	m.process.DeliverOutbox(context.Background())
	if !m.dark() {
		m.look()
	}
}

// delivered takes note of a delivery that was applied at index.
func (b *outboxes) delivered(index uint64, o command.Outbox, refused []command.Refusal) {
	was := b.done[o.Origin]
	if gap := o.First > was+1; gap != (len(refused) > 0) || gap && refused[0].Code != command.CodeOutboxGap {
		b.c.violated("operations %d to %d of %s are delivered after %d, and refused: %+v", o.First, o.Last(), o.Origin, was, refused)
	} else if gap {
		b.c.sometimes("operations delivered before others")
		return
	}
	for i, op := range o.Ops {
		id := outbox.ID{Origin: o.Origin, Seq: o.First + uint64(i)}
		if id.Seq <= was {
			b.c.sometimes("operation delivered again")
			continue
		}
		l, ok := b.ops[id]
		if !ok {
			if l, ok = b.unsure[string(op.Write)]; ok {
				delete(b.unsure, l.write)
				b.add(id, l)
			}
		}
		switch {
		case !ok:
			b.c.violated("operation %s is delivered at %d, nobody took it", id, index)
			return
		case l.write != string(op.Write):
			b.c.violated("operation %s is delivered at %d as %q, it was %q", id, index, op.Write, l.write)
		}
		l.index, b.done[o.Origin] = index, id.Seq
		b.c.oracle.model.collections[command.DefaultCollection].inUse = true
		b.c.oracle.model.change(index, name{command.DefaultCollection, l.item}, func(v *version) { v.views++ })
		b.c.sometimes("operation delivered")
	}
}

// read asks a member for an item, with what it has taken by itself: each operation once.
func (b *outboxes) read(m *member) {
	c := b.c
	item := itemName(c.rng.IntN(c.plan.items))
	waiting := m.process.Outbox().OfItem(command.DefaultCollection, item)
	held := m.process.Outbox().Snapshot()
	view := m.replica.View()
	defer m.close(view)
	at := view.Position().Applied
	pending, err := waiting.Beyond(view)
	var d query.Details
	ok := false
	if err == nil {
		d, ok, err = query.ItemWith(view, command.DefaultCollection, item, m.wall().UnixMilli(), pending)
	}
	if err != nil {
		if !m.damaged && m.trouble == nil {
			c.violated("local read: %w", err)
		}
		return
	}
	if !ok {
		return
	}
	want := c.oracle.model.at(name{command.DefaultCollection, item}, at.Index).views
	for _, run := range held {
		for i := range run.Ops {
			l := b.ops[outbox.ID{Origin: run.Origin, Seq: run.First + uint64(i)}]
			if l == nil {
				l = b.unsure[string(run.Ops[i].Write)]
			}
			if l != nil && l.item == item && (l.index == 0 || l.index > at.Index) {
				want++
				c.sometimes("local write read before it is delivered")
			}
		}
	}
	got := uint64(0)
	for _, x := range d.Signals {
		if x.Type == "view" {
			got = x.Count
		}
	}
	if got != want {
		c.violated("member %d shows %d views of %s at %s, its state and its outbox have %d", m.id, got, item, at, want)
	}
}

// lose takes note of a disk that goes, or may not be read any more: what it took may go with it.
func (b *outboxes) lose(m *member) {
	for _, id := range b.order {
		if l := b.ops[id]; l.member == m && l.index == 0 {
			l.lost = true
		}
	}
}

// waiting says what is still held by members that must come to an agreement; empty: nothing.
func (b *outboxes) waiting() string {
	for _, m := range b.c.core() {
		if m.process == nil || m.process.Outbox() == nil {
			continue
		}
		if s := m.process.Outbox().Status(); s.Pending > 0 {
			return fmt.Sprintf("; member %d still holds %d operations in its outbox", m.id, s.Pending)
		}
	}
	return ""
}

// audit: what was acknowledged is in the log, unless its disk was lost before anybody else had it.
func (b *outboxes) audit() {
	if !b.c.agreed {
		return
	}
	for _, id := range b.order {
		l := b.ops[id]
		switch {
		case l.index != 0 || !l.acked:
		case l.lost || l.member.damaged || l.member.gone || !b.c.belongs(l.member): // removed, if it knows or not
			b.c.sometimes("local write lost with its disk")
		default:
			b.c.violated("operation %s of member %d was acknowledged and is not delivered", id, l.member.id)
		}
	}
}
