package apply

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/state"
)

// Delivery is what a delivery of an outbox changed, or why it changed nothing.
type Delivery struct {
	Origin ident.Incarnation
	entity.Delivered
	// Refused is a code of package command; empty: Delivered is in the state now.
	Refused string
}

// outboxes is what the log knows of the outboxes of members.
type outboxes struct {
	// delivered has an entry for every chain of which anything was delivered.
	delivered map[ident.Incarnation]entity.Delivered
	forgotten entity.Forgotten
	// members are the owners that are members.
	members map[ident.Incarnation]bool
}

func loadOutboxes(view *state.View, roster membership.Roster) (o outboxes, err error) {
	o.members = incarnations(roster)
	if record, ok, err := view.Get(entity.ForgottenKey()); err != nil {
		return o, err
	} else if ok {
		if o.forgotten, err = entity.DecodeForgotten(record); err != nil {
			return o, err
		}
	}
	o.delivered, err = Delivered(view)
	return o, err
}

// Delivered returns how far the chains of outboxes are delivered, by their origin.
func Delivered(view *state.View) (map[ident.Incarnation]entity.Delivered, error) {
	all := map[ident.Incarnation]entity.Delivered{}
	it := view.Iter(entity.DeliveredBounds())
	for ok := it.First(); ok; ok = it.Next() {
		origin, err := entity.ParseDeliveredKey(it.Key())
		if err == nil {
			all[origin], err = entity.DecodeDelivered(it.Value())
		}
		if err != nil {
			return nil, errors.Join(err, it.Close())
		}
	}
	return all, it.Close()
}

func incarnations(r membership.Roster) map[ident.Incarnation]bool {
	all := make(map[ident.Incarnation]bool, len(r.Members))
	for _, m := range r.Members {
		all[m.Incarnation] = true
	}
	return all
}

// setOwners takes note of who are members, for the chains of those who are not any more.
func (t *txn) setOwners(r membership.Roster) {
	o := &t.m.outboxes
	o.members = incarnations(r)
	for _, origin := range sorted(o.delivered) {
		d := o.delivered[origin]
		switch member := o.members[d.Owner]; {
		case member && d.Gone != 0:
			d.Gone = 0
		case !member && d.Gone == 0:
			d.Gone = t.pos.Stamp
		default:
			continue
		}
		t.setDelivered(origin, d)
	}
}

func sorted(chains map[ident.Incarnation]entity.Delivered) []ident.Incarnation {
	return slices.SortedFunc(maps.Keys(chains), func(a, b ident.Incarnation) int { return bytes.Compare(a[:], b[:]) })
}

func (t *txn) setDelivered(origin ident.Incarnation, d entity.Delivered) {
	t.m.outboxes.delivered[origin] = d
	t.delivered.set(origin, &d)
}

// outbox takes over the operations of a delivery that were not delivered before.
func (w *writer) outbox(o command.Outbox) (done, error) {
	was := w.m.outboxes.delivered[o.Origin]
	ops, hash, refused := w.undelivered(was, o)
	if refused != nil {
		w.deliveries = append(w.deliveries, Delivery{Origin: o.Origin, Delivered: was, Refused: refused.Code})
		return done{refused: refused}, nil
	}
	if len(ops) == 0 {
		w.deliveries = append(w.deliveries, Delivery{Origin: o.Origin, Delivered: was})
		return done{}, nil
	}
	first := o.Last() - uint64(len(ops)) + 1
	for i, op := range ops {
		if err := w.operation(o.Origin, first+uint64(i), op); err != nil {
			return done{}, fmt.Errorf("operation %d of outbox %s: %w", first+uint64(i), o.Origin, err)
		}
	}
	now := entity.Delivered{Seq: o.Last(), Hash: hash, Owner: o.Owner, Gone: was.Gone}
	if now.Gone == 0 && !w.m.outboxes.members[o.Owner] {
		now.Gone = w.stamp
	}
	w.setDelivered(o.Origin, now)
	w.deliveries = append(w.deliveries, Delivery{Origin: o.Origin, Delivered: now})
	return done{}, nil
}

// undelivered returns the operations of o that follow what was delivered, and the hash of the last one.
func (w *writer) undelivered(was entity.Delivered, o command.Outbox) (ops []command.Op, hash [16]byte, refused *command.Refusal) {
	no := func(code, format string, args ...any) ([]command.Op, [16]byte, *command.Refusal) {
		return nil, hash, &command.Refusal{Code: code, Detail: fmt.Sprintf("outbox %s: ", o.Origin) + fmt.Sprintf(format, args...)}
	}
	if mutantDeliveredIgnored {
		was = entity.Delivered{Seq: o.First - 1, Hash: o.Before}
	}
	switch {
	case o.First > was.Seq+1:
		return no(command.CodeOutboxGap, "operations from %d on, delivered up to %d", o.First, was.Seq)
	case was.Seq == 0 && !w.m.outboxes.members[o.Owner] && o.Ops[0].Stamp < w.m.outboxes.forgotten.Before:
		return no(command.CodeOutboxExpired, "its member was removed, and what was delivered before %s is not known any more", w.m.outboxes.forgotten.Before)
	case o.Last() < was.Seq:
		return nil, hash, nil // nothing to compare with: the hash of that place is not kept
	}
	hash = o.Before
	chain := func(ops []command.Op, from uint64) {
		for i, op := range ops {
			hash = command.Chain(hash, o.Origin, from+uint64(i), op)
		}
	}
	before := was.Seq + 1 - o.First // how many of them were delivered
	if chain(o.Ops[:before], o.First); hash != was.Hash && !mutantHashIgnored {
		return no(command.CodeOutboxForked, "operations %d to %d do not continue the %d that were delivered", o.First, o.Last(), was.Seq)
	}
	chain(o.Ops[before:], was.Seq+1)
	return o.Ops[before:], hash, nil
}

// operation applies one operation as if its member had been the leader as it took it; but nothing in it
// is later than the entry that brings it, however fast that member's clock was.
func (w *writer) operation(origin ident.Incarnation, seq uint64, op command.Op) error {
	own := writer{txn: w.txn, id: w.id, stamp: min(op.Stamp, w.stamp), latest: w.stamp, origin: origin, seq: entity.OperationSeq(seq)}
	if mutantStampUnclamped {
		own.stamp = op.Stamp
	}
	records := command.MakeRecords(op.Write)
	var err error
	if key, ok := records.WriteKey(); ok {
		_, err = own.keyedWrite(key, records)
	} else {
		_, err = own.write(records)
	}
	return err
}

// forget drops what is known of chains whose owner has been no member since before a moment.
func (w *writer) forget(f command.OutboxForget) (done, error) {
	o := &w.m.outboxes
	if f.Before <= o.forgotten.Before {
		return done{}, nil
	}
	o.forgotten.Before = f.Before
	w.forgot = true
	for _, origin := range sorted(o.delivered) {
		if d := o.delivered[origin]; d.Gone != 0 && d.Gone < f.Before {
			delete(o.delivered, origin)
			w.delivered.set(origin, nil)
		}
	}
	return done{}, nil
}

// commitOutboxes writes what changed of what the log knows of outboxes.
func (t *txn) commitOutboxes() error {
	for _, p := range t.delivered.pairs {
		t.key = entity.AppendDeliveredKey(t.key[:0], p.key)
		was, err := t.stored(t.key)
		if err != nil {
			return err
		}
		if p.value == nil {
			t.delete(t.key, was)
			continue
		}
		t.value = p.value.Append(t.value[:0])
		t.put(t.key, t.value, was)
	}
	if !t.forgot {
		return nil
	}
	return t.putOver(entity.ForgottenKey(), t.m.outboxes.forgotten.Encode())
}
