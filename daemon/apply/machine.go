package apply

import (
	"errors"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/state"
)

// rowCacheBytes bounds the rows kept decoded between two calls: some 150,000 of them. A signal for an
// item that is not among them costs a read of the store, some five times the work of one that is.
const rowCacheBytes = 32 << 20

// Run is a range of committed entries and what became of them. The caller fills Entries; Apply fills
// the rest.
type Run struct {
	Entries []*pb.Entry // contiguous; read-only

	// Outcomes has one element an entry, with one outcome for each of its writes; nil for an entry
	// that is no writes. It is shorter than Entries only if Apply returned an error.
	Outcomes [][]command.Outcome
	// Conf has one element for each configuration change among the entries, in their order.
	Conf []Conf
	// Roster is the last one applied; nil if none was.
	Roster *membership.Roster
	// Checks are those among the entries, with the digest of the state right after each.
	Checks []*Check
	// Deliveries has one element for each delivery of an outbox among the entries, in their order.
	Deliveries []Delivery
	// RostersRefused are the indexes of the entries with nothing but a roster that was not the successor
	// of the one in force.
	RostersRefused []uint64
}

// Check is an entry at which members compare their states.
type Check struct {
	ID ident.EntryID
	// Trusted is the member whose digest is right here, whatever the majority says; 0: the majority's is.
	Trusted ident.MemberID
	// Conf is the configuration in force. Nobody changes it.
	Conf   *pb.ConfState
	Digest state.Digest
}

// Conf is what became of one configuration change.
type Conf struct {
	Index  uint64
	Change *pb.ConfChangeV2
	// State is the configuration in force after the entry. Nobody changes it.
	State *pb.ConfState
	// Refused says that nothing was changed, and Detail why: raft must not be told of the change.
	Refused bool
	Detail  string
}

// Machine applies the entries of one group. It is owned by one goroutine.
type Machine struct {
	store *state.Store
	rows  *rowCache

	// What the committed state says, kept at hand.
	pos         state.Position
	collections map[string]*entity.Collection // by name
	roster      uint64                        // version; 0 where the group has none
	features    ident.Capabilities
	receipts    entity.Receipts
	outboxes    outboxes

	// undigested leaves the digest out: only benchmarks set it, to see what it costs.
	undigested bool

	// MaxKeys and MaxCollections bound what there may be. They are part of what makes every member
	// arrive at the same state: only tests of what is refused at the bound change them.
	MaxKeys, MaxCollections int

	// failed is the first error; every later call returns it. The cache may then hold what was not
	// committed.
	failed error
}

// New returns a Machine that continues store at its position. Nobody else may commit to store.
func New(store *state.Store) (*Machine, error) {
	m := &Machine{
		store:       store,
		undigested:  Undigested,
		rows:        newRowCache(rowCacheBytes),
		pos:         store.Position(),
		collections: map[string]*entity.Collection{},

		MaxKeys: entity.MaxKeys, MaxCollections: entity.MaxCollections,
	}
	view := store.NewView()
	defer view.Close()
	if m.pos.Digest.Version != entity.DigestVersion { // of a new member, or of an older binary
		var err error
		if m.pos.Digest, err = Digest(view, 1); err != nil {
			return nil, fmt.Errorf("digest the state at %s: %w", m.pos.Applied, err)
		}
	}
	if err := m.loadCollections(view); err != nil {
		return nil, fmt.Errorf("load collections: %w", err)
	}
	if err := m.loadReceipts(view); err != nil {
		return nil, fmt.Errorf("load the count of receipts: %w", err)
	}
	roster, err := Roster(view)
	if err != nil {
		return nil, err
	}
	m.roster = roster.Version
	if m.features, err = Features(view); err != nil {
		return nil, err
	}
	if err := understood(m.features); err != nil {
		return nil, err
	}
	if m.outboxes, err = loadOutboxes(view, roster); err != nil {
		return nil, fmt.Errorf("load what was delivered: %w", err)
	}
	if err := m.moveRanks(view); err != nil {
		return nil, fmt.Errorf("move the ranks of an older binary: %w", err)
	}
	return m, nil
}

// Roster returns the roster of a group's state; the zero Roster where the group has none.
func Roster(view *state.View) (membership.Roster, error) {
	record, ok, err := view.Get(entity.RosterKey())
	var roster membership.Roster
	if err == nil && ok {
		roster, err = membership.DecodeRoster(record)
	}
	if err != nil {
		return membership.Roster{}, fmt.Errorf("load roster: %w", err)
	}
	return roster, nil
}

func (m *Machine) loadCollections(view *state.View) error {
	it := view.Iter(entity.CollectionBounds())
	for ok := it.First(); ok; ok = it.Next() {
		c, err := entity.DecodeCollection(entity.CollectionName(it.Key()), it.Value())
		if err != nil {
			return errors.Join(err, it.Close())
		}
		m.collections[c.Name] = &c
	}
	return it.Close()
}

func (m *Machine) loadReceipts(view *state.View) error {
	record, ok, err := view.Get(entity.ReceiptsKey())
	if err != nil || !ok {
		return err
	}
	m.receipts, err = entity.DecodeReceipts(record)
	return err
}

// Apply applies the entries of runs, which continue the position, in one batch, and fills in what
// became of them; a check ends a batch, so that it finds the digest of its own index. When Apply returns
// nil the store shows all of it (durable once the store is flushed).
//
// An entry that this binary does not understand ends it with a *command.UnknownKindError: what comes
// before that entry is committed, the entry and what follows has no effect. Any other error commits
// nothing more. Either way the Machine is done: every later call returns the error.
func (m *Machine) Apply(runs []*Run) error {
	if m.failed != nil {
		return m.failed
	}
	m.failed = m.apply(runs)
	return m.failed
}

func (m *Machine) apply(runs []*Run) error {
	for _, run := range runs {
		run.Outcomes = make([][]command.Outcome, 0, len(run.Entries))
	}
	for {
		more, err := m.batch(runs)
		if err != nil || !more {
			return err
		}
	}
}

// batch applies the entries of runs that have no outcome yet in one batch, up to the first check, whose
// digest is that of the whole batch. It reports whether there is more to apply.
func (m *Machine) batch(runs []*Run) (more bool, err error) {
	batch := m.store.NewBatch()
	defer batch.Close()
	t := txn{m: m, batch: batch, pos: m.pos}
	t.digest.begin(m.pos.Digest)
	stop := t.runs(runs)
	if _, unknown := errors.AsType[*command.UnknownKindError](stop); stop != nil && !unknown {
		return false, stop
	}
	if t.pos.Applied != m.pos.Applied {
		if err := t.commit(); err != nil {
			return false, fmt.Errorf("commit entries %d to %d: %w", m.pos.Applied.Index+1, t.pos.Applied.Index, err)
		}
	}
	m.pos = t.pos
	m.rows.evict()
	if t.check != nil {
		t.check.Digest = m.pos.Digest
	}
	return t.check != nil && stop == nil, stop
}

// txn is one call of Apply: what the batch will hold, and the position that goes with it.
type txn struct {
	m     *Machine
	batch *state.Batch
	pos   state.Position
	dirty []*cachedRow // in the order in which they were first changed

	// featured says that Machine.features changed.
	featured bool
	// roster is the record of the roster that the batch makes the one in force; nil: it stays.
	roster []byte
	// check is the check that ends the batch; nil: none was met.
	check *Check
	// schemas are the collections that were changed, in the order of their first change.
	schemas []*entity.Collection

	// digest is that of the state with what was put into batch so far.
	digest digested

	hardNegs overlay[string, hardNeg]    // by key in the store
	receipts overlay[[16]byte, *receipt] // by hash of the idempotency key

	delivered  overlay[ident.Incarnation, *entity.Delivered] // by origin; nil: it is dropped
	deliveries []Delivery                                    // of the entry at hand
	forgot     bool                                          // what is forgotten has changed

	// counted says that Machine.receipts changed. Receipts of periods before dropBefore go.
	counted    bool
	dropBefore uint32

	key, value []byte // scratch
}

func (t *txn) runs(runs []*Run) error {
	for _, run := range runs {
		for _, e := range run.Entries[len(run.Outcomes):] {
			if err := t.entry(run, e); err != nil {
				return fmt.Errorf("apply entry %d/%d: %w", e.GetTerm(), e.GetIndex(), err)
			}
			run.Deliveries = append(run.Deliveries, t.deliveries...)
			t.deliveries = t.deliveries[:0]
			if t.check != nil {
				return nil
			}
		}
	}
	return nil
}

func (t *txn) entry(run *Run, e *pb.Entry) (err error) {
	if e.GetIndex() != t.pos.Applied.Index+1 || e.GetTerm() < t.pos.Applied.Term {
		return fmt.Errorf("it does not follow entry %s", t.pos.Applied)
	}
	var outcomes []command.Outcome
	switch e.GetType() {
	case pb.EntryNormal:
		outcomes, err = t.normal(run, e)
	case pb.EntryConfChange, pb.EntryConfChangeV2:
		err = t.confChange(run, e)
	default:
		err = &command.UnknownKindError{What: "raft entry type", Number: uint64(e.GetType())}
	}
	if err != nil {
		return err
	}
	run.Outcomes = append(run.Outcomes, outcomes)
	t.pos.Applied = ident.EntryID{Term: e.GetTerm(), Index: e.GetIndex()}
	return nil
}

func (t *txn) normal(run *Run, e *pb.Entry) ([]command.Outcome, error) {
	entry, err := command.Decode(e.GetData())
	if err != nil {
		return nil, err
	}
	switch entry.Kind {
	case command.KindWrites:
		t.pos.Stamp = max(t.pos.Stamp, entry.Stamp)
		return t.writes(entry, ident.EntryID{Term: e.GetTerm(), Index: e.GetIndex()})
	case command.KindRoster:
		roster, err := membership.DecodeRoster(entry.Roster)
		if err != nil {
			return nil, err
		}
		if roster.Version != t.m.roster+1 {
			run.RostersRefused = append(run.RostersRefused, e.GetIndex())
			return nil, nil
		}
		t.setRoster(run, roster, entry.Roster)
	case command.KindFeature:
		return nil, t.feature(entry.Features)
	case command.KindCheck:
		t.check = &Check{ID: ident.EntryID{Term: e.GetTerm(), Index: e.GetIndex()}, Trusted: entry.Trusted, Conf: t.pos.Conf}
		run.Checks = append(run.Checks, t.check)
	}
	return nil, nil
}

// confChange computes the next configuration, and takes the roster that came along. Either both
// change or neither does.
func (t *txn) confChange(run *Run, e *pb.Entry) error {
	change, err := decodeConfChange(e)
	if err != nil {
		return err
	}
	var roster membership.Roster
	record := change.GetContext()
	if len(record) > 0 { // raft's own leave-joint entry has none
		if roster, err = membership.DecodeRoster(record); err != nil {
			return err
		}
	}
	conf := Conf{Index: e.GetIndex(), Change: change, State: t.pos.Conf}
	next, err := nextConf(t.pos.Conf, change)
	if err == nil && len(record) > 0 && roster.Version != t.m.roster+1 {
		err = fmt.Errorf("roster version %d does not follow %d", roster.Version, t.m.roster)
	}
	if err != nil {
		conf.Refused, conf.Detail = true, err.Error()
	} else {
		conf.State, t.pos.Conf = next, next
		if len(record) > 0 {
			t.setRoster(run, roster, record)
		}
	}
	run.Conf = append(run.Conf, conf)
	return nil
}

func decodeConfChange(e *pb.Entry) (*pb.ConfChangeV2, error) {
	if e.GetType() == pb.EntryConfChangeV2 {
		var cc pb.ConfChangeV2
		if err := proto.Unmarshal(e.GetData(), &cc); err != nil {
			return nil, fmt.Errorf("decode configuration change: %w", err)
		}
		return &cc, nil
	}
	var cc pb.ConfChange
	if err := proto.Unmarshal(e.GetData(), &cc); err != nil {
		return nil, fmt.Errorf("decode configuration change: %w", err)
	}
	return cc.AsV2(), nil
}

// setRoster makes r, whose record is given, the roster in force.
func (t *txn) setRoster(run *Run, r membership.Roster, record []byte) {
	t.roster = record
	t.m.roster = r.Version
	t.setOwners(r)
	run.Roster = &r
}
