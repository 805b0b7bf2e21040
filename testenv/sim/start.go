package sim

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	daemon "github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/replica"
)

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
	if id := m.id; id > uint64(len(declared)) && (m.twinOf == nil || m.twinOf.id > uint64(len(declared))) {
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
	if m.process.Duty(); m.dark() || m.leave() {
		return
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
	m.after(c.around(deliverEvery), m.deliver)
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
	m.greeted, m.dialling = map[uint64]greeting{}, map[uint64]bool{}
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
	case ok && m.doubled && q.Quarantine.Cause == daemon.CauseDuplicate: // until somebody ends the other one
	case ok && m.trouble != nil:
		c.sometimes("quarantined for a fault of the disk")
		if len(c.members) == 1 || c.chance(0.3) { // somebody restarts it
			m.restartAfterFailure()
		}
	case ok && m.tainted && q.Quarantine.Cause == daemon.CauseStateError:
		c.sometimes("artifact of a damaged state refused")
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
	if m.divergent && gen.State != was.State {
		m.divergent, m.damaged = false, false
		m.c.sometimes("divergent state installed again")
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

func (m *member) restartAfterFailure() {
	m.after(m.c.around(m.c.plan.election()), func() {
		m.end(m.disk.Kill())
		m.restartIn(m.c.upTo(m.c.plan.election()))
	})
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
	k.commit, k.term, m.flushed = s.Commit, s.Term, s.Applied
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
