package consensus

import (
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// flaw says what keeps m from being stepped, or "". raft trusts its messages and panics on many that
// no honest peer sends; they are refused here, and raft may rely on:
//
//  1. the type is one that members exchange (proposals and transfers are not forwarded);
//  2. m is from another member, and for self;
//  3. every type but a read request has a term, and a read request has none;
//  4. entries are contiguous after (LogTerm, Index), and terms neither fall nor pass the message's;
//  5. what raft reads from contexts and snapshots is there.
func flaw(m *pb.Message, self uint64) string {
	switch m.GetType() {
	case pb.MsgApp, pb.MsgAppResp, pb.MsgVote, pb.MsgVoteResp, pb.MsgPreVote, pb.MsgPreVoteResp,
		pb.MsgSnap, pb.MsgHeartbeat, pb.MsgHeartbeatResp, pb.MsgTimeoutNow, pb.MsgReadIndex, pb.MsgReadIndexResp:
	default:
		return "members do not exchange this type"
	}
	switch from := m.GetFrom(); {
	case from == raft.None || from == self || raft.IsLocalMsgTarget(from):
		return "from nobody else"
	case m.GetTo() != self:
		return fmt.Sprintf("for member %d, this is %d", m.GetTo(), self)
	case (m.GetTerm() == 0) != (m.GetType() == pb.MsgReadIndex):
		return fmt.Sprintf("term %d", m.GetTerm())
	}
	switch m.GetType() {
	case pb.MsgApp:
		index, term := m.GetIndex(), m.GetLogTerm()
		for _, e := range m.GetEntries() {
			if e.GetIndex() != index+1 {
				return fmt.Sprintf("entry %d follows %d", e.GetIndex(), index)
			}
			if e.GetTerm() < term || e.GetTerm() > m.GetTerm() {
				return fmt.Sprintf("entry %d of term %d after term %d, in a message of term %d",
					e.GetIndex(), e.GetTerm(), term, m.GetTerm())
			}
			index, term = e.GetIndex(), e.GetTerm()
		}
	case pb.MsgHeartbeatResp:
		if n := len(m.GetContext()); n != 0 && n != 8 {
			return fmt.Sprintf("context of %d bytes", n)
		}
	case pb.MsgReadIndex, pb.MsgReadIndexResp:
		if n := len(m.GetEntries()); n != 1 {
			return fmt.Sprintf("%d requests", n)
		}
	case pb.MsgSnap:
		if md := m.GetSnapshot().GetMetadata(); md.GetIndex() == 0 || md.GetTerm() == 0 {
			return fmt.Sprintf("snapshot at %d/%d", md.GetTerm(), md.GetIndex())
		}
	}
	return ""
}
