package peer

import (
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
)

// One message there and one back, over loopback.
func BenchmarkNetwork_RoundTrip(b *testing.B) {
	x, y := startMember(b, 1, anyPort), startMember(b, 2, anyPort)
	x.SetPeers([]Peer{{ID: 2, Addr: y.addr}})
	y.SetPeers([]Peer{{ID: 1, Addr: x.addr}})
	x.awaitConnected(b, 2)
	y.awaitConnected(b, 1)
	there, back := []*pb.Message{message(1, 2, 1, 256)}, []*pb.Message{message(2, 1, 1, 0)}
	b.ReportAllocs()
	for b.Loop() {
		x.Send(0, there)
		<-y.delivered
		y.Send(0, back)
		<-x.delivered
	}
}

// What one message costs on its way through the queue into a frame.
func BenchmarkSend(b *testing.B) {
	n := New(Options{})
	defer n.Stop()
	l := newLink(n, Peer{ID: 2, Addr: "x:1"})
	close(l.done)
	n.links.Store(&map[ident.MemberID]*link{2: l})
	l.mu.status.Connected = true
	msgs := []*pb.Message{message(1, 2, 1, 256)}
	var f frame
	var batch []packet
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		n.Send(0, msgs)
		if i%64 == 63 { // what the writer does, but for the socket
			batch, _ = l.take(batch)
			for rest := batch; len(rest) > 0; {
				k, bytes := f.fill(rest)
				l.release(bytes)
				rest = rest[k:]
			}
			clear(batch)
		}
	}
}
