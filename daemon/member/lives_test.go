package member

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/peer"
)

// memberships are the bytes of the membership wherever a member has one: in its state, and in what it goes by.
type memberships struct{ stateRoster, roster, stateConf, conf string }

func (n *node) memberships() memberships {
	n.lab.t.Helper()
	v := n.replica.View()
	defer v.Close()
	roster, _, err := v.Get(entity.RosterKey())
	if err != nil {
		n.lab.t.Fatal(err)
	}
	conf := func(c *pb.ConfState) string {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(c)
		if err != nil {
			n.lab.t.Fatal(err)
		}
		return string(b)
	}
	return memberships{string(roster), string(n.m.Roster().Encode()), conf(v.Position().Conf), conf(n.status().Conf)}
}

// oneMembership waits until everybody who runs has the same membership as its leader, byte for byte.
func (l *lab) oneMembership() memberships {
	l.t.Helper()
	var want memberships
	l.until("one membership", func() bool {
		want = l.leader().memberships()
		for _, n := range l.nodes {
			if n.m != nil && n.m.gone() == nil && (n.replica == nil || n.memberships() != want) {
				return false
			}
		}
		return want.stateRoster == want.roster && want.stateConf == want.conf
	})
	return want
}

// There is one place where the membership is kept, the state. After a promotion, a removal, and a disk that came
// back empty and was installed from an artifact, every member has the same bytes of it; so it is long after, and
// after a restart of everybody beside a file of addresses that tells of former times.
func TestRegistrar_OneMembership(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1")
	stale := l.nodes[0].m.Roster().Encode()
	for _, name := range []string{"n2", "n3", "n4"} {
		l.join(l.machine(name), membership.Candidate{})
	}
	l.voters("n1", "n2", "n3", "n4")
	l.oneMembership()

	var removed, lost *node
	for _, n := range l.nodes {
		switch {
		case n == l.leader():
		case removed == nil:
			removed = n
		default:
			lost = n
		}
	}
	if _, err := l.do(func(m *Member) (*Verb, error) { return m.BeginRemove(removed.name, RemoveOptions{}) }).Change(); err != nil {
		t.Fatal(err)
	}
	l.until("the removed one to know", func() bool { return removed.m.gone() != nil })
	lost.wipe()
	l.run(l.policy.ReplaceGrace + 2*time.Second)
	l.join(lost, membership.Candidate{})
	var left []string
	for _, n := range l.nodes {
		if n != removed {
			left = append(left, n.name)
		}
	}
	slices.Sort(left)
	l.voters(left...)
	was := l.oneMembership()

	l.run(16 * time.Minute) // whatever has a time of its own is over
	if now := l.oneMembership(); now != was {
		t.Error("the membership has changed by itself")
	}
	for _, n := range l.nodes {
		if err := n.dir.CacheRoster(stale); err != nil {
			t.Fatal(err)
		}
		n.stop()
	}
	for _, n := range l.nodes {
		n.start()
		if n == removed {
			if n.m.gone() == nil {
				t.Errorf("%s does not know any more that it was removed", n.name)
			}
			continue
		}
		if now := n.memberships(); now.roster != was.roster || now.conf != was.conf {
			t.Errorf("%s opens with another membership than it had: %+v", n.name, n.m.Roster())
		}
	}
	l.write()
	l.oneMembership()
}

// A name that was removed comes again, and the log that its new life replays holds the removal of the old one,
// for the artifact that it begins with is from before. It tells the two apart by their ids and incarnations, and
// stays; so it does after a restart, and where it is one of two.
func TestRegistrar_ANewLifeReplaysTheRemovalOfTheOldOne(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{{"n1", "n2"}, {"n1", "n2", "n3"}} {
		t.Run(fmt.Sprint(len(names)), func(t *testing.T) {
			l := newLab(t, names...)
			l.run(time.Second)
			leader := l.leader()
			again := l.node("n1")
			if again == leader {
				again = l.node("n2")
			}
			old := again.id()
			lease, err := leader.m.sound(0).stager.Lend(old, 0) // somebody has fetched one
			if err != nil {
				t.Fatal(err)
			}
			lease.Close(false)
			removal, err := l.do(func(m *Member) (*Verb, error) { return m.BeginRemove(again.name, RemoveOptions{}) }).Change()
			if err != nil {
				t.Fatal(err)
			}
			again.wipe()
			l.join(again, membership.Candidate{Rejoin: true})
			if joined := told[journal.Joined](again.m); len(joined) != 1 || joined[0].Index >= removal.Index {
				t.Fatalf("joined %+v, the removal is at index %d: nothing of it is replayed", joined, removal.Index)
			}
			l.voters(names...)
			for _, restart := range []bool{false, true} {
				if restart {
					again.stop()
					again.start()
				}
				l.run(5 * time.Second)
				l.write()
				if again.m.gone() != nil || again.replica == nil || again.id() == old {
					t.Fatalf("restarted %t: member %s, was %s, has left: %+v", restart, again.id(), old, again.m.gone())
				}
			}
			if r := again.m.Roster(); !r.Removed(old) {
				t.Errorf("its roster %+v does not say that member %s is removed", r, old)
			}
		})
	}
}

// Why a learner does not vote yet is the cause, not what was noticed first: nothing comes from it, a certificate
// is in the way, or it gets less than is written, with how much less.
func TestRegistrar_SaysWhatAPromotionWaitsFor(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1")
	l.policy.PromoteLag = 5
	l.nodes[0].stop()
	l.nodes[0].start()
	leader := l.leader()
	late := l.machine("n2")
	l.join(late, membership.Candidate{})
	late.noSync = true // it answers, and has nothing more on its disk than it had
	var p membership.Pending
	reason := func(want string, while func()) {
		t.Helper()
		l.until("the reason "+want, func() bool {
			while()
			m, ok := leader.m.Membership()
			p = m.Pending[late.id()]
			return ok && p.Reason == want
		})
	}
	reason(membership.PendingFallingBehind, l.write)
	if p.Lag <= 5 || p.Rate >= 0 || p.ETA != 0 {
		t.Errorf("falling behind: %+v, want more than 5 entries, a rate below 0 and no end in sight", p)
	}
	reached := func(f peer.Failure, detail string) {
		leader.m.PeerChanged(peer.PeerStatus{Peer: peer.Peer{ID: late.id(), Addr: late.addr}, Failure: f, Detail: detail})
	}
	l.isolate(late, true)
	reached(peer.FailureTimeout, "no answer within 1s")
	reason(membership.PendingNoContact, func() {})
	if want := "n2 has not answered the leader for an election timeout; it is not reached: timeout: no answer within 1s"; p.Detail != want {
		t.Errorf("no contact: %q, want %q", p.Detail, want)
	}
	reached(peer.FailureTLS, "x509: certificate has expired")
	reason(membership.PendingTLS, func() {})
	if want := "n2 has not answered the leader for an election timeout; it is not reached: tls: x509: certificate has expired"; p.Detail != want {
		t.Errorf("behind a certificate: %q, want %q", p.Detail, want)
	}
	late.noSync = false
	l.isolate(late, false)
	leader.m.PeerChanged(peer.PeerStatus{Peer: peer.Peer{ID: late.id(), Addr: late.addr}, Connected: true})
	l.voters("n1", "n2")
}

// applied is how far the state of a member is, installs how often it was replaced.
func (n *node) applied() uint64 { return n.status().Applied }

func (n *node) installs() uint64 {
	_, installs := n.m.current(0).keeper.keptNow()
	return installs
}

// An artifact that takes far longer to take in than anything waits for, while its source has long sent all of it,
// is taken in once: the leader asks again and again, hears that the member is there, and begins nothing anew.
func TestReseed_IsNotBegunAnewWhileItTakesItsTime(t *testing.T) {
	t.Parallel()
	l := newLabWith(t, Retention{LogBytes: 64 << 10}, "n1", "n2", "n3")
	l.run(time.Second)
	late := l.other(l.leader())
	had := late.status().Last
	late.stop()
	l.fill(40)
	l.until("the log without what it needs", func() bool { return l.leader().m.sound(0).log.FirstIndex() > had+1 })
	leader, chunks := l.leader(), 0
	late.fetched = 0
	late.slow = func() {
		chunks++
		l.run(20 * time.Second)
		if l.leader() != leader {
			t.Fatal("another member leads now: the test shows nothing")
		}
		for _, p := range leader.status().Progress {
			if p.ID == late.id() && !p.Active {
				t.Error("it is not heard while it takes in an artifact")
			}
		}
	}
	late.start()
	caughtUp := func() bool {
		return late.replica != nil && late.m.sound(0) != nil && late.applied() == leader.applied()
	}
	l.until("it has caught up", caughtUp)
	l.run(10 * time.Second)
	if !caughtUp() || chunks < 2 || late.fetched != 1 || late.installs() != 1 {
		t.Errorf("it has caught up: %t, by %d chunks of %d artifacts, %d of them installed; want one", caughtUp(), chunks, late.fetched, late.installs())
	}
}

// A member whose state hangs back is not given up: its log takes what is written, it answers, and says how far
// its state is; it keeps what it has still to apply although the leader does not, and needs no artifact
// afterwards.
func TestReplica_ASlowStateIsNotGivenUp(t *testing.T) {
	t.Parallel()
	l := newLabWith(t, Retention{LogBytes: 64 << 10}, "n1", "n2", "n3")
	l.run(time.Second)
	leader := l.leader()
	slow := l.other(leader)
	slow.noApply = true
	hung := slow.applied()
	l.fill(60)
	l.until("a log of the leader that begins beyond it", func() bool { return leader.m.sound(0).log.FirstIndex() > hung+10 })
	l.run(10 * time.Second)
	last := leader.status().Last
	progress := func() string {
		for _, p := range leader.status().Progress {
			if p.ID == slow.id() {
				return fmt.Sprintf("match %d, active %t, %s", p.Match, p.Active, p.State)
			}
		}
		return "none"
	}
	if want := fmt.Sprintf("match %d, active true, StateReplicate", last); progress() != want {
		t.Errorf("the leader has it at %s, want %s", progress(), want)
	}
	// What was on its way when the state stopped may still have been applied.
	if s := slow.status(); s.Applied > hung+2 || s.LeaderLast != last || slow.m.sound(0).log.FirstIndex() > s.Applied+1 {
		t.Errorf("it says applied %d, of %d, its log begins at %d; want that %d is applied and all that follows is kept",
			s.Applied, s.LeaderLast, slow.m.sound(0).log.FirstIndex(), hung)
	}
	if r := leader.m.contacts.get(slow.id()).report; r.Applied > hung+2 {
		t.Errorf("it has reported that %d is applied, want %d", r.Applied, hung)
	}
	slow.noApply = false
	l.until("it has caught up", func() bool { return slow.applied() == leader.applied() })
	if n := slow.installs(); n != 0 || slow.fetched != 0 || len(told[journal.ReseedRequired](slow.m)) != 0 {
		t.Errorf("%d installs, %d artifacts fetched", n, slow.fetched)
	}
}

// Nothing holds the log up for good: not a consumer that never comes up to its artifact, not a member that stays
// behind, not a state that nobody has flushed. What its consumers lose by that is counted and told.
func TestKeeper_TheLogStaysBounded(t *testing.T) {
	t.Parallel()
	const most = 256 << 10
	l := newLabWith(t, Retention{LogBytes: 64 << 10, PinBytes: most}, "n1", "n2", "n3")
	l.run(time.Second)
	leader := l.leader()
	away := l.other(leader)
	away.stop()
	l.fill(1) // which the artifact holds, and its log does not
	lease, err := leader.m.sound(0).stager.Lend(away.id(), 0)
	if err != nil {
		t.Fatal(err)
	}
	lease.Close(true) // it has all of it, and is gone
	g := leader.m.sound(0)
	pinned := g.stager.Announce()
	for range 20 {
		l.fill(5)
		l.run(time.Second)
		if size := g.log.BytesAfter(g.log.Base().Index); size > most+3*(64<<10) {
			t.Fatalf("the log has %d bytes from %d on, the cap is %d", size, g.log.FirstIndex(), most)
		}
		if g.log.FirstIndex() > pinned {
			break
		}
	}
	if ended := told[journal.PinEnded](leader.m); g.log.FirstIndex() == pinned || len(ended) != 1 || ended[0].ID != away.id() {
		t.Errorf("the log begins at %d still, was pinned at %d; told: %+v", g.log.FirstIndex(), pinned, ended)
	}
	away.start()
	l.until("it has caught up, by another artifact", func() bool {
		return away.replica != nil && away.m.sound(0) != nil && away.applied() == leader.applied()
	})
	for _, n := range l.nodes { // the others keep their logs for the leader's sake alone
		if ended := told[journal.PinEnded](n.m); n != leader && len(ended) > 0 {
			t.Errorf("%s tells of %+v", n.name, ended)
		}
	}
}

// A reseed does not take the room that its member needs to go on taking what a leader sends: it waits, says how
// much is free and how much it needs, and its member votes on meanwhile.
func TestReseed_LeavesTheRoomThatItsMemberNeeds(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3")
	l.run(time.Second)
	l.fill(10)
	x := l.other(l.leader())
	x.stop()
	last := reserveOf(10 * gib).last
	x.usage = &vfs.DiskUsage{TotalBytes: 10 * gib, AvailBytes: last + 10<<10} // enough for a tenth of it
	x.start()
	l.write()
	if err := x.m.Reseed(0, 0); err != nil {
		t.Fatal(err)
	}
	var waits string
	l.until("the reason why it waits", func() bool {
		if r, _ := x.m.current(0).keeper.status(); r != nil {
			waits = r.Failure
		}
		return waits != "" || x.installs() > 0
	})
	l.run(5 * time.Second)
	l.write()
	x.m.MeasureDisk()
	if d := x.m.disk(); !strings.Contains(waits, "bytes of disk") || d.Exhausted || x.installs() != 0 || x.m.sound(0) == nil {
		t.Errorf("it waits for %q; %d installs, disk %+v", waits, x.installs(), d)
	}
	x.usage.AvailBytes = gib
	l.until("the install", func() bool { return x.installs() == 1 })
}
