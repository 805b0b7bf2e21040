package sweep

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/wal"
	"github.com/tidaldb/tidal/testenv/simfs"
)

// trio is a cluster of three, and what its writers were told.
type trio struct {
	room  *room
	disks [3]*simfs.FS
	nodes [3]*node // nil: down
	told
}

func newTrio(ctx context.Context) (*trio, error) {
	c := &trio{room: newRoom(3), told: told{fates: map[string]fate{}}}
	for i := range c.disks {
		c.disks[i] = simfs.New()
		if err := c.boot(i); err != nil {
			return c, err
		}
	}
	if err := c.put(ctx, []string{item("born", 0)}, c.nodes[:]...); err != nil {
		return c, err
	}
	return c, c.agree(ctx, 0)
}

func (c *trio) boot(i int) (err error) {
	c.nodes[i], err = c.room.boot(fmt.Sprintf("m%d", i+1), c.disks[i])
	return err
}

func (c *trio) stop() {
	for i, n := range c.nodes {
		if n != nil {
			n.stop()
			c.nodes[i] = nil
		}
	}
}

// write writes items, some at once. One whose outcome nobody knows is no error: its leader was lost.
func (c *trio) write(ctx context.Context, name string) error {
	for round := range 3 {
		var items []string
		for i := range 4 {
			items = append(items, item(name, 4*round+i))
		}
		err := c.put(ctx, items, c.nodes[:]...)
		if ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// agree waits until everybody has applied one more write, and compares all three with what was told.
func (c *trio) agree(ctx context.Context, nth int) error {
	if err := c.put(ctx, []string{item("agree", nth)}, c.nodes[:]...); err != nil {
		return err
	}
	for _, n := range c.nodes {
		err := errNobody
		for err != nil && ctx.Err() == nil { // while it is born, and while nobody leads
			if err = sound(n); err != nil {
				break
			}
			if err = n.catchUp(ctx); err != nil {
				<-time.After(time.Millisecond)
			}
		}
		if err == nil {
			err = c.audit(n)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
	}
	return nil
}

// catchUp waits until n has applied everything that was committed before.
func (n *node) catchUp(ctx context.Context) error {
	r, err := n.Replica(0)
	if err != nil {
		return err
	}
	index, err := r.ReadIndex(ctx)
	if err != nil {
		return err
	}
	return r.WaitApplied(ctx, index)
}

// dip is how many changes of one member's disk the sweeps of three go through, from when the cluster
// is born.
const dip = 48

// Power goes off under one member, or under that one and at the same moment under all: what was
// acknowledged is on everybody, once, when they are back.
func TestThree_CrashEverywhere(t *testing.T) {
	t.Parallel()
	sound, runs := 0, 0
	for cut := 1; cut <= dip; cut += (stride + 3) / 4 {
		for _, all := range []bool{false, true} {
			runs++
			if err := crashThree(t.Context(), cut, all); err != nil {
				t.Errorf("power off at change %d, all: %t: %v", cut, all, err)
				continue
			}
			sound++
		}
	}
	report(t, "a cluster of three: %d of %d crashes survived", sound, runs)
}

func crashThree(ctx context.Context, cut int, all bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := newTrio(ctx)
	defer func() { c.stop() }()
	if err != nil {
		return fmt.Errorf("birth: %w", err)
	}
	victim := cut % 3
	c.disks[victim].CutPowerAt(cut)
	if err := c.write(ctx, "during"); err != nil {
		return err
	}
	for i := range c.disks {
		if i == victim || all {
			c.disks[i].CutPower()
		}
	}
	for i := range c.disks {
		if c.disks[i].Off() {
			class := simfs.Crashes()[(cut+i)%len(simfs.Crashes())]
			image := c.disks[i].Crash(class, uint64(cut))
			c.nodes[i].stop()
			c.disks[i], c.nodes[i] = image, nil
		}
	}
	for i, n := range c.nodes {
		if n == nil {
			if err := c.boot(i); err != nil {
				return err
			}
		}
	}
	return c.agree(ctx, 1)
}

// birthDip is about how many changes a member's disk goes through until its cluster serves.
const birthDip = 150

// Power goes off under one member while the cluster of three is born, under the one that makes it or
// one that joins its birth: when it is back, there is one cluster, and it has all three.
func TestThree_CrashInBirth(t *testing.T) {
	t.Parallel()
	sound, runs := 0, 0
	for cut := 1; cut <= birthDip; cut += stride {
		for victim := range 2 {
			runs++
			if err := crashBirth(t.Context(), cut, victim); err != nil {
				t.Errorf("power off at change %d under member %d: %v", cut, victim+1, err)
				continue
			}
			sound++
		}
	}
	report(t, "the birth of three: %d of %d crashes survived", sound, runs)
}

func crashBirth(ctx context.Context, cut, victim int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := &trio{room: newRoom(3), told: told{fates: map[string]fate{}}}
	defer func() { c.stop() }()
	for i := range c.disks {
		c.disks[i] = simfs.New()
	}
	c.disks[victim].CutPowerAt(cut)
	for i := range c.disks {
		if err := c.boot(i); err != nil && i != victim {
			return err
		}
	}
	c.serves(ctx, victim)
	var before datadir.Member
	if n := c.nodes[victim]; n != nil {
		before = n.dir.Member()
	}
	c.disks[victim].CutPower()
	image := c.disks[victim].Crash(simfs.Crashes()[cut%len(simfs.Crashes())], uint64(cut))
	if c.nodes[victim] != nil {
		c.nodes[victim].stop()
	}
	c.disks[victim] = image
	if err := c.boot(victim); err != nil {
		return err
	}
	if m := c.nodes[victim].dir.Member(); before.BootEpoch > 0 && m.Incarnation != before.Incarnation {
		return fmt.Errorf("incarnation %s, was %s", m.Incarnation, before.Incarnation)
	}
	return c.agree(ctx, 1)
}

// serves waits until everybody serves, or the power is off under victim: then a read that waits for a
// leader would wait for ever, since whoever is left need not be a majority of the born.
func (c *trio) serves(ctx context.Context, victim int) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watch sync.WaitGroup
	defer watch.Wait()
	watch.Go(func() {
		for ctx.Err() == nil && !c.disks[victim].Off() {
			<-time.After(time.Millisecond)
		}
		cancel()
	})
	for _, n := range c.nodes {
		for n != nil && ctx.Err() == nil && n.catchUp(ctx) != nil {
			<-time.After(time.Millisecond)
		}
	}
	cancel()
}

// A call of one member's disk fails: that member acknowledges nothing from then on, the other two go
// on, and when it starts again on the same kernel it has whatever is missing from them.
func TestThree_FailEverywhere(t *testing.T) {
	t.Parallel()
	sound, runs := 0, 0
	for _, f := range failures() {
		for nth := 1; nth <= dip/2; nth += (stride + 1) / 2 {
			p := &trap{failure: f, nth: int64(nth)}
			runs++
			if err := failThree(t.Context(), p); err != nil {
				t.Errorf("%s: %v", p, err)
				continue
			}
			sound++
		}
	}
	report(t, "a cluster of three: %d of %d failed calls survived", sound, runs)
}

func failThree(ctx context.Context, p *trap) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := newTrio(ctx)
	defer func() { c.stop() }()
	if err != nil {
		return fmt.Errorf("birth: %w", err)
	}
	victim := int(p.nth) % 3
	p.set(c.disks[victim])
	if err := c.write(ctx, "during"); err != nil {
		return err
	}
	n := c.nodes[victim]
	if fatal(p.sprung.Load()) {
		if err := n.closes(ctx); err != nil {
			return err
		}
	}
	if err := c.write(ctx, "after"); err != nil {
		return err
	}
	c.disks[victim].SetFault(nil)
	n.stop()
	if err := c.boot(victim); err != nil {
		return err
	}
	if err := c.agree(ctx, 1); err != nil {
		return err
	}
	c.disks[victim].CutPower()
	image := c.disks[victim].Crash(simfs.Strict, 0)
	c.nodes[victim].stop()
	c.disks[victim] = image
	if err := c.boot(victim); err != nil {
		return fmt.Errorf("power off after it had started again: %w", err)
	}
	return c.agree(ctx, 2)
}

// closes waits until n's replica is closed by an error: the others do not wait for it.
func (n *node) closes(ctx context.Context) error {
	for ctx.Err() == nil {
		_, err := n.Replica(0)
		if _, ok := errors.AsType[*member.QuarantinedError](err); ok {
			return nil
		}
		<-time.After(time.Millisecond)
	}
	return fmt.Errorf("%s is open after the error", n.name)
}

// Nothing leaves before what it rests on is durable (I4): every acknowledgement and every vote is
// compared, as it leaves, with what the sender's disk would hold if the power went off at once.
func TestThree_SpeakOnlyOfWhatIsDurable(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := newTrio(ctx)
	defer func() { c.stop() }()
	do(t, err)
	var checked atomic.Int64
	witness := func(n *node, m *pb.Message) {
		ack := m.GetType() == pb.MsgAppResp && !m.GetReject()
		vote := m.GetType() == pb.MsgVoteResp && !m.GetReject()
		if !ack && !vote {
			return
		}
		checked.Add(1)
		if err := rests(n.fs.Crash(simfs.Strict, 0), n.name, m, vote); err != nil {
			t.Errorf("%s to %d, term %d: %v", m.GetType(), m.GetTo(), m.GetTerm(), err)
		}
	}
	for i := range c.nodes {
		c.nodes[i].stop()
	}
	c.room.witness = witness
	for i := range c.nodes {
		do(t, c.boot(i))
	}
	for round := range 4 {
		do(t, c.write(ctx, fmt.Sprintf("w%d", round)))
	}
	do(t, c.agree(ctx, 1))
	if checked.Load() < 20 {
		t.Errorf("%d messages were seen", checked.Load())
	}
	report(t, "persist before speak: %d of %d messages rest on the disk", checked.Load(), checked.Load())
}

// rests compares what m says with a disk.
func rests(disk *simfs.FS, name string, m *pb.Message, vote bool) error {
	if vote {
		d, err := openDir(name, disk)
		if err != nil {
			return err
		}
		defer d.Close()
		if got, want := d.Vote(0), (datadir.Vote{Term: m.GetTerm(), Vote: m.GetTo()}); got != want {
			return fmt.Errorf("votes hold %+v, want %+v", got, want)
		}
	}
	rec, err := wal.Scan(disk, groupDir+"/log-000001", ident.GroupID(0), nil)
	switch {
	case err != nil:
		return err
	case rec.HardState.GetTerm() < m.GetTerm(), m.GetType() == pb.MsgAppResp && rec.Last.Index < m.GetIndex():
		return fmt.Errorf("the log holds %s in %v, the message says index %d", rec.Last, rec.HardState, m.GetIndex())
	}
	return nil
}
