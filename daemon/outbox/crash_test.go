package outbox

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/durable/durabletest"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/testenv/simfs"
)

// slowSync is a disk whose syncs of files wait, or fail.
type slowSync struct {
	vfs.FS
	entered chan struct{}
	release chan struct{}
	fail    atomic.Bool
	count   atomic.Int64
}

func (s *slowSync) syncs() int64 { return s.count.Load() }

func (s *slowSync) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.Create(name, c)
	return slowFile{f, s}, err
}

type slowFile struct {
	vfs.File
	s *slowSync
}

func (f slowFile) Sync() error {
	f.s.count.Add(1)
	f.s.entered <- struct{}{}
	<-f.s.release
	if f.s.fail.Load() {
		return errors.New("input/output error")
	}
	return f.File.Sync()
}

// told is what the writers of an outbox were told, over all its openings.
type told struct {
	items map[string]bool // true: acknowledged; false: it may be there
	done  map[ident.Incarnation]entity.Delivered
}

func newTold() *told {
	return &told{items: map[string]bool{}, done: map[ident.Incarnation]entity.Delivered{}}
}

// live opens the outbox twice, takes, merges, has a part delivered and tidies. An error is the disk's.
func (k *told) live(fs vfs.FS) error {
	for life := range 2 {
		b, err := k.open(fs)
		if err != nil {
			return err
		}
		for i := range 4 {
			item := fmt.Sprintf("item-%d-%d", life, i)
			k.items[item] = false
			id, err := b.Take(view(item), 0)
			if err != nil {
				_ = b.Close()
				return err
			}
			k.items[item] = true
			if i == 1 { // the log takes over what there is, and the state shows it
				k.deliver(b, id)
				b.Tidy()
				b.Tidy()
			}
		}
		for _, item := range []string{"alien", "heat", "ran"} {
			k.items[item] = k.items[item] // it may be there from now on
		}
		if _, err := b.Merge(sample(), false); err != nil {
			_ = b.Close()
			return err
		}
		k.items["alien"], k.items["heat"], k.items["ran"] = true, true, true
		if err := b.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (k *told) open(fs vfs.FS) (*Box, error) {
	b, err := Open(Options{FS: fs, Dir: "/data/outbox", Owner: ident.Incarnation{1}})
	if err != nil {
		return nil, err
	}
	for origin, d := range k.done {
		b.Delivered(origin, d)
	}
	if err := b.Status().Failed; err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// deliver has the log take over everything up to id.
func (k *told) deliver(b *Box, id ID) {
	d := entity.Delivered{Seq: id.Seq, Hash: hashAt(b, id.Origin, id.Seq)}
	k.done[id.Origin] = d
	for _, run := range b.Snapshot() {
		if run.Origin == id.Origin {
			for _, x := range run.Ops {
				records(run.Origin, op{Op: x}, func(_ mark, s command.Signal) { delete(k.items, s.Item) }, nil)
			}
		}
	}
	b.Delivered(id.Origin, d)
}

// check holds what a new opening finds against what was told.
func (k *told) check(fs vfs.FS) error {
	b, err := k.open(fs)
	if err != nil {
		return err
	}
	defer b.Close()
	found := map[string]int{}
	for _, run := range b.Snapshot() {
		for _, x := range run.Ops {
			records(run.Origin, op{Op: x}, func(_ mark, s command.Signal) { found[s.Item]++ }, nil)
		}
	}
	for item, acked := range k.items {
		if n := found[item]; n > 1 || acked && n != 1 {
			return fmt.Errorf("%s is held %d times, acknowledged: %t", item, n, acked)
		}
		delete(found, item)
	}
	if len(found) > 0 {
		return fmt.Errorf("nobody wrote %v, or it was delivered", found)
	}
	if _, err := b.Take(view("after"), 0); err != nil {
		return fmt.Errorf("it takes nothing: %w", err)
	}
	return nil
}

// The power fails at every call that changes the disk, and again while the next opening is under way.
func TestBox_CrashEverywhere(t *testing.T) {
	t.Parallel()
	var k *told
	durabletest.Sweep(t, func(vfs.FS) { k = newTold() }, func(fs vfs.FS) error { return k.live(fs) },
		func(t *testing.T, disk *vfs.MemFS, _ bool) {
			durabletest.Again(t, disk, func(fs vfs.FS) error {
				b, err := k.open(fs)
				if err != nil {
					return err
				}
				return b.Close()
			}, func(t *testing.T, disk *vfs.MemFS, _ bool) {
				if err := k.check(disk); err != nil {
					t.Error(err)
				}
			})
		})
}

// Power that fails while several runs are written tears them apart in any way: what was there before is held,
// and operations are taken, for nobody was told of what is torn.
func TestBox_TornRuns(t *testing.T) {
	t.Parallel()
	runs := sample()
	for i := range runs { // longer than a sector
		runs[i].Ops = []command.Op{{Stamp: runs[i].Ops[0].Stamp, Write: view(strings.Repeat(fmt.Sprint(i), 700))}}
	}
	for nth := int64(1); nth <= 2; nth++ {
		fs := simfs.New()
		b, err := newTold().open(fs)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Take(view("before"), 0); err != nil {
			t.Fatal(err)
		}
		var syncs int64
		fs.SetFault(func(op simfs.Op) simfs.Fault {
			if op.Kind != simfs.OpSync {
				return simfs.Fault{}
			}
			if syncs++; syncs != nth {
				return simfs.Fault{}
			}
			return simfs.Fault{Err: syscall.EIO}
		})
		_, err = b.Merge(runs, false)
		if fs.SetFault(nil); syncs < nth {
			t.Fatalf("%d syncs: each run needs its own (%v)", syncs, err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		for _, class := range simfs.Crashes() {
			for seed := range uint64(40) {
				b, err := newTold().open(fs.Crash(class, seed))
				if err != nil {
					t.Fatalf("sync %d, %s, seed %d: %v", nth, class, seed, err)
				}
				if held := b.Snapshot(); len(held) == 0 || len(held[0].Ops) == 0 {
					t.Errorf("sync %d, %s, seed %d: nothing is held", nth, class, seed)
				}
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// Every call fails once, in every way a disk fails; the process lives and says so, and afterwards
// everything is there that was acknowledged: whether the kernel goes on or the power goes.
func TestBox_FailEverywhere(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]simfs.Fault{
		"EIO":                          {Err: syscall.EIO},
		"ENOSPC, a part is written":    {Err: syscall.ENOSPC, Short: 13},
		"a failed sync, pages dropped": {Err: syscall.EIO, DropPages: true},
	} {
		runs := 0
		for nth := int64(1); ; nth++ {
			fs, k := simfs.New(), newTold()
			var seen atomic.Int64
			fs.SetFault(func(op simfs.Op) simfs.Fault {
				if !op.Kind.Changes() || seen.Add(1) != nth {
					return simfs.Fault{}
				}
				return fault
			})
			err := k.live(fs)
			fs.SetFault(nil)
			if seen.Load() < nth {
				if err != nil {
					t.Errorf("%s: without a fault: %v", name, err)
				}
				break
			}
			runs++
			if err := k.check(fs.Crash(simfs.Strict, 0)); err != nil {
				t.Errorf("%s in call %d, power off: %v", name, nth, err)
			}
			if err := k.check(fs); err != nil {
				t.Errorf("%s in call %d, started again: %v", name, nth, err)
			}
		}
		if runs < 20 {
			t.Errorf("%s: only %d calls failed", name, runs)
		}
	}
}
