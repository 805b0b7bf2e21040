package outbox

import (
	"maps"
	"slices"
	"strings"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/query"
)

// index finds the records of the operations that are held. Lists in it grow at their end, and are never
// changed otherwise: readers keep them without a copy.
type index struct {
	signals map[string]map[string][]signal // by collection, then item
	hides   map[string]map[string][]hide   // by collection, then user
}

func newIndex() index {
	return index{signals: map[string]map[string][]signal{}, hides: map[string]map[string][]hide{}}
}

// mark says whose record it is.
type mark struct {
	ID
	key *command.Key // the idempotency key that decides whether it counts; nil: it does
}

type signal struct {
	mark
	query.Observation
}

type hide struct {
	mark
	item string
	entity.HardNeg
}

// records calls the function of its kind for every record of an operation.
func records(origin ident.Incarnation, o op, onSignal func(mark, command.Signal), onHide func(mark, command.HardNeg, entity.HardNeg)) {
	r := command.MakeRecords(o.Write)
	m := mark{ID: ID{Origin: origin, Seq: o.seq}}
	if key, ok := r.WriteKey(); ok {
		m.key = &key
	}
	for seq := entity.OperationSeq(o.seq) + 1; r.Next(); seq++ {
		own := m
		if key, ok := r.Key(); ok && own.key == nil {
			own.key = &key
		}
		if r.Kind() == command.RecordSignal {
			onSignal(own, r.Signal())
		} else {
			h := r.HardNeg()
			onHide(own, h, entity.HardNeg{Hidden: h.Hide, Stamp: o.Stamp, Origin: origin, Seq: seq})
		}
	}
}

func (x *index) add(origin ident.Incarnation, o op) {
	records(origin, o, func(m mark, s command.Signal) {
		at := s.At
		if at == 0 {
			at = o.Stamp.Millis()
		}
		put(x.signals, s.Collection, s.Item, signal{m, query.Observation{Type: s.Type, Milli: s.Milli, At: at}})
	}, func(m mark, h command.HardNeg, neg entity.HardNeg) {
		put(x.hides, h.Collection, h.User, hide{m, h.Item, neg})
	})
}

func put[T any](table map[string]map[string][]T, collection, key string, v T) {
	in, ok := table[collection]
	if !ok {
		in = map[string][]T{}
		table[strings.Clone(collection)] = in
	}
	list, ok := in[key]
	if !ok {
		key = strings.Clone(key) // it would keep the whole operation
	}
	in[key] = append(list, v)
}

// drop removes what ops, the first ones of a chain, put in.
func (x *index) drop(origin ident.Incarnation, ops []op) {
	if len(ops) == 0 {
		return
	}
	type place struct{ collection, key string }
	signals, hides := map[place]bool{}, map[place]bool{}
	for _, o := range ops {
		records(origin, o, func(_ mark, s command.Signal) { signals[place{s.Collection, s.Item}] = true },
			func(_ mark, h command.HardNeg, _ entity.HardNeg) { hides[place{h.Collection, h.User}] = true })
	}
	last := ops[len(ops)-1].seq
	gone := func(m mark) bool { return m.Origin == origin && m.Seq <= last }
	for p := range signals {
		without(x.signals, p.collection, p.key, func(s signal) bool { return gone(s.mark) })
	}
	for p := range hides {
		without(x.hides, p.collection, p.key, func(h hide) bool { return gone(h.mark) })
	}
}

func without[T any](table map[string]map[string][]T, collection, key string, gone func(T) bool) {
	in := table[collection]
	if in[key] = slices.DeleteFunc(slices.Clone(in[key]), gone); len(in[key]) == 0 {
		delete(in, key)
	}
	if len(in) == 0 {
		delete(table, collection)
	}
}

// Pending is what may be read of what is held. It is taken before the view of the state that it is read
// with: what is delivered in between is then in both, and Beyond sees that.
type Pending struct {
	signals map[string][]signal // by item
	hides   []hide
}

// OfItem returns what is pending of an item.
func (b *Box) OfItem(collection, item string) Pending {
	if b == nil || b.pending.Load() == 0 {
		return Pending{}
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	p := Pending{signals: map[string][]signal{}}
	if list := b.mu.index.signals[collection][item]; len(list) > 0 {
		p.signals[item] = list
	}
	return p
}

// OfFeed returns what is pending of a collection, and of what a user hides in it; empty: of nobody.
func (b *Box) OfFeed(collection, user string) Pending {
	if b == nil || b.pending.Load() == 0 {
		return Pending{}
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	in := b.mu.index.signals[collection]
	p := Pending{signals: make(map[string][]signal, len(in))}
	maps.Copy(p.signals, in)
	if user != "" {
		p.hides = b.mu.index.hides[collection][user]
	}
	return p
}

// Getter reads a state. *state.View implements it.
type Getter interface {
	Get(key []byte) (value []byte, ok bool, err error)
}

// Beyond returns what of p the state does not hold yet, each operation and each idempotency key once.
func (p Pending) Beyond(g Getter) (query.Pending, error) {
	s := sieve{g: g, delivered: map[ident.Incarnation]uint64{}, keys: map[[16]byte]ID{}}
	var out query.Pending
	for item, list := range p.signals {
		var kept []query.Observation
		for _, x := range list {
			if s.counts(x.mark) {
				kept = append(kept, x.Observation)
			}
		}
		if len(kept) > 0 {
			if out.Signals == nil {
				out.Signals = make(map[string][]query.Observation, len(p.signals))
			}
			out.Signals[item] = kept
		}
	}
	for _, x := range p.hides {
		if !s.counts(x.mark) {
			continue
		}
		if out.Hides == nil {
			out.Hides = map[string]entity.HardNeg{}
		}
		neg := x.HardNeg
		if before, ok := out.Hides[x.item]; ok {
			neg = before.Merge(neg)
		}
		out.Hides[x.item] = neg
	}
	return out, s.err
}

// sieve tells records that a state holds from those that it does not.
type sieve struct {
	g         Getter
	delivered map[ident.Incarnation]uint64 // that were looked up
	keys      map[[16]byte]ID              // that were met, and by which operation first
	receipts  *entity.Receipts             // nil: not looked up
	err       error                        // the first one
}

// counts reports whether a record counts beside the state.
func (s *sieve) counts(m mark) bool {
	done, ok := s.delivered[m.Origin]
	if !ok {
		done = s.deliveredOf(m.Origin)
		s.delivered[m.Origin] = done
	}
	if s.err != nil || m.Seq <= done && !mutantOverlayTwice {
		return false
	}
	if m.key == nil {
		return true
	}
	if first, ok := s.keys[m.key.Hash]; ok {
		return first == m.ID
	}
	if s.known(m.key.Hash) {
		return false
	}
	s.keys[m.key.Hash] = m.ID
	return true
}

func (s *sieve) deliveredOf(origin ident.Incarnation) uint64 {
	record, ok := s.get(entity.AppendDeliveredKey(nil, origin))
	if !ok {
		return 0
	}
	d, err := entity.DecodeDelivered(record)
	s.note(err)
	return d.Seq
}

// known reports whether the state knows an idempotency key.
func (s *sieve) known(hash [16]byte) bool {
	if s.receipts == nil {
		s.receipts = &entity.Receipts{}
		if record, ok := s.get(entity.ReceiptsKey()); ok {
			var err error
			*s.receipts, err = entity.DecodeReceipts(record)
			s.note(err)
		}
	}
	for _, period := range s.receipts.Periods() {
		if _, ok := s.get(entity.AppendReceiptKey(nil, period, hash)); ok {
			return true
		}
	}
	return false
}

func (s *sieve) get(key []byte) ([]byte, bool) {
	v, ok, err := s.g.Get(key)
	s.note(err)
	return v, ok && err == nil
}

func (s *sieve) note(err error) {
	if s.err == nil {
		s.err = err
	}
}
