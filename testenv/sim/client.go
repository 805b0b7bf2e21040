package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/query"
	"github.com/tidaldb/tidal/daemon/replica"
	"github.com/tidaldb/tidal/daemon/state"
)

// outcome is what a client knows of its operation.
type outcome uint8

const (
	waiting outcome = iota
	acked           // it happened
	failed          // it certainly did not and will not happen
	unknown         // it may have happened, and may happen yet
	durable         // it is in the leader's log, and happens unless that leader is lost
)

// op is one operation of a session. A write carries its number in each of its records.
type op struct {
	n       uint64
	session *session
	member  *member
	call    *replica.Call // nil: a labelled read, or one that has its index
	outcome outcome
	began   time.Duration
	ended   time.Duration

	id ident.EntryID // of an acknowledged write

	read  bool
	item  name
	user  string // whose feed it reads; empty: it reads an item
	min   uint64 // index from which on a read may be served
	exact bool   // linearizable

	exists bool // what it saw
	views  uint64

	// floor of a linearizable read is the newest index that anybody was told of before it began.
	floor uint64

	ack     consensus.Ack
	adds    int  // views of the counter
	signal  int  // which record is its only signal; -1: there is none, or several
	settled bool // its signal was not refused

	// A write with a key may be tried again, with the same number and the same bytes: root is the first
	// try, which remembers all of them, itself included.
	root  *op
	tries []*op
	data  []byte
	keyed bool
}

// known is what the client knows of a write that it may have tried several times.
func (o *op) known() outcome {
	all := failed
	for _, t := range o.tries {
		switch {
		case t.outcome == acked:
			return acked
		case t.outcome != failed: // also one that was durable
			all = unknown
		}
	}
	return all
}

// session is one client, which does one thing at a time and never wants to see an older state than it
// has seen.
type session struct {
	id  int
	saw uint64 // index
	op  *op    // nil: it thinks
}

// clients issue operations and remember every outcome.
type clients struct {
	c        *cluster
	number   uint64
	ops      map[uint64]*op
	all      []*op
	open     []*op // waiting, in order
	sessions []*session
	streams  []*stream
	newest   uint64 // highest index that anybody was told of
	finals   []*op  // what the healed cluster is asked
}

func newClients(c *cluster) clients {
	cl := clients{c: c, ops: map[uint64]*op{}}
	for i := range c.plan.sessions {
		s := &session{id: i}
		cl.sessions = append(cl.sessions, s)
		c.after(c.around(c.plan.opEvery), func() { c.clients.think(s) })
	}
	for i := range c.plan.streams {
		s := &stream{c: c, id: uint64(i)}
		cl.streams = append(cl.streams, s)
		c.after(c.around(c.plan.opEvery), s.step)
	}
	return cl
}

// think has a session do something, for as long as there are faults.
func (cl *clients) think(s *session) {
	c := cl.c
	if c.healed {
		return
	}
	c.after(c.around(c.plan.opEvery), func() { cl.think(s) })
	if s.op != nil {
		return
	}
	m := c.leader()
	if m == nil || c.chance(0.3) {
		m = c.members[c.rng.IntN(len(c.members))]
	}
	if !m.serving() || c.now < m.pausedUntil {
		return
	}
	switch {
	case c.chance(0.2):
		cl.read(s, m, true)
	case c.chance(0.2):
		cl.read(s, m, false)
	default:
		cl.write(s, m)
	}
}

func (cl *clients) begin(s *session, m *member) *op {
	cl.number++
	o := &op{n: cl.number, session: s, member: m, began: cl.c.now, floor: cl.newest}
	o.root, o.tries = o, []*op{o}
	cl.ops[o.n] = o
	cl.enter(o)
	return o
}

// enter has an operation wait.
func (cl *clients) enter(o *op) {
	s := o.session
	cl.all, cl.open = append(cl.all, o), append(cl.open, o)
	if s != nil {
		s.op = o
	}
	e := cl.c.plan.election()
	cl.c.after(e/2+cl.c.upTo(3*e), func() { cl.deadline(o) })
}

// The workload is small, so that everything meets everything.
func (cl *clients) drawItem() name {
	collections := []string{command.DefaultCollection, command.DefaultCollection, command.DefaultCollection, "films", "books"}
	return name{collections[cl.c.rng.IntN(len(collections))], itemName(cl.c.rng.IntN(cl.c.plan.items))}
}

const users = 3 // that hide items, and have feeds

func itemName(i int) string { return "item-" + strconv.Itoa(i) }
func userName(i int) string { return "user-" + strconv.Itoa(i) }

func (cl *clients) drawUser() string { return userName(cl.c.rng.IntN(users)) }

// counter is the item whose views porcupine looks at: it is never deleted.
var counter = name{command.DefaultCollection, "item-0"} // itemName(0)

// write sends one write.
func (cl *clients) write(s *session, m *member) *op {
	c := cl.c
	o := cl.begin(s, m)
	w := cl.drawWrite(o)
	if c.chance(0.15) {
		o.ack = consensus.AckLeader
	}
	o.data = command.EncodeWrite(w)
	c.note(m.id, "write", o.n, uint64(len(w.Records)), uint64(o.ack))
	cl.send(o)
	return o
}

// drawWrite draws a write of one to five records, at least one of which has the number of o.
func (cl *clients) drawWrite(o *op) (w command.Write) {
	c := cl.c
	o.signal = -1
	numbered, signals := false, 0
	for i := range 1 + c.rng.IntN(2)*c.rng.IntN(4) {
		r := cl.drawRecord(o)
		numbered = numbered || numberOf(r) != 0
		if _, ok := r.(command.Signal); ok {
			signals++
			o.signal = i
		}
		w.Records = append(w.Records, r)
	}
	if !numbered {
		o.signal = len(w.Records)
		signals++
		w.Records = append(w.Records, cl.drawSignal(o))
	}
	if signals != 1 {
		o.signal = -1
	}
	if len(w.Records) > 1 {
		c.sometimes("write of many records")
	}
	if o.keyed = c.chance(0.5); o.keyed {
		w.Key = &command.Key{Hash: number16(o.n), Body: number16(^o.n)}
	}
	return w
}

func (cl *clients) drawSignal(o *op) command.Signal {
	s := command.Signal{Type: "view", User: fmt.Sprintf("%s%d", writePrefix, o.n), Milli: 1000}
	item := cl.drawItem()
	if s.Collection, s.Item = item.collection, item.item; cl.c.chance(0.1) {
		s.Type = "like" // not every collection has it
	} else if item == counter {
		o.adds++
	}
	return s
}

// drawRecord draws one record of a write.
func (cl *clients) drawRecord(o *op) command.Record {
	c := cl.c
	item := cl.drawItem()
	switch p := c.rng.IntN(100); {
	case p < 50:
		return cl.drawSignal(o)
	case p < 75:
		pad := c.rng.IntN(100)
		if c.chance(0.03) {
			pad = c.rng.IntN(3 << 10)
		}
		attrs := fmt.Sprintf(`{"op":%d,"pad":"%*s"}`, o.n, pad, "")
		return command.Item{Collection: item.collection, ID: item.item, Attrs: []byte(attrs)}
	case p < 82:
		dimension := 4
		if c.chance(0.1) {
			dimension = 5
		}
		vector := make([]byte, dimension*entity.FloatBytes)
		binary.LittleEndian.PutUint32(vector, math.Float32bits(float32(o.n))) // exact up to 2^24
		return command.Embedding{Collection: item.collection, Item: item.item, Vector: vector}
	case p < 90:
		return command.HardNeg{Collection: item.collection, Item: item.item, User: cl.drawUser(), Hide: c.chance(0.6)}
	case p < 95 && item != counter:
		return command.Delete{Collection: item.collection, ID: item.item}
	default:
		d := command.Collection{Name: item.collection, Schema: entity.Schema{
			HalfLife: []time.Duration{time.Hour, entity.DefaultCollection().HalfLife}[c.rng.IntN(2)],
			Types:    []entity.SignalType{{Name: "view", Milli: 1000}},
		}}
		if d.Name == command.DefaultCollection { // half of what is declared fits what is there
			d.Schema.HalfLife = entity.DefaultCollection().HalfLife
		}
		if c.chance(0.7) {
			d.Schema.Types = append(d.Schema.Types, entity.SignalType{Name: "like", Milli: 2000})
		}
		if c.chance(0.2) {
			d.Schema.Dimension = 4 + c.rng.IntN(2)
		}
		return d
	}
}

func number16(n uint64) (b [16]byte) {
	binary.LittleEndian.PutUint64(b[:], n)
	return b
}

// refuses reports whether a member answers nobody although its replica goes on as ever: it is in quarantine.
func (m *member) refuses() bool { return m.divergent && m.bereft != nil }

func (cl *clients) send(o *op) {
	if o.member.refuses() {
		cl.end(o, failed)
		return
	}
	var err error
	if o.call, err = o.member.driver.Write(o.data, o.ack); err != nil {
		cl.failed(o, err)
	}
	o.member.look()
}

// retry tries a write with a key again, wherever the leader is now.
func (cl *clients) retry(root *op) {
	c := cl.c
	m := c.leader()
	if c.healed || m == nil || c.now < m.pausedUntil {
		return
	}
	c.sometimes("write tried again with its key")
	o := &op{n: root.n, root: root, member: m, began: c.now, data: root.data, keyed: true, adds: root.adds, ack: root.ack}
	root.tries = append(root.tries, o)
	cl.enter(o)
	c.note(m.id, "retry", o.n)
	cl.send(o)
}

// read asks for an item: linearizable, or labelled with the index it reflects.
func (cl *clients) read(s *session, m *member, exact bool) *op {
	o := cl.begin(s, m)
	o.read, o.exact, o.item = true, exact, cl.drawItem()
	if cl.c.chance(0.3) {
		o.user = cl.drawUser()
	}
	if s != nil {
		o.min = s.saw
	}
	var kind uint64
	if m.refuses() {
		cl.end(o, failed)
		return o
	}
	if exact {
		kind = 1
		var err error
		if o.call, err = m.driver.Read(); err != nil {
			cl.failed(o, err)
		}
	}
	cl.c.note(m.id, "read", o.n, o.floor, kind)
	m.look()
	return o
}

// deadline: the client gives up. Only now is the outcome unknown.
func (cl *clients) deadline(o *op) {
	if o.outcome != waiting {
		return
	}
	cl.c.note(o.member.id, "deadline", o.n)
	if o.call == nil {
		cl.end(o, failed)
		cl.c.sometimes("read waited in vain")
		return
	}
	err := o.call.GiveUp()
	if _, ok := errors.AsType[*replica.NotProposedError](err); ok {
		cl.failed(o, err)
		return
	}
	cl.end(o, unknown)
}

func (cl *clients) end(o *op, with outcome) {
	o.outcome, o.ended = with, cl.c.now
	for i, x := range cl.open {
		if x == o {
			cl.open = append(cl.open[:i:i], cl.open[i+1:]...) // whoever walks the old list goes on
			break
		}
	}
	if o.session != nil {
		o.session.op = nil
	}
	// Even who got an answer may not have heard it.
	if c := cl.c; o.keyed && len(o.root.tries) < 4 && (with == unknown || with == failed || c.chance(0.1)) {
		c.after(c.upTo(4*c.plan.election()), func() { cl.retry(o.root) })
	}
}

// vanished: the process is gone, and whoever waited there does not know.
func (cl *clients) vanished(m *member) {
	for _, o := range cl.open {
		if o.member == m {
			cl.end(o, unknown)
		}
	}
	for _, s := range cl.streams {
		if s.member == m {
			s.broken()
		}
	}
}

// answers takes what m has answered.
func (cl *clients) answers(m *member) {
	for _, o := range cl.open {
		if o.member == m && o.outcome == waiting {
			cl.poll(o)
		}
	}
	for _, s := range cl.streams {
		if s.member == m {
			s.answers()
		}
	}
}

func (cl *clients) poll(o *op) {
	m := o.member
	if o.call != nil {
		res, done, err := o.call.Done()
		switch {
		case !done:
			return
		case err != nil:
			o.call = nil
			cl.failed(o, err)
			return
		case !o.read:
			o.call = nil
			cl.acked(o, res)
			return
		}
		o.call = nil
		if res.ID.Index < o.floor {
			cl.c.violated("read %d may be served at %d, %d was known before it", o.n, res.ID.Index, o.floor)
		}
		o.min = max(o.min, res.ID.Index)
	}
	switch {
	case m.applied.Index < o.min || m.failed != nil:
	case m.bereft != nil:
		cl.end(o, failed)
	default:
		cl.serve(o)
	}
}

// serve reads an item or a feed from the state of the member, and compares it with what it was at that
// index.
func (cl *clients) serve(o *op) {
	c, m := cl.c, o.member
	view := m.replica.View()
	defer m.close(view)
	at := view.Position().Applied
	read := cl.serveItem
	if o.user != "" {
		read = cl.serveFeed
	}
	seen, err := read(o, view, at)
	if _, missing := errors.AsType[*query.NoCollectionError](err); missing {
		c.sometimes("read of no collection")
		if c.oracle.model.exists(o.item.collection, at.Index) {
			c.violated("read %d at %s: %w", o.n, at, err)
		}
		err = nil
	}
	if err != nil {
		cl.end(o, failed)
		if !m.damaged && m.trouble == nil {
			c.violated("read %d: %w", o.n, err)
		}
		return
	}
	if at.Index < o.min || o.session != nil && at.Index < o.session.saw {
		c.violated("read %d is served at %s, after %d", o.n, at, o.min)
	}
	c.note(m.id, "served", o.n, at.Index, seen)
	if o.exact {
		c.sometimes("linearizable read")
	} else {
		c.sometimes("labelled read")
	}
	cl.saw(o, at.Index)
	cl.end(o, acked)
}

func (cl *clients) serveItem(o *op, view *state.View, at ident.EntryID) (seen uint64, err error) {
	got, err := versionIn(view, o.item, o.member.wall().UnixMilli())
	if err != nil {
		return 0, err
	}
	o.exists, o.views = got.exists, got.views
	if want := cl.c.oracle.model.visible(o.item, at.Index); got != want {
		cl.c.violated("read %d of %s at %s finds %s, want %s", o.n, o.item, at, got, want)
	}
	if got.dimension > 0 {
		cl.c.sometimes("embedding read")
	}
	return got.written + got.views, nil
}

// versionIn reads an item from a state.
func versionIn(view *state.View, n name, now int64) (version, error) {
	d, ok, err := query.Item(view, n.collection, n.item, now)
	if err != nil || !ok {
		return version{}, err
	}
	v := version{exists: true, created: d.Created, written: d.Version, op: numberIn(string(opOf(d.Attrs))), dimension: d.Dimension}
	for _, s := range d.Signals {
		if s.Type == "like" {
			v.likes = s.Count
		} else {
			v.views = s.Count
		}
	}
	return v, nil
}

func (cl *clients) serveFeed(o *op, view *state.View, at ident.EntryID) (seen uint64, err error) {
	ids, err := feedIn(view, query.FeedRequest{Collection: o.item.collection, Limit: 2 * cl.c.plan.items, Now: o.member.wall().UnixMilli(), User: o.user})
	if unranked, ok := errors.AsType[*unrankedError](err); ok {
		cl.c.violated("read %d at %s: %w", o.n, at, unranked)
	}
	if err != nil {
		return 0, err
	}
	if want := cl.c.oracle.model.feed(o.item.collection, o.user, at.Index); !slices.Equal(ids, want) {
		cl.c.violated("read %d of the feed of %s for %s at %s finds %q, want %q", o.n, o.item.collection, o.user, at, ids, want)
	}
	cl.c.sometimes("feed read")
	return uint64(len(ids)), nil
}

// unrankedError: a feed is not in the order of its masses.
type unrankedError struct{ place int }

func (e *unrankedError) Error() string {
	return fmt.Sprintf("item %d of a feed ranks above the one before it", e.place)
}

// feedIn reads a feed from a state and returns its items, sorted by name.
func feedIn(view *state.View, r query.FeedRequest) (ids []string, err error) {
	feed, err := query.Feed(view, r)
	if err != nil {
		return nil, err
	}
	for i, x := range feed.Items {
		ids = append(ids, x.ID)
		if i > 0 && x.Mass.Compare(feed.Items[i-1].Mass) > 0 {
			return nil, &unrankedError{i}
		}
	}
	slices.Sort(ids)
	return ids, nil
}

func (cl *clients) saw(o *op, index uint64) {
	cl.newest = max(cl.newest, index)
	if o.session != nil {
		o.session.saw = max(o.session.saw, index)
	}
}

// failed takes an error. Of a write it says whether anything can have happened.
func (cl *clients) failed(o *op, err error) {
	c := cl.c
	cl.end(o, failed)
	if o.outcome = cl.explain(err); o.outcome == unknown {
		return
	}
	if at, ok := c.oracle.ops[o.n]; ok && !o.read && o.root.known() == failed {
		c.violated("write %d failed (%v) and is applied at %s", o.n, err, at.id)
	}
}

// explain says what an error means, and takes note of it.
func (cl *clients) explain(err error) outcome {
	c := cl.c
	var full *replica.DiskFullError
	if _, ok := errors.AsType[*replica.UnknownOutcomeError](err); ok {
		c.sometimes("outcome unknown")
		return unknown
	}
	switch {
	case errors.Is(err, replica.ErrLost):
		c.sometimes("write lost to another leader")
	case errors.Is(err, replica.ErrClosed):
		c.sometimes("write refused while closing")
	case errors.As(err, &full):
		c.sometimes("write refused by a full disk")
	default:
		if _, ok := errors.AsType[*replica.NotLeaderError](err); ok {
			c.sometimes("not leader")
		} else if over, ok := errors.AsType[*replica.OverloadedError](err); ok {
			c.sometimes("overloaded: " + over.Queue)
		} else if _, ok := errors.AsType[*replica.NotProposedError](err); ok {
			c.sometimes("given up before it was proposed")
		} else if _, ok := errors.AsType[*replica.FailedError](err); ok {
			c.sometimes("refused by a failed replica")
		} else if _, ok := errors.AsType[*replica.TooLargeError](err); ok {
			c.sometimes("write too large")
		} else {
			c.violated("an operation ended with %v", err)
		}
	}
	return failed
}

// acked: what is acknowledged is in state here, where it was said to be, with the outcome that
// everybody gets, and durable on the members named.
func (cl *clients) acked(o *op, res replica.Result) {
	c, m := cl.c, o.member
	if o.id = res.ID; res.Ack == consensus.AckLeader {
		cl.end(o, durable)
		cl.durable(o)
		return
	}
	cl.end(o, acked)
	c.note(m.id, "acknowledged", o.n, res.ID.Term, res.ID.Index)
	c.sometimes("write acknowledged")
	if m.failed != nil {
		c.violated("member %d acknowledges write %d after it failed closed", m.id, o.n)
	}
	want, ok := c.oracle.outcomes[appearance{o.n, res.ID}]
	if !ok || m.applied.Index < res.ID.Index {
		c.violated("write %d is acknowledged at %s, it is applied at %s", o.n, res.ID, c.oracle.ops[o.n].id)
	}
	if !reflect.DeepEqual(want, res.Outcome) {
		c.violated("write %d came to %+v, the reference says %+v", o.n, res.Outcome, want)
	}
	if res.Outcome.First != (ident.EntryID{}) {
		c.sometimes("write acknowledged that was taken before")
	}
	o.root.settled = !slices.ContainsFunc(res.Outcome.Refused, func(r command.Refusal) bool { return r.Record == o.root.signal })
	for _, r := range res.Outcome.Refused {
		c.sometimes("record refused: " + r.Code)
	}
	for _, id := range res.Replicated {
		if o := c.byID(id); o != nil && o.known.last.Index < res.ID.Index && !o.damaged && !o.gone {
			c.violated("write at %s is not durable on member %d, which has %s", res.ID, id, o.known.last)
		}
	}
	have := append(slices.Clone(res.Replicated), m.as)
	if res.Replicated != nil && !c.oracle.reaches(append(have, c.left(res.ID.Index, m.applied.Index)...), m.applied.Index) {
		c.violated("write %d at %s is acknowledged with %v, no majority", o.n, res.ID, res.Replicated)
	}
	cl.saw(o, res.ID.Index)
}

// left lists who holds an entry and is no member of the configuration that the leader has applied: the entry
// may have been committed with it before it was removed, and the leader speaks of it no more.
func (c *cluster) left(index, applied uint64) (ids []ident.MemberID) {
	conf := c.oracle.at(applied).conf
	for _, m := range c.members {
		if m.as != 0 && m.known.last.Index >= index && !membership.InConf(conf, m.as) {
			ids = append(ids, m.as)
		}
	}
	return ids
}

// durable: what is acknowledged by the leader alone is durable in its log. It may be lost with it, and then
// another leader has put something else there: see the audit.
func (cl *clients) durable(o *op) {
	c, m := cl.c, o.member
	c.note(m.id, "durable", o.n, o.id.Term, o.id.Index)
	c.sometimes("write acknowledged by the leader alone")
	if o.ack != consensus.AckLeader {
		c.violated("write %d asked for a quorum and is acknowledged by member %d alone", o.n, m.id)
	}
	if _, ok := c.oracle.entries[o.id]; !ok || m.known.last.Index < o.id.Index {
		c.violated("write %d at %s is not durable on member %d, which has %s", o.n, o.id, m.id, m.known.last)
	}
}

// last asks the healed cluster: one write through its leader, one linearizable read at every member.
func (cl *clients) last(leader *member) {
	cl.finals = nil
	cl.finals = append(cl.finals, cl.write(nil, leader))
	for _, m := range cl.c.core() {
		if m.serving() {
			cl.finals = append(cl.finals, cl.read(nil, m, true))
		}
	}
}

// finished reports whether all that was asked last is answered, and nobody waits. What was refused is
// asked again: the leader may have been busy, or replaced.
func (cl *clients) finished() bool {
	done := len(cl.open) == 0
	for _, s := range cl.streams {
		done = done && len(s.parts) == 0
	}
	for i, o := range cl.finals {
		switch {
		case o.outcome == waiting:
			done = false
		case o.outcome == acked:
		case o.read && !cl.c.belongs(o.member): // it was removed meanwhile
		case o.read:
			done = false
			if o.member.serving() {
				cl.finals[i] = cl.read(nil, o.member, true)
			}
		default:
			done = false
			if leader := cl.c.leader(); leader != nil {
				cl.finals[i] = cl.write(nil, leader)
			}
		}
	}
	return done
}

func (cl *clients) unfinished() string {
	s := fmt.Sprintf("%d operations wait", len(cl.open))
	for _, o := range cl.finals {
		if o.outcome != acked {
			s += fmt.Sprintf(", operation %d at member %d ended with %d", o.n, o.member.id, o.outcome)
		}
	}
	return s
}
