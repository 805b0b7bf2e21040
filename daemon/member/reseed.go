package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/replica"
	"github.com/tidaldb/tidal/daemon/snapshot"
	"github.com/tidaldb/tidal/daemon/state"
	"github.com/tidaldb/tidal/daemon/wal"
)

// reasonCompacted latches a reseed because the leader does not have the entries any more that this
// replica needs. Alone among the reasons it lapses when the leader turns out to have them.
const reasonCompacted = "log_compacted"

// reasonOperator latches a reseed because somebody asked for it.
const reasonOperator = "operator"

// ErrInstalling refuses a request while a replica is closed to have its data replaced. It takes as
// long as a start.
var ErrInstalling = fmt.Errorf("an artifact is being installed: %w", replica.ErrClosed)

// healable are the quarantines that a reseed heals: the data is bad, the binary is not.
func (c Cause) healable() bool { return c.Conduct().Heals }

// reseed makes one attempt at what is latched, or was asked for; without either it does nothing. What
// has arrived stays for the next attempt.
func (k *keeper) reseed(ctx context.Context) error {
	k.mu.Lock()
	asked, ordered, fence, latched := k.mu.asked, k.mu.ordered, k.mu.fence, k.mu.latched
	k.mu.asked = false
	k.mu.Unlock()
	g := k.m.current(k.group)
	if g == nil {
		return nil
	}
	if fence != nil && k.fenced() == "" {
		return k.latchFence(fence.Cause)
	}
	if err := k.refusedBefore(); err != nil {
		return err
	}
	if damaged := g.quarantine != nil && g.quarantine.Cause.healable(); damaged && !k.condemns(latched) {
		if err := k.latch(g, string(g.quarantine.Cause)); err != nil {
			return err
		}
		latched = k.latchedNow()
	}
	if ordered && latched == nil {
		if err := k.latch(g, reasonOperator); err != nil {
			return err
		}
		latched = k.latchedNow()
	}
	if !asked && latched == nil {
		return nil
	}
	if latched != nil && g.quarantine == nil && k.alone() {
		return k.unlatch() // what was opened is sound, and nobody has anything better
	}
	if g.quarantine != nil && !g.quarantine.Cause.healable() {
		return fmt.Errorf("the replica is quarantined: %s", g.quarantine.Cause)
	}
	if latched != nil && !k.allowed() {
		return errManual
	}
	k.enter(PhaseFindSource)
	src, err := k.source(ctx, g)
	if err == nil && latched == nil {
		var needed bool
		if needed, err = snapshot.Needed(ctx, src, k.request(g, reasonCompacted)); err == nil && !needed {
			return nil // a message from before the last install, or a leader that has changed
		}
	}
	if latched == nil {
		if lerr := k.latch(g, reasonCompacted); lerr != nil {
			return errors.Join(err, lerr)
		}
		latched = k.latchedNow()
	}
	switch {
	case err != nil:
		return err
	case !k.allowed(): // it was latched just now
		return errManual
	}
	return k.carryOut(ctx, g, latched, src)
}

// condemns reports whether what is latched says that the data that it replaces is damaged: what was latched
// for another reason before that was found keeps nothing of it, and a start forgets the quarantine. One that
// was carried out, and whose new data does not open, is about the data that it replaced.
func (k *keeper) condemns(latched *datadir.Reseed) bool {
	if latched == nil || latched.Keep {
		return latched != nil
	}
	gen, ok, err := k.files.Current()
	return err != nil || !ok || latched.Condemned != gen
}

// alone reports whether no other member could be a source.
func (k *keeper) alone() bool { return len(k.m.Roster().Members) == 1 }

// carryOut fetches an artifact and installs it.
//
// A replica with a sound log stays open while it is fetched, and is closed for the swap alone, with the
// leader's permit. One whose log is not sound cannot say what it acknowledged: it is closed, and stays so,
// and asks the leader for a barrier first.
func (k *keeper) carryOut(ctx context.Context, g *group, latched *datadir.Reseed, src source) error {
	r := k.request(g, latched.Reason)
	forced := r.Always
	if !g.takesPart() {
		if err := k.raiseBarrier(ctx, src); err != nil {
			return err
		}
		if r.Always = true; !mutantArtifactCached {
			r.Least = k.barrier.Index
		}
	}
	from := src
	if other, ok := k.chosenSource(); ok && vain(k.stuck, k.unfit) < sourcePatience {
		from, r.Always = other, true
	} else if other, ok := k.otherSource(src); ok {
		from, r.Always = other, true // whether the leader has the entries, another one cannot say
	}
	k.enter(PhaseFetch)
	f := k.startFetch()
	before, _ := f.Progress()
	a, err := f.Fetch(ctx, from, r)
	if after, _ := f.Progress(); err == nil || after > before {
		k.stuck = 0
	} else {
		k.stuck++
	}
	if err != nil {
		if _, noRoom := errors.AsType[*snapshot.NoRoomError](err); noRoom || vfs.IsNoSpaceError(err) { // give the room back: the old data goes on
			k.endFetch()
		}
		return err
	}
	if a == nil || !forced && k.overtook(a) {
		k.endFetch()
		k.m.log.Info("reseed not needed any more", slog.Any("group", k.group))
		return k.unlatch()
	}
	if g.takesPart() {
		k.enter(PhasePermit)
		if err := k.permitted(ctx, src); err != nil {
			return err
		}
	}
	k.enter(PhaseInstall)
	return k.install(a, src)
}

// overtook reports whether the replica came further by the log, of a new leader, while the artifact
// was fetched.
func (k *keeper) overtook(a *snapshot.Artifact) bool {
	g := k.m.sound(k.group)
	return g != nil && g.replica.Status().Applied >= a.Manifest.Position.Applied.Index
}

// request asks for what the replica of g needs: everything after the last entry that it knows to be
// committed, up to which its log agrees with every leader's.
func (k *keeper) request(g *group, reason string) snapshot.Request {
	k.mu.Lock()
	ordered := k.mu.ordered
	k.mu.Unlock()
	r := snapshot.Request{Group: k.group, Always: reason != reasonCompacted || ordered}
	if g.takesPart() {
		r.From = g.replica.Status().Commit + 1
	}
	return r
}

// raiseBarrier asks for a barrier, once in each term for as long as the replica stays closed. The log of a
// later leader may end before the barrier of an earlier one: what that had and could not commit is gone, and
// nobody would ever reach it.
func (k *keeper) raiseBarrier(ctx context.Context, src source) error {
	if k.barrier != nil && src.term <= k.barrier.Term {
		return nil
	}
	// It is quarantined. Nothing of it may speak after the leader has answered.
	if _, err := k.m.closeGroup(k.group, nil); err != nil {
		return err
	}
	term := k.m.opts.Dir.Vote(k.group).Term
	reply, err := k.m.net.Barrier(ctx, src.addr, peer.BarrierRequest{Hello: k.m.SelfHello(), Group: k.group, Term: term})
	if err != nil {
		return fmt.Errorf("ask for a barrier: %w", err)
	}
	if reply.Term < term || reply.Index == 0 {
		return fmt.Errorf("barrier at index %d of term %d, votes here are of term %d", reply.Index, reply.Term, term)
	}
	k.barrier = &ident.EntryID{Term: reply.Term, Index: reply.Index}
	return nil
}

// startFetch returns the fetcher under way, or a new one.
func (k *keeper) startFetch() *snapshot.Fetcher {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.fetcher == nil {
		k.mu.since = time.Now()
		k.mu.fetcher = snapshot.NewFetcher(snapshot.FetcherOptions{
			FS: k.m.opts.FS, Dir: k.files.IncomingDir, Cluster: k.cluster, Group: k.group,
			Reserve: k.m.followingRoom, Prove: k.m.proveArtifact, Foreground: k.m.opts.Foreground,
		})
	}
	return k.mu.fetcher
}

// endFetch forgets the fetcher and what it brought, unless that was installed.
func (k *keeper) endFetch() {
	k.mu.Lock()
	f := k.mu.fetcher
	k.mu.fetcher = nil
	k.mu.Unlock()
	if f == nil {
		return
	}
	if err := f.Discard(); err != nil {
		k.m.log.Warn("artifact not removed", slog.Any("group", k.group), slog.Any("err", err))
	}
}

// install closes the replica, replaces its data and opens it again. Whatever goes wrong before the
// marker moves, the old data is opened again as it was.
func (k *keeper) install(a *snapshot.Artifact, src source) error {
	start := time.Now()
	err := k.replace(a)
	if !mutantBarrierKept {
		k.barrier = nil
	}
	g := k.m.openGroup(k, k.m.identity(), func(store *state.Store) error {
		if err != nil {
			return nil // it is the old data
		}
		return a.Verify(store.Position())
	})
	k.m.admit(g)
	if g = k.m.current(k.group); g == nil { // this member was removed meanwhile
		return errors.Join(err, ErrRemoved)
	}
	if g.takesPart() { // also where it is the old data: the leader's permit ends
		k.m.net.Opened(src.member, []peer.GroupPosition{k.m.position(g)})
	}
	if err != nil {
		return fmt.Errorf("install artifact %s: %w", a.ID, err)
	}
	if q := g.quarantine; q != nil {
		k.unfit++
		return fmt.Errorf("open installed artifact %s: quarantined: %s", a.ID, q.Detail)
	}
	at := a.Manifest.Position.Applied
	k.m.metrics.installs.Inc()
	k.m.log.Info("artifact installed", slog.Any("group", k.group), slog.String("artifact", a.ID.String()), slog.Any("peer", a.Manifest.Source),
		slog.Uint64("index", at.Index), slog.Int64("bytes", a.Manifest.Bytes()), slog.Duration("took", time.Since(start)))
	k.m.opts.Journal.Add(journal.Installed{Group: k.group, Index: at.Index, Bytes: a.Manifest.Bytes(), From: a.Manifest.Source})
	k.complained, k.unfit = "", 0
	k.installed()
	return nil
}

// replace closes the replica, judges its log, which nobody writes to from then on, and makes the
// artifact current.
func (k *keeper) replace(a *snapshot.Artifact) error {
	var keepLog bool
	old := k.m.current(k.group)
	sound, err := k.m.closeGroup(k.group, func(log *wal.Log) (err error) {
		if keepLog, err = snapshot.Contains(log, a.Manifest.Position.Applied); err != nil || !keepLog {
			return err
		}
		return k.commitInLog(log, old.replica.Status().Applied)
	})
	if err != nil {
		return err
	}
	i := snapshot.Install{Group: k.group, Files: k.files, Votes: k.m.opts.Dir, Artifact: a}
	if !sound {
		if k.barrier == nil {
			return errors.New("the log is not sound any more: a barrier is needed")
		}
		i.Term = k.barrier.Term
	}
	if !keepLog || mutantLogReplaced {
		o := k.m.logOptions(k.group, "")
		i.NewLog = &o
	}
	_, err = i.Run()
	return err
}

// commitInLog has a log that stays know as committed what the state that goes had applied: it may have been
// the only one to know, and others count on it that this member does. A state that failed long ago knew less
// than the log, which went on.
func (k *keeper) commitInLog(log *wal.Log, applied uint64) error {
	vote := k.m.opts.Dir.Vote(k.group)
	hs := &pb.HardState{Term: new(vote.Term), Vote: new(vote.Vote), Commit: new(max(log.Commit(), min(applied, log.LastIndex())))}
	if err := log.Append([]wal.Frame{{HardState: hs}}, true); err != nil {
		return fmt.Errorf("keep in the log what is applied: %w", err)
	}
	return nil
}

// latch makes a reseed of the present generation durable.
func (k *keeper) latch(g *group, reason string) error {
	gen, ok, err := k.files.Current()
	if err != nil || !ok {
		return fmt.Errorf("latch a reseed (%s): no current generation: %w", reason, err)
	}
	r := datadir.Reseed{Reason: reason, Since: k.m.opts.Now().UnixMilli(), Term: k.m.opts.Dir.Vote(k.group).Term, Condemned: gen, Keep: g.quarantine != nil}
	if err := k.files.Latch(r); err != nil {
		return err
	}
	k.setLatched(&r)
	k.m.log.Warn("reseed required", slog.Any("group", k.group), slog.String("reason", reason))
	k.m.opts.Journal.Add(journal.ReseedRequired{Group: k.group, Reason: reason})
	return nil
}

func (k *keeper) unlatch() error {
	if err := k.files.Unlatch(); err != nil {
		return err
	}
	k.setLatched(nil)
	return nil
}

func (k *keeper) setLatched(r *datadir.Reseed) {
	k.mu.Lock()
	k.mu.latched = r
	if r == nil {
		k.mu.ordered, k.mu.from, k.mu.phase, k.mu.refused = false, 0, "", ""
	}
	k.mu.Unlock()
	if r == nil {
		k.booted = false
		k.m.metrics.reseedRefused.WithLabelValues(k.group.String()).Set(0)
	}
	required := 0.0
	if r != nil && latchedFence(r.Reason) == "" {
		required = 1
	}
	k.m.metrics.reseedRequired.WithLabelValues(k.group.String()).Set(required)
}

func (k *keeper) latchedNow() *datadir.Reseed {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.latched
}

// load reads what is latched, before the group is opened.
func (k *keeper) load() error {
	k.listKept()
	r, ok, err := k.files.Reseed()
	if err == nil && ok {
		k.booted = k.booted || !k.loaded
		k.setLatched(&r)
	}
	k.loaded = true
	return err
}

// settle ends a reseed whose new generation was opened and proved sound: what was condemned is kept
// where it was damaged, and the marker goes. It is safe to repeat after a crash at any point.
func (k *keeper) settle(gen datadir.Generation) error {
	r := k.latchedNow()
	if r == nil || r.Condemned == gen {
		return nil
	}
	if r.Keep {
		name := fmt.Sprintf("%d-%s", r.Since, r.Reason)
		k.keeping.Lock()
		defer k.keeping.Unlock()
		if err := k.files.Keep(r.Condemned, name); err != nil {
			return err
		}
		k.listKept()
	}
	return k.unlatch()
}

// source is a member that artifacts are fetched from.
type source struct {
	m      *Member
	member ident.MemberID
	addr   string
	term   uint64 // in which it is said to lead; 0: nobody said so
}

// source returns the leader, as known here or, where the replica is closed, as others know it.
func (k *keeper) source(ctx context.Context, g *group) (source, error) {
	if g.takesPart() {
		leader := g.replica.Status().Leader
		if leader == k.m.identity().ID {
			return source{}, k.yield(ctx, g)
		}
		if x, ok := k.m.Roster().Member(leader); ok {
			return source{m: k.m, member: x.ID, addr: k.m.addrOf(x)}, nil
		}
		// A member that was away while the membership changed is behind its leader.
		if addr, ok := k.m.hinted(leader); ok {
			return source{m: k.m, member: leader, addr: addr}, nil
		}
		return source{}, errNoLeader
	}
	return k.m.askForLeader(ctx)
}

// otherSource returns another member than the leader to fetch from, where it is the turn of one: any open
// replica may serve what it has applied.
func (k *keeper) otherSource(leader source) (source, bool) {
	var others []membership.Member
	for _, x := range k.m.Roster().Members {
		if x.ID != leader.member && x.ID != k.m.identity().ID {
			others = append(others, x)
		}
	}
	i, ok := otherTurn(vain(k.stuck, k.unfit), len(others))
	if !ok {
		return source{}, false
	}
	return source{m: k.m, member: others[i].ID, addr: k.m.addrOf(others[i])}, true
}

// vain is how many attempts were in vain: stuck brought nothing, unfit brought what did not open. One of these
// is enough to ask somebody else, for the source would only ship the same again.
func vain(stuck, unfit int) int {
	if unfit == 0 {
		return stuck
	}
	return stuck + sourcePatience + unfit - 1
}

// otherTurn says which of the members that do not lead is asked for an artifact, after so many attempts in a
// row that brought nothing; false: the leader is. Each has its turn again and again: whoever could not
// serve may be able to now.
func otherTurn(stuck, others int) (i int, ok bool) {
	if stuck < sourcePatience {
		return 0, false
	}
	i = (stuck - sourcePatience) % (others + 1)
	return i, i < others
}

// askForLeader asks the other members who leads, and believes the one of the highest term.
func (m *Member) askForLeader(ctx context.Context) (source, error) {
	var term uint64
	var leader ident.MemberID
	addrs := map[ident.MemberID]string{}
	for _, addr := range m.addresses() {
		reply, err := m.probe(ctx, addr)
		if err != nil || reply.Cluster != m.identity().Cluster {
			continue
		}
		addrs[reply.ID] = addr
		if reply.Leader != 0 && reply.Term > term {
			term, leader = reply.Term, reply.Leader
		}
	}
	addr, ok := addrs[leader]
	if !ok {
		return source{}, errNoLeader
	}
	return source{m: m, member: leader, addr: addr, term: term}, nil
}

func (m *Member) probe(ctx context.Context, addr string) (peer.ProbeReply, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	self := m.identity()
	return m.net.Probe(ctx, addr, peer.ProbeRequest{Name: self.Name, Incarnation: self.Incarnation, TopologyDigest: m.opts.Topology})
}

// Open implements snapshot.Source.
func (s source) Open(ctx context.Context, r snapshot.Request) (snapshot.Header, snapshot.Stream, error) {
	h, stream, err := s.m.net.FetchSnapshot(ctx, s.addr, peer.SnapshotRequest{
		Hello: s.m.SelfHello(), Group: r.Group, From: r.From, Always: r.Always, Least: r.Least,
		Have: r.Have, Resume: peer.SnapshotCursor(r.Resume),
	})
	if err != nil {
		return snapshot.Header{}, nil, err
	}
	out := snapshot.Header{Needed: h.Needed, Term: h.Term, Manifest: h.Manifest, From: snapshot.Cursor(h.From)}
	if stream == nil {
		return out, nil, nil
	}
	return out, chunks{stream}, nil
}

// chunks is a stream of package peer.
type chunks struct{ *peer.SnapshotStream }

// Next implements snapshot.Stream.
func (c chunks) Next() (snapshot.Chunk, error) {
	x, err := c.SnapshotStream.Next()
	return snapshot.Chunk{Cursor: snapshot.Cursor(x.At), Data: x.Data, Sum: x.Sum, Term: x.Term}, err
}
