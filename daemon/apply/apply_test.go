package apply

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/query"
	"github.com/tidaldb/tidal/daemon/state"
)

const now = 1_760_000_000_000

var stamp = ident.MakeStamp(now)

func genesis() membership.Genesis {
	var g membership.Genesis
	for id := ident.MemberID(1); id <= 3; id++ {
		g.Members = append(g.Members, membership.Member{
			ID: id, Name: fmt.Sprintf("m%d", id), Incarnation: ident.Incarnation{byte(id)}, Role: membership.RoleVoter,
		})
	}
	return g
}

// films is a second collection, with two types of signals.
func films() entity.Collection {
	c := entity.DefaultCollection()
	c.Name, c.ID = "films", 2
	c.Types = append(c.Types, entity.SignalType{Name: "like", Milli: 2500}, entity.SignalType{Name: "mute", Milli: 0})
	return c
}

// group is a store with the machine that applies to it.
type group struct {
	t     testing.TB
	opts  state.Options
	store *state.Store
	m     *Machine
}

// fataler is what testing.T and rapid.T share.
type fataler interface {
	Fatalf(format string, args ...any)
}

func newGroup(t testing.TB) *group {
	t.Helper()
	g := &group{t: t, opts: state.Options{FS: vfs.NewMem(), Dir: "/state"}}
	pos := state.Position{Applied: ident.EntryID{Term: 1, Index: 1}, Conf: genesis().ConfState()}
	err := state.Create(g.opts, pos, func(b *state.Batch) error {
		b.Set(entity.CollectionKey("films"), films().Encode())
		return Birth(b, genesis().Roster())
	})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	g.open()
	return g
}

func (g *group) open() {
	g.t.Helper()
	var err error
	if g.store, err = state.Open(g.opts); err != nil {
		g.t.Fatalf("open: %v", err)
	}
	if g.m, err = New(g.store); err != nil {
		g.t.Fatalf("new: %v", err)
	}
}

func (g *group) close() {
	g.t.Helper()
	if err := g.store.Close(); err != nil {
		g.t.Fatalf("close: %v", err)
	}
}

// next returns an entry that follows what is applied.
func (g *group) next(data []byte) *pb.Entry {
	return entry(g.store.Position().Applied.Index+1, data)
}

// write applies an entry of one write and returns its outcome.
func (g *group) write(records ...command.Record) command.Outcome {
	g.t.Helper()
	e := g.next(payload(command.Write{Records: records}))
	run := &Run{Entries: []*pb.Entry{e}}
	if err := g.m.Apply([]*Run{run}); err != nil {
		g.t.Fatalf("apply: %v", err)
	}
	return run.Outcomes[0][0]
}

func (g *group) item(collection, id string) (query.Details, bool) {
	g.t.Helper()
	view := g.store.NewView()
	defer view.Close()
	item, ok, err := query.Item(view, collection, id, now)
	if err != nil {
		g.t.Fatalf("item %q: %v", id, err)
	}
	return item, ok
}

// dump lists every pair of the store, and its position.
func dump(t fataler, s *state.Store) string {
	view := s.NewView()
	defer view.Close()
	var b strings.Builder
	it := view.Iter([]byte{0x01}, nil)
	for ok := it.First(); ok; ok = it.Next() {
		fmt.Fprintf(&b, "%x: %x\n", it.Key(), it.Value())
	}
	if err := it.Close(); err != nil {
		t.Fatalf("dump: %v", err)
	}
	pos := view.Position()
	fmt.Fprintf(&b, "%s %v %v %v %v %v\n", pos.Applied, pos.Conf.Voters, pos.Conf.Learners, pos.Conf.VotersOutgoing, pos.Conf.GetAutoLeave(), pos.Digest)
	return b.String()
}

// checks are those of a run, in words.
func checks(run *Run) []string {
	var all []string
	for _, c := range run.Checks {
		all = append(all, fmt.Sprintf("%s trusts %s, %v: %v", c.ID, c.Trusted, c.Conf.Voters, c.Digest))
	}
	return all
}

func entry(index uint64, data []byte) *pb.Entry {
	return &pb.Entry{Term: proto.Uint64(2), Index: &index, Type: pb.EntryNormal.Enum(), Data: data}
}

func payload(writes ...command.Write) []byte { return payloadAt(stamp, writes...) }

func payloadAt(stamp ident.Stamp, writes ...command.Write) []byte {
	var encoded [][]byte
	for _, w := range writes {
		encoded = append(encoded, command.EncodeWrite(w))
	}
	return command.EncodeWrites(stamp, encoded)
}

func view(item string) command.Signal {
	return command.Signal{Item: item, Type: "view", Milli: 1000}
}

func doc(id, attrs string) command.Item { return command.Item{ID: id, Attrs: []byte(attrs)} }

// drawLog returns entries 2 to n+1 of a log of few items, so that they meet often, with everything
// in it that an entry can be. Its time goes in steps of up to half a period of idempotency keys.
func drawLog(t *rapid.T) []*pb.Entry {
	write := rapid.Custom(func(t *rapid.T) command.Write {
		var w command.Write
		for range rapid.IntRange(1, 3).Draw(t, "records") {
			r := drawRecord(t)
			if key := drawKey(t); key != nil {
				r = command.Keyed{Key: *key, Record: r}
			}
			w.Records = append(w.Records, r)
		}
		w.Key = drawKey(t)
		return w
	})
	roster := genesis().Roster()
	at := int64(now)
	var log []*pb.Entry
	for i := range rapid.IntRange(1, 20).Draw(t, "entries") {
		e := entry(uint64(i)+2, nil)
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0: // raft's own
		case 1:
			roster.Version += uint64(rapid.IntRange(0, 2).Draw(t, "step")) / 2 // mostly stale
			e.Data = command.EncodeRoster(roster)
		case 2:
			e.Type, e.Data = pb.EntryConfChangeV2.Enum(), drawConfChange(t, roster)
		case 3:
			e.Data = command.EncodeCheck(ident.MemberID(rapid.IntRange(0, 1).Draw(t, "trusted")))
		default:
			at += rapid.Int64Range(0, 2).Draw(t, "step") * entity.KeyPeriod.Milliseconds() / 4
			e.Data = payloadAt(ident.MakeStamp(at), rapid.SliceOfN(write, 1, 4).Draw(t, "writes")...)
		}
		log = append(log, e)
	}
	return log
}

// drawKey returns one of a few keys with one of two bodies, mostly none.
func drawKey(t *rapid.T) *command.Key {
	if rapid.IntRange(0, 3).Draw(t, "keyed") > 0 {
		return nil
	}
	return &command.Key{
		Hash: [16]byte{rapid.ByteRange(0, 5).Draw(t, "key")},
		Body: [16]byte{rapid.ByteRange(0, 1).Draw(t, "body")},
	}
}

func drawRecord(t *rapid.T) command.Record {
	collection := rapid.SampledFrom([]string{"default", "films", "films", "nowhere", "new"}).Draw(t, "collection")
	id := rapid.SampledFrom([]string{"a", "b", "\x00", "d", "é", strings.Repeat("x", 256), ""}).Draw(t, "id")
	switch rapid.IntRange(0, 9).Draw(t, "record") {
	case 0, 1:
		attrs := rapid.SampledFrom([]string{`{}`, `{"g":1}`, `{"g":"x"}`, ``}).Draw(t, "attrs")
		return command.Item{Collection: collection, ID: id, Attrs: []byte(attrs)}
	case 2:
		n := rapid.SampledFrom([]int{8, 8, 8, 4, 3, 0}).Draw(t, "vector")
		return command.Embedding{Collection: collection, Item: id, Vector: []byte("12345678")[:n]}
	case 3:
		user := rapid.SampledFrom([]string{"u", "v", ""}).Draw(t, "user")
		return command.HardNeg{Collection: collection, Item: id, User: user, Hide: rapid.Bool().Draw(t, "hide")}
	case 4:
		return command.Delete{Collection: collection, ID: id}
	case 5:
		s := films().Schema
		s.HalfLife = rapid.SampledFrom([]time.Duration{s.HalfLife, s.HalfLife, time.Hour, 1}).Draw(t, "half-life")
		s.Types = s.Types[:rapid.IntRange(0, len(s.Types)).Draw(t, "types")]
		s.Dimension = rapid.IntRange(0, 2).Draw(t, "dimension")
		if rapid.Bool().Draw(t, "attributes") {
			s.Attributes = []entity.Attribute{{Name: "g", Type: entity.AttributeString}}
		}
		return command.Collection{Name: collection, Schema: s}
	}
	return command.Signal{
		Collection: collection,
		Item:       id,
		Type:       rapid.SampledFrom([]string{"view", "like", "mute", "?"}).Draw(t, "type"),
		Milli:      rapid.SampledFrom([]uint64{1000, 1, 999_999_999, 0}).Draw(t, "milli"),
		At:         rapid.SampledFrom([]int64{0, 0, 1, now - 1e9, now + 400}).Draw(t, "at"),
	}
}

func drawConfChange(t *rapid.T, roster membership.Roster) []byte {
	cc := &pb.ConfChangeV2{}
	for range rapid.IntRange(0, 2).Draw(t, "changes") {
		cc.Changes = append(cc.Changes, &pb.ConfChangeSingle{
			Type:   pb.ConfChangeType(rapid.IntRange(0, 3).Draw(t, "change")).Enum(),
			NodeId: proto.Uint64(rapid.Uint64Range(1, 5).Draw(t, "node")),
		})
	}
	if rapid.Bool().Draw(t, "context") {
		roster.Version++
		cc.Context = roster.Encode()
	}
	data, err := proto.Marshal(cc)
	if err != nil {
		t.Fatalf("marshal: %v", err)
	}
	return data
}

// The same log gives the same state and the same outcomes, however it is cut into runs and calls,
// whether rows are still in the cache or not, and across restarts.
func TestMachine_ApplyDoesNotDependOnCuts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		log := drawLog(rt)
		one, cut := newGroup(t), newGroup(t)
		defer one.close()
		defer func() { cut.close() }()
		var wantOutcomes, gotOutcomes [][]command.Outcome
		var wantConf, gotConf []Conf
		var wantChecks, gotChecks []string
		for _, e := range log {
			run := &Run{Entries: []*pb.Entry{e}}
			if err := one.m.Apply([]*Run{run}); err != nil {
				rt.Fatalf("apply: %v", err)
			}
			wantOutcomes, wantConf = append(wantOutcomes, run.Outcomes...), append(wantConf, run.Conf...)
			wantChecks = append(wantChecks, checks(run)...)
		}
		for rest := log; len(rest) > 0; {
			if rapid.IntRange(0, 9).Draw(rt, "restart") == 0 {
				cut.close()
				cut.open()
			}
			if rapid.Bool().Draw(rt, "small cache") {
				cut.m.rows.limit = 2 * rowOverhead
			}
			var runs []*Run
			for range rapid.IntRange(1, 3).Draw(rt, "runs") {
				n := rapid.IntRange(0, len(rest)).Draw(rt, "run")
				runs = append(runs, &Run{Entries: rest[:n]})
				rest = rest[n:]
			}
			if err := cut.m.Apply(runs); err != nil {
				rt.Fatalf("apply: %v", err)
			}
			for _, run := range runs {
				gotOutcomes, gotConf = append(gotOutcomes, run.Outcomes...), append(gotConf, run.Conf...)
				gotChecks = append(gotChecks, checks(run)...)
			}
		}
		if !reflect.DeepEqual(gotOutcomes, wantOutcomes) {
			rt.Fatalf("outcomes %+v, one by one %+v", gotOutcomes, wantOutcomes)
		}
		if !slices.Equal(gotChecks, wantChecks) {
			rt.Fatalf("checks %v, one by one %v", gotChecks, wantChecks)
		}
		if len(gotConf) != len(wantConf) {
			rt.Fatalf("%d conf changes, one by one %d", len(gotConf), len(wantConf))
		}
		for i := range gotConf {
			if g, w := gotConf[i], wantConf[i]; g.Refused != w.Refused || g.Detail != w.Detail || g.State.Equivalent(w.State) != nil {
				rt.Fatalf("conf change %+v, one by one %+v", g, w)
			}
		}
		if got, want := dump(rt, cut.store), dump(rt, one.store); got != want {
			rt.Fatalf("state\n%s\none by one\n%s", got, want)
		}
	})
}

func TestMachine_RefusesRecordByRecord(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	defer g.close()
	light, heavy, odd := view("a"), view("a"), view("a\xff")
	light.Milli, heavy.Milli = 0, entity.MaxMilli+1
	elsewhere, unknown := view("a"), view("a")
	elsewhere.Collection, unknown.Type = "nowhere", "like"
	got := g.write(view("a"), elsewhere, unknown, light, heavy, odd, view(""), doc("", `{}`), doc("b", `[]`),
		command.Item{Collection: "nowhere", ID: "b", Attrs: []byte(`{}`)}, view("a"))
	want := []command.Refusal{
		{Record: 1, Code: "unknown_collection", Detail: `there is no collection "nowhere"`},
		{Record: 2, Code: "unknown_signal", Detail: `collection "default" has no signal "like"`},
		{Record: 3, Code: "bad_request", Detail: "weight is 0/1000, want 1 to 1000000000"},
		{Record: 4, Code: "bad_request", Detail: "weight is 1000000001/1000, want 1 to 1000000000"},
		{Record: 5, Code: "bad_request", Detail: `item: id "a\xff" is not valid UTF-8`},
		{Record: 6, Code: "bad_request", Detail: "item: id is empty"},
		{Record: 7, Code: "bad_request", Detail: "item: id is empty"},
		{Record: 8, Code: "bad_request", Detail: "attributes are no JSON object"},
		{Record: 9, Code: "unknown_collection", Detail: `there is no collection "nowhere"`},
	}
	if !reflect.DeepEqual(got.Refused, want) || got.Created {
		t.Errorf("outcome %+v, want refused %+v", got, want)
	}
	if got := g.write(doc("a", `{}`)); !got.Created || got.Refused != nil {
		t.Errorf("outcome %+v, want created", got)
	}
	if item, ok := g.item("default", "a"); !ok || item.Signals[0].Count != 2 {
		t.Errorf("item %+v, %t, want 2 views: those that were not refused", item, ok)
	}
}

func TestMachine_ItemIsCreatedOnce(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	defer g.close()
	if _, ok := g.item("default", "a"); ok {
		t.Fatal("an item before it was written")
	}
	g.write(view("a"))
	if _, ok := g.item("default", "a"); ok {
		t.Fatal("a signal made an item")
	}
	if got := g.write(doc("a", `{"v":1}`), doc("a", `{"v":2}`)); !got.Created { // both in entry 3
		t.Errorf("first write: %+v", got)
	}
	g.close()
	g.open() // nothing is cached
	if got := g.write(doc("a", `{"v":3}`)); got.Created {
		t.Errorf("second write: %+v", got)
	}
	item, ok := g.item("default", "a")
	if !ok || item.Created != 3 || item.Version != 4 || string(item.Attrs) != `{"v":3}` || item.Signals[0].Count != 1 {
		t.Errorf("item %+v, %t", item, ok)
	}
}

// What a newer member wrote ends the applying before it has any effect, and what came before is kept.
func TestMachine_UnknownKindStopsAtIt(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	defer g.close()
	good := command.EncodeWrite(command.Write{Records: []command.Record{view("a")}})
	log := []*pb.Entry{
		entry(2, command.EncodeWrites(stamp, [][]byte{good})),
		entry(3, command.EncodeWrites(stamp, [][]byte{good, []byte("\x02\x00")})), // a write flag of the future
		entry(4, command.EncodeWrites(stamp, [][]byte{good})),
	}
	run := &Run{Entries: log}
	err := g.m.Apply([]*Run{run})
	unknown, ok := errors.AsType[*command.UnknownKindError](err)
	if !ok || unknown.What != "write flags" || unknown.Number != 2 {
		t.Fatalf("apply = %v", err)
	}
	if got := g.store.Position().Applied.Index; got != 2 {
		t.Errorf("applied %d, want 2", got)
	}
	if len(run.Outcomes) != 1 {
		t.Errorf("%d outcomes, want 1", len(run.Outcomes))
	}
	if again := g.m.Apply([]*Run{{Entries: log[1:]}}); again != err {
		t.Errorf("apply after the error = %v, want the same", again)
	}
	g.close()
	g.open()
	g.write(doc("a", `{}`))
	if item, _ := g.item("default", "a"); item.Signals[0].Count != 1 {
		t.Errorf("%d views, want that of entry 2", item.Signals[0].Count)
	}
}

func TestMachine_OtherErrorsCommitNothing(t *testing.T) {
	t.Parallel()
	good := payload(command.Write{Records: []command.Record{view("a")}})
	older := entry(3, good)
	older.Term = proto.Uint64(1)
	for _, tc := range []struct {
		name string
		bad  *pb.Entry
		want string
	}{
		{"malformed", entry(3, []byte{1, 1}), "apply entry 2/3: malformed writes payload: cut short: want 8 more bytes, have 0"},
		{"gap", entry(4, good), "apply entry 2/4: it does not follow entry 2/2"},
		{"repeated", entry(2, good), "apply entry 2/2: it does not follow entry 2/2"},
		{"term falls", older, "apply entry 1/3: it does not follow entry 2/2"},
		{"bad roster", entry(3, []byte{2, 1}), "apply entry 2/3: roster record: cut short: want 1 more bytes, have 0"},
	} {
		g := newGroup(t)
		err := g.m.Apply([]*Run{{Entries: []*pb.Entry{entry(2, good), tc.bad}}})
		if err == nil || err.Error() != tc.want {
			t.Errorf("%s: apply = %v, want %s", tc.name, err, tc.want)
		}
		if got := g.store.Position().Applied.Index; got != 1 {
			t.Errorf("%s: applied %d, want 1", tc.name, got)
		}
		g.close()
	}
}

// After an error the cache may hold what the store does not: the machine is done.
func TestMachine_ErrorOfTheStoreIsFinal(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	run := []*Run{{Entries: []*pb.Entry{g.next(payload(command.Write{Records: []command.Record{view("a")}}))}}}
	g.close()
	first := g.m.Apply(run)
	if !errors.Is(first, state.ErrClosed) {
		t.Fatalf("apply = %v, want %v", first, state.ErrClosed)
	}
	if again := g.m.Apply(nil); again != first {
		t.Errorf("apply after the error = %v, want the same", again)
	}
}

// The newest stamp stays known when entries without one follow, and when the store is opened again.
func TestMachine_KeepsTheNewestStamp(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	run := &Run{Entries: []*pb.Entry{entry(2, payloadAt(7<<16)), entry(3, payloadAt(9<<16)), entry(4, nil)}}
	if err := g.m.Apply([]*Run{run}); err != nil {
		t.Fatal(err)
	}
	g.close()
	g.open()
	defer g.close()
	if err := g.m.Apply([]*Run{{Entries: []*pb.Entry{entry(5, nil)}}}); err != nil {
		t.Fatal(err)
	}
	if pos := g.store.Position(); pos.Stamp != 9<<16 || pos.Applied.Index != 5 {
		t.Errorf("Position() = %+v, want stamp %s at 5", pos, ident.Stamp(9<<16))
	}
}

func TestMachine_RosterMustBeTheSuccessor(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	defer g.close()
	roster := genesis().Roster()
	roster.Version = 2
	run := &Run{Entries: []*pb.Entry{entry(2, command.EncodeRoster(roster)), entry(3, command.EncodeRoster(roster))}}
	if err := g.m.Apply([]*Run{run}); err != nil {
		t.Fatal(err)
	}
	if run.Roster == nil || run.Roster.Version != 2 || !slices.Equal(run.RostersRefused, []uint64{3}) {
		t.Errorf("run %+v, want version 2 once", run)
	}
	g.close()
	g.open()
	roster.Version = 3
	run = &Run{Entries: []*pb.Entry{entry(4, command.EncodeRoster(roster))}}
	if err := g.m.Apply([]*Run{run}); err != nil || run.Roster == nil {
		t.Errorf("version 3 after a restart: %+v, %v", run, err)
	}
	record, _, err := g.store.Get(entity.RosterKey())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := membership.DecodeRoster(record); err != nil || got.Version != 3 {
		t.Errorf("stored roster %+v, %v", got, err)
	}
}

// A feed after a random log is a full sort of what query.Item says of each item.
func TestMachine_FeedFollowsSignals(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	defer g.close()
	rng := rand.New(rand.NewPCG(1, 2))
	var records []command.Record
	for i := range 300 {
		records = append(records, doc(fmt.Sprintf("item-%03d", i), `{}`))
	}
	for range 2000 {
		s := view(fmt.Sprintf("item-%03d", rng.IntN(250))) // 50 get none
		s.At = now - rng.Int64N(1e10)
		records = append(records, s)
	}
	for part := range slices.Chunk(records, 100) {
		g.write(part...)
	}
	view := g.store.NewView()
	defer view.Close()
	ranking, err := query.Feed(view, query.FeedRequest{Collection: "default", Limit: 1000, Now: now})
	if err != nil || len(ranking.Items) != 300 {
		t.Fatalf("feed of %d, %v", len(ranking.Items), err)
	}
	feed := ranking.Items
	for i, r := range feed {
		item, _, err := query.Item(view, "default", r.ID, now)
		if err != nil || item.Score != r.Score {
			t.Fatalf("%q scores %g in the feed and %g alone (%v)", r.ID, r.Score, item.Score, err)
		}
		if i > 0 && (feed[i-1].Score < r.Score || feed[i-1].Score == r.Score && feed[i-1].ID > r.ID) {
			t.Fatalf("%+v is before %+v", feed[i-1], r)
		}
	}
}

// A store with the ranks of an older binary, or with some of each after a crash while they were moved, has
// its own after the opening, and its position is where it was.
func TestMachine_MovesTheRanksOfAnOlderBinary(t *testing.T) {
	t.Parallel()
	for _, left := range []int{0, 7} {
		g := newGroup(t)
		for i := range 20 {
			g.write(doc(fmt.Sprintf("item-%02d", i), `{}`), view(fmt.Sprintf("item-%02d", i%12)))
		}
		want, at := g.ranks(), g.store.Position()
		former, _ := entity.FormerRankBounds()
		b := g.store.NewBatch()
		b.DeleteRange([]byte(want[left]), []byte(want[len(want)-1]+"\xff"))
		b.Set(append(former, "\x00\x00\x00\x01\x7f\xff\xff\xff\xff\xff\x48\xcbitem-03"...), nil)
		if err := errors.Join(b.Commit(at), b.Close()); err != nil {
			t.Fatal(err)
		}
		g.close()
		g.open()
		if got := g.ranks(); !slices.Equal(got, want) {
			t.Errorf("ranks %q, want %q", got, want)
		}
		if got := g.store.Position(); !reflect.DeepEqual(got, at) {
			t.Errorf("the store stands at %+v, want %+v", got, at)
		}
		g.write(view("item-03"))
		if err := g.scrub(); err != nil {
			t.Error(err)
		}
		g.close()
	}
}

// ranks lists the keys of ranks, old and new.
func (g *group) ranks() (keys []string) {
	view := g.store.NewView()
	defer view.Close()
	former, end := entity.FormerRankBounds()
	lower, upper := entity.RankBounds(1)
	for _, bounds := range [][2][]byte{{former, end}, {lower, upper}} {
		it := view.Iter(bounds[0], bounds[1])
		for ok := it.First(); ok; ok = it.Next() {
			keys = append(keys, string(it.Key()))
		}
		if err := it.Close(); err != nil {
			g.t.Fatalf("read ranks: %v", err)
		}
	}
	return keys
}

func TestRowCache_KeepsWhatWasUsedSince(t *testing.T) {
	t.Parallel()
	c := newRowCache(3 * (rowOverhead + 1))
	use := func(id string) {
		if _, ok := c.get(rowKey{1, id}); !ok {
			c.add(newCachedRow(1, id))
		}
	}
	for _, id := range []string{"a", "b", "c", "a", "d", "e"} {
		use(id)
	}
	c.evict()
	for id, want := range map[string]bool{"a": true, "b": false, "c": false, "d": true, "e": true} {
		if _, ok := c.rows[rowKey{1, id}]; ok != want {
			t.Errorf("row %s cached: %t, want %t", id, ok, want)
		}
	}
	if c.bytes > c.limit {
		t.Errorf("%d bytes, limit %d", c.bytes, c.limit)
	}
}
