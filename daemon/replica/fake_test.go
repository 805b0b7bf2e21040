package replica_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/replica"
	"github.com/tidaldb/tidal/daemon/state"
	"github.com/tidaldb/tidal/daemon/wal"
)

// genesis is the entry that every log here begins after.
var genesis = ident.EntryID{Term: 1, Index: 1}

// gate lets calls through while it is open.
type gate struct {
	mu     sync.Mutex
	opened chan struct{}
}

func newGate() *gate {
	g := &gate{opened: make(chan struct{})}
	close(g.opened)
	return g
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.opened)
}

func (g *gate) pass() {
	g.mu.Lock()
	c := g.opened
	g.mu.Unlock()
	<-c
}

// disk is a log, its votes and a state, in memory, of one member.
type disk struct {
	appends, applies *gate

	mu      sync.Mutex
	hs      *pb.HardState
	ents    []*pb.Entry // durable or not
	synced  int         // of ents
	votes   datadir.Vote
	applied ident.EntryID
	stamp   ident.Stamp // of what is applied
	conf    *pb.ConfState
	seen    map[string]int // how often each item was written
	runs    int
	flushed uint64
	flushes int

	// What the next call of each kind returns.
	appendErr, voteErr, applyErr, flushErr error
}

func newDisk(voters ...uint64) *disk {
	return &disk{
		appends: newGate(), applies: newGate(),
		hs:      &pb.HardState{Term: new(genesis.Term), Commit: new(genesis.Index)},
		votes:   datadir.Vote{Term: genesis.Term},
		applied: genesis, flushed: genesis.Index,
		conf: &pb.ConfState{Voters: voters},
		seen: map[string]int{},
	}
}

func (d *disk) FirstIndex() uint64 { return genesis.Index + 1 }

func (d *disk) LastIndex() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return genesis.Index + uint64(len(d.ents))
}

func (d *disk) Term(i uint64) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case i == genesis.Index:
		return genesis.Term, nil
	case i < genesis.Index:
		return 0, raft.ErrCompacted
	case i > genesis.Index+uint64(len(d.ents)):
		return 0, raft.ErrUnavailable
	}
	return d.ents[i-genesis.Index-1].GetTerm(), nil
}

func (d *disk) Entries(lo, hi, _ uint64) ([]*pb.Entry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ents[lo-genesis.Index-1 : hi-genesis.Index-1], nil
}

func (d *disk) Append(frames []wal.Frame, sync bool) error {
	d.appends.pass()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.appendErr != nil {
		return d.appendErr
	}
	for _, f := range frames {
		if v := (datadir.Vote{Term: f.HardState.GetTerm(), Vote: f.HardState.GetVote()}); v.Term > d.votes.Term {
			return fmt.Errorf("term %d is in the log before the votes, which have %d", v.Term, d.votes.Term)
		}
		d.hs = f.HardState
		if len(f.Entries) > 0 {
			keep := f.Entries[0].GetIndex() - genesis.Index - 1
			d.ents = append(d.ents[:keep:keep], f.Entries...)
			d.synced = min(d.synced, int(keep))
		}
	}
	if sync {
		d.synced = len(d.ents)
	}
	return nil
}

func (d *disk) Vote(ident.GroupID) datadir.Vote {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.votes
}

func (d *disk) SetVote(_ ident.GroupID, v datadir.Vote) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.voteErr != nil {
		return d.voteErr
	}
	d.votes = v
	return nil
}

// said returns an error if a message rests on what is not durable here.
func (d *disk) said(m *pb.Message) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	durable := genesis.Index + uint64(d.synced)
	switch {
	case m.GetReject():
	case m.GetType() == pb.MsgAppResp && m.GetIndex() > durable:
		return fmt.Errorf("acknowledged %d, durable is %d", m.GetIndex(), durable)
	case m.GetType() == pb.MsgVoteResp && d.votes != datadir.Vote{Term: m.GetTerm(), Vote: m.GetTo()}:
		return fmt.Errorf("voted for %d in term %d, durable is %v", m.GetTo(), m.GetTerm(), d.votes)
	}
	return nil
}

func (d *disk) Position() state.Position {
	d.mu.Lock()
	defer d.mu.Unlock()
	return state.Position{Applied: d.applied, Stamp: d.stamp, Conf: d.conf}
}

func (d *disk) NewView() *state.View { return nil }

func (d *disk) FlushedIndex() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.flushed
}

func (d *disk) Flush() (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.flushErr != nil {
		return 0, d.flushErr
	}
	d.flushed = d.applied.Index
	d.flushes++
	return d.flushed, nil
}

// Apply counts the items of signals, and refuses each write with its item as the detail, so that a
// caller can tell whose outcome it got.
func (d *disk) Apply(runs []*apply.Run) error {
	d.applies.pass()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.applyErr != nil {
		return d.applyErr
	}
	d.runs++
	for _, run := range runs {
		for _, e := range run.Entries {
			if e.GetIndex() != d.applied.Index+1 {
				return fmt.Errorf("entry %d after %s", e.GetIndex(), d.applied)
			}
			d.applied = ident.EntryID{Term: e.GetTerm(), Index: e.GetIndex()}
			entry, err := command.Decode(e.GetData())
			if err != nil {
				return err
			}
			d.stamp = max(d.stamp, entry.Stamp)
			var outcomes []command.Outcome
			for {
				records, ok := entry.Writes.Next()
				if !ok {
					break
				}
				for records.Next() {
					item := records.Signal().Item
					d.seen[item]++
					outcomes = append(outcomes, command.Outcome{Refused: []command.Refusal{{Detail: item}}})
				}
			}
			run.Outcomes = append(run.Outcomes, outcomes)
		}
	}
	return nil
}

func (d *disk) count(item string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen[item]
}

// with runs f under the disk's mutex.
func (d *disk) with(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// network joins the replicas of one process. Messages travel as bytes.
type network struct {
	t testing.TB

	mu       sync.Mutex
	replicas map[ident.MemberID]*replica.Replica
	disks    map[ident.MemberID]*disk // checked before a message leaves; nil: not
	cut      map[ident.MemberID]bool  // neither sends nor receives
}

func newNetwork(t testing.TB) *network {
	return &network{
		t:        t,
		replicas: map[ident.MemberID]*replica.Replica{},
		disks:    map[ident.MemberID]*disk{},
		cut:      map[ident.MemberID]bool{},
	}
}

func (n *network) Send(_ ident.GroupID, msgs []*pb.Message) {
	for _, m := range msgs {
		from, to := ident.MemberID(m.GetFrom()), ident.MemberID(m.GetTo())
		n.mu.Lock()
		d, dest, lost := n.disks[from], n.replicas[to], n.cut[from] || n.cut[to]
		n.mu.Unlock()
		if d != nil {
			if err := d.said(m); err != nil {
				n.t.Errorf("member %s spoke before it persisted: %v", from, err)
			}
		}
		if dest == nil || lost {
			continue
		}
		b, err := proto.Marshal(m)
		if err != nil {
			n.t.Errorf("marshal: %v", err)
			continue
		}
		var c pb.Message
		if err := proto.Unmarshal(b, &c); err != nil {
			n.t.Errorf("unmarshal: %v", err)
			continue
		}
		dest.Receive([]*pb.Message{&c})
	}
}

func (n *network) attach(id ident.MemberID, r *replica.Replica) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.replicas[id] = r
}

func (n *network) isolate(id ident.MemberID, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[id] = cut
}

// options are those of a replica on d in n.
func options(id ident.MemberID, d *disk, n *network) replica.Options {
	return replica.Options{
		Self: id, Log: d, Votes: d, State: d, Apply: d, Net: n,
		Recovered: wal.Recovered{HardState: d.hs, Base: genesis, Last: genesis},
		Tick:      10 * time.Millisecond,
	}
}

// start opens and starts a replica and closes it after the test.
func start(t testing.TB, n *network, o replica.Options) *replica.Replica {
	t.Helper()
	r, err := replica.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	n.attach(o.Self, r)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	r.Start()
	return r
}

// single starts a replica that is alone in its group, and waits until it leads.
func single(t testing.TB, d *disk, change func(*replica.Options)) *replica.Replica {
	t.Helper()
	n := newNetwork(t)
	n.disks[1] = d
	o := options(1, d, n)
	o.Tick = 2 * time.Millisecond // a lone voter has nobody to lose its leadership to
	if change != nil {
		change(&o)
	}
	r := start(t, n, o)
	leads(t, r)
	return r
}

// leads waits until one of rs leads and is committed in its term, and returns it.
func leads(t testing.TB, rs ...*replica.Replica) (leader *replica.Replica) {
	t.Helper()
	eventually(t, "a leader", func() bool {
		for _, r := range rs {
			s := r.Status()
			if s.State == raft.StateLeader && s.Leader != 0 && s.Applied == s.Last {
				leader = r
				return true
			}
		}
		return false
	})
	return leader
}

// eventually fails the test if what does not become true.
func eventually(t testing.TB, what string, true func() bool) {
	t.Helper()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	deadline := time.After(20 * time.Second)
	for !true() {
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("no %s after 20 s", what)
		}
	}
}

func signal(item string) []byte {
	return command.EncodeWrite(command.Write{Records: []command.Record{command.Signal{Item: item, Type: "view", Milli: 1000}}})
}

func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

var _ consensus.Log = (*disk)(nil)
