// Package scenes makes samples of clusters in known states, for the tests and benchmarks of the
// screens: a cluster that is well, one that lags, one that lost a member, its leader or its mind, one
// that nobody reaches, and one of any size. The same scene is always the same samples.
//
// Callers: tests alone.
package scenes

import (
	"fmt"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/tui/viewmodel"
)

// Scene is a name and what a watcher saw, oldest first.
type Scene struct {
	Name    string
	Samples []viewmodel.Sample
}

// Start is the time of the first sample of every scene. They follow each other by a second.
func Start() time.Time { return time.Date(2026, 3, 4, 14, 22, 0, 0, time.UTC) }

// All returns every scene.
func All() []Scene {
	return []Scene{
		{"loading", nil},
		{"never", []viewmodel.Sample{nobody(0), nobody(1)}},
		{"ok", play(Members(6), 8, func(int, *api.Status) {})},
		{"lagging", play(Members(6), 20, lagging)},
		{"degraded", play(Members(6), 12, degraded)},
		{"quarantined", play(Members(6), 8, quarantined)},
		{"changing", play(Members(7), 8, changing)},
		{"leaderless", play(Members(3), 8, leaderless)},
		{"split", play(Members(5), 12, split)},
		{"drill", play(Members(5), 12, drill)},
		{"dead", append(play(Members(6), 5, func(int, *api.Status) {}), nobody(5), nobody(6), nobody(9), nobody(14), nobody(19), nobody(23))},
	}
}

// Named returns one scene; it panics over a name that is none.
func Named(name string) Scene {
	for _, s := range All() {
		if s.Name == name {
			return s
		}
	}
	panic("no scene " + name)
}

// Large returns a cluster of n members that is well, seen looks times.
func Large(n, looks int) Scene {
	return Scene{"large", play(Members(n), looks, func(int, *api.Status) {})}
}

// Members names n members.
func Members(n int) []string {
	names := []string{"us-east", "us-west", "eu-west", "eu-north", "ap-south", "ap-learner"}
	for i := len(names); i < n; i++ {
		names = append(names, fmt.Sprintf("member-%03d", i))
	}
	return names[:n]
}

// play makes one sample a second of names, the first of which leads, and lets change alter each.
func play(names []string, looks int, change func(i int, s *api.Status)) []viewmodel.Sample {
	var out []viewmodel.Sample
	for i := range looks {
		s := Status(names, i)
		change(i, &s)
		out = append(out, viewmodel.Sample{At: Start().Add(time.Duration(i) * time.Second), Status: &s, Endpoint: "http://10.0.0.2:9501"})
	}
	return out
}

// Status is a cluster that is well, second seconds after Start. The first member leads, the second is
// the observer, and a sixth one is a learner, as are all after it.
func Status(names []string, second int) api.Status {
	last := 48_120_000 + 1_800*uint64(second)
	s := api.Status{
		Term: 42, ClusterID: "7f3a9c12d4e8b06f", RelayLogLen: &last,
		Consistent: true, At: Start().Add(time.Duration(second) * time.Second),
		Health: api.Health{Level: api.HealthOK, Reasons: []api.Reason{}},
	}
	if len(names) > 0 {
		s.Leader, s.Observer = &names[0], names[min(1, len(names)-1)]
	}
	for i, name := range names {
		role := api.RoleVoter
		if i >= 5 {
			role = api.RoleLearner
		} else {
			s.Quorum.Voters++
		}
		lag := uint64(6 * min(i, 3))
		applied := last - lag
		r := api.Region{
			Name: name, ID: fmt.Sprint(i + 1), Role: role, IsLeader: i == 0, Reachable: true,
			GRPCAddr: fmt.Sprintf("10.0.0.%d:9601", i+1), HTTPAddr: fmt.Sprintf("10.0.0.%d:9501", i+1),
			AppliedEvents: applied, LagEvents: &lag, AppliedIndex: &applied, CommitIndex: &applied,
			Term: ptr(uint64(42)), LastIndex: &last, DurableIndex: &last,
			AgeMS: ptr(int64(20 * i)), TookMS: ptr(int64(2)), UptimeMS: ptr(int64(134_000 + 1000*second)),
			Ready: ptr(true), Version: ptr("0.1.0"), Capabilities: []string{"base"}, BootEpoch: ptr(uint64(3)),
			Incarnation: ptr(fmt.Sprintf("%032x", 0x1111*(i+1))),
		}
		s.Regions = append(s.Regions, r)
	}
	s.Quorum.Needed = s.Quorum.Voters/2 + 1
	s.Quorum.Up = s.Quorum.Voters
	s.Quorum.Spare = s.Quorum.Up - s.Quorum.Needed
	return s
}

// Lose makes a member one that does not answer.
func Lose(s *api.Status, name, code string) {
	for i := range s.Regions {
		r := &s.Regions[i]
		if r.Name != name {
			continue
		}
		*r = api.Region{
			Name: r.Name, ID: r.ID, Role: r.Role, IsLeader: r.IsLeader, GRPCAddr: r.GRPCAddr, HTTPAddr: r.HTTPAddr,
			LagEvents: s.RelayLogLen, Partitioned: true, Error: &api.RowError{Code: code, Detail: "no answer in 500 ms"},
		}
		if r.Role == api.RoleVoter {
			s.Quorum.Up--
			s.Quorum.Spare = max(0, s.Quorum.Up-s.Quorum.Needed)
		}
		Because(s, api.HealthDegraded, "member_unreachable", name, code)
	}
}

// Because adds a reason and makes the health level at least as bad.
func Because(s *api.Status, level, code, member, detail string) {
	if s.Health.Level != api.HealthCritical {
		s.Health.Level = level
	}
	s.Health.Reasons = append(s.Health.Reasons, api.Reason{Code: code, Member: member, Detail: detail})
}

// Row returns the row of a member.
func Row(s *api.Status, name string) *api.Region {
	for i := range s.Regions {
		if s.Regions[i].Name == name {
			return &s.Regions[i]
		}
	}
	return nil
}

func lagging(i int, s *api.Status) {
	r := Row(s, "ap-south")
	behind := uint64(i * 400)
	applied := *s.RelayLogLen - behind
	r.LagEvents, r.AppliedIndex, r.AppliedEvents, r.TookMS = &behind, &applied, applied, ptr(int64(141))
	if behind > 1024 {
		Because(s, api.HealthDegraded, "member_behind", "ap-south", fmt.Sprintf("%d entries behind", behind))
	}
}

func degraded(i int, s *api.Status) {
	if i >= 2 {
		Lose(s, "eu-west", "refused")
	}
	if i >= 4 {
		Lose(s, "eu-north", "timeout")
	}
	if i >= 6 {
		Row(s, "ap-learner").Ready = ptr(false)
		Because(s, api.HealthDegraded, "member_not_ready", "ap-learner", "")
	}
}

func quarantined(i int, s *api.Status) {
	if i < 3 {
		return
	}
	r := Row(s, "ap-south")
	r.Quarantine = &api.Quarantine{Cause: "log_corrupt", Detail: "segment 000007.log, offset 4096: checksum mismatch at index 47,877,114", Since: Start().Add(-2 * time.Minute)}
	r.Ready, r.AppliedIndex, r.AppliedEvents, r.LagEvents = ptr(false), nil, 0, s.RelayLogLen
	s.Quorum.Up--
	s.Quorum.Spare--
	Because(s, api.HealthDegraded, "member_quarantined", "ap-south", "log_corrupt")
}

// changing is a cluster of which one member was removed, one joins, one cannot, and the last change of
// the voters is not known to all of them.
func changing(i int, s *api.Status) {
	r := Row(s, "ap-learner")
	lag := uint64(48_000 - 5_000*i)
	applied := *s.RelayLogLen - lag
	r.LagEvents, r.AppliedIndex, r.AppliedEvents, r.Ready = &lag, &applied, applied, ptr(false)
	r.PromotionPending = &api.Pending{Reason: api.PendingBehind, Detail: "ap-learner is behind the leader, at most 1,024 entries are allowed",
		Lag: &lag, Bytes: ptr(lag * 300), Rate: ptr(5000.0), ETAMS: ptr(int64(lag / 5))}
	r = Row(s, "member-006")
	r.PromotionPending = &api.Pending{Reason: api.PendingUnverified, Detail: "its state was not compared with the leader's yet", Lag: ptr(uint64(0)), Bytes: ptr(uint64(0)), Rate: ptr(0.0)}
	s.Settling = &api.Settling{Index: 48_119_000, Voters: 5, Have: 4, Needed: 3, Missing: []string{"ap-south"}}
	s.Tombstones = []api.Tombstone{{ID: "9", Name: "sa-east", RemovedAt: Start(), Told: true}, {ID: "10", Name: "af-south", RemovedAt: Start()}}
}

func leaderless(i int, s *api.Status) {
	if i < 3 {
		return
	}
	s.RelayLogAgeMS = ptr(int64(1000 * (i - 2)))
	s.Leader, s.Term, s.Quorum.Up, s.Quorum.Spare = nil, 43, 3, 0
	s.Health = api.Health{Level: api.HealthCritical, Reasons: []api.Reason{}}
	Row(s, "us-east").IsLeader = false
	Because(s, api.HealthCritical, "no_leader", "", "no member that answers knows a leader")
	Because(s, api.HealthCritical, "no_quorum", "", "1 of 3 voters are up, 2 are needed")
	Lose(s, "us-east", "refused")
	Lose(s, "eu-west", "refused")
}

func split(i int, s *api.Status) {
	if i < 4 {
		return
	}
	old := *s.Leader
	fresh := "us-west"
	s.Consistent, s.Leader, s.Term = false, &fresh, 43
	s.Views = []api.View{
		{Leader: &fresh, Term: 43, Members: []string{"us-west", "eu-west", "eu-north"}},
		{Leader: &old, Term: 42, Members: []string{"us-east", "ap-south"}},
	}
	still := uint64(48_127_000)
	for _, name := range []string{"us-east", "ap-south"} {
		r := Row(s, name)
		lag := *s.RelayLogLen - still
		r.IsLeader, r.CommitIndex, r.AppliedIndex, r.AppliedEvents, r.LagEvents = false, &still, &still, still, &lag
	}
	Row(s, "us-east").AgeMS = ptr(int64(0))
	Row(s, "us-west").IsLeader = true
	Row(s, "us-west").CommitIndex = s.RelayLogLen
	s.Quorum.Up, s.Quorum.Spare = 3, 0
	Because(s, api.HealthDegraded, "leaders_disagree", "", "members that answer name different leaders")
}

// drill is a partition on purpose: the leader is on the small side and leads no more.
func drill(i int, s *api.Status) {
	if i < 4 {
		return
	}
	split(i, s)
	small, large := []string{"us-east", "ap-south"}, []string{"us-west", "eu-west", "eu-north"}
	s.Consistent, s.Views[1].Leader = true, nil
	s.Health.Reasons = nil
	keep := func(names, against []string, cut bool) {
		for _, name := range names {
			r := Row(s, name)
			r.Partitioned = cut
			for _, peer := range against {
				r.Faults = append(r.Faults, api.Fault{
					ID: "f-5f0c2a9e", Member: name, Peer: peer, Direction: api.DirectionBoth, Effect: api.FaultDrop,
					LeftMS: int64(45-i) * 1000, ExpiresAt: Start().Add(45 * time.Second),
				})
			}
			if cut {
				Because(s, api.HealthDegraded, "member_partitioned", name, "fault f-5f0c2a9e on "+name+" keeps it from us-west until 14:22:45Z")
			}
		}
	}
	keep(small, large, true)
	keep(large, small, false)
	for _, name := range append(small, large...) {
		Because(s, api.HealthDegraded, "fault_injected", name, "f-5f0c2a9e until 14:22:45Z")
	}
}

// nobody is a look that no endpoint answered.
func nobody(second int) viewmodel.Sample {
	return viewmodel.Sample{At: Start().Add(time.Duration(second) * time.Second), Failures: []viewmodel.Failure{
		{Endpoint: "http://10.0.0.1:9501", Code: "refused", Detail: "nothing listens there"},
		{Endpoint: "http://10.0.0.2:9501", Code: "timeout", Detail: "no answer in 2s"},
		{Endpoint: "http://10.0.0.3:9501", Code: "tls", Detail: "certificate has expired"},
	}}
}

func ptr[T any](v T) *T { return &v }
