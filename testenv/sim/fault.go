package sim

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/wal"
	"github.com/tidaldb/tidal/testenv/simfs"

	"errors"
)

// kind is a kind of fault, an index of kinds.
type kind int

// kinds are the faults. do makes one happen to victim, for about span, and reports whether it could.
var kinds = []struct {
	name   string
	weight int
	do     func(c *cluster, victim *member, span time.Duration) bool

	changes bool // it changes the membership
}{
	{"kill", 4, (*cluster).kill, false},
	{"stop", 2, (*cluster).stopGracefully, false},
	{"power loss", 5, (*cluster).losePower, false},
	{"power loss of all", 1, (*cluster).losePowerOfAll, false},
	{"power loss in the middle", 5, (*cluster).cutPower, false},
	{"pause", 3, (*cluster).pause, false},
	{"clock jump", 2, (*cluster).jumpClock, false},
	{"clock drift", 2, (*cluster).driftClock, false},
	{"lossy network", 2, (*cluster).loseMessages, false},
	{"doubling network", 1, (*cluster).doubleMessages, false},
	{"slow network", 2, (*cluster).slowNetwork, false},
	{"stray messages", 1, (*cluster).strayMessages, false},
	{"isolation", 3, (*cluster).isolate, false},
	{"partition", 3, (*cluster).partition, false},
	{"one-way partition", 3, (*cluster).oneWay, false},
	{"partial partition", 2, (*cluster).partialPartition, false},
	{"bridge", 2, (*cluster).bridge, false},
	{"slow disk", 2, (*cluster).slowDisk, false},
	{"hanging disk", 1, (*cluster).hangDisk, false},
	{"write error", 2, (*cluster).failWrite, false},
	{"read error", 1, (*cluster).failRead, false},
	{"failed sync", 2, (*cluster).failSync, false},
	{"short write", 1, (*cluster).shortWrite, false},
	{"full disk", 2, (*cluster).fillDisk, false},
	{"rot in the log", 1, (*cluster).rotLog, false},
	{"rot elsewhere", 1, (*cluster).rotElsewhere, false},
	{"wiped disk", 1, (*cluster).wipe, false},
	{"copied directory", 1, (*cluster).copyDirectory, false},
	{"old copy put back", 2, (*cluster).oldCopy, false},
	{"rot in the last frame", 2, (*cluster).rotLast, false},
	{"transfer", 3, (*cluster).transfer, false},
	{"leader lost", 2, (*cluster).rumour, false},
	{"altered row", 4, (*cluster).alterRow, false},
	{"live copy", 2, (*cluster).liveCopy, false},
	{"join", 4, (*cluster).join, true},
	{"removal", 3, (*cluster).remove, true},
	{"promotion", 2, (*cluster).promote, true},
}

// ruins are the kinds that make much of a run in which so much is damaged that nobody may lead.
var ruins = map[string]bool{"rot in the log": true, "rot elsewhere": true, "wiped disk": true}

// fault makes one thing go wrong, and plans the next.
func (c *cluster) fault() {
	if c.healed {
		return
	}
	c.after(c.around(c.plan.faultEvery), c.fault)
	if len(c.plan.kinds) == 0 {
		return
	}
	c.faultNo++
	k := c.plan.kinds[c.rng.IntN(len(c.plan.kinds))]
	victim := c.members[c.rng.IntN(len(c.members))]
	if leader := c.leader(); leader != nil && c.chance(0.4) {
		victim = leader // the interesting one
	}
	span := c.plan.election()/5 + c.upTo(7*c.plan.election())
	if c.opts.Skip[c.faultNo] {
		return
	}
	c.note(victim.id, "fault "+kinds[k].name, uint64(c.faultNo), uint64(span))
	if kinds[k].do(c, victim, span) {
		c.faults[kinds[k].name]++
		c.sometimes("fault " + kinds[k].name)
		c.happened = append(c.happened, fmt.Sprintf("%d: %s of member %d at %s for %s", c.faultNo, kinds[k].name, victim.id, c.now, span))
	}
}

func (c *cluster) drawCrash() simfs.Crash {
	all := simfs.Crashes()
	return all[c.rng.IntN(len(all))]
}

// kill ends a process; the kernel goes on.
func (c *cluster) kill(m *member, span time.Duration) bool {
	if !m.up() {
		return false
	}
	leads := c.leader() == m
	m.end(m.disk.Kill())
	m.restartIn(span)
	if leads && c.chance(0.5) { // the others see its port refuse
		c.sometimes("leader's port refuses")
		for _, o := range c.members {
			c.after(c.upTo(c.plan.tick), func() { c.gone(o, m) })
		}
	}
	return true
}

// gone tells o that the process of a peer is gone.
func (c *cluster) gone(o, m *member) {
	if o != m && o.serving() && c.now >= o.pausedUntil {
		o.process.PeerGone(m.as)
		o.look()
	}
}

// rumour: the leader's process is said to be gone, and it lives.
func (c *cluster) rumour(m *member, _ time.Duration) bool {
	leader := c.byID(m.role.Leader)
	if !m.serving() || leader == nil || leader == m {
		return false
	}
	c.gone(m, leader)
	return true
}

// stopGracefully is a SIGTERM.
func (c *cluster) stopGracefully(m *member, span time.Duration) bool {
	if !m.serving() {
		return false
	}
	_ = m.process.Stop()
	c.clients.answers(m)
	m.end(m.disk.Kill())
	m.restartIn(span)
	return true
}

func (c *cluster) losePower(m *member, _ time.Duration) bool {
	if !m.up() {
		return false
	}
	m.powerLost(c.drawCrash())
	return true
}

func (c *cluster) losePowerOfAll(*member, time.Duration) bool {
	for _, m := range c.members {
		if m.up() {
			m.powerLost(c.drawCrash())
		}
	}
	return true
}

// cutPower takes the power away in the middle of what the process does next.
func (c *cluster) cutPower(m *member, _ time.Duration) bool {
	m.disk.CutPowerAt(1 + c.rng.IntN(12))
	return true
}

func (c *cluster) pause(m *member, span time.Duration) bool {
	if !m.up() {
		return false
	}
	m.pausedUntil = c.now + span
	return true
}

func (c *cluster) jumpClock(m *member, _ time.Duration) bool {
	if m.wall().After(m.latest) {
		m.latest = m.wall()
	}
	m.clock.offset += c.upTo(20*time.Minute) - 10*time.Minute
	return true
}

func (c *cluster) driftClock(m *member, _ time.Duration) bool {
	m.clock.rate = 0.6 + 0.8*c.rng.Float64()
	return true
}

func (c *cluster) loseMessages(_ *member, span time.Duration) bool {
	c.net.drop = 0.5 * c.rng.Float64()
	return c.calmAfter(span)
}

func (c *cluster) doubleMessages(_ *member, span time.Duration) bool {
	c.net.double = c.rng.Float64()
	return c.calmAfter(span)
}

func (c *cluster) slowNetwork(_ *member, span time.Duration) bool {
	c.net.delayMax = c.upTo(c.plan.election()) + time.Millisecond
	return c.calmAfter(span)
}

func (c *cluster) strayMessages(_ *member, span time.Duration) bool {
	c.net.stray = 0.2 * c.rng.Float64()
	return c.calmAfter(span)
}

func (c *cluster) calmAfter(span time.Duration) bool {
	c.after(span, func() {
		if !c.healed {
			c.net.conditions = c.plan.network
		}
	})
	return true
}

// isolate parts one member from all others.
func (c *cluster) isolate(m *member, span time.Duration) bool {
	c.net.cut(c.between(map[uint64]bool{m.id: true}, true, true), span)
	return true
}

// partition parts any two sides.
func (c *cluster) partition(_ *member, span time.Duration) bool {
	c.net.cut(c.between(c.anySide(), true, true), span)
	return true
}

// oneWay lets messages pass in one direction only.
func (c *cluster) oneWay(m *member, span time.Duration) bool {
	side := map[uint64]bool{m.id: true}
	if c.chance(0.3) {
		side = c.anySide()
	}
	out := c.chance(0.5)
	c.net.cut(c.between(side, out, !out), span)
	return true
}

// partialPartition cuts any links, each in both directions.
func (c *cluster) partialPartition(_ *member, span time.Duration) bool {
	var links []link
	for from := uint64(1); from <= uint64(len(c.members)); from++ {
		for to := from + 1; to <= uint64(len(c.members)); to++ {
			if c.chance(0.3) {
				links = append(links, link{from, to}, link{to, from})
			}
		}
	}
	c.net.cut(links, span)
	return len(links) > 0
}

// bridge parts two sides that both reach one member.
func (c *cluster) bridge(m *member, span time.Duration) bool {
	side := c.anySide()
	var links []link
	for _, l := range c.between(side, true, true) {
		if l.from != m.id && l.to != m.id {
			links = append(links, l)
		}
	}
	c.net.cut(links, span)
	return len(links) > 0
}

func (c *cluster) anySide() map[uint64]bool {
	side := map[uint64]bool{}
	for _, m := range c.members {
		if c.chance(0.5) {
			side[m.id] = true
		}
	}
	return side
}

// between lists the links out of a side, into it, or both.
func (c *cluster) between(side map[uint64]bool, out, in bool) []link {
	var links []link
	for from := uint64(1); from <= uint64(len(c.members)); from++ {
		for to := uint64(1); to <= uint64(len(c.members)); to++ {
			if out && side[from] && !side[to] || in && !side[from] && side[to] {
				links = append(links, link{from, to})
			}
		}
	}
	return links
}

func (c *cluster) slowDisk(m *member, span time.Duration) bool {
	m.slowDisk = 2 + 20*c.rng.Float64()
	c.after(span, func() { m.slowDisk = 1 })
	return true
}

func (c *cluster) hangDisk(m *member, span time.Duration) bool {
	m.hangUntil = c.now + 2*span
	return true
}

// troubled has fault decide over one of the next calls that match.
func (c *cluster) troubled(m *member, what string, match func(simfs.Op) bool, fault simfs.Fault) bool {
	left := 1 + c.rng.IntN(10)
	if c.divergence() {
		return false
	}
	m.trouble = errors.New(what)
	c.mayForget(m)
	m.disk.SetFault(func(op simfs.Op) simfs.Fault {
		if left == 0 || !match(op) {
			return simfs.Fault{}
		}
		if left--; left > 0 {
			return simfs.Fault{}
		}
		return fault
	})
	return true
}

func (c *cluster) failWrite(m *member, _ time.Duration) bool {
	kinds := []simfs.OpKind{simfs.OpWrite, simfs.OpWrite, simfs.OpCreate, simfs.OpRename, simfs.OpMkdir}
	k := kinds[c.rng.IntN(len(kinds))]
	return c.troubled(m, "write error", func(op simfs.Op) bool { return op.Kind == k }, simfs.Fault{Err: syscall.EIO})
}

func (c *cluster) shortWrite(m *member, _ time.Duration) bool {
	fault := simfs.Fault{Err: syscall.EIO, Short: c.rng.IntN(600)}
	return c.troubled(m, "short write", func(op simfs.Op) bool { return op.Kind == simfs.OpWrite }, fault)
}

func (c *cluster) failRead(m *member, _ time.Duration) bool {
	kinds := []simfs.OpKind{simfs.OpRead, simfs.OpRead, simfs.OpOpen, simfs.OpStat, simfs.OpList}
	k := kinds[c.rng.IntN(len(kinds))]
	return c.troubled(m, "read error", func(op simfs.Op) bool { return op.Kind == k }, simfs.Fault{Err: syscall.EIO})
}

// failSync fails a sync and loses the pages, as a kernel does.
func (c *cluster) failSync(m *member, _ time.Duration) bool {
	fault := simfs.Fault{Err: syscall.EIO, DropPages: c.chance(0.8)}
	return c.troubled(m, "failed sync", func(op simfs.Op) bool { return op.Kind == simfs.OpSync }, fault)
}

// fillDisk leaves little room for a while.
func (c *cluster) fillDisk(m *member, span time.Duration) bool {
	if !m.up() || c.divergence() {
		return false
	}
	m.trouble = errors.New("full disk")
	c.mayForget(m)
	m.disk.SetQuota(m.disk.Used() + c.rng.Int64N(64<<10))
	life := m.life
	m.c.after(span, func() {
		if m.life == life {
			m.disk.SetQuota(0)
		}
	})
	return true
}

// mayDamage reports whether one more member's copies may go bad: the atlas of the faults that cannot
// be undone. The others keep a good copy of everything.
func (c *cluster) mayDamage(m *member) bool {
	if m.damaged || m.as == 0 || m.gone || !c.oracle.bornAll() || c.lastDeclared(m) || c.divergence() {
		return false
	}
	return c.mayLose(m, false) || c.plan.mustHalt && len(c.core()) > 1
}

// lastDeclared: of the machines that the file names m alone holds a member of the cluster, or held one. If all of
// them have empty disks they make a cluster of their own, as at their first start, although others may have
// joined them since: nobody whom they know of can tell them.
func (c *cluster) lastDeclared(m *member) bool {
	if m.id > uint64(len(c.declared)) {
		return false
	}
	for _, o := range c.members[:len(c.declared)] {
		if o != m && o.as != 0 {
			return false
		}
	}
	return true
}

// rotLog flips a bit in a durable frame of the log. The last frame is left to rotLast.
func (c *cluster) rotLog(m *member, _ time.Duration) bool {
	if !c.mayDamage(m) {
		return false
	}
	var frames []wal.FrameInfo
	dir := fmt.Sprintf("%s/groups/0/log-%06d", dataDir, m.gen.Log)
	if _, err := wal.Scan(m.disk.Crash(simfs.Strict, 0), dir, 0, func(f wal.FrameInfo) error {
		frames = append(frames, f)
		return nil
	}); err != nil || len(frames) < 2 {
		return false
	}
	f := frames[c.rng.IntN(len(frames)-1)]
	m.damaged = true
	c.mayForget(m)
	at := f.Offset + c.rng.Int64N(f.Bytes)
	return m.disk.Flip(dir+"/"+f.Segment, at, uint(c.rng.IntN(8))) == nil
}

// rotElsewhere flips a bit in any other file.
func (c *cluster) rotElsewhere(m *member, _ time.Duration) bool {
	if !c.mayDamage(m) {
		return false
	}
	var files []string
	for _, f := range m.disk.Files(dataDir) {
		if !strings.Contains(f, "/log-") {
			files = append(files, f)
		}
	}
	f := files[c.rng.IntN(len(files))]
	info, err := m.disk.Stat(f)
	if err != nil || info.Size() == 0 {
		return false
	}
	c.mayForget(m)
	c.outboxes.lose(m)
	m.damaged, m.beyond = true, !strings.Contains(f, fmt.Sprintf("/state-%06d/", m.gen.State))
	return m.disk.Flip(f, c.rng.Int64N(info.Size()), uint(c.rng.IntN(8))) == nil
}

// newDisk gives a machine an empty disk, and a process after span.
func (m *member) newDisk(span time.Duration) {
	m.c.mayForget(m)
	m.end(simfs.New())
	m.forget()
	m.damaged, m.wiped, m.beyond = true, true, true // until the cluster has taken it in as somebody else
	m.restartIn(span)
}

// wipe takes everything from a member's disk.
func (c *cluster) wipe(m *member, span time.Duration) bool {
	if !c.mayDamage(m) {
		return false
	}
	m.newDisk(span)
	return true
}

// copyDirectory starts from a copy of a member's directory, which must be refused.
func (c *cluster) copyDirectory(m *member, _ time.Duration) bool {
	if m.dir == nil || m.dir.Member().ID == 0 || m.damaged {
		return false
	}
	disk := m.disk.Kill()
	if err := disk.CopyTree(dataDir, "/copy"); err != nil {
		return false
	}
	_, err := datadir.Open(datadir.Options{Path: "/copy", FS: disk, Name: m.name, FileID: func(path string) (datadir.FileID, error) {
		inode, err := disk.Inode(path)
		return datadir.FileID{Inode: inode}, err
	}})
	if _, ok := errors.AsType[*datadir.CopiedError](err); !ok {
		c.violated("a copy of member %d's directory opens with %v", m.id, err)
	}
	c.sometimes("copied directory refused")
	return true
}

func (c *cluster) transfer(*member, time.Duration) bool {
	leader := c.leader()
	if leader == nil || len(c.members) == 1 {
		return false
	}
	to := c.members[c.rng.IntN(len(c.members))]
	if to.as == 0 || to.gone {
		return false
	}
	c.note(leader.id, "transfer", to.id)
	leader.replica.Transfer(to.as)
	leader.look()
	return true
}

// String says what a run has drawn, for its report.
func (p *plan) String() string {
	return fmt.Sprintf("%d members, tick %s, segments of %d bytes, faults every %s", p.members, p.tick, p.segment, p.faultEvery)
}
