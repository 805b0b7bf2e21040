package peer

import (
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/peer/peerpb"
)

// idleLink is a link that never dials.
func idleLink(t *testing.T, n *Network, p Peer) *link {
	t.Helper()
	l := newLink(n, p)
	close(l.done)
	n.links.Store(&map[ident.MemberID]*link{p.ID: l})
	return l
}

func TestLink_KeepsTheNewestForAPeerThatIsAway(t *testing.T) {
	n := New(Options{})
	l := idleLink(t, n, Peer{ID: 2, Addr: "x:1"})
	const sent = 1000
	for i := range uint64(sent) {
		n.Send(0, []*pb.Message{message(1, 2, i, 1000)})
	}
	queue := l.mu.queue
	if first, last := queue[0].msg.GetIndex(), queue[len(queue)-1].msg.GetIndex(); last != sent-1 || last-first+1 != uint64(len(queue)) {
		t.Errorf("kept messages %d to %d in a queue of %d, want the newest", first, last, len(queue))
	}
	if l.mu.bytes > waitingBytes || l.mu.bytes < waitingBytes/2 {
		t.Errorf("kept %d bytes, bound %d", l.mu.bytes, waitingBytes)
	}
	if got := count(t, n.metrics.sendDropped.WithLabelValues("2", dropDisconnected)); int(got) != sent-len(queue) {
		t.Errorf("dropped %v, want %d", got, sent-len(queue))
	}
	n.Stop()
}

// A peer that opens a stream to us is there: our own next attempt does not wait.
func TestLink_IsHintedWhenThePeerConnects(t *testing.T) {
	a, b := startMember(t, 1, anyPort), startMember(t, 2, anyPort)
	l := idleLink(t, a.Network, Peer{ID: 2, Addr: "x:1"})
	b.SetPeers([]Peer{{ID: 1, Addr: a.addr}})
	receive(t, l.hint, "the hint")
}

func TestFrame_IsCutBySizeAndGroupedByRuns(t *testing.T) {
	var packets []packet
	add := func(g ident.GroupID, index uint64, size int) {
		m := message(1, 2, index, size)
		packets = append(packets, packet{group: g, msg: m, bytes: cost(m)})
	}
	add(0, 0, 10)
	add(0, 1, 10)
	add(5, 2, 10)
	add(0, 3, frameBytes/2)
	add(0, 4, frameBytes/2)
	add(0, 5, 3*frameBytes)
	add(7, 6, 0)
	var f frame
	for i, want := range [][]int{{2, 1, 1}, {1}, {1}, {1}} { // messages of each batch of each frame
		n, bytes := f.fill(packets)
		if n > 1 && bytes > frameBytes {
			t.Errorf("frame %d has %d bytes, bound %d", i, bytes, frameBytes)
		}
		if len(f.wire.Batches) != len(want) {
			t.Fatalf("frame %d has %d batches, want %v", i, len(f.wire.Batches), want)
		}
		for j, b := range f.wire.Batches {
			if len(b.Messages) != want[j] {
				t.Errorf("frame %d batch %d has %d messages, want %d", i, j, len(b.Messages), want[j])
			}
			for _, m := range b.Messages {
				if m != packets[0].msg || b.Group != uint32(packets[0].group) {
					t.Fatalf("frame %d batch %d: message %d of group %d is out of order", i, j, m.GetIndex(), b.Group)
				}
				packets = packets[1:]
			}
		}
	}
	if len(packets) != 0 {
		t.Errorf("%d packets are left", len(packets))
	}
}

// The queue's bound and the receiver's limit rely on it.
func TestCost_IsNeverBelowTheEncodedSize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := func(name string) *uint64 { return proto.Uint64(rapid.Uint64().Draw(t, name)) }
		blob := rapid.SliceOfN(rapid.Byte(), 0, 300)
		m := &pb.Message{Type: pb.MsgApp.Enum(), To: u("to"), From: u("from"), Term: u("term"), LogTerm: u("logterm"), Index: u("index"),
			Commit: u("commit"), Vote: u("vote"), Reject: proto.Bool(true), RejectHint: u("hint"), Context: blob.Draw(t, "context")}
		for range rapid.IntRange(0, 5).Draw(t, "entries") {
			m.Entries = append(m.Entries, &pb.Entry{Term: u("term"), Index: u("index"), Type: pb.EntryConfChangeV2.Enum(), Data: blob.Draw(t, "data")})
		}
		if rapid.Bool().Draw(t, "snapshot") {
			ids := rapid.SliceOfN(rapid.Uint64(), 0, 9)
			m.Snapshot = &pb.Snapshot{Data: blob.Draw(t, "data"), Metadata: &pb.SnapshotMetadata{Index: u("index"), Term: u("term"),
				ConfState: &pb.ConfState{Voters: ids.Draw(t, "voters"), Learners: ids.Draw(t, "learners"),
					VotersOutgoing: ids.Draw(t, "outgoing"), LearnersNext: ids.Draw(t, "next"), AutoLeave: proto.Bool(true)}}}
		}
		frame := &peerpb.Frame{Batches: []*peerpb.Batch{{Group: 1 << 31, Messages: []*pb.Message{m}}}}
		if got, size := cost(m), int64(proto.Size(frame)); got < size {
			t.Fatalf("cost = %d, its frame has %d bytes", got, size)
		}
	})
}

func TestPause_StartsAtOnceAndIsCapped(t *testing.T) {
	var p pause
	if d := p.next(); d != 0 {
		t.Errorf("first pause %s, want none", d)
	}
	full := minPause
	for range 20 {
		if d := p.next(); d < full/2 || d > full {
			t.Errorf("pause %s, want %s to %s", d, full/2, full)
		}
		full = min(2*full, maxPause)
	}
	if p.reset(); p.next() != 0 {
		t.Error("a pause after reset")
	}
}

func TestLimiter_CountsWhatItHoldsBack(t *testing.T) {
	var l limiter
	now := time.Unix(1_000_000, 0)
	for i, tc := range []struct {
		after time.Duration
		held  int
		ok    bool
	}{
		{0, 0, true},
		{time.Second, 0, false},
		{logInterval - 2*time.Second, 0, false},
		{time.Second, 2, true},
		{logInterval, 0, true},
	} {
		now = now.Add(tc.after)
		if held, ok := l.allow(now); held != tc.held || ok != tc.ok {
			t.Errorf("line %d: allow = %d, %v, want %d, %v", i, held, ok, tc.held, tc.ok)
		}
	}
}
