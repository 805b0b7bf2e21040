package member

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/replica"
)

// A cluster of one grows to three by joins alone: the leader promotes who has caught up, each once.
func TestRegistrar_JoinersBecomeVoters(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1")
	b, c := l.machine("n2"), l.machine("n3")
	l.write()
	if a := l.join(b, membership.Candidate{}); a.ID != 2 || a.Role != membership.RoleLearner || a.Index == 0 || a.Leader.Name != "n1" {
		t.Errorf("admission %+v", a)
	}
	l.voters("n1", "n2")
	l.join(c, membership.Candidate{})
	l.voters("n1", "n2", "n3")
	for _, n := range l.nodes {
		for _, x := range n.m.Roster().Members {
			if x.BootEpoch == 0 || x.Capabilities != ident.Supported {
				t.Errorf("%s knows of %s: boot %d, capabilities %s", n.name, x.Name, x.BootEpoch, x.Capabilities)
			}
		}
	}
}

// A join that is asked again, here or under the next leader, is answered with the same id, and nothing is
// appended.
func TestRegistrar_JoinIsIdempotent(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3")
	d := l.machine("n4")
	first := l.join(d, membership.Candidate{})
	l.voters("n1", "n2", "n3", "n4")
	version := l.leader().m.Roster().Version
	again := l.join(d, membership.Candidate{})
	if again.ID != first.ID || again.Index != 0 || again.Role != membership.RoleVoter {
		t.Errorf("asked again: %+v, first %+v", again, first)
	}
	if now := l.leader().m.Roster(); now.Version > version+1 { // the restart of n4 may be written down
		t.Errorf("roster %d after %d", now.Version, version)
	}
}

// Joins that arrive together all succeed, one after the other.
func TestRegistrar_JoinsQueue(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3")
	leader := l.leader()
	var verbs []*Verb
	for _, name := range []string{"n4", "n5", "n6", "n7", "n8"} {
		v, err := leader.m.BeginJoin(membership.Candidate{
			Name: name, Incarnation: ident.Incarnation{15: name[1]}, GRPCAddr: name + ":1", HTTPAddr: name + ":2", Capabilities: ident.Supported,
		})
		if err != nil {
			t.Fatal(err)
		}
		verbs = append(verbs, v)
	}
	l.until("all joins", func() bool { return !slices.ContainsFunc(verbs, func(v *Verb) bool { return !v.over() }) })
	ids := map[ident.MemberID]bool{}
	for _, v := range verbs {
		a, err := v.Admission()
		if err != nil {
			t.Error(err)
		}
		ids[a.ID] = true
	}
	if len(ids) != 5 {
		t.Errorf("five joins got the ids %v", ids)
	}
}

// While a change waits for its majority no other begins: whoever asks is told what it waits for.
func TestRegistrar_OneChangeAtATime(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3", "n4", "n5")
	l.run(2 * time.Second)
	leader := l.leader()
	var others []*node
	for _, n := range l.nodes {
		if n != leader {
			others = append(others, n)
			n.noApply = true
		}
	}
	v, err := leader.m.BeginRemove(others[0].name, RemoveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l.until("the removal to be applied", func() bool { return len(leader.m.Roster().Members) == 4 })
	l.run(time.Second)
	if v.over() {
		t.Error("a removal was answered before a majority of the new voters had applied it")
	}
	if m, _ := leader.m.Membership(); m.Settling == nil || m.Settling.Quorum.Up != 1 || m.Settling.Quorum.Needed != 3 {
		t.Errorf("settling: %+v", m.Settling)
	}
	if others[0].m.gone() != nil {
		t.Error("a member was told that it is removed before that was settled")
	}
	if _, err := l.do(func(m *Member) (*Verb, error) { return m.BeginRemove(others[1].name, RemoveOptions{}) }).Change(); !isType[*membership.ChangeInProgressError](err) {
		t.Errorf("a second removal: %v", err)
	}
	for _, n := range others {
		n.noApply = false
	}
	l.until("the removal", v.over)
	if c, err := v.Change(); err != nil || !c.Settled || c.Index == 0 {
		t.Errorf("removal: %+v, %v", c, err)
	}
}

// A leader that has not looked at the membership yet, as in its first moment, says what settles all the same.
func TestRegistrar_LeaderSaysWhatSettlesBeforeItLooked(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3", "n4", "n5")
	l.run(2 * time.Second)
	leader := l.leader()
	for _, n := range l.nodes {
		n.noApply = n != leader
	}
	if _, err := leader.m.BeginRemove(l.other(leader).name, RemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	l.until("the removal to be applied", func() bool { return len(leader.m.Roster().Members) == 4 })
	leader.m.registrar.lose(replica.ErrClosed, replica.ErrClosed) // as where it begins to lead
	if m, ok := leader.m.Membership(); !ok || m.Settling == nil || m.Settling.Quorum.Voters != 4 || m.Settling.Quorum.Up != 1 {
		t.Errorf("membership: %v, settling %+v", ok, m.Settling)
	}
}

// A verb that is asked of a leader before that has looked for the first time is that leader's to do: whoever
// forwarded it here would wait for another leader in vain.
func TestRegistrar_NewLeaderKeepsWhatItWasAsked(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3")
	l.run(2 * time.Second)
	leader := l.leader()
	leader.m.registrar.lose(replica.ErrClosed, replica.ErrClosed) // as where it begins to lead
	v, err := leader.m.BeginRemove(l.other(leader).name, RemoveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l.until("the removal", v.over)
	if c, err := v.Change(); err != nil || !c.Settled {
		t.Errorf("removal: %+v, %v", c, err)
	}
}

func isType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// Asked for by hand while the leader does it by itself, there is still one promotion.
func TestRegistrar_PromotionIsDoneOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1")
	d := l.machine("n2")
	l.join(d, membership.Candidate{})
	version := l.leader().m.Roster().Version
	for range 20 {
		l.step()
		v, err := l.leader().m.BeginPromote("n2", false)
		if err != nil {
			t.Fatal(err)
		}
		l.until("the promotion", v.over)
		_, err = v.Change()
		if err != nil && !isType[*membership.ChangeInProgressError](err) && !isType[*membership.UnsafeError](err) {
			t.Fatal(err)
		}
	}
	l.voters("n1", "n2")
	if now := l.leader().m.Roster().Version; now != version+2 { // what n2 said of itself, and the promotion
		t.Errorf("roster %d after %d", now, version)
	}
}

// The leader promotes a learner by itself, and somebody asks for it by hand, twice, at whatever moment: there is
// one promotion, and whoever asked is told of it, or of a number that says why not yet.
func TestRegistrar_PromotionRace(t *testing.T) {
	t.Parallel()
	outcomes := map[string]int{}
	for race := range 200 {
		l := newLab(t, "n1")
		l.join(l.machine("n2"), membership.Candidate{})
		version := l.leader().m.Roster().Version
		for range 16 + race%16 {
			l.step()
		}
		var verbs []*Verb
		for range 2 {
			v, err := l.leader().m.BeginPromote("n2", false)
			if err != nil {
				t.Fatal(err)
			}
			verbs = append(verbs, v)
			for range race % 8 {
				l.step()
			}
		}
		l.voters("n1", "n2")
		for _, v := range verbs {
			l.until("an answer", v.over)
			switch c, err := v.Change(); {
			case err == nil && c.Member.Role == membership.RoleVoter && c.Index == 0:
				outcomes["it votes already"]++
			case err == nil && c.Member.Role == membership.RoleVoter:
				outcomes["promoted"]++
			case isType[*membership.ChangeInProgressError](err):
				outcomes["in progress"]++
			case isType[*membership.UnsafeError](err):
				outcomes["not yet"]++
			default:
				t.Errorf("race %d: %+v, %v", race, c, err)
			}
		}
		if now := l.leader().m.Roster().Version; now != version+2 { // what n2 said of itself, and the promotion
			t.Errorf("race %d: roster %d after %d", race, now, version)
		}
		for _, n := range l.nodes {
			n.stop()
		}
	}
	t.Logf("%v", outcomes)
}

// The leader goes last: it hands over, and the new leader removes it. It is told, acknowledges, and is
// out for good, restarts included.
func TestRegistrar_RemovesTheLeader(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3")
	l.run(time.Second)
	old := l.leader()
	term := old.status().Term
	_, err := l.do(func(m *Member) (*Verb, error) { return m.BeginRemove(old.name, RemoveOptions{}) }).Change()
	e, ok := errors.AsType[*replica.NotLeaderError](err)
	if !ok || e.Leader == old.id() {
		t.Fatalf("the leader removes itself: %v", err)
	}
	now := l.leader()
	if now == old {
		t.Fatal("the leader did not hand over")
	}
	if c, err := l.do(func(m *Member) (*Verb, error) { return m.BeginRemove(old.name, RemoveOptions{}) }).Change(); err != nil || !c.Settled {
		t.Fatalf("removal: %+v, %v", c, err)
	}
	l.until("the acknowledgement", func() bool {
		s, ok := now.m.Roster().Tombstone(old.id())
		return ok && s.Told && s.Acked
	})
	s := old.m.Status()
	if s.Phase != PhaseRemoved || s.Removed == nil || s.Ready || len(s.NotReady) == 0 {
		t.Errorf("the removed member says %+v", s)
	}
	old.stop()
	old.start()
	if _, err := old.m.Replica(0); !errors.Is(err, ErrRemoved) || old.m.Status().Phase != PhaseRemoved {
		t.Errorf("after a restart: %v, %s", err, old.m.Status().Phase)
	}
	l.run(5 * time.Second)
	if got := l.leader().status().Term; got > term+1 {
		t.Errorf("term %d, before the removal %d: more than the handover moved it", got, term)
	}
}

// A member that was cut off during its removal, and whose elections have gone round meanwhile, disturbs
// nobody when it is back: it is told, and writes that down.
func TestRegistrar_ARemovedMemberDisturbsNobody(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3")
	l.run(time.Second)
	leader := l.leader()
	var away *node
	for _, n := range l.nodes {
		if n != leader {
			away = n
		}
	}
	l.isolate(away, true)
	l.run(2 * time.Second)
	if _, err := l.do(func(m *Member) (*Verb, error) { return m.BeginRemove(away.name, RemoveOptions{}) }).Change(); err != nil {
		t.Fatal(err)
	}
	away.stop() // the leader forgets where it was, too
	away.start()
	l.run(30 * time.Second)
	term := l.leader().status().Term
	l.isolate(away, false)
	l.until("the notice", func() bool {
		s, _ := l.leader().m.Roster().Tombstone(away.id())
		return away.m.gone() != nil && s.Acked
	})
	l.run(5 * time.Second)
	if got := l.leader().status().Term; got != term {
		t.Errorf("term %d, was %d", got, term)
	}
}

// From two to one: the survivor goes on alone, also after a loss of power.
func TestRegistrar_TwoBecomeOne(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2")
	l.run(time.Second)
	leader := l.leader()
	gone := l.nodes[0]
	if gone == leader {
		gone = l.nodes[1]
	}
	if c, err := l.do(func(m *Member) (*Verb, error) { return m.BeginRemove(gone.name, RemoveOptions{}) }).Change(); err != nil || !c.Settled {
		t.Fatalf("removal: %+v, %v", c, err)
	}
	again, err := l.do(func(m *Member) (*Verb, error) { return m.BeginRemove(gone.name, RemoveOptions{}) }).Change()
	if err != nil || !again.Settled || again.Index != 0 || again.Member.ID != gone.id() {
		t.Errorf("removed again: %+v, %v, want member %d and nothing written", again, err, gone.id())
	}
	gone.stop()
	leader.stop()
	leader.start()
	l.write()
}

// A member whose disk is gone comes back under a new id in the place of the old one: never fewer voters,
// and the old id is removed once raft has left the joint configuration.
func TestRegistrar_ReplacesALostDisk(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3")
	l.run(time.Second)
	leader := l.leader()
	var lost *node
	for _, n := range l.nodes {
		if n != leader {
			lost = n
		}
	}
	old := lost.id()
	lost.wipe()
	lost.start()
	c := membership.Candidate{Name: lost.name, Incarnation: lost.dir.Member().Incarnation, GRPCAddr: lost.addr, HTTPAddr: lost.name + ":2", Capabilities: ident.Supported}
	if _, err := l.do(func(m *Member) (*Verb, error) { return m.BeginJoin(c) }).Admission(); !isType[*membership.NameTakenError](err) {
		t.Fatalf("at once: %v, want it refused: the old one may be alive", err)
	}
	l.run(l.policy.ReplaceGrace + 2*time.Second)
	a := l.join(lost, membership.Candidate{})
	if a.ID <= old || a.Role != membership.RoleLearner {
		t.Fatalf("admitted as %+v, was %s", a, old)
	}
	l.voters("n1", "n2", "n3")
	if r := l.leader().m.Roster(); !r.Removed(old) {
		t.Errorf("roster %+v still has member %s", r, old)
	}
	l.write()
}

// An operator gives up a member that is alive: its old self is told when its vote does not count any more.
func TestRegistrar_ReplacesALiveMember(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3")
	l.run(time.Second)
	old := l.leader()
	if _, err := l.do(func(m *Member) (*Verb, error) { return m.BeginReplace(old.name, ReplaceOptions{}) }).Change(); !isType[*membership.UnsafeError](err) {
		t.Fatalf("a live member counts as lost: %v", err)
	}
	if c, err := l.do(func(m *Member) (*Verb, error) {
		return m.BeginReplace(old.name, ReplaceOptions{Override: true})
	}).Change(); err != nil || len(c.Checks) != 1 || c.Checks[0].OK {
		t.Fatalf("overridden: %+v, %v", c, err)
	}
	fresh := l.machine(old.name)
	fresh.addr = old.name + "-again:1"
	l.join(fresh, membership.Candidate{})
	l.voters("n1", "n2", "n3")
	l.until("the old self to be told", func() bool { return old.m.gone() != nil })
	if now, _ := l.leader().m.Roster().Named(old.name); now.ID != fresh.id() || now.GRPCAddr != fresh.addr {
		t.Errorf("%s is %+v, want member %s at %s", old.name, now, fresh.id(), fresh.addr)
	}
}

// Everybody loses power in the joint state. What was in force is in the state of each, so that raft goes
// on from it; the roles of the roster would not say it.
func TestRegistrar_PowerLostInTheJointState(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3")
	l.run(time.Second)
	leader := l.leader()
	var lost *node
	for _, n := range l.nodes {
		if n != leader {
			lost = n
		}
	}
	lost.wipe()
	l.run(l.policy.ReplaceGrace + 2*time.Second)
	l.join(lost, membership.Candidate{})
	n := l.stopJoint(l.nodes...)
	want := n.status().Conf
	if _, err := n.currentStore().Flush(); err != nil {
		t.Fatal(err)
	}
	l.mail = nil
	for _, x := range l.nodes {
		x.stop()
	}
	n.start()
	if got := n.status().Conf; got.Equivalent(want) != nil {
		t.Errorf("opened with %v, was %v", got, want)
	}
	for _, x := range l.nodes {
		if x != n {
			x.start()
		}
	}
	l.voters("n1", "n2", "n3")
	l.write()
}

// The leader dies in the joint state, and stays away. Whoever comes after it leaves that state, and buries
// the old member: one change, whoever carries it on.
func TestRegistrar_TheLeaderDiesInTheJointState(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3", "n4", "n5")
	l.run(time.Second)
	var lost *node
	for _, n := range l.nodes {
		if n != l.leader() {
			lost = n
		}
	}
	old := lost.id()
	lost.wipe()
	l.run(l.policy.ReplaceGrace + 2*time.Second)
	l.join(lost, membership.Candidate{})
	leader := l.leader()
	l.stopJoint(leader)
	leader.stop()
	l.mail = nil
	l.until("the end of the replacement under another leader", func() bool {
		now := l.leader()
		m, ok := now.m.Membership()
		x, _ := now.m.Roster().Named(lost.name)
		return now != leader && ok && m.Settling == nil && x.ID == lost.id() && x.Role == membership.RoleVoter && now.m.Roster().Removed(old)
	})
	leader.start()
	l.voters("n1", "n2", "n3", "n4", "n5")
	l.write()
}

func (n *node) currentStore() interface{ Flush() (uint64, error) } { return n.m.sound(0).store }

// A learner that was announced and never started blocks nobody, and is gone after its time.
func TestRegistrar_ALearnerThatNeverComesExpires(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1")
	l.policy.LearnerTTL = 20 * time.Second
	l.nodes[0].stop()
	l.nodes[0].start()
	ghost := membership.Candidate{Name: "ghost", Incarnation: ident.Incarnation{1}, GRPCAddr: "ghost:1", HTTPAddr: "ghost:2", Capabilities: ident.Supported}
	if _, err := l.do(func(m *Member) (*Verb, error) { return m.BeginJoin(ghost) }).Admission(); err != nil {
		t.Fatal(err)
	}
	l.write()
	l.join(l.machine("n2"), membership.Candidate{})
	l.until("n2 votes and the ghost is gone", func() bool {
		r := l.leader().m.Roster()
		n2, _ := r.Named("n2")
		s, buried := r.Buried("ghost")
		return n2.Role == membership.RoleVoter && buried && s.Expired
	})
}

// watcher is a consumer of artifacts that lets time pass with every chunk.
type watcher struct {
	chunks int
	each   func()
}

func (*watcher) Header(peer.SnapshotHeader) error { return nil }

func (w *watcher) Chunk(peer.SnapshotChunk) error {
	w.chunks++
	w.each()
	return nil
}

// A learner whose first data arrives, which takes longer than it may be silent, is not one that never came.
// It has no stream yet: asking for the data is all that is heard of it.
func TestRegistrar_ALearnerThatInstallsDoesNotExpire(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1")
	l.policy.LearnerTTL = 20 * time.Second
	l.nodes[0].stop()
	l.nodes[0].start()
	leader := l.leader()
	admit := func(name string) Admission {
		a, err := l.do(func(m *Member) (*Verb, error) {
			return m.BeginJoin(membership.Candidate{Name: name, Incarnation: ident.Incarnation{name[0]}, GRPCAddr: name + ":1", HTTPAddr: name + ":2", Capabilities: ident.Supported})
		}).Admission()
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	slow, silent := admit("slow"), admit("never")
	w := &watcher{each: func() { l.run(15 * time.Second) }}
	hello := peer.Hello{
		Cluster: slow.Cluster, Member: slow.ID, Incarnation: ident.Incarnation{'s'}, Name: "slow", BootEpoch: 1,
		Capabilities: ident.Supported, GRPCAddr: "slow:1", HTTPAddr: "slow:2", RosterVersion: leader.m.Roster().Version,
	}
	if err := leader.m.FetchSnapshot(t.Context(), peer.SnapshotRequest{Hello: hello, Always: true}, w); err != nil || w.chunks < 3 {
		t.Fatalf("%d chunks, %v", w.chunks, err)
	}
	l.run(15 * time.Second)
	r := l.leader().m.Roster()
	if x, ok := r.Member(slow.ID); !ok || x.Role != membership.RoleLearner || x.BootEpoch != 1 {
		t.Errorf("who installs is %+v", x)
	}
	if _, ok := r.Member(silent.ID); ok {
		t.Error("who was never heard of is a member still")
	}
}

// A learner that has its data, and that nobody ever heard of because it is cut off, expires. When it is back
// it is told so, and joins again by itself, under a new id.
func TestRegistrar_AnExpiredLearnerJoinsAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1")
	l.policy.LearnerTTL = 20 * time.Second
	l.nodes[0].stop()
	l.nodes[0].start()
	late := l.machine("n2")
	was := l.join(late, membership.Candidate{}).ID
	l.nodes[0].m.contacts.change(was, func(c *contact) { *c = contact{} }) // the leader has not heard it
	l.isolate(late, true)
	l.until("it has expired", func() bool {
		s, buried := l.leader().m.Roster().Buried("n2")
		return buried && s.Expired
	})
	incarnation := late.dir.Member().Incarnation
	l.isolate(late, false)
	l.voters("n1", "n2")
	if id := late.dir.Member(); id.ID == was || id.Incarnation != incarnation || late.m.gone() != nil {
		t.Errorf("it is member %s with incarnation %s now, was %s with %s", id.ID, id.Incarnation, was, incarnation)
	}
	l.write()
	late.stop()
	late.start()
	l.write()
}

// A member that starts at another address announces it, and is found there; nobody else restarts.
func TestRegistrar_AddressChange(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3")
	l.run(time.Second)
	leader := l.leader()
	term := leader.status().Term
	var moved *node
	for _, n := range l.nodes {
		if n != leader {
			moved = n
		}
	}
	moved.stop()
	moved.addr = "elsewhere:1"
	moved.start()
	l.until("the new address in every roster", func() bool {
		for _, n := range l.nodes {
			if x, _ := n.m.Roster().Named(moved.name); x.GRPCAddr != moved.addr {
				return false
			}
		}
		return true
	})
	l.write()
	l.until("the log at the new address", func() bool { return moved.status().Commit == leader.status().Commit })
	if got := leader.status().Term; got != term {
		t.Errorf("term %d, was %d", got, term)
	}
}

// A member that was away while the whole membership changed hears its new leader, which it does not know.
func TestRegistrar_AMemberThatIsBehindHearsANewLeader(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3")
	l.run(time.Second)
	away := l.node("n3")
	if l.leader() == away {
		if _, err := l.do(func(m *Member) (*Verb, error) { return m.BeginRemove("n3", RemoveOptions{}) }).Change(); !isType[*replica.NotLeaderError](err) {
			t.Fatal(err)
		}
		l.until("another leader", func() bool { return l.leader() != away })
	}
	away.stop()
	l.join(l.machine("n4"), membership.Candidate{})
	l.voters("n1", "n2", "n3", "n4")
	l.join(l.machine("n5"), membership.Candidate{})
	l.voters("n1", "n2", "n3", "n4", "n5")
	for _, name := range []string{"n1", "n2"} {
		l.node(name).stop()
	}
	away.start()
	l.leader()
	l.write()
}

// A learner whose state nobody has compared does not become a voter; once it was compared it does, also
// where nobody writes.
func TestRegistrar_PromotesWhoIsVerified(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1")
	l.noDigests = true
	d := l.machine("n2")
	l.join(d, membership.Candidate{})
	l.run(10 * time.Second)
	m, ok := l.leader().m.Membership()
	if p := m.Pending[d.id()]; !ok || p.Reason != membership.PendingUnverified {
		t.Errorf("the state of n2 was never compared, and it waits for %+v", p)
	}
	l.noDigests = false
	l.voters("n1", "n2")
}
