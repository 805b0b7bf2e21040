package consensus_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"

	"github.com/cockroachdb/datadriven"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/confchange"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
)

// memLog is a log in memory; what was written to it stays.
type memLog struct {
	base ident.EntryID
	ents []*pb.Entry
	hs   *pb.HardState
}

func (l *memLog) write(a *consensus.Append) {
	l.hs = a.HardState
	if len(a.Entries) > 0 {
		keep := a.Entries[0].GetIndex() - l.base.Index - 1
		l.ents = append(l.ents[:keep:keep], a.Entries...)
	}
}

func (l *memLog) drop(upTo uint64) {
	term, _ := l.Term(upTo)
	l.ents = l.ents[upTo-l.base.Index:]
	l.base = ident.EntryID{Term: term, Index: upTo}
}

func (l *memLog) FirstIndex() uint64 { return l.base.Index + 1 }
func (l *memLog) LastIndex() uint64  { return l.base.Index + uint64(len(l.ents)) }

func (l *memLog) Term(i uint64) (uint64, error) {
	switch {
	case i < l.base.Index:
		return 0, raft.ErrCompacted
	case i == l.base.Index:
		return l.base.Term, nil
	case i > l.LastIndex():
		return 0, raft.ErrUnavailable
	}
	return l.ents[i-l.base.Index-1].GetTerm(), nil
}

func (l *memLog) Entries(lo, hi, maxBytes uint64) ([]*pb.Entry, error) {
	if lo <= l.base.Index {
		return nil, raft.ErrCompacted
	}
	ents := l.ents[lo-l.base.Index-1 : hi-l.base.Index-1]
	size := uint64(0)
	for i, e := range ents {
		if size += uint64(proto.Size(e)); i > 0 && size > maxBytes {
			return slices.Clone(ents[:i]), nil
		}
	}
	return slices.Clone(ents), nil
}

// node is a machine whose workers do nothing until the script says so.
type node struct {
	id      uint64
	machine *consensus.Machine
	log     *memLog
	applied ident.EntryID
	conf    *pb.ConfState
	role    consensus.Role
	appends []*consensus.Append
	applies []*consensus.Apply
}

// script is the world of one test file.
type script struct {
	t     *testing.T
	nodes map[uint64]*node
	net   []*pb.Message // in the order sent
	out   strings.Builder
	quiet bool // print only answers and what else concerns the driver
}

// The commands. Every one prints the effects of its Steps, except settle and elect, which print only
// answers, roles and what else concerns a driver.
//
//	open id=1 voters=(1,2,3) [learners=(4)] [nonce=N]    a fresh member: log and state at 1/1
//	crash id=1                                           frames that were not appended are lost
//	restart id=1 [nonce=N] [behind]                      behind: state and commit as at birth
//	tick id=1 [n=10]
//	elect id=1                                           tick 1 until it leads, everybody else helping
//	propose id=1 token=5 [data=x] [ack=leader]
//	conf id=1 token=5 (voter|learner|remove)=4
//	read id=1 token=5 · transfer id=1 to=2 · lost-lead id=1 leader=2
//	campaign id=1 · last-resort id=1 · known id=1 term=2 index=9
//	append id=1 [n=1] [twice]                            the append worker: all frames, or n; twice: hands each back twice
//	apply id=1 [refuse] [lie]                            the apply worker; lie: reports another configuration
//	deliver from=1 to=2 · drop from=1 to=2 · late from=1 to=2    late: keeps them for the end
//	settle [cut=(1)]                                     everything until nothing moves, members cut off
//	receive id=1 type=MsgSnap from=2 term=2 [index=9] [logterm=2] [commit=9] [entries=(2/10)] [context=8]
//	compact id=1 index=4 · snap-done id=1 peer=2 [ok] · status id=1
func (s *script) run(d *datadriven.TestData) string {
	s.out.Reset()
	s.quiet = false
	var id, token, index uint64
	d.MaybeScanArgs(s.t, "id", &id)
	d.MaybeScanArgs(s.t, "token", &token)
	d.MaybeScanArgs(s.t, "index", &index)
	n := s.nodes[id]
	switch d.Cmd {
	case "open":
		n = &node{id: id, applied: ident.EntryID{Term: 1, Index: 1}, conf: &pb.ConfState{}}
		d.MaybeScanArgs(s.t, "voters", &n.conf.Voters)
		d.MaybeScanArgs(s.t, "learners", &n.conf.Learners)
		n.log = &memLog{base: n.applied, hs: &pb.HardState{Term: proto.Uint64(1), Vote: proto.Uint64(0), Commit: proto.Uint64(1)}}
		s.nodes[id] = n
		s.open(d, n)
	case "crash":
		n.machine, n.appends, n.applies = nil, nil, nil
	case "restart":
		if d.HasArg("behind") {
			n.applied = ident.EntryID{Term: 1, Index: 1}
			n.log.hs = &pb.HardState{Term: n.log.hs.Term, Vote: n.log.hs.Vote, Commit: proto.Uint64(1)}
		}
		s.open(d, n)
	case "tick":
		ticks := 1
		d.MaybeScanArgs(s.t, "n", &ticks)
		for range ticks {
			s.step(n, consensus.Input{Tick: true})
		}
	case "elect":
		s.quiet = true
		for n.role.State != raft.StateLeader {
			s.step(n, consensus.Input{Tick: true})
			s.settle(nil)
		}
	case "propose":
		p := &consensus.Proposal{Token: consensus.Token(token), Data: []byte("x")}
		var data, ack string
		if d.MaybeScanArgs(s.t, "data", &data); data != "" {
			p.Data = []byte(data)
		}
		if d.MaybeScanArgs(s.t, "ack", &ack); ack == "leader" {
			p.Ack = consensus.AckLeader
		}
		s.step(n, consensus.Input{Propose: p})
	case "conf":
		change := &pb.ConfChangeSingle{}
		for arg, typ := range map[string]pb.ConfChangeType{
			"voter": pb.ConfChangeAddNode, "learner": pb.ConfChangeAddLearnerNode, "remove": pb.ConfChangeRemoveNode,
		} {
			if d.HasArg(arg) {
				var peer uint64
				d.ScanArgs(s.t, arg, &peer)
				change.Type, change.NodeId = typ.Enum(), proto.Uint64(peer)
			}
		}
		s.step(n, consensus.Input{Propose: &consensus.Proposal{
			Token: consensus.Token(token),
			Conf:  &pb.ConfChangeV2{Changes: []*pb.ConfChangeSingle{change}},
		}})
	case "read":
		s.step(n, consensus.Input{Read: consensus.Token(token)})
	case "transfer":
		var to uint64
		d.ScanArgs(s.t, "to", &to)
		s.step(n, consensus.Input{Transfer: ident.MemberID(to)})
	case "lost-lead":
		var leader uint64
		d.ScanArgs(s.t, "leader", &leader)
		s.step(n, consensus.Input{LostLead: ident.MemberID(leader)})
	case "last-resort":
		s.step(n, consensus.Input{LastResort: true})
	case "known":
		var term uint64
		d.ScanArgs(s.t, "term", &term)
		s.step(n, consensus.Input{Known: &ident.EntryID{Term: term, Index: index}})
	case "campaign":
		s.step(n, consensus.Input{Campaign: true})
	case "append":
		frames := len(n.appends)
		d.MaybeScanArgs(s.t, "n", &frames)
		s.append(n, frames, d.HasArg("twice"))
	case "apply":
		s.apply(n, d.HasArg("refuse"), d.HasArg("lie"))
	case "deliver", "drop", "late":
		var from, to uint64
		d.ScanArgs(s.t, "from", &from)
		d.ScanArgs(s.t, "to", &to)
		s.deliver(d.Cmd, from, to)
	case "settle":
		var cut []uint64
		d.MaybeScanArgs(s.t, "cut", &cut)
		s.quiet = true
		s.settle(cut)
	case "receive":
		s.receive(d, n, index)
	case "compact":
		n.log.drop(index)
		s.step(n, consensus.Input{Compacted: index})
	case "snap-done":
		var peer uint64
		d.ScanArgs(s.t, "peer", &peer)
		s.step(n, consensus.Input{SnapDone: &consensus.SnapDone{Peer: ident.MemberID(peer), OK: d.HasArg("ok")}})
	case "status":
		st := n.machine.Status()
		fmt.Fprintf(&s.out, "%s term %d leader %d, log [%d, %d], durable %d, commit %d, applied %d, voters %d learners %d\n",
			st.State, st.Term, st.Leader, st.First, st.Last, st.Durable, st.Commit, st.Applied, st.Conf.GetVoters(), st.Conf.GetLearners())
		for _, p := range st.Progress {
			fmt.Fprintf(&s.out, "  %d: match %d next %d %s active=%t learner=%t\n", p.ID, p.Match, p.Next, p.State, p.Active, p.Learner)
		}
	default:
		d.Fatalf(s.t, "unknown command")
	}
	if s.out.Len() == 0 {
		return "ok\n"
	}
	return s.out.String()
}

func (s *script) open(d *datadriven.TestData, n *node) {
	var nonce uint64
	d.MaybeScanArgs(s.t, "nonce", &nonce)
	m, err := consensus.New(consensus.Options{
		ID: ident.MemberID(n.id), Log: n.log, HardState: n.log.hs, Applied: n.applied, Conf: n.conf, Nonce: nonce,
		Limits: consensus.Limits{UncommittedBytes: 64},
	})
	if err != nil {
		fmt.Fprintf(&s.out, "%v\n", err)
		return
	}
	n.machine, n.role = m, consensus.Role{}
}

func (s *script) receive(d *datadriven.TestData, n *node, index uint64) {
	var typ string
	var from, term, logterm, commit uint64
	d.ScanArgs(s.t, "type", &typ)
	d.ScanArgs(s.t, "from", &from)
	d.MaybeScanArgs(s.t, "term", &term)
	d.MaybeScanArgs(s.t, "logterm", &logterm)
	d.MaybeScanArgs(s.t, "commit", &commit)
	m := &pb.Message{
		Type: pb.MessageType(pb.MessageType_value[typ]).Enum(),
		From: proto.Uint64(from), To: proto.Uint64(n.id), Term: proto.Uint64(term),
		Index: proto.Uint64(index), LogTerm: proto.Uint64(logterm), Commit: proto.Uint64(commit),
	}
	if m.GetType() == pb.MsgSnap {
		m.Snapshot = &pb.Snapshot{Metadata: &pb.SnapshotMetadata{
			Index: proto.Uint64(index), Term: proto.Uint64(logterm), ConfState: n.conf,
		}}
	}
	var ents []string
	d.MaybeScanArgs(s.t, "entries", &ents)
	for _, e := range ents {
		var id ident.EntryID
		if _, err := fmt.Sscanf(e, "%d/%d", &id.Term, &id.Index); err != nil {
			d.Fatalf(s.t, "entry %q: %v", e, err)
		}
		m.Entries = append(m.Entries, &pb.Entry{Term: proto.Uint64(id.Term), Index: proto.Uint64(id.Index)})
	}
	var context int
	d.MaybeScanArgs(s.t, "context", &context)
	m.Context = make([]byte, context)
	s.step(n, consensus.Input{Receive: m})
}

// step carries out nothing; it queues, and prints.
func (s *script) step(n *node, in consensus.Input) {
	fx := n.machine.Step(in)
	say := func(format string, v ...any) { fmt.Fprintf(&s.out, "%d: "+format+"\n", append([]any{n.id}, v...)...) }
	detail := func(format string, v ...any) {
		if !s.quiet {
			say(format, v...)
		}
	}
	for _, a := range fx.Append {
		n.appends = append(n.appends, a)
		detail("append %s %s sync=%t", span(a.Entries), raft.DescribeHardState(a.HardState), a.Sync())
	}
	for _, m := range fx.Send {
		s.net = append(s.net, m)
		detail("send %s to %d: term %d, at %d/%d, commit %d, entries %s", m.GetType(), m.GetTo(), m.GetTerm(),
			m.GetLogTerm(), m.GetIndex(), m.GetCommit(), span(m.GetEntries()))
	}
	for _, a := range fx.Apply {
		n.applies = append(n.applies, a)
		detail("apply %s", span(a.Entries))
	}
	for _, a := range fx.Answer {
		switch {
		case a.Err != nil:
			say("answer %d: %v", a.Token, a.Err)
		default:
			say("answer %d: %s, replicated %d", a.Token, a.ID, a.Replicated)
		}
	}
	if fx.Role != nil {
		n.role = *fx.Role
		say("role %s, term %d, leader %d", fx.Role.State, fx.Role.Term, fx.Role.Leader)
	}
	if fx.Reseed != nil {
		say("reseed from %d at %s", fx.Reseed.From, fx.Reseed.At)
	}
	if len(fx.Stage) > 0 {
		say("stage for %d", fx.Stage)
	}
	if fx.Refused != nil {
		say("refused: %v", fx.Refused)
	}
	if fx.Fatal != nil {
		say("fatal: %v", fx.Fatal)
	}
}

func span(ents []*pb.Entry) string {
	if len(ents) == 0 {
		return "[]"
	}
	var parts []string
	for _, e := range ents {
		parts = append(parts, fmt.Sprintf("%d/%d %q", e.GetTerm(), e.GetIndex(), e.GetData()))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func (s *script) append(n *node, frames int, twice bool) {
	todo := n.appends[:frames]
	n.appends = slices.Clone(n.appends[frames:])
	for _, a := range todo {
		n.log.write(a)
	}
	for _, a := range todo {
		s.step(n, consensus.Input{Appended: a})
		if twice {
			s.step(n, consensus.Input{Appended: a})
		}
	}
}

func (s *script) apply(n *node, refuse, lie bool) {
	todo := n.applies
	n.applies = nil
	for _, a := range todo {
		for _, e := range a.Entries {
			if e.GetType() == pb.EntryConfChangeV2 {
				a.Conf = append(a.Conf, s.change(n, e, refuse, lie))
			}
		}
		last := a.Entries[len(a.Entries)-1]
		n.applied = ident.EntryID{Term: last.GetTerm(), Index: last.GetIndex()}
		s.step(n, consensus.Input{Applied: a})
	}
}

// change computes what state would record of a configuration entry.
func (s *script) change(n *node, e *pb.Entry, refuse, lie bool) consensus.ConfApplied {
	if refuse {
		return consensus.ConfApplied{Refused: true}
	}
	cc := &pb.ConfChangeV2{}
	if err := proto.Unmarshal(e.GetData(), cc); err != nil {
		s.t.Fatal(err)
	}
	tr := tracker.MakeProgressTracker(1, 0)
	cfg, progress, err := confchange.Restore(confchange.Changer{Tracker: tr, LastIndex: 1}, n.conf)
	if err != nil {
		s.t.Fatal(err)
	}
	tr.Config, tr.Progress = cfg, progress
	cfg, progress, err = confchange.Changer{Tracker: tr, LastIndex: 1}.Simple(cc.Changes...)
	if err != nil {
		s.t.Fatal(err)
	}
	tr.Config, tr.Progress = cfg, progress
	if !lie {
		n.conf = tr.ConfState()
	}
	return consensus.ConfApplied{Change: cc, Want: n.conf}
}

func (s *script) deliver(how string, from, to uint64) {
	var moved, rest []*pb.Message
	for _, m := range s.net {
		if m.GetFrom() == from && m.GetTo() == to {
			moved = append(moved, m)
		} else {
			rest = append(rest, m)
		}
	}
	s.net = rest
	switch how {
	case "late":
		s.net = append(s.net, moved...)
	case "deliver":
		for _, m := range moved {
			s.step(s.nodes[to], consensus.Input{Receive: m})
		}
	}
}

// settle runs workers and network until nothing moves. Messages to or from members that are cut off,
// down or unknown are lost.
func (s *script) settle(cut []uint64) {
	for moved := true; moved; {
		moved = len(s.net) > 0
		net := s.net
		s.net = nil
		for _, m := range net {
			to := s.nodes[m.GetTo()]
			if to != nil && to.machine != nil && !slices.Contains(cut, m.GetFrom()) && !slices.Contains(cut, m.GetTo()) {
				s.step(to, consensus.Input{Receive: m})
			}
		}
		for id := uint64(1); id <= uint64(len(s.nodes)); id++ {
			if n := s.nodes[id]; n.machine != nil && !slices.Contains(cut, id) {
				moved = moved || len(n.appends)+len(n.applies) > 0
				s.append(n, len(n.appends), false)
				s.apply(n, false, false)
			}
		}
	}
}

func TestMachine_Scripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		cryptotest.SetGlobalRandom(t, 1) // raft's election jitter
		s := &script{t: t, nodes: map[uint64]*node{}}
		datadriven.RunTest(t, path, func(_ *testing.T, d *datadriven.TestData) string { return s.run(d) })
	})
}
