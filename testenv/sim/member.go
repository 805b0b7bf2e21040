package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

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
	// divergent: its state is not what the others have. unnoticed counts the rounds since, in which it could have
	// been told apart.
	divergent bool
	unnoticed int
	// twin is a machine with a copy of its disk, on which a process runs; twinOf whose disk it is a copy of.
	// doubled: somebody heard both.
	twin, twinOf *member
	doubled      bool
	fenced       map[fencedLife]bool // whom the process refuses as one of two
	// tainted: what it fetched last came from a member whose copies may be bad.
	tainted bool
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
	dialling  map[uint64]bool              // machines that are dialled soon
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
		m.notice()
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
	if !m.serving() || m.twinOf != nil {
		return
	}
	digests := m.process.Digests()
	for _, o := range m.c.members {
		if o != m && o.serving() && m.c.net.open(m.id, o.id) {
			o.process.Digested(m.as, digests)
		}
	}
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
	if m.dir.SetVote(0, m.dir.Vote(0)) != nil {                                                        // a vote that it could not write, and gave to nobody
		left = slices.DeleteFunc(left, func(path string) bool { return strings.HasSuffix(path, "/votes") })
	}
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
	if m.trouble == nil && !m.damaged && !(m.doubled && stage == string(replica.StageFence)) {
		c.violated("member %d failed closed: %w", m.id, err)
		return
	}
	c.sometimes("failed closed: " + stage)
	m.driver.Tick() // answers everybody
	c.clients.answers(m)
	if m.twinOf == nil && (len(c.members) == 1 || c.chance(0.5)) { // else it is left to its keeper
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
	m.reporting, m.admission, m.fenced = false, pendingJoin{}, nil
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
	if m.divergent { // it is found, and comes back
		m.damaged = false
	}
	m.endTwin()
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
