package sim

import (
	"bytes"
	"cmp"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/state"
	"github.com/tidaldb/tidal/testenv/simfs"
)

// hashEvery is how often a whole state is compared: it costs more than all the rest.
const hashEvery = 32

// firstIndex is the index at which every state begins.
const firstIndex = 1

// oracle knows what the cluster has committed itself to.
type oracle struct {
	c *cluster

	cluster ident.ClusterID // zero: not born yet
	genesis []byte
	members map[uint64]bool // that were born

	leaders  map[uint64]ident.MemberID // by term
	promises map[promise]uint64        // votes
	entries  map[ident.EntryID]uint64  // hash of everything that was ever on its way to a log

	// chosen are the applied entries; chosen[i] is at index firstIndex+i, the first of them the birth.
	chosen []choice
	model  *model
	ops    map[uint64]placed // by number: where a write was taken

	// incarnations of all members that there ever were, by their ids, which are given once.
	incarnations map[ident.MemberID]ident.Incarnation
	nextID       uint64

	// outcomes is what became of each appearance of a write, of which only the first can be taken.
	outcomes map[appearance]command.Outcome

	// The reference applies every chosen entry by itself, on a disk without faults.
	store   *state.Store
	machine *apply.Machine
}

type appearance struct {
	n  uint64
	id ident.EntryID
}

type promise struct {
	member ident.MemberID
	term   uint64
}

type choice struct {
	id    ident.EntryID
	data  uint64 // hash of the entry
	state uint64 // hash of the state that has applied it; 0: not known
	sums  state.Digest

	// In force from here on.
	conf   *pb.ConfState
	roster *membership.Roster
}

// placed says where a write was taken.
type placed struct{ id ident.EntryID }

func newOracle(c *cluster) oracle {
	return oracle{
		c:        c,
		members:  map[uint64]bool{},
		leaders:  map[uint64]ident.MemberID{},
		promises: map[promise]uint64{},
		entries:  map[ident.EntryID]uint64{},
		model:    newModel(),
		ops:      map[uint64]placed{},
		outcomes: map[appearance]command.Outcome{},

		incarnations: map[ident.MemberID]ident.Incarnation{},
	}
}

// born: all members are born by one genesis record.
func (o *oracle) born(m *member, id datadir.Member) {
	o.members[m.id] = true
	switch {
	case o.cluster.IsZero():
		o.cluster, o.genesis = id.Cluster, id.Genesis
		if err := o.begin(); err != nil {
			o.c.violated("reference: %w", err)
		}
	case o.cluster != id.Cluster || !bytes.Equal(o.genesis, id.Genesis):
		o.c.violated("member %d was born into cluster %s, there is %s", m.id, id.Cluster, o.cluster)
	}
}

// bornAll reports whether all members are born that the cluster begins with.
func (o *oracle) bornAll() bool { return len(o.members) >= o.c.plan.members }

// begin makes the reference.
func (o *oracle) begin() error {
	genesis, err := membership.DecodeGenesis(o.genesis)
	if err != nil {
		return err
	}
	opts := state.Options{FS: simfs.New(), Dir: "/state", Foreground: true, CacheBytes: 1 << 20}
	at := state.Position{Applied: ident.EntryID{Term: 1, Index: firstIndex}, Conf: genesis.ConfState()}
	if err := state.Create(opts, at, func(b *state.Batch) error { return apply.Birth(b, genesis.Roster()) }); err != nil {
		return err
	}
	if o.store, err = state.Open(opts); err != nil {
		return err
	}
	if o.machine, err = apply.New(o.store); err != nil {
		return err
	}
	h, err := hashState(o.store.NewView())
	roster := genesis.Roster()
	o.chosen = []choice{{id: at.Applied, state: h, conf: at.Conf, roster: &roster}}
	return cmp.Or(err, o.checkRoster(&roster))
}

func (o *oracle) close() {
	if o.store != nil {
		_ = o.store.Close()
	}
}

// hashState hashes everything that a state holds but its position, and closes the view.
func hashState(v *state.View) (h uint64, err error) {
	defer func() {
		if e := v.Close(); err == nil {
			err = e
		}
	}()
	h = fnvOffset
	it := v.Iter([]byte{1}, nil)
	for ok := it.First(); ok; ok = it.Next() {
		h = foldBytes(fold(h, uint64(len(it.Key()))), it.Key())
		h = foldBytes(fold(h, uint64(len(it.Value()))), it.Value())
	}
	return h, it.Close()
}

// leads: at most one leader a term.
func (o *oracle) leads(member ident.MemberID, term uint64) {
	if other, ok := o.leaders[term]; ok && other != member {
		o.c.violated("members %d and %d lead term %d", other, member, term)
	}
	o.leaders[term] = member
	o.c.sometimes("leader elected")
}

// votes: at most one vote a member and term, for ever.
func (o *oracle) votes(member ident.MemberID, v datadir.Vote) {
	if v.Vote == 0 {
		return
	}
	p := promise{member, v.Term}
	if other, ok := o.promises[p]; ok && other != v.Vote {
		o.c.violated("member %d votes for %d and for %d in term %d", member, other, v.Vote, v.Term)
	}
	o.promises[p] = v.Vote
}

// appended: an (index, term) names one entry.
func (o *oracle) appended(m *member, ents []*pb.Entry) {
	for _, e := range ents {
		id, h := entryID(e), hashEntry(e)
		if other, ok := o.entries[id]; ok && other != h {
			o.c.violated("member %d has another entry %s", m.id, id)
		}
		o.entries[id] = h
	}
}

func hashEntry(e *pb.Entry) uint64 {
	return foldBytes(fold(fnvOffset, uint64(e.GetType())), e.GetData())
}

// applies: every member applies the same entry at an index.
func (o *oracle) applies(m *member, ents []*pb.Entry) {
	for _, e := range ents {
		id, h := entryID(e), hashEntry(e)
		switch i := id.Index - firstIndex; {
		case i > uint64(len(o.chosen)):
			o.c.violated("member %d applies %s, nobody has applied %d", m.id, id, id.Index-1)
			return
		case i == uint64(len(o.chosen)):
			o.choose(e)
		case o.chosen[i].id != id || o.chosen[i].data != h:
			o.c.violated("member %d applies %s, another applied %s there", m.id, id, o.chosen[i].id)
		}
	}
}

// choose takes the next entry of the cluster's one log.
func (o *oracle) choose(e *pb.Entry) {
	run := &apply.Run{Entries: []*pb.Entry{e}}
	err := o.machine.Apply([]*apply.Run{run})
	var h uint64
	if err == nil && e.GetIndex()%hashEvery == 0 {
		h, err = hashState(o.store.NewView())
	}
	if err != nil {
		o.c.violated("reference, entry %s: %w", entryID(e), err)
		return
	}
	id, was := entryID(e), o.newest()
	now := choice{id: id, data: hashEntry(e), state: h, sums: o.store.Position().Digest, conf: o.store.Position().Conf, roster: cmp.Or(run.Roster, was.roster)}
	o.chosen = append(o.chosen, now)
	if now.roster != was.roster {
		err = o.checkRoster(now.roster)
	}
	if err := cmp.Or(err, checkSuccessor(was.conf, now.conf)); err != nil {
		o.c.violated("entry %s: %w", id, err)
	}
	entry, err := command.Decode(e.GetData())
	if err != nil || entry.Kind != command.KindWrites {
		return
	}
	if entry.Writes.Len() > 1 {
		o.c.sometimes("entry of many writes")
	}
	for i := 0; entry.Writes.Len() > 0; i++ {
		records, _ := entry.Writes.Next()
		o.write(id, records, run.Outcomes[0][i])
	}
}

// newest is the last entry that anybody has applied.
func (o *oracle) newest() *choice { return &o.chosen[len(o.chosen)-1] }

// at is what stood at an index that was applied.
func (o *oracle) at(index uint64) *choice {
	return &o.chosen[min(index-firstIndex, uint64(len(o.chosen)-1))]
}

// write takes note of one write, applied at id: it came to what the model says.
func (o *oracle) write(id ident.EntryID, records command.Records, outcome command.Outcome) {
	if first := records; first.Next() {
		switch first.Kind() {
		case command.RecordOutbox:
			o.c.outboxes.delivered(id.Index, first.Outbox(), outcome.Refused)
			return
		case command.RecordOutboxForget:
			return
		}
	}
	w := o.model.write(id, records)
	if !w.is(outcome) {
		o.c.violated("write %d at %s came to %+v, the model says %+v", w.number, id, outcome, w)
	}
	for _, l := range w.lines {
		o.c.clients.streams[l.stream].taken(l.line, id)
	}
	n := w.number
	if n == 0 {
		return // a part of a stream
	}
	op := o.c.clients.ops[n]
	o.outcomes[appearance{n, id}] = outcome
	_, again := o.ops[n]
	switch {
	case op == nil:
		o.c.violated("write %d is applied at %s, nobody asked for it", n, id)
		return
	case w.first != (ident.EntryID{}):
		o.c.sometimes("write with a key taken once")
		return
	case again:
		o.c.violated("write %d is taken at %s and at %s", n, o.ops[n].id, id)
	}
	o.ops[n] = placed{id}
	if op.known() == failed {
		o.c.violated("write %d is applied at %s, its client was told that nothing happened", n, id)
	}
}

// stands: the state of a member is what the reference was at the same index.
func (o *oracle) stands(m *member) {
	i := m.applied.Index - firstIndex
	if m.applied.Index < firstIndex || i >= uint64(len(o.chosen)) || o.chosen[i].id != m.applied {
		o.c.violated("member %d stands at %s, which was never applied", m.id, m.applied)
		return
	}
	if m.divergent {
		return
	}
	view := m.replica.View()
	sums := view.Position().Digest
	var h uint64
	var err error
	if o.chosen[i].state == 0 {
		err = view.Close()
	} else {
		h, err = hashState(view)
	}
	switch {
	case sums.Version != 0 && o.chosen[i].sums.Version != 0 && !sums.Equal(o.chosen[i].sums):
		o.c.violated("member %d has another digest at %s", m.id, m.applied)
	case err != nil && (m.damaged || m.trouble != nil):
		o.c.sometimes("state cannot be read for a fault")
	case err != nil:
		o.c.violated("member %d: read state: %w", m.id, err)
	case h != o.chosen[i].state: // both 0: compared by the digest alone
		o.c.violated("member %d has another state at %s", m.id, m.applied)
	}
}
