package apply

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
)

// model is what apply should do, in maps, entry by entry and with nothing kept at hand.
type model struct {
	collections    map[string]*entity.Collection
	rows           map[itemKey]*entity.Row
	items          map[itemKey]entity.Item
	embeddings     map[itemKey]entity.Embedding
	hides          map[string]entity.HardNeg // by key in the store
	receipts       map[[16]byte]receipt
	period         uint32
	maxKeys        int
	maxCollections int
}

type itemKey struct {
	c  entity.CollectionID
	id string
}

func newModel() *model {
	m := &model{
		collections: map[string]*entity.Collection{},
		rows:        map[itemKey]*entity.Row{}, items: map[itemKey]entity.Item{}, embeddings: map[itemKey]entity.Embedding{},
		hides: map[string]entity.HardNeg{}, receipts: map[[16]byte]receipt{},
	}
	for _, c := range []entity.Collection{entity.DefaultCollection(), films()} {
		m.collections[c.Name] = &c
	}
	return m
}

// at is the entry and the record that the model is at.
type at struct {
	id    ident.EntryID
	stamp ident.Stamp
	seq   uint64
}

func (m *model) apply(t fataler, e *pb.Entry) []command.Outcome {
	entry, err := command.Decode(e.GetData())
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	if entry.Kind != command.KindWrites {
		return nil
	}
	now := at{id: ident.EntryID{Term: e.GetTerm(), Index: e.GetIndex()}, stamp: entry.Stamp}
	m.period = max(m.period, entity.PeriodOf(entry.Stamp))
	maps.DeleteFunc(m.receipts, func(_ [16]byte, r receipt) bool { return r.period+1 < m.period })
	outcomes := []command.Outcome{}
	for records, ok := entry.Writes.Next(); ok; records, ok = entry.Writes.Next() {
		key, keyed := records.WriteKey()
		var out command.Outcome
		m.once(key, keyed, now, func(before *entity.Receipt, denied *command.Refusal) (bool, []command.Refusal) {
			switch {
			case denied != nil:
				out.Denied = denied
			case before != nil:
				out = command.Outcome{Refused: before.Refused, Created: before.Created, First: before.ID}
			default:
				out = m.write(records, &now)
			}
			return out.Created, out.Refused
		})
		outcomes = append(outcomes, out)
	}
	return outcomes
}

// once calls do with what is known of a key, and keeps what do returns when nothing was.
func (m *model) once(key command.Key, keyed bool, now at, do func(*entity.Receipt, *command.Refusal) (bool, []command.Refusal)) {
	before, ok := m.receipts[key.Hash]
	switch {
	case !keyed:
		do(nil, nil)
	case ok && before.Body != key.Body:
		do(nil, &command.Refusal{Code: "idempotency_mismatch"})
	case ok:
		do(&before.Receipt, nil)
	case len(m.receipts) >= m.maxKeys:
		do(nil, &command.Refusal{Code: "too_many_keys"})
	default:
		created, refused := do(nil, nil)
		m.receipts[key.Hash] = receipt{m.period, entity.Receipt{Body: key.Body, ID: now.id, Created: created, Refused: refused}}
	}
}

func (m *model) write(records command.Records, now *at) (out command.Outcome) {
	single := records.Len() == 1
	for n := 0; records.Next(); n++ {
		key, keyed := records.Key()
		r := records.Record()
		m.once(key, keyed, *now, func(before *entity.Receipt, denied *command.Refusal) (bool, []command.Refusal) {
			var created bool
			var code string
			switch {
			case denied != nil:
				code = denied.Code
			case before != nil:
				if created = before.Created; len(before.Refused) > 0 {
					code = before.Refused[0].Code
				}
				if single {
					out.First = before.ID
				}
			default:
				now.seq++
				created, code = m.record(r, *now)
				if c, ok := r.(command.Collection); ok && code == "" {
					out.Version = max(out.Version, m.collections[c.Name].Version)
				}
			}
			out.Created = out.Created || created
			if code == "" {
				return created, nil
			}
			out.Refused = append(out.Refused, command.Refusal{Record: n, Code: code})
			return created, []command.Refusal{{Code: code}}
		})
	}
	return out
}

func (m *model) row(k itemKey) *entity.Row {
	if m.rows[k] == nil {
		m.rows[k] = &entity.Row{}
	}
	return m.rows[k]
}

func (m *model) record(r command.Record, now at) (created bool, code string) {
	bad := func(ids ...string) bool {
		return slices.ContainsFunc(ids, func(id string) bool { return entity.CheckID(id) != nil })
	}
	known := func(name string) (entity.Collection, bool) {
		if c, ok := m.collections[name]; ok {
			return *c, true
		}
		return entity.Collection{}, false
	}
	switch r := r.(type) {
	case command.Signal:
		c, ok := known(r.Collection)
		typ, has := c.Type(r.Type)
		switch {
		case !ok:
			return false, "unknown_collection"
		case !has:
			return false, "unknown_signal"
		case bad(r.Item) || r.Milli == 0:
			return false, "bad_request"
		}
		ms := r.At
		if ms == 0 {
			ms = now.stamp.Millis()
		}
		m.row(itemKey{c.ID, r.Item}).Observe(typ, r.Milli, c.Mass(typ, r.Milli, ms))
		m.collections[r.Collection].InUse = true
	case command.Item:
		c, ok := known(r.Collection)
		switch {
		case !ok:
			return false, "unknown_collection"
		case bad(r.ID) || len(r.Attrs) == 0:
			return false, "bad_request"
		case c.CheckAttributes(r.Attrs) != nil:
			return false, "attribute_mismatch"
		}
		k, first := itemKey{c.ID, r.ID}, now.id.Index
		if old, ok := m.items[k]; ok {
			first = old.Created
		}
		created = !m.row(k).Exists
		m.items[k] = entity.Item{Version: now.id.Index, Created: first, Attrs: r.Attrs}
		m.row(k).Exists = true
		return created, ""
	case command.Embedding:
		c, ok := known(r.Collection)
		switch {
		case !ok:
			return false, "unknown_collection"
		case bad(r.Item) || len(r.Vector)%4 != 0 || len(r.Vector) == 0:
			return false, "bad_request"
		case c.Dimension != 0 && c.Dimension != len(r.Vector)/4:
			return false, "dimension_mismatch"
		}
		m.collections[r.Collection].Dimension = len(r.Vector) / 4
		m.embeddings[itemKey{c.ID, r.Item}] = entity.Embedding{Version: now.id.Index, Vector: r.Vector}
	case command.HardNeg:
		c, ok := known(r.Collection)
		switch {
		case !ok:
			return false, "unknown_collection"
		case bad(r.Item, r.User):
			return false, "bad_request"
		}
		k := string(entity.AppendHardNegKey(nil, c.ID, r.User, r.Item))
		m.hides[k] = m.hides[k].Merge(entity.HardNeg{Hidden: r.Hide, Stamp: now.stamp, Seq: now.seq})
	case command.Delete:
		c, ok := known(r.Collection)
		switch {
		case !ok:
			return false, "unknown_collection"
		case bad(r.ID):
			return false, "bad_request"
		}
		k := itemKey{c.ID, r.ID}
		delete(m.rows, k)
		delete(m.items, k)
		delete(m.embeddings, k)
	case command.Collection:
		c, ok := known(r.Name)
		switch {
		case bad(r.Name) || r.Schema.Validate() != nil:
			return false, "bad_request"
		case !ok && len(m.collections) >= m.maxCollections:
			return false, "too_many_collections"
		case !ok:
			c = entity.Collection{Name: r.Name}
		}
		changed, err := c.Declare(r.Schema)
		if _, used := errors.AsType[*entity.InUseError](err); used {
			return false, "schema_in_use"
		}
		if c.ID == 0 {
			c.ID = entity.CollectionID(len(m.collections) + 1)
		}
		if changed {
			c.Version = now.id.Index
		}
		m.collections[r.Name] = &c
		return !ok, ""
	}
	return false, ""
}

// dump lists the pairs that the store should have, but the roster.
func (m *model) dump() string {
	var all []string
	pair := func(key, value []byte) { all = append(all, fmt.Sprintf("%x: %x\n", key, value)) }
	for name, c := range m.collections {
		pair(entity.CollectionKey(name), c.Encode())
	}
	for k, r := range m.rows {
		pair(entity.AppendRowKey(nil, k.c, k.id), r.Append(nil))
		if r.Exists {
			pair(entity.AppendRankKey(nil, k.c, r.Rank(), k.id), nil)
		}
	}
	for k, i := range m.items {
		pair(entity.AppendItemKey(nil, k.c, k.id), i.Append(nil))
	}
	for k, e := range m.embeddings {
		pair(entity.AppendEmbeddingKey(nil, k.c, k.id), e.Append(nil))
	}
	for k, h := range m.hides {
		pair([]byte(k), h.Append(nil))
	}
	counts := entity.Receipts{Period: m.period}
	for hash, r := range m.receipts {
		if r.period == m.period {
			counts.Now++
		} else {
			counts.Earlier++
		}
		withoutDetails(r.Refused)
		pair(entity.AppendReceiptKey(nil, r.period, hash), r.Append(nil))
	}
	if m.period > 0 {
		pair(entity.ReceiptsKey(), counts.Encode())
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

// withoutDetails drops what is for people.
func withoutDetails(all []command.Refusal) {
	for i := range all {
		all[i].Detail = ""
	}
}

// What a random log makes of the state, and answers, is what the model says.
func TestMachine_ApplyMatchesModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		log := drawLog(rt)
		g, m := newGroup(t), newModel()
		defer g.close()
		g.m.MaxKeys, m.maxKeys = 3, 3
		g.m.MaxCollections, m.maxCollections = 3, 3
		run := &Run{Entries: log}
		if err := g.m.Apply([]*Run{run}); err != nil {
			rt.Fatalf("apply: %v", err)
		}
		for i, e := range log {
			if e.GetType() != pb.EntryNormal {
				continue
			}
			want := m.apply(rt, e)
			got := run.Outcomes[i]
			for n := range got {
				withoutDetails(got[n].Refused)
				if got[n].Denied != nil {
					got[n].Denied = &command.Refusal{Code: got[n].Denied.Code}
				}
			}
			if !reflect.DeepEqual(got, want) {
				rt.Fatalf("entry %d: outcomes %+v, model %+v", e.GetIndex(), got, want)
			}
		}
		var got strings.Builder
		for line := range strings.Lines(dump(rt, g.store)) {
			if line[0] == '0' && line[1] != '1' { // not the roster, nor the position
				got.WriteString(line)
			}
		}
		if want := m.dump(); bare(rt, got.String()) != bare(rt, want) {
			rt.Fatalf("state\n%s\nmodel\n%s", bare(rt, got.String()), bare(rt, want))
		}
	})
}

// bare is a dump in which receipts have no details.
func bare(t fataler, dump string) string {
	var b strings.Builder
	for line := range strings.Lines(dump) {
		if !strings.HasPrefix(line, "08") {
			b.WriteString(line)
			continue
		}
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		var record []byte
		if _, err := fmt.Sscanf(value, "%x", &record); err != nil {
			t.Fatalf("scan %q: %v", value, err)
		}
		r, err := entity.DecodeReceipt(record)
		if err != nil {
			t.Fatalf("receipt: %v", err)
		}
		withoutDetails(r.Refused)
		fmt.Fprintf(&b, "%s: %+v\n", key, r)
	}
	return b.String()
}

// A key makes a write happen once: across restarts, for two periods, whatever else is written.
func TestMachine_KeyedWriteHappensOnce(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	defer func() { g.close() }()
	write := func(stamp ident.Stamp, body byte, records ...command.Record) command.Outcome {
		t.Helper()
		w := command.Write{Key: &command.Key{Hash: [16]byte{1}, Body: [16]byte{body}}, Records: records}
		run := &Run{Entries: []*pb.Entry{g.next(payloadAt(stamp, w))}}
		if err := g.m.Apply([]*Run{run}); err != nil {
			t.Fatal(err)
		}
		return run.Outcomes[0][0]
	}
	strange := view("a")
	strange.Type = "?"
	first := write(stamp, 1, doc("a", `{}`), view("a"), strange)
	if !first.Created || len(first.Refused) != 1 || first.First != (ident.EntryID{}) {
		t.Fatalf("first: %+v", first)
	}
	g.close()
	g.open()
	later := stamp + ident.MakeStamp(entity.KeyPeriod.Milliseconds())
	again := write(later, 1, doc("a", `{}`), view("a"), strange)
	if want := (command.Outcome{Created: true, Refused: first.Refused, First: ident.EntryID{Term: 2, Index: 2}}); !reflect.DeepEqual(again, want) {
		t.Errorf("again: %+v, want %+v", again, want)
	}
	if other := write(later, 2, view("a")); other.Denied == nil || other.Denied.Code != "idempotency_mismatch" {
		t.Errorf("another body: %+v", other)
	}
	if item, _ := g.item("default", "a"); item.Signals[0].Count != 1 {
		t.Errorf("%d views, want 1", item.Signals[0].Count)
	}
	if late := write(later+ident.MakeStamp(entity.KeyPeriod.Milliseconds()), 1, view("a")); late.First.Index != 0 {
		t.Errorf("after two periods: %+v, want the key forgotten", late)
	}
	if item, _ := g.item("default", "a"); item.Signals[0].Count != 2 {
		t.Errorf("%d views, want 2", item.Signals[0].Count)
	}
}

func TestMachine_DeleteLeavesNothing(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	defer func() { g.close() }()
	vector := command.Embedding{Item: "a", Vector: []byte("12345678")}
	g.write(vector, view("b"), view("x"))
	g.write(command.Delete{ID: "a"}, command.Delete{ID: "b"}, command.Delete{ID: "x"})
	if left := tables(dump(t, g.store), "03", "04", "05", "06"); left != "" {
		t.Fatalf("left over:\n%s", left)
	}
	g.write(doc("a", `{"v":1}`), view("a"), vector)
	g.close()
	g.open() // nothing is cached
	g.write(command.Delete{ID: "a"})
	if left := tables(dump(t, g.store), "03", "04", "05", "06"); left != "" {
		t.Errorf("left over:\n%s", left)
	}
	if out := g.write(command.Delete{ID: "a"}, doc("a", `{"v":2}`)); !out.Created || out.Refused != nil {
		t.Errorf("made anew: %+v", out)
	}
	if item, ok := g.item("default", "a"); !ok || item.Created != 6 || item.Signals[0].Count != 0 {
		t.Errorf("made anew: %+v, %t", item, ok)
	}
}

// tables are the lines of a dump that belong to tables.
func tables(dump string, numbers ...string) string {
	var b strings.Builder
	for line := range strings.Lines(dump) {
		if slices.ContainsFunc(numbers, func(n string) bool { return strings.HasPrefix(line, n) }) {
			b.WriteString(line)
		}
	}
	return b.String()
}
