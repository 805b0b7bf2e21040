package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/state"
	"github.com/tidaldb/tidal/daemon/wal"
)

const (
	probeTimeout = time.Second
	// Members of one birth start within seconds of each other and then wait for one another: ask
	// often at first, seldom where somebody stays away.
	probeEvery    = 50 * time.Millisecond
	probeEveryMax = 500 * time.Millisecond
	// conflictEvery is how often a member that never had a leader looks for another genesis.
	conflictEvery = 2 * time.Second
)

// firstMember is the id of the member declared first, which makes the cluster.
const firstMember ident.MemberID = 1

// firstEntry is where every replica begins: what a birth writes is applied at it.
var firstEntry = ident.EntryID{Term: 1, Index: 1}

// findCluster asks the declared members, or the seeds, until a cluster is made, found or joined, then
// serves. It returns when that is done, when it cannot be done any more, or when ctx ends.
func (m *Member) findCluster(ctx context.Context) {
	for wait := probeEvery; ; {
		if m.gone() != nil {
			return
		}
		serves, err := m.seekCluster(ctx)
		if err != nil && m.opts.OnFatal != nil {
			m.opts.OnFatal(err)
		}
		if serves || err != nil {
			return
		}
		most := probeEveryMax
		if m.phase() == PhaseJoining {
			most = joinEveryMax
		}
		wait = min(wait*5/4, most)
		select {
		case <-ctx.Done():
			return
		case <-m.invited:
			wait = probeEvery
		case <-time.After(wait/2 + rand.N(wait)):
		}
	}
}

// seekCluster asks every declared member once and does what the birth table says, or makes one attempt
// to join. It reports whether this member serves now; if not, setWaiting has said why. After an error,
// which is one of the disk, the directory takes no more writes: only another process, which opens it
// anew, can go on.
func (m *Member) seekCluster(ctx context.Context) (serves bool, err error) {
	if m.joins() {
		return m.join(ctx, nil)
	}
	waits := func(why string) { m.setWaiting([]membership.Waiting{{Name: m.opts.Name, Reason: why}}) }
	b := m.birth(nil, m.askAll(ctx))
	d := membership.DecideBirth(b)
	undecided := d.Act == membership.BirthWait || d.Act == membership.BirthMake
	if seeds, _ := m.invitation(); undecided && len(seeds) > 0 && m.opts.Join.Introducer != nil {
		b.Seeds = m.askSeeds(ctx)
		d = membership.DecideBirth(b)
	}
	switch d.Act {
	case membership.BirthMake, membership.BirthAdopt:
		id, err := m.beBorn(d.Genesis, d.ID)
		if err != nil {
			waits(err.Error())
			return false, fmt.Errorf("be born into cluster %s: %w", d.Genesis.ClusterID(), err)
		}
		m.log.Info("cluster born", slog.Any("cluster", id.Cluster), slog.Any("node", id.ID), slog.Bool("made", d.Act == membership.BirthMake))
		m.opts.Journal.Add(journal.Born{Cluster: id.Cluster.String(), ID: id.ID, Made: d.Act == membership.BirthMake})
		m.serve(ctx, id, true)
		return true, nil
	case membership.BirthRefuse:
		if m.opts.Join.Introducer != nil && d.Refusal.JoinInstead() {
			return m.join(ctx, m.initialised(b.Answers))
		}
		waits(d.Refusal.Error())
	default:
		m.setPhase(PhaseWaiting)
		m.setWaiting(d.Waiting)
	}
	return false, nil
}

// initialised are the addresses of the declared members that belong to a cluster.
func (m *Member) initialised(answers map[string]membership.Answer) []string {
	var addrs []string
	for _, d := range m.opts.Declared {
		if answers[d.Name].Kind == membership.AnswerInitialised {
			addrs = append(addrs, d.HTTPAddr)
		}
	}
	return addrs
}

func (m *Member) phase() Phase {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mu.phase
}

// watchForConflict looks for another genesis for as long as this member never had a leader.
func (m *Member) watchForConflict(ctx context.Context, genesis membership.Genesis) {
	for !m.hadLeader() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(conflictEvery):
		}
		if m.hadLeader() {
			break
		}
		if d := membership.DecideBirth(m.birth(&genesis, m.askAll(ctx))); d.Act == membership.BirthRefuse {
			m.setWaiting([]membership.Waiting{{Name: m.opts.Name, Reason: d.Refusal.Error() + "; to give this directory up, stop the member and move " + m.opts.DataDir + " away"}})
		}
	}
	m.setWaiting(nil)
}

// hadLeader reports whether a leader ever committed an entry here: genesis is index 1.
func (m *Member) hadLeader() bool {
	r, err := m.Replica(0)
	return err == nil && r.Status().Commit > firstEntry.Index
}

func (m *Member) birth(genesis *membership.Genesis, answers map[string]membership.Answer) membership.Birth {
	return membership.Birth{
		Name: m.opts.Name, Incarnation: m.identity().Incarnation, Genesis: genesis,
		Declared: m.opts.Declared, Topology: m.opts.Topology, Answers: answers,
	}
}

// askAll probes every other declared member at once. One that does not answer delays nobody beyond
// probeTimeout.
func (m *Member) askAll(ctx context.Context) map[string]membership.Answer {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var (
		mu      sync.Mutex
		answers = map[string]membership.Answer{}
		wg      sync.WaitGroup
	)
	self := m.identity()
	for _, d := range m.opts.Declared {
		if d.Name == m.opts.Name {
			continue
		}
		wg.Go(func() {
			reply, err := m.net.Probe(ctx, d.GRPCAddr, peer.ProbeRequest{Name: self.Name, Incarnation: self.Incarnation, TopologyDigest: m.opts.Topology})
			mu.Lock()
			defer mu.Unlock()
			answers[d.Name] = answerOf(reply, err)
		})
	}
	wg.Wait()
	return answers
}

func answerOf(r peer.ProbeReply, err error) membership.Answer {
	if err != nil {
		return membership.Answer{Detail: err.Error()}
	}
	a := membership.Answer{Kind: membership.AnswerInitialised, Name: r.Name, Incarnation: r.Incarnation, Topology: r.TopologyDigest, Genesis: r.Genesis}
	if r.Fresh {
		a.Kind = membership.AnswerFresh
	}
	return a
}

// setWaiting publishes for whom a member waits, and logs when that changes.
func (m *Member) setWaiting(w []membership.Waiting) {
	m.mu.Lock()
	changed := fmt.Sprint(m.mu.waiting) != fmt.Sprint(w)
	m.mu.waiting = w
	m.mu.Unlock()
	if !changed {
		return
	}
	for _, x := range w {
		m.log.Info("waiting", slog.String("for", x.Name), slog.String("why", x.Reason))
	}
}

// beBorn makes this member voter id of the cluster of genesis.
//
// Every step is durable before the next, and a crash between any two leads back here at the next
// start, before a replica was ever opened: a member that has not voted may write its birth again.
//
//  1. member: cluster, id, genesis
//  2. votes: term 1, no vote, which the log of step 3 must not be ahead of
//  3. the first generation of group 0, its marker last
//  4. member: group 0 exists; from here on its absence is a lost disk
func (m *Member) beBorn(genesis membership.Genesis, id ident.MemberID) (datadir.Member, error) {
	if err := m.opts.Dir.Admit(genesis.ClusterID(), id, genesis.Encode()); err != nil {
		return datadir.Member{}, fmt.Errorf("write the identity: %w", err)
	}
	return m.finishBirth(genesis)
}

// finishBirth is steps 2 to 4 of beBorn.
func (m *Member) finishBirth(genesis membership.Genesis) (datadir.Member, error) {
	dir := m.opts.Dir
	if err := dir.SetVote(0, datadir.Vote{Term: firstEntry.Term}); err != nil {
		return datadir.Member{}, fmt.Errorf("write the first term: %w", err)
	}
	if _, err := dir.Group(0).Birth(func(logDir, stateDir string) error {
		return m.writeFirstGeneration(genesis, logDir, stateDir)
	}); err != nil {
		return datadir.Member{}, fmt.Errorf("write the first generation of group 0: %w", err)
	}
	if err := dir.AddGroup(0); err != nil {
		return datadir.Member{}, fmt.Errorf("record group 0: %w", err)
	}
	return m.rememberIdentity(), nil
}

func (m *Member) writeFirstGeneration(genesis membership.Genesis, logDir, stateDir string) error {
	at := state.Position{Applied: firstEntry, Conf: genesis.ConfState()}
	err := state.Create(state.Options{FS: m.opts.FS, Dir: stateDir, Logger: m.log, Foreground: m.opts.Foreground}, at, func(b *state.Batch) error {
		return apply.Birth(b, genesis.Roster())
	})
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	hs := &pb.HardState{Term: proto.Uint64(firstEntry.Term), Vote: proto.Uint64(0), Commit: proto.Uint64(firstEntry.Index)}
	if err := wal.Create(m.logOptions(0, logDir), firstEntry, hs); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	return nil
}

// resume serves what the directory holds: it finishes a birth that a crash cut short, then opens. One
// that was admitted and has installed nothing yet goes on joining.
func (m *Member) resume(ctx context.Context, id datadir.Member) error {
	genesis, err := membership.DecodeGenesis(id.Genesis)
	if err != nil && len(id.Genesis) > 0 {
		return fmt.Errorf("member file: %w", err)
	}
	if err == nil && genesis.ClusterID() != id.Cluster {
		return errors.New("member file: the genesis record is of another cluster")
	}
	self, named := genesis.Named(id.Name)
	first := named && self.ID == id.ID && self.Incarnation == id.Incarnation
	born := len(id.Groups) > 0
	switch {
	case !born && !first:
		if !m.opts.Foreground {
			m.done.Go(func() { m.findCluster(ctx) })
		}
		return nil
	case !born:
		if id, err = m.finishBirth(genesis); err != nil {
			return err
		}
	}
	m.serve(ctx, id, !born)
	if first && !m.opts.Foreground {
		m.done.Go(func() { m.watchForConflict(ctx, genesis) })
	}
	return nil
}
