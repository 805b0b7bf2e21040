package member

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/replica"
	"github.com/tidaldb/tidal/testenv/simfs"
)

const labTick = 100 * time.Millisecond

// lab is a cluster of members on disks in memory, all driven by one thread: the replicas by their drivers,
// the duties by hand. Only raft's election timeouts are random.
type lab struct {
	t      *testing.T
	now    time.Time
	steps  int
	nodes  []*node
	mail   []packet
	cut    map[[2]*node]bool
	policy membership.Policy
	// retention is that of every node; its zero value is the default.
	retention Retention

	// stopAt is looked at whenever a node has worked; when it says so, everything stands still until
	// stopped is taken back.
	stopAt  func() bool
	stopped bool

	noDigests bool // nobody is told what states add up to

	led map[uint64]ident.MemberID // who led each term

	// lazy: disks and workers take their time, each its own, so that duties come between a message and what
	// becomes of it; and states are flushed again and again.
	lazy   bool
	rounds int

	filled int // items that fill has written
}

// node is one machine: a process runs on it, or none.
type node struct {
	lab   *lab
	name  string
	addr  string
	fs    *simfs.FS
	disks int

	dir     *datadir.Dir
	m       *Member // nil: it does not run
	driver  *replica.Driver
	replica *replica.Replica
	life    int
	peers   map[ident.MemberID]peer.Peer
	greeted map[*node]int // life of each node whose stream is open
	report  bool
	// admitted is what it is told when it asks to join; asking is how it asks.
	admitted *Admission
	asking   *Verb

	// Held back: what a disk or a worker that stands still does not do.
	noApply, noSync bool
	// mute: it reaches nobody, and is reached.
	mute bool
	// slow is what goes on while it takes in one chunk of an artifact; nil: nothing does. keeping: its keeper is
	// at it. fetched counts the artifacts that it has begun to take in.
	slow    func()
	keeping bool
	fetched int
	// usage is what its disk says of its room, from the next start on; nil: what is so.
	usage *vfs.DiskUsage
	// seeks: it looks for its cluster by itself, as a process does.
	seeks bool
}

type packet struct {
	from *node
	life int
	to   ident.MemberID
	msg  []byte
}

// newLab starts the cluster that declares these names.
func newLab(t *testing.T, names ...string) *lab {
	t.Helper()
	return newLabWith(t, Retention{}, names...)
}

// newLabWith is newLab with logs that are kept like this.
func newLabWith(t *testing.T, retention Retention, names ...string) *lab {
	t.Helper()
	l := bornLab(t, retention, names...)
	l.leader()
	return l
}

// bornLab is newLabWith before anybody leads.
func bornLab(t *testing.T, retention Retention, names ...string) *lab {
	t.Helper()
	l := &lab{t: t, now: time.UnixMilli(1_700_000_000_000), cut: map[[2]*node]bool{}, policy: membership.DefaultPolicy(), retention: retention}
	for _, name := range names {
		l.nodes = append(l.nodes, l.machine(name))
	}
	for _, n := range l.nodes {
		n.start()
	}
	for range 10 {
		for _, n := range l.nodes {
			if n.driver == nil {
				if serves, err := n.m.Seek(); err != nil {
					t.Fatal(err)
				} else if serves {
					n.open()
				}
			}
		}
	}
	t.Cleanup(func() {
		for _, n := range l.nodes {
			n.stop()
		}
	})
	return l
}

func (l *lab) machine(name string) *node {
	return &node{lab: l, name: name, addr: name + ":1", fs: simfs.New()}
}

func (l *lab) declared() []membership.Declared {
	var all []membership.Declared
	for i, n := range l.nodes {
		if slices.ContainsFunc(l.nodes[:i], func(o *node) bool { return o.name == n.name }) {
			continue // it is to take the place of the other one
		}
		all = append(all, membership.Declared{Name: n.name, GRPCAddr: n.name + ":1", HTTPAddr: n.name + ":2"})
	}
	return all
}

func (n *node) start() {
	n.lab.t.Helper()
	n.life++
	dir, err := datadir.Open(datadir.Options{Path: "/data", FS: n.fs, Name: n.name, FileID: func(string) (datadir.FileID, error) { return datadir.FileID{Inode: uint64(n.disks) + 1}, nil }})
	if err != nil {
		n.lab.t.Fatalf("%s: %v", n.name, err)
	}
	n.dir, n.peers, n.greeted = dir, map[ident.MemberID]peer.Peer{}, map[*node]int{}
	declared := n.lab.declared()
	if !slices.ContainsFunc(declared, func(d membership.Declared) bool { return d.Name == n.name }) {
		declared = append(declared, membership.Declared{Name: n.name, GRPCAddr: n.addr, HTTPAddr: n.name + ":2"})
	}
	fs := vfs.FS(n.fs)
	if n.usage != nil {
		fs = crowded{fs, n.usage}
	}
	n.m = New(Options{
		Dir: dir, DataDir: "/data", FS: fs, Name: n.name, GRPCAddr: n.addr, HTTPAddr: n.name + ":2", Declared: declared, Topology: [32]byte{1},
		Tick: labTick, HeartbeatTicks: 1, ElectionTicks: 10, SegmentBytes: 64 << 10, FirstSegmentBytes: 16 << 10, Foreground: true,
		Now: func() time.Time { return n.lab.now }, Journal: journal.New(journal.Options{}), Policy: n.lab.policy, Retention: n.lab.retention,
		Join: JoinOptions{Introducer: labIntroducer{n}},
	})
	if err := n.m.Drive(labPort{n}); err != nil {
		n.lab.t.Fatalf("%s: %v", n.name, err)
	}
	if dir.Member().ID != 0 {
		n.open()
	}
}

// crowded is a disk that others use too.
type crowded struct {
	vfs.FS
	usage *vfs.DiskUsage
}

func (d crowded) GetDiskUsage(string) (vfs.DiskUsage, error) { return *d.usage, nil }

// open drives the replica that takes part, if there is one.
func (n *node) open() {
	n.driver, n.replica = nil, nil
	if r := n.m.Taking(0); r != nil {
		n.replica, n.driver = r, r.Drive()
	}
}

// stop ends the process; its disk stays.
func (n *node) stop() {
	if n.m == nil {
		return
	}
	if err := errors.Join(n.m.Stop(), n.dir.Close()); err != nil {
		n.lab.t.Errorf("stop %s: %v", n.name, err)
	}
	n.m, n.driver, n.replica = nil, nil, nil
}

// kill ends the process where it is; what it has written stays.
func (n *node) kill() {
	disk := n.fs.Clone()
	n.stop()
	n.fs = disk
}

// wipe gives the machine an empty disk.
func (n *node) wipe() {
	n.stop()
	n.fs, n.disks = simfs.New(), n.disks+1
}

func (n *node) id() ident.MemberID { return n.dir.Member().ID }

func (n *node) status() replica.Status { return n.replica.Status() }

// step is a tenth of a second.
func (l *lab) step() {
	l.t.Helper()
	l.now = l.now.Add(labTick)
	l.steps++
	for _, n := range l.nodes {
		if n.driver != nil {
			n.driver.Tick()
		}
		if n.m != nil && n.driver == nil && (n.m.phase() == PhaseJoining || n.seeks && n.m.phase() == PhaseWaiting) {
			if serves, err := n.m.Seek(); err != nil {
				l.t.Fatal(err)
			} else if serves {
				n.open()
			}
		}
		if n.m != nil && l.steps%10 == 0 {
			if !n.keeping {
				n.keeping = true
				n.m.Keep()
				n.keeping = false
			}
			n.report = true
			if n.m.Taking(0) != n.replica {
				n.open()
			}
			n.dialAll()
		}
	}
	for range 6 {
		if l.exchange(); l.stopped {
			return
		}
		l.oneLeaderATerm()
		for _, n := range l.nodes {
			if n.m != nil {
				n.m.Duty()
				if n.m.gone() != nil {
					n.driver, n.replica = nil, nil
				}
			}
		}
	}
}

// flush has the state write down what it has applied.
func (n *node) flush() {
	if g := n.m.sound(0); g != nil {
		if _, err := g.store.Flush(); err != nil {
			n.lab.t.Fatalf("%s: flush: %v", n.name, err)
		}
	}
}

func (l *lab) oneLeaderATerm() {
	l.t.Helper()
	if l.led == nil {
		l.led = map[uint64]ident.MemberID{}
	}
	for _, n := range l.nodes {
		if n.driver == nil {
			continue
		}
		s := n.status()
		if s.State != raft.StateLeader {
			continue
		}
		if led, ok := l.led[s.Term]; ok && led != n.id() {
			l.t.Fatalf("members %s and %s lead term %d", led, n.id(), s.Term)
		}
		l.led[s.Term] = n.id()
	}
}

// exchange has everybody work and talk until nobody has anything to do.
func (l *lab) exchange() {
	rounds := 200
	if l.lazy {
		rounds = 1
	}
	for range rounds {
		l.rounds++
		busy := false
		for i, n := range l.nodes {
			n.noSync, n.noApply = n.noSync && !l.lazy || l.lazy && (l.rounds+i)%3 != 0, n.noApply && !l.lazy || l.lazy && (l.rounds+2*i)%5 != 0
			if l.lazy && n.driver != nil && l.rounds%16 == i {
				n.flush()
			}
			busy = n.work() || busy
			if l.stopAt != nil && l.stopAt() {
				l.stopAt, l.stopped = nil, true
				return
			}
		}
		mail := l.mail
		l.mail = nil
		for _, p := range mail {
			l.deliver(p)
		}
		if !busy && len(mail) == 0 {
			return
		}
	}
}

func (n *node) work() (busy bool) {
	if n.driver == nil {
		return false
	}
	busy = n.driver.Turn()
	if !n.noSync && len(n.driver.TakeAppends()) > 0 {
		busy = true
		if err := n.driver.Append(); err != nil {
			n.lab.t.Fatalf("%s: append: %v", n.name, err)
		}
	}
	if !n.noApply && len(n.driver.TakeApplies()) > 0 {
		busy = true
		if err := n.driver.Apply(); err != nil {
			n.lab.t.Fatalf("%s: apply: %v", n.name, err)
		}
	}
	if n.report {
		n.report = false
		for _, o := range n.lab.nodes {
			if o != n && o.greeted[n] == n.life && n.lab.open(n, o) {
				o.m.Reported(n.id(), n.m.Reports())
				if !n.lab.noDigests {
					o.m.Digested(n.id(), n.m.Digests())
				}
			}
		}
	}
	return busy
}

// open reports whether n reaches o.
func (l *lab) open(n, o *node) bool { return n.m != nil && o.m != nil && !l.cut[[2]*node{n, o}] }

// isolate cuts a node off, or joins it again.
func (l *lab) isolate(n *node, cut bool) {
	for _, o := range l.nodes {
		l.cut[[2]*node{n, o}], l.cut[[2]*node{o, n}] = cut, cut
	}
}

// deliver brings a message to whoever listens where the sender dials.
func (l *lab) deliver(p packet) {
	if p.from.life != p.life || p.from.m == nil {
		return
	}
	to := l.at(p.from.peers[p.to].Addr)
	if to == nil {
		to = l.at(p.from.peers[p.to].Also)
	}
	if to == nil || !l.open(p.from, to) || p.from.mute {
		return
	}
	if !l.dial(p.from, to, p.to) {
		return
	}
	if r := to.m.Standing(p.from.m.SelfHello()); r != nil {
		p.from.refusedBy(to, p.to, r)
		return
	}
	msg := &pb.Message{}
	if err := proto.Unmarshal(p.msg, msg); err != nil {
		l.t.Fatal(err)
	}
	if to.id() == p.to {
		to.m.Deliver(p.from.id(), 0, []*pb.Message{msg})
	}
	if l.open(to, p.from) && !to.mute {
		l.dial(to, p.from, p.from.id()) // a peer that was just here is dialled at once
	}
}

// dial opens the stream of a node to the member id, if it is not open. It reports whether it is now.
func (l *lab) dial(n, to *node, id ident.MemberID) bool {
	if to.greeted[n] == n.life {
		return true
	}
	reply, r := to.m.Hello(n.m.SelfHello())
	if r != nil {
		n.refusedBy(to, id, r)
		return false
	}
	if reply.Member != id {
		return false // somebody else listens there
	}
	to.greeted[n] = n.life
	n.m.PeerChanged(peer.PeerStatus{Peer: peer.Peer{ID: id, Addr: to.addr}, Connected: true})
	return true
}

// dialAll has a member dial everybody whom it should have a stream to, whether it has anything to say or not.
func (n *node) dialAll() {
	for _, id := range slices.Sorted(maps.Keys(n.peers)) {
		to := n.lab.at(n.peers[id].Addr)
		if to == nil {
			to = n.lab.at(n.peers[id].Also)
		}
		if to != nil && n.lab.open(n, to) && !n.mute {
			n.lab.dial(n, to, id)
		}
	}
}

func (n *node) refusedBy(to *node, id ident.MemberID, r *peer.Refusal) {
	delete(to.greeted, n)
	n.m.PeerChanged(peer.PeerStatus{Peer: peer.Peer{ID: id, Addr: to.addr}, Failure: peer.FailureRefusal, Refusal: r})
}

func (l *lab) at(addr string) *node {
	for _, n := range l.nodes {
		if n.addr == addr && n.m != nil {
			return n
		}
	}
	return nil
}

// until steps until what is wanted is so.
func (l *lab) until(what string, ok func() bool) {
	l.t.Helper()
	for range 600 {
		if ok() {
			return
		}
		l.step()
	}
	for _, n := range l.nodes {
		if n.m != nil && n.replica != nil {
			s := n.status()
			m, _ := n.m.Membership()
			l.t.Logf("%s: id %s, term %d, leader %s, commit %d, conf %v since %d, durable commit %d, roster %d, %+v",
				n.name, n.id(), s.Term, s.Leader, s.Commit, s.Conf, s.ConfIndex, s.DurableCommit, n.m.Roster().Version, m)
		}
	}
	l.t.Fatalf("not within a minute: %s", what)
}

// stopJoint steps until the configuration of one of these is joint, and has everything stand still there.
func (l *lab) stopJoint(of ...*node) (at *node) {
	l.t.Helper()
	l.stopAt = func() bool {
		for _, n := range of {
			if n.replica != nil && membership.Joint(n.status().Conf) {
				at = n
			}
		}
		return at != nil
	}
	l.until("the joint state", func() bool { return l.stopped })
	l.stopped = false
	return at
}

// run lets some time pass.
func (l *lab) run(d time.Duration) {
	for range d / labTick {
		l.step()
	}
}

// leading returns the leader of the highest term; nil: there is none.
func (l *lab) leading() (leader *node) {
	for _, n := range l.nodes {
		if n.replica == nil {
			continue
		}
		if s := n.status(); s.State == raft.StateLeader && s.ConfAsOf >= s.OwnFirst && (leader == nil || s.Term > leader.status().Term) {
			leader = n
		}
	}
	return leader
}

// leader returns the leader that a majority follows, once there is one.
func (l *lab) leader() *node {
	l.t.Helper()
	var leader *node
	l.until("a leader", func() bool {
		if leader = l.leading(); leader == nil {
			return false
		}
		q := membership.QuorumOf(leader.status().Conf, func(id ident.MemberID) bool {
			for _, n := range l.nodes {
				if n.replica != nil && n.id() == id {
					return n.status().Term == leader.status().Term && n.status().Leader == leader.id()
				}
			}
			return false
		})
		return q.Reached()
	})
	return leader
}

func (l *lab) node(name string) *node {
	for _, n := range l.nodes {
		if n.name == name {
			return n
		}
	}
	l.t.Fatalf("no machine %s", name)
	return nil
}

// other returns a machine that is not leader.
func (l *lab) other(leader *node) *node {
	for _, n := range l.nodes {
		if n != leader {
			return n
		}
	}
	l.t.Fatal("there is no other")
	return nil
}

// write has the leader take one signal.
func (l *lab) write() {
	l.t.Helper()
	l.take(command.Signal{Item: "a", Type: "view", Milli: 1000})
}

func (l *lab) take(r command.Record) {
	l.t.Helper()
	leader := l.leader()
	c, err := leader.driver.Write(command.EncodeWrite(command.Write{Records: []command.Record{r}}), consensus.AckQuorum)
	if err != nil {
		l.t.Fatal(err)
	}
	l.until("a write", func() bool {
		_, done, err := c.Done()
		if err != nil {
			l.t.Fatal(err)
		}
		return done
	})
}

// fill has the leader take n items of 8 KiB.
func (l *lab) fill(n int) {
	l.t.Helper()
	for i := range n {
		l.filled++
		text := strings.Repeat(string(rune('a'+i%26)), 8<<10)
		l.take(command.Item{ID: fmt.Sprintf("filler-%d", l.filled), Attrs: fmt.Appendf(nil, `{"text":%q}`, text)})
	}
}

// do begins a verb on the leader and returns what becomes of it.
func (l *lab) do(begin func(*Member) (*Verb, error)) *Verb {
	l.t.Helper()
	v, err := begin(l.leader().m)
	if err != nil {
		l.t.Fatal(err)
	}
	l.until("the end of a verb", v.over)
	return v
}

func (v *Verb) over() bool {
	select {
	case <-v.done:
		return true
	default:
		return false
	}
}

// join starts a process on an empty disk, as the member that the leader made it.
func (l *lab) join(n *node, c membership.Candidate) Admission {
	l.t.Helper()
	if !slices.Contains(l.nodes, n) {
		l.nodes = append(l.nodes, n)
	}
	if n.dir == nil || n.m == nil {
		n.start()
	}
	c.Name, c.GRPCAddr, c.HTTPAddr, c.Capabilities = n.name, n.addr, n.name+":2", ident.Supported
	c.Incarnation = n.dir.Member().Incarnation
	a, err := l.do(func(m *Member) (*Verb, error) { return m.BeginJoin(c) }).Admission()
	if err != nil {
		l.t.Fatalf("join %s: %v", n.name, err)
	}
	l.admit(n, a)
	return a
}

// admit lets a machine take part as the member that it was admitted as, if it does not yet.
func (l *lab) admit(n *node, a Admission) {
	l.t.Helper()
	n.admitted = &a
	l.until(n.name+" has joined", func() bool {
		if n.driver == nil {
			if serves, err := n.m.Seek(); err != nil {
				l.t.Fatal(err)
			} else if serves {
				n.open()
			}
		}
		return n.driver != nil
	})
}

// labIntroducer brings the question to the leader, and the answer at the next time of asking.
type labIntroducer struct{ n *node }

func (i labIntroducer) Join(_ context.Context, _ string, c membership.Candidate) (Introduction, error) {
	n := i.n
	leader := n.lab.leading()
	if leader == nil || !n.lab.open(n, leader) {
		return Introduction{}, errors.New("no answer")
	}
	if n.asking != nil && n.asking.over() {
		a, err := n.asking.Admission()
		n.asking = nil
		if err != nil {
			return Introduction{}, err
		}
		n.admitted = &a
	}
	a := n.admitted
	if a == nil || leader.m.Roster().Removed(a.ID) {
		if n.asking == nil {
			n.asking, _ = leader.m.BeginJoin(c)
		}
		return Introduction{}, errors.New("no answer yet")
	}
	now, _ := leader.m.Roster().Member(leader.id())
	return Introduction{Cluster: a.Cluster, ID: a.ID, Term: leader.status().Term, Leader: now, Members: leader.m.Roster().Members}, nil
}

func (labIntroducer) Locate(context.Context, string) (string, error) {
	return "", errors.New("nobody is there")
}

// voters waits until these are the voters, and no change is under way.
func (l *lab) voters(names ...string) {
	l.t.Helper()
	l.until(fmt.Sprintf("voters %v", names), func() bool {
		leader := l.leader()
		m, ok := leader.m.Membership()
		if !ok || m.Settling != nil {
			return false
		}
		var got []string
		for _, x := range leader.m.Roster().Members {
			if x.Role != membership.RoleVoter {
				return false
			}
			got = append(got, x.Name)
		}
		slices.Sort(got)
		return slices.Equal(got, names)
	})
}

// labPort is what a process sees of the network.
type labPort struct{ n *node }

func (p labPort) Permit(ctx context.Context, addr string, r peer.PermitRequest) (peer.PermitReply, error) {
	o := p.n.lab.at(addr)
	if o == nil || !p.n.lab.open(p.n, o) {
		return peer.PermitReply{}, errors.New("no answer")
	}
	return o.m.Permit(ctx, r)
}

func (p labPort) Send(_ ident.GroupID, msgs []*pb.Message) {
	for _, m := range msgs {
		p.n.onlyVotersStand(m)
		b, err := proto.Marshal(m)
		if err != nil {
			p.n.lab.t.Fatal(err)
		}
		p.n.lab.mail = append(p.n.lab.mail, packet{p.n, p.n.life, ident.MemberID(m.GetTo()), b})
	}
}

// onlyVotersStand: nobody asks for votes who has none by the newest configuration that it knows: not a learner,
// and not a member that was removed.
func (n *node) onlyVotersStand(m *pb.Message) {
	if m.GetType() != pb.MsgVote && m.GetType() != pb.MsgPreVote {
		return
	}
	r := n.m.Taking(0)
	if r == nil {
		n.lab.t.Errorf("%s asks for votes and takes part in nothing", n.name)
		return
	}
	conf, id := r.Status().Conf, n.m.identity().ID
	x, _ := n.m.Roster().Member(id) // may be newer: what follows from it is published after it
	if x.Role != membership.RoleVoter && !slices.Contains(conf.GetVoters(), uint64(id)) && !slices.Contains(conf.GetVotersOutgoing(), uint64(id)) {
		n.lab.t.Errorf("%s, member %s, asks for votes in term %d and has none: %v", n.name, id, m.GetTerm(), conf)
	}
}

func (p labPort) SetPeers(peers []peer.Peer) {
	clear(p.n.peers)
	for _, x := range peers {
		p.n.peers[x.ID] = x
	}
}

func (p labPort) Probe(_ context.Context, addr string, r peer.ProbeRequest) (peer.ProbeReply, error) {
	if o := p.n.lab.at(addr); o != nil && p.n.lab.open(p.n, o) {
		return o.m.Probe(r), nil
	}
	return peer.ProbeReply{}, errors.New("no answer")
}

func (p labPort) FetchSnapshot(ctx context.Context, addr string, r peer.SnapshotRequest) (peer.SnapshotHeader, *peer.SnapshotStream, error) {
	o := p.n.lab.at(addr)
	if o == nil || !p.n.lab.open(p.n, o) {
		return peer.SnapshotHeader{}, nil, errors.New("no answer")
	}
	var t labTransfer
	if err := o.m.FetchSnapshot(ctx, r, &t); err != nil {
		return peer.SnapshotHeader{}, nil, err
	}
	if !t.header.Needed {
		return t.header, nil, nil
	}
	first := true
	return t.header, peer.NewSnapshotStream(func() (peer.SnapshotChunk, error) {
		if first { // who asks only whether one is needed takes none
			first = false
			p.n.fetched++
		}
		if p.n.slow != nil {
			p.n.slow()
		}
		if len(t.chunks) == 0 {
			return peer.SnapshotChunk{}, io.EOF
		}
		x := t.chunks[0]
		t.chunks = t.chunks[1:]
		return x, nil
	}), nil
}

// labTransfer gathers what a source sends.
type labTransfer struct {
	header peer.SnapshotHeader
	chunks []peer.SnapshotChunk
}

func (t *labTransfer) Header(h peer.SnapshotHeader) error {
	t.header = h
	return nil
}

func (t *labTransfer) Chunk(x peer.SnapshotChunk) error {
	x.Data = bytes.Clone(x.Data)
	t.chunks = append(t.chunks, x)
	return nil
}

func (p labPort) Barrier(context.Context, string, peer.BarrierRequest) (peer.BarrierReply, error) {
	return peer.BarrierReply{}, errors.New("nobody gives barriers")
}

func (p labPort) SendOutbox(ctx context.Context, addr string, r peer.OutboxRequest) error {
	o := p.n.lab.at(addr)
	if o == nil || !p.n.lab.open(p.n, o) {
		return errors.New("no answer")
	}
	return o.m.TakeOutbox(ctx, r)
}

func (p labPort) Opened(to ident.MemberID, groups []peer.GroupPosition) {
	if o := p.n.lab.at(p.n.peers[to].Addr); o != nil && p.n.lab.open(p.n, o) {
		o.m.Opened(p.n.id(), groups)
	}
}

func (p labPort) Report() { p.n.report = true }

func (p labPort) Farewell(_ context.Context, addr string, r peer.FarewellRequest) error {
	o := p.n.lab.at(addr)
	if o == nil || !p.n.lab.open(p.n, o) {
		return errors.New("no answer")
	}
	return o.m.Farewell(r)
}
