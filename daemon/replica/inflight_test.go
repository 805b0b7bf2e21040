package replica_test

import (
	"testing"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/consensus"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/replica"
)

// hand is a replica with id 1 that is driven by hand, message by message.
type hand struct {
	t *testing.T
	r *replica.Replica
	d *replica.Driver
}

// rest has everything done that there is to do.
func (h *hand) rest() {
	h.t.Helper()
	for busy := true; busy; {
		busy = h.d.Turn()
		for _, do := range []func() error{
			func() error { h.d.TakeAppends(); return h.d.Append() },
			func() error { h.d.TakeApplies(); return h.d.Apply() },
		} {
			if err := do(); err != nil {
				h.t.Fatal(err)
			}
		}
		busy = busy || h.d.Awake()
	}
}

// hear receives a message of a peer and has everything done that follows.
func (h *hand) hear(from ident.MemberID, term uint64, kind pb.MessageType, m *pb.Message) {
	h.t.Helper()
	m.From, m.To, m.Term, m.Type = new(uint64(from)), new(uint64(1)), &term, kind.Enum()
	h.r.Receive([]*pb.Message{m})
	h.rest()
}

// entriesOf makes entries of raft's own kind, without data.
func entriesOf(term, first, last uint64) []*pb.Entry {
	var ents []*pb.Entry
	for i := first; i <= last; i++ {
		ents = append(ents, &pb.Entry{Term: new(term), Index: new(i)})
	}
	return ents
}

// What a leader proposed in an earlier term, and may never hear of again, does not count against what
// it may have in flight in this one: its log may be shorter now, and would not grow any more.
func TestReplica_WritesOfAnEarlierTermDoNotHoldUpNewOnes(t *testing.T) {
	d, n := newDisk(1, 2, 3), newNetwork(t)
	o := options(1, d, n)
	o.Limits.InflightBatches = 2
	r, err := replica.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	h := &hand{t: t, r: r, d: r.Drive()}
	elect := func(term uint64) {
		t.Helper()
		r.LeaderLost(2, 0)
		h.rest()
		h.hear(3, term, pb.MsgPreVoteResp, &pb.Message{})
		h.hear(3, term, pb.MsgVoteResp, &pb.Message{})
		if s := r.Status(); s.State != raft.StateLeader || s.Term != term {
			t.Fatalf("Status() = %+v, want the leader of term %d", s, term)
		}
	}
	write := func(item string) {
		t.Helper()
		if _, err := h.d.Write(signal(item), consensus.AckQuorum); err != nil {
			t.Fatal(err)
		}
		h.rest()
	}

	h.hear(2, 2, pb.MsgApp, &pb.Message{Index: new(uint64(1)), LogTerm: new(uint64(1)), Entries: entriesOf(2, 2, 6), Commit: new(uint64(1))})
	elect(3)
	write("lost")
	write("lost too")
	if s := r.Status(); s.Last != 9 {
		t.Fatalf("Status() = %+v, want two writes in flight up to 9", s)
	}
	// Member 2 leads again, and had none of that.
	h.hear(2, 4, pb.MsgApp, &pb.Message{Index: new(uint64(1)), LogTerm: new(uint64(1)), Entries: entriesOf(4, 2, 2), Commit: new(uint64(1))})
	elect(5)
	h.hear(3, 5, pb.MsgAppResp, &pb.Message{Index: new(uint64(3))})
	if s := r.Status(); s.Applied != 3 || s.Last != 3 {
		t.Fatalf("Status() = %+v, want 3 entries", s)
	}
	write("new")
	if s := r.Status(); s.Last != 4 {
		t.Errorf("Status() = %+v, want the new write at 4", s)
	}
}
