// Package opstest is a member for the tests of ops and httpd: the real state and the real apply on a
// disk in memory, and in the place of consensus a test that says who leads and what goes wrong.
//
// Callers: tests only.
package opstest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/ops"
	"github.com/tidaldb/tidal/daemon/outbox"
	"github.com/tidaldb/tidal/daemon/replica"
	"github.com/tidaldb/tidal/daemon/state"
)

// Start is the wall time of every member, when it started and ever after.
var Start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Genesis returns a cluster of voters called names, at addrs.
func Genesis(names ...string) membership.Genesis {
	var g membership.Genesis
	for i, name := range names {
		g.Members = append(g.Members, membership.Member{
			ID: ident.MemberID(i + 1), Incarnation: ident.Incarnation{byte(i + 1)}, Name: name, Role: membership.RoleVoter,
			GRPCAddr: name + ":9600", HTTPAddr: name + ":9500", Capabilities: ident.Supported,
		})
	}
	return g
}

// Member is one member. It implements ops.Member and, for group 0, ops.Replica.
type Member struct {
	Genesis membership.Genesis // Declared, Roster and cluster id follow it

	mu struct {
		sync.Mutex
		status  member.Status
		err     error // of Replica
		born    bool
		role    consensus.Role
		heard   time.Time
		write   func(context.Context) error // before a write is applied
		begin   func() error                // before a write is begun
		machine *apply.Machine
		have    []ident.MemberID
		adjust  func(*replica.Status)
		move    func(context.Context, ident.MemberID) (replica.Handover, error)
		stand   func()

		membership Membership
	}
	store *state.Store
	box   *outbox.Box
}

// New makes the serving member called name, which leads in term 2, with an empty state. The test
// ends it.
func New(t testing.TB, g membership.Genesis, name string) *Member {
	t.Helper()
	self, ok := g.Named(name)
	if !ok {
		t.Fatalf("no member %q", name)
	}
	opts := state.Options{FS: vfs.NewMem(), Dir: "state"}
	pos := state.Position{Applied: ident.EntryID{Term: 1, Index: 1}, Conf: g.ConfState()}
	if err := state.Create(opts, pos, func(b *state.Batch) error { return apply.Birth(b, g.Roster()) }); err != nil {
		t.Fatal(err)
	}
	store, err := state.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	m := &Member{Genesis: g, store: store}
	if m.mu.machine, err = apply.New(store); err != nil {
		t.Fatal(err)
	}
	if m.box, err = outbox.Open(outbox.Options{FS: vfs.NewMem(), Dir: "outbox", Owner: self.Incarnation, Now: func() time.Time { return Start }}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.box.Close(); err != nil {
			t.Error(err)
		}
	})
	m.mu.status = member.Status{
		Name: name, ID: self.ID, Cluster: g.ClusterID(), Incarnation: self.Incarnation, BootEpoch: 1, Version: "test",
		StartedAt: Start, Phase: member.PhaseServing, GRPCAddr: self.GRPCAddr, HTTPAddr: self.HTTPAddr, Ready: true,
	}
	m.mu.born = true
	m.Lead(2, self.ID)
	return m
}

// Lead says that leader leads term, as this member knows it; 0: nobody.
func (m *Member) Lead(term uint64, leader ident.MemberID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.role = consensus.Role{Term: term, Leader: leader, State: raft.StateFollower}
	if leader == m.mu.status.ID {
		m.mu.role.State = raft.StateLeader
	}
	m.mu.heard = Start
}

// Unborn makes the member wait for the birth of its cluster.
func (m *Member) Unborn(waiting ...membership.Waiting) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.mu.status
	s.ID, s.Cluster, s.Phase, s.WaitingFor, s.Ready, s.NotReady = 0, ident.ClusterID{}, member.PhaseWaiting, waiting, false, []string{"the cluster is not born yet"}
	m.mu.born, m.mu.err = false, member.ErrNotBorn
}

// Quarantine closes the replica.
func (m *Member) Quarantine(q member.Quarantine) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.status.Ready, m.mu.status.NotReady = false, []string{"group 0 is quarantined"}
	m.mu.err = &member.QuarantinedError{Quarantine: q}
}

// BeforeWrite is called by every write; its error is the write's, and nothing is applied.
func (m *Member) BeforeWrite(f func(context.Context) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.write = f
}

// BeforeBegin is called when a write is begun; its error is the write's.
func (m *Member) BeforeBegin(f func() error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.begin = f
}

// MaxKeys bounds the idempotency keys that are kept.
func (m *Member) MaxKeys(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.machine.MaxKeys = n
}

// Replicated says which other members hold writes durably.
func (m *Member) Replicated(ids ...ident.MemberID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.have = ids
}

// Open is ops.Options.Replica.
func (m *Member) Open(ident.GroupID) (ops.Replica, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.err != nil {
		return nil, m.mu.err
	}
	return Replica{m}, nil
}

// Outbox is ops.Options.Outbox.
func (m *Member) Outbox() *outbox.Box { return m.box }

// Replica is what Open returns, whatever ails the member.
func (m *Member) Replica() Replica { return Replica{m} }

// Declared implements ops.Member.
func (m *Member) Declared() []membership.Member {
	var out []membership.Member
	for _, x := range m.Genesis.Members {
		out = append(out, membership.Member{Name: x.Name, GRPCAddr: x.GRPCAddr, HTTPAddr: x.HTTPAddr})
	}
	return out
}

// Roster implements ops.Member.
func (m *Member) Roster() membership.Roster {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.mu.born {
		return membership.Roster{}
	}
	r := m.Genesis.Roster()
	r.Tombstones = m.mu.membership.Tombstones
	for _, t := range r.Tombstones {
		r.NextID = max(r.NextID, uint64(t.ID)+1)
	}
	return r
}

// Status implements ops.Member.
func (m *Member) Status() member.Status {
	roster := m.Roster()
	rs := Replica{m}.Status()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.mu.status
	s.Roster, s.Outbox = roster, m.box.Status()
	if m.mu.born {
		g := member.GroupStatus{Replica: rs}
		if q, ok := m.mu.err.(*member.QuarantinedError); ok {
			g.Quarantine, g.Closed = &q.Quarantine, !q.Quarantine.Cause.Conduct().Votes
		}
		s.Groups = []member.GroupStatus{g}
	}
	return s
}

// Replica is the replica of a Member.
type Replica struct{ m *Member }

// Begin applies data at once, if this member leads; BeforeWrite may delay that until the wait. With
// consensus.AckLeader it says no more than a replica would.
func (r Replica) Begin(data []byte, ack consensus.Ack) (func(context.Context) (replica.Result, error), error) {
	r.m.mu.Lock()
	before, begin, role := r.m.mu.write, r.m.mu.begin, r.m.mu.role
	r.m.mu.Unlock()
	if role.State != raft.StateLeader {
		return nil, &replica.NotLeaderError{Term: role.Term, Leader: role.Leader}
	}
	if begin != nil {
		if err := begin(); err != nil {
			return nil, err
		}
	}
	if before == nil {
		res, err := r.apply(data, role.Term, ack)
		return func(context.Context) (replica.Result, error) { return res, err }, nil
	}
	return func(ctx context.Context) (replica.Result, error) {
		if err := before(ctx); err != nil {
			return replica.Result{}, err
		}
		return r.apply(data, role.Term, ack)
	}, nil
}

func (r Replica) apply(data []byte, term uint64, ack consensus.Ack) (replica.Result, error) {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	id := ident.EntryID{Term: term, Index: r.m.store.Position().Applied.Index + 1}
	run := &apply.Run{Entries: []*pb.Entry{{
		Term: proto.Uint64(id.Term), Index: proto.Uint64(id.Index), Type: pb.EntryNormal.Enum(),
		Data: command.EncodeWrites(ident.MakeStamp(Start.UnixMilli())+ident.Stamp(id.Index), [][]byte{data}),
	}}}
	if err := r.m.mu.machine.Apply([]*apply.Run{run}); err != nil {
		return replica.Result{}, err
	}
	for _, d := range run.Deliveries {
		if d.Refused == "" {
			r.m.box.Delivered(d.Origin, d.Delivered)
		}
	}
	if ack == consensus.AckLeader {
		return replica.Result{ID: id, Ack: ack}, nil
	}
	return replica.Result{ID: id, Outcome: run.Outcomes[0][0], Replicated: r.m.mu.have}, nil
}

// ReadIndex returns the applied index; without a leader it waits for ever.
func (r Replica) ReadIndex(ctx context.Context) (uint64, error) {
	if r.Status().Leader == 0 {
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}
	return r.m.store.Position().Applied.Index, nil
}

// WaitApplied waits for ever for what is not applied.
func (r Replica) WaitApplied(ctx context.Context, index uint64) error {
	if index > r.m.store.Position().Applied.Index {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return nil
}

// Adjust has f change every status of the replica that is asked for.
func (m *Member) Adjust(f func(*replica.Status)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.adjust = f
}

// OnTransfer has f carry out transfers of leadership, and stand what a campaign does.
func (m *Member) OnTransfer(f func(context.Context, ident.MemberID) (replica.Handover, error), stand func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.move, m.mu.stand = f, stand
}

// TransferLeader implements ops.Replica: without OnTransfer it arrives at once.
func (r Replica) TransferLeader(ctx context.Context, to ident.MemberID) (replica.Handover, error) {
	r.m.mu.Lock()
	move, term := r.m.mu.move, r.m.mu.role.Term
	r.m.mu.Unlock()
	if move != nil {
		return move(ctx, to)
	}
	r.m.Lead(term+1, to)
	return replica.Handover{Term: term + 1, Pause: time.Millisecond}, nil
}

// Campaign implements ops.Replica: without OnTransfer nothing happens.
func (r Replica) Campaign() {
	r.m.mu.Lock()
	stand := r.m.mu.stand
	r.m.mu.Unlock()
	if stand != nil {
		stand()
	}
}

// View implements ops.Replica.
func (r Replica) View() *state.View { return r.m.store.NewView() }

// Status implements ops.Replica.
func (r Replica) Status() replica.Status {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	at := r.m.store.Position().Applied.Index
	s := replica.Status{LeaderHeard: r.m.mu.heard}
	s.Role, s.First, s.Last, s.Durable, s.Commit, s.Applied = r.m.mu.role, 2, at, at, at, at
	if s.Leader != 0 {
		s.LeaderLast = at
	}
	s.Conf = r.m.Genesis.ConfState()
	if s.State == raft.StateLeader {
		for _, x := range r.m.Genesis.Members {
			if x.ID != r.m.mu.status.ID {
				s.Progress = append(s.Progress, consensus.Progress{ID: x.ID, Match: at, Next: at + 1, Active: true})
			}
		}
	}
	if r.m.mu.adjust != nil {
		r.m.mu.adjust(&s)
	}
	return s
}
