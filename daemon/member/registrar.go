package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/tidaldb/tidal/daemon/apply"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/replica"
)

const (
	// registrarEvery is how often a registrar looks at what it owes, at least: registrarBusy while something
	// is under way.
	registrarEvery = time.Second
	registrarBusy  = 200 * time.Millisecond
	// maxVerbs is how many verbs may wait for their turn.
	maxVerbs = 64
	// sizeEvery is how often the log behind a learner is measured.
	sizeEvery = time.Second
)

// registrar appends the rosters of a cluster, one after the other, while this member leads group 0: it
// builds a record when its turn comes, from the roster that is applied then, and does not begin the next
// before it knows what became of it.
//
//	a verb, or a duty → decided by package membership → proposed → applied → settled → answered
//
// One goroutine, or the simulator, turns it; ask, view and poke may be called from anywhere.
type registrar struct {
	m    *Member
	wake chan struct{} // capacity 1

	mu struct {
		sync.Mutex
		waiting  []*Verb // oldest first, at most maxVerbs
		approved map[string]time.Time
		known    *membership.View // newest; nil: this member does not lead
	}

	// The rest belongs to whoever turns.

	term    uint64 // that this member leads; 0: none
	led     time.Time
	flight  *flight // nil: no record is under way
	settles []*Verb // applied, and not settled
	seen    map[ident.MemberID]sighting
	cached  uint64            // version of the roster on disk, as far as this process wrote it
	shown   map[string]uint64 // what the metric says of learners, by name
}

// flight is a record that was proposed.
type flight struct {
	change *replica.Change
	record membership.Record
	verb   *Verb // nil: it was a duty
	began  time.Time
	index  uint64
	landed bool // applied at index; the configuration that it makes is not in force yet
}

// sighting is what a leader has seen of a member over time.
type sighting struct {
	since  time.Time
	pace   membership.Pace
	bytes  uint64
	sized  time.Time
	active time.Time // the last time that its replica was known to answer
}

func newRegistrar(m *Member) *registrar {
	r := &registrar{m: m, wake: make(chan struct{}, 1), seen: map[ident.MemberID]sighting{}}
	r.mu.approved = map[string]time.Time{}
	return r
}

// run turns the registrar until ctx ends.
func (r *registrar) run(ctx context.Context) {
	pulse := r.m.beat.Every(registrarEvery)
	defer pulse.Stop()
	for {
		var landed <-chan struct{}
		if r.flight != nil && !r.flight.landed {
			landed = r.flight.change.Done()
		}
		select {
		case <-ctx.Done():
			r.lose(&replica.UnknownOutcomeError{Cause: replica.ErrClosed}, replica.ErrClosed)
			return
		case <-landed:
			r.land()
		case <-pulse.C:
			pulse.Took()
		case <-r.wake:
		}
		r.turn()
		pulse.Every(r.pace())
	}
}

// pace is how soon the registrar looks again if nobody pokes it.
func (r *registrar) pace() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	led := r.mu.known
	if r.flight != nil || len(r.mu.waiting) > 0 || led != nil && (led.Busy() != nil || len(led.Behind()) > 0) {
		return registrarBusy
	}
	return registrarEvery
}

// poke has the registrar turn soon. It does not block.
func (r *registrar) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// ask queues a verb, or says why not.
func (r *registrar) ask(v *Verb) (*Verb, error) {
	v.done = make(chan struct{})
	g := r.m.sound(0)
	if g == nil {
		_, err := r.m.Replica(0)
		return nil, err
	}
	if s := g.replica.Status(); s.State != raft.StateLeader {
		return nil, notLeader(s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.mu.waiting) >= maxVerbs {
		return nil, &replica.OverloadedError{Queue: "membership", RetryAfter: time.Second}
	}
	r.mu.waiting = append(r.mu.waiting, v)
	r.poke()
	return v, nil
}

// await returns when v is over: nil, or why it did not come to that.
func (r *registrar) await(ctx context.Context, v *Verb) error {
	select {
	case <-v.done:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	i := slices.Index(r.mu.waiting, v)
	if i >= 0 {
		r.mu.waiting = slices.Delete(r.mu.waiting, i, i+1)
	}
	r.mu.Unlock()
	if i >= 0 {
		return &replica.NotProposedError{Cause: context.Cause(ctx)}
	}
	return &replica.UnknownOutcomeError{Cause: context.Cause(ctx)}
}

func (r *registrar) length() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.waiting)
}

func (r *registrar) approve(name string, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.approved[name] = until
}

// disapprove ends what approve began: somebody has taken the place.
func (r *registrar) disapprove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.approved, name)
}

// view returns what the leader decides by, as it last was; false where this member does not lead.
func (r *registrar) view() (membership.View, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.known == nil {
		return membership.View{}, false
	}
	return *r.mu.known, true
}

// turn does what can be done now.
func (r *registrar) turn() {
	r.m.carryOutFarewell()
	r.cacheRoster()
	g := r.m.sound(0)
	if g == nil {
		r.lose(&replica.UnknownOutcomeError{Cause: replica.ErrClosed}, replica.ErrClosed)
		return
	}
	s := g.replica.Status()
	switch lost := (&replica.UnknownOutcomeError{Cause: notLeader(s)}); {
	case s.State != raft.StateLeader:
		r.lose(lost, notLeader(s))
		return
	case s.Term != r.term:
		r.lose(lost, nil) // what waits may have been asked of this very leader
		r.term, r.led = s.Term, r.m.opts.Now()
	}
	if r.flight != nil && !r.flight.landed {
		select {
		case <-r.flight.change.Done():
			r.land()
		default:
		}
	}
	v, ok := r.look(g, s)
	if !ok {
		return // the roster of an entry is applied, and its configuration not in force
	}
	if r.flight != nil && (!r.flight.landed || s.ConfAsOf < r.flight.index) {
		if v.Now.Sub(r.flight.began) > r.m.patience() {
			r.refuse(&membership.ChangeInProgressError{Waits: "waits to be committed: " + r.flight.String()})
		}
		return
	}
	r.flight = nil
	r.settle(v)
	r.tell(v)
	if s.ConfAsOf >= s.OwnFirst && s.Transferee == 0 {
		r.next(g, v)
	}
}

// lose ends everything that a leader had under way: flight is what is said of a record that was proposed,
// waiting of a verb that was not; nil: it goes on waiting.
func (r *registrar) lose(flight, waiting error) {
	if r.flight != nil && r.flight.verb != nil {
		r.flight.verb.finish(flight)
	}
	for _, v := range r.settles {
		v.finish(flight)
	}
	r.term, r.flight, r.settles = 0, nil, nil
	clear(r.seen)
	r.showPending(nil)
	r.mu.Lock()
	var lost []*Verb
	if waiting != nil {
		lost, r.mu.waiting = r.mu.waiting, nil
	}
	r.mu.known = nil
	clear(r.mu.approved)
	r.mu.Unlock()
	for _, v := range lost {
		v.finish(waiting)
	}
}

// land takes the outcome of the record under way. REQUIRES: its Done has delivered.
func (r *registrar) land() {
	f := r.flight
	id, err := f.change.Result()
	refused, isRefused := errors.AsType[*replica.ChangeRefusedError](err)
	overloaded, isOverloaded := errors.AsType[*replica.OverloadedError](err)
	switch {
	case err == nil:
		f.index, f.landed = id.Index, true
		if f.verb != nil {
			f.verb.change.Index = id.Index
			r.settles = append(r.settles, f.verb)
			r.disapprove(f.verb.change.Member.Name)
		}
		if f.record.Features != 0 {
			r.m.opts.Journal.Add(journal.FeatureActivated{Capabilities: f.record.Features.Names(), Index: id.Index})
		}
		r.m.log.Info("roster changed", slog.String("reason", f.record.Does), slog.Uint64("version", f.record.Roster.Version), slog.Uint64("index", id.Index))
		return
	case isRefused: // committed, and not the successor of what was in force: build it anew
		r.m.metrics.refusedRosters.Inc()
		r.m.log.Warn("roster refused", slog.String("reason", f.record.Does), slog.Any("err", refused))
	case isOverloaded, errors.Is(err, replica.ErrChangeInProgress): // not proposed: later
		r.m.log.Debug("roster not proposed", slog.String("reason", f.record.Does), slog.Any("err", err), slog.Any("took", overloaded))
	default:
		r.flight = nil
		if f.verb != nil {
			f.verb.finish(err)
		}
		return
	}
	r.flight = nil
	if f.verb == nil {
		return
	}
	if errors.Is(err, replica.ErrChangeInProgress) && !f.verb.patient {
		f.verb.finish(&membership.ChangeInProgressError{Waits: "is not applied yet"})
		return
	}
	r.mu.Lock()
	r.mu.waiting = slices.Insert(r.mu.waiting, 0, f.verb)
	r.mu.Unlock()
}

// settle ends the verbs whose change is settled.
func (r *registrar) settle(v membership.View) {
	if len(r.settles) == 0 || v.Busy() != nil {
		return
	}
	for _, x := range r.settles {
		r.finish(x, v, true)
	}
	r.settles = nil
}

// finish ends a verb that did what it should.
func (r *registrar) finish(x *Verb, v membership.View, settled bool) {
	x.change.Roster, x.change.Settled = v.Roster, settled
	if now, ok := v.Roster.Member(x.change.Member.ID); ok {
		x.change.Member = now
	}
	leader, _ := v.Roster.Member(v.Self)
	x.admit = Admission{
		ID: x.change.Member.ID, Cluster: r.m.identity().Cluster, Role: x.change.Member.Role,
		Term: r.term, Index: x.change.Index, Roster: v.Roster, Leader: leader,
	}
	x.finish(nil)
}

// next begins the next record: that of a verb before what the leader owes by itself.
func (r *registrar) next(g *group, v membership.View) {
	for r.flight == nil {
		x, record := r.nextVerb(g, v)
		if x == nil {
			if record = v.Duty(); record.Empty() {
				r.handOverToPromote(g, v)
				return
			}
		}
		if !r.propose(g, v, x, record) {
			return
		}
	}
}

// nextVerb returns the first verb that has a record to append now. Those that have none are ended, or go
// on waiting.
func (r *registrar) nextVerb(g *group, v membership.View) (*Verb, membership.Record) {
	r.mu.Lock()
	waiting := slices.Clone(r.mu.waiting)
	r.mu.Unlock()
	for _, x := range waiting {
		record, stays, err := r.decide(g, v, x)
		if stays {
			continue
		}
		r.mu.Lock()
		i := slices.Index(r.mu.waiting, x)
		if i >= 0 {
			r.mu.waiting = slices.Delete(r.mu.waiting, i, i+1)
		}
		r.mu.Unlock()
		switch {
		case i < 0: // its caller has given up
		case err != nil:
			x.finish(err)
		case record.Empty():
			r.finish(x, v, v.Busy() == nil)
		default:
			return x, record
		}
	}
	return nil, membership.Record{}
}

// decide asks a verb what it wants now. stays: it goes on waiting.
func (r *registrar) decide(g *group, v membership.View, x *Verb) (record membership.Record, stays bool, err error) {
	x.change = Change{}
	record, err = x.decide(v, &x.change)
	_, busy := errors.AsType[*membership.ChangeInProgressError](err)
	switch {
	case errors.Is(err, errMustHandOver):
		return membership.Record{}, r.handOver(g, x, v), ErrHandOver
	case busy && x.patient:
		return membership.Record{}, true, nil
	case errors.Is(err, errDryRun), errors.Is(err, errNothingToSettle):
		return membership.Record{}, false, nil
	case err == nil && record.Empty() && v.Busy() != nil: // it is done, and not settled
		return membership.Record{}, true, nil
	}
	return record, false, err
}

// refuse ends the verbs that do not wait for another change.
func (r *registrar) refuse(err error) {
	r.mu.Lock()
	var refused []*Verb
	r.mu.waiting = slices.DeleteFunc(r.mu.waiting, func(x *Verb) bool {
		if !x.patient {
			refused = append(refused, x)
		}
		return !x.patient
	})
	r.mu.Unlock()
	for _, x := range refused {
		x.finish(err)
	}
}

// handOver moves the leadership away for the sake of x, and reports whether there is hope. Once it has
// moved, x is told who leads.
func (r *registrar) handOver(g *group, x *Verb, v membership.View) bool {
	if !x.handOver.IsZero() {
		return v.Now.Sub(x.handOver) < 2*time.Duration(r.m.opts.ElectionTicks)*r.m.opts.Tick
	}
	x.handOver = v.Now
	heirs := heirs(g.replica.Status())
	if len(heirs) == 0 {
		return false
	}
	g.replica.Transfer(heirs[0])
	return true
}

// handOverToPromote moves the leadership away when a learner waits for the place of this member.
func (r *registrar) handOverToPromote(g *group, v membership.View) {
	for _, x := range v.Roster.Members {
		if x.Role != membership.RoleLearner || !v.HandOverFirst(x) {
			continue
		}
		if _, pending := v.Pending(x); pending {
			continue
		}
		if heirs := heirs(g.replica.Status()); len(heirs) > 0 {
			g.replica.Transfer(heirs[0])
			return
		}
	}
}

// propose puts a record on its way, for x if it is not nil, and reports whether it did.
func (r *registrar) propose(g *group, v membership.View, x *Verb, record membership.Record) bool {
	var payload []byte
	conf := record.Conf
	switch {
	case record.Features != 0:
		payload = command.EncodeFeature(record.Features)
	case conf == nil:
		payload = command.EncodeRoster(record.Roster)
	default:
		conf.Context = record.Roster.Encode()
	}
	c, err := g.replica.BeginPropose(payload, conf)
	if err != nil {
		if x != nil {
			x.finish(err)
		}
		r.m.log.Warn("roster not proposed", slog.String("reason", record.Does), slog.Any("err", err))
		return false
	}
	r.flight = &flight{change: c, record: record, verb: x, began: v.Now}
	return true
}

// look gathers what the leader decides by. It is false for as long as roster and configuration are not of
// one moment: the apply worker has changed the first, the loop has still to learn the second.
func (r *registrar) look(g *group, s replica.Status) (membership.View, bool) {
	m := r.m
	now := m.opts.Now()
	m.mu.RLock()
	self, roster, rosterAt := m.mu.identity.ID, m.mu.roster, m.mu.rosterAt
	m.mu.RUnlock()
	if rosterAt > s.ConfAsOf {
		return membership.View{}, false
	}
	state := g.replica.View()
	features, err := apply.Features(state)
	if err = errors.Join(err, state.Close()); err != nil {
		return membership.View{}, false // the replica is closing, or about to fail
	}
	v := membership.View{
		Now: now, Self: self, Led: r.led, Roster: roster, Conf: s.Conf, ConfIndex: s.ConfIndex, Last: s.Last, Activated: features, Eager: ident.Eager,
		Seen: m.contacts.seen(), Notices: m.contacts.notices(), Approved: r.approvals(now), Policy: m.policy,
	}
	own := v.Seen[self]
	own.Active, own.Heard, own.Match, own.Applied, own.Committed = true, now, s.Durable, s.ConfAsOf, s.DurableCommit
	said := m.said()
	own.Said = &said
	v.Seen[self] = own
	for _, p := range s.Progress {
		v.Seen[p.ID] = r.sight(g, now, s.Last, v.Seen[p.ID], p.ID, p.Match, p.Active, p.State == tracker.StateSnapshot, p.Learner)
	}
	for id := range r.seen {
		if _, ok := roster.Member(id); !ok {
			delete(r.seen, id)
		}
	}
	r.mu.Lock()
	r.mu.known = &v
	r.mu.Unlock()
	r.showPending(v.Behind())
	return v, true
}

// sight brings what is seen of a member up to date.
func (r *registrar) sight(g *group, now time.Time, last uint64, is membership.Seen, id ident.MemberID, match uint64, active, installing, learner bool) membership.Seen {
	was := r.seen[id]
	if was.since.IsZero() {
		was.since = now
	}
	if active {
		was.active = now
	}
	if learner {
		was.pace = was.pace.Observe(now, match, last, r.m.policy.Round)
		if now.Sub(was.sized) >= sizeEvery {
			was.bytes, was.sized = uint64(g.log.BytesAfter(match)), now
		}
	}
	r.seen[id] = was
	is.Active, is.Since, is.Match, is.Installing, is.Pace, is.Bytes = active, was.since, match, installing, was.pace, was.bytes
	if was.active.After(is.Heard) {
		is.Heard = was.active
	}
	is.Fetching = g.stager.Serves(id)
	is.Unverified = r.m.unverified(id)
	return is
}

// showPending has the metric say how many entries each learner is behind.
func (r *registrar) showPending(behind map[string]uint64) {
	gauge := r.m.metrics.pending
	for name := range r.shown {
		if _, still := behind[name]; !still {
			gauge.DeleteLabelValues(name)
		}
	}
	for name, lag := range behind {
		gauge.WithLabelValues(name).Set(float64(lag))
	}
	r.shown = behind
}

// approvals are the names that an operator wants replaced, as far as that still counts.
func (r *registrar) approvals(now time.Time) map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]bool{}
	for name, until := range r.mu.approved {
		if now.Before(until) {
			all[name] = true
		}
	}
	return all
}

// String names what is under way, for messages.
func (f *flight) String() string {
	return fmt.Sprintf("%s, roster %d", f.record.Does, f.record.Roster.Version)
}
