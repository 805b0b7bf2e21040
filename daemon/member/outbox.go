package member

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/outbox"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/state"
)

const (
	// deliverEvery is how often a member looks whether something is left to deliver, beside when it has
	// reason to.
	deliverEvery = 500 * time.Millisecond
	// deliverAgain is how long a delivery may be on its way through the log before it is made again: the
	// leader may be gone with it. Made twice, it counts once.
	deliverAgain = 2 * time.Second
	// deliverForeign is how long operations of another member are left to that member and to the one that
	// brought them.
	deliverForeign = 2 * time.Second
	// forgetEvery is how often the leader looks whether what was delivered of removed members can be forgotten.
	forgetEvery = time.Minute

	defaultOutboxRetention = 7 * 24 * time.Hour
)

// Outbox is where this member takes writes by itself.
func (m *Member) Outbox() *outbox.Box { return m.box }

// openOutbox opens the outbox. What ails its disk is in its status, and keeps nobody from serving.
func (m *Member) openOutbox() (err error) {
	m.box, err = outbox.Open(outbox.Options{
		FS: m.opts.FS, Dir: m.opts.Dir.OutboxDir(), Owner: m.identity().Incarnation, MaxBytes: m.opts.OutboxBytes, RunBytes: m.opts.Limits.EntryBytes / 4,
		OnChange: m.delivery.poke, Rand: m.opts.Rand, Now: m.opts.Now, Logger: m.log, Metrics: m.opts.Metrics,
	})
	return err
}

// delivery is what a member remembers of the deliveries that it made. One goroutine at a time uses it.
type delivery struct {
	wake chan struct{} // capacity 1
	sent map[ident.Incarnation]sent
	// complained is the last failure that was logged.
	complained string
	forgetAt   time.Time
	tidyAt     time.Time
}

// sent is a delivery that was handed to a leader.
type sent struct {
	first uint64 // place of its first operation
	term  uint64 // of the leader
	at    time.Time
}

func newDelivery() delivery {
	return delivery{wake: make(chan struct{}, 1), sent: map[ident.Incarnation]sent{}}
}

// poke has the deliverer look. It does not block.
func (d *delivery) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// due reports whether a delivery is to be made now: it has not been on its way to this leader for a
// moment only, and whoever is nearer to it had time to.
func (d *delivery) due(c outbox.Chain, term uint64, now time.Time) bool {
	if s, ok := d.sent[c.Origin]; ok && s.first == c.First && s.term == term && now.Sub(s.at) < deliverAgain && now.Sub(s.at) >= 0 {
		return false
	}
	return c.Own || now.Sub(c.Came) >= deliverForeign || now.Before(c.Came)
}

// runDelivery delivers what the outbox holds, until ctx ends.
func (m *Member) runDelivery(ctx context.Context) {
	pulse := m.beat.Every(deliverEvery)
	defer pulse.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pulse.C:
			pulse.Took()
		case <-m.delivery.wake:
		}
		m.DeliverOutbox(ctx)
	}
}

// DeliverOutbox is what a started member does again and again: it hands what its outbox holds, and the
// log does not, to the leader, if one is known. It does not wait for what becomes of it.
func (m *Member) DeliverOutbox(ctx context.Context) {
	d, now := &m.delivery, m.opts.Now()
	if now.Sub(d.tidyAt) >= time.Second || now.Before(d.tidyAt) {
		d.tidyAt = now
		m.box.Tidy()
	}
	g := m.sound(surface)
	if g == nil {
		return
	}
	s := g.replica.Status()
	if s.Leader == 0 {
		return
	}
	if s.State == raft.StateLeader {
		m.forgetRemoved(g, now)
	}
	if m.box.Status().Pending == 0 {
		clear(d.sent)
		return
	}
	for _, run := range m.box.Due(func(c outbox.Chain) bool { return d.due(c, s.Term, now) }) {
		d.sent[run.Origin] = sent{first: run.First, term: s.Term, at: now}
		write := command.EncodeWrite(command.Write{Records: []command.Record{run}})
		if err := m.deliver(ctx, g, s.Leader, write); err != nil {
			if text := err.Error(); text != d.complained && ctx.Err() == nil {
				d.complained = text
				m.log.Warn("outbox not delivered", slog.Any("origin", run.Origin), slog.Int("operations", len(run.Ops)), slog.Any("err", err))
			}
			return
		}
		d.complained = ""
	}
}

// deliver hands a delivery to the leader: to this member's own replica, or to another member.
func (m *Member) deliver(ctx context.Context, g *group, leader ident.MemberID, write []byte) error {
	if leader == m.identity().ID {
		_, err := g.replica.Begin(write, consensus.AckLeader)
		return err
	}
	x, ok := m.Roster().Member(leader)
	if !ok {
		return fmt.Errorf("the roster does not know member %s, which leads", leader)
	}
	return m.net.SendOutbox(ctx, m.addrOf(x), peer.OutboxRequest{Hello: m.SelfHello(), Group: surface, Write: write})
}

// TakeOutbox proposes what a peer delivers, if this member leads.
func (m *Member) TakeOutbox(_ context.Context, r peer.OutboxRequest) error {
	if refusal := m.refuse(r.Hello); refusal != nil {
		return refusal
	}
	if _, err := command.DecodeOutbox(r.Write); err != nil {
		return err
	}
	replica, err := m.Replica(r.Group)
	if err != nil {
		return err
	}
	_, err = replica.Begin(r.Write, consensus.AckLeader)
	return err
}

// onDeliver is told what the log took over, when this member's state shows it.
func (m *Member) onDeliver(all []apply.Delivery) {
	for _, d := range all {
		switch d.Refused {
		case "":
			m.box.Delivered(d.Origin, d.Delivered)
		case command.CodeOutboxGap: // whoever has what is missing delivers it
		default:
			m.box.Forked(d.Origin, d.Refused)
		}
	}
	m.delivery.poke()
}

// noteDelivered tells the outbox what the state of a group that was opened holds.
func (m *Member) noteDelivered(store *state.Store) error {
	view := store.NewView()
	defer view.Close()
	all, err := apply.Delivered(view)
	for origin, d := range all {
		m.box.Delivered(origin, d)
	}
	return err
}

// forgetRemoved drops from the state, now and then, what was delivered of members that were removed long
// ago. This member leads.
func (m *Member) forgetRemoved(g *group, now time.Time) {
	d := &m.delivery
	if now.Before(d.forgetAt) {
		return
	}
	d.forgetAt = now.Add(forgetEvery)
	view := g.replica.View()
	defer view.Close()
	all, err := apply.Delivered(view)
	if err != nil {
		return // the replica meets it too
	}
	stamp := view.Position().Stamp
	before := ident.MakeStamp(max(stamp.Millis()-m.opts.OutboxRetention.Milliseconds(), 0))
	if !forgettable(all, before) {
		return
	}
	write := command.EncodeWrite(command.Write{Records: []command.Record{command.OutboxForget{Before: before}}})
	if _, err := g.replica.Begin(write, consensus.AckLeader); err != nil {
		m.log.Warn("outboxes of removed members not forgotten", slog.Any("err", err))
	}
}

func forgettable(all map[ident.Incarnation]entity.Delivered, before ident.Stamp) bool {
	for _, d := range all {
		if d.Gone != 0 && d.Gone < before {
			return true
		}
	}
	return false
}

// surface is the group that outboxes are delivered to.
const surface ident.GroupID = 0
