package member

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/replica"
	"github.com/tidaldb/tidal/testenv/simfs"
)

// film keeps the disks of everybody at every sync of anybody while a change goes on: what is durable changes
// nowhere else.
type film struct {
	l        *lab
	rolling  bool
	syncs    int
	images   int
	answered bool // the verb has been
	// absent does not come back once the verb was answered; nil: everybody does.
	absent  *node
	moments []moment
}

// moment is what everybody's disk holds when the power goes off.
type moment struct {
	sync     int
	class    simfs.Crash
	answered bool
	disks    []*simfs.FS // of the machines of the lab, in order
}

func (m moment) String() string { return fmt.Sprintf("before sync %d, %s", m.sync, m.class) }

// roll begins to keep moments.
func (l *lab) roll() *film {
	f := &film{l: l, rolling: true}
	l.lazy = true
	for _, n := range l.nodes {
		f.watch(n)
	}
	return f
}

// watch is for a machine that came after roll.
func (f *film) watch(n *node) {
	n.fs.SetFault(func(op simfs.Op) simfs.Fault {
		if op.Kind != simfs.OpSync {
			return simfs.Fault{}
		}
		return simfs.Fault{Before: f.take}
	})
}

// take keeps two disks of everybody: without all that was not synced, and as another kind of crash in turn
// leaves it.
func (f *film) take() {
	if !f.rolling {
		return
	}
	f.syncs++
	others := simfs.Crashes()[1:]
	for _, class := range []simfs.Crash{simfs.Strict, others[f.syncs%len(others)]} {
		if f.images++; f.images%stride != 0 && f.images > 2 { // the first of all: nothing is begun yet
			continue
		}
		m := moment{sync: f.syncs, class: class, answered: f.answered}
		for i, n := range f.l.nodes {
			m.disks = append(m.disks, n.fs.Crash(class, uint64(f.syncs*len(f.l.nodes)+i)))
		}
		f.moments = append(f.moments, m)
	}
}

// revive starts everybody on the disks of a moment.
func (f *film) revive(t *testing.T, m moment) *lab {
	t.Helper()
	l := &lab{t: t, now: f.l.now.Add(time.Second), cut: map[[2]*node]bool{}, policy: f.l.policy}
	for i, disk := range m.disks {
		was := f.l.nodes[i]
		l.nodes = append(l.nodes, &node{lab: l, name: was.name, addr: was.addr, fs: disk, disks: was.disks, seeks: true})
	}
	for i, n := range l.nodes {
		if f.l.nodes[i] != f.absent || !m.answered {
			n.start()
		}
	}
	return l
}

func (l *lab) end() {
	for _, n := range l.nodes {
		n.stop()
	}
}

// agreed waits until one cluster is left: one leader, whose roster everybody in it has applied and in which
// everybody votes, no change under way, and nobody beside it who takes part. It stays so, in one term.
func (l *lab) agreed() membership.Roster {
	l.t.Helper()
	l.until("one cluster, and no change under way", func() bool { return l.disagreement() == "" })
	term := l.leader().status().Term
	roster := l.leader().m.Roster()
	l.run(4 * time.Second)
	l.write()
	l.until("one cluster still", func() bool { return l.disagreement() == "" })
	leader := l.leader()
	if now := leader.status().Term; now != term {
		l.t.Errorf("term %d, was %d when the change was over", now, term)
	}
	if now := leader.m.Roster(); now.NextID != roster.NextID || len(now.Members) != len(roster.Members) {
		l.t.Errorf("roster %+v, was %+v when the change was over", now, roster)
	}
	return leader.m.Roster()
}

// disagreement says why it is not one cluster at rest; empty: it is.
func (l *lab) disagreement() string {
	leader := l.leading()
	if leader == nil {
		return "no leader"
	}
	s, roster := leader.status(), leader.m.Roster()
	led, ok := leader.m.Membership()
	if !ok || led.Settling != nil || led.Waiting > 0 || membership.Joint(s.Conf) || len(s.Conf.GetLearners()) > 0 {
		return "a change goes on"
	}
	var voters []uint64
	for _, x := range roster.Members {
		voters = append(voters, uint64(x.ID))
		if n := l.holding(x.ID); n == nil || n.driver == nil || n.m.gone() != nil || n.status().Leader != leader.id() || n.m.Roster().Version != roster.Version {
			return fmt.Sprintf("member %s (%s) is not there", x.ID, x.Name)
		}
	}
	if got := slices.Sorted(slices.Values(s.Conf.GetVoters())); !slices.Equal(got, slices.Sorted(slices.Values(voters))) {
		return fmt.Sprintf("voters %v, roster %v", got, voters)
	}
	for _, n := range l.nodes {
		if n.driver == nil {
			continue
		}
		if _, in := roster.Member(n.id()); !in {
			return fmt.Sprintf("member %s takes part and is in no roster", n.id())
		}
	}
	for _, t := range roster.Tombstones {
		if n := l.holding(t.ID); n != nil && n.m.gone() == nil {
			return fmt.Sprintf("member %s does not know that it was removed", t.ID)
		}
	}
	return ""
}

// holding is the machine that is this member.
func (l *lab) holding(id ident.MemberID) *node {
	for _, n := range l.nodes {
		if n.m != nil && n.id() == id {
			return n
		}
	}
	return nil
}

// remove has a member removed, by whoever leads.
func (l *lab) remove(name string) {
	l.t.Helper()
	for {
		c, err := l.do(func(m *Member) (*Verb, error) { return m.BeginRemove(name, RemoveOptions{}) }).Change()
		if isType[*replica.NotLeaderError](err) {
			leader := l.leader()
			l.until("another leader", func() bool { n := l.leading(); return n != nil && (n != leader || n.name != name) })
			continue
		}
		if err != nil || !c.Settled {
			l.t.Fatalf("remove %s: %+v, %v", name, c, err)
		}
		return
	}
}

// everywhere has the power go off at every moment of a film, and reports in how many of them the change had
// been begun for good. judge says whether it had, in the cluster that came of the moment.
func (f *film) everywhere(t *testing.T, judge func(t *testing.T, l *lab) bool) {
	t.Helper()
	done, moments := 0, slices.Clone(f.moments)
	f.each(t, func(t *testing.T, l *lab) {
		m := moments[0]
		moments = moments[1:]
		changed := judge(t, l)
		if m.answered && !changed {
			t.Error("the change was answered, and is undone")
		}
		if changed {
			done++
		}
	})
	t.Logf("%d syncs, %d images: %d changes went through, %d were not begun", f.syncs, len(f.moments), done, len(f.moments)-done)
	if done == 0 || done == len(f.moments) {
		t.Errorf("%d of %d changes went through: want some, and some not", done, len(f.moments))
	}
}

// each has everybody start on the disks of each moment of a film.
func (f *film) each(t *testing.T, judge func(t *testing.T, l *lab)) {
	t.Helper()
	f.rolling = false
	f.l.end()
	for _, m := range f.moments {
		t.Run(m.String(), func(t *testing.T) {
			l := f.revive(t, m)
			defer l.end()
			judge(t, l)
		})
	}
}

// Everybody loses power at any moment of a removal: of a follower, of the leader, and of one of two.
func TestPowerLoss_Removal(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		of     []string
		leader bool
	}{
		{"a follower of three", []string{"n1", "n2", "n3"}, false},
		{"the leader of three", []string{"n1", "n2", "n3"}, true},
		{"one of two", []string{"n1", "n2"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, tc.of...)
			l.write()
			l.run(time.Second)
			victim := l.leader()
			if !tc.leader {
				victim = l.nodes[0]
				if victim == l.leader() {
					victim = l.nodes[1]
				}
			}
			id := victim.id()
			f := l.roll()
			if len(tc.of) == 2 { // the other one goes on alone
				f.absent = victim
			}
			l.remove(victim.name)
			f.answered = true
			l.until("it is told, and that is written down", func() bool {
				s, _ := l.leader().m.Roster().Tombstone(id)
				return victim.m.gone() != nil && s.Acked
			})
			f.everywhere(t, func(t *testing.T, l *lab) bool {
				roster := l.agreed()
				removed := roster.Removed(id)
				if want := len(tc.of) - 1; removed && len(roster.Members) != want || !removed && len(roster.Members) != len(tc.of) {
					t.Errorf("removed %t, roster %+v", removed, roster)
				}
				return removed
			})
		})
	}
}

// Everybody loses power at any moment of a replacement, also in the joint state: of a member whose disk is
// lost, and, by an operator's word, of one that is alive. Never two of them are left, nor none.
func TestPowerLoss_Replacement(t *testing.T) {
	t.Parallel()
	t.Run("a lost disk", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, "n1", "n2", "n3")
		l.write()
		l.run(time.Second)
		lost := l.nodes[0]
		if lost == l.leader() {
			lost = l.nodes[1]
		}
		old := lost.id()
		lost.wipe()
		l.run(l.policy.ReplaceGrace + 2*time.Second)
		lost.start()
		f := l.roll()
		lost.seeks = true
		l.until("it is admitted", func() bool { return lost.driver != nil })
		admitted := lost.id()
		l.voters("n1", "n2", "n3")
		f.rolling = false
		first := 0 // it asks again by itself, so that the change always goes through: some under the first id
		f.each(t, func(t *testing.T, l *lab) {
			roster := l.agreed()
			now, _ := roster.Named(lost.name)
			if !roster.Removed(old) || len(roster.Members) != 3 || now.ID == old || l.holding(now.ID) == nil || l.holding(now.ID).name != lost.name {
				t.Errorf("%s was member %s, roster %+v", lost.name, old, roster)
			}
			if now.ID == admitted {
				first++
			}
		})
		if first == 0 {
			t.Errorf("of %d it never came back under the id %s that it was given first", len(f.moments), admitted)
		}
	})
	t.Run("one that is alive", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, "n1", "n2", "n3")
		l.write()
		l.run(time.Second)
		old := l.nodes[0]
		if old == l.leader() {
			old = l.nodes[1]
		}
		fresh := l.machine(old.name)
		fresh.addr = old.name + "-again:1"
		l.nodes = append(l.nodes, fresh)
		fresh.start()
		f := l.roll()
		if _, err := l.do(func(m *Member) (*Verb, error) {
			return m.BeginReplace(old.name, ReplaceOptions{Override: true})
		}).Change(); err != nil {
			t.Fatal(err)
		}
		fresh.seeks = true
		l.until("it votes, and the old one is told", func() bool {
			x, _ := l.leader().m.Roster().Named(old.name)
			led, ok := l.leader().m.Membership()
			return fresh.driver != nil && x.ID == fresh.id() && x.Role == membership.RoleVoter && old.m.gone() != nil && ok && led.Settling == nil
		})
		f.answered = true
		id := old.id()
		f.everywhere(t, func(t *testing.T, l *lab) bool {
			roster := l.agreed()
			now, ok := roster.Named(old.name)
			if !ok || len(roster.Members) != 3 || roster.Removed(id) == (now.ID == id) {
				t.Errorf("%s was member %s, roster %+v", old.name, id, roster)
			}
			return now.ID != id
		})
	})
}
