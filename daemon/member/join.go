package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/snapshot"
	"github.com/tidaldb/tidal/daemon/state"
)

const (
	// introduceWithin bounds one question to one seed: what a leader takes to commit a join, and more.
	introduceWithin = 8 * time.Second
	// joinEveryMax is how long a member that wants to join waits at most before it asks again.
	joinEveryMax = 3 * time.Second
)

// JoinOptions say how a member whose directory is empty finds a cluster that exists.
type JoinOptions struct {
	Seeds  []string // URLs of members of the cluster, any
	Rejoin bool     // be taken although a member of this name was removed
	// Introducer speaks to them. nil: a member can be born with its cluster, and not join one.
	Introducer Introducer
}

// Introducer asks members of a cluster, by their URLs, about this one. A URL without a scheme is the
// address of a member that speaks as this one does.
type Introducer interface {
	// Join has this member admitted by the leader, whom the member at seed asks. A *membership.RemovedError
	// that is Kept is the leader's word that this very member was removed.
	Join(ctx context.Context, seed string, c membership.Candidate) (Introduction, error)
	// Locate returns where its peers reach the member at seed; empty if it belongs to no cluster.
	Locate(ctx context.Context, seed string) (grpcAddr string, err error)
}

// Introduction is what a leader says to a member that it has admitted. The roster knows the member from
// then on; nothing here does.
type Introduction struct {
	Cluster ident.ClusterID
	ID      ident.MemberID // for ever
	Term    uint64         // of the leader
	Leader  membership.Member
	Members []membership.Member // all, this one among them
}

// joiner is what a member remembers from one attempt to join to the next. It belongs to the goroutine
// that seeks the cluster.
type joiner struct {
	turn   int      // which seed is asked first: the one after those that were of no use
	met    []string // members that a leader named: they are asked after the seeds
	keeper *keeper  // of group 0, since this process was admitted; nil: it was not
}

// Invite tells a member that belongs to no cluster yet whom to ask, in the place of what it was told
// before. It reports whether that was of any use: a member that belongs to a cluster asks nobody.
func (m *Member) Invite(seeds []string, rejoin bool) bool {
	m.mu.Lock()
	fresh := m.mu.phase == PhaseWaiting || m.mu.phase == PhaseJoining
	if fresh {
		m.mu.seeds, m.mu.rejoin = slices.Clone(seeds), m.mu.rejoin || rejoin
	}
	m.mu.Unlock()
	if fresh {
		select {
		case m.invited <- struct{}{}:
		default:
		}
	}
	return fresh
}

// invitation returns whom this member was told to ask.
func (m *Member) invitation() (seeds []string, rejoin bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mu.seeds, m.mu.rejoin
}

// waitForInvitation says that nobody has told this member whom to ask.
func (m *Member) waitForInvitation() {
	m.setWaiting([]membership.Waiting{{Name: m.opts.Name, Reason: "to be told which cluster to join: tidalctl join --seed http://HOST:PORT, or start it with --seed"}})
}

// joins reports whether this member looks for a cluster that exists, and never makes one: no file
// declares it, or it was admitted before and not born with its cluster.
func (m *Member) joins() bool { return len(m.opts.Declared) == 0 || m.identity().ID != 0 }

// askSeeds finds out which clusters the seeds belong to, for a birth that cannot go on without.
func (m *Member) askSeeds(ctx context.Context) []membership.Answer {
	var answers []membership.Answer
	seeds, _ := m.invitation()
	for _, seed := range seeds {
		ctx, cancel := context.WithTimeout(ctx, 2*probeTimeout)
		if addr, err := m.opts.Join.Introducer.Locate(ctx, seed); err == nil && addr != "" {
			answers = append(answers, answerOf(m.probe(ctx, addr)))
		}
		cancel()
	}
	return answers
}

// join is one attempt to join the cluster of the seeds, or of known, the addresses of members. It
// reports whether this member serves now; if not, setWaiting has said why. After an error, which is one
// of the disk, only another process can go on.
//
// Every step is durable before the next, and a crash between any two leads back here at the next start,
// before a replica was ever opened; the leader knows this incarnation and answers as it did before.
//
//  1. the leader commits a roster with this member in it, as a learner, and names its id
//  2. member: cluster, id, the genesis record, of which the leader is asked
//  3. votes: the leader's term: this member takes part in no older one
//  4. an artifact of group 0 is fetched, and becomes its first generation
//  5. member: group 0 exists; from here on its absence is a lost disk
//
// Who leads is asked again at each attempt; what has arrived of an artifact stays.
func (m *Member) join(ctx context.Context, known []string) (serves bool, err error) {
	m.setPhase(PhaseJoining)
	in, ok, err := m.introduce(ctx, known)
	if !ok {
		return false, err
	}
	leader, waits := m.admittedBy(in), func(err error) {
		m.setWaiting([]membership.Waiting{{Name: in.Leader.Name, Reason: err.Error()}})
	}
	// Who cannot be asked this will not send an artifact either; a wrong key shows here.
	reply, err := m.probe(ctx, leader.addr)
	if err == nil && reply.Cluster != in.Cluster {
		err = fmt.Errorf("a member of cluster %s answers at %s, not of %s", reply.Cluster, leader.addr, in.Cluster)
	}
	if err != nil {
		waits(err)
		return false, nil
	}
	if err := m.beAdmitted(in, reply.Genesis); err != nil {
		waits(err)
		return false, err
	}
	a, err := m.fetchFirst(ctx, in, leader)
	if err == nil {
		err = m.installFirst(in, a)
	}
	if err != nil {
		waits(err)
		return false, nil
	}
	if err := m.opts.Dir.AddGroup(0); err != nil {
		waits(err)
		return false, fmt.Errorf("record group 0: %w", err)
	}
	m.serveInstalled(ctx, m.rememberIdentity(), a, leader)
	return true, nil
}

// introduce asks the seeds in turn, the members that it has met, and known. It returns the first
// answer that admits this member; else setWaiting has said what each of them answered, or the member has
// learned that it was removed: before it had any data nobody knew where to tell it. An error is one of the disk.
func (m *Member) introduce(ctx context.Context, known []string) (Introduction, bool, error) {
	j := &m.joiner
	seeds, rejoin := m.invitation()
	seeds = slices.Concat(seeds, j.met, known, m.remembered())
	if len(seeds) == 0 {
		m.waitForInvitation()
		return Introduction{}, false, nil
	}
	var failed []membership.Waiting
	for i := range seeds {
		seed := seeds[(j.turn+i)%len(seeds)]
		if slices.ContainsFunc(failed, func(w membership.Waiting) bool { return w.Name == seed }) {
			continue
		}
		in, err := m.ask(ctx, seed, rejoin)
		if err == nil {
			j.turn = (j.turn + i) % len(seeds)
			j.met = nil
			for _, x := range in.Members {
				if x.ID != in.ID {
					j.met = append(j.met, x.HTTPAddr)
				}
			}
			return in, true, nil
		}
		if gone, ok := errors.AsType[*membership.RemovedError](err); ok && gone.Kept && len(m.identity().Groups) == 0 {
			return Introduction{}, false, m.leave(datadir.Removed{ID: m.identity().ID})
		}
		failed = append(failed, membership.Waiting{Name: seed, Reason: err.Error()})
	}
	j.turn++
	m.setWaiting(failed)
	return Introduction{}, false, nil
}

func (m *Member) ask(ctx context.Context, seed string, rejoin bool) (Introduction, error) {
	ctx, cancel := context.WithTimeout(ctx, introduceWithin)
	defer cancel()
	id := m.identity()
	in, err := m.opts.Join.Introducer.Join(ctx, seed, membership.Candidate{
		Name: id.Name, Incarnation: id.Incarnation, GRPCAddr: m.opts.GRPCAddr, HTTPAddr: m.opts.HTTPAddr,
		Capabilities: ident.Supported, Rejoin: rejoin,
	})
	switch {
	case err != nil:
		return Introduction{}, err
	case in.ID == 0 || in.Cluster.IsZero() || in.Term == 0 || in.Leader.GRPCAddr == "":
		return Introduction{}, fmt.Errorf("an answer that admits nobody: member %s of cluster %s, term %d, leader at %q", in.ID, in.Cluster, in.Term, in.Leader.GRPCAddr)
	case !id.Cluster.IsZero() && id.Cluster != in.Cluster:
		return Introduction{}, fmt.Errorf("it belongs to cluster %s, this member to %s", in.Cluster, id.Cluster)
	}
	return in, nil
}

// remembered are the addresses of the members of the roster that was applied last, which only a member
// has that was admitted before, and of those that the file declares.
func (m *Member) remembered() []string {
	self := m.identity()
	var addrs []string
	if self.ID != 0 {
		cached, _ := membership.DecodeRoster(m.opts.Dir.RosterCache()) // without one, nobody
		for _, x := range cached.Members {
			if x.ID != self.ID {
				addrs = append(addrs, x.HTTPAddr)
			}
		}
		for _, d := range m.opts.Declared {
			if d.Name != self.Name {
				addrs = append(addrs, d.HTTPAddr)
			}
		}
	}
	return addrs
}

// admittedBy is the leader as a source of artifacts; after attempts that brought nothing, another
// member: any open replica may serve what it has applied.
func (m *Member) admittedBy(in Introduction) source {
	from := source{m: m, member: in.Leader.ID, addr: in.Leader.GRPCAddr}
	k := m.joiner.keeper
	if k == nil || k.stuck < sourcePatience {
		return from
	}
	others := slices.DeleteFunc(slices.Clone(in.Members), func(x membership.Member) bool {
		return x.ID == in.ID || x.ID == in.Leader.ID || x.Role != membership.RoleVoter
	})
	if len(others) == 0 || k.stuck%2 == 0 {
		return from
	}
	x := others[k.stuck/2%len(others)]
	return source{m: m, member: x.ID, addr: x.GRPCAddr}
}

// beAdmitted makes identity and term durable.
func (m *Member) beAdmitted(in Introduction, genesis []byte) error {
	dir := m.opts.Dir
	if err := dir.Admit(in.Cluster, in.ID, genesis); err != nil {
		return fmt.Errorf("write the identity: %w", err)
	}
	if was := m.identity().ID; was != in.ID {
		m.log.Info("admitted", slog.Any("cluster", in.Cluster), slog.Any("node", in.ID), slog.Uint64("term", in.Term), slog.String("leader", in.Leader.Name))
	}
	m.rememberIdentity()
	if in.Term > dir.Vote(0).Term {
		if err := dir.SetVote(0, datadir.Vote{Term: in.Term}); err != nil {
			return fmt.Errorf("write the term: %w", err)
		}
	}
	return nil
}

func (m *Member) rememberIdentity() datadir.Member {
	id := m.opts.Dir.Member()
	m.mu.Lock()
	m.mu.identity = id
	m.mu.Unlock()
	return id
}

// fetchFirst fetches what the first generation of group 0 is made of. Nobody replays a log from its
// beginning, so an artifact is always needed, if only that of index 1.
func (m *Member) fetchFirst(ctx context.Context, in Introduction, from source) (*snapshot.Artifact, error) {
	k := m.joiner.keeper
	if k == nil {
		k = m.newKeeper(0)
		if err := k.files.PrepareBirth(); err != nil {
			return nil, err
		}
		m.mu.Lock()
		removed := m.mu.groups == nil
		if !removed {
			m.mu.groups[0] = &group{id: 0, keeper: k} // closed, and its progress can be seen
		}
		m.mu.Unlock()
		if removed {
			return nil, ErrRemoved
		}
		m.joiner.keeper = k
	}
	m.setWaiting([]membership.Waiting{{Name: m.opts.Name, Reason: fmt.Sprintf("its first data arrives from member %s at %s", from.member, from.addr)}})
	f := k.startFetch()
	before, _ := f.Progress()
	a, err := f.Fetch(ctx, from, snapshot.Request{Group: 0, From: firstEntry.Index, Always: true})
	if after, _ := f.Progress(); err == nil || after > before {
		k.stuck = 0
	} else {
		k.stuck++
	}
	if err == nil && a == nil {
		err = fmt.Errorf("member %s says that member %s needs no artifact, which cannot be", from.member, in.ID)
	}
	return a, err
}

// installFirst makes the artifact the first generation. Only this first install needs no barrier: the
// id has never acknowledged anything.
func (m *Member) installFirst(in Introduction, a *snapshot.Artifact) error {
	k := m.joiner.keeper
	log := m.logOptions(0, "")
	_, err := snapshot.Install{Group: 0, Files: k.files, Votes: m.opts.Dir, Artifact: a, Term: in.Term, NewLog: &log}.Run()
	k.endFetch()
	if err != nil {
		return fmt.Errorf("install artifact %s: %w", a.ID, err)
	}
	return nil
}

// serveInstalled opens group 0, which was born by an artifact.
func (m *Member) serveInstalled(ctx context.Context, id datadir.Member, a *snapshot.Artifact, from source) {
	k := m.joiner.keeper
	g := m.serveGroup(ctx, k, id, true, func(store *state.Store) error { return a.Verify(store.Position()) })
	m.nowServing(id, true)
	at := a.Manifest.Position.Applied
	m.metrics.installs.Inc()
	m.log.Info("joined", slog.Any("cluster", id.Cluster), slog.Any("node", id.ID), slog.Uint64("index", at.Index), slog.Int64("bytes", a.Manifest.Bytes()), slog.Any("peer", a.Manifest.Source))
	m.opts.Journal.Add(journal.Joined{Cluster: id.Cluster.String(), ID: id.ID, Index: at.Index, Bytes: a.Manifest.Bytes(), From: a.Manifest.Source})
	if g.replica != nil {
		m.net.Opened(from.member, []peer.GroupPosition{m.position(g)})
	}
}

func (m *Member) setPhase(p Phase) {
	m.mu.Lock()
	if m.mu.removed == nil {
		m.mu.phase = p
	}
	m.mu.Unlock()
}
