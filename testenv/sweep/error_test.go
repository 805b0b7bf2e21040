package sweep

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tidaldb/tidal/testenv/simfs"
)

// failure is a way in which a call of the disk fails.
type failure struct {
	name  string
	of    func(simfs.OpKind) bool
	fault simfs.Fault
}

func failures() []failure {
	is := func(kinds ...simfs.OpKind) func(simfs.OpKind) bool {
		return func(k simfs.OpKind) bool {
			for _, kind := range kinds {
				if k == kind {
					return true
				}
			}
			return false
		}
	}
	return []failure{
		{"EIO", simfs.OpKind.Changes, simfs.Fault{Err: syscall.EIO}},
		{"ENOSPC", is(simfs.OpCreate, simfs.OpMkdir, simfs.OpWrite, simfs.OpRename, simfs.OpLink), simfs.Fault{Err: syscall.ENOSPC}},
		{"short write", is(simfs.OpWrite), simfs.Fault{Err: syscall.ENOSPC, Short: 13}},
		{"failed sync that drops pages", is(simfs.OpSync), simfs.Fault{Err: syscall.EIO, DropPages: true}},
	}
}

// trap fails one call of a disk.
type trap struct {
	failure
	nth    int64 // among the calls of its kinds, from 1
	seen   atomic.Int64
	sprung atomic.Pointer[simfs.Op] // the call that failed; nil: none yet
}

func (p *trap) set(fs *simfs.FS) {
	fs.SetFault(func(op simfs.Op) simfs.Fault {
		if !p.of(op.Kind) || p.seen.Add(1) != p.nth {
			return simfs.Fault{}
		}
		p.sprung.Store(&op)
		return p.fault
	})
}

func (p *trap) String() string {
	return fmt.Sprintf("%s, number %d (%v)", p.name, p.nth, p.sprung.Load())
}

// failEverywhere runs s once for every call that can fail and every way in which it can, with that
// call failing. s looks itself at what the living process does then. Afterwards the process starts
// again on the same kernel, which shows pages that are not on the disk, and then the power goes; and
// on another copy the power goes at once. Of the calls it takes every nth.
func failEverywhere(t *testing.T, what string, nth int, s func(t *testing.T, fs *simfs.FS, p *trap) (remember func() boot)) {
	t.Parallel()
	sound, runs := 0, 0
	for _, f := range failures() {
		for call := 1; ; call += nth {
			fs, p := simfs.New(), &trap{failure: f, nth: int64(call)}
			p.set(fs)
			remember := s(t, fs, p)
			fs.SetFault(nil)
			if p.sprung.Load() == nil {
				break
			}
			runs++
			if err := restart(fs, remember); err != nil {
				t.Errorf("%s: %s: %v", what, p, err)
				continue
			}
			sound++
		}
	}
	report(t, "%s: %d of %d failed calls survived", what, sound, runs)
}

// restart boots what a failed call has left, in both ways.
func restart(fs *simfs.FS, remember func() boot) error {
	cold := fs.Crash(simfs.Strict, 0)
	if err := remember()(cold); err != nil {
		return fmt.Errorf("power off at once: %w", err)
	}
	boot := remember()
	if err := boot(fs); err != nil {
		return fmt.Errorf("process started again: %w", err)
	}
	if err := boot(fs.Crash(simfs.Strict, 0)); err != nil {
		return fmt.Errorf("process started again, then power off: %w", err)
	}
	return nil
}
