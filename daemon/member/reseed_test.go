package member

import (
	"errors"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/entity"
)

// The leader is asked first, then everybody in turn, the leader too, for as long as nobody has anything.
func TestOtherTurn(t *testing.T) {
	const leader = -1
	for others, want := range map[int][]int{
		0: {leader, leader, leader, leader},
		1: {leader, leader, 0, leader, 0, leader},
		2: {leader, leader, 0, 1, leader, 0, 1, leader},
	} {
		for stuck, want := range want {
			got, ok := otherTurn(stuck, others)
			if !ok {
				got = leader
			}
			if got != want {
				t.Errorf("after %d attempts, with %d others: %d, want %d", stuck, others, got, want)
			}
		}
	}
}

// A state that is replaced by one from before what it had applied does not take back that this is
// committed, which the others were told.
func TestReseed_KeepsWhatIsCommitted(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3")
	leader := l.leader()
	x := l.node("n1")
	if x == leader {
		x = l.node("n2")
	}
	install := func() {
		t.Helper()
		before := x.m.current(0).keeper.files
		was, _, err := before.Current()
		if err != nil {
			t.Fatal(err)
		}
		if err := x.m.Reseed(0, leader.id()); err != nil {
			t.Fatal(err)
		}
		l.until("an install", func() bool {
			x.m.Keep()
			now, _, err := before.Current()
			return err == nil && now != was
		})
		x.open()
	}
	install() // from here on the leader has an artifact, which is younger than its time
	for range 5 {
		l.write()
	}
	l.run(time.Second)
	if _, err := x.m.current(0).store.Flush(); err != nil {
		t.Fatal(err)
	}
	x.kill()
	x.noSync = true // the log tells less than the state, until something more is written to it
	x.start()
	before := x.m.Reports()[0]
	install()
	x.noSync = false
	if after := x.m.Reports()[0]; after.Committed < before.Committed {
		t.Errorf("durable commit %d after the install, %d was reported", after.Committed, before.Committed)
	}
}

// A state that failed knows less than its log, which went on with the others: the log keeps what it knows
// when the state is replaced.
func TestReseed_OfAStateThatFellBehindItsLog(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3")
	leader := l.leader()
	x := l.node("n1")
	if x == leader {
		x = l.node("n2")
	}
	g := x.m.current(0)
	g.replica.Fail(errors.New("a table is not what it was"))
	l.until("a commit that the state has not", func() bool {
		l.write()
		return g.replica.Status().Stateless != nil && g.log.Commit() > g.replica.Status().Applied
	})
	s, committed := g.replica.Status(), g.log.Commit()
	if err := g.keeper.commitInLog(g.log, s.Applied); err != nil {
		t.Error(err)
	}
	if now := g.log.Commit(); now != committed {
		t.Errorf("the log has committed %d, it was %d", now, committed)
	}
}

// An artifact that does not open sends a member to somebody else at once, and each further one to the next.
func TestVain(t *testing.T) {
	const leader = -1
	for _, c := range []struct{ stuck, unfit, want int }{
		{0, 0, leader}, {1, 0, leader}, {2, 0, 0}, {0, 1, 0}, {0, 2, 1}, {0, 3, leader}, {0, 4, 0}, {1, 1, 1},
	} {
		got, ok := otherTurn(vain(c.stuck, c.unfit), 2)
		if !ok {
			got = leader
		}
		if got != c.want {
			t.Errorf("after %d attempts that brought nothing and %d unfit artifacts: %d, want %d", c.stuck, c.unfit, got, c.want)
		}
	}
}

// A leader whose state holds what its digest does not is not asked for ever: another member has what is sound.
func TestReseed_AsksOthersAfterWhatIsNotSound(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3")
	leader := l.leader()
	l.write()
	x := l.node("n1")
	if x == leader {
		x = l.node("n2")
	}
	store := leader.m.current(0).store
	b := store.NewBatch()
	b.Set(entity.AppendItemKey(nil, 1, "nobody wrote it"), []byte("something"))
	if err := errors.Join(b.Commit(store.Position()), b.Close()); err != nil {
		t.Fatal(err)
	}
	files := x.m.current(0).keeper.files
	was, _, err := files.Current()
	if err != nil {
		t.Fatal(err)
	}
	if err := x.m.Reseed(0, 0); err != nil {
		t.Fatal(err)
	}
	l.until("an install", func() bool {
		now, _, err := files.Current()
		return err == nil && now != was
	})
	if l.leader() != leader {
		t.Fatal("another member leads now: the test shows nothing")
	}
}

// With replication.reseed: manual nothing is installed before somebody says so, also where it is the log that
// is gone.
func TestReseed_ManualWaitsForALogThatIsGone(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3")
	leader := l.leader()
	x := l.other(leader)
	x.m.opts.ManualReseed = true
	leader.m.retention.LogBytes, leader.m.retention.PinBytes = 1, 1
	l.isolate(x, true)
	l.until("the log that it needs is gone", func() bool {
		l.write()
		return leader.m.current(0).log.FirstIndex() > x.status().Last+1
	})
	l.isolate(x, false)
	k := x.m.current(0).keeper
	l.until("a reseed is latched", func() bool { return k.latchedNow() != nil })
	l.run(5 * time.Second)
	if _, installs := k.keptNow(); installs > 0 {
		t.Fatal("it was installed, and nobody said so")
	}
	refused := func() float64 {
		var out dto.Metric
		if err := x.m.metrics.reseedRefused.WithLabelValues("0").Write(&out); err != nil {
			t.Fatal(err)
		}
		return out.GetGauge().GetValue()
	}
	if r, _ := k.status(); r == nil || r.Reason != reasonCompacted || !strings.Contains(r.Refused, "tidalctl reseed") || refused() != 1 {
		t.Errorf("it does not say that it waits, or for whom: %+v, gauge %v", r, refused())
	}
	if err := x.m.Reseed(0, 0); err != nil {
		t.Fatal(err)
	}
	l.until("an install", func() bool { _, installs := k.keptNow(); return installs > 0 })
	if refused() != 0 {
		t.Error("it is installed, and the gauge says that it waits")
	}
	k.ask(consensus.Reseed{}) // a message from before the install
	x.m.Keep()
	if r := k.latchedNow(); r != nil {
		t.Errorf("a message from before the install has latched another one: %+v", r)
	}
}

// Damage that is found while a reseed waits for another reason is latched as what it is: a start does not
// forget it, and what is replaced is kept.
func TestReseed_LatchesDamageThatIsFoundLater(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3")
	l.write()
	x := l.other(l.leader())
	l.isolate(x, true)
	if err := x.m.Reseed(0, 0); err != nil {
		t.Fatal(err)
	}
	files := func() *datadir.Group { return x.m.current(0).keeper.files }
	latched := func(reason string) {
		t.Helper()
		x.m.Keep()
		if r, ok, err := files().Reseed(); err != nil || !ok || r.Reason != reason || r.Keep != (reason != reasonOperator) {
			t.Fatalf("latched %+v, %t, %v, want %s", r, ok, err, reason)
		}
	}
	latched(reasonOperator)
	x.m.quarantine(x.m.sound(0), CauseDivergent, "its state is not that of the others", nil)
	latched(string(CauseDivergent))
	x.kill()
	x.start()
	if q := x.m.current(0).quarantine; q == nil || q.Cause != CauseDivergent {
		t.Errorf("after a start: quarantine %+v", q)
	}
	l.isolate(x, false)
	l.until("it is well again", func() bool { g := x.m.current(0); return g.replica != nil && g.quarantine == nil })
	if kept, err := files().Kept(); err != nil || len(kept) != 1 || kept[0].Reason != string(CauseDivergent) {
		t.Errorf("kept %+v, %v", kept, err)
	}
}
