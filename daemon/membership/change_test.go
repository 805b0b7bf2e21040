package membership

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/confchange"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/ident"
)

// noon is when the decisions of the tests are made; its leader has led for an hour.
var noon = time.UnixMilli(1_700_000_000_000)

// testView is what the leader n1 sees of a healthy cluster of voters n1 to n<voters>.
func testView(voters int) View {
	v := View{
		Now: noon, Self: 1, Led: noon.Add(-time.Hour), Last: 5000, ConfIndex: 10,
		Roster: Roster{Version: 1, NextID: uint64(voters) + 1}, Conf: &pb.ConfState{},
		Seen: map[ident.MemberID]Seen{}, Notices: map[ident.MemberID]Notice{}, Approved: map[string]bool{}, Policy: DefaultPolicy(),
	}
	for id := ident.MemberID(1); id <= ident.MemberID(voters); id++ {
		v.Roster.Members = append(v.Roster.Members, testMember(id, RoleVoter))
		v.Conf.Voters = append(v.Conf.Voters, uint64(id))
		v.seeAll(id)
	}
	return v
}

func testMember(id ident.MemberID, role Role) Member {
	return Member{
		ID: id, Incarnation: inc(byte(id)), Name: fmt.Sprintf("n%d", id), GRPCAddr: fmt.Sprintf("n%d:1", id), HTTPAddr: fmt.Sprintf("n%d:2", id),
		Role: role, BootEpoch: 1, Capabilities: ident.CapBase,
	}
}

// seeAll: the member is alive, level, and has applied everything.
func (v View) seeAll(id ident.MemberID) {
	v.Seen[id] = Seen{Active: true, Heard: v.Now, Since: v.Led, Match: v.Last, Applied: v.Last, Committed: v.Last}
}

// see changes what is seen of a member.
func (v View) see(id ident.MemberID, how func(*Seen)) {
	s := v.Seen[id]
	how(&s)
	v.Seen[id] = s
}

// down: the member does not answer and was not heard of since the leader leads.
func (v View) down(ids ...ident.MemberID) {
	for _, id := range ids {
		v.Seen[id] = Seen{Since: v.Led, Match: 10, Applied: v.Last, Committed: v.Last}
	}
}

// learner adds a learner that is alive and level.
func (v *View) learner(name string) ident.MemberID {
	id := ident.MemberID(v.Roster.NextID)
	m := testMember(id, RoleLearner)
	m.Name = name
	v.Roster.Members = append(slices.Clone(v.Roster.Members), m)
	v.Roster.NextID++
	v.Conf.Learners = append(v.Conf.Learners, uint64(id))
	v.seeAll(id)
	return id
}

// apply is what becomes of a record: raft's own arithmetic says which configuration follows.
func (v View) apply(t interface{ Fatalf(string, ...any) }, r Record) View {
	got, err := DecodeRoster(r.Roster.Encode())
	if err != nil {
		t.Fatalf("record %q: %v", r.Does, err)
	}
	if got.Version != v.Roster.Version+1 {
		t.Fatalf("record %q has version %d after %d", r.Does, got.Version, v.Roster.Version)
	}
	v.Roster = got
	v.Last++
	if r.Conf != nil {
		v.Conf, v.ConfIndex = raftAfter(t, v.Conf, r.Conf), v.Last
	}
	return v
}

// left is raft's own end of a joint configuration.
func (v View) left(t interface{ Fatalf(string, ...any) }) View {
	v.Last++
	v.Conf, v.ConfIndex = raftAfter(t, v.Conf, &pb.ConfChangeV2{}), v.Last
	return v
}

// settle: everybody who is reachable has applied the newest configuration.
func (v View) settle() View {
	for _, m := range v.Roster.Members {
		if v.reachable(m.ID) {
			v.see(m.ID, func(s *Seen) { s.Applied, s.Committed, s.Match = v.Last, v.Last, v.Last })
		}
	}
	return v
}

func raftAfter(t interface{ Fatalf(string, ...any) }, conf *pb.ConfState, change *pb.ConfChangeV2) *pb.ConfState {
	c := confchange.Changer{Tracker: tracker.MakeProgressTracker(1, 0), LastIndex: 1}
	cfg, progress, err := confchange.Restore(c, conf)
	if err != nil {
		t.Fatalf("restore %v: %v", conf, err)
	}
	c.Tracker.Config, c.Tracker.Progress = cfg, progress
	switch autoLeave, joint := change.EnterJoint(); {
	case change.LeaveJoint():
		cfg, _, err = c.LeaveJoint()
	case joint:
		cfg, _, err = c.EnterJoint(autoLeave, change.GetChanges()...)
	default:
		cfg, _, err = c.Simple(change.GetChanges()...)
	}
	if err != nil {
		t.Fatalf("change %v of %v: %v", change, conf, err)
	}
	c.Tracker.Config = cfg
	return c.Tracker.ConfState()
}

func candidate(name string, incarnation byte) Candidate {
	return Candidate{Name: name, Incarnation: inc(incarnation), GRPCAddr: name + ":1", HTTPAddr: name + ":2", Capabilities: ident.CapBase}
}

func TestView_Join(t *testing.T) {
	t.Parallel()
	const feature = ident.Capabilities(1) << 40
	for _, tc := range []struct {
		name string
		with func(*View)
		c    Candidate
		want string // the record in short, or the error
	}{
		{"a new name", func(*View) {}, candidate("n4", 4), "+n4=4"},
		{"again", func(*View) {}, candidate("n2", 2), "n2=2 already"},
		{"again, with other addresses", func(*View) {}, Candidate{Name: "n2", Incarnation: inc(2), GRPCAddr: "else:1", HTTPAddr: "else:2", Capabilities: ident.CapBase}, "n2=2 already"},
		{"no name", func(*View) {}, candidate("", 4), "name has 0 bytes; want 1 to 255"},
		{"no incarnation", func(*View) {}, candidate("n4", 0), "incarnation is missing"},
		{"nowhere", func(*View) {}, Candidate{Name: "n4", Incarnation: inc(4), GRPCAddr: "0.0.0.0:1", HTTPAddr: "n4:2"}, `grpc_addr is "0.0.0.0:1"; want the host or address that others reach it at, and a port`},
		{"no port", func(*View) {}, Candidate{Name: "n4", Incarnation: inc(4), GRPCAddr: "n4:1", HTTPAddr: "n4"}, `http_addr is "n4"; want the host or address that others reach it at, and a port`},
		{"a copied disk", func(*View) {}, candidate("n4", 2), "incarnation is that of n2: was its data directory copied?"},
		{"an old binary", func(v *View) { v.Activated = feature }, candidate("n4", 4), "capability bit40 is missing on n4"},
		{"the name of a live member", func(*View) {}, candidate("n3", 9), "n3 is member 3, with another data directory, and was heard of 0s ago; it counts as lost after 10s"},
		{"the name of a member last heard of by another leader", func(v *View) {
			v.down(3)
			v.Led = v.Now.Add(-9 * time.Second)
		}, candidate("n3", 9), "n3 is member 3, with another data directory, and was heard of 9s ago; it counts as lost after 10s"},
		{"the name of a lost member", func(v *View) { v.down(3) }, candidate("n3", 9), "+n3=4"},
		{"the name of a live member that an operator gave up", func(v *View) { v.Approved["n3"] = true }, candidate("n3", 9), "+n3=4"},
		{"the name of the leader", func(*View) {}, candidate("n1", 9), "n1 is member 1, with another data directory, and was heard of 0s ago; it counts as lost after 10s"},
		{"a lost member, manual", func(v *View) {
			v.down(3)
			v.Policy.ReplaceManual = true
		}, candidate("n3", 9), "n3 is member 3, with another data directory; membership.replace_lost is manual"},
		{"the fourth disk within an hour", func(v *View) {
			v.down(3)
			v.Roster.NextID = 9
			for id := ident.MemberID(4); id < 7; id++ {
				v.Roster.Tombstones = append(v.Roster.Tombstones, Tombstone{ID: id, Incarnation: inc(byte(id)), Name: "n3", RemovedAt: noon.Add(-time.Minute).UnixMilli()})
			}
		}, candidate("n3", 9), "n3 was replaced 3 times within 1h0m0s, limit 3"},
		{"a learner whose disk is lost makes way", func(v *View) { v.down(v.learner("n4")) }, candidate("n4", 9), "+n4=5 -n4=4"},
		{"a replacement whose disk is lost makes way", func(v *View) {
			v.down(3)
			v.down(v.learner("n3"))
		}, candidate("n3", 9), "+n3=5 -n3=4"},
		{"a removed name", func(v *View) { v.bury("n4", false) }, candidate("n4", 9), "n4, member 4, was removed; join with rejoin to use the name again"},
		{"a removed name, on purpose", func(v *View) { v.bury("n4", false) }, Candidate{Name: "n4", Incarnation: inc(9), GRPCAddr: "n4:1", HTTPAddr: "n4:2", Capabilities: ident.CapBase, Rejoin: true}, "+n4=5"},
		{"a removed disk, under another name", func(v *View) { v.bury("n4", false) }, candidate("n5", 4), "this data directory is that of n4, member 4, which was removed; join with an empty one"},
		{"an expired name", func(v *View) { v.bury("n4", true) }, candidate("n4", 4), "+n4=5"},
		{"while a change settles", func(v *View) {
			v.ConfIndex = v.Last + 1
			v.see(1, func(s *Seen) { s.Applied, s.Committed = v.ConfIndex, v.ConfIndex })
		}, candidate("n4", 4), "a membership change is in progress: it waits until 2 of 3 voters have applied index 5001: 1 have, n2, n3 not yet"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := testView(3)
			tc.with(&v)
			r, m, err := v.Join(tc.c)
			got := ""
			switch {
			case err != nil:
				got = err.Error()
			case r.Empty():
				got = fmt.Sprintf("%s=%s already", m.Name, m.ID)
			default:
				got = short(v.Roster, r.Roster)
				after := v.apply(t, r)
				if !slices.Contains(after.Conf.GetLearners(), uint64(m.ID)) || m.Role != RoleLearner || !slices.Equal(after.Conf.GetVoters(), v.Conf.GetVoters()) {
					t.Errorf("after the join: %v", after.Conf)
				}
			}
			if got != tc.want {
				t.Errorf("Join = %s\nwant   %s", got, tc.want)
			}
		})
	}
}

// bury leaves the tombstone of a member of the next id.
func (v *View) bury(name string, expired bool) {
	id := ident.MemberID(v.Roster.NextID)
	v.Roster.NextID++
	v.Roster.Tombstones = append(v.Roster.Tombstones, Tombstone{ID: id, Incarnation: inc(byte(id)), Name: name, RemovedAt: noon.UnixMilli(), Expired: expired})
}

// short says what a record changes of the members.
func short(was, now Roster) string {
	var parts []string
	for _, m := range now.Members {
		before, ok := was.Member(m.ID)
		switch {
		case !ok:
			parts = append(parts, fmt.Sprintf("+%s=%s", m.Name, m.ID))
		case before.Role != m.Role:
			parts = append(parts, fmt.Sprintf("%s=%s:%s", m.Name, m.ID, m.Role))
		}
	}
	for _, m := range was.Members {
		if _, ok := now.Member(m.ID); !ok {
			parts = append(parts, fmt.Sprintf("-%s=%s", m.Name, m.ID))
		}
	}
	return strings.Join(parts, " ")
}

func TestView_Pending(t *testing.T) {
	t.Parallel()
	const feature = ident.Capabilities(1) << 40
	for _, tc := range []struct {
		name string
		with func(v *View, id ident.MemberID)
		want string // reason; empty: it is promoted
	}{
		{"level", func(*View, ident.MemberID) {}, ""},
		{"just close enough", func(v *View, id ident.MemberID) { v.see(id, func(s *Seen) { s.Match = v.Last - 1024 }) }, ""},
		{"one too far", func(v *View, id ident.MemberID) { v.see(id, func(s *Seen) { s.Match = v.Last - 1025 }) }, PendingBehind},
		{"far, and keeps up", func(v *View, id ident.MemberID) {
			v.see(id, func(s *Seen) { s.Match, s.Pace.InRow = v.Last-4000, 3 })
		}, ""},
		{"far, and kept up twice", func(v *View, id ident.MemberID) {
			v.see(id, func(s *Seen) { s.Match, s.Pace.InRow = v.Last-4000, 2 })
		}, PendingBehind},
		{"further behind every second", func(v *View, id ident.MemberID) {
			v.see(id, func(s *Seen) {
				s.Match = 10
				s.Pace = s.Pace.Observe(noon, 10, 4000, time.Second).Observe(noon.Add(time.Second), 10, 5000, time.Second)
			})
		}, PendingFallingBehind},
		{"silent", func(v *View, id ident.MemberID) { v.down(id) }, PendingNoContact},
		{"silent, and refused when it is dialled", func(v *View, id ident.MemberID) {
			v.down(id)
			v.see(id, func(s *Seen) { s.Unreached = "refused: connection refused" })
		}, PendingNoContact},
		{"silent, and behind a certificate", func(v *View, id ident.MemberID) {
			v.down(id)
			v.see(id, func(s *Seen) { s.Unreached, s.TLS = "tls: certificate has expired", true })
		}, PendingTLS},
		{"behind a certificate a moment ago", func(v *View, id ident.MemberID) { v.see(id, func(s *Seen) { s.Unreached, s.TLS = "tls: bad", true }) }, ""},
		{"without the state", func(v *View, id ident.MemberID) { v.see(id, func(s *Seen) { s.Installing = true }) }, PendingInstalling},
		{"an old binary", func(v *View, id ident.MemberID) { v.Activated = feature }, PendingCapability},
		{"not verified", func(v *View, id ident.MemberID) { v.see(id, func(s *Seen) { s.Unverified = "no digest yet" }) }, PendingUnverified},
		{"another change", func(v *View, id ident.MemberID) { v.ConfIndex = v.Last + 1 }, PendingChange},
		{"no majority answers", func(v *View, id ident.MemberID) { v.down(2, 3) }, PendingQuorum},
		{"two of three answer, of four three are needed", func(v *View, id ident.MemberID) { v.down(3) }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := testView(3)
			id := v.learner("n4")
			tc.with(&v, id)
			m, _ := v.Roster.Member(id)
			p, pending := v.Pending(m)
			if p.Reason != tc.want || pending != (tc.want != "") || pending && p.Detail == "" {
				t.Fatalf("Pending = %+v, want %q", p, tc.want)
			}
			if d := v.Duty(); (d.Does == "promotion") == pending {
				t.Errorf("Duty = %q", d.Does)
			}
			if !pending {
				after := v.apply(t, v.Promote(m))
				if want := []uint64{1, 2, 3, 4}; !slices.Equal(after.Conf.GetVoters(), want) || Joint(after.Conf) {
					t.Errorf("after the promotion: %v", after.Conf)
				}
			}
		})
	}
}

func TestView_PendingSaysWhen(t *testing.T) {
	t.Parallel()
	v := testView(3)
	id := v.learner("n4")
	v.see(id, func(s *Seen) {
		s.Match = v.Last - 3024
		s.Pace = s.Pace.Observe(noon, 1000, 5024, time.Second).Observe(noon.Add(2*time.Second), 2000, 5024, time.Second)
	})
	m, _ := v.Roster.Member(id)
	if p, _ := v.Pending(m); p.Reason != PendingBehind || p.Lag != 3024 || p.Rate != 500 || p.ETA != 4*time.Second {
		t.Errorf("Pending = %+v, want 3024 entries, 500 a second, 4 s for the 2000 that are too many", p)
	}
}

// A round is over when the learner has what the leader had when it began (Thesis 4.2.1).
func TestPace_CountsRounds(t *testing.T) {
	t.Parallel()
	at := func(s float64) time.Time { return noon.Add(time.Duration(s * float64(time.Second))) }
	var p Pace
	for _, step := range []struct {
		at          time.Time
		match, last uint64
		want        int
	}{
		{at(0), 0, 10_000, 0},
		{at(0.5), 10_000, 20_000, 1},
		{at(1), 20_000, 30_000, 2},
		{at(3), 29_000, 70_000, 0},   // too slow: it begins anew
		{at(3.5), 30_000, 80_000, 0}, // and that round was too long
		{at(4), 80_000, 90_000, 1},
		{at(4.2), 90_000, 99_000, 2},
		{at(4.4), 99_000, 110_000, 3},
	} {
		if p = p.Observe(step.at, step.match, step.last, time.Second); p.InRow != step.want {
			t.Errorf("at %s: %d rounds in a row, want %d", step.at.Sub(noon), p.InRow, step.want)
		}
	}
}

func TestView_Removal(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		voters int
		remove []ident.MemberID
		down   []ident.MemberID
		want   string // the codes that fail
		over   bool   // with override nothing stands in the way
	}{
		{"one of three", 3, []ident.MemberID{3}, nil, "", true},
		{"one of three, it is down", 3, []ident.MemberID{3}, []ident.MemberID{3}, "", true},
		{"one of three, another is down", 3, []ident.MemberID{3}, []ident.MemberID{2}, "new_majority rest_reachable", false},
		{"one of three, all others are down", 3, []ident.MemberID{3}, []ident.MemberID{2, 3}, "present_majority new_majority", false},
		{"one of two", 2, []ident.MemberID{2}, nil, "", true},
		{"one of two, it is down", 2, []ident.MemberID{2}, []ident.MemberID{2}, "present_majority", false},
		{"the last", 1, []ident.MemberID{1}, nil, "other_voter new_majority", false},
		{"one of four, two are down", 4, []ident.MemberID{4}, []ident.MemberID{3, 4}, "present_majority", false},
		{"one of four, both others are down", 4, []ident.MemberID{2}, []ident.MemberID{3, 4}, "present_majority new_majority rest_reachable", false},
		{"one of four, one is down", 4, []ident.MemberID{4}, []ident.MemberID{3}, "rest_reachable", true},
		{"one of five, two are down", 5, []ident.MemberID{5}, []ident.MemberID{3, 4}, "new_majority rest_reachable", false},
		{"one of five, it and another are down", 5, []ident.MemberID{5}, []ident.MemberID{4, 5}, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := testView(tc.voters)
			v.down(tc.down...)
			checks := v.Removal(tc.remove...)
			var failed []string
			for _, c := range checks {
				if !c.OK {
					failed = append(failed, c.Code)
				}
				if c.Detail == "" {
					t.Errorf("%s says nothing", c.Code)
				}
			}
			if got := strings.Join(failed, " "); got != tc.want {
				t.Errorf("failed: %s, want %s", got, tc.want)
			}
			if _, bad := Failed(checks, true); bad == tc.over {
				t.Errorf("with override refused: %t", bad)
			}
		})
	}
}

// The refusal says how many there are, how many answer, how many are needed, and who does not.
func TestView_RemovalExplains(t *testing.T) {
	t.Parallel()
	v := testView(3)
	v.down(2)
	c, _ := Failed(v.Removal(3), false)
	if want := "voters after the change: 2; 1 answer, 2 are needed; no answer from n2"; c.Detail != want || c.Measured != 1 || c.Threshold != 2 || c.Unit != "voters" {
		t.Errorf("refused with %+v, want %q", c, want)
	}
}

// The removal of a learner is always safe, also of one that never started.
func TestView_RemovalOfALearner(t *testing.T) {
	t.Parallel()
	v := testView(1)
	id := v.learner("n2")
	v.down(id)
	if c, bad := Failed(v.Removal(id), false); bad {
		t.Errorf("refused: %+v", c)
	}
	after := v.apply(t, v.Remove(id))
	if _, ok := after.Roster.Tombstone(id); !ok || InConf(after.Conf, id) {
		t.Errorf("after: %+v, %v", after.Roster, after.Conf)
	}
}

// A replacement: the learner takes the place of the voter of its name in one joint change, and the old id
// is removed when raft has left that, not before.
func TestView_Replacement(t *testing.T) {
	t.Parallel()
	v := testView(3)
	v.down(3)
	r, learner, err := v.Join(candidate("n3", 9))
	if err != nil {
		t.Fatal(err)
	}
	v = v.apply(t, r)
	v.seeAll(learner.ID)
	v = v.settle()
	d := v.Duty()
	if d.Does != "replacement" {
		t.Fatalf("Duty = %q, want the replacement", d.Does)
	}
	v = v.apply(t, d)
	if !Joint(v.Conf) || len(v.Conf.GetVoters()) != 3 || len(v.Conf.GetVotersOutgoing()) != 3 || !v.Conf.GetAutoLeave() {
		t.Fatalf("configuration %v, want a joint one of three and three that raft leaves", v.Conf)
	}
	if old, ok := v.Roster.Member(3); !ok || old.Role != RoleLeaving {
		t.Errorf("member 3 is %+v, want it leaving", old)
	}
	v = v.settle()
	if v.Roster.Enforced(3, v.Conf, v.Busy() == nil) {
		t.Error("member 3 is told that it is removed while its vote counts")
	}
	if d := v.Duty(); !d.Empty() {
		t.Errorf("Duty = %q in the joint state, want nothing", d.Does)
	}
	v = v.left(t)
	d = v.Duty()
	if d.Does != "leave" {
		t.Fatalf("Duty = %q, want to bury member 3", d.Does)
	}
	v = v.apply(t, d)
	if v.Roster.Enforced(3, v.Conf, v.Busy() == nil) {
		t.Error("member 3 is told before the change is settled")
	}
	if v = v.settle(); !v.Roster.Enforced(3, v.Conf, v.Busy() == nil) {
		t.Error("member 3 is not told that it is removed")
	}
	if now, _ := v.Roster.Named("n3"); now.ID != 4 || now.Role != RoleVoter {
		t.Errorf("n3 is %+v now", now)
	}
}

// The place of the leader is taken under another leader.
func TestView_ReplacementOfTheLeader(t *testing.T) {
	t.Parallel()
	v := testView(3)
	v.Approved["n1"] = true
	r, learner, err := v.Join(candidate("n1", 9))
	if err != nil {
		t.Fatal(err)
	}
	v = v.apply(t, r)
	v.seeAll(learner.ID)
	v = v.settle()
	if d := v.Duty(); !d.Empty() || !v.HandOverFirst(learner) {
		t.Errorf("Duty = %q, want nothing before the leader has handed over", d.Does)
	}
}

func TestView_Settling(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		applied map[ident.MemberID][2]uint64 // applied, committed on disk
		joint   bool
		want    string // empty: settled
	}{
		{"the leader alone", map[ident.MemberID][2]uint64{1: {20, 20}}, false, "waits until 2 of 3 voters have applied index 20: 1 have, n2, n3 not yet"},
		{"a majority", map[ident.MemberID][2]uint64{1: {20, 20}, 3: {25, 20}}, false, ""},
		{"a majority, one could forget the commit", map[ident.MemberID][2]uint64{1: {20, 20}, 3: {25, 19}}, false, "waits until 2 of 3 voters have applied index 20: 1 have, n2, n3 not yet"},
		{"a learner", map[ident.MemberID][2]uint64{1: {20, 20}, 4: {20, 20}}, false, "waits until 2 of 3 voters have applied index 20: 1 have, n2, n3 not yet"},
		{"others than the leader", map[ident.MemberID][2]uint64{2: {20, 20}, 3: {20, 20}}, false, ""},
		{"joint", map[ident.MemberID][2]uint64{1: {20, 20}, 2: {20, 20}, 3: {20, 20}}, true, "waits for raft to leave the joint configuration of index 20"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := testView(3)
			v.learner("n4")
			v.ConfIndex = 20
			if tc.joint {
				v.Conf.VotersOutgoing = []uint64{1, 2, 3}
			}
			for id := range ident.MemberID(5) {
				x := tc.applied[id]
				v.see(id, func(s *Seen) { s.Applied, s.Committed = x[0], x[1] })
			}
			s, busy := v.Settling()
			got := ""
			if busy {
				got = s.waits(v.name)
			}
			if got != tc.want {
				t.Errorf("Settling: %q, want %q", got, tc.want)
			}
		})
	}
}

func TestView_Duty(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		with func(*View)
		want string
	}{
		{"nothing", func(*View) {}, ""},
		{"a new boot", func(v *View) {
			v.see(2, func(s *Seen) {
				s.Said = &Said{Incarnation: inc(2), BootEpoch: 2, Capabilities: ident.CapBase, GRPCAddr: "n2:1", HTTPAddr: "n2:2"}
			})
		}, "said"},
		{"the same boot", func(v *View) {
			v.see(2, func(s *Seen) {
				s.Said = &Said{Incarnation: inc(2), BootEpoch: 1, Capabilities: ident.CapBase, GRPCAddr: "n2:1", HTTPAddr: "n2:2"}
			})
		}, ""},
		{"another disk", func(v *View) {
			v.see(2, func(s *Seen) { s.Said = &Said{Incarnation: inc(9), BootEpoch: 7} })
		}, ""},
		{"an older binary does not say where it is", func(v *View) {
			v.see(2, func(s *Seen) { s.Said = &Said{Incarnation: inc(2), BootEpoch: 1, Capabilities: ident.CapBase} })
		}, ""},
		{"other addresses", func(v *View) {
			v.see(2, func(s *Seen) {
				s.Said = &Said{Incarnation: inc(2), BootEpoch: 1, Capabilities: ident.CapBase, GRPCAddr: "moved:1", HTTPAddr: "moved:2"}
			})
		}, "said"},
		{"a notice left", func(v *View) {
			v.bury("n4", false)
			v.Notices[4] = Notice{Told: true}
		}, "notice"},
		{"a notice left long ago", func(v *View) {
			v.bury("n4", false)
			v.Roster.Tombstones[0].Told = true
			v.Notices[4] = Notice{Told: true}
		}, ""},
		{"a learner that was never heard of", func(v *View) {
			id := v.learner("n4")
			v.Roster.Members[3].BootEpoch = 0
			v.down(id)
			v.see(id, func(s *Seen) { s.Since = v.Now.Add(-15 * time.Minute) })
		}, "expiry"},
		{"a learner that may still come", func(v *View) {
			id := v.learner("n4")
			v.Roster.Members[3].BootEpoch = 0
			v.down(id)
			v.see(id, func(s *Seen) { s.Since = v.Now.Add(-14 * time.Minute) })
		}, ""},
		{"what everybody understands is made use of", func(v *View) { v.Eager = ident.CapBase }, "feature"},
		{"what is in use", func(v *View) { v.Eager, v.Activated = ident.CapBase, ident.CapBase }, ""},
		{"what somebody does not understand yet", func(v *View) { v.Eager = ident.CapBase | 1<<40 }, ""},
		{"what somebody who is down did not understand", func(v *View) {
			v.Eager = ident.CapBase | 1<<40
			for i := range v.Roster.Members[:2] {
				v.Roster.Members[i].Capabilities |= 1 << 40
			}
			v.down(3)
		}, ""},
		{"a learner that was heard of never expires", func(v *View) { v.down(v.learner("n4")) }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := testView(3)
			tc.with(&v)
			d := v.Duty()
			if d.Does != tc.want {
				t.Fatalf("Duty = %q, want %q", d.Does, tc.want)
			}
			if d.Empty() || d.Features != 0 {
				return
			}
			if after := v.apply(t, d); after.settle().Duty().Does == tc.want {
				t.Errorf("%q is owed again", tc.want)
			}
		})
	}
}

func TestView_ExpiredIsToldSo(t *testing.T) {
	t.Parallel()
	v := testView(1)
	id := v.learner("n2")
	v.Roster.Members[1].BootEpoch = 0
	v.down(id)
	v = v.apply(t, v.Duty()).settle()
	if s, ok := v.Roster.Tombstone(id); !ok || !s.Expired {
		t.Errorf("tombstone %+v", s)
	}
	if _, _, err := v.Join(candidate("n2", 2)); err != nil {
		t.Errorf("it may not join again: %v", err)
	}
}

func TestRoster_ForgetsOldTombstones(t *testing.T) {
	t.Parallel()
	r := Roster{Version: 1, NextID: 1}
	for range keepTombstones + 10 {
		m := r.add(Member{Incarnation: inc(1), Name: "x", Role: RoleLearner})
		r.bury(m.ID, Tombstone{Told: true, Acked: m.ID != 3})
	}
	if n := len(r.Tombstones); n != keepTombstones+1 || r.Tombstones[0].ID != 3 {
		t.Errorf("%d tombstones, the first of member %d; want the newest %d that are acked and the one that is not", n, r.Tombstones[0].ID, keepTombstones)
	}
	if !r.Removed(1) || !r.Enforced(1, &pb.ConfState{Voters: []uint64{300}}, false) {
		t.Error("a member whose tombstone was dropped is not removed any more")
	}
}

// Whatever happens in whatever order: ids are given once, every record follows from the one before and is
// valid, raft takes every change, and at every moment two majorities that count have a member in common.
func TestView_AnyLife(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := testView(rapid.IntRange(1, 5).Draw(t, "voters"))
		given := map[ident.MemberID]ident.Incarnation{}
		for _, m := range v.Roster.Members {
			given[m.ID] = m.Incarnation
		}
		for n := range rapid.IntRange(1, 30).Draw(t, "steps") {
			v.Now = v.Now.Add(time.Duration(rapid.IntRange(0, 120).Draw(t, "minutes")) * time.Minute / 10)
			was := v
			switch rapid.IntRange(0, 6).Draw(t, "act") {
			case 0, 1:
				name := fmt.Sprintf("n%d", rapid.IntRange(1, 7).Draw(t, "name"))
				r, m, err := v.Join(Candidate{Name: name, Incarnation: inc(byte(100 + n)), GRPCAddr: "a:1", HTTPAddr: "a:2", Capabilities: ident.CapBase, Rejoin: true})
				if err == nil && !r.Empty() {
					if _, again := given[m.ID]; again {
						t.Fatalf("id %d was given before", m.ID)
					}
					given[m.ID] = m.Incarnation
					v = v.apply(t, r)
				}
			case 2:
				m := rapid.SampledFrom(v.Roster.Members).Draw(t, "member")
				var ids []ident.MemberID
				for _, x := range v.Roster.AllNamed(m.Name) {
					ids = append(ids, x.ID)
				}
				if _, bad := Failed(v.Removal(ids...), rapid.Bool().Draw(t, "override")); !bad && !slices.Contains(ids, v.Self) {
					v = v.apply(t, v.Remove(ids...))
				}
			case 3:
				if d := v.Duty(); !d.Empty() {
					v = v.apply(t, d)
				}
			case 4:
				v = v.settle()
			case 5:
				if Joint(v.Conf) {
					v = v.left(t)
				}
			case 6:
				m := rapid.SampledFrom(v.Roster.Members).Draw(t, "member")
				if m.ID != v.Self {
					if rapid.Bool().Draw(t, "up") {
						v.seeAll(m.ID)
					} else {
						v.down(m.ID)
					}
				}
			}
			check(t, was, v)
		}
	})
}

// check holds what must be true of any two configurations that follow each other.
func check(t *rapid.T, was, now View) {
	for _, id := range now.Conf.GetVoters() {
		m, ok := now.Roster.Member(ident.MemberID(id))
		if !ok || m.Role != RoleVoter {
			t.Fatalf("voter %d is %+v in the roster", id, m)
		}
	}
	for _, id := range now.Conf.GetVotersOutgoing() {
		if _, ok := now.Roster.Member(ident.MemberID(id)); !ok {
			t.Fatalf("member %d still votes and is not in the roster", id)
		}
	}
	for _, m := range now.Roster.Members {
		if m.Role != RoleLeaving && !InConf(now.Conf, m.ID) {
			t.Fatalf("%s %d is in no set of raft's", m.Role, m.ID)
		}
	}
	if len(now.Conf.GetVoters()) == 0 {
		t.Fatalf("no voter is left")
	}
	// One change at a time: two sets of voters that follow each other differ by one member, or are joined.
	if !Joint(was.Conf) && !Joint(now.Conf) {
		differ := 0
		for _, id := range was.Conf.GetVoters() {
			if !slices.Contains(now.Conf.GetVoters(), id) {
				differ++
			}
		}
		for _, id := range now.Conf.GetVoters() {
			if !slices.Contains(was.Conf.GetVoters(), id) {
				differ++
			}
		}
		if differ > 1 {
			t.Fatalf("from %v to %v in one step", was.Conf, now.Conf)
		}
	}
}
