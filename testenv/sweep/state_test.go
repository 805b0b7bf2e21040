package sweep

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/state"
	"github.com/tidaldb/tidal/testenv/simfs"
)

// stateRun is what a script was told by its store: durable is at or below what a crash leaves.
type stateRun struct {
	created bool
	durable uint64
	last    uint64 // tried
}

var counterKey = []byte{0x7f, 'n'}

// commit makes the counter say what the position says, together with bytes of ballast.
func (r *stateRun) commit(s *state.Store, bytesOf int) error {
	r.last = s.Position().Applied.Index + 1
	b := s.NewBatch()
	defer b.Close() // spent
	b.Set(counterKey, binary.LittleEndian.AppendUint64(nil, r.last))
	b.Set([]byte{0x7f, 'b', byte(r.last)}, bytes.Repeat([]byte{'.'}, bytesOf))
	return b.Commit(positionAt(r.last))
}

func positionAt(index uint64) state.Position {
	return state.Position{Applied: ident.EntryID{Term: 1, Index: index}, Conf: &pb.ConfState{Voters: []uint64{1}}}
}

// live commits batches small and large: one above half a memtable gets a place of its own in Pebble,
// and reaches the disk by itself.
func (r *stateRun) live(fs *simfs.FS) error {
	o := state.Options{FS: fs, Dir: "/state"}
	if err := state.Create(o, positionAt(1), func(b *state.Batch) error {
		b.Set(counterKey, binary.LittleEndian.AppendUint64(nil, 1))
		return nil
	}); err != nil {
		return err
	}
	r.created, r.durable, r.last = true, 1, 1
	s, err := state.Open(o)
	if err != nil {
		return err
	}
	for _, size := range []int{10, 5 << 20, 10} {
		if err = r.commit(s, size); err != nil {
			break
		}
		if size > 1<<20 {
			settle(fs)
		} else if _, err = s.Flush(); err != nil {
			break
		}
		r.durable = max(r.durable, s.FlushedIndex())
	}
	if closing := s.Close(); err == nil {
		err = closing
	}
	return err
}

// settle waits until nothing has changed on the disk for a while: what Pebble writes by itself is
// there, and the next change is one that the script asks for.
func settle(fs *simfs.FS) {
	for quiet, last := 0, -1; quiet < 5; quiet++ {
		if _, changes := fs.Calls(); changes != last {
			quiet, last = 0, changes
		}
		<-time.After(2 * time.Millisecond)
	}
}

func (r *stateRun) boot(fs *simfs.FS) error {
	s, err := state.Open(state.Options{FS: fs, Dir: "/state"})
	if err != nil {
		if !r.created {
			return nil // no state yet: the birth is made again
		}
		return err
	}
	defer func() { _ = s.Close() }()
	at := s.Position().Applied.Index
	b, ok, err := s.Get(counterKey)
	switch {
	case err != nil || !ok:
		return fmt.Errorf("counter: %t, %w", ok, err)
	case binary.LittleEndian.Uint64(b) != at:
		return fmt.Errorf("the position is %d, the effects are those of %d", at, binary.LittleEndian.Uint64(b))
	case at < r.durable || at > r.last && r.created:
		return fmt.Errorf("position %d, %d was durable, %d the last", at, r.durable, r.last)
	}
	r.created, r.durable = true, at
	if err := r.commit(s, 10); err != nil {
		return err
	}
	if r.durable, err = s.Flush(); err != nil {
		r.durable = at
		return err
	}
	return nil
}

// Whatever a crash leaves of a store is one of the positions it went through, with the effects that
// belong to it (I7), and none before the one that was said to be durable.
func TestState_CrashEverywhere(t *testing.T) {
	crashEverywhere(t, "state", stride, 1, func(t *testing.T, fs *simfs.FS) func() boot {
		var r stateRun
		if err := r.live(fs); err != nil && !fs.Off() {
			t.Fatal(err)
		}
		return func() boot {
			r := r
			return r.boot
		}
	})
}
