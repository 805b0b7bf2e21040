package consensus

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/ident"
)

// Options opens a Machine on what the boot sequence recovered.
type Options struct {
	ID  ident.MemberID // of this replica; required
	Log Log            // required; the machine reads it for as long as it lives

	// HardState is the log's. Its commit may be below Applied: frames that only move commit are not
	// synced, state may be durable ahead of them.
	HardState *pb.HardState

	// Applied and Conf are the state's position. The log must contain Applied, or begin right after it.
	Applied ident.EntryID
	Conf    *pb.ConfState // never without a voter

	// ElectionTicks is how long a follower waits for a leader, at least; 0 means 10. HeartbeatTicks
	// is the distance of a leader's heartbeats, below ElectionTicks; 0 means 1.
	ElectionTicks, HeartbeatTicks int

	// Nonce differs at every opening of a replica, within a process too (random, or a durable
	// counter). It keeps late answers to the reads of an earlier life from being taken for ours.
	Nonce uint64

	Limits Limits
	Logger *slog.Logger // raft's lines; nil means none
}

// Limits bounds memory and messages. 0 means the default.
type Limits struct {
	TailBytes        int    // entries kept in memory; 8 MiB
	MessageBytes     uint64 // entries in one append message, at least one entry; 1 MiB
	InflightMessages int    // append messages on the way to one follower; 256
	InflightBytes    uint64 // their bytes; 32 MiB
	UncommittedBytes uint64 // payload proposed and not yet applied; beyond it ErrDropped; 32 MiB
	ApplyBytes       uint64 // entries handed to the apply worker and not yet handed back; 4 MiB
}

// Log is the durable log. *wal.Log implements it. The append worker may be appending meanwhile.
type Log interface {
	// Entries returns [lo, hi), at least one, up to maxBytes; raft.ErrCompacted below FirstIndex.
	Entries(lo, hi, maxBytes uint64) ([]*pb.Entry, error)

	// Term returns the term of entry i in [FirstIndex()-1, LastIndex()]; raft.ErrCompacted below.
	Term(i uint64) (uint64, error)

	FirstIndex() uint64
	LastIndex() uint64
}

// withDefaults returns l with every 0 replaced.
func (l Limits) withDefaults() Limits {
	return Limits{
		TailBytes:        cmp.Or(l.TailBytes, 8<<20),
		MessageBytes:     cmp.Or(l.MessageBytes, 1<<20),
		InflightMessages: cmp.Or(l.InflightMessages, 256),
		InflightBytes:    cmp.Or(l.InflightBytes, 32<<20),
		UncommittedBytes: cmp.Or(l.UncommittedBytes, 32<<20),
		ApplyBytes:       cmp.Or(l.ApplyBytes, 4<<20),
	}
}

// Machine is not safe for concurrent use. Its owner is the consensus loop.
type Machine struct {
	id   uint64
	rn   *raft.RawNode
	tail *tail

	// hs is the whole HardState as in the newest frame handed out. Replaced, not changed.
	hs *pb.HardState

	role   Role
	commit uint64
	last   uint64 // index of the last entry raft has, durable or not

	// ownFrom is the first entry of the leader's own term. Until it is committed the leader does not
	// know how far its log is committed, and reads wait. Meaningless on a follower.
	ownFrom uint64

	frames, durable uint64 // frames handed out, and handed back

	// syncAt is the newest entry whose commit must reach the disk by itself, not with the next frame:
	// a change of the configuration, or an empty entry of raft. durableCommit is the commit index of
	// the newest frame that was synced.
	syncAt, durableCommit uint64

	// heard is the tick at which a member last answered this leader; ticks counts them. patience is an
	// election timeout.
	heard           map[uint64]uint64
	ticks, patience uint64

	// termFrame is the frame that first carried the present term; nil once it was handed back. What is
	// said in the term waits for it.
	termFrame *Append

	writes waiters
	reads  reads
	asks   asks

	// readPatience is how many ticks a read waits for its answer before it is asked again.
	readPatience int

	// lastResort: see Input.LastResort. quiet counts the ticks since a leader was heard, then.
	lastResort    bool
	quiet         int
	electionTicks int

	// lost is the leadership that Input.LostLead already gave up. Once each: a leader that is heard
	// of again lives.
	lost Role

	fx     Effects // of the current Step; slices are used again
	failed *FatalError
}

// New opens a machine. A *BootError says that log and state do not belong together: the replica is
// for quarantine.
func New(o Options) (m *Machine, err error) {
	o.ElectionTicks, o.HeartbeatTicks = cmp.Or(o.ElectionTicks, 10), cmp.Or(o.HeartbeatTicks, 1)
	limits := o.Limits.withDefaults()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	t, err := openTail(o, limits.TailBytes)
	if err != nil {
		return nil, err
	}
	defer func() {
		if v := recover(); v != nil { // raft has no other way to refuse what it is opened on
			m, err = nil, fmt.Errorf("open raft at applied index %d: %w", o.Applied.Index, cause(v))
		}
	}()
	rn, err := raft.NewRawNode(&raft.Config{
		ID:                        uint64(o.ID),
		ElectionTick:              o.ElectionTicks,
		HeartbeatTick:             o.HeartbeatTicks,
		Storage:                   t,
		Applied:                   o.Applied.Index,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             limits.MessageBytes,
		MaxCommittedSizePerReady:  limits.ApplyBytes,
		MaxUncommittedEntriesSize: limits.UncommittedBytes,
		MaxInflightMsgs:           limits.InflightMessages,
		MaxInflightBytes:          limits.InflightBytes,
		CheckQuorum:               true,
		PreVote:                   true,
		ReadOnlyOption:            raft.ReadOnlySafe,
		Logger:                    raftLogger{o.Logger},
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
	})
	if err != nil {
		return nil, fmt.Errorf("open raft at applied index %d: %w", o.Applied.Index, err)
	}
	return &Machine{
		id:           uint64(o.ID),
		rn:           rn,
		tail:         t,
		hs:           t.hs,
		role:         Role{Term: t.hs.GetTerm(), State: raft.StateFollower},
		commit:       t.hs.GetCommit(),
		last:         t.last(),
		reads:        reads{nonce: o.Nonce},
		readPatience: max(o.ElectionTicks/2, 1),

		syncAt:        t.last(),         // its entries were not looked at
		durableCommit: t.hs.GetCommit(), // what was opened is on the disk, and so is what state has applied
		heard:         map[uint64]uint64{},
		patience:      uint64(o.ElectionTicks),
		electionTicks: o.ElectionTicks,
	}, nil
}

// openTail checks that log and state belong together.
func openTail(o Options, maxBytes int) (*tail, error) {
	first, last := o.Log.FirstIndex(), o.Log.LastIndex()
	refuse := func(format string, v ...any) error {
		return &BootError{Applied: o.Applied, Commit: o.HardState.GetCommit(), First: first, Last: last,
			Detail: fmt.Sprintf(format, v...)}
	}
	switch {
	case len(o.Conf.GetVoters()) == 0:
		return nil, refuse("no voter in the configuration") // raft would elect itself in its own first change
	case o.Applied.Index+1 < first:
		return nil, refuse("entries between state and log are missing")
	case o.Applied.Index > last:
		return nil, refuse("log ends before what state has applied")
	case o.HardState.GetCommit() > last:
		return nil, refuse("log ends before what is committed")
	}
	t := &tail{log: o.Log, at: o.Applied, conf: o.Conf, confIndex: o.Applied.Index, first: last + 1, maxBytes: maxBytes}
	base, err := o.Log.Term(first - 1)
	if err != nil {
		return nil, fmt.Errorf("term before the first entry %d: %w", first, err)
	}
	t.base = ident.EntryID{Term: base, Index: first - 1}
	switch term, err := t.Term(o.Applied.Index); {
	case err != nil:
		return nil, fmt.Errorf("term of applied entry %d: %w", o.Applied.Index, err)
	case term != o.Applied.Term:
		return nil, refuse("the log has term %d at the applied index", term)
	}
	// Applied implies committed, and a commit below the log's first entry says less than the log.
	t.hs = &pb.HardState{
		Term:   proto.Uint64(o.HardState.GetTerm()),
		Vote:   proto.Uint64(o.HardState.GetVote()),
		Commit: proto.Uint64(max(o.HardState.GetCommit(), o.Applied.Index)),
	}
	if mutantCommitNotRaised {
		t.hs.Commit = proto.Uint64(o.HardState.GetCommit())
	}
	return t, nil
}

// Step is the only way in. The slices of what it returns are valid until the next Step.
func (m *Machine) Step(in Input) (fx Effects) {
	if m.failed != nil {
		return Effects{Fatal: m.failed}
	}
	m.resetEffects()
	before := FatalError{Term: m.role.Term, Commit: m.commit, Last: m.last}
	defer func() {
		if v := recover(); v != nil {
			before.Cause, before.Stack = cause(v), debug.Stack()
			m.failed = &before
			fx = Effects{Fatal: m.failed}
		}
	}()
	if err := m.step(in); err != nil {
		before.Cause = err
		m.failed = &before
		return Effects{Fatal: m.failed}
	}
	return m.fx
}

// cause makes an error of what was recovered.
func cause(v any) error {
	if err, ok := v.(error); ok {
		return err
	}
	return fmt.Errorf("%v", v)
}

func (m *Machine) resetEffects() {
	fx := &m.fx
	clear(fx.Append)
	clear(fx.Send)
	clear(fx.Apply)
	clear(fx.Answer)
	*fx = Effects{Append: fx.Append[:0], Send: fx.Send[:0], Apply: fx.Apply[:0], Answer: fx.Answer[:0], Stage: fx.Stage[:0]}
}

// step returns an error only when an assertion about this replica's own state failed.
func (m *Machine) step(in Input) error {
	var err error
	switch {
	case in.Tick:
		m.ticks++
		m.tick()
	case in.Receive != nil:
		err = m.receive(in.Receive)
	case in.Propose != nil:
		err = m.propose(in.Propose)
	case in.Appended != nil:
		err = m.appended(in.Appended)
	case in.Applied != nil:
		err = m.applied(in.Applied)
	case in.Read != 0 && mutantReadAtOnce && m.role.State == raft.StateLeader:
		m.answer(Answer{Token: in.Read, ID: ident.EntryID{Index: m.commit}})
	case in.Read != 0:
		m.reads.waiting = append(m.reads.waiting, in.Read)
	case in.Transfer != 0:
		if m.role.State == raft.StateLeader {
			m.rn.TransferLeader(uint64(in.Transfer))
		}
	case in.LostLead != 0:
		m.lostLead(in.LostLead)
	case in.LastResort:
		m.lastResort = true
	case in.Campaign:
		if m.role.Leader == 0 && !m.lastResort {
			_ = m.rn.Campaign() // with pre-vote; a learner's is refused by raft
		}
	case in.Known != nil:
		err = m.known(*in.Known)
	case in.SnapDone != nil:
		status := raft.SnapshotFailure
		if in.SnapDone.OK {
			status = raft.SnapshotFinish
		}
		m.rn.ReportSnapshot(uint64(in.SnapDone.Peer), status)
	case in.Compacted != 0:
		err = m.tail.compact(in.Compacted)
	}
	if err != nil {
		return err
	}
	for {
		for m.rn.HasReady() {
			if err := m.collect(m.rn.Ready()); err != nil {
				return err
			}
		}
		if !m.ask() {
			return nil
		}
	}
}

// lastResortTimeouts is how many election timeouts a replica of last resort waits for another leader.
// Whoever can lead has stood more than once by then.
const lastResortTimeouts = 3

// tick passes a tick on to raft. A replica of last resort is no candidate of raft's: its own clock runs in
// the place of raft's, and forgets a leader that is not heard, so that it votes for whoever stands.
func (m *Machine) tick() {
	defer m.reads.tick(m.readPatience)
	if !m.lastResort || m.role.State == raft.StateLeader {
		m.rn.Tick()
		return
	}
	m.quiet++
	switch past := m.quiet - lastResortTimeouts*m.electionTicks; {
	case m.quiet == m.electionTicks:
		if m.role.State == raft.StateFollower && m.role.Leader != 0 {
			_ = m.rn.ForgetLeader()
		}
	case past >= 0 && m.role.Leader == 0 && past%m.electionTicks == int(m.id)%m.electionTicks: // not all at once
		_ = m.rn.Campaign()
	}
}

// receive steps a peer's message, unless it must not reach raft.
func (m *Machine) receive(msg *pb.Message) error {
	refuse := func(detail string) {
		m.fx.Refused = &MessageError{From: ident.MemberID(msg.GetFrom()), Type: msg.GetType(), Detail: detail}
	}
	if detail := flaw(msg, m.id); detail != "" {
		refuse(detail)
		return nil
	}
	current := msg.GetTerm() >= m.role.Term // raft lets older terms do nothing
	if t := msg.GetType(); current && (t == pb.MsgApp || t == pb.MsgHeartbeat || t == pb.MsgSnap) {
		m.quiet = 0
	}
	switch msg.GetType() {
	case pb.MsgTimeoutNow:
		if m.lastResort {
			refuse("this replica leads only if nobody else does")
			return nil
		}
	case pb.MsgSnap:
		// Installing happens before a replica is opened. What is committed here already is only a
		// question of where this replica stands, and raft answers it.
		if md := msg.GetSnapshot().GetMetadata(); current && md.GetIndex() > m.commit {
			m.fx.Reseed = &Reseed{
				From: ident.MemberID(msg.GetFrom()),
				At:   ident.EntryID{Term: md.GetTerm(), Index: md.GetIndex()},
			}
			return nil
		}
	case pb.MsgHeartbeat:
		// A leader's heartbeat never commits more than this replica has acknowledged to it.
		if current && msg.GetCommit() > m.last {
			return &LostEntriesError{Leader: ident.MemberID(msg.GetFrom()), Last: m.last, Acknowledged: msg.GetCommit()}
		}
	case pb.MsgAppResp:
		leads := m.role.State == raft.StateLeader && m.role.Term == msg.GetTerm()
		if leads && !msg.GetReject() && msg.GetIndex() > m.last {
			refuse(fmt.Sprintf("acknowledges %d, the leader's log ends at %d", msg.GetIndex(), m.last))
			return nil
		}
		m.noteHeard(msg)
	case pb.MsgHeartbeatResp:
		m.noteHeard(msg)
	case pb.MsgReadIndex:
		switch {
		case m.role.State != raft.StateLeader:
			return nil // whoever asks follows a leader that was; it will ask again
		case m.commit < m.ownFrom:
			m.asks.hold(msg)
			return nil
		}
	}
	_ = m.rn.Step(msg) // its errors say that the message is not for this replica, or no longer
	return nil
}

// noteHeard takes note of a member that answers this leader.
func (m *Machine) noteHeard(msg *pb.Message) {
	if m.role.State == raft.StateLeader && m.role.Term == msg.GetTerm() {
		m.heard[msg.GetFrom()] = m.ticks
	}
}

// propose appends one entry. Its index is last+1, because this Step does nothing else.
func (m *Machine) propose(p *Proposal) error {
	e := &pb.Entry{Data: p.Data}
	if p.Conf != nil {
		typ, data, err := pb.MarshalConfChange(p.Conf)
		if err != nil {
			return fmt.Errorf("marshal a membership change: %w", err)
		}
		e = &pb.Entry{Type: typ.Enum(), Data: data}
	}
	id := ident.EntryID{Term: m.role.Term, Index: m.last + 1}
	ents := []*pb.Entry{e}
	err := m.rn.Step(&pb.Message{Type: pb.MsgProp.Enum(), From: proto.Uint64(m.id), Entries: ents})
	switch {
	case err != nil && m.role.State != raft.StateLeader:
		m.answer(Answer{Token: p.Token, Err: ErrNotLeader})
		return nil
	case err != nil:
		m.answer(Answer{Token: p.Token, Err: ErrDropped})
		return nil
	case ents[0] != e: // raft put an empty entry in the place of a change that has to wait
		m.answer(Answer{Token: p.Token, Err: ErrConfBusy})
	default:
		if mutantLeaderAcksEarly && p.Ack == AckLeader {
			m.answer(Answer{Token: p.Token, ID: id})
			break
		}
		m.writes.add(waiter{token: p.Token, id: id, ack: p.Ack})
	}
	if err := m.collect(m.rn.Ready()); err != nil {
		return err
	}
	if m.last != id.Index {
		return fmt.Errorf("proposed %s, the log ends at %d", id, m.last)
	}
	return nil
}

// appended lets out what waited for the disk.
func (m *Machine) appended(a *Append) error {
	if a.seq != m.durable+1 || a.seq > m.frames {
		return fmt.Errorf("frame %d of %d handed back after %d", a.seq, m.frames, m.durable)
	}
	m.durable = a.seq
	if a.sync {
		m.durableCommit = a.HardState.GetCommit()
	}
	if m.termFrame == a {
		m.termFrame = nil
	}
	if err := m.tail.append(a.Entries); err != nil {
		return err
	}
	// On a deposed leader AckLeader waits for the commit too: a frame that replaces these entries may
	// be in the log already, handed back next. A leader's own frames are replaced by nobody, and those
	// from before its election were handed back before its own vote.
	if m.role.State == raft.StateLeader {
		m.writes.durable(a.Entries, m.answer)
	}
	m.deliver(a.responses)
	return nil
}

// applied tells raft about a run that is in state, first its membership changes.
func (m *Machine) applied(a *Apply) error {
	if i := a.Entries[0].GetIndex(); i != m.tail.at.Index+1 {
		return fmt.Errorf("run from %d handed back after %d", i, m.tail.at.Index)
	}
	conf := a.Conf
	for _, e := range a.Entries {
		if e.GetType() == pb.EntryNormal {
			continue
		}
		if len(conf) == 0 {
			return fmt.Errorf("nothing reported of membership change %s", entryID(e))
		}
		c := conf[0]
		conf = conf[1:]
		if c.Refused {
			continue // raft is told nothing of a refused change
		}
		if got := m.rn.ApplyConfChange(c.Change); got.Equivalent(c.Want) != nil {
			return fmt.Errorf("membership after %s: raft has %s, state recorded %s",
				entryID(e), raft.DescribeConfState(got), raft.DescribeConfState(c.Want))
		}
	}
	if len(conf) > 0 {
		return fmt.Errorf("%d membership changes reported too many in the run from %d", len(conf), a.Entries[0].GetIndex())
	}
	m.tail.applied(a)
	last := m.tail.at.Index
	err := m.writes.applied(a.Entries, func() []ident.MemberID { return m.replicated(last) }, m.answer)
	if err != nil {
		return err
	}
	m.deliver([]*pb.Message{a.response})
	return nil
}

// replicated lists the other members whose durable log reaches index. Only a leader knows any.
func (m *Machine) replicated(index uint64) []ident.MemberID {
	if m.role.State != raft.StateLeader {
		return nil
	}
	var ids []ident.MemberID
	m.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) { // in order of id
		if id != m.id && (pr.Match >= index || mutantReplicatedSent && pr.Next > index) {
			ids = append(ids, ident.MemberID(id))
		}
	})
	return ids
}

// lostLead forgets a leader whose process is gone, so that this replica votes for whoever stands in its
// place. Who stands, and when, is the driver's: Input.Campaign.
func (m *Machine) lostLead(leader ident.MemberID) {
	if m.role.State != raft.StateFollower || m.role.Leader != leader || m.role == m.lost {
		return
	}
	m.lost = m.role
	_ = m.rn.ForgetLeader()
}

// known takes note, where nobody leads, that id is committed. A member that is removed may be the only one
// that knows so of its own removal, and have more of the log than those who stay: it does not stand any more,
// and they need its vote, which it must not give, for as long as they have not applied that. What is committed
// stays so, whoever says it. Raft takes it as a heartbeat of the present term, from nobody.
func (m *Machine) known(id ident.EntryID) error {
	if m.role.Leader != 0 || m.role.State == raft.StateLeader || id.Index <= m.commit || id.Index > m.last || mutantCommitNotPassedOn {
		return nil
	}
	switch term, err := m.tail.Term(id.Index); {
	case errors.Is(err, raft.ErrCompacted), errors.Is(err, raft.ErrUnavailable):
		return nil
	case err != nil:
		return fmt.Errorf("term of entry %d, which is committed: %w", id.Index, err)
	case term != id.Term:
		return nil // another leader's, which will be replaced
	}
	return m.rn.Step(&pb.Message{
		Type: pb.MsgHeartbeat.Enum(), Term: proto.Uint64(m.role.Term), To: proto.Uint64(m.id), Commit: proto.Uint64(id.Index),
	})
}

// ask sends the round of reads on its way, if there is one and it can be asked. It reports whether
// raft has something to say about that.
func (m *Machine) ask() bool {
	leads := m.role.State == raft.StateLeader
	if leads && m.commit < m.ownFrom || m.role.Leader == 0 {
		return false
	}
	asked := false
	if leads && len(m.asks) > 0 {
		for _, msg := range m.asks {
			_ = m.rn.Step(msg)
		}
		m.asks, asked = nil, true
	}
	if m.reads.begin() {
		m.rn.ReadIndex(m.reads.request())
		asked = true
	}
	return asked
}

// collect turns one Ready into effects.
func (m *Machine) collect(rd raft.Ready) error {
	if n := len(rd.Entries); n > 0 {
		m.last = rd.Entries[n-1].GetIndex()
		m.noteSyncAt(rd.Entries)
	}
	if err := m.noteRole(rd); err != nil {
		return err
	}
	for _, msg := range rd.Messages { // first what the rest may have to wait for
		if msg.GetTo() == raft.LocalAppendThread {
			if err := m.frame(msg); err != nil {
				return err
			}
		}
	}
	for _, msg := range rd.Messages {
		switch msg.GetTo() {
		case raft.LocalAppendThread, raft.None: // None: what known had raft answer
		case raft.LocalApplyThread:
			m.fx.Apply = append(m.fx.Apply, &Apply{Entries: msg.GetEntries(), response: msg.GetResponses()[0]})
		default:
			if msg.GetType() == pb.MsgSnap {
				m.fx.Stage = append(m.fx.Stage, ident.MemberID(msg.GetTo()))
			}
			m.speak(msg)
		}
	}
	for _, rs := range rd.ReadStates {
		m.reads.answered(rs.RequestCtx, rs.Index, m.answer)
	}
	return nil
}

// noteSyncAt takes note of entries whose commit must become durable by itself. A change of the
// configuration is over only when the voters cannot forget that it was committed; and on a log without
// writes nothing else would tell the disk.
func (m *Machine) noteSyncAt(ents []*pb.Entry) {
	for _, e := range ents {
		if e.GetType() != pb.EntryNormal || len(e.GetData()) == 0 {
			m.syncAt = e.GetIndex()
		}
	}
}

// frame makes a frame for the log of what raft asks to append.
func (m *Machine) frame(msg *pb.Message) error {
	if msg.GetSnapshot() != nil {
		return errors.New("raft wants to install a snapshot")
	}
	was := m.hs
	if msg.Term != nil { // present, not merely above 0: without it the getters say 0
		m.hs = &pb.HardState{Term: msg.Term, Vote: msg.Vote, Commit: msg.Commit}
	}
	m.frames++
	a := &Append{
		HardState: m.hs, Entries: msg.GetEntries(), responses: msg.GetResponses(), seq: m.frames,
		sync: raft.MustSync(m.hs, was, len(msg.GetEntries())) || was.GetCommit() < m.syncAt && m.syncAt <= m.hs.GetCommit(),
	}
	if m.hs.GetTerm() != was.GetTerm() {
		m.termFrame = a
	}
	m.fx.Append = append(m.fx.Append, a)
	if mutantSpeakEarly {
		for _, r := range msg.GetResponses() {
			if r.GetTo() != m.id {
				m.fx.Send = append(m.fx.Send, r)
			}
		}
	}
	return nil
}

// speak sends msg, once the term that it is of is durable. raft lets a candidate ask for votes, and a
// leader whom the others elected meanwhile send entries, before its own term and vote are on its disk:
// after a power loss it would stand in the same term again, be elected again, and put other entries in
// the place of those. Pre-votes promise nothing, nor does a question for a read index, which has no term.
func (m *Machine) speak(msg *pb.Message) {
	waits := m.termFrame != nil && !mutantSpeakEarly
	switch msg.GetType() {
	case pb.MsgPreVote, pb.MsgPreVoteResp, pb.MsgReadIndex:
		waits = false
	}
	if waits {
		m.termFrame.responses = append(m.termFrame.responses, msg)
	} else {
		m.fx.Send = append(m.fx.Send, msg)
	}
}

// noteRole keeps role, commit and ownFrom current.
func (m *Machine) noteRole(rd raft.Ready) error {
	r := m.role
	if rd.SoftState != nil {
		r.Leader, r.State = ident.MemberID(rd.SoftState.Lead), rd.SoftState.RaftState
	}
	if !raft.IsEmptyHardState(rd.HardState) {
		r.Term, m.commit = rd.HardState.GetTerm(), rd.HardState.GetCommit()
	}
	if r == m.role {
		return nil
	}
	if r.State == raft.StateLeader {
		// A leader begins with an empty entry of its term, in the same Ready.
		n := len(rd.Entries)
		if n == 0 || rd.Entries[n-1].GetTerm() != r.Term || len(rd.Entries[n-1].GetData()) > 0 {
			return fmt.Errorf("leader of term %d without an entry of its own", r.Term)
		}
		m.ownFrom = m.last
	}
	if r.Term != m.role.Term || r.State != m.role.State {
		clear(m.heard)
	}
	m.role, m.asks = r, nil
	m.fx.Role = &r
	m.reads.due = true
	return nil
}

// deliver hands on what waited: to peers, or back to raft.
func (m *Machine) deliver(msgs []*pb.Message) {
	for _, msg := range msgs {
		if msg.GetTo() == m.id {
			_ = m.rn.Step(msg) // refused only when this replica was removed meanwhile
		} else {
			m.fx.Send = append(m.fx.Send, msg)
		}
	}
}

func (m *Machine) answer(a Answer) { m.fx.Answer = append(m.fx.Answer, a) }
