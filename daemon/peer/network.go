package peer

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/tidaldb/tidal/daemon/beat"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/peer/peerpb"
)

// Handler is told what peers say. Its methods are called from many goroutines and must not block.
type Handler interface {
	// Probe answers who this member is.
	Probe(ProbeRequest) ProbeReply

	// Hello answers a peer that opens a stream: with this member's hello, or with a refusal.
	Hello(Hello) (Hello, *Refusal)

	// Deliver takes messages of one group, in the order in which from sent them. The messages are
	// the handler's from then on; the slice is not.
	Deliver(from ident.MemberID, g ident.GroupID, msgs []*pb.Message)
}

// Options configures New. Self and Handler are required.
type Options struct {
	// Self returns this member's hello, at every handshake that it begins.
	Self    func() Hello
	Handler Handler

	// Key authenticates members to each other. nil: without TLS the server takes callers from
	// loopback only; with TLS it takes those whose certificate it verified.
	Key []byte
	// TLS serves and, unless DialTLS is set, dials; a dial takes the server name from the address.
	// nil: plain text.
	TLS *tls.Config
	// DialTLS is asked at every dial, so that authorities and certificates may change.
	DialTLS func() *tls.Config

	// QueueBytes bounds what waits for one connected peer. 0 means 64 MiB.
	QueueBytes int64
	// PingEvery is how often a connected peer is heard at least. 0 means 1 s.
	PingEvery time.Duration
	// Beat is what pings keep to; zero: one of the network's own.
	Beat beat.Beat

	// OnStatus is called after a peer was connected, was lost, or could not be reached.
	// OnRefusedConnection is called once when a peer's stream broke and its port then refused the
	// connection: its process is gone. Both may be nil, are called from that peer's goroutine, and
	// must neither block nor call SetPeers or Stop.
	OnStatus            func(PeerStatus)
	OnRefusedConnection func(ident.MemberID)
	// OnDuplicate is called when two processes with the identity of one member were found alive, with
	// the hello of the second. It may be nil and must not block.
	OnDuplicate func(Hello)
	// OnClock is told what every ping finds out about a peer's clock. It may be nil and must not block.
	OnClock func(ident.MemberID, Clock)

	// Snapshots serves artifacts to peers. Pins returns what this member keeps its logs for, for the
	// groups that it leads; it is asked with every ping and must not block. Both may be nil.
	Snapshots Snapshots
	Pins      func() []Pin
	// Digests returns what this member's states added up to after their last checks. Asked likewise, and
	// may be nil.
	Digests func() []DigestReport

	// Faults is the fault table. nil: there are no drills.
	Faults *Faults

	// Members knows who belongs to the cluster, and how far the replicas are. May be nil.
	Members Members

	// Outboxes takes what peers deliver of their outboxes; nil: nobody does.
	Outboxes Outboxes

	// The seams; nil means the real thing.
	Resolve func(ctx context.Context, host string) ([]string, error) // to IP addresses, at every dial
	Now     func() time.Time                                         // wall time, which peers are told
	Logger  *slog.Logger                                             // nil: none
	Metrics prometheus.Registerer                                    // nil: kept but not exported
}

func (o Options) withDefaults() Options {
	if o.QueueBytes == 0 {
		o.QueueBytes = 64 << 20
	}
	if o.PingEvery == 0 {
		o.PingEvery = time.Second
	}
	if o.Beat == (beat.Beat{}) {
		o.Beat = beat.New()
	}
	if o.OnStatus == nil {
		o.OnStatus = func(PeerStatus) {}
	}
	if o.OnRefusedConnection == nil {
		o.OnRefusedConnection = func(ident.MemberID) {}
	}
	if o.OnDuplicate == nil {
		o.OnDuplicate = func(Hello) {}
	}
	if o.OnClock == nil {
		o.OnClock = func(ident.MemberID, Clock) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Resolve == nil {
		o.Resolve = net.DefaultResolver.LookupHost
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Peer is one row of the dial table.
type Peer struct {
	ID   ident.MemberID
	Addr string // host:port, resolved at every dial
	// Also is tried in turn with Addr where that is not reached; empty: there is no other.
	Also string
}

// PeerStatus says how one peer is reached.
type PeerStatus struct {
	Peer
	// Connected: the stream to the peer is open and past its handshake.
	Connected bool
	// Hello is what the peer said in the last handshake that succeeded; nil before the first.
	Hello *Hello
	// Failure says why the last attempt failed or the stream broke; empty while connected.
	// Detail is its text.
	Failure Failure
	Detail  string
	// Refusal is the peer's last refusal. It stays until a handshake succeeds, also while the peer
	// cannot be reached.
	Refusal *Refusal
	// LastHeard is when any message of the peer last arrived, on either stream; a connected peer
	// is heard every Options.PingEvery. Zero: never.
	LastHeard time.Time
	RTT       time.Duration // of the last ping; 0: none yet
	// QueueBytes is roughly what waits to be sent.
	QueueBytes int64
}

// Clock is a peer's clock, as the answer to a ping found it.
type Clock struct {
	// Skew is how far it is ahead of this member's, give or take Error.
	Skew, Error time.Duration
}

// clockOf judges a clock that a peer read, in Unix milliseconds, within the round trip that ended now.
func clockOf(read int64, now time.Time, rtt time.Duration) Clock {
	return Clock{Skew: time.UnixMilli(read).Sub(now.Add(-rtt / 2)), Error: rtt/2 + time.Millisecond}
}

// Network is one member's end of all links. All methods may be called from any goroutine.
type Network struct {
	opts    Options
	bearer  string // value of the authorization header; empty without a key
	metrics *metrics
	server  *grpc.Server
	start   time.Time // what monotonic offsets count from

	// links is the dial table. A map that was published is never changed.
	links atomic.Pointer[map[ident.MemberID]*link]

	refusals limiter // of the log lines about sessions that we refuse
	sessions sessions

	// mu makes SetPeers and Stop one after the other. It is not held by anybody who sends.
	mu struct {
		sync.Mutex
		stopped bool
	}
}

// New returns a network without peers that serves nobody yet.
func New(opts Options) *Network {
	n := &Network{opts: opts.withDefaults(), metrics: newMetrics(opts.Metrics), start: time.Now()}
	if opts.Key != nil {
		n.bearer = "Bearer " + hex.EncodeToString(opts.Key)
	}
	n.links.Store(&map[ident.MemberID]*link{})
	n.server = newServer(n)
	return n
}

// Serve answers peers on l until Stop, and closes l. It returns nil after Stop.
func (n *Network) Serve(l net.Listener) error {
	if err := n.server.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Stop ends every stream and waits for all goroutines of the network. Later calls of Send drop, later
// calls of SetPeers do nothing.
func (n *Network) Stop() {
	n.mu.Lock()
	n.mu.stopped = true
	n.switchLocked(nil)
	n.mu.Unlock()
	n.server.Stop()
}

// SetPeers switches the dial table. A peer with the same id and address keeps its stream and queue;
// the goroutines of all others have ended when SetPeers returns. Rows without an id are skipped.
func (n *Network) SetPeers(peers []Peer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.mu.stopped {
		n.switchLocked(peers)
	}
}

// switchLocked publishes the new table before it waits for what left it. REQUIRES: n.mu held.
func (n *Network) switchLocked(peers []Peer) {
	old := *n.links.Load()
	next := make(map[ident.MemberID]*link, len(peers))
	for _, p := range peers {
		if p.ID == 0 || next[p.ID] != nil {
			continue
		}
		if l := old[p.ID]; l != nil && l.peer == p {
			next[p.ID] = l
		} else {
			next[p.ID] = newLink(n, p)
		}
	}
	n.links.Store(&next)
	var gone []*link
	for id, l := range old {
		if next[id] != l {
			l.cancel()
			gone = append(gone, l)
		}
	}
	for _, l := range gone {
		<-l.done
		if next[l.peer.ID] == nil {
			n.metrics.forget(l.peer.ID)
		}
	}
	for id, l := range next {
		if old[id] != l {
			l.start()
		}
	}
}

// Send queues each message for the peer in its To. It never blocks: what does not fit, and what is
// for nobody in the dial table, is dropped and counted. The messages and their entries may be shared;
// nobody may change them afterwards.
func (n *Network) Send(g ident.GroupID, msgs []*pb.Message) {
	links := *n.links.Load()
	for _, m := range msgs {
		if l := links[ident.MemberID(m.GetTo())]; l != nil {
			l.enqueue(g, m)
		} else {
			n.metrics.dropped("none", dropUnknownPeer, 1)
		}
	}
}

// Probe asks whoever listens at addr who it is. An error is a *ConnectError.
func (n *Network) Probe(ctx context.Context, addr string, r ProbeRequest) (ProbeReply, error) {
	c, failed := n.connect(ctx, addr)
	if failed != nil {
		return ProbeReply{}, failed
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	var trailer metadata.MD
	p, err := peerpb.NewPeerClient(c).Probe(n.outgoing(ctx), encodeProbeRequest(r), grpc.Trailer(&trailer))
	if err != nil {
		return ProbeReply{}, c.explain(ctx, err, trailer)
	}
	reply, err := decodeProbeReply(p)
	if err != nil {
		return ProbeReply{}, &ConnectError{Addr: addr, Failure: FailureError, Err: err}
	}
	return reply, nil
}

// Peers returns the status of every peer in the dial table, by id.
func (n *Network) Peers() []PeerStatus {
	links := *n.links.Load()
	all := make([]PeerStatus, 0, len(links))
	for _, id := range slices.Sorted(maps.Keys(links)) {
		all = append(all, links[id].snapshot())
	}
	return all
}

// link returns the row of id, or nil.
func (n *Network) link(id ident.MemberID) *link { return (*n.links.Load())[id] }
