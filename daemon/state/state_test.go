package state_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/durable/durabletest"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const dir = "/groups/0/state-000001"

func at(index uint64) state.Position {
	return state.Position{Applied: ident.EntryID{Term: 1, Index: index}, Conf: &pb.ConfState{Voters: []uint64{1, 2, 3}}}
}

// key is what entry index writes, beside the counter that every entry overwrites.
func key(index uint64) []byte { return binary.BigEndian.AppendUint64([]byte{1}, index) }

var counter = []byte{2}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func apply(b *state.Batch, index uint64) {
	b.Set(key(index), number(index))
	b.Set(counter, number(index))
	if index > 2 {
		b.Delete(key(index - 2))
	}
}

func create(fs vfs.FS) error {
	return state.Create(state.Options{FS: fs, Dir: dir}, at(1), func(b *state.Batch) error {
		apply(b, 1)
		return nil
	})
}

func commit(s *state.Store, index uint64) error {
	b := s.NewBatch()
	apply(b, index)
	return errors.Join(b.Commit(at(index)), b.Close())
}

func mustOpen(t *testing.T, fs vfs.FS) *state.Store {
	t.Helper()
	s, err := state.Open(state.Options{FS: fs, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustCreate(t *testing.T, fs vfs.FS) *state.Store {
	t.Helper()
	if err := create(fs); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, fs)
	t.Cleanup(func() { _ = s.Close() }) // a test may have closed it
	return s
}

// verify reports whether the view holds exactly what the entries up to its position left.
func verify(v *state.View) error {
	index := v.Position().Applied.Index
	if got, ok, err := v.Get(counter); err != nil || !ok || !bytes.Equal(got, number(index)) {
		return fmt.Errorf("at %d the counter is %x, %t, %v", index, got, ok, err)
	}
	it := v.Iter([]byte{1}, []byte{2})
	var keys [][]byte
	for ok := it.First(); ok; ok = it.Next() {
		keys = append(keys, bytes.Clone(it.Key()))
		if !bytes.Equal(it.Key()[1:], it.Value()) {
			return fmt.Errorf("at %d, under %x is %x", index, it.Key(), it.Value())
		}
	}
	want := [][]byte{key(index)}
	if index > 1 {
		want = [][]byte{key(index - 1), key(index)}
	}
	if err := it.Close(); err != nil || !bytes.Equal(bytes.Join(keys, nil), bytes.Join(want, nil)) {
		return fmt.Errorf("at %d the keys are %x, want %x, %v", index, keys, want, err)
	}
	return nil
}

// A disk may take seconds for the tables of a flush; what arrives meanwhile is committed.
func TestFlush_LetsCommitsGoOn(t *testing.T) {
	t.Parallel()
	var hold atomic.Bool
	reached, release := make(chan struct{}, 1), make(chan struct{})
	s := mustCreate(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") && hold.CompareAndSwap(true, false) {
			reached <- struct{}{}
			<-release
		}
		return nil
	})))
	if err := commit(s, 2); err != nil {
		t.Fatal(err)
	}
	hold.Store(true)
	flushed := make(chan error, 1)
	go func() {
		_, err := s.Flush()
		flushed <- err
	}()
	<-reached
	for index := uint64(3); index < 6; index++ {
		if err := commit(s, index); err != nil {
			t.Fatal(err)
		}
	}
	close(release)
	if err := <-flushed; err != nil {
		t.Fatal(err)
	}
	if got := s.FlushedIndex(); got != 2 {
		t.Errorf("flushed to %d, want 2: what came later was not in it", got)
	}
}

func TestView_IsOneMoment(t *testing.T) {
	t.Parallel()
	s := mustCreate(t, vfs.NewMem())
	var views []*state.View
	for index := uint64(2); index < 6; index++ {
		if err := commit(s, index); err != nil {
			t.Fatal(err)
		}
		views = append(views, s.NewView())
	}
	for i, v := range views {
		if got, want := v.Position().Applied.Index, uint64(i+2); got != want {
			t.Errorf("Position = %d, want %d", got, want)
		}
		if err := errors.Join(verify(v), v.Close(), v.Close()); err != nil {
			t.Error(err)
		}
		if _, _, err := v.Get(counter); !errors.Is(err, state.ErrClosed) {
			t.Errorf("Get after Close = %v, want ErrClosed", err)
		}
	}
}

func TestIter_MovesBothWaysWithinItsBounds(t *testing.T) {
	t.Parallel()
	s := mustCreate(t, vfs.NewMem())
	b := s.NewBatch()
	for _, k := range []byte{0, 1, 2, 3, 4} {
		b.Set([]byte{7, k}, []byte{k})
	}
	if err := errors.Join(b.Commit(at(2)), b.Close()); err != nil {
		t.Fatal(err)
	}
	v := s.NewView()
	it := v.Iter([]byte{7, 1}, []byte{7, 4})
	for _, step := range []struct {
		name string
		move func() bool
		want byte // 0: the end
	}{
		{"First", it.First, 1},
		{"Next", it.Next, 2},
		{"Last", it.Last, 3},
		{"Next", it.Next, 0},
		{"SeekGE 0", func() bool { return it.SeekGE([]byte{7, 0}) }, 1},
		{"SeekGE 2", func() bool { return it.SeekGE([]byte{7, 2}) }, 2},
		{"Prev", it.Prev, 1},
		{"Prev", it.Prev, 0},
		{"SeekLT 3", func() bool { return it.SeekLT([]byte{7, 3}) }, 2},
	} {
		if ok := step.move(); ok != (step.want != 0) || ok && it.Value()[0] != step.want {
			t.Errorf("%s = %t, want to be at %d", step.name, ok, step.want)
		}
	}
	if err := errors.Join(it.Error(), it.Close(), it.Close(), v.Close()); err != nil {
		t.Error(err)
	}
}

func TestCommit_RefusesWhatWouldBreakTheStore(t *testing.T) {
	t.Parallel()
	s := mustCreate(t, vfs.NewMem())
	if err := commit(s, 5); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		pos state.Position
		key []byte
	}{
		"an earlier position":     {pos: at(4), key: []byte{1}},
		"no configuration":        {pos: state.Position{Applied: ident.EntryID{Term: 1, Index: 6}}, key: []byte{1}},
		"the store's own table":   {pos: at(6), key: []byte{0, 'p'}},
		"a key without a table":   {pos: at(6), key: nil},
		"the same position, fine": {pos: at(5), key: []byte{1}},
	} {
		b := s.NewBatch()
		b.Set(tc.key, nil)
		if err := b.Commit(tc.pos); (err == nil) != (name == "the same position, fine") {
			t.Errorf("%s: Commit = %v", name, err)
		}
		if err := b.Commit(at(7)); err == nil && name == "the same position, fine" {
			t.Error("a batch was committed twice")
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestCreate_RefusesAReplicaWithoutVotersAndADirectoryInUse(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	nothing := func(*state.Batch) error { return nil }
	if err := state.Create(state.Options{FS: mem, Dir: dir}, state.Position{}, nothing); err == nil {
		t.Error("Create without voters = nil")
	}
	cause := errors.New("no roster")
	if err := state.Create(state.Options{FS: mem, Dir: "/other"}, at(1), func(*state.Batch) error { return cause }); !errors.Is(err, cause) {
		t.Errorf("Create = %v, want %v", err, cause)
	}
	if err := create(mem); err != nil {
		t.Fatal(err)
	}
	if err := create(mem); err == nil {
		t.Error("Create over a store = nil")
	}
	for _, d := range []string{"/nowhere", "/other"} { // nothing there; a store without a position
		if _, err := state.Open(state.Options{FS: mem, Dir: d}); err == nil {
			t.Errorf("Open(%s) = nil", d)
		}
	}
	if _, err := mem.Stat("/nowhere"); err == nil {
		t.Error("Open made a directory")
	}
}

func TestClose_WaitsForViewsAndEndsEverything(t *testing.T) {
	t.Parallel()
	s := mustCreate(t, vfs.NewMem())
	v := s.NewView()
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		t.Fatalf("Close = %v while a view is open", err)
	default:
	}
	if err := errors.Join(verify(v), v.Close(), <-closed); err != nil {
		t.Error(err)
	}
	_, _, getErr := s.Get(counter)
	_, flushErr := s.Flush()
	late := s.NewView()
	_, _, viewErr := late.Get(counter)
	it := late.Iter(nil, nil)
	for name, err := range map[string]error{
		"Get": getErr, "Flush": flushErr, "View.Get": viewErr, "Iter": it.Error(), "Commit": commit(s, 9), "Close": s.Close(),
	} {
		if !errors.Is(err, state.ErrClosed) {
			t.Errorf("%s after Close = %v, want ErrClosed", name, err)
		}
	}
	if it.First() || it.Last() || late.Close() != nil || late.Position().Conf != nil {
		t.Error("a view of a closed store sees something")
	}
}

func TestMetrics_AreThereWhileTheStoreIsOpen(t *testing.T) {
	t.Parallel()
	mem, reg := vfs.NewMem(), prometheus.NewPedanticRegistry()
	if err := create(mem); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s, err := state.Open(state.Options{FS: mem, Dir: dir, Metrics: reg})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := reg.Gather(); err != nil || len(got) != 4 {
			t.Errorf("Gather = %d families, %v, want 4", len(got), err)
		}
		if _, err := state.Open(state.Options{FS: mem, Dir: dir, Metrics: reg}); err == nil {
			t.Error("a second store under the same metrics opened")
		}
		if got, err := reg.Gather(); err != nil || len(got) != 4 {
			t.Errorf("Gather = %d families, %v, want the 4 of the first store", len(got), err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The store flushes by itself, and knows what it flushed.
func TestCommit_FlushesAsItGoes(t *testing.T) {
	t.Parallel()
	s := mustCreate(t, vfs.NewMem())
	chunk := bytes.Repeat([]byte("incompressible? it does not matter"), 32<<10) // 1 MiB
	for index := uint64(2); index < 40; index++ {
		b := s.NewBatch()
		b.Set(key(index), chunk)
		if err := errors.Join(b.Commit(at(index)), b.Close()); err != nil {
			t.Fatal(err)
		}
		if behind := index - s.FlushedIndex(); behind > 16 {
			t.Fatalf("at %d the flushed index is %d", index, s.FlushedIndex())
		}
	}
	if got, err := s.Flush(); err != nil || got != 39 || s.FlushedIndex() != 39 {
		t.Errorf("Flush = %d, %v, want 39", got, err)
	}
}

// run creates a store and writes to it. It keeps flushed at what the store has promised.
func run(fs vfs.FS, flushed *atomic.Uint64, onFatal func(error)) (err error) {
	if err := create(fs); err != nil {
		return err
	}
	flushed.Store(1)
	for index := uint64(2); index < 20; {
		s, err := state.Open(state.Options{FS: fs, Dir: dir, OnFatal: onFatal})
		if err != nil {
			return err
		}
		for range 6 {
			if err = commit(s, index); err == nil && index%4 == 0 {
				_, err = s.Flush()
			}
			flushed.Store(max(flushed.Load(), s.FlushedIndex()))
			if err != nil {
				return errors.Join(err, s.Close())
			}
			index++
		}
		if err := s.Close(); err != nil {
			return err
		}
		flushed.Store(index - 1)
	}
	return nil
}

// After a crash at any point the store stands at one position, not before what it called flushed;
// before it called anything so, it may be missing.
func TestStore_SurvivesACrashAtEveryChange(t *testing.T) {
	t.Parallel()
	var flushed atomic.Uint64
	durabletest.Sweep(t,
		func(vfs.FS) { flushed.Store(0) },
		func(fs vfs.FS) error { return run(fs, &flushed, nil) },
		func(t *testing.T, disk *vfs.MemFS, _ bool) {
			for range 2 {
				if err := reopen(disk, flushed.Load()); err != nil && flushed.Load() > 0 {
					t.Error(err)
				}
			}
		})
}

func reopen(fs vfs.FS, flushed uint64) error {
	s, err := state.Open(state.Options{FS: fs, Dir: dir})
	if err != nil {
		return err
	}
	v := s.NewView()
	err = verify(v)
	if index := s.Position().Applied.Index; index < flushed || index != v.Position().Applied.Index || index != s.FlushedIndex() {
		err = errors.Join(err, fmt.Errorf("position %d, flushed %d, want at least %d", index, s.FlushedIndex(), flushed))
	}
	return errors.Join(err, v.Close(), s.Close())
}

// A process is killed, the machine stays up: what it wrote without a sync is there to be read. The
// next process calls some of it flushed; then the power goes.
func TestOpen_MakesDurableWhatItReads(t *testing.T) {
	t.Parallel()
	for cut, done := 0, false; !done; cut++ {
		mem := vfs.NewCrashableMem()
		var flushed atomic.Uint64
		var n atomic.Int64
		killed := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose && n.Add(1) > int64(cut) {
				return durabletest.ErrPowerLost
			}
			return nil
		}))
		done = run(killed, &flushed, nil) == nil
		if flushed.Load() == 0 {
			continue // not yet made
		}
		s := mustOpen(t, mem)
		claimed := s.FlushedIndex()
		if err := reopen(mem.CrashClone(vfs.CrashCloneCfg{}), claimed); err != nil {
			t.Fatalf("killed after %d changes: %v", cut, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// One write fails, those after it would succeed. The store fails closed: the owner hears it once,
// nothing changes any more, and what was flushed is still there.
func TestStore_FailsClosedAtTheFirstError(t *testing.T) {
	t.Parallel()
	for at := int64(1); ; at++ {
		mem := vfs.NewMem()
		var flushed, fatal atomic.Uint64
		var n, after atomic.Int64
		faulty := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			switch op.Kind {
			case errorfs.OpFileClose, errorfs.OpRemove, errorfs.OpLock:
				return nil
			}
			if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
				return nil
			}
			if n := n.Add(1); n == at {
				return errorfs.ErrInjected
			} else if n > at && fatal.Load() > 0 {
				after.Add(1)
			}
			return nil
		}))
		err := run(faulty, &flushed, func(err error) {
			if !errors.Is(err, errorfs.ErrInjected) {
				t.Errorf("OnFatal(%v)", err)
			}
			fatal.Add(1)
		})
		if n.Load() < at {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if !errors.Is(err, errorfs.ErrInjected) {
			t.Fatalf("with an error in change %d: %v", at, err)
		}
		// A change that was under way in another goroutine may end.
		if fatal.Load() > 1 || after.Load() > 2 {
			t.Fatalf("with an error in change %d: told %d times, %d changes after it", at, fatal.Load(), after.Load())
		}
		if err := reopen(mem, flushed.Load()); err != nil && flushed.Load() > 0 {
			t.Fatalf("with an error in change %d: %v", at, err)
		}
	}
}

// A store whose disk fails while it is idle in the background does not spin, tells its owner, and
// refuses the next commit even though memory would take it.
func TestStore_TellsOfFailuresInTheBackground(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	if err := create(mem); err != nil {
		t.Fatal(err)
	}
	var tries atomic.Int64
	broken := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileClose, errorfs.OpRemove: // of what the opening made obsolete
			return nil
		}
		if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
			return nil
		}
		tries.Add(1)
		return errorfs.ErrInjected
	})}
	told := make(chan error, 2)
	s, err := state.Open(state.Options{FS: errorfs.Wrap(mem, broken), Dir: dir, OnFatal: func(err error) { told <- err }})
	if err != nil {
		t.Fatal(err)
	}
	broken.On()
	b := s.NewBatch()
	b.Set(key(2), make([]byte, 7<<20)) // more than is kept in memory: a flush begins
	if err := b.Commit(at(2)); err != nil && !errors.Is(err, errorfs.ErrInjected) {
		t.Fatal(err)
	}
	if err := <-told; !errors.Is(err, errorfs.ErrInjected) {
		t.Errorf("OnFatal(%v)", err)
	}
	if err := errors.Join(b.Close(), commit(s, 3)); !errors.Is(err, errorfs.ErrInjected) {
		t.Errorf("Commit = %v, want the error of the flush", err)
	}
	if _, err := s.Flush(); !errors.Is(err, errorfs.ErrInjected) {
		t.Errorf("Flush = %v, want the error of the flush", err)
	}
	if s.FlushedIndex() != 1 {
		t.Errorf("FlushedIndex = %d, want 1", s.FlushedIndex())
	}
	if err := s.Close(); !errors.Is(err, errorfs.ErrInjected) {
		t.Errorf("Close = %v, want the error of the flush", err)
	}
	if len(told) != 0 || tries.Load() != 1 {
		t.Errorf("told %d times more, %d changes were tried", len(told), tries.Load())
	}
	if err := reopen(mem, 1); err != nil {
		t.Error(err)
	}
}

func TestPosition_KeepsTheWholeConfiguration(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	s := mustCreate(t, mem)
	want := at(2)
	want.Conf = &pb.ConfState{Voters: []uint64{1, 2}, VotersOutgoing: []uint64{1, 3}, LearnersNext: []uint64{3}, AutoLeave: proto.Bool(true)}
	b := s.NewBatch()
	if err := errors.Join(b.Commit(want), b.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, mem)
	if got := s.Position(); got.Applied != want.Applied || !proto.Equal(got.Conf, want.Conf) {
		t.Errorf("Position = %v, want %v", got, want)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Rot in a table is an error of the reader and the end of the store, not an end of the process.
func TestStore_FailsClosedOnRot(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	s := mustCreate(t, mem)
	b := s.NewBatch()
	for i := range uint64(5000) {
		b.Set(key(i), bytes.Repeat(number(i*i), 16))
	}
	if err := errors.Join(b.Commit(at(2)), b.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	rot(t, mem)
	told := make(chan error, 2)
	// In the foreground, for a compaction that begins with the opening may be the one that meets the rot.
	s, err := state.Open(state.Options{FS: mem, Dir: dir, Foreground: true, OnFatal: func(err error) { told <- err }})
	if err != nil {
		t.Fatal(err) // the position is not in the middle
	}
	v := s.NewView()
	it := v.Iter(nil, nil)
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		n += len(it.Value())
	}
	if err := it.Close(); err == nil {
		t.Errorf("read %d bytes past the rot", n)
	}
	if err := errors.Join(v.Close(), <-told); err == nil {
		t.Error("OnFatal(nil)")
	}
	if err := commit(s, 3); err == nil {
		t.Error("Commit = nil after rot was met")
	}
	if err := s.Close(); err == nil {
		t.Error("Close = nil after rot was met")
	}
}

// rot flips bytes in the middle of the largest table.
func rot(t *testing.T, mem *vfs.MemFS) {
	t.Helper()
	names, err := mem.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	var largest []byte
	for _, name := range names {
		content, err := mem.UnsafeGetFileDataBuffer(dir + "/" + name)
		if err == nil && bytes.HasSuffix([]byte(name), []byte(".sst")) && len(content) > len(largest) {
			largest = content
		}
	}
	for i := len(largest) / 2; i < len(largest)/2+64; i++ {
		largest[i] ^= 0xff
	}
}
