package member

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/snapshot"
	"github.com/tidaldb/tidal/daemon/state"
)

// silence is a network with nobody in it.
type silence struct{ Network }

func (silence) Send(ident.GroupID, []*pb.Message)           {}
func (silence) SetPeers([]peer.Peer)                        {}
func (silence) Opened(ident.MemberID, []peer.GroupPosition) {}
func (silence) Report()                                     {}

// lone is a member that is alone, driven by its test.
type lone struct {
	*Member
	t   *testing.T
	fs  vfs.FS
	dir *datadir.Dir
}

func newLone(t *testing.T) *lone {
	l := &lone{t: t, fs: vfs.NewMem()}
	l.start()
	t.Cleanup(l.stop)
	if serves, err := l.Seek(); !serves || err != nil {
		t.Fatalf("serves %t, %v", serves, err)
	}
	return l
}

func (l *lone) start() {
	l.t.Helper()
	dir, err := datadir.Open(datadir.Options{Path: "/data", FS: l.fs, Name: "a", FileID: func(string) (datadir.FileID, error) { return datadir.FileID{Inode: 1}, nil }})
	if err != nil {
		l.t.Fatal(err)
	}
	l.dir = dir
	l.Member = New(Options{
		Dir: dir, DataDir: "/data", FS: l.fs, Name: "a", GRPCAddr: "a:1", HTTPAddr: "a:2",
		Declared: []membership.Declared{{Name: "a", GRPCAddr: "a:1", HTTPAddr: "a:2"}},
		Tick:     time.Millisecond, HeartbeatTicks: 1, ElectionTicks: 10, SegmentBytes: 1 << 16,
		Foreground: true, Now: time.Now, Metrics: prometheus.NewRegistry(),
	})
	if err := l.Drive(silence{}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lone) stop() {
	if err := errors.Join(l.Stop(), l.dir.Close()); err != nil {
		l.t.Error(err)
	}
}

func (l *lone) restart() {
	l.t.Helper()
	l.stop()
	l.start()
}

// write writes one item and waits until it is acknowledged.
func (l *lone) write(id string) {
	l.t.Helper()
	r, err := l.Replica(0)
	if err != nil {
		l.t.Fatal(err)
	}
	d := r.Drive()
	turn := func() {
		d.Tick()
		for len(d.TakeAppends()) > 0 {
			err = errors.Join(err, d.Append())
			d.Turn()
		}
		for len(d.TakeApplies()) > 0 {
			err = errors.Join(err, d.Apply())
			d.Turn()
		}
	}
	for r.Status().Leader == 0 {
		turn()
	}
	data := command.EncodeWrite(command.Write{Records: []command.Record{command.Item{ID: id, Attrs: []byte(`{}`)}}})
	c, failed := d.Write(data, consensus.AckQuorum)
	if failed != nil {
		l.t.Fatal(failed)
	}
	for done := false; !done && err == nil; {
		turn()
		var e error
		if _, done, e = c.Done(); e != nil {
			l.t.Fatal(e)
		}
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// set writes a pair into the state behind everybody's back.
func set(t *testing.T, s *state.Store, key, value string) {
	t.Helper()
	b := s.NewBatch()
	b.Set([]byte(key), []byte(value))
	if err := errors.Join(b.Commit(s.Position()), b.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Flush(); err != nil {
		t.Fatal(err)
	}
}

func (l *lone) quarantined() Cause {
	_, err := l.Replica(0)
	if q, ok := errors.AsType[*QuarantinedError](err); ok {
		return q.Quarantine.Cause
	}
	return ""
}

func (l *lone) quarantineGauge(c Cause) float64 {
	l.t.Helper()
	var m dto.Metric
	if err := l.metrics.quarantined.WithLabelValues("0", string(c)).Write(&m); err != nil {
		l.t.Fatal(err)
	}
	return m.GetGauge().GetValue()
}

// Rot that a scrub finds puts a replica into quarantine, in which it still votes, and a start does not
// forget it: only sound data ends it.
func TestScrub_FindsRot(t *testing.T) {
	t.Parallel()
	l := newLone(t)
	l.write("i")
	l.ScrubNow(0)
	if c, s := l.quarantined(), l.Status().Groups[0].Scrub; c != "" || s.Index == 0 || s.Bytes == 0 {
		t.Fatalf("quarantine %q after the scrub %+v of a sound state", c, s)
	}
	store := l.current(0).store
	key := string(entity.AppendItemKey(nil, 1, "i"))
	sound, ok, err := store.Get([]byte(key))
	if err != nil || !ok {
		t.Fatalf("the item is not there: %v", err)
	}
	was := string(sound)
	set(t, store, key, was+" ")
	l.ScrubNow(0)
	for _, when := range []string{"after the scrub", "after a start"} {
		if c := l.quarantined(); c != CauseStateError {
			t.Fatalf("%s: quarantine %q, want %q", when, c, CauseStateError)
		}
		if l.Taking(0) == nil {
			t.Errorf("%s: it does not vote any more", when)
		}
		gauge := l.quarantineGauge(CauseStateError)
		if g := l.Status().Groups[0]; gauge != 1 || g.Quarantine == nil || !strings.Contains(g.Quarantine.Detail, "items") {
			t.Errorf("%s: gauge %g, %+v", when, gauge, g.Quarantine)
		}
		l.Keep() // latches a reseed, which nobody can carry out
		if g := l.Status().Groups[0]; g.Reseed == nil || g.Reseed.Reason != string(CauseStateError) {
			t.Fatalf("%s: reseed %+v", when, g.Reseed)
		}
		if when == "after the scrub" {
			l.restart()
		}
	}
	set(t, l.current(0).store, key, was)
	l.restart()
	l.Keep()
	if c, g := l.quarantined(), l.Status().Groups[0]; c != "" || g.Reseed != nil || l.quarantineGauge(CauseStateError) != 0 {
		t.Errorf("with sound data again: quarantine %q, reseed %+v", c, g.Reseed)
	}
	l.write("j")
}

// What arrived is judged by its pairs, not by the digest that came with them.
func TestProveArtifact_MakesTheDigestAnew(t *testing.T) {
	t.Parallel()
	l := newLone(t)
	l.write("i")
	store := l.current(0).store
	m := &snapshot.Manifest{Position: store.Position()}
	copied := func(name string) string {
		dir := l.fs.PathJoin("/copies", name)
		err := l.fs.MkdirAll("/copies", 0o700)
		if err := errors.Join(err, store.Checkpoint(dir, func(*state.View) error { return nil })); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	if err := l.proveArtifact(copied("sound"), m); err != nil {
		t.Fatalf("a sound state: %v", err)
	}
	set(t, store, string(entity.AppendItemKey(nil, 1, "i")), "x")
	if err := l.proveArtifact(copied("other"), m); err == nil {
		t.Error("a state with another pair is as good as its digest says")
	}
	if err := prove(store); err == nil {
		t.Error("prove: it is sound")
	} else if _, ok := errors.AsType[*apply.MismatchError](err); !ok {
		t.Errorf("prove: %v, want a *MismatchError", err)
	}
}

// flipped turns a bit of a file around for as long as do runs.
func (l *lone) flipped(name string, offset int, do func()) {
	l.t.Helper()
	flip := func() { // whoever appends to a file may move what is in it
		b, err := l.fs.(*vfs.MemFS).UnsafeGetFileDataBuffer(name)
		if err != nil {
			l.t.Fatal(err)
		}
		b[offset] ^= 1 << (offset % 8)
	}
	flip()
	do()
	flip()
}

// files returns the files in dir and their sizes.
func (l *lone) files(dir string) map[string]int {
	l.t.Helper()
	names, err := l.fs.List(dir)
	if err != nil {
		l.t.Fatal(err)
	}
	sizes := map[string]int{}
	for _, name := range names {
		info, err := l.fs.Stat(l.fs.PathJoin(dir, name))
		if err != nil {
			l.t.Fatal(err)
		}
		if !info.IsDir() {
			sizes[name] = int(info.Size())
		}
	}
	return sizes
}

// An artifact that has rotted anywhere in a table is refused, and one that has rotted elsewhere is refused
// where that would matter: what was proved opens, and is what was promised.
func TestProveArtifact_FindsRotInAnyFile(t *testing.T) {
	t.Parallel()
	l := newLone(t)
	store := l.current(0).store
	for _, id := range []string{"i", "j", "k"} {
		l.write(id)
		if _, err := store.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	m := &snapshot.Manifest{Position: store.Position()}
	const dir = "/copies/1"
	err := l.fs.MkdirAll("/copies", 0o700)
	if err := errors.Join(err, store.Checkpoint(dir, func(*state.View) error { return nil })); err != nil {
		t.Fatal(err)
	}
	if err := l.proveArtifact(dir, m); err != nil {
		t.Fatalf("a sound state: %v", err)
	}
	opens := func() error {
		const copied = "/copies/opened"
		if err := errors.Join(l.fs.RemoveAll(copied), l.fs.MkdirAll(copied, 0o700)); err != nil {
			return err
		}
		for name := range l.files(dir) {
			if err := vfs.Copy(l.fs, l.fs.PathJoin(dir, name), l.fs.PathJoin(copied, name)); err != nil {
				return err
			}
		}
		s, err := state.Open(state.Options{FS: l.fs, Dir: copied, Foreground: true})
		if err != nil {
			return err
		}
		return errors.Join(m.Promises(s.Position()), prove(s), s.Close())
	}
	tables := 0
	for name, size := range l.files(dir) {
		table := strings.HasSuffix(name, state.TableSuffix)
		if table {
			tables++
		}
		refused := 0
		for i := 0; i < size; i += 5 {
			l.flipped(l.fs.PathJoin(dir, name), i, func() {
				if l.proveArtifact(dir, m) != nil {
					refused++
				} else if table {
					t.Errorf("%s with rot at offset %d of %d: it is sound", name, i, size)
				} else if err := opens(); err != nil {
					t.Errorf("%s with rot at offset %d of %d: it was proved, and then: %v", name, i, size, err)
				}
			})
		}
		t.Logf("%s: of %d bytes, every fifth flipped, %d refused", name, size, refused)
	}
	if tables == 0 {
		t.Error("there is no table in it")
	}
}

// What a live store copies of its own that has rotted is no copy, or one without the rot.
func TestCheckpoint_CopiesNoRot(t *testing.T) {
	t.Parallel()
	l := newLone(t)
	store := l.current(0).store
	for _, id := range []string{"i", "j"} {
		l.write(id)
		if _, err := store.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	gen, _, err := l.dir.Group(0).Current()
	if err := errors.Join(err, l.fs.MkdirAll("/copies", 0o700)); err != nil {
		t.Fatal(err)
	}
	m := &snapshot.Manifest{Position: store.Position()}
	dir := l.dir.Group(0).StateDir(gen)
	var manifest string
	for name := range l.files(dir) {
		if _, named, ok := strings.Cut(name, ".MANIFEST-"); ok {
			manifest = "MANIFEST-" + named
		}
	}
	for name, size := range l.files(dir) {
		refused := 0
		for i := 0; i < size; i += 1 + size/20 {
			l.flipped(l.fs.PathJoin(dir, name), i, func() {
				const copied = "/copies/1"
				if err := l.fs.RemoveAll(copied); err != nil {
					t.Fatal(err)
				}
				err := store.Checkpoint(copied, func(*state.View) error { return nil })
				if err == nil {
					err = l.proveArtifact(copied, m)
				}
				if err != nil {
					refused++
				} else if name == manifest || strings.HasSuffix(name, state.TableSuffix) {
					t.Errorf("%s with rot at offset %d of %d: there is a copy of it, and it is sound", name, i, size)
				}
			})
		}
		t.Logf("%s: of %d bytes some flipped, %d refused", name, size, refused)
		if err := l.fs.RemoveAll("/copies/1"); err != nil {
			t.Fatal(err)
		}
		if err := store.Checkpoint("/copies/1", func(*state.View) error { return nil }); err != nil {
			t.Fatalf("%s is sound again: %v", name, err)
		}
	}
}

// A scrub reads what no reader of pairs reads, and past the caches.
func TestScrub_ReadsEveryBlock(t *testing.T) {
	t.Parallel()
	l := newLone(t)
	l.write("i")
	store := l.current(0).store
	if _, err := store.Flush(); err != nil {
		t.Fatal(err)
	}
	gen, _, err := l.dir.Group(0).Current()
	if err != nil {
		t.Fatal(err)
	}
	dir := l.dir.Group(0).StateDir(gen)
	var tables []string
	view := store.NewView()
	for name, size := range l.files(dir) {
		if !strings.HasSuffix(name, state.TableSuffix) {
			continue
		}
		tables = append(tables, l.fs.PathJoin(dir, name))
		for i := 0; i < size; i += 31 {
			l.flipped(l.fs.PathJoin(dir, name), i, func() {
				if err := view.VerifyTables(nil); err == nil {
					t.Errorf("%s with rot at offset %d of %d: it is sound", name, i, size)
				}
			})
		}
	}
	if err := view.Close(); err != nil || len(tables) == 0 {
		t.Fatalf("tables %q, %v", tables, err)
	}
	l.ScrubNow(0)
	if c := l.quarantined(); c != "" {
		t.Fatalf("quarantine %q of a sound state", c)
	}
	l.flipped(tables[0], 0, func() { l.ScrubNow(0) }) // of what is in the cache by now
	if c := l.quarantined(); c != CauseStateError {
		t.Errorf("quarantine %q of a state with rot under the cache, want %q", c, CauseStateError)
	}
}

// A pace holds up whoever reads faster than it allows, and lets go at the end.
func TestPace(t *testing.T) {
	t.Parallel()
	p := newPace(10 << 20)
	start := time.Now()
	for range 16 {
		if err := p.wait(t.Context(), paceStep); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took < 80*time.Millisecond {
		t.Errorf("1 MiB at 10 MiB a second took %s", took)
	}
	if err := newPace(-1).wait(t.Context(), 1<<40); err != nil {
		t.Errorf("without a limit: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newPace(1).wait(ctx, 1<<30); !errors.Is(err, context.Canceled) {
		t.Errorf("at the end: %v", err)
	}
}

// Members that start together begin their first passes one after the other, where the passes leave room for it.
func TestScrub_First(t *testing.T) {
	day := Scrub{Every: 24 * time.Hour, After: time.Minute}
	for _, c := range []struct {
		scrub      Scrub
		nth, count int
		want       time.Duration
	}{
		{day, 0, 0, time.Minute},
		{day, 0, 1, time.Minute},
		{day, 0, 3, time.Minute},
		{day, 2, 3, 21 * time.Minute},
		{Scrub{Every: 3 * time.Second, After: 3 * time.Second}, 2, 3, 5 * time.Second},
		{Scrub{Every: time.Hour, After: time.Minute}, 6, 7, time.Minute + 6*time.Hour/7},
	} {
		if got := c.scrub.first(c.nth, c.count); got.Round(time.Second) != c.want.Round(time.Second) {
			t.Errorf("%+v: the first pass of member %d of %d after %s, want %s", c.scrub, c.nth, c.count, got, c.want)
		}
	}
}
