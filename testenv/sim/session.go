package sim

import (
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/peer"
)

// greeting is the handshake that a stream began with.
type greeting struct {
	life  uint64 // of who sends
	hello peer.Hello
}

// receive takes the bytes of one message from a peer.
func (m *member) receive(from sender, b []byte) {
	if !m.serving() || from.m.process == nil || from.m.life != from.life {
		return // the connection is not there any more
	}
	msg := &pb.Message{}
	if err := proto.Unmarshal(b, msg); err != nil {
		m.c.violated("unmarshal: %v", err)
		return
	}
	if ident.MemberID(msg.GetTo()) != m.as {
		m.c.sometimes("somebody else listens there")
		return
	}
	if m.dialBack(from.m); !m.serving() {
		return
	}
	if m.greeted[from.m.id].life != from.life && (m.contend(from) || !m.greet(from)) {
		return
	}
	if refusal := m.process.Standing(m.greeted[from.m.id].hello); refusal != nil {
		m.refuse(from, refusal)
		return
	}
	if m.process.Roster().Removed(from.as) {
		m.c.sometimes("a removed member is heard until its removal is settled")
	}
	m.process.Deliver(from.as, 0, []*pb.Message{msg})
	m.look()
}

// dialBack opens the stream to a member that was just here, at once or some time later: nobody is heard
// who has not taken the hello of m.
func (m *member) dialBack(to *member) {
	c, life := m.c, m.life
	if to.heard(m) || m.dialling[to.id] {
		return
	}
	dial := func() {
		delete(m.dialling, to.id)
		if m.serving() && m.life == life && to.serving() && !to.heard(m) && c.net.open(m.id, to.id) && c.now >= to.pausedUntil {
			if as := (sender{m, m.life, m.as}); !to.contend(as) {
				to.greet(as)
			}
		}
	}
	if c.chance(0.5) {
		dial()
		return
	}
	m.dialling[to.id] = true
	c.after(c.upTo(2*c.plan.election()), dial)
}

// greet is the handshake that begins a stream.
func (m *member) greet(from sender) bool {
	hello := from.m.process.SelfHello()
	if _, refusal := m.process.Hello(hello); refusal != nil {
		m.refuse(from, refusal)
		return false
	}
	if from.m.twinOf != nil {
		m.c.violated("member %d hears a copy of member %s", m.id, from.as)
	}
	if from.m.forgot[m.id] {
		m.c.violated("member %d hears member %s, which has forgotten what it promised to it", m.id, from.as)
	}
	m.greeted[from.m.id] = greeting{from.life, hello}
	from.m.process.PeerChanged(peer.PeerStatus{Peer: peer.Peer{ID: m.as, Addr: m.addr}, Connected: true})
	from.m.look()
	return true
}

// refuse ends a stream and says why.
func (m *member) refuse(from sender, refusal *peer.Refusal) {
	c, roster := m.c, m.c.oracle.newest().roster
	delete(m.greeted, from.m.id)
	c.note(m.id, "refuses", from.m.id, foldString(string(refusal.Reason)))
	c.sometimes("refused: " + string(refusal.Reason))
	switch refusal.Reason {
	case peer.ReasonRemoved:
		if !roster.Removed(from.as) {
			c.violated("member %d refuses member %s: %v", m.id, from.as, refusal)
		}
	case peer.ReasonAmnesia:
		if c.sometimes("forgetful member refused"); from.m.forgot == nil {
			c.violated("member %d refuses member %s: %v", m.id, from.as, refusal)
		}
	case peer.ReasonDuplicate: // see contend
	case peer.ReasonUnknownMember: // it has not applied the roster with the new one
		if _, ok := m.process.Roster().Member(from.as); ok {
			c.violated("member %d refuses member %s: %v", m.id, from.as, refusal)
		}
	default:
		c.violated("member %d refuses member %s: %v", m.id, from.as, refusal)
	}
	from.m.process.PeerChanged(peer.PeerStatus{Peer: peer.Peer{ID: m.as, Addr: m.addr}, Failure: peer.FailureRefusal, Refusal: refusal})
	from.m.after(0, from.m.turnRegistrar)
}

// mayLeave: no vote and no append response before what it rests on is durable; nothing at all after a
// failure.
func (m *member) mayLeave(msg *pb.Message) {
	k := &m.known
	if m.failed != nil {
		m.c.violated("member %d sends %s after it failed closed", m.id, msg.GetType())
	}
	switch msg.GetType() {
	case pb.MsgVoteResp:
		want := datadir.Vote{Term: msg.GetTerm(), Vote: msg.GetTo()}
		if !msg.GetReject() {
			if m.forgot == nil { // else nobody must hear it
				m.c.oracle.votes(m.as, want)
			}
			if v := m.dir.Vote(0); v.Term < want.Term || v.Term == want.Term && v != want {
				m.c.violated("member %d votes for %d in term %d, durable is %+v", m.id, want.Vote, want.Term, v)
			}
		}
	case pb.MsgAppResp:
		if !msg.GetReject() && (k.term < msg.GetTerm() || k.term == msg.GetTerm() && k.last.Index < msg.GetIndex()) {
			m.c.violated("member %d acknowledges %d in term %d, durable is %s in term %d",
				m.id, msg.GetIndex(), msg.GetTerm(), k.last, k.term)
		}
	}
}
