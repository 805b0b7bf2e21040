package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/state"
	"github.com/tidaldb/tidal/daemon/wal"
)

// RecoverPlan is how a cluster that lost its majority for good goes on from this member's disk. It says
// what the plan was made for; whatever is otherwise now makes it stale.
type RecoverPlan struct {
	Cluster     ident.ClusterID
	Survivor    ident.MemberID
	Incarnation ident.Incarnation // of the survivor

	Term   uint64        // of the survivor
	Last   ident.EntryID // of its log
	Roster uint64        // version at the end of its log
	Was    ident.History

	History ident.History    // from then on
	Above   uint64           // the highest term of any member that is kept
	Keeps   []ident.MemberID // beside the survivor
	GivesUp []ident.MemberID // ascending
}

// Recovered is what a recovery did.
type Recovered struct {
	History ident.History
	Last    ident.EntryID // the last entry of the former history
	Index   uint64        // of the last entry that the recovery wrote
	Already bool          // it had been carried out before
}

// StalePlanError refuses a plan that does not fit what is here now. Nothing was changed.
type StalePlanError struct{ What, Plan, Now string }

func (e *StalePlanError) Error() string {
	return fmt.Sprintf("the plan was made for %s %s, it is %s now: make another plan", e.What, e.Plan, e.Now)
}

// StillAnswersError refuses a plan that gives up a member that is not lost. Nothing was changed.
type StillAnswersError struct{ Name, Addr string }

func (e *StillAnswersError) Error() string {
	return fmt.Sprintf("%s, which the plan gives up, answers at %s: it is not lost; stop it for good, or make a plan that keeps it", e.Name, e.Addr)
}

// HasLeaderError refuses to recover a cluster that works. Nothing was changed.
type HasLeaderError struct{ By, Leader string }

func (e *HasLeaderError) Error() string {
	return fmt.Sprintf("%s follows %s: the cluster has a leader and needs no recovery; use tidalctl members remove or replace", e.By, e.Leader)
}

// Extent is what a plan is made of, and compared with: how far this member's disk goes.
type Extent struct {
	Identity datadir.Member
	Term     uint64
	Leader   ident.MemberID // 0: none is known
	Last     ident.EntryID  // of the log
	Applied  uint64
	Commit   uint64       // as far as the disk knows
	Digest   state.Digest // of the state at Applied; version 0: none is kept
	// Roster and Conf are those at the end of the log, committed or not.
	Roster membership.Roster
	Conf   *pb.ConfState
}

// Extent returns how far the disk of this member goes. Its group 0 must be open and sound.
func (m *Member) Extent() (Extent, error) {
	if _, err := m.Replica(0); err != nil {
		return Extent{}, err
	}
	return m.extent(m.current(0))
}

func (m *Member) extent(g *group) (Extent, error) {
	s := Extent{Identity: m.identity(), Term: m.opts.Dir.Vote(g.id).Term, Leader: g.replica.Status().Leader}
	pos := g.store.Position()
	roster, err := rosterOf(g.store)
	if err != nil {
		return s, err
	}
	s.Applied, s.Digest = pos.Applied.Index, pos.Digest
	s.Commit = max(g.replica.Status().Commit, s.Applied)
	s.Last.Index = g.log.LastIndex()
	if s.Last.Term, err = g.log.Term(s.Last.Index); err != nil {
		return s, err
	}
	s.Conf, s.Roster = pos.Conf, roster
	for i := pos.Applied.Index + 1; i <= s.Last.Index; {
		entries, err := g.log.Entries(i, s.Last.Index+1, 1<<20)
		if err == nil {
			s.Conf, s.Roster, err = apply.Foresee(s.Conf, s.Roster, entries)
		}
		if err != nil {
			return s, err
		}
		i += uint64(len(entries))
	}
	return s, nil
}

// fits returns nil, or why p must not be carried out on s.
func (p RecoverPlan) fits(s Extent) error {
	stale := func(what string, plan, now any) error {
		return &StalePlanError{what, fmt.Sprint(plan), fmt.Sprint(now)}
	}
	switch id := s.Identity; {
	case p.Cluster != id.Cluster:
		return stale("cluster", p.Cluster, id.Cluster)
	case p.Survivor != id.ID:
		return stale("member", p.Survivor, id.ID)
	case p.Incarnation != id.Incarnation:
		return stale("incarnation", p.Incarnation, id.Incarnation)
	case p.Was != s.Roster.History:
		return stale("history", p.Was, s.Roster.History)
	case p.Roster != s.Roster.Version:
		return stale("roster version", p.Roster, s.Roster.Version)
	case s.Leader != 0:
		return &HasLeaderError{By: id.Name, Leader: nameOf(s.Roster, s.Leader)}
	case p.Term != s.Term:
		return stale("term", p.Term, s.Term)
	case p.Last != s.Last:
		return stale("last entry", p.Last, s.Last)
	case !p.names(s.Roster):
		return stale("members", append(append([]ident.MemberID{p.Survivor}, p.Keeps...), p.GivesUp...), idsOf(s.Roster))
	case p.Above < p.Term:
		return fmt.Errorf("the plan knows of term %d alone, its survivor is in term %d", p.Above, p.Term)
	}
	return nil
}

// names reports whether p says of every member of r, and of nobody else, what is to become of it.
func (p RecoverPlan) names(r membership.Roster) bool {
	all := append(append([]ident.MemberID{p.Survivor}, p.Keeps...), p.GivesUp...)
	slices.Sort(all)
	return slices.Equal(all, idsOf(r))
}

func idsOf(r membership.Roster) []ident.MemberID {
	ids := make([]ident.MemberID, 0, len(r.Members))
	for _, m := range r.Members {
		ids = append(ids, m.ID)
	}
	return ids
}

// recovery is a plan on its way to the keeper.
type recovery struct {
	plan RecoverPlan
	done chan struct{}
	out  Recovered
	err  error
}

// Recover carries p out on this member, the survivor: its log, all of it, becomes what is committed, and
// the members that are given up are removed as if a majority had agreed. It is refused while any of them
// answers, while anybody has a leader, and where anything changed since the plan was made.
//
// A crash at any point leaves the member as it was (its term may have risen) or recovered: what changes
// the cluster is one frame of its log, which is there whole or not at all.
func (m *Member) Recover(ctx context.Context, p RecoverPlan) (Recovered, error) {
	if r := m.Roster(); r.History == p.History && m.identity().ID == p.Survivor {
		return Recovered{History: p.History, Last: p.Last, Already: true}, nil
	}
	if err := m.nobodyAnswers(ctx, p); err != nil {
		return Recovered{}, err
	}
	g := m.current(0)
	if g == nil {
		return Recovered{}, ErrNotBorn
	}
	r := &recovery{plan: p, done: make(chan struct{})}
	if m.opts.Foreground {
		r.out, r.err = g.keeper.recover(p)
		return r.out, r.err
	}
	select {
	case g.keeper.recoveries <- r:
	case <-ctx.Done():
		return Recovered{}, context.Cause(ctx)
	}
	select {
	case <-r.done:
		return r.out, r.err
	case <-ctx.Done():
		return Recovered{}, fmt.Errorf("the recovery is under way, see the status: %w", context.Cause(ctx))
	}
}

// nobodyAnswers asks every member that p gives up, and whether those that are kept have a leader.
func (m *Member) nobodyAnswers(ctx context.Context, p RecoverPlan) error {
	roster, self := m.Roster(), m.identity()
	errs := make([]error, len(roster.Members))
	var asked sync.WaitGroup
	for i, x := range roster.Members {
		if x.ID == self.ID {
			continue
		}
		asked.Go(func() {
			addr := m.addrOf(x)
			reply, err := m.probe(ctx, addr)
			switch {
			case err != nil || reply.Cluster != self.Cluster || reply.ID != x.ID:
			case slices.Contains(p.GivesUp, x.ID):
				errs[i] = &StillAnswersError{Name: x.Name, Addr: addr}
			case reply.Leader != 0:
				errs[i] = &HasLeaderError{By: x.Name, Leader: nameOf(roster, reply.Leader)}
			}
		})
	}
	asked.Wait()
	return errors.Join(errs...)
}

// recover closes the replica, writes what p says into its log, and opens it again, in any case.
func (k *keeper) recover(p RecoverPlan) (out Recovered, err error) {
	now, err := k.m.Extent()
	if err == nil {
		err = p.fits(now)
	}
	if err != nil {
		return out, err
	}
	names := make([]string, 0, len(p.GivesUp))
	for _, id := range p.GivesUp {
		names = append(names, nameOf(now.Roster, id))
	}
	g := k.m.current(k.group)
	sound, err := k.m.closeGroup(k.group, func(log *wal.Log) error {
		out, err = k.force(p, g, log)
		return err
	})
	if err == nil && !sound {
		err = errors.New("the log did not close well")
	}
	k.m.admit(k.m.openGroup(k, k.m.identity(), nil))
	if err != nil {
		return Recovered{}, fmt.Errorf("recover from member %s: %w", p.Survivor, err)
	}
	k.m.log.Warn("cluster recovered", slog.String("history", p.History.String()), slog.Uint64("last", out.Last.Index), slog.Any("lost", names))
	k.m.opts.Journal.Add(journal.Recovered{History: p.History.String(), Index: out.Last.Index, Lost: names})
	return out, nil
}

// force writes the changes of membership that p asks for behind everything that is in the log, and that
// all of it is committed: one frame. The replica is closed, so nobody else writes to the log; whatever
// changed since the plan was made is seen here for the last time.
//
//  1. votes: a term above every one that a kept member knows, for this member
//  2. the frame, synced: the one commit point
func (k *keeper) force(p RecoverPlan, g *group, log *wal.Log) (Recovered, error) {
	now, err := k.m.extent(g)
	if err == nil {
		err = p.fits(now)
	}
	if err != nil {
		return Recovered{}, err
	}
	changes, err := membership.Recover(now.Roster, now.Conf, membership.Recovery{
		Survivor: p.Survivor, GivesUp: p.GivesUp, History: p.History, At: k.m.opts.Now().UnixMilli(),
	})
	if err != nil {
		return Recovered{}, err
	}
	term, last := max(p.Above, now.Term)+1, now.Last.Index
	frame := wal.Frame{HardState: &pb.HardState{Term: new(term), Vote: new(uint64(p.Survivor)), Commit: new(last + uint64(len(changes)))}}
	for i, c := range changes {
		data, err := proto.Marshal(c)
		if err != nil {
			return Recovered{}, fmt.Errorf("encode change %d: %w", i, err)
		}
		frame.Entries = append(frame.Entries, &pb.Entry{Type: pb.EntryConfChangeV2.Enum(), Term: new(term), Index: new(last + 1 + uint64(i)), Data: data})
	}
	if err := k.m.opts.Dir.SetVote(k.group, datadir.Vote{Term: term, Vote: uint64(p.Survivor)}); err != nil {
		return Recovered{}, err
	}
	if err := log.Append([]wal.Frame{frame}, true); err != nil {
		return Recovered{}, err
	}
	return Recovered{History: p.History, Last: now.Last, Index: frame.HardState.GetCommit()}, nil
}
