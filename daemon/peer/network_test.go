package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
)

func TestNetwork_DeliversInOrderBothWays(t *testing.T) {
	a, b := startMember(t, 1, anyPort), startMember(t, 2, anyPort)
	a.SetPeers([]Peer{{ID: 2, Addr: b.addr}})
	b.SetPeers([]Peer{{ID: 1, Addr: a.addr}})
	if s := a.awaitConnected(t, 2); !reflect.DeepEqual(*s.Hello, b.self()) {
		t.Errorf("hello of 2 = %+v, want %+v", *s.Hello, b.self())
	}
	b.awaitConnected(t, 1)
	if got := receive(t, b.hellos, "a hello"); !reflect.DeepEqual(got, a.self()) {
		t.Errorf("hello of 1 = %+v, want %+v", got, a.self())
	}
	const n = 20_000
	for _, way := range []struct{ from, to *member }{{a, b}, {b, a}} {
		for i := range uint64(n) {
			way.from.Send(ident.GroupID(i/7%3), []*pb.Message{message(way.from.id, way.to.id, i, 10)})
		}
	}
	for _, to := range []*member{a, b} {
		var next [3]uint64 // by group
		for i := range next {
			next[i] = uint64(i) * 7
		}
		for got := 0; got < n; {
			d := receive(t, to.delivered, "a delivery")
			if d.from != 3-to.id {
				t.Fatalf("a delivery from %d", d.from)
			}
			for _, m := range d.msgs {
				if m.GetIndex() != next[d.group] || len(m.GetEntries()[0].GetData()) != 10 {
					t.Fatalf("group %d: message %d, want %d", d.group, m.GetIndex(), next[d.group])
				}
				if next[d.group]++; next[d.group]%7 == 0 {
					next[d.group] += 14
				}
				got++
			}
		}
	}
	if frames := count(t, a.metrics.sentFrames); frames > n/2 {
		t.Errorf("%d messages took %v frames: nothing was coalesced", n, frames)
	}
	for _, s := range append(a.Peers(), b.Peers()...) {
		if !s.Connected || s.QueueBytes != 0 || s.LastHeard.IsZero() {
			t.Errorf("status %+v: want connected, nothing queued, heard", s)
		}
	}
}

func TestNetwork_DeliversWhatWasSentJustBeforeTheConnection(t *testing.T) {
	a, b := startMember(t, 1, anyPort), startMember(t, 2, anyPort)
	a.SetPeers([]Peer{{ID: 2, Addr: b.addr}})
	a.Send(4, []*pb.Message{message(1, 2, 7, 0)}) // may come before the connection
	if d := receive(t, b.delivered, "the message"); d.group != 4 || d.msgs[0].GetIndex() != 7 {
		t.Errorf("delivered %+v", d)
	}
}

func TestNetwork_SendDropsWhatIsForNobody(t *testing.T) {
	a := startMember(t, 1, anyPort)
	a.Send(0, []*pb.Message{message(1, 2, 1, 0), message(1, 0, 2, 0)})
	if got := count(t, a.metrics.sendDropped.WithLabelValues("none", dropUnknownPeer)); got != 2 {
		t.Errorf("dropped %v, want 2", got)
	}
	a.stop()
	a.SetPeers([]Peer{{ID: 2, Addr: "127.0.0.1:1"}})
	if got := a.Peers(); len(got) != 0 {
		t.Errorf("peers after Stop: %+v", got)
	}
}

// The name is resolved at every dial, so a peer that comes back elsewhere is found; the refusals in
// between say, once, that its process was gone.
func TestNetwork_FollowsAPeerToAnotherAddress(t *testing.T) {
	var ip atomic.Value
	ip.Store("127.0.0.1")
	a := startMember(t, 1, anyPort, func(o *Options) {
		o.Resolve = func(_ context.Context, host string) ([]string, error) {
			if host != "two.example" {
				return nil, fmt.Errorf("no such host %q", host)
			}
			return []string{ip.Load().(string)}, nil
		}
	})
	b := startMember(t, 2, anyPort)
	_, port, _ := net.SplitHostPort(b.addr)
	a.SetPeers([]Peer{{ID: 2, Addr: "two.example:" + port}})
	a.awaitConnected(t, 2)

	b.stop()
	a.awaitFailure(t, FailureRefused)
	if id := receive(t, a.gone, "OnRefusedConnection"); id != 2 {
		t.Errorf("OnRefusedConnection(%d), want 2", id)
	}
	a.awaitFailure(t, FailureRefused)

	moved := startMember(t, 2, "127.0.0.2:"+port)
	ip.Store("127.0.0.2")
	a.awaitConnected(t, 2)
	a.Send(0, []*pb.Message{message(1, 2, 1, 0)})
	receive(t, moved.delivered, "a message at the new address")
	if len(a.gone) != 0 {
		t.Error("OnRefusedConnection was called again for one loss")
	}
}

// A member is killed, removed, and added again at once, at the address where it was: its new life is a new peer,
// with a connection of its own, and the first attempt at it succeeds. Nothing is left of the old connection that
// the first words could be lost on.
func TestNetwork_ANewPeerAtTheAddressOfAnOldOneIsReachedAtOnce(t *testing.T) {
	a, old := startMember(t, 1, anyPort), startMember(t, 2, anyPort)
	a.SetPeers([]Peer{{ID: 2, Addr: old.addr}})
	a.awaitConnected(t, 2)
	old.stop()
	a.awaitFailure(t, FailureRefused)
	for len(a.statuses) > 0 {
		<-a.statuses
	}
	again := startMember(t, 4, old.addr)
	a.SetPeers([]Peer{{ID: 4, Addr: again.addr}})
	a.Send(0, []*pb.Message{message(1, 4, 7, 0)})
	if d := receive(t, again.delivered, "the first message"); d.msgs[0].GetIndex() != 7 {
		t.Errorf("the first message is %d, want 7", d.msgs[0].GetIndex())
	}
	if s := a.awaitStatus(t, "a word of member 4", func(s PeerStatus) bool { return s.ID == 4 }); !s.Connected {
		t.Errorf("the first attempt failed: %s %s", s.Failure, s.Detail)
	}
	if got := count(t, a.metrics.sendDropped.WithLabelValues("4", dropDisconnected)); got != 0 {
		t.Errorf("%v messages were dropped", got)
	}
}

func TestNetwork_StalledPeerCostsABoundAndDelaysNobody(t *testing.T) {
	const bound, size = 4 << 20, 256 << 10
	release := make(chan struct{})
	a := startMember(t, 1, anyPort, func(o *Options) { o.QueueBytes = bound })
	stalled := startMember(t, 2, anyPort, func(o *Options) { o.Handler = stallingHandler{o.Handler, release} })
	healthy := startMember(t, 3, anyPort)
	a.SetPeers([]Peer{{ID: 2, Addr: stalled.addr}, {ID: 3, Addr: healthy.addr}})
	for range 2 {
		a.awaitStatus(t, "a connection", func(s PeerStatus) bool { return s.Connected })
	}

	const n = 400 // 100 MiB: more than windows, socket buffers and queue hold together
	dropped := a.metrics.sendDropped.WithLabelValues("2", dropQueueFull)
	for i := range uint64(n) {
		a.Send(0, []*pb.Message{message(1, 2, i, size)})
	}
	for _, s := range a.Peers() {
		if s.QueueBytes > bound {
			t.Errorf("member %d: %d bytes queued, bound %d", s.ID, s.QueueBytes, bound)
		}
	}
	if count(t, dropped) == 0 {
		t.Error("nothing was dropped")
	}
	a.Send(0, []*pb.Message{message(1, 3, 1, 0)})
	receive(t, healthy.delivered, "a message of the healthy peer")

	close(release)
	var next uint64
	for got := 0; got+int(count(t, dropped)) < n; {
		for _, m := range receive(t, stalled.delivered, "a message of the stalled peer").msgs {
			if m.GetIndex() < next {
				t.Fatalf("message %d after %d", m.GetIndex(), next-1)
			}
			next = m.GetIndex() + 1
			got++
		}
	}
}

// stallingHandler breaks the rule that Deliver must not block.
type stallingHandler struct {
	Handler
	release <-chan struct{}
}

func (h stallingHandler) Deliver(from ident.MemberID, g ident.GroupID, msgs []*pb.Message) {
	<-h.release
	h.Handler.Deliver(from, g, msgs)
}

func TestNetwork_DropsAMessageThatNoFrameCarries(t *testing.T) {
	a, b := startMember(t, 1, anyPort), startMember(t, 2, anyPort)
	a.SetPeers([]Peer{{ID: 2, Addr: b.addr}})
	a.awaitConnected(t, 2)
	a.Send(0, []*pb.Message{message(1, 2, 1, maxFrameBytes), message(1, 2, 2, 2*frameBytes), message(1, 2, 3, 0)})
	for _, want := range []uint64{2, 3} {
		if d := receive(t, b.delivered, "a message"); d.msgs[0].GetIndex() != want {
			t.Errorf("delivered message %d, want %d", d.msgs[0].GetIndex(), want)
		}
	}
	if got := count(t, a.metrics.sendDropped.WithLabelValues("2", dropTooLarge)); got != 1 {
		t.Errorf("dropped %v, want 1", got)
	}
}

func TestNetwork_WrongKeyIsRefused(t *testing.T) {
	b := startMember(t, 2, anyPort)
	for name, key := range map[string][]byte{"another": []byte("another key of the same length!!"), "none": nil} {
		t.Run(name, func(t *testing.T) {
			a := startMember(t, 1, anyPort, func(o *Options) { o.Key = key })
			a.SetPeers([]Peer{{ID: 2, Addr: b.addr}})
			if s := a.awaitFailure(t, FailureUnauthenticated); s.Refusal != nil {
				t.Errorf("a wrong key latched the refusal %v", s.Refusal)
			}
			_, err := a.Probe(testContext(t), b.addr, ProbeRequest{})
			if e, ok := errors.AsType[*ConnectError](err); !ok || e.Failure != FailureUnauthenticated {
				t.Errorf("Probe: %v, want unauthenticated", err)
			}
		})
	}
	if len(b.hellos)+len(b.delivered) != 0 {
		t.Error("the handler heard of a peer without the key")
	}
}

func TestNetwork_WithoutAKeyThisHostMayCall(t *testing.T) {
	noKey := func(o *Options) { o.Key = nil }
	a, b := startMember(t, 1, anyPort, noKey), startMember(t, 2, anyPort, noKey)
	a.SetPeers([]Peer{{ID: 2, Addr: b.addr}})
	a.awaitConnected(t, 2)
	for addr, want := range map[net.Addr]bool{
		&net.TCPAddr{IP: net.IPv4(127, 9, 9, 9)}:  true,
		&net.TCPAddr{IP: net.IPv6loopback}:        true,
		&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}:  false,
		&net.TCPAddr{}:                            false,
		&net.UnixAddr{Name: "127.0.0.1", Net: ""}: false,
	} {
		if got := onLoopback(addr); got != want {
			t.Errorf("onLoopback(%v) = %v, want %v", addr, got, want)
		}
	}
}

func TestNetwork_RefusalTravelsAndStaysUntilAHandshakeSucceeds(t *testing.T) {
	a, b := startMember(t, 1, anyPort), startMember(t, 2, anyPort)
	want := Refusal{Reason: ReasonAmnesia, Detail: "boot epoch 3 after 5,\nδ"}
	b.refuse.Store(&want)
	a.SetPeers([]Peer{{ID: 2, Addr: b.addr}})
	if s := a.awaitFailure(t, FailureRefusal); s.Connected || s.Refusal == nil || *s.Refusal != want {
		t.Errorf("status %+v, want the refusal %+v", s, want)
	}
	if got := count(t, a.metrics.refusals.WithLabelValues("received", ReasonAmnesia)); got == 0 {
		t.Error("the refusal was not counted where it was received")
	}
	if got := count(t, b.metrics.refusals.WithLabelValues("given", ReasonAmnesia)); got == 0 {
		t.Error("the refusal was not counted where it was given")
	}
	b.stop()
	if s := a.awaitFailure(t, FailureRefused); s.Refusal == nil {
		t.Error("a peer that is down cleared its refusal")
	}
	if len(a.gone) != 0 {
		t.Error("OnRefusedConnection for a peer that was never connected")
	}
	startMember(t, 2, b.addr)
	if s := a.awaitConnected(t, 2); s.Refusal != nil || s.Failure != FailureNone || s.Detail != "" {
		t.Errorf("status after a handshake: %+v", s)
	}
}

func TestNetwork_SetPeersKeepsWhatDidNotChange(t *testing.T) {
	a, b, c := startMember(t, 1, anyPort), startMember(t, 2, anyPort), startMember(t, 3, anyPort)
	a.SetPeers([]Peer{{ID: 2, Addr: b.addr}, {ID: 3, Addr: c.addr}, {ID: 0, Addr: "nobody:1"}})
	for range 2 {
		a.awaitStatus(t, "a connection", func(s PeerStatus) bool { return s.Connected })
	}
	a.SetPeers([]Peer{{ID: 2, Addr: b.addr}})
	if got := a.Peers(); len(got) != 1 || got[0].ID != 2 || !got[0].Connected {
		t.Errorf("peers = %+v, want member 2, connected", got)
	}
	a.Send(0, []*pb.Message{message(1, 2, 1, 0), message(1, 3, 1, 0)})
	receive(t, b.delivered, "a message over the kept stream")
	a.SetPeers([]Peer{{ID: 3, Addr: c.addr}, {ID: 2, Addr: b.addr}})
	a.awaitConnected(t, 3)
	if len(b.hellos) != 1 || len(c.hellos) != 2 {
		t.Errorf("%d and %d handshakes, want 1 and 2", len(b.hellos), len(c.hellos))
	}
	if len(c.delivered) != 0 {
		t.Error("a message reached a peer that had left the table")
	}
}

func TestNetwork_AnotherMemberAtTheAddressIsNotConnected(t *testing.T) {
	a, b := startMember(t, 1, anyPort), startMember(t, 2, anyPort)
	a.SetPeers([]Peer{{ID: 3, Addr: b.addr}})
	s := a.awaitFailure(t, FailureWrongMember)
	if want := "member 2 of cluster " + testCluster.String() + " answers, want member 3 of cluster " + testCluster.String(); s.Detail != want {
		t.Errorf("detail %q, want %q", s.Detail, want)
	}
}

func TestNetwork_UnresolvablePeerDelaysNobody(t *testing.T) {
	a := startMember(t, 1, anyPort, func(o *Options) {
		o.Resolve = func(ctx context.Context, host string) ([]string, error) {
			if host == "hangs.example" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}
	})
	b := startMember(t, 2, anyPort)
	a.SetPeers([]Peer{{ID: 4, Addr: "hangs.example:1"}, {ID: 3, Addr: "nowhere.example:1"}, {ID: 2, Addr: b.addr}})
	if s := a.awaitFailure(t, FailureUnresolved); s.ID != 3 {
		t.Errorf("member %d is unresolved, want 3", s.ID)
	}
	if s := a.Peers()[0]; !s.Connected {
		a.awaitConnected(t, 2)
	}
	a.Send(0, []*pb.Message{message(1, 2, 1, 0)})
	receive(t, b.delivered, "a message")
	a.SetPeers(nil) // ends the look-up that hangs
}

func TestNetwork_IdlePeersAreHeard(t *testing.T) {
	fast := func(o *Options) { o.PingEvery = 5 * time.Millisecond }
	a, b := startMember(t, 1, anyPort, fast), startMember(t, 2, anyPort)
	a.SetPeers([]Peer{{ID: 2, Addr: b.addr}})
	b.SetPeers([]Peer{{ID: 1, Addr: a.addr}})
	a.awaitConnected(t, 2)
	connected := b.awaitConnected(t, 1)
	deadline := time.After(8 * time.Second)
	for {
		from, to := a.Peers()[0], b.Peers()[0]
		if from.RTT > 0 && to.LastHeard.After(connected.LastHeard) {
			return
		}
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			t.Fatalf("rtt %s at the sender; heard at %s, then %s at the receiver", from.RTT, connected.LastHeard, to.LastHeard)
		}
	}
}

func TestNetwork_Probe(t *testing.T) {
	a, b := startMember(t, 1, anyPort), startMember(t, 2, anyPort)
	request := ProbeRequest{Name: "us-west", Incarnation: ident.Incarnation{7}, TopologyDigest: [32]byte{31: 8}}
	got, err := a.Probe(testContext(t), b.addr, request)
	if want := (handler{b}).Probe(request); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Probe = %+v, %v, want %+v", got, err, want)
	}
	b.stop()
	silent, err := net.Listen("tcp", anyPort) // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, tc := range []struct {
		addr string
		want Failure
	}{
		{b.addr, FailureRefused},
		{"no-such-host.invalid:1", FailureUnresolved},
		{"no port", FailureUnresolved},
		{silent.Addr().String(), FailureTimeout},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := a.Probe(ctx, tc.addr, request)
		cancel()
		if e, ok := errors.AsType[*ConnectError](err); !ok || e.Failure != tc.want {
			t.Errorf("Probe of %s: %v, want %s", tc.addr, err, tc.want)
		}
	}
}
