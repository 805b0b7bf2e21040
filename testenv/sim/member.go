package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	daemon "github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/replica"
	"github.com/tidaldb/tidal/testenv/simfs"
)

const (
	dataDir = "/data"

	// keepEvery is the pace of a keeper.
	keepEvery = time.Second

	// handoverEvery is the pace of a leader that asks itself whether it should go on.
	handoverEvery = 2 * time.Second
)

// epoch is the wall time of every clock at the beginning, but for its own error.
var epoch = time.UnixMilli(1_760_000_000_000)

// member is one machine with a disk: a process runs on it, or none.
type member struct {
	c    *cluster
	id   uint64         // of the machine
	as   ident.MemberID // whom it is in the cluster; 0: nobody yet
	name string
	addr string

	disk *simfs.FS
	// damaged: its copies are not all good any more, and what it has lost cannot come back by itself.
	damaged bool
	wiped   bool
	// beyond: what is damaged is not in a generation of log and state, which an artifact replaces.
	beyond bool
	gen    datadir.Generation // that was opened last

	spare  bool             // nothing ever ran on it, or all was taken from it
	joins  bool             // it has no place of its own in the file, or lost the disk with which it had it
	rejoin bool             // it says that it means to come back
	seeds  []string         // whom it asks
	lost   []ident.MemberID // who it was before it lost its disk
	gone   bool             // the process knows that it is removed

	// forgot are the machines that know that its disk went back, and holds less than it promised; nil: it
	// holds all.
	forgot map[uint64]bool
	// trouble is why a start may fail, or the replica may fail closed; nil: it must not.
	trouble error

	// The process.
	life    uint64 // of this machine: starts and ends of processes; work of an earlier life is void
	dir     *datadir.Dir
	process *daemon.Member // nil: none
	driver  *replica.Driver
	replica *replica.Replica
	role    consensus.Role
	applied ident.EntryID
	flushed uint64 // index, as far as the simulator had it flushed
	failed  error  // the replica failed closed
	bereft  error  // it goes on without its state
	turning bool   // a turn of the loop is planned

	pausedUntil time.Duration
	clock       struct {
		offset time.Duration // of the wall clock
		rate   float64       // of both: how fast time passes here
	}
	latest    time.Time // of the wall clock, before it was set back
	slowDisk  float64   // latencies are multiplied by this
	hangUntil time.Duration

	barrier pendingBarrier
	barred  bool // a barrier was given, and nothing was opened since

	peers     map[ident.MemberID]peer.Peer // whom the process dials
	greeted   map[uint64]greeting          // of each machine that was heard in this life
	admission pendingJoin
	reporting bool // the peers are told soon

	known known
}

// known is what is certain of a member's disk: what it has said is durable.
type known struct {
	identity datadir.Member
	vote     datadir.Vote
	last     ident.EntryID // of the durable log
	term     uint64        // of the durable hard state
	commit   uint64        // likewise
	inFlight []*consensus.Append
}

func newMember(c *cluster, id uint64) *member {
	name := machineName(id)
	m := &member{c: c, id: id, name: name, addr: name + ":1", disk: simfs.New(), slowDisk: 1}
	m.clock.rate = 0.9 + 0.2*c.rng.Float64()
	m.clock.offset = c.upTo(time.Second)
	return m
}

func machineName(id uint64) string { return fmt.Sprintf("m%d", id) }

func (m *member) httpAddr() string { return m.name + ":2" }

// up reports whether a process runs and can be reached; serving, whether its replica is open too.
func (m *member) up() bool      { return m.process != nil }
func (m *member) serving() bool { return m.driver != nil && m.failed == nil }

// after plans do for this life, when the process is not paused.
func (m *member) after(d time.Duration, do func()) {
	life := m.life
	var run func()
	run = func() {
		switch {
		case m.life != life:
		case m.c.now < m.pausedUntil:
			m.c.after(m.pausedUntil-m.c.now, run)
		default:
			do()
		}
	}
	m.c.after(d, run)
}

func (m *member) wall() time.Time {
	return epoch.Add(m.clock.offset + time.Duration(float64(m.c.now)*m.clock.rate))
}

// boot starts a process.
func (m *member) boot() {
	if m.up() {
		return
	}
	c := m.c
	m.life++
	c.note(m.id, "boot", m.life)
	if err := m.start(); err != nil {
		m.startFailed(err)
		return
	}
	switch {
	case m.process.Status().Phase == daemon.PhaseRemoved:
		if m.gone = true; !c.oracle.newest().roster.Removed(m.as) {
			c.violated("member %d starts as removed, and is %s of roster %d", m.id, m.as, c.oracle.newest().roster.Version)
		}
		c.sometimes("removed member stays so")
		c.after(c.around(10*c.plan.election()), m.retire)
	case m.joining():
		m.seek()
	default:
		m.serve()
	}
}

func (m *member) start() error {
	dir, err := datadir.Open(datadir.Options{Path: dataDir, FS: m.disk, Name: m.name, FileID: m.fileID})
	if err != nil {
		return err
	}
	m.dir = dir
	m.checkIdentity()
	p := &m.c.plan
	declared := m.c.declared
	if m.id > uint64(len(declared)) {
		declared = nil // no file names it
	}
	opts := daemon.Options{
		Dir: dir, DataDir: dataDir, FS: m.disk, Name: m.name,
		GRPCAddr: m.addr, HTTPAddr: m.httpAddr(),
		Declared: declared, Topology: [32]byte{1},
		Policy: p.policy(),
		Tick:   p.tick, HeartbeatTicks: p.heartbeat, ElectionTicks: electionTicks,
		SegmentBytes: p.segment, FirstSegmentBytes: p.firstSegment,
		Foreground: true, Limits: p.limits, Retention: p.retention, Now: m.wall, Rand: m.random(),
	}
	m.invite(&opts)
	m.process = daemon.New(opts)
	return m.process.Drive(port{m})
}

// random is what a process draws that must be unique. It is apart from the draws of the run, which say
// what happens.
func (m *member) random() io.Reader {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], m.c.number)
	binary.LittleEndian.PutUint64(seed[8:], m.id)
	binary.LittleEndian.PutUint64(seed[16:], m.life)
	return rand.NewChaCha8(seed)
}

func (m *member) fileID(path string) (datadir.FileID, error) {
	inode, err := m.disk.Inode(path)
	return datadir.FileID{Inode: inode}, err
}

// startFailed: the process ends, and a supervisor starts it again. Only trouble excuses it.
func (m *member) startFailed(err error) {
	c := m.c
	c.note(m.id, "start failed")
	switch {
	case m.disk.Off():
		c.sometimes("power lost while starting")
		m.powerLost(c.drawCrash())
		return
	case m.damaged:
		c.sometimes("damaged member refuses to start")
		m.end(m.disk.Kill())
		return
	case m.trouble == nil:
		c.violated("member %d does not start: %w", m.id, err)
		return
	}
	c.sometimes("start failed by a fault of the disk")
	m.end(m.disk.Kill())
	m.restartIn(c.around(c.plan.election()))
}

func (m *member) restartIn(d time.Duration) {
	life := m.life
	m.c.after(d, func() {
		if m.life == life {
			m.boot()
		}
	})
}

// seek looks for the cluster until it is born.
func (m *member) seek() {
	serves, err := m.process.Seek()
	switch {
	case m.disk.Off():
		m.c.sometimes("power lost during birth")
		m.powerLost(m.c.drawCrash())
		return
	case err != nil:
		m.c.sometimes("birth ended by a fault of the disk")
		m.startFailed(err)
		return
	case serves:
		if m.joins {
			m.c.sometimes("joined")
		}
		m.c.note(m.id, "born", uint64(m.dir.Member().ID))
		m.serve()
		return
	}
	if m.wiped && len(m.process.Status().WaitingFor) > 0 {
		m.c.sometimes("lost disk waits")
	}
	m.after(m.c.around(m.c.plan.election()/2), m.seek)
}

// serve drives the replica that the process has opened.
func (m *member) serve() {
	c := m.c
	m.checkIdentity()
	r := m.process.Taking(0)
	_, err := m.process.Replica(0)
	if m.dark() {
		return
	}
	m.after(c.around(keepEvery), m.keep)
	m.after(c.upTo(dutyEvery), m.duty)
	m.reporting = false
	if r == nil {
		m.closed(err)
		return
	}
	if err != nil {
		m.excuse(err)
	}
	m.noteGeneration(r)
	m.replica, m.driver = r, r.Drive()
	m.greeted = map[uint64]greeting{}
	s := r.Status()
	m.role = s.Role
	c.note(m.id, "open", s.Term, s.Last, s.Commit, s.Applied)
	m.checkRecovered(s)
	if m.bereft == nil {
		m.noteApplied()
		c.oracle.stands(m)
	}
	m.tickLater()
	m.after(c.around(c.plan.flushEvery), m.flush)
	m.after(c.upTo(200*time.Millisecond), m.measure)
	m.after(c.upTo(handoverEvery), m.considerHandover)
	m.look()
}

// closed: the process has no open replica. Its keeper may bring one back.
func (m *member) closed(err error) {
	c := m.c
	c.note(m.id, "closed")
	q, ok := errors.AsType[*daemon.QuarantinedError](err)
	switch {
	case ok && m.damaged:
		c.sometimes("quarantined for damage: " + string(q.Quarantine.Cause))
	case ok && m.trouble != nil:
		c.sometimes("quarantined for a fault of the disk")
		if len(c.members) == 1 || c.chance(0.3) { // somebody restarts it
			m.restartAfterFailure()
		}
	case errors.Is(err, daemon.ErrInstalling):
		c.sometimes("closed for an install")
	default:
		c.violated("member %d has no replica: %w", m.id, err)
	}
}

// excuse: a replica that was opened takes part in quarantine, as it did before its process ended.
func (m *member) excuse(err error) {
	_, latched, _ := m.dir.Group(0).Reseed()
	switch {
	case latched:
		m.c.sometimes("quarantine found again after a start")
	case m.trouble != nil: // its state could not be read, and its log could
		m.c.sometimes("quarantined for a fault of the disk")
	default:
		m.c.violated("member %d opens and is in quarantine: %w", m.id, err)
	}
	m.bereft = err
}

// noteGeneration takes note of what was opened. A new generation came by an artifact.
func (m *member) noteGeneration(r *replica.Replica) {
	gen, ok, err := m.dir.Group(0).Current()
	if err != nil || !ok {
		m.c.violated("member %d serves without a generation: %w", m.id, err)
		return
	}
	was, barred := m.gen, m.barred
	m.gen, m.barred = gen, false
	if was == gen || was == (datadir.Generation{}) {
		return
	}
	m.c.note(m.id, "installed", gen.Log, gen.State)
	m.c.sometimes("artifact installed")
	if barred {
		m.c.sometimes("artifact installed under a barrier")
	}
	if gen.Log == was.Log {
		m.c.sometimes("artifact installed beside a sound log")
		return
	}
	m.checkReplaced(r)
	m.forgot = nil // an install under a barrier brings it all back
	m.known.last, m.known.commit, m.known.inFlight = ident.EntryID{}, 0, nil
	if m.damaged && !m.beyond && gen.State != was.State {
		m.damaged = false
		m.c.sometimes("damaged member healed")
	}
}

// checkReplaced: a log that is replaced held nothing beyond the artifact that a leader may count on. One whose
// last entry is of the artifact's last term, or a later one, had all of the artifact's log before it.
func (m *member) checkReplaced(r *replica.Replica) {
	view := r.View()
	at := view.Position().Applied
	m.close(view)
	if k := m.known.last; k.Term >= at.Term && k.Index > at.Index {
		m.c.violated("member %d replaces a log that ended at %s by an artifact of %s", m.id, k, at)
	}
}

// keep is a round of the process's keepers, and what the transport does beside messages.
func (m *member) keep() {
	m.after(m.c.around(keepEvery), m.keep)
	m.round()
}

func (m *member) round() {
	m.process.Keep()
	if m.dark() || m.leave() {
		return
	}
	m.reportSoon()
	if r := m.process.Taking(0); r == m.replica {
		m.tellPins()
		m.tellDigests()
		m.look()
		return
	}
	if m.replica != nil {
		m.driver.Tick() // answers everybody
		m.c.clients.answers(m)
	}
	m.life++ // what was under way is void
	m.c.clients.vanished(m)
	m.driver, m.replica, m.failed, m.bereft, m.turning, m.role = nil, nil, nil, nil, false, consensus.Role{}
	m.c.note(m.id, "replaced", m.life)
	m.serve()
}

// tellPins has the others keep their logs for whom this member keeps its own.
func (m *member) tellPins() {
	if !m.serving() || m.role.State != raft.StateLeader {
		return
	}
	pins := m.process.Pins()
	for _, o := range m.c.members {
		if o != m && o.serving() && m.c.net.open(m.id, o.id) {
			o.process.Pinned(m.as, pins)
		}
	}
}

// tellDigests tells the others what this member's states added up to.
func (m *member) tellDigests() {
	if !m.serving() {
		return
	}
	digests := m.process.Digests()
	for _, o := range m.c.members {
		if o != m && o.serving() && m.c.net.open(m.id, o.id) {
			o.process.Digested(m.as, digests)
		}
	}
}

func (m *member) restartAfterFailure() {
	m.after(m.c.around(m.c.plan.election()), func() {
		m.end(m.disk.Kill())
		m.restartIn(m.c.upTo(m.c.plan.election()))
	})
}

// tickLater plans the next tick of the monotonic clock.
func (m *member) tickLater() {
	m.after(time.Duration(float64(m.c.plan.tick)/m.clock.rate), func() {
		m.tickLater()
		m.driver.Tick()
		m.look()
	})
}

func (m *member) flush() {
	if m.c.now < m.hangUntil {
		m.after(m.hangUntil-m.c.now, m.flush)
		return
	}
	m.after(m.c.around(m.c.plan.flushEvery), m.flush)
	if err := m.driver.Flush(); m.dark() {
		return
	} else if err != nil {
		m.driverFailed(err)
		return
	}
	m.flushed = m.applied.Index
	m.c.note(m.id, "flushed", m.applied.Index)
	m.look()
}

func (m *member) measure() {
	m.after(200*time.Millisecond, m.measure)
	m.process.MeasureDisk()
	if m.process.Status().Disk.Full {
		m.c.sometimes("disk almost full")
	}
	m.look()
}

// considerHandover has a leader whose disk is full or stands still look for another one.
func (m *member) considerHandover() {
	m.after(handoverEvery, m.considerHandover)
	if !m.serving() {
		return
	}
	before := m.replica.Status().Transferee
	if !m.process.ConsiderHandover() {
		return
	}
	m.c.sometimes("leader has a reason to hand over")
	m.driver.Turn()
	if before == 0 && m.replica.Status().Transferee != 0 {
		m.c.sometimes("leader hands over for its disk")
	}
	m.look()
}

// look starts what there is to do, after anything that happened to the replica.
func (m *member) look() {
	c := m.c
	if c.err != nil || m.driver == nil || m.dark() {
		return
	}
	s := m.replica.Status()
	if s.Failed != nil && m.failed == nil {
		m.driverFailed(s.Failed)
		return
	}
	if s.Stateless != nil && m.bereft == nil {
		m.stateLost(s.Stateless)
	}
	if s.Role != m.role {
		m.newRole(s.Role)
	}
	if frames := m.driver.TakeAppends(); len(frames) > 0 {
		m.known.inFlight = frames
		sync := false
		for _, f := range frames {
			c.oracle.appended(m, f.Entries)
			sync = sync || f.Sync()
		}
		took := c.upTo(c.plan.tick / 100)
		if sync {
			took = m.diskTime(c.plan.syncMax)
		}
		m.after(took, func() { m.unlessHanging(func() { m.append(frames) }) })
	}
	if runs := m.driver.TakeApplies(); len(runs) > 0 {
		m.after(c.upTo(c.plan.applyMax), func() { m.apply(runs) })
	}
	if m.driver.Awake() && !m.turning {
		m.turning = true
		m.after(c.upTo(c.plan.tick/100), func() {
			m.turning = false
			m.driver.Turn()
			m.look()
		})
	}
	c.clients.answers(m)
}

// diskTime draws how long the disk takes, unless it hangs.
func (m *member) diskTime(most time.Duration) time.Duration {
	return time.Duration(float64(most/10+m.c.upTo(most)) * m.slowDisk)
}

// unlessHanging does something once the disk does not hang any more: it may be healed sooner than planned.
func (m *member) unlessHanging(do func()) {
	if m.c.now < m.hangUntil {
		m.after(min(m.hangUntil-m.c.now, m.c.plan.election()/4), func() { m.unlessHanging(do) })
		return
	}
	do()
}

func (m *member) newRole(role consensus.Role) {
	c := m.c
	m.role = role
	c.note(m.id, "role", role.Term, uint64(role.Leader), uint64(role.State))
	if role.State == raft.StateLeader {
		c.oracle.leads(m.as, role.Term)
	}
}

// dark takes note of power that was lost in the middle of something, whether or not that noticed: what is
// only useful, such as a spare segment, may fail in silence.
func (m *member) dark() bool {
	if !m.disk.Off() {
		return false
	}
	m.c.sometimes("power lost in the middle of a write")
	m.powerLost(m.c.drawCrash())
	return true
}

// append is the end of the append worker's work: what was taken is on the disk now.
func (m *member) append(frames []*consensus.Append) {
	if err := m.driver.Append(); m.dark() {
		return
	} else if err != nil {
		m.driverFailed(err)
		return
	}
	m.durable(frames)
	m.c.note(m.id, "appended", uint64(len(frames)), m.known.last.Index)
	m.look()
}

// durable takes note of frames that the log has claimed to be durable, and looks whether they are.
func (m *member) durable(frames []*consensus.Append) {
	c := m.c
	m.known.inFlight = nil
	sync := false
	for _, f := range frames {
		if n := len(f.Entries); n > 0 {
			if f.Entries[0].GetIndex() <= m.known.last.Index {
				c.sometimes("log suffix replaced")
			}
			m.known.last = entryID(f.Entries[n-1])
		}
		m.known.term = max(m.known.term, f.HardState.GetTerm())
		sync = sync || f.Sync()
	}
	m.noteVote()
	if !sync {
		return
	}
	m.known.commit = max(m.known.commit, frames[len(frames)-1].HardState.GetCommit())
	left := append(m.disk.Unsynced(dataDir, ".wal"), m.disk.Unsynced(dataDir, "/votes")...)
	left = slices.DeleteFunc(left, func(path string) bool { return strings.Contains(path, "/kept-") }) // evidence, as it was
	if len(left) > 0 {
		c.violated("member %d claims that its log is durable, and %v is not", m.id, left)
	}
}

func (m *member) noteVote() {
	v := m.dir.Vote(0)
	if v != m.known.vote {
		if m.known.vote = v; m.forgot == nil {
			m.c.oracle.votes(m.as, v)
		}
	}
}

// apply is the end of the apply worker's work: what was taken is in state now.
func (m *member) apply(runs []*consensus.Apply) {
	if err := m.driver.Apply(); m.dark() {
		return
	} else if err != nil {
		m.driverFailed(err)
		return
	}
	for _, run := range runs {
		m.c.oracle.applies(m, run.Entries)
	}
	m.noteApplied()
	m.c.note(m.id, "applied", m.applied.Term, m.applied.Index)
	m.c.oracle.stands(m)
	m.look()
}

// noteApplied takes note of where state stands.
func (m *member) noteApplied() {
	view := m.replica.View()
	m.applied = view.Position().Applied
	m.close(view)
}

func (m *member) close(c interface{ Close() error }) {
	if err := c.Close(); err != nil && !m.damaged && m.trouble == nil {
		m.c.violated("member %d: %w", m.id, err)
	}
}

// driverFailed: the replica failed closed. Only trouble with the disk excuses it.
func (m *member) driverFailed(err error) {
	c := m.c
	if m.dark() || m.failed != nil {
		return
	}
	if s := m.replica.Status(); s.Failed == nil && s.Stateless != nil {
		m.look()
		return
	}
	m.failed = err
	stage := "?"
	if f, ok := errors.AsType[*replica.FailedError](m.replica.Status().Failed); ok {
		stage = string(f.Stage)
	}
	c.note(m.id, "failed closed", foldString(stage))
	if m.trouble == nil && !m.damaged {
		c.violated("member %d failed closed: %w", m.id, err)
		return
	}
	c.sometimes("failed closed: " + stage)
	m.driver.Tick() // answers everybody
	c.clients.answers(m)
	if len(c.members) == 1 || c.chance(0.5) { // else it is left to its keeper
		m.restartAfterFailure()
	}
}

// stateLost: the replica gave up its state and goes on with its log. Only trouble with the disk excuses it.
func (m *member) stateLost(err error) {
	c := m.c
	m.bereft = err
	c.note(m.id, "without state")
	if m.trouble == nil && !m.damaged {
		c.violated("member %d gives up its state: %w", m.id, err)
		return
	}
	c.sometimes("failed closed: state")
	m.driver.Turn() // answers everybody
	c.clients.answers(m)
	if len(c.members) == 1 || c.chance(0.5) { // else it is left to its keeper
		m.restartAfterFailure()
	}
}

// powerLost ends the process and leaves on the disk what a crash of that class does.
func (m *member) powerLost(class simfs.Crash) {
	c := m.c
	if len(m.known.inFlight) > 0 {
		c.sometimes("crash with frames on their way")
	}
	c.sometimes("crash " + class.String())
	m.end(m.disk.Crash(class, c.rng.Uint64()))
	m.restartIn(c.upTo(2 * c.plan.election()))
}

// end ends the process at once; its machine has next for a disk.
func (m *member) end(next *simfs.FS) {
	m.life++
	old := m.disk
	m.disk = next
	m.barrier, m.barred = pendingBarrier{}, false
	m.c.note(m.id, "end", m.life)
	m.c.clients.vanished(m)
	old.Forget()
	m.trouble = nil
	m.letGo()
	m.process, m.dir, m.driver, m.replica = nil, nil, nil, nil
	m.failed, m.bereft, m.turning, m.role = nil, nil, false, consensus.Role{}
	m.pausedUntil, m.hangUntil = 0, 0
	m.reporting, m.admission = false, pendingJoin{}
}

// letGo closes what the process held.
func (m *member) letGo() {
	if m.process != nil {
		_ = m.process.Stop()
	}
	if m.dir != nil {
		_ = m.dir.Close()
	}
}

// stop ends the run for m.
func (m *member) stop() {
	m.life++
	m.letGo()
	m.process, m.dir = nil, nil
}

// heal ends what is wrong with m, as far as that can be ended. Whose disk has failed gets another process:
// what failed may have been a small file, and no other is written after it.
func (m *member) heal() {
	m.disk.SetFault(nil)
	m.disk.SetQuota(0)
	m.disk.CutPowerAt(0)
	m.slowDisk, m.hangUntil = 1, 0
	m.clock.rate = 1
	if m.latest.After(m.wall()) { // it was set back, and is set right
		m.clock.offset += m.latest.Sub(m.wall())
	}
	if m.pausedUntil > m.c.now {
		m.pausedUntil = m.c.now
	}
	switch {
	case m.spare, m.gone:
	case !m.up():
		m.restartIn(m.c.upTo(m.c.plan.election()))
	case (m.trouble != nil || m.failed != nil || m.bereft != nil) && !m.damaged, m.driver == nil && !m.damaged && !m.joining():
		m.end(m.disk.Kill())
		m.restartIn(m.c.upTo(m.c.plan.election()))
	default:
		m.trouble = nil
	}
}

// greeting is the handshake that a stream began with.
type greeting struct {
	life  uint64 // of who sends
	hello peer.Hello
}

// receive takes the bytes of one message from a peer.
func (m *member) receive(from sender, b []byte) {
	if !m.serving() || from.m.process == nil || from.m.life != from.life {
		return // the connection is not there any more
	}
	msg := &pb.Message{}
	if err := proto.Unmarshal(b, msg); err != nil {
		m.c.violated("unmarshal: %v", err)
		return
	}
	if ident.MemberID(msg.GetTo()) != m.as {
		m.c.sometimes("somebody else listens there")
		return
	}
	if m.forgot != nil && !from.m.heard(m) {
		// It is refused before it hears of a later term, by which it could not be told any more.
		if !from.m.serving() || !m.c.net.open(m.id, from.m.id) || !from.m.greet(sender{m, m.life, m.as}) || !m.serving() {
			return
		}
	}
	if m.greeted[from.m.id].life != from.life && !m.greet(from) {
		return
	}
	if refusal := m.process.Standing(m.greeted[from.m.id].hello); refusal != nil {
		m.refuse(from, refusal)
		return
	}
	if m.process.Roster().Removed(from.as) {
		m.c.sometimes("a removed member is heard until its removal is settled")
	}
	m.process.Deliver(from.as, 0, []*pb.Message{msg})
	m.look()
}

// greet is the handshake that begins a stream.
func (m *member) greet(from sender) bool {
	hello := from.m.process.SelfHello()
	if _, refusal := m.process.Hello(hello); refusal != nil {
		m.refuse(from, refusal)
		return false
	}
	if from.m.forgot[m.id] {
		m.c.violated("member %d hears member %s, which has forgotten what it promised to it", m.id, from.as)
	}
	m.greeted[from.m.id] = greeting{from.life, hello}
	from.m.process.PeerChanged(peer.PeerStatus{Peer: peer.Peer{ID: m.as, Addr: m.addr}, Connected: true})
	from.m.look()
	return true
}

// refuse ends a stream and says why.
func (m *member) refuse(from sender, refusal *peer.Refusal) {
	c, roster := m.c, m.c.oracle.newest().roster
	delete(m.greeted, from.m.id)
	c.note(m.id, "refuses", from.m.id, foldString(string(refusal.Reason)))
	c.sometimes("refused: " + string(refusal.Reason))
	switch refusal.Reason {
	case peer.ReasonRemoved:
		if !roster.Removed(from.as) {
			c.violated("member %d refuses member %s: %v", m.id, from.as, refusal)
		}
	case peer.ReasonAmnesia:
		if c.sometimes("forgetful member refused"); from.m.forgot == nil {
			c.violated("member %d refuses member %s: %v", m.id, from.as, refusal)
		}
	case peer.ReasonUnknownMember: // it has not applied the roster with the new one
		if _, ok := m.process.Roster().Member(from.as); ok {
			c.violated("member %d refuses member %s: %v", m.id, from.as, refusal)
		}
	default:
		c.violated("member %d refuses member %s: %v", m.id, from.as, refusal)
	}
	from.m.process.PeerChanged(peer.PeerStatus{Peer: peer.Peer{ID: m.as, Addr: m.addr}, Failure: peer.FailureRefusal, Refusal: refusal})
	from.m.after(0, from.m.turnRegistrar)
}

// checkIdentity: what a member said of itself stays true.
func (m *member) checkIdentity() {
	was, now := m.known.identity, m.dir.Member()
	m.known.identity = now
	switch {
	case !was.Incarnation.IsZero() && now.Incarnation != was.Incarnation:
		m.c.violated("member %d has incarnation %s, had %s", m.id, now.Incarnation, was.Incarnation)
	case was.ID != 0 && (now.ID != was.ID || now.Cluster != was.Cluster):
		m.c.violated("member %d is %s of %s, was %s of %s", m.id, now.ID, now.Cluster, was.ID, was.Cluster)
	case now.ID != 0 && uint64(now.ID) != m.id && !m.joins:
		m.c.violated("member %d was born as %s", m.id, now.ID)
	case slices.Contains(m.lost, now.ID):
		m.c.violated("member %d lost its disk and takes part again as %v", m.id, now)
	case now.BootEpoch < was.BootEpoch:
		m.c.violated("member %d has boot epoch %d, had %d", m.id, now.BootEpoch, was.BootEpoch)
	}
	if m.as = now.ID; m.as != 0 {
		m.c.oracle.born(m, now)
	}
	if m.as != 0 && m.wiped {
		m.damaged, m.wiped, m.beyond = false, false, false
		m.c.sometimes("lost disk comes back as somebody else")
	}
}

// checkRecovered: everything that was durable is there after a start.
func (m *member) checkRecovered(s replica.Status) {
	c, k := m.c, &m.known
	if k.last.Index > s.Last && !replaces(k.inFlight, s.Last+1) {
		c.violated("member %d opens a log that ends at %d, %s was durable", m.id, s.Last, k.last)
	}
	v := m.dir.Vote(0)
	if v.Term < k.vote.Term || v.Term == k.vote.Term && k.vote.Vote != 0 && v.Vote != k.vote.Vote || s.Term < k.term {
		c.violated("member %d opens with vote %+v in term %d, %+v in %d was durable", m.id, v, s.Term, k.vote, k.term)
	}
	switch {
	case s.Applied > k.last.Index && k.last.Index > 0 && len(k.inFlight) == 0:
		c.violated("member %d has applied %d, its log ended at %s", m.id, s.Applied, k.last)
	case s.Applied < s.Commit:
		c.sometimes("opened with state behind commit")
	}
	if len(k.inFlight) > 0 && s.Last > k.last.Index {
		c.sometimes("a frame survived that nobody waited for")
	}
	if s.Commit < k.commit && k.last != (ident.EntryID{}) {
		c.violated("member %d opens with commit %d, %d was durable", m.id, s.Commit, k.commit)
	}
	k.commit, m.flushed = s.Commit, s.Applied
	k.last = ident.EntryID{Term: s.DurableTerm, Index: s.Last}
	k.inFlight = nil
	m.noteVote()
}

// replaces reports whether one of frames begins to overwrite at or below index.
func replaces(frames []*consensus.Append, index uint64) bool {
	for _, f := range frames {
		if len(f.Entries) > 0 && f.Entries[0].GetIndex() <= index {
			return true
		}
	}
	return false
}

// mayLeave: no vote and no append response before what it rests on is durable; nothing at all after a
// failure.
func (m *member) mayLeave(msg *pb.Message) {
	k := &m.known
	if m.failed != nil {
		m.c.violated("member %d sends %s after it failed closed", m.id, msg.GetType())
	}
	switch msg.GetType() {
	case pb.MsgVoteResp:
		want := datadir.Vote{Term: msg.GetTerm(), Vote: msg.GetTo()}
		if !msg.GetReject() {
			if m.forgot == nil { // else nobody must hear it
				m.c.oracle.votes(m.as, want)
			}
			if v := m.dir.Vote(0); v.Term < want.Term || v.Term == want.Term && v != want {
				m.c.violated("member %d votes for %d in term %d, durable is %+v", m.id, want.Vote, want.Term, v)
			}
		}
	case pb.MsgAppResp:
		if !msg.GetReject() && (k.term < msg.GetTerm() || k.term == msg.GetTerm() && k.last.Index < msg.GetIndex()) {
			m.c.violated("member %d acknowledges %d in term %d, durable is %s in term %d",
				m.id, msg.GetIndex(), msg.GetTerm(), k.last, k.term)
		}
	}
}

func entryID(e *pb.Entry) ident.EntryID {
	return ident.EntryID{Term: e.GetTerm(), Index: e.GetIndex()}
}

// String says where m stands, for messages.
func (m *member) String() string {
	s := fmt.Sprintf("member %d, life %d: up %t, damaged %t, term %d, leader %d, %s, durable %s, applied %s",
		m.id, m.life, m.up(), m.damaged, m.role.Term, m.role.Leader, m.role.State, m.known.last, m.applied)
	if m.serving() {
		s += fmt.Sprintf(", commit %d", m.replica.Status().Commit)
	}
	if m.up() {
		s += fmt.Sprintf(", %s %v", m.process.Status().Phase, m.process.Status().WaitingFor)
	}
	for what, err := range map[string]error{"trouble": m.trouble, "failed": m.failed, "without state": m.bereft} {
		if err != nil {
			s += fmt.Sprintf(", %s: %v", what, err)
		}
	}
	return s
}
