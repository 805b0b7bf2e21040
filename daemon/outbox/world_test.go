package outbox_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/outbox"
	"github.com/tidaldb/tidal/daemon/query"
	"github.com/tidaldb/tidal/daemon/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fataler is what testing.T and rapid.T share.
type fataler interface {
	Fatalf(format string, args ...any)
}

const wall = 1_760_000_000_000

// items exist in every world.
var items = []string{"a", "b", "c"}

// world is a log and the members that apply it, each with an outbox of its own.
type world struct {
	t     fataler
	log   []*pb.Entry // from index 2 on
	sites []*site
	rng   *rand.ChaCha8
	clock time.Time

	taken map[outbox.ID]string      // every operation that was acknowledged, and its item
	hides map[string]entity.HardNeg // the last word about each item, of user u
}

// site is a member.
type site struct {
	w     *world
	name  string
	owner ident.Incarnation
	disk  *vfs.MemFS
	fs    vfs.FS // of the outbox
	box   *outbox.Box
	store *state.Store
	m     *apply.Machine
}

func newWorld(t fataler, members int) *world {
	w := &world{t: t, rng: rand.NewChaCha8([32]byte{}), clock: time.UnixMilli(wall),
		taken: map[outbox.ID]string{}, hides: map[string]entity.HardNeg{}}
	var roster membership.Roster
	for i := range members {
		roster.Members = append(roster.Members, membership.Member{
			ID: ident.MemberID(i + 1), Name: fmt.Sprintf("m%d", i+1), Incarnation: ident.Incarnation{byte(i + 1)}, Role: membership.RoleVoter,
		})
	}
	roster.Version, roster.NextID = 1, uint64(members)+1
	for _, m := range roster.Members {
		s := &site{w: w, name: m.Name, owner: m.Incarnation, disk: vfs.NewCrashableMem()}
		s.fs = s.disk
		o := state.Options{FS: vfs.NewMem(), Dir: "/state"}
		pos := state.Position{Applied: ident.EntryID{Term: 1, Index: 1}, Conf: &pb.ConfState{Voters: []uint64{1}}}
		if err := state.Create(o, pos, func(b *state.Batch) error { return apply.Birth(b, roster) }); err != nil {
			t.Fatalf("create: %v", err)
		}
		var err error
		if s.store, err = state.Open(o); err == nil {
			s.m, err = apply.New(s.store)
		}
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		s.open()
		w.sites = append(w.sites, s)
	}
	var docs []command.Record
	for _, id := range items {
		docs = append(docs, command.Item{ID: id, Attrs: []byte(`{}`)})
	}
	w.append(docs...)
	for _, s := range w.sites {
		s.apply(len(w.log))
	}
	return w
}

func (w *world) close() {
	for _, s := range w.sites {
		if err := s.box.Close(); err != nil {
			w.t.Fatalf("close: %v", err)
		}
		if err := s.store.Close(); err != nil {
			w.t.Fatalf("close: %v", err)
		}
	}
}

func one(r ...command.Record) []byte { return command.EncodeWrite(command.Write{Records: r}) }

// append puts a write into the log.
func (w *world) append(records ...command.Record) {
	w.clock = w.clock.Add(time.Millisecond)
	data := command.EncodeWrites(ident.MakeStamp(w.clock.UnixMilli()), [][]byte{one(records...)})
	w.log = append(w.log, &pb.Entry{Term: proto.Uint64(1), Index: proto.Uint64(uint64(len(w.log)) + 2), Type: pb.EntryNormal.Enum(), Data: data})
}

func (s *site) options() outbox.Options {
	return outbox.Options{FS: s.fs, Dir: "/data/outbox", Owner: s.owner, Rand: s.w.rng, Now: func() time.Time { return s.w.clock }}
}

// open opens the outbox and tells it what the state holds, as a boot does.
func (s *site) open() {
	var err error
	if s.box, err = outbox.Open(s.options()); err != nil {
		s.w.t.Fatalf("open: %v", err)
	}
	view := s.store.NewView()
	defer view.Close()
	all, err := apply.Delivered(view)
	if err != nil {
		s.w.t.Fatalf("delivered: %v", err)
	}
	for origin, d := range all {
		s.box.Delivered(origin, d)
	}
}

// restart is an end of the process, with or without a loss of power, and another start.
func (s *site) restart(power bool) {
	if power {
		s.disk = s.disk.CrashClone(vfs.CrashCloneCfg{})
		s.fs = s.disk
	}
	_ = s.box.Close()
	s.open()
}

// apply applies up to n further entries, and tells the outbox.
func (s *site) apply(n int) {
	from := int(s.store.Position().Applied.Index) - 1
	run := &apply.Run{Entries: s.w.log[from:min(len(s.w.log), from+n)]}
	if len(run.Entries) == 0 {
		return
	}
	if err := s.m.Apply([]*apply.Run{run}); err != nil {
		s.w.t.Fatalf("apply: %v", err)
	}
	for _, d := range run.Deliveries {
		if d.Refused == "" {
			s.box.Delivered(d.Origin, d.Delivered)
		} else if d.Refused != command.CodeOutboxGap {
			s.w.t.Fatalf("%s: delivery of %s refused: %s", s.name, d.Origin, d.Refused)
		}
	}
}

// take takes a signal.
func (s *site) take(item string) outbox.ID {
	s.w.clock = s.w.clock.Add(time.Millisecond)
	id, err := s.box.Take(one(command.Signal{Item: item, Type: "view", User: "u", Milli: 1000}), s.store.Position().Stamp)
	if err != nil {
		s.w.t.Fatalf("%s: take: %v", s.name, err)
	}
	s.w.taken[id] = item
	return id
}

// hide takes a hide or an unhide.
func (s *site) hide(item string, hide bool) {
	s.w.clock = s.w.clock.Add(time.Millisecond)
	id, err := s.box.Take(one(command.HardNeg{Item: item, User: "u", Hide: hide}), s.store.Position().Stamp)
	if err != nil {
		s.w.t.Fatalf("%s: hide: %v", s.name, err)
	}
	for _, run := range s.box.Snapshot() {
		if run.Origin == id.Origin && run.First <= id.Seq && id.Seq <= run.Last() {
			neg := entity.HardNeg{Hidden: hide, Stamp: run.Ops[id.Seq-run.First].Stamp, Origin: id.Origin, Seq: entity.OperationSeq(id.Seq) + 1}
			if before, ok := s.w.hides[item]; ok {
				neg = before.Merge(neg)
			}
			s.w.hides[item] = neg
		}
	}
}

// deliver hands what is due to the log.
func (s *site) deliver() int {
	runs := s.box.Due(func(outbox.Chain) bool { return true })
	for _, run := range runs {
		s.w.append(run)
	}
	return len(runs)
}

// exchange is a reconcile between two members.
func (s *site) exchange(o *site) (ops int) {
	mine, theirs := s.box.Snapshot(), o.box.Snapshot()
	there, err := o.box.Merge(mine, false)
	if err != nil {
		s.w.t.Fatalf("merge: %v", err)
	}
	here, err := s.box.Merge(theirs, false)
	if err != nil || len(here.Forked)+len(there.Forked) > 0 {
		s.w.t.Fatalf("merge: %v, forked %v %v", err, here.Forked, there.Forked)
	}
	return here.Ops + there.Ops
}

// knows lists the signals that a member must show of an item: those of its state and of its outbox.
func (s *site) knows(item string) uint64 {
	view := s.store.NewView()
	defer view.Close()
	delivered, err := apply.Delivered(view)
	if err != nil {
		s.w.t.Fatalf("delivered: %v", err)
	}
	n := uint64(0)
	for id, of := range s.w.taken {
		if of == item && (id.Seq <= delivered[id.Origin].Seq || s.holds(id)) {
			n++
		}
	}
	return n
}

func (s *site) holds(id outbox.ID) bool {
	return slices.ContainsFunc(s.box.Snapshot(), func(run command.Outbox) bool {
		return run.Origin == id.Origin && run.First <= id.Seq && id.Seq <= run.Last()
	})
}

// shows returns how many signals a member shows of an item.
func (s *site) shows(item string) uint64 {
	waiting := s.box.OfItem("default", item)
	view := s.store.NewView()
	defer view.Close()
	pending, err := waiting.Beyond(view)
	if err != nil {
		s.w.t.Fatalf("pending: %v", err)
	}
	got, ok, err := query.ItemWith(view, "default", item, wall, pending)
	if err != nil || !ok {
		s.w.t.Fatalf("item %s: %t, %v", item, ok, err)
	}
	return got.Signals[0].Count
}

// feed returns the feed of u, and the count in each place as its score has it.
func (s *site) feed() []string {
	waiting := s.box.OfFeed("default", "u")
	view := s.store.NewView()
	defer view.Close()
	pending, err := waiting.Beyond(view)
	if err != nil {
		s.w.t.Fatalf("pending: %v", err)
	}
	got, err := query.Feed(view, query.FeedRequest{Collection: "default", Limit: 10, Now: wall, User: "u", Pending: pending})
	if err != nil {
		s.w.t.Fatalf("feed: %v", err)
	}
	var ids []string
	for _, r := range got.Items {
		ids = append(ids, r.ID)
	}
	return ids
}
