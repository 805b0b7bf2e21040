// Package ops has one method for every verb of the cluster: its preconditions, what it does, its
// result. It knows no HTTP; httpd decodes requests into these calls and encodes what they return.
//
// What it promises: no method outlives its deadline; a write's error says whether anything happened;
// a read says which applied index it reflects; the status of the cluster has a row for every member
// of the roster whether or not it answers, and is merged by one pure function (aggregate).
//
// Callers: httpd, daemon (wiring). It reaches the engine through the interfaces below, which
// *member.Member and *replica.Replica implement, and other members through Asker.
package ops

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/journal"
	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/outbox"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/replica"
	"github.com/tidaldb/tidal/daemon/state"
)

// surface is the group that holds the replicated surface and the roster.
const surface ident.GroupID = 0

// Member is this member. *member.Member implements it.
type Member interface {
	Status() member.Status         // never blocks
	Roster() membership.Roster     // zero before birth
	Declared() []membership.Member // the topology file: names and addresses, no ids
	Membership
}

// Replica is one open replica. *replica.Replica implements it.
type Replica interface {
	Begin(write []byte, ack consensus.Ack) (wait func(context.Context) (replica.Result, error), err error)
	ReadIndex(ctx context.Context) (uint64, error)
	WaitApplied(ctx context.Context, index uint64) error
	View() *state.View
	Status() replica.Status // never blocks
	// TransferLeader hands leadership over and says what became of it.
	TransferLeader(ctx context.Context, to ident.MemberID) (replica.Handover, error)
	Campaign() // never blocks
}

// Data looks after the data of this member's replicas. *member.Member implements it.
type Data interface {
	// Reseed has a replica installed again from another member, from if it is not 0. It does not wait.
	Reseed(g ident.GroupID, from ident.MemberID) error
	// ClearKept removes the replaced data that quarantines kept, and returns what it was.
	ClearKept(g ident.GroupID) ([]datadir.Kept, error)
	// Check has the members compare their states, and returns the index at which they do. It runs on the
	// leader.
	Check(ctx context.Context, g ident.GroupID, trusted ident.MemberID) (uint64, error)
	// Verdict is how the state of a member stands, as this one knows.
	Verdict(g ident.GroupID, id ident.MemberID) (member.DigestStatus, bool)
}

// Asker asks the member that listens for HTTP at addr for its own view of itself.
type Asker interface {
	LocalStatus(ctx context.Context, addr string) (api.LocalStatus, error)
}

// Options configures New. A duration of 0 means its default.
type Options struct {
	Member Member // required
	// Replica returns the open replica of a group: (*member.Member).Replica behind an interface.
	// Required.
	Replica func(ident.GroupID) (Replica, error)
	Asker   Asker // required
	// Recoverer goes on where a majority was lost: this member. nil: it never does.
	Recoverer Recoverer
	Data      Data // nil: ErrStopping answers what needs it
	// Disk says what of a group's directory is lost, of a group that runs; a nil error, or nil: nothing.
	Disk func(ident.GroupID) error
	// Teller asks other members for their part of why and history; nil: nobody is asked.
	Teller Teller
	// Outbox returns where writes go that wait for no leader; nil, or what it returns is nil: there is none.
	Outbox   func() *outbox.Box
	Exchange Exchanger // required with Outbox
	// Heard is when each other member was last heard from, by wall time; nil: nobody ever was.
	Heard func() map[ident.MemberID]time.Time
	// Journal is what this member sees happen; nil: nothing ever.
	Journal *journal.Journal
	// Memory keeps operations over a restart; nil: they are forgotten.
	Memory Memory
	// Problem words an error as the surface does, by which it is known whether anything may have happened.
	// nil: an error that is no *api.Problem says that nothing did.
	Problem func(error) *api.Problem

	// Faults is this member's fault table; nil: there are no drills. MaxFault is how long a fault may
	// last, 15 min. Crew is needed where there are other members that may have faults.
	Faults   *peer.Faults
	MaxFault time.Duration
	Crew     Crew

	// QuorumTimeout is how long a write may wait for its majority and a read for its index. 3 s.
	QuorumTimeout time.Duration
	// StatusTimeout is how long Status waits for the other members, all at once. 500 ms.
	StatusTimeout time.Duration
	// FanOut is how long a verb waits for the other members to confirm what it did. 2 s.
	FanOut time.Duration
	// JoinWait is how long a candidate waits for its roster to be applied. 4 s.
	JoinWait time.Duration
	// MaxDrift is how far ahead of this member's clock the time of a signal may be. 500 ms.
	MaxDrift time.Duration

	Now    func() time.Time // wall time, where it becomes data; nil: time.Now
	Logger *slog.Logger     // nil: silent
}

func (o Options) withDefaults() (Options, error) {
	if o.Member == nil || o.Replica == nil || o.Asker == nil {
		return o, errors.New("ops: Member, Replica and Asker are required")
	}
	if o.Outbox != nil && o.Exchange == nil {
		return o, errors.New("ops: Exchange is required with Outbox")
	}
	if o.Problem == nil {
		o.Problem = inWords
	}
	if o.QuorumTimeout == 0 {
		o.QuorumTimeout = 3 * time.Second
	}
	if o.StatusTimeout == 0 {
		o.StatusTimeout = 500 * time.Millisecond
	}
	if o.FanOut == 0 {
		o.FanOut = 2 * time.Second
	}
	if o.MaxFault == 0 {
		o.MaxFault = 15 * time.Minute
	}
	if o.JoinWait == 0 {
		o.JoinWait = 4 * time.Second
	}
	if o.MaxDrift == 0 {
		o.MaxDrift = 500 * time.Millisecond
	}
	if o.Recoverer == nil {
		o.Recoverer = neverRecovers{}
	}
	if o.Journal == nil {
		o.Journal = journal.New(journal.Options{})
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Ops carries out the verbs on one member. It is safe for concurrent use. Its owner closes it.
type Ops struct {
	opts Options
	name string // of this member, for ever

	operations *operations

	// cluster is nil until the cluster is known to be born.
	cluster atomic.Pointer[ident.ClusterID]
}

// New makes the verbs of a member.
func New(opts Options) (*Ops, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	o := &Ops{opts: opts, name: opts.Member.Status().Name}
	o.operations = newOperations(api.OperationsKept, opts.Now, &keeper{memory: opts.Memory, word: opts.Problem, log: opts.Logger})
	o.remember()
	return o, nil
}

// Position says who answers and what its state reflects.
type Position struct {
	Member  string
	Term    uint64 // 0 before birth, or where the replica is closed
	Applied uint64
}

// Position returns where this member stands.
func (o *Ops) Position() Position {
	p := Position{Member: o.name}
	if r, err := o.opts.Replica(surface); err == nil {
		s := r.Status()
		p.Term, p.Applied = s.Term, s.Applied
	}
	return p
}

// Leader is who takes writes, as this member knows it.
type Leader struct {
	ID       ident.MemberID // 0: nobody is known to lead
	Term     uint64
	Self     bool
	Name     string // empty while the roster does not know the id
	HTTPAddr string
}

// Leader returns who takes writes, or why this member cannot know: its cluster is not born, or its
// replica is closed.
func (o *Ops) Leader() (Leader, error) {
	r, err := o.opts.Replica(surface)
	if err != nil {
		return Leader{}, err
	}
	s := r.Status()
	l := Leader{ID: s.Leader, Term: s.Term, Self: isLeader(s)}
	if l.ID == 0 || l.Self {
		return l, nil
	}
	if m, ok := o.opts.Member.Roster().Member(l.ID); ok {
		l.Name, l.HTTPAddr = m.Name, o.httpAddr(m)
	}
	return l, nil
}

// Find returns where the member called name is asked over HTTP, and whether it is this one. The error is
// a *NotFoundError.
func (o *Ops) Find(name string) (addr string, self bool, err error) {
	m, ok := o.opts.Member.Roster().Named(name)
	if !ok {
		return "", false, &NotFoundError{What: "member", Name: name}
	}
	return o.httpAddr(m), m.Name == o.name, nil
}

// Cluster returns the id of the cluster this member belongs to; zero before birth.
func (o *Ops) Cluster() ident.ClusterID {
	if c := o.cluster.Load(); c != nil {
		return *c
	}
	c := o.opts.Member.Status().Cluster
	if !c.IsZero() { // from now on for ever
		o.cluster.Store(&c)
	}
	return c
}

// httpAddr is where m is asked. A declared member is where the topology file says, as for peers:
// the file is how an operator moves a cluster to other addresses.
func (o *Ops) httpAddr(m membership.Member) string {
	for _, d := range o.opts.Member.Declared() {
		if d.Name == m.Name {
			return d.HTTPAddr
		}
	}
	return m.HTTPAddr
}
