package member

import (
	"context"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/replica"
)

// Drive is Start for a member whose Options say Foreground: it opens the groups of an initialised
// member and starts nothing. Whoever calls it carries on with Seek, until the cluster is born, and with
// the Driver of each replica. For the simulator, whose runs must repeat.
func (m *Member) Drive(net Network) error {
	m.net = net
	if err := m.openOutbox(); err != nil {
		return err
	}
	m.measureDisk() // the sizes of the log's segments depend on it
	id := m.identity()
	if removed, err := m.wasRemoved(); removed || err != nil || id.ID == 0 {
		return err
	}
	return m.resume(context.Background(), id)
}

// Seek is one round of what a fresh member does over and over: it asks every declared member once, and
// serves if the cluster is made or found. It reports whether it serves. An error is for Options.OnFatal.
func (m *Member) Seek() (serves bool, err error) {
	if m.gone() != nil {
		return false, nil
	}
	return m.seekCluster(context.Background())
}

// Keep is a round of what a started member's keepers do again and again: they drop what nobody needs of
// the logs, have states compared, hand over what must not be led from here, and make an attempt at a
// reseed that is latched. It may close replicas and open others.
func (m *Member) Keep() {
	for _, g := range m.leads() {
		if g.quarantine != nil {
			m.considerHandover(context.Background(), g)
		}
	}
	for _, k := range m.keepers() {
		k.keepLog()
		k.checkRound()
		k.tryReseed(context.Background())
	}
	m.savePromises()
}

// Duty is a round of what a started member's registrar does several times a second, and after whatever
// may matter to it: it goes on with the verbs that were begun, and with what the leader owes by itself. It
// may ask other members something, and may close the replicas of a member that is removed.
func (m *Member) Duty() { m.registrar.turn() }

// ScrubNow reads everything that the state of an open replica holds, as is done now and then in the
// background, and puts it into quarantine if it is not what was written.
func (m *Member) ScrubNow(gid ident.GroupID) {
	if g := m.sound(gid); g != nil {
		g.scrub(context.Background(), m, nil)
	}
}

// Taking returns the replica of a group that takes part in it: it is open and its log is sound, whatever
// its state is. nil: none does.
func (m *Member) Taking(gid ident.GroupID) *replica.Replica {
	if g := m.taking(gid); g != nil {
		return g.replica
	}
	return nil
}

// DeliverOutbox and Outbox, in outbox.go, are the rest of what a started member does by itself.

// MeasureDisk is what a started member does again and again: it finds out how much room there is.
func (m *Member) MeasureDisk() { m.measureDisk() }

// ConsiderHandover is what a started member does again and again: it hands over every group that it leads
// and should not. It reports whether there was one.
func (m *Member) ConsiderHandover() (reason bool) {
	for _, g := range m.leads() {
		reason = m.considerHandover(context.Background(), g) || reason
	}
	return reason
}

func (m *Member) startReplica(r *replica.Replica) {
	if !m.opts.Foreground {
		r.Start()
	}
}
