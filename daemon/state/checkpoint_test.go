package state_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/state"
)

const copies = "/groups/0/artifacts"

// A checkpoint is the store as it was, to be opened by anybody; what is committed meanwhile and after
// it is not in it, and it outlives the store.
func TestCheckpoint_IsAStore(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	s := mustCreate(t, mem)
	if err := errors.Join(commit(s, 2), durable.MkdirAll(mem, copies, 0o700)); err != nil {
		t.Fatal(err)
	}
	const dir = copies + "/1"
	read := func(v *state.View) error {
		if got := v.Position().Applied.Index; got != 2 {
			t.Errorf("the copy is at %d, want 2", got)
		}
		return errors.Join(commit(s, 3), verify(v)) // nobody waits for the copy
	}
	if err := s.Checkpoint(dir, read); err != nil {
		t.Fatal(err)
	}
	names, err := mem.List(dir)
	if err != nil || slices.ContainsFunc(names, func(n string) bool { return n == "LOCK" || strings.HasSuffix(n, ".log") }) {
		t.Errorf("the copy has the files %q, %v", names, err)
	}
	if err := s.Checkpoint(dir, read); err == nil {
		t.Error("a second checkpoint took the place of the first")
	}
	if err := errors.Join(s.Close(), mem.RemoveAll("/groups/0/state-000001")); err != nil {
		t.Fatal(err)
	}
	c, err := state.Open(state.Options{FS: mem, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	v := c.NewView()
	if got := v.Position().Applied.Index; got != 2 {
		t.Errorf("opened at %d, want 2", got)
	}
	if err := errors.Join(verify(v), v.Close(), c.Close()); err != nil {
		t.Error(err)
	}
}

// A checkpoint that fails, at whatever change of the disk, does the store no harm.
func TestCheckpoint_FailsAlone(t *testing.T) {
	t.Parallel()
	failed := 0
	for n := 0; ; n++ {
		mem := vfs.NewMem()
		left, armed := n, false
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if !armed || op.Kind.ReadOrWrite() == errorfs.OpIsRead || !strings.HasPrefix(op.Path, copies) {
				return nil
			}
			if left--; left == -1 {
				return errors.New("no space left")
			}
			return nil
		}))
		s := mustCreate(t, fs)
		if err := errors.Join(commit(s, 2), durable.MkdirAll(mem, copies, 0o700)); err != nil {
			t.Fatal(err)
		}
		armed = true
		err := s.Checkpoint(copies+"/1", verify)
		armed = false
		if err != nil {
			failed++
		}
		if _, flushed := s.Flush(); flushed != nil {
			t.Fatalf("after a checkpoint failed at change %d (%v): %v", n, err, flushed)
		}
		if err := errors.Join(commit(s, 3), s.Close()); err != nil {
			t.Fatalf("after a checkpoint failed at change %d: %v", n, err)
		}
		if left >= 0 { // nothing was left to fail
			break
		}
	}
	if failed < 10 {
		t.Errorf("a checkpoint failed at %d changes, want at least 10", failed)
	}
}
