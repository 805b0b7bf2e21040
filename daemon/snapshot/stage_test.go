package snapshot

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	dto "github.com/prometheus/client_model/go"

	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/state"
)

// slow is a store whose checkpoints wait.
type slow struct {
	*state.Store
	begun, goOn chan struct{}
}

func (s *slow) Checkpoint(dir string, read func(*state.View) error) error {
	s.begun <- struct{}{}
	<-s.goOn
	return s.Store.Checkpoint(dir, read)
}

func artifacts(t *testing.T, m *disk) []string {
	t.Helper()
	names, err := m.fs.List(m.files.ArtifactsDir())
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// One artifact is staged at a time, and lent to everybody until its time is over; whoever comes while
// it is being staged asks again. Its files go with its last user.
func TestStager_SharesOneArtifact(t *testing.T) {
	m := member(t, vfs.NewMem(), 1, 20)
	store := &slow{Store: m.store, begun: make(chan struct{}), goOn: make(chan struct{})}
	c := &clock{now: time.Unix(1000, 0)}
	s := stager(t, m, func(o *StagerOptions) { o.Store, o.Now = store, c.Now })
	var first *Lease
	var wg sync.WaitGroup
	wg.Go(func() {
		var err error
		if first, err = s.Lend(2, 0); err != nil {
			t.Error(err)
		}
	})
	<-store.begun
	if _, err := s.Lend(3, 0); !errors.Is(err, ErrStaging) {
		t.Errorf("Lend while staging = %v, want ErrStaging", err)
	}
	close(store.goOn)
	wg.Wait()
	second, err := s.Lend(3, 20)
	if err != nil || second.ID() != first.ID() {
		t.Fatalf("a second consumer got %v, %v", second, err)
	}
	if _, err := s.Lend(4, 0); !errors.Is(err, ErrBusy) {
		t.Errorf("a third transfer = %v, want ErrBusy", err)
	}
	second.Close(true)
	c.now = c.now.Add(10 * time.Minute)
	s.Pinned(Following{})
	if got := artifacts(t, m); len(got) != 1 {
		t.Errorf("with a transfer under way after its time: %q", got)
	}
	first.Close(false)
	if got := artifacts(t, m); len(got) != 0 {
		t.Errorf("after the last transfer: %q", got)
	}
	s.Close()
	if _, err := s.Lend(2, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("Lend after Close = %v, want ErrClosed", err)
	}
}

// An artifact that does not reach what the consumer asks for is not lent, and staged anew as soon as
// state has come that far.
func TestStager_StagesAnewForABarrier(t *testing.T) {
	m := member(t, vfs.NewMem(), 1, 20)
	s := stager(t, m)
	old, err := s.Lend(2, 0)
	if err != nil {
		t.Fatal(err)
	}
	old.Close(true)
	if _, err := s.Lend(2, 21); !errors.As(err, new(*BehindError)) {
		t.Errorf("Lend = %v, want a *BehindError", err)
	}
	if err := errors.Join(m.append(2, 25, 25), m.applyTo(25)); err != nil {
		t.Fatal(err)
	}
	l, err := s.Lend(2, 21)
	if err != nil || l.ID() == old.ID() || l.a.index() != 25 {
		t.Fatalf("Lend = %v, %v, want a new artifact at 25", l, err)
	}
	l.Close(true)
}

// A staging that fails leaves nothing behind, and the store as it was.
func TestStager_DiscardsWhatFailed(t *testing.T) {
	broken := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.HasSuffix(op.Path, ".sst") && strings.Contains(op.Path, "artifacts") && op.Kind == errorfs.OpOpen {
			return errors.New("rot")
		}
		return nil
	})}
	m := member(t, errorfs.Wrap(vfs.NewMem(), broken), 1, 20)
	s := stager(t, m)
	broken.On()
	if _, err := s.Lend(2, 0); err == nil {
		t.Fatal("an artifact that cannot be read was staged")
	}
	broken.Off()
	if got, pinned := artifacts(t, m), s.Announce(); len(got) != 0 || pinned != 0 {
		t.Errorf("left behind: %q, and a pin at %d", got, pinned)
	}
	if _, err := m.store.Flush(); err != nil {
		t.Fatal(err)
	}
	l, err := s.Lend(2, 0)
	if err != nil {
		t.Fatal(err)
	}
	l.Close(true)
}

// A table that has rotted, in whatever block, is not shipped.
func TestStager_ShipsNoRot(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	m := member(t, mem, 1, 20)
	gen, _, err := m.files.Current()
	if err := errors.Join(err, m.store.Close()); err != nil {
		t.Fatal(err)
	}
	dir := m.files.StateDir(gen)
	if m.store, err = state.Open(state.Options{FS: mem, Dir: dir, Foreground: true}); err != nil { // its tables stay
		t.Fatal(err)
	}
	c := &clock{now: time.Unix(1000, 0)}
	s := stager(t, m, func(o *StagerOptions) { o.Now = c.Now })
	names, err := m.fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	// ships reports whether an artifact can be had that has the file of this name.
	ships := func(name string) (staged, has bool) {
		c.now = c.now.Add(time.Hour) // so that it is made anew
		l, err := s.Lend(2, 0)
		if err != nil {
			return false, false
		}
		defer l.Close(true)
		return true, slices.ContainsFunc(l.a.manifest.Files, func(f File) bool { return f.Name == name })
	}
	refused := 0
	for _, name := range names {
		if _, has := ships(name); !has || !strings.HasSuffix(name, state.TableSuffix) {
			continue // it is not needed any more
		}
		table, err := mem.UnsafeGetFileDataBuffer(m.fs.PathJoin(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(table); i += 31 {
			table[i] ^= 1
			if staged, has := ships(name); has {
				t.Errorf("%s was shipped with rot at offset %d of %d", name, i, len(table))
			} else if !staged {
				refused++
			}
			table[i] ^= 1
		}
	}
	if refused == 0 {
		t.Fatalf("there is no table among %q", names)
	}
	if staged, _ := ships(""); !staged {
		t.Error("a sound state was not shipped")
	}
}

// The segment that holds S+1 stays for as long as anybody may need it, and goes afterwards. One entry
// less would be lost data: a consumer of the artifact would find a hole.
func TestPinned_KeepsTheStraddlingSegment(t *testing.T) {
	for index := uint64(20); index < 60; index++ { // somewhere S is the last of its segment
		m := member(t, vfs.NewMem(), 1, index)
		c := &clock{now: time.Unix(1000, 0)}
		s := stager(t, m, func(o *StagerOptions) { o.Now = c.Now })
		l, err := s.Lend(2, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(m.append(2, 100, 100), m.applyTo(100)); err != nil {
			t.Fatal(err)
		}
		drop := func(f Following) {
			flushed, err := m.store.Flush()
			if err != nil {
				t.Fatal(err)
			}
			keep := Retention{First: m.log.FirstIndex(), Flushed: flushed, Size: m.log.KeepFrom(1), Pinned: s.Pinned(f)}.Keep()
			if err := m.log.DropHead(keep); err != nil {
				t.Fatal(err)
			}
		}
		serves := func(when string, want bool) {
			t.Helper()
			ents, err := m.log.Entries(index+1, index+2, 1)
			term, err2 := m.log.Term(index)
			if got := err == nil && err2 == nil && len(ents) == 1 && term == 2; got != want {
				t.Fatalf("S = %d, %s: the log, which begins at %d, serves S+1: %t, want %t", index, when, m.log.FirstIndex(), got, want)
			}
		}
		drop(Following{})
		serves("while it is being fetched", true)
		l.Close(true)
		c.now = c.now.Add(11 * time.Minute) // the artifact's time is over, its consumer's pin is not
		drop(Following{})
		serves("fetched, not streamed", true)
		drop(Following{Match: map[ident.MemberID]uint64{2: index - 1, 3: 100}})
		serves("not quite streamed", true)
		drop(Following{Match: map[ident.MemberID]uint64{2: index, 3: 100}})
		serves("streamed", m.log.FirstIndex() <= index+1)
		if m.log.FirstIndex() <= 60 {
			t.Fatalf("S = %d: the log still begins at %d when nobody needs it", index, m.log.FirstIndex())
		}
		s.Close()
		if err := m.close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A pin ends with its age and with the cap on the log, whatever its consumer does, and is counted.
func TestPinned_HasACap(t *testing.T) {
	m := member(t, vfs.NewMem(), 1, 20)
	c := &clock{now: time.Unix(1000, 0)}
	var ended []string
	s := stager(t, m, func(o *StagerOptions) {
		o.Now, o.TTL = c.Now, time.Hour
		o.PinEnded = func(consumer ident.MemberID, index uint64) { ended = append(ended, fmt.Sprint(consumer, index)) }
	})
	lend := func() {
		t.Helper()
		l, err := s.Lend(2, 0)
		if err != nil {
			t.Fatal(err)
		}
		l.Close(true)
	}
	lend()
	if got := s.Pinned(Following{Cap: 21}); got != 21 {
		t.Errorf("at the cap: pinned from %d, want 21", got)
	}
	if got := s.Pinned(Following{Cap: 22}); got != Unpinned || len(artifacts(t, m)) != 0 {
		t.Errorf("beyond the cap: pinned from %d, artifacts %q", got, artifacts(t, m))
	}
	lend()
	c.now = c.now.Add(30 * time.Minute)
	if got := s.Pinned(Following{}); got != Unpinned {
		t.Errorf("after its age: pinned from %d", got)
	}
	if want := []string{"2 21", "2 21"}; !slices.Equal(ended, want) {
		t.Errorf("told of the ends of %q, want %q", ended, want)
	}
	var hits dto.Metric
	if err := s.metrics.capHits.Write(&hits); err != nil || hits.GetCounter().GetValue() != 4 {
		t.Errorf("counted %v, %v, want 4: twice a consumer's, and twice that of the artifact on offer", hits.GetCounter(), err)
	}
}

// What the leader pins is kept by whoever follows, also when the leader is gone, until all others have
// come up to it.
func TestPinned_CarriesTheLeadersPin(t *testing.T) {
	m := member(t, vfs.NewMem(), 1, 20)
	c := &clock{now: time.Unix(1000, 0)}
	s := stager(t, m, func(o *StagerOptions) { o.Now = c.Now })
	s.Carry(15)
	c.now = c.now.Add(20 * time.Minute)
	if got := s.Pinned(Following{}); got != 15 || s.Announce() != 15 {
		t.Errorf("on a follower: pinned from %d, announced %d, want 15", got, s.Announce())
	}
	if got := s.Pinned(Following{Match: map[ident.MemberID]uint64{2: 30, 3: 0}}); got != 15 {
		t.Errorf("as the next leader, before all have come up: pinned from %d, want 15", got)
	}
	if got := s.Pinned(Following{Match: map[ident.MemberID]uint64{2: 30, 3: 14}}); got != Unpinned {
		t.Errorf("once all have: pinned from %d", got)
	}
	s.Carry(15)
	s.Carry(0)
	if got := s.Pinned(Following{}); got != Unpinned {
		t.Errorf("once the leader has let go: pinned from %d", got)
	}
	s.Carry(15)
	c.now = c.now.Add(30 * time.Minute)
	if got := s.Pinned(Following{}); got != Unpinned {
		t.Errorf("once nothing was heard for its age: pinned from %d", got)
	}
	s.Carry(15)
	for range 3 { // the leader, whose log is shorter, says so with every ping
		if got := s.Pinned(Following{Cap: 20}); got != Unpinned {
			t.Errorf("beyond the cap: pinned from %d", got)
		}
		s.Carry(15)
	}
	if got := s.Announce(); got != 0 {
		t.Errorf("what the cap has ended is carried again from %d", got)
	}
	if s.Carry(21); s.Announce() != 21 {
		t.Errorf("a newer one is carried from %d, want 21", s.Announce())
	}
}

func TestRetention(t *testing.T) {
	for _, c := range []struct {
		name string
		r    Retention
		want uint64
	}{
		{"by size", Retention{First: 10, Flushed: 900, Size: 500, Pinned: Unpinned}, 500},
		{"not beyond what is flushed", Retention{First: 10, Flushed: 300, Size: 500, Pinned: Unpinned}, 301},
		{"not beyond a pin", Retention{First: 10, Flushed: 900, Size: 500, Pinned: 200}, 200},
		{"a pin beyond the size", Retention{First: 10, Flushed: 900, Size: 500, Pinned: 700}, 500},
		{"not beyond a live follower", Retention{First: 10, Flushed: 900, Size: 500, Pinned: Unpinned, Live: []uint64{800, 250}}, 251},
		{"one that is behind the head", Retention{First: 10, Flushed: 900, Size: 500, Pinned: Unpinned, Live: []uint64{3, 800}}, 500},
		{"one that is just behind the head", Retention{First: 10, Flushed: 900, Size: 500, Pinned: Unpinned, Live: []uint64{9}}, 10},
		{"the cap on others", Retention{First: 10, Flushed: 900, Size: 500, Cap: 400, Pinned: 200, Live: []uint64{100}}, 400},
		{"the cap is none on what is flushed", Retention{First: 10, Flushed: 300, Size: 500, Cap: 400, Pinned: 200}, 301},
	} {
		if got := c.r.Keep(); got != c.want {
			t.Errorf("%s: keep from %d, want %d", c.name, got, c.want)
		}
	}
}

func TestThrottle(t *testing.T) {
	th := throttle{most: 1 << 20}
	start := time.Now()
	for range 4 {
		if err := th.send(t.Context(), t.Context(), 32<<10); err != nil {
			t.Fatal(err)
		}
	}
	if took, least := time.Since(start), 3*(time.Second/32); took < least {
		t.Errorf("4 times 32 KiB at 1 MiB/s took %s, want at least %s", took, least)
	}
}

// An artifact says what its log has made use of.
func TestStage_NamesFeatures(t *testing.T) {
	m := member(t, vfs.NewMem(), 1, 20)
	features := func() ident.Capabilities {
		t.Helper()
		s := stager(t, m)
		defer s.Close()
		l, err := s.Lend(2, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close(true)
		got, err := DecodeManifest(l.Manifest())
		if err != nil {
			t.Fatal(err)
		}
		return got.Features
	}
	if got := features(); got != 0 {
		t.Errorf("features of a fresh log: %s", got)
	}
	b := m.store.NewBatch()
	b.Set(entity.FeaturesKey(), entity.EncodeFeatures(ident.CapBase))
	if err := errors.Join(b.Commit(m.store.Position()), b.Close()); err != nil {
		t.Fatal(err)
	}
	if got := features(); got != ident.CapBase {
		t.Errorf("features = %s, want %s", got, ident.CapBase)
	}
}
