package member

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/state"
)

// alter has a machine start again with a row that nobody wrote, and a digest that fits it.
func (n *node) alter() {
	n.lab.t.Helper()
	gen, _, err := n.m.current(0).keeper.files.Current()
	if err != nil {
		n.lab.t.Fatal(err)
	}
	n.stop()
	s, err := state.Open(state.Options{FS: n.fs, Dir: fmt.Sprintf("/data/groups/0/state-%06d", gen.State), Foreground: true})
	if err != nil {
		n.lab.t.Fatal(err)
	}
	key, value := entity.AppendItemKey(nil, 1, "nobody wrote it"), []byte("something")
	pos := s.Position()
	pos.Digest.Sums = slices.Clone(pos.Digest.Sums)
	var h state.Summer
	sum, _ := entity.SumOf(key)
	pos.Digest.Sums[sum] = pos.Digest.Sums[sum].Plus(h.Pair(key, value))
	b := s.NewBatch()
	b.Set(key, value)
	if err := errors.Join(b.Commit(pos), b.Close(), s.Close()); err != nil {
		n.lab.t.Fatal(err)
	}
	n.start()
}

// blamed are the names of the machines that were in quarantine since they started.
func (l *lab) blamed() (names []string) {
	for _, n := range l.nodes {
		if n.m != nil && len(told[journal.Quarantined](n.m)) > 0 {
			names = append(names, n.name)
		}
	}
	return names
}

// Whoever reports something else than a majority of the voters is quarantined, a learner too, and nobody
// else; a learner does not vote before its data was replaced and compared.
func TestJudgeSelf_BlamesWhoDiffers(t *testing.T) {
	t.Parallel()
	for _, role := range []membership.Role{membership.RoleVoter, membership.RoleLearner} {
		t.Run(role.String(), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, "n1", "n2", "n3")
			x := l.other(l.leader())
			if role == membership.RoleLearner {
				x = l.machine("n4")
				l.noDigests = true
				l.join(x, membership.Candidate{})
			}
			x.alter()
			l.noDigests = false
			l.until("somebody is blamed", func() bool { return len(l.blamed()) > 0 })
			if got := l.blamed(); !slices.Equal(got, []string{x.name}) {
				t.Fatalf("%v are blamed, want %s alone", got, x.name)
			}
			if f := told[journal.Quarantined](x.m)[0]; f.Cause != string(CauseDivergent) {
				t.Errorf("quarantined for %s", f.Cause)
			}
			if m, _ := l.leader().m.Roster().Member(x.id()); m.Role != role {
				t.Errorf("it is a %s, and was a %s", m.Role, role)
			}
			l.until("its data was replaced", func() bool { return len(told[journal.QuarantineEnded](x.m)) > 0 })
			names := []string{"n1", "n2", "n3"}
			if role == membership.RoleLearner {
				names = append(names, x.name)
			}
			l.voters(names...)
			if got := l.blamed(); len(got) != 1 {
				t.Errorf("%v were blamed", got)
			}
		})
	}
}

// Where two voters differ and there is no third, nobody is blamed and nobody is promoted, until an operator
// says whose state is right.
func TestUnresolved_WaitsForAnOperator(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2")
	leader := l.leader()
	x := l.other(leader)
	x.alter()
	l.until("it is seen that they differ", func() bool { return len(told[journal.Unresolved](leader.m)) > 0 })
	d := l.machine("n3")
	l.join(d, membership.Candidate{})
	l.run(10 * time.Second)
	if leader != l.leader() {
		t.Fatal("another member leads now: the test shows nothing")
	}
	m, _ := leader.m.Membership()
	if p := m.Pending[d.id()]; p.Reason != membership.PendingUnverified {
		t.Errorf("the learner waits for %+v", p)
	}
	if got := l.blamed(); len(got) > 0 {
		t.Errorf("%v are blamed", got)
	}
	leader.replica.Check(leader.id())
	l.until("somebody is blamed", func() bool { return len(l.blamed()) > 0 })
	l.voters("n1", "n2", "n3")
	if got := l.blamed(); !slices.Equal(got, []string{x.name}) {
		t.Errorf("%v were blamed, want %s alone", got, x.name)
	}
}
