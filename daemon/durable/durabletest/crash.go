// Package durabletest cuts the power at every file-system call of an operation, for the tests of
// packages that promise to survive it.
package durabletest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// ErrPowerLost is what every call of a file system returns once its power is cut.
var ErrPowerLost = errors.New("power lost")

// Sweep runs act once for every call by which it changes the file system, on a fresh disk made by
// setup, and cuts the power just before that call. check gets what the disk may hold then: all that
// was not synced lost, all of it kept, and some of it; done says that act had returned nil first.
// A failed check ends the test, which says where the power was cut.
func Sweep(t *testing.T, setup func(fs vfs.FS), act func(fs vfs.FS) error, check func(t *testing.T, disk *vfs.MemFS, done bool)) {
	t.Helper()
	sweep(t, func() *vfs.MemFS {
		mem := vfs.NewCrashableMem()
		setup(mem)
		return mem
	}, act, check)
}

// Again is Sweep on copies of a disk that a check was given: the power fails once more while what
// follows a crash is under way.
func Again(t *testing.T, disk *vfs.MemFS, act func(fs vfs.FS) error, check func(t *testing.T, disk *vfs.MemFS, done bool)) {
	t.Helper()
	sweep(t, func() *vfs.MemFS { return disk.CrashClone(kept(100, 0)) }, act, check)
}

func sweep(t *testing.T, disk func() *vfs.MemFS, act func(fs vfs.FS) error, check func(t *testing.T, disk *vfs.MemFS, done bool)) {
	t.Helper()
	for cut := 0; ; cut++ {
		mem := disk()
		fs := &powered{mem: mem, cut: cut, seed: uint64(cut)}
		err := act(errorfs.Wrap(mem, fs))
		done := fs.lost == nil
		if done {
			if err != nil {
				t.Fatalf("with the power on: %v", err)
			}
			fs.lose()
		}
		for i, disk := range fs.lost {
			check(t, disk, done)
			if t.Failed() {
				t.Fatalf("power cut before change %d (%s), variant %d", cut, fs.at, i)
			}
		}
		if done {
			return
		}
	}
}

// powered is an injector that lets cut changes through and then fails every call. What is under test
// may have several goroutines.
type powered struct {
	mem *vfs.MemFS

	mu   sync.Mutex
	cut  int    // changes still let through
	seed uint64 // of what is kept by chance
	at   string // the call that did not happen
	// lost is what may be left of the disk. Not nil: the power is off.
	lost []*vfs.MemFS
}

func (p *powered) String() string { return "power" }

// MaybeError implements errorfs.Injector.
func (p *powered) MaybeError(op errorfs.Op) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost != nil {
		return ErrPowerLost
	}
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead || op.Kind == errorfs.OpFileClose {
		return nil
	}
	if p.cut > 0 {
		p.cut--
		return nil
	}
	p.at = fmt.Sprintf("op kind %d on %s", op.Kind, op.Path)
	p.lose()
	return ErrPowerLost
}

// lose takes the pictures of the disk after the crash.
func (p *powered) lose() {
	p.lost = []*vfs.MemFS{
		p.mem.CrashClone(vfs.CrashCloneCfg{}),
		p.mem.CrashClone(kept(100, 0)),
		p.mem.CrashClone(kept(50, p.seed)),
	}
}

func kept(percent int, seed uint64) vfs.CrashCloneCfg {
	return vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(seed, 0))}
}
