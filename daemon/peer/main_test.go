package peer

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/ident"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	testCluster = ident.ClusterID{1, 2, 3}
	testKey     = []byte("0123456789abcdef0123456789abcdef")
)

type delivery struct {
	from  ident.MemberID
	group ident.GroupID
	msgs  []*pb.Message
}

// member is one Network on a loopback port, and everything that it was told.
type member struct {
	*Network
	id        ident.MemberID
	addr      string
	hellos    chan Hello
	delivered chan delivery
	statuses  chan PeerStatus
	gone      chan ident.MemberID
	refuse    atomic.Pointer[Refusal]
	stop      func() // idempotent; also run at the end of the test
}

// handler keeps the methods of Handler apart from those of Network.
type handler struct{ *member }

func (h handler) Probe(r ProbeRequest) ProbeReply {
	return ProbeReply{ID: h.id, Name: "for " + r.Name, Cluster: testCluster, Incarnation: r.Incarnation,
		TopologyDigest: r.TopologyDigest, Genesis: []byte("genesis"), Leader: 9, Term: 4, RosterVersion: 2, Version: "v1"}
}

func (h handler) Hello(hello Hello) (Hello, *Refusal) {
	if r := h.refuse.Load(); r != nil {
		return Hello{}, r
	}
	h.hellos <- hello
	return h.self(), nil
}

func (h handler) Deliver(from ident.MemberID, g ident.GroupID, msgs []*pb.Message) {
	h.delivered <- delivery{from, g, slices.Clone(msgs)}
}

func (m *member) self() Hello {
	return Hello{Cluster: testCluster, Member: m.id, Incarnation: ident.Incarnation{byte(m.id)}, Name: "m" + m.id.String(),
		BootEpoch: 3, Groups: []GroupPosition{{Group: 0, LastDurable: ident.EntryID{Term: 2, Index: 17}}, {Group: 5}},
		RosterVersion: 4, Capabilities: ident.CapBase, Version: "v1.2.3"}
}

// startMember listens on addr and serves; change edits the options.
func startMember(t testing.TB, id ident.MemberID, addr string, change ...func(*Options)) *member {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	m := &member{
		id: id, addr: l.Addr().String(),
		hellos: make(chan Hello, 100), delivered: make(chan delivery, 1<<16),
		statuses: make(chan PeerStatus, 1000), gone: make(chan ident.MemberID, 10),
	}
	opts := Options{
		Self: m.self, Handler: handler{m}, Key: testKey,
		OnStatus:            func(s PeerStatus) { m.statuses <- s },
		OnRefusedConnection: func(id ident.MemberID) { m.gone <- id },
	}
	for _, c := range change {
		c(&opts)
	}
	m.Network = New(opts)
	served := make(chan error, 1)
	go func() { served <- m.Serve(l) }()
	stopped := false
	m.stop = func() {
		if stopped {
			return
		}
		stopped = true
		m.Stop()
		if err := <-served; err != nil {
			t.Errorf("Serve of member %d: %v", id, err)
		}
	}
	t.Cleanup(m.stop)
	return m
}

const anyPort = "127.0.0.1:0"

// receive returns the next value of c.
func receive[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(8 * time.Second):
		t.Fatalf("%s did not come", what)
		panic("unreachable")
	}
}

// awaitStatus returns the first status, from now on, that is wanted.
func (m *member) awaitStatus(t testing.TB, what string, want func(PeerStatus) bool) PeerStatus {
	t.Helper()
	for {
		if s := receive(t, m.statuses, what); want(s) {
			return s
		}
	}
}

func (m *member) awaitConnected(t testing.TB, id ident.MemberID) PeerStatus {
	t.Helper()
	return m.awaitStatus(t, "a connection to member "+id.String(), func(s PeerStatus) bool { return s.ID == id && s.Connected })
}

func (m *member) awaitFailure(t testing.TB, f Failure) PeerStatus {
	t.Helper()
	return m.awaitStatus(t, "failure "+string(f), func(s PeerStatus) bool { return s.Failure == f })
}

// message is a MsgApp with one entry of size bytes.
func message(from, to ident.MemberID, index uint64, size int) *pb.Message {
	return &pb.Message{
		Type: pb.MsgApp.Enum(), From: proto.Uint64(uint64(from)), To: proto.Uint64(uint64(to)), Index: proto.Uint64(index),
		Entries: []*pb.Entry{{Term: proto.Uint64(1), Index: proto.Uint64(index + 1), Data: make([]byte, size)}},
	}
}

// count adds up the series of c.
func count(t testing.TB, c prometheus.Collector) (sum float64) {
	t.Helper()
	series := make(chan prometheus.Metric, 100)
	c.Collect(series)
	close(series)
	for m := range series {
		var value dto.Metric
		if err := m.Write(&value); err != nil {
			t.Fatal(err)
		}
		sum += value.GetCounter().GetValue() + value.GetGauge().GetValue()
	}
	return sum
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	t.Cleanup(cancel)
	return ctx
}
