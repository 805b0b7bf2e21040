package sweep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/replica"
	"github.com/tidaldb/tidal/testenv/simfs"
)

// fate is what the writer of an item was told.
type fate uint8

const (
	failed  fate = iota // nothing happened
	unknown             // it may have happened
	acked
)

func fateOf(err error) fate {
	if err == nil {
		return acked
	}
	if _, ok := errors.AsType[*replica.UnknownOutcomeError](err); ok {
		return unknown
	}
	return failed
}

// told is what one member promised and acknowledged.
type told struct {
	member datadir.Member // as of the last boot that came so far
	vote   datadir.Vote

	mu    sync.Mutex
	fates map[string]fate
	boots int
}

func (k *told) clone() *told {
	return &told{member: k.member, vote: k.vote, fates: maps.Clone(k.fates), boots: k.boots}
}

// meet compares a member that has booted with what is known of it.
func (k *told) meet(d *datadir.Dir) error {
	m, vote := d.Member(), d.Vote(0)
	switch was := k.member; {
	case !was.Incarnation.IsZero() && m.Incarnation != was.Incarnation:
		return fmt.Errorf("incarnation %s, was %s", m.Incarnation, was.Incarnation)
	case was.ID != 0 && (m.ID != was.ID || m.Cluster != was.Cluster):
		return fmt.Errorf("member %s of cluster %s, was member %s of cluster %s", m.ID, m.Cluster, was.ID, was.Cluster)
	case m.BootEpoch <= was.BootEpoch:
		return fmt.Errorf("boot epoch %d, was %d", m.BootEpoch, was.BootEpoch)
	case len(m.Groups) < len(was.Groups):
		return fmt.Errorf("groups %v, were %v", m.Groups, was.Groups)
	case vote.Term < k.vote.Term, vote.Term == k.vote.Term && k.vote.Vote != 0 && vote.Vote != k.vote.Vote:
		return fmt.Errorf("vote %+v, was %+v", vote, k.vote)
	}
	return nil
}

// note remembers what a member says of itself now: it is durable.
func (k *told) note(d *datadir.Dir) { k.member, k.vote = d.Member(), d.Vote(0) }

// put writes items at once through whoever of nodes leads.
func (k *told) put(ctx context.Context, items []string, nodes ...*node) error {
	var wg sync.WaitGroup
	errs := make([]error, len(items))
	for i, item := range items {
		wg.Go(func() {
			k.set(item, unknown)
			errs[i] = write(ctx, item, nodes...)
			k.set(item, fateOf(errs[i]))
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (k *told) set(item string, f fate) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fates[item] = f
}

// audit compares n's state with what writers were told.
func (k *told) audit(n *node) error {
	for item, f := range k.fates {
		got, err := n.count(item)
		if err != nil {
			return err
		}
		if f == acked && got != 1 || f == failed && got != 0 || got > 1 {
			return fmt.Errorf("%s is in state %d times, its writer was told %s", item[:8], got, [...]string{"failed", "unknown", "acknowledged"}[f])
		}
	}
	return nil
}

// sound returns why a member that runs is closed, or nil.
func sound(n *node) error {
	for _, g := range n.Status().Groups {
		if g.Quarantine != nil {
			return fmt.Errorf("group %s is quarantined: %s: %s", g.Group, g.Quarantine.Cause, g.Quarantine.Detail)
		}
	}
	return nil
}

// item returns a name long enough that a few fill a segment.
func item(name string, n int) string {
	return fmt.Sprintf("%6s%02d%s", name, n, strings.Repeat(".", 150))
}

// boot starts a cluster of one on fs.
func (k *told) boot(fs *simfs.FS) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n, err := newRoom(1).boot("m1", fs)
	if err != nil {
		return err
	}
	defer n.stop()
	if err := errors.Join(k.meet(n.dir), sound(n)); err != nil {
		return err
	}
	k.note(n.dir)
	k.boots++
	last := item("boot", k.boots)
	if err := k.put(ctx, []string{last}, n); err != nil {
		return err
	}
	k.note(n.dir)
	return k.audit(n)
}

// liveAlone is a life of a cluster of one: birth, writes one by one and many at once, through a
// rotation of the log, a stop with a flush of state, a second life.
func liveAlone(fs *simfs.FS, k *told) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for life := range 2 {
		n, err := newRoom(1).boot("m1", fs)
		if err != nil {
			return err
		}
		k.note(n.dir)
		var batch []string
		for i := range 12 {
			batch = append(batch, item("alone", 20*life+i))
			if i < 4 || len(batch) == 4 {
				if err = k.put(ctx, batch, n); err != nil {
					break
				}
				k.note(n.dir)
				batch = nil
			}
		}
		n.stop()
		if err != nil {
			return err
		}
	}
	return nil
}

func TestMember_CrashEverywhere(t *testing.T) {
	crashEverywhere(t, "a cluster of one, from birth on", stride, 2, func(t *testing.T, fs *simfs.FS) func() boot {
		k := &told{fates: map[string]fate{}}
		if err := liveAlone(fs, k); err != nil && !fs.Off() {
			t.Fatal(err)
		}
		return func() boot { return k.clone().boot }
	})
}

// An error on the way of a write to the disk ends the acknowledgements of this life of the replica
// and not the process: later writes are refused by name, and what was acknowledged is there when the
// member starts again.
func TestMember_FailEverywhere(t *testing.T) {
	failEverywhere(t, "a cluster of one, from birth on", stride, func(t *testing.T, fs *simfs.FS, p *trap) func() boot {
		k := &told{fates: map[string]fate{}}
		n, err := newRoom(1).boot("m1", fs)
		if err == nil {
			k.note(n.dir)
			err = k.writeUntilRefused(n, p)
			n.stop()
		}
		if err != nil && p.sprung.Load() == nil {
			t.Fatal(err)
		}
		if _, broken := errors.AsType[*brokenPromise](err); broken {
			t.Errorf("a cluster of one: %s: %v", p, err)
		}
		return func() boot { return k.clone().boot }
	})
}

// brokenPromise is what a living member did against I8.
type brokenPromise struct{ detail string }

func (e *brokenPromise) Error() string { return e.detail }

// writeUntilRefused writes one item after the other, past the moment when the trap springs.
func (k *told) writeUntilRefused(n *node, p *trap) error {
	if _, err := n.Replica(0); err != nil {
		return err // the birth failed; it is tried again for as long as the process lives
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	born := p.sprung.Load() == nil
	for i := range 14 {
		before := p.sprung.Load()
		err := k.put(ctx, []string{item("alone", i)}, n)
		after := p.sprung.Load()
		switch {
		case !born:
			// What failed was done again since, or was none of the replica's.
		case fatal(before) && err == nil:
			return &brokenPromise{fmt.Sprintf("write %d was acknowledged after the error", i)}
		case fatal(after) && before == nil && err == nil:
			return &brokenPromise{fmt.Sprintf("write %d was acknowledged though its own call failed", i)}
		case fatal(before) && !refusedByName(err):
			return &brokenPromise{fmt.Sprintf("write %d after the error was told: %v", i, err)}
		case !fatal(after) && err != nil:
			return err
		}
		k.note(n.dir)
	}
	return nil
}

// fatal reports whether the failed call was on the way of a write. The preparation of a spare segment
// is not: nothing was promised of it.
func fatal(op *simfs.Op) bool {
	if op == nil {
		return false
	}
	return op.Path == dataDir+"/votes" || strings.Contains(op.Path, "/log-") && !strings.HasSuffix(op.Path, "/spare.tmp")
}

func refusedByName(err error) bool {
	_, failed := errors.AsType[*replica.FailedError](err)
	_, closed := errors.AsType[*member.QuarantinedError](err)
	return failed || closed
}

// A disk that is full from some call on, and stays full over the next start, takes nothing with it:
// once there is room the member starts and has what it acknowledged. (That the member knows how full
// its disk is, and stops before that, is not relied on here.)
func TestMember_DiskFull(t *testing.T) {
	t.Parallel()
	sound, runs, refused := 0, 0, 0
	for from := 1; ; from += (stride + 5) / 6 {
		fs, k := simfs.New(), &told{fates: map[string]fate{}}
		var calls atomic.Int64
		fs.SetFault(func(op simfs.Op) simfs.Fault {
			switch op.Kind {
			case simfs.OpCreate, simfs.OpMkdir, simfs.OpWrite, simfs.OpLink:
				if calls.Add(1) >= int64(from) {
					return simfs.Fault{Err: syscall.ENOSPC, Short: 1}
				}
			}
			return simfs.Fault{}
		})
		_ = liveAlone(fs, k)
		if calls.Load() < int64(from) {
			break
		}
		runs++
		if err := k.clone().boot(fs); err != nil {
			refused++
		}
		fs.SetFault(nil)
		if err := k.clone().boot(fs); err != nil {
			t.Errorf("full from call %d on, then not: %v", from, err)
			continue
		}
		sound++
	}
	report(t, "a cluster of one on a full disk: %d of %d survived, %d starts refused meanwhile", sound, runs, refused)
}
