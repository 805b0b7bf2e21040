package ops

import (
	"fmt"
	"os"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/replica"
)

// stateClosed is the state of a replica that takes part in nothing.
const stateClosed = "closed"

// LocalStatus returns this member's own view. It never blocks.
func (o *Ops) LocalStatus() api.LocalStatus {
	s, now := o.opts.Member.Status(), o.opts.Now()
	out := api.LocalStatus{
		Name: s.Name, ID: idText(s.ID), Incarnation: s.Incarnation.String(), BootEpoch: s.BootEpoch,
		PID: os.Getpid(), Version: s.Version, Capabilities: ident.Supported.Names(),
		StartedAt: s.StartedAt.UTC(), UptimeMS: millisSince(s.StartedAt, now),
		GRPCAddr: s.GRPCAddr, HTTPAddr: s.HTTPAddr,
		Phase: string(s.Phase), WaitingFor: []string{},
		Ready: s.Ready, Checks: readyChecks(s), Groups: []api.GroupStatus{},
		Faults: o.OwnFaults(), Outbox: outboxStatus(s.Outbox, now),
	}
	if o.opts.Heard != nil {
		out.HeardMS = map[string]int64{}
		for id, at := range o.opts.Heard() {
			out.HeardMS[id.String()] = millisSince(at, now)
		}
	}
	out.Clocks, out.ClockLimitMS = clocks(s.Clocks), s.MaxDrift.Milliseconds()
	if !s.Cluster.IsZero() {
		out.ClusterID = s.Cluster.String()
	}
	for _, w := range s.WaitingFor {
		out.WaitingFor = append(out.WaitingFor, w.Name)
	}
	role := ""
	if m, ok := s.Roster.Member(s.ID); ok {
		role = m.Role.String()
	}
	for _, g := range s.Groups {
		out.Groups = append(out.Groups, groupStatus(g, role, now))
	}
	if s.Roster.Version != 0 {
		r := roster(s.Roster)
		out.Roster = &r
	}
	if led, ok := o.opts.Member.Membership(); ok {
		out.Pending, out.Settling = pendings(led.Pending), settling(s.Roster, led.Settling)
	}
	if d := s.Disk; d.TotalBytes != 0 {
		out.Disk = &api.Disk{TotalBytes: d.TotalBytes, FreeBytes: d.FreeBytes, ReserveBytes: d.ReserveBytes, Full: d.Full, Exhausted: d.Exhausted}
	}
	return out
}

func groupStatus(g member.GroupStatus, role string, now time.Time) api.GroupStatus {
	r := g.Replica
	out := api.GroupStatus{
		Group: g.Group.String(), Role: role, State: stateText(r.State), Term: r.Term,
		FirstIndex: r.First, LastIndex: r.Last, DurableIndex: r.Durable, CommitIndex: r.Commit, AppliedIndex: r.Applied,
	}
	if q := g.Quarantine; q != nil {
		out.Quarantine = &api.Quarantine{Cause: string(q.Cause), Detail: q.Detail, Since: q.Since.UTC(), Votes: !g.Closed, Evidence: evidence(q.Evidence)}
	}
	if g.Closed {
		out.State = stateClosed
	} else {
		out.Check = digest(g.Digest)
		out.Digest = out.Check.Sum
	}
	if s := g.Reseed; s != nil {
		out.ReseedRequired, out.Reseed = true, &api.Reseed{Reason: s.Reason, Since: s.Since.UTC(), Phase: string(s.Phase), InARow: s.InARow}
		if s.Refused != "" {
			out.Reseed.Refused = &s.Refused
		}
		if s.Failure != "" {
			out.Reseed.Failure = &s.Failure
		}
	}
	if i := g.Install; i != nil {
		out.Install = &api.Install{Bytes: i.Bytes, Total: i.Total, Rate: i.Rate, ETAMS: eta(*i)}
	}
	out.Scrub, out.Kept, out.Reseeds = scrubOf(g.Scrub), keptOf(g.Kept), g.Reseeds
	if r.Leader != 0 && !g.Closed {
		id := r.Leader.String()
		out.Leader = &id
	}
	out.LeaderLast, out.LeaderAgeMS = heard(r, now)
	return out
}

// heard returns the newest last index known of the present leader, and how many milliseconds ago a
// leader was heard; nil where none was. A leader hears itself.
func heard(s replica.Status, now time.Time) (last *uint64, age *int64) {
	if isLeader(s) {
		return new(s.Last), new(int64(0))
	}
	if s.LeaderLast != 0 {
		last = new(s.LeaderLast)
	}
	if !s.LeaderHeard.IsZero() {
		age = new(millisSince(s.LeaderHeard, now))
	}
	return last, age
}

func isLeader(s replica.Status) bool { return s.State == raft.StateLeader }

func stateText(s raft.StateType) string {
	switch s {
	case raft.StateLeader:
		return "leader"
	case raft.StateCandidate:
		return "candidate"
	case raft.StatePreCandidate:
		return "pre_candidate"
	}
	return "follower"
}

// millisSince never returns less than 0: the wall clock may have been set back.
func millisSince(t, now time.Time) int64 { return max(now.Sub(t).Milliseconds(), 0) }

// Ready says whether this member should get traffic. Losing the leader is a warning, not a reason:
// reads and status must stay reachable when the quorum is gone.
func (o *Ops) Ready() api.Ready {
	s, now := o.opts.Member.Status(), o.opts.Now()
	out := api.Ready{Ready: s.Ready, Checks: readyChecks(s), Warnings: []api.ReadyCheck{}}
	for _, g := range s.Groups {
		if g.Quarantine != nil {
			continue
		}
		_, age := heard(g.Replica, now)
		switch {
		case age == nil && now.Sub(s.StartedAt) > contactLost:
			out.Warnings = append(out.Warnings, leaderContact(g.Group, "no leader was heard since the start"))
		case age != nil && *age > contactLost.Milliseconds():
			ago := time.Duration(*age) * time.Millisecond
			out.Warnings = append(out.Warnings, leaderContact(g.Group, "the leader was last heard "+ago.String()+" ago"))
		}
	}
	return out
}

func leaderContact(g ident.GroupID, detail string) api.ReadyCheck {
	return api.ReadyCheck{Name: "leader_contact", Detail: fmt.Sprintf("group %s: %s", g, detail)}
}

// readyChecks has one line for every reason not to be ready, or one that says there is none.
func readyChecks(s member.Status) []api.ReadyCheck {
	if s.Ready {
		return []api.ReadyCheck{{Name: "serving", OK: true}}
	}
	checks := make([]api.ReadyCheck, 0, len(s.NotReady))
	for _, why := range s.NotReady {
		checks = append(checks, api.ReadyCheck{Name: "serving", Detail: why})
	}
	return checks
}

// Members returns the membership as applied here; before birth, the members that the topology file
// declares, without ids.
func (o *Ops) Members() api.Members {
	s := o.opts.Member.Status()
	out := api.Members{Roster: roster(s.Roster)}
	if !s.Cluster.IsZero() {
		out.ClusterID = s.Cluster.String()
	}
	if s.Roster.Version == 0 {
		out.Roster.NextID, out.Roster.Members = "", declared(o.opts.Member.Declared())
	}
	if r, err := o.opts.Replica(surface); err == nil {
		rs := r.Status()
		out.Term = rs.Term
		if m, ok := s.Roster.Member(rs.Leader); ok {
			out.Leader = &m.Name
		}
	}
	return out
}

func roster(r membership.Roster) api.Roster {
	out := api.Roster{Version: r.Version, NextID: ident.MemberID(r.NextID).String(), Members: []api.Member{}, Tombstones: tombstones(r)}
	for _, m := range r.Members {
		out.Members = append(out.Members, api.Member{
			ID: m.ID.String(), Name: m.Name, Incarnation: m.Incarnation.String(), Role: m.Role.String(),
			GRPCAddr: m.GRPCAddr, HTTPAddr: m.HTTPAddr, BootEpoch: m.BootEpoch, Capabilities: m.Capabilities.Names(),
		})
	}
	return out
}

// declared makes the rows of a cluster that is not born: all of its members will vote.
func declared(members []membership.Member) []api.Member {
	out := make([]api.Member, 0, len(members))
	for _, m := range members {
		out = append(out, api.Member{Name: m.Name, Role: api.RoleVoter, GRPCAddr: m.GRPCAddr, HTTPAddr: m.HTTPAddr})
	}
	return out
}

func idText(id ident.MemberID) string {
	if id == 0 {
		return ""
	}
	return id.String()
}
