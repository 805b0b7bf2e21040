package ops

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/membership"
)

const (
	// contactLost is how long a member may go without word from a leader before its row says that it
	// is cut off.
	contactLost = 5 * time.Second

	// behindEvents is how many entries a member may lack and still count as caught up.
	behindEvents = 1024
)

// clockTime is how a time of today is told to people, in UTC.
const clockTime = "15:04:05Z"

// The reasons of a verdict, worst first. Those before reasonDegraded make it critical.
const (
	reasonNoLeader    = "no_leader"
	reasonNoQuorum    = "no_quorum"
	reasonQuarantined = "member_quarantined"
	reasonUnreachable = "member_unreachable"
	reasonPartitioned = "member_partitioned"
	reasonUnresolved  = "divergence_unresolved"
	reasonDiskFull    = "disk_full"
	reasonDisagree    = "leaders_disagree"
	reasonFault       = "fault_injected"
	reasonClockSkew   = "clock_skew"
	reasonNotReady    = "member_not_ready"
	reasonBehind      = "member_behind"
)

// row is what one member was asked and what it said.
type row struct {
	member api.Member       // as the roster has it or, before birth, the topology file: then without an id
	answer *api.LocalStatus // nil: it did not answer
	err    *api.RowError    // why it did not
	took   time.Duration
}

// group returns the positions of the replicated surface, or nil where the row has none.
func (r *row) group() *api.GroupStatus {
	if r.answer == nil {
		return nil
	}
	for i := range r.answer.Groups {
		if g := &r.answer.Groups[i]; g.Group == surface.String() {
			return g
		}
	}
	return nil
}

// closed reports whether the replica takes no part. One in quarantine that votes does.
func (r *row) closed() bool {
	g := r.group()
	return g != nil && g.State == stateClosed
}

// cutOff reports whether a member that answers has had no contact with a leader for too long. While
// the cluster is being born nobody has, and nobody is cut off.
func (r *row) cutOff() bool {
	g := r.group()
	switch {
	case g == nil || g.State == stateClosed:
		return false
	case g.LeaderAgeMS == nil: // never heard one since it started
		return r.answer.UptimeMS > contactLost.Milliseconds()
	}
	return *g.LeaderAgeMS > contactLost.Milliseconds()
}

// separation returns the fault that keeps the messages of a and b from each other, one way at least, if
// either of them keeps up one that does.
func separation(a, b *row) (api.Fault, bool) {
	for _, x := range [...]struct{ holder, other *row }{{a, b}, {b, a}} {
		if x.holder.answer == nil {
			continue
		}
		for _, f := range x.holder.answer.Faults {
			if f.Effect == api.FaultDrop && f.Peer == x.other.member.Name {
				return f, true
			}
		}
	}
	return api.Fault{}, false
}

// view is what the answers say together.
type view struct {
	rows   []row
	leader string // id; empty: nobody names one
	term   uint64
	born   bool // some member has the group
	// last is the leader's last index, nil where none was ever heard; lastAge is its age in
	// milliseconds, nil where the leader itself told it.
	last    *uint64
	lastAge *int64
	// skews is how far clocks are off, by id, in milliseconds.
	skews map[string]int64
	now   time.Time
}

// seen returns when a member was last heard from by anybody that answers, itself included; nil: never.
func (v *view) seen(r *row) *time.Time {
	if r.answer != nil {
		return &v.now
	}
	var last *time.Time
	for i := range v.rows {
		a := v.rows[i].answer
		if a == nil || r.member.ID == "" {
			continue
		}
		if ago, ok := a.HeardMS[r.member.ID]; ok {
			if at := v.now.Add(-time.Duration(ago) * time.Millisecond); last == nil || at.After(*last) {
				last = &at
			}
		}
	}
	return last
}

// leads returns what the leader answered, or nil.
func (v *view) leads() *api.LocalStatus {
	for i := range v.rows {
		if r := &v.rows[i]; v.leader != "" && r.answer != nil && r.answer.ID == v.leader {
			return r.answer
		}
	}
	return nil
}

// aggregate merges the answers into one status, as observer tells it at now. Two observers with the
// same answers differ in nothing but Observer, At and TookMS.
func aggregate(observer string, rows []row, now time.Time) api.Status {
	v := newView(rows)
	v.now = now.UTC()
	s := api.Status{
		Term:        v.term,
		RelayLogLen: v.last, RelayLogAgeMS: v.lastAge,
		Observer: observer, Consistent: true, At: now.UTC(),
		Tombstones: []api.Tombstone{},
		Regions:    make([]api.Region, 0, len(rows)),
	}
	if v.leader != "" {
		name := v.nameOf(v.leader)
		s.Leader = &name
	}
	for i := range rows {
		if r := &rows[i]; r.answer != nil && s.ClusterID == "" {
			s.ClusterID = r.answer.ClusterID
		}
		s.Regions = append(s.Regions, v.region(&rows[i]))
	}
	v.changes(&s)
	s.Views, s.Consistent = v.views()
	q := v.quorum()
	s.Quorum = api.Quorum{Voters: q.Voters, Up: q.Up, Needed: q.Needed, Spare: q.Spare}
	s.Health = v.health(q, s.Consistent, s.Regions)
	return s
}

// changes fills in what the leader says of the membership: learners that are no voters yet, a change
// that is not finished, and, by the newest roster that anybody has, who does not know of its removal.
func (v *view) changes(s *api.Status) {
	var newest *api.Roster
	for i := range v.rows {
		a := v.rows[i].answer
		if a == nil {
			continue
		}
		if v.leader != "" && v.rows[i].member.ID == v.leader {
			s.Settling = a.Settling
			for j := range s.Regions {
				if p, ok := a.Pending[s.Regions[j].ID]; ok {
					s.Regions[j].PromotionPending = &p
				}
			}
		}
		if a.Roster != nil && (newest == nil || a.Roster.Version > newest.Version) {
			newest = a.Roster
		}
	}
	if newest == nil {
		return
	}
	for _, t := range newest.Tombstones {
		if !t.Acked {
			s.Tombstones = append(s.Tombstones, t)
		}
	}
}

func newView(rows []row) view {
	v := view{rows: rows}
	var newest uint64 // the newest term that anybody is in
	for i := range rows {
		g := rows[i].group()
		if g == nil {
			continue
		}
		v.born = true
		newest = max(newest, g.Term)
		if g.Leader != nil && (v.leader == "" || g.Term > v.term) {
			v.leader, v.term = *g.Leader, g.Term
		}
	}
	if v.leader == "" {
		v.term = newest
	}
	v.last, v.lastAge = v.relayLog()
	v.skews = skews(v.leads())
	return v
}

// relayLog returns the leader's last index. When the leader did not answer, it is the newest that
// any answering member heard: indexes of one leader only grow, so the largest.
func (v *view) relayLog() (last *uint64, age *int64) {
	for i := range v.rows {
		g := v.rows[i].group()
		switch {
		case g == nil:
		case g.State == "leader" && v.rows[i].member.ID == v.leader:
			return &g.LastIndex, nil
		case g.LeaderLast == nil:
		case last == nil || *g.LeaderLast > *last || *g.LeaderLast == *last && older(age, g.LeaderAgeMS):
			last, age = g.LeaderLast, g.LeaderAgeMS
		}
	}
	return last, age
}

// older reports whether a is older than b; an unknown age is the oldest.
func older(a, b *int64) bool { return b != nil && (a == nil || *a > *b) }

func (v *view) nameOf(id string) string {
	for i := range v.rows {
		if v.rows[i].member.ID == id {
			return v.rows[i].member.Name
		}
	}
	return id // a leader that this roster does not know: its number is all there is
}

// leading returns the row of the leader, or nil.
func (v *view) leading() *row {
	for i := range v.rows {
		if v.leader != "" && v.rows[i].member.ID == v.leader {
			return &v.rows[i]
		}
	}
	return nil
}

// partitioned reports whether a member that answers is cut off from the leader, by a fault or for so long
// that it must be; why is for people.
func (v *view) partitioned(r *row) (why string, cut bool) {
	if l := v.leading(); l != nil && l != r {
		if f, ok := separation(r, l); ok {
			return fmt.Sprintf("fault %s on %s keeps it from %s until %s", f.ID, f.Member, l.member.Name, f.ExpiresAt.Format(clockTime)), true
		}
	}
	return "no contact with a leader for more than " + contactLost.String(), r.cutOff()
}

// views returns the sides of a cluster that is split: one entry a leader that is named, newest term first, and
// last those that name none. It returns none where there is one side: everybody who names a leader names the
// same one, and whoever names none is not cut off from it, but about to hear of it. Members that name none do
// not disagree about who leads.
func (v *view) views() (_ []api.View, consistent bool) {
	sides := map[string]*api.View{}
	var silent api.View
	lost := false // somebody names none because it is cut off
	for i := range v.rows {
		g, name := v.rows[i].group(), v.rows[i].member.Name
		switch {
		case g == nil:
		case g.Leader == nil:
			silent.Term = max(silent.Term, g.Term)
			silent.Members = append(silent.Members, name)
			_, cut := v.partitioned(&v.rows[i])
			lost = lost || cut
		default:
			side, ok := sides[*g.Leader]
			if !ok {
				leader := v.nameOf(*g.Leader)
				side = &api.View{Leader: &leader}
				sides[*g.Leader] = side
			}
			side.Term = max(side.Term, g.Term)
			side.Members = append(side.Members, name)
		}
	}
	consistent = len(sides) < 2
	if consistent && (len(sides) == 0 || !lost) {
		return nil, consistent
	}
	out := make([]api.View, 0, len(sides)+1)
	for _, side := range sides {
		out = append(out, *side)
	}
	slices.SortFunc(out, func(a, b api.View) int {
		return cmp.Or(cmp.Compare(b.Term, a.Term), cmp.Compare(*a.Leader, *b.Leader))
	})
	if len(silent.Members) > 0 {
		out = append(out, silent)
	}
	return out, consistent
}

// region makes the row of one member. What it does not know is null, but for the three legacy
// numbers, which state the worst case.
func (v *view) region(r *row) api.Region {
	m := &r.member
	out := api.Region{
		Name: m.Name, ID: m.ID, Role: m.Role, GRPCAddr: m.GRPCAddr, HTTPAddr: m.HTTPAddr,
		IsLeader:    v.leader != "" && m.ID == v.leader,
		LagEvents:   v.last,
		Partitioned: true,
		Error:       r.err,
		LastSeen:    v.seen(r),
	}
	if off, ok := v.skews[m.ID]; ok {
		out.ClockSkewMS = &off
	}
	if r.answer == nil {
		if mutantSilentCaughtUp {
			out.LagEvents = new(uint64(0))
		}
		return out
	}
	a := r.answer
	took := r.took.Milliseconds()
	_, out.Partitioned = v.partitioned(r)
	out.Reachable, out.Faults = true, a.Faults
	out.Ready, out.Version, out.BootEpoch = &a.Ready, &a.Version, &a.BootEpoch
	out.Incarnation, out.UptimeMS, out.Capabilities = &a.Incarnation, &a.UptimeMS, a.Capabilities
	out.TookMS, out.Disk, out.Outbox = &took, a.Disk, &a.Outbox
	g := r.group()
	if g == nil {
		return out
	}
	out.Quarantine = g.Quarantine
	out.ReseedRequired, out.Reseed, out.Install = g.ReseedRequired, g.Reseed, g.Install
	out.Digest, out.Check, out.Scrub, out.Kept = g.Digest, g.Check, g.Scrub, g.Kept
	if g.State == stateClosed {
		return out // its positions are not known, its lag stays the worst case
	}
	out.AppliedEvents = g.AppliedIndex
	out.Term, out.AgeMS = &g.Term, g.LeaderAgeMS
	out.LastIndex, out.DurableIndex = &g.LastIndex, &g.DurableIndex
	out.CommitIndex, out.AppliedIndex = &g.CommitIndex, &g.AppliedIndex
	if v.last != nil {
		lag := *v.last - min(*v.last, g.AppliedIndex)
		out.LagEvents = &lag
	}
	return out
}

// quorum counts the voters that can take part: with the leader or, where there is none, with the one that
// most of them reach.
func (v *view) quorum() membership.Quorum {
	conf := &pb.ConfState{} // by position: before birth there are no ids
	for i := range v.rows {
		if v.rows[i].member.Role == api.RoleVoter {
			conf.Voters = append(conf.Voters, uint64(i)+1)
		}
	}
	with := func(pivot *row) membership.Quorum {
		return membership.QuorumOf(conf, func(pos ident.MemberID) bool { return v.takesPart(&v.rows[pos-1], pivot) })
	}
	if v.leader != "" {
		return with(v.leading())
	}
	best := membership.QuorumOf(conf, func(ident.MemberID) bool { return false })
	for _, pos := range conf.Voters {
		if r := &v.rows[pos-1]; v.takesPart(r, nil) {
			if q := with(r); q.Up > best.Up {
				best = q
			}
		}
	}
	return best
}

// takesPart reports whether r can decide something together with pivot; nil: with anybody. A member that
// answers over HTTP but is cut off from a leader that others have cannot; while the cluster is being born,
// answering is enough.
func (v *view) takesPart(r, pivot *row) bool {
	if !v.born {
		return r.answer != nil
	}
	if r.group() == nil || r.closed() || v.leader != "" && r.cutOff() {
		return false
	}
	if pivot == nil || pivot == r || mutantCutMemberCounts {
		return true
	}
	_, apart := separation(r, pivot)
	return !apart
}

// health is the verdict: critical when nothing can be written, degraded when something is lost that
// redundancy still covers, unknown when nobody answered.
func (v *view) health(q membership.Quorum, consistent bool, regions []api.Region) api.Health {
	h := api.Health{Level: api.HealthOK, Reasons: []api.Reason{}}
	if !slices.ContainsFunc(v.rows, func(r row) bool { return r.answer != nil }) {
		h.Level = api.HealthUnknown
		return h
	}
	find := func(level string, reason api.Reason) {
		h.Reasons = append(h.Reasons, reason)
		if h.Level != api.HealthCritical {
			h.Level = level
		}
	}
	if v.leader == "" {
		detail := "no member that answers knows a leader"
		if !v.born {
			detail = "the cluster is not born yet"
		}
		find(api.HealthCritical, api.Reason{Code: reasonNoLeader, Detail: detail})
	}
	if !q.Reached() {
		find(api.HealthCritical, api.Reason{Code: reasonNoQuorum, Detail: fmt.Sprintf("%d of %d voters are up, %d are needed", q.Up, q.Voters, q.Needed)})
	}
	members := func(code string, finding func(*api.Region) (detail string, found bool)) {
		for i := range regions {
			if detail, found := finding(&regions[i]); found {
				find(api.HealthDegraded, api.Reason{Code: code, Member: regions[i].Name, Detail: detail})
			}
		}
	}
	members(reasonQuarantined, func(r *api.Region) (string, bool) {
		if r.Quarantine == nil {
			return "", false
		}
		return r.Quarantine.Cause, true
	})
	members(reasonUnreachable, func(r *api.Region) (string, bool) {
		if r.Reachable {
			return "", false
		}
		if r.Error == nil {
			return "", true
		}
		return r.Error.Code, true
	})
	for i := range v.rows {
		if why, cut := v.partitioned(&v.rows[i]); cut && v.rows[i].answer != nil {
			find(api.HealthDegraded, api.Reason{Code: reasonPartitioned, Member: regions[i].Name, Detail: why})
		}
	}
	members(reasonUnresolved, func(r *api.Region) (string, bool) {
		return "voters have different states and none has a majority: tidalctl verify", r.Check != nil && r.Check.State == member.StateUnresolved
	})
	for i := range regions {
		r := &regions[i]
		if r.Disk == nil || !r.Disk.Full {
			continue
		}
		level := api.HealthDegraded
		if r.IsLeader { // nobody with room could take over: nothing can be written
			level = api.HealthCritical
		}
		find(level, api.Reason{Code: reasonDiskFull, Member: r.Name,
			Detail: fmt.Sprintf("%d MiB are free, client writes need %d MiB", r.Disk.FreeBytes>>20, r.Disk.ReserveBytes>>20)})
	}
	if !consistent {
		find(api.HealthDegraded, api.Reason{Code: reasonDisagree, Detail: "members that answer name different leaders"})
	}
	members(reasonFault, func(r *api.Region) (string, bool) {
		if len(r.Faults) == 0 {
			return "", false
		}
		return faultsText(r.Faults), true
	})
	members(reasonClockSkew, func(r *api.Region) (string, bool) { return clockOff(r, v.leads()) })
	members(reasonNotReady, func(r *api.Region) (string, bool) {
		return "", r.Ready != nil && !*r.Ready && r.Quarantine == nil
	})
	members(reasonBehind, func(r *api.Region) (string, bool) {
		if r.AppliedIndex == nil || r.LagEvents == nil || *r.LagEvents <= behindEvents {
			return "", false
		}
		return strconv.FormatUint(*r.LagEvents, 10) + " entries behind", true
	})
	return h
}

// faultsText says what a member keeps up: "f-1 against us-west, ap-south until 12:00:20Z".
func faultsText(faults []api.Fault) string {
	var ids, peers []string
	var end time.Time
	for _, f := range faults {
		if !slices.Contains(ids, f.ID) {
			ids = append(ids, f.ID)
		}
		if !slices.Contains(peers, f.Peer) {
			peers = append(peers, f.Peer)
		}
		if f.ExpiresAt.After(end) {
			end = f.ExpiresAt
		}
	}
	return fmt.Sprintf("%s against %s until %s", strings.Join(ids, ", "), strings.Join(peers, ", "), end.Format(clockTime))
}
