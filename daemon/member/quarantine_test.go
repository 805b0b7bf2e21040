package member

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/state"
)

// The table of design 4.8.
func TestCause_Conduct(t *testing.T) {
	t.Parallel()
	want := map[Cause]Conduct{
		CauseDivergent:        {Votes: true, Applies: true, LastResort: true, Heals: true},
		CauseStateError:       {Votes: true, Applies: false, LastResort: true, Heals: true},
		CauseUpgradeRequired:  {Votes: true, Applies: false, LastResort: true, Heals: false},
		CauseLogCorrupt:       {Heals: true},
		CauseLogWrite:         {Heals: true},
		CauseCommittedMissing: {Heals: true},
		CauseAmnesia:          {},
		CauseVotesBehind:      {},
		CauseDuplicate:        {},
		CauseFormerHistory:    {},
		CauseAssertion:        {},
	}
	for _, c := range Causes() {
		if got, ok := want[c]; !ok || c.Conduct() != got {
			t.Errorf("conduct of %s = %+v, want %+v", c, c.Conduct(), got)
		}
	}
	if len(want) != len(Causes()) {
		t.Errorf("%d causes, the table has %d", len(Causes()), len(want))
	}
}

// Whoever applies, or leads, votes too; and nobody who does not vote leads.
func TestCause_NobodyLeadsWithoutVoting(t *testing.T) {
	t.Parallel()
	for _, c := range Causes() {
		if x := c.Conduct(); (x.Applies || x.LastResort) && !x.Votes {
			t.Errorf("conduct of %s is %+v", c, x)
		}
	}
}

func TestPermission(t *testing.T) {
	t.Parallel()
	voters := func(ids ...uint64) *pb.ConfState { return &pb.ConfState{Voters: ids} }
	acked := func(ids ...ident.MemberID) map[ident.MemberID]bool {
		all := map[ident.MemberID]bool{}
		for _, id := range ids {
			all[id] = true
		}
		return all
	}
	for _, tc := range []struct {
		name string
		p    permission
		ok   bool
	}{
		{"the others are there", permission{self: 1, asker: 2, conf: voters(1, 2, 3), acked: acked(2, 3)}, true},
		{"another one is away", permission{self: 1, asker: 2, conf: voters(1, 2, 3), acked: acked(2)}, false},
		{"another one is being installed", permission{self: 1, asker: 2, conf: voters(1, 2, 3), acked: acked(2, 3), holder: 3}, false},
		{"it holds the permit itself", permission{self: 1, asker: 2, conf: voters(1, 2, 3), acked: acked(2, 3), holder: 2}, true},
		{"another one is away, and nothing is committed before it is installed", permission{self: 1, asker: 2, conf: voters(1, 2, 3), acked: acked(2), starved: true}, true},
		{"starved, and another one is being installed", permission{self: 1, asker: 2, conf: voters(1, 2, 3), acked: acked(2, 3), holder: 3, starved: true}, false},
		{"two voters", permission{self: 1, asker: 2, conf: voters(1, 2), acked: acked(2)}, true},
		{"four voters, one away", permission{self: 1, asker: 2, conf: voters(1, 2, 3, 4), acked: acked(2, 3)}, false},
		{"five voters, one away", permission{self: 1, asker: 2, conf: voters(1, 2, 3, 4, 5), acked: acked(2, 3, 4)}, true},
		{"joint", permission{self: 1, asker: 2, conf: &pb.ConfState{Voters: []uint64{1, 2, 4}, VotersOutgoing: []uint64{1, 2, 3}}, acked: acked(2, 4)}, false},
	} {
		if why := tc.p.refused(); (why == "") != tc.ok {
			t.Errorf("%s: refused %q, want permitted %t", tc.name, why, tc.ok)
		}
	}
}

// Whatever the voters are, whoever closes a permitted replica leaves a majority of three or more.
func TestPermission_LeavesAMajority(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := permission{self: 1, conf: &pb.ConfState{}, acked: map[ident.MemberID]bool{}}
		n := rapid.Uint64Range(3, 9).Draw(t, "voters")
		for id := uint64(1); id <= n; id++ {
			p.conf.Voters = append(p.conf.Voters, id)
			p.acked[ident.MemberID(id)] = rapid.Bool().Draw(t, "acked")
		}
		p.asker = ident.MemberID(rapid.Uint64Range(2, n).Draw(t, "asker"))
		left := 1
		for _, id := range slices.Sorted(maps.Keys(p.acked)) {
			if id != 1 && id != p.asker && p.acked[id] {
				left++
			}
		}
		if permitted, majority := p.refused() == "", left >= membership.Majority(int(n)); permitted != majority {
			t.Fatalf("%+v: permitted %t, %d of %d are left", p, permitted, left, n)
		}
	})
}

// A permit ends with its window, with the term, and when its holder is open again.
func TestPermits_End(t *testing.T) {
	t.Parallel()
	const window = time.Second
	now := time.Unix(1_000, 0)
	var p permits
	holding := func(term uint64, now time.Time) (holder ident.MemberID) {
		p.give(9, term, now, window, func(h ident.MemberID) string { holder = h; return "only to look" })
		return holder
	}
	if why := p.give(2, 7, now, window, func(ident.MemberID) string { return "" }); why != "" {
		t.Fatal(why)
	}
	if got := holding(7, now); got != 2 {
		t.Errorf("%s holds it, want 2", got)
	}
	if got := holding(8, now); got != 0 {
		t.Errorf("in the next term %s holds it", got)
	}
	if got := holding(7, now.Add(window)); got != 0 {
		t.Errorf("after the window %s holds it", got)
	}
	p.opened(3)
	if got := holding(7, now); got != 2 {
		t.Errorf("after another one opened %s holds it, want 2", got)
	}
	p.opened(2)
	if got := holding(7, now); got != 0 {
		t.Errorf("after it opened %s holds it", got)
	}
}

// Of voters that ask at one moment one may close its replica.
func TestPermits_OneOfThoseThatAskTogether(t *testing.T) {
	t.Parallel()
	l := newLab(t, "n1", "n2", "n3", "n4", "n5")
	leader := l.leader()
	l.until("everybody acknowledges", func() bool {
		return !slices.ContainsFunc(leader.status().Progress, func(p consensus.Progress) bool { return !p.Active })
	})
	var askers []peer.Hello
	for _, n := range l.nodes {
		if n != leader {
			askers = append(askers, n.m.SelfHello())
		}
	}
	for range 500 {
		granted := make([]bool, len(askers))
		begin := make(chan struct{})
		var asking sync.WaitGroup
		for i, h := range askers {
			asking.Go(func() {
				<-begin
				r, err := leader.m.Permit(t.Context(), peer.PermitRequest{Hello: h})
				if err != nil {
					t.Error(err)
				}
				granted[i] = r.Granted
			})
		}
		close(begin)
		asking.Wait()
		var holders []ident.MemberID
		for i, ok := range granted {
			if ok {
				holders = append(holders, askers[i].Member)
			}
		}
		if len(holders) != 1 {
			t.Fatalf("members %v hold a permit at once, want one", holders)
		}
		leader.m.current(0).keeper.permits.opened(holders[0])
	}
}

func TestCheckDue(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		applied, last uint64
		rounds        int
		want          bool
	}{
		{"nothing happened", 9, 9, 100, false},
		{"a little, not long ago", 10, 9, checkRounds - 1, false},
		{"a little, a while ago", 10, 9, checkRounds, true},
		{"much, in this very round", 9 + checkEntries, 9, 0, false},
		{"much", 9 + checkEntries, 9, 1, true},
		{"not quite so much", 8 + checkEntries, 9, 1, false},
	} {
		if got := checkDue(tc.applied, tc.last, tc.rounds); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}

func TestWaitingCheckDue(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ tries, rounds int }{{0, 2}, {1, 4}, {2, 8}, {3, 16}, {4, 16}, {1 << 40, 16}} {
		if waitingCheckDue(tc.rounds-1, tc.tries) || !waitingCheckDue(tc.rounds, tc.tries) {
			t.Errorf("after %d tries a check is not due with round %d exactly", tc.tries, tc.rounds)
		}
	}
}

// A voter that was opened anew is compared although nobody writes.
func TestCheckRound_ComparesWhoWasOpenedAnew(t *testing.T) {
	l := newLab(t, "a", "b", "c")
	l.write()
	verified := func(n *node) func() bool {
		return func() bool {
			leader := l.leader()
			v, ok := leader.m.Verdict(0, n.id())
			return ok && v.State == StateVerified && v.Index == leader.status().Applied // nothing came after the check
		}
	}
	other := l.other(l.leader())
	l.until("everybody is verified", verified(other))
	other.m.current(0).keeper.checks.opened() // as after an install
	l.until("it is not known to be right any more", func() bool { return !verified(other)() })
	l.until("it is compared again", verified(other))
}

// applied makes a check whose digest is one letter.
func appliedCheck(index uint64, letter byte) *apply.Check {
	return &apply.Check{
		ID: ident.EntryID{Term: 1, Index: index}, Conf: &pb.ConfState{Voters: []uint64{1, 2, 3}},
		Digest: state.Digest{Version: 1, Sums: []state.Sum{{uint64(letter)}}},
	}
}

// What a member applied and what it heard make its verdicts; a replica that is opened anew has none.
func TestChecks_Rounds(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000, 0)
	var c, other checks
	c.applied([]*apply.Check{appliedCheck(5, 'a'), appliedCheck(9, 'b')})
	other.applied([]*apply.Check{appliedCheck(9, 'b')})
	ids := []ident.MemberID{1, 2, 3}
	c.round(1, ids, now)
	if s := c.status(1, 1); s.State != StateUnverified || s.Index != 9 || !s.Since.Equal(now) {
		t.Errorf("alone: %+v", s)
	}
	c.hear(2, other.report(0))
	now = now.Add(time.Second)
	c.round(1, ids, now)
	for _, id := range []ident.MemberID{1, 2} {
		if s := c.status(1, id); s.State != StateVerified || s.Verified != 9 || !s.Since.Equal(now) || s.Sum != [32]byte{'b'} {
			t.Errorf("member %s: %+v", id, s)
		}
	}
	if s := c.status(1, 3); s.State != StateUnverified || s.Index != 0 {
		t.Errorf("a silent member: %+v", s)
	}
	c.hear(3, []peer.DigestReport{{Index: 9, Version: 1, Sum: [32]byte{'x'}}})
	if s := c.status(1, 3); s.State != StateDivergent || !slices.Equal(s.Agree, []ident.MemberID{1, 2}) {
		t.Errorf("a divergent member: %+v", s)
	}
	c.opened()
	if s := c.status(1, 1); s.State != StateUnverified || s.Index != 0 || c.last() != 0 || len(c.report(0)) != 0 {
		t.Errorf("opened anew: %+v", s)
	}
}

// A member remembers no more checks than it reports, and nothing of who is no member any more.
func TestChecks_AreBounded(t *testing.T) {
	t.Parallel()
	var c checks
	for i := range uint64(3 * checksKept) {
		c.applied([]*apply.Check{appliedCheck(i, 'a')})
	}
	if got := c.report(4); len(got) != checksKept || got[0].Index != 3*checksKept-1 || got[0].Group != 4 {
		t.Errorf("reports %+v", got)
	}
	c.hear(7, c.report(4))
	c.round(1, []ident.MemberID{1}, time.Time{})
	if s := c.status(1, 7); s.Index != 0 {
		t.Errorf("of a member that is gone: %+v", s)
	}
}
