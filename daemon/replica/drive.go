package replica

import (
	"errors"

	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
)

// Driver runs a replica on its caller's thread, in place of Start: whoever holds it decides when each
// worker works and when the loop turns. For the simulator, whose runs must repeat; everything that a
// worker or the loop does is what Start's goroutines do. A Driver belongs to one goroutine.
type Driver struct {
	r *Replica

	appends []*consensus.Append // taken by the append worker and not carried out
	applies []*consensus.Apply  // by the apply worker
}

// Drive returns the driver of a replica that is not started and never will be.
func (r *Replica) Drive() *Driver { return &Driver{r: r} }

// Tick is one tick of the raft clock.
func (d *Driver) Tick() {
	if d.r.stopped() {
		d.r.end()
		return
	}
	d.r.tick()
	d.r.turn()
}

// Turn is one round of the loop. It reports whether there was a reason for one.
func (d *Driver) Turn() bool {
	select {
	case <-d.r.wake:
	default:
		return false
	}
	if d.r.stopped() {
		d.r.end()
	} else {
		d.r.turn()
	}
	return true
}

// Awake reports whether Turn has a reason.
func (d *Driver) Awake() bool { return len(d.r.wake) > 0 }

// TakeAppends has the append worker take everything that is queued, and returns it: read-only. nil:
// there is nothing, or the last was not carried out yet.
func (d *Driver) TakeAppends() []*consensus.Append {
	if len(d.appends) > 0 || d.r.stopped() {
		return nil
	}
	d.appends = d.r.appends.take(nil)
	return d.appends
}

// Append has the append worker carry out what it took. An error has failed the replica.
func (d *Driver) Append() error {
	queued := d.appends
	d.appends = nil
	return d.carryOut(func() (Stage, error) { return d.r.appendFrames(queued) })
}

// TakeApplies has the apply worker take everything that is queued, and returns it: read-only. nil:
// there is nothing, or the last was not carried out yet.
func (d *Driver) TakeApplies() []*consensus.Apply {
	if len(d.applies) > 0 || d.r.stopped() || d.r.stateless.Load() != nil {
		return nil
	}
	d.applies = d.r.applies.take(nil)
	return d.applies
}

// Apply has the apply worker carry out what it took. An error has failed the replica.
func (d *Driver) Apply() error {
	queued := d.applies
	d.applies = nil
	return d.carryOut(func() (Stage, error) { return d.r.applyRuns(queued) })
}

// Flush is what the flusher does now and then. An error has failed the replica.
func (d *Driver) Flush() error {
	return d.carryOut(func() (Stage, error) { return StageState, d.r.flushApplied() })
}

func (d *Driver) carryOut(do func() (Stage, error)) error {
	if d.r.stopped() {
		return d.r.cause()
	}
	stage, err := do()
	if err != nil {
		d.r.fail(stage, err)
	}
	return err
}

// Call is a write or a read that waits for its answer.
type Call struct {
	r     *Replica
	write *write // nil: a read
	round *round
}

// Write begins what Replica.Begin does. An error says that nothing happened.
func (d *Driver) Write(data []byte, ack consensus.Ack) (*Call, error) {
	w, err := d.r.admit(data, ack)
	if err != nil {
		return nil, err
	}
	return &Call{r: d.r, write: w}, nil
}

// Read begins what Replica.ReadIndex does.
func (d *Driver) Read() (*Call, error) {
	rd, wake, err := d.r.reads.join()
	if err != nil {
		return nil, err
	}
	if wake {
		poke(d.r.wake)
	}
	return &Call{r: d.r, round: rd}, nil
}

// Barrier begins what Replica.Barrier does. What it returns is asked until it is done, once.
func (d *Driver) Barrier(term uint64) (answer func() (id ident.EntryID, done bool, err error), err error) {
	led, err := d.r.leadsFrom(term)
	if err != nil {
		return nil, err
	}
	read, err := d.Read()
	if err != nil {
		return nil, err
	}
	return func() (ident.EntryID, bool, error) {
		_, done, err := read.Done()
		if !done || err != nil {
			return ident.EntryID{}, done, err
		}
		id, err := barrier(d.r.loop.machine.Status(), led)
		return id, true, err
	}, nil
}

// Done reports whether the answer is there, and returns it, once: of a write as Replica.Write does; of
// a read in ID.Index, as Replica.ReadIndex does.
func (c *Call) Done() (res Result, done bool, err error) {
	if c.write == nil {
		select {
		case <-c.round.done:
			res.ID.Index = c.round.index
			return res, true, c.round.err
		default:
			return Result{}, false, nil
		}
	}
	select {
	case <-c.write.done:
		res, err = c.write.result, c.write.err
		c.r.recycle(c.write)
		return res, true, err
	default:
		return Result{}, false, nil
	}
}

// GiveUp is the end of the caller's patience with a call that is not Done: *NotProposedError or
// *UnknownOutcomeError.
func (c *Call) GiveUp() error {
	cause := errors.New("the caller gave up")
	if c.write != nil && c.r.queue.abandon(c.write) {
		return &NotProposedError{Cause: cause}
	}
	return &UnknownOutcomeError{Cause: cause}
}
