package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/grpc"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/peer/peerpb"
)

const (
	// frameBytes is where a frame is cut, so that a heartbeat never waits behind much.
	frameBytes = 1 << 20
	// waitingBytes is what is kept for a peer that is not connected: the newest messages, so that
	// an election reaches a peer that is just starting.
	waitingBytes = 64 << 10

	// A lost peer is dialled at once, then after pauses that double from minPause to maxPause.
	minPause = 20 * time.Millisecond
	maxPause = time.Second
	// steadyAfter is how long a session must last to count as a success.
	steadyAfter = time.Second
)

// Reasons of dropped messages.
const (
	dropQueueFull    = "queue_full"   // the peer takes less than is sent to it
	dropDisconnected = "disconnected" // it was not connected, or its stream broke
	dropTooLarge     = "too_large"    // no frame can carry the message
	dropUnknownPeer  = "unknown_peer" // not in the dial table
	dropMisaddressed = "misaddressed" // received: not from the sender, not for us, or local to raft
	dropMalformed    = "malformed"    // received: not a frame; the stream ends
	dropFault        = "fault"        // a fault of a drill
)

// packet is one message in a queue.
type packet struct {
	group ident.GroupID
	msg   *pb.Message
	bytes int64 // cost(msg)
	// due is when a fault that delays lets the message go, as nanoseconds since Network.start; 0: at once.
	due int64
}

// cost estimates the encoded size of m from above, without a walk over every field.
func cost(m *pb.Message) int64 {
	n := 128 + len(m.GetContext())
	for _, e := range m.GetEntries() {
		n += 40 + len(e.GetData())
	}
	if s := m.GetSnapshot(); s != nil {
		n += len(s.GetData()) + 64 + 10*(len(s.GetMetadata().GetConfState().GetVoters())+
			len(s.GetMetadata().GetConfState().GetLearners())+
			len(s.GetMetadata().GetConfState().GetVotersOutgoing())+
			len(s.GetMetadata().GetConfState().GetLearnersNext()))
	}
	return int64(n)
}

// link is the sending end towards one peer. One goroutine, run, dials and writes; a second one reads
// pongs while a stream is open.
type link struct {
	net    *Network
	peer   Peer
	label  string // of metrics
	life   context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when run has returned
	wake   chan struct{} // capacity 1: the queue is not empty
	hint   chan struct{} // capacity 1: the peer was just here, dial now

	heardAt atomic.Int64  // nanoseconds since net.start; 0: never
	pinged  atomic.Int64  // when the last ping left, likewise; also its number
	asked   atomic.Uint64 // the peer's own ping that is not answered; 0: none

	lost limiter // of log lines about losing or not reaching the peer
	got  limiter // of log lines about reaching it

	mu struct {
		sync.Mutex
		queue  []packet
		bytes  int64 // of the queue and of what the writer took and has not sent
		opened []GroupPosition
		report bool // reports are due
		status PeerStatus
	}

	also bool // the next attempt is at Peer.Also; run's own
}

func newLink(n *Network, p Peer) *link {
	l := &link{
		net: n, peer: p, label: p.ID.String(),
		done: make(chan struct{}), wake: make(chan struct{}, 1), hint: make(chan struct{}, 1),
	}
	l.life, l.cancel = context.WithCancel(context.Background())
	l.mu.status.Peer = p
	return l
}

func (l *link) start() { go l.run() }

// party is whom the faults know the peer as.
func (l *link) party() Party { return Party{ID: l.peer.ID, Addr: l.peer.Addr} }

// cut reports whether a fault drops what is sent.
func (l *link) cut() bool { return l.net.opts.Faults.Judge(l.party(), Out).Drop }

// enqueue takes m or drops something. It never blocks.
func (l *link) enqueue(g ident.GroupID, m *pb.Message) {
	p := packet{group: g, msg: m, bytes: cost(m)}
	if p.bytes > maxFrameBytes-frameBytes {
		l.net.metrics.dropped(l.label, dropTooLarge, 1)
		return
	}
	if d := l.net.opts.Faults.Judge(l.party(), Out).Delay; d > 0 {
		p.due = int64(l.net.elapsed() + d)
	}
	l.mu.Lock()
	if l.mu.status.Connected && l.mu.bytes+p.bytes > l.net.opts.QueueBytes {
		l.mu.Unlock()
		l.net.metrics.dropped(l.label, dropQueueFull, 1)
		return
	}
	l.mu.queue = append(l.mu.queue, p)
	l.mu.bytes += p.bytes
	if !l.mu.status.Connected {
		l.trimLocked()
	}
	l.mu.Unlock()
	signal(l.wake)
}

// trimLocked keeps the newest waitingBytes of the queue. REQUIRES: l.mu held.
func (l *link) trimLocked() {
	n := 0
	for n < len(l.mu.queue) && l.mu.bytes > waitingBytes {
		l.mu.bytes -= l.mu.queue[n].bytes
		n++
	}
	if n > 0 {
		l.mu.queue = slices.Delete(l.mu.queue, 0, n)
		l.net.metrics.dropped(l.label, dropDisconnected, n)
	}
}

// run dials and serves sessions until the link is cancelled.
func (l *link) run() {
	defer close(l.done)
	var pause pause
	reached := false // since the port last refused, a session was open
	for {
		up, err := l.session(l.life)
		if l.life.Err() != nil {
			l.down(nil)
			return
		}
		reached = reached || up > 0
		if up == 0 { // the other address, next time
			l.also = !l.also
		}
		if up >= steadyAfter {
			pause.reset()
		}
		l.down(err)
		if reached && err.Failure == FailureRefused {
			reached = false
			l.net.opts.OnRefusedConnection(l.peer.ID)
		}
		timer := time.NewTimer(pause.next())
		select {
		case <-timer.C:
		case <-l.hint:
		case <-l.life.Done():
		}
		timer.Stop()
	}
}

// pause is the wait between attempts.
type pause struct{ d time.Duration }

func (p *pause) reset() { p.d = 0 }

// next returns nothing the first time, then a random part, at least half, of a pause that doubles.
func (p *pause) next() time.Duration {
	d := p.d
	p.d = min(max(2*d, minPause), maxPause)
	return d/2 + rand.N(d/2+1)
}

// session makes one attempt: connect, handshake, then write until the stream ends. It returns how
// long the stream was open.
func (l *link) session(ctx context.Context) (up time.Duration, _ *ConnectError) {
	if failed := l.net.pass(ctx, l.party()); failed != nil { // whatever address it is dialled at
		return 0, failed
	}
	c, failed := l.net.connect(ctx, l.addr())
	if failed != nil {
		return 0, failed
	}
	defer c.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	limit := time.AfterFunc(openTimeout, func() { cancel(context.DeadlineExceeded) })
	defer limit.Stop()
	stream, hello, failed := l.handshake(ctx, c)
	if failed != nil {
		return 0, failed
	}
	if !limit.Stop() {
		return 0, &ConnectError{Addr: c.addr, Failure: FailureTimeout, Err: context.DeadlineExceeded}
	}

	opened := time.Now()
	l.up(hello)
	var reader sync.WaitGroup
	reader.Go(func() { cancel(l.read(stream)) })
	cancel(l.write(ctx, stream))
	reader.Wait()
	e := c.explain(ctx, context.Cause(ctx), stream.Trailer())
	if e.Failure == FailureError {
		e.Failure = FailureBroken
	}
	return max(time.Since(opened), 1), e
}

// addr is where the next attempt goes. One that succeeded is tried again first.
func (l *link) addr() string {
	if l.also && l.peer.Also != "" {
		return l.peer.Also
	}
	return l.peer.Addr
}

// handshake opens the stream and changes hellos.
func (l *link) handshake(ctx context.Context, c *conn) (grpc.BidiStreamingClient[peerpb.Frame, peerpb.Frame], Hello, *ConnectError) {
	self := l.net.opts.Self()
	stream, err := peerpb.NewPeerClient(c).Stream(l.net.outgoing(ctx))
	if err != nil {
		return nil, Hello{}, c.explain(ctx, err, nil)
	}
	// A send that finds the stream ended says io.EOF; why it ended is what Recv returns.
	if err := stream.Send(&peerpb.Frame{Hello: encodeHello(self)}); err != nil && !errors.Is(err, io.EOF) {
		return nil, Hello{}, c.explain(ctx, err, nil)
	}
	first, err := stream.Recv()
	if err != nil {
		return nil, Hello{}, c.explain(ctx, err, stream.Trailer())
	}
	hello, err := decodeHello(first.GetHello())
	if err != nil {
		return nil, Hello{}, &ConnectError{Addr: c.addr, Failure: FailureError, Err: err}
	}
	if hello.Member != l.peer.ID || hello.Cluster != self.Cluster {
		return nil, Hello{}, &ConnectError{Addr: c.addr, Failure: FailureWrongMember, Err: fmt.Errorf(
			"member %s of cluster %s answers, want member %s of cluster %s", hello.Member, hello.Cluster, l.peer.ID, self.Cluster)}
	}
	return stream, hello, nil
}

// read takes pongs until the stream ends.
func (l *link) read(stream grpc.BidiStreamingClient[peerpb.Frame, peerpb.Frame]) error {
	for {
		f, err := stream.Recv()
		if err != nil {
			return err
		}
		if l.net.opts.Faults.Judge(l.party(), In).Drop {
			continue
		}
		l.heard()
		if ping := f.GetPing(); ping != 0 { // is this process alive?
			l.asked.Store(ping)
			signal(l.wake)
		}
		if pong := f.GetPong(); pong != 0 && pong == uint64(l.pinged.Load()) {
			rtt := l.net.elapsed() - time.Duration(pong)
			l.net.metrics.rtt.WithLabelValues(l.label).Set(rtt.Seconds())
			l.mu.Lock()
			l.mu.status.RTT = rtt
			l.mu.Unlock()
			if read := f.GetClock(); read != 0 { // an older binary does not say
				c := clockOf(read, l.net.opts.Now(), rtt)
				l.net.metrics.skew.WithLabelValues(l.label).Set(c.Skew.Seconds())
				l.net.opts.OnClock(l.peer.ID, c)
			}
		}
	}
}

// write sends what is queued, as few frames as the bound allows, and a ping every Options.PingEvery. It
// returns when the stream has ended or ctx is done.
func (l *link) write(ctx context.Context, stream grpc.BidiStreamingClient[peerpb.Frame, peerpb.Frame]) error {
	ping := l.net.opts.Beat.Every(l.net.opts.PingEvery)
	defer ping.Stop()
	due := time.NewTimer(0) // when the first message that a fault delays may go
	defer due.Stop()
	var batch []packet
	var frame frame
	for {
		var err error
		wake := false
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.wake:
			wake = true
		case <-due.C:
			wake = true
		case <-ping.C:
			ping.Took()
			if l.cut() {
				break
			}
			now := l.net.elapsed()
			l.pinged.Store(int64(now))
			err = stream.Send(&peerpb.Frame{Ping: uint64(now), Pins: l.net.pins(), Reports: l.net.reports(), Digests: l.net.digests(), At: encodePositions(l.net.opts.Self().Groups)})
		}
		if wake {
			if !l.cut() { // or else it is said when the fault is over
				if opened := l.takeOpened(); len(opened) > 0 {
					err = stream.Send(&peerpb.Frame{Opened: encodePositions(opened)})
				}
				if err == nil && l.takeReport() {
					err = stream.Send(&peerpb.Frame{Reports: l.net.reports()})
				}
				if ping := l.asked.Swap(0); ping != 0 && err == nil {
					err = stream.Send(&peerpb.Frame{Pong: ping})
				}
			}
			if err == nil {
				var wait time.Duration
				if batch, wait = l.take(batch); wait > 0 {
					due.Reset(wait)
				}
				err = l.flush(stream, &frame, batch)
			}
		}
		if errors.Is(err, io.EOF) {
			<-ctx.Done() // the reader gets the reason
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// take swaps the queue for the emptied batch. What it returns still counts as queued. What a fault
// delays stays, with all that follows it; wait is how long, 0: there is none.
func (l *link) take(batch []packet) (taken []packet, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken = l.mu.queue
	l.mu.queue = batch[:0]
	if l.net.opts.Faults.Judge(l.party(), Out).Delay == 0 { // a delay that was healed holds nothing up
		return taken, 0
	}
	for i := range taken {
		if taken[i].due == 0 {
			continue
		}
		if wait = time.Duration(taken[i].due) - l.net.elapsed(); wait > 0 {
			l.mu.queue = append(l.mu.queue, taken[i:]...)
			clear(taken[i:])
			return taken[:i], wait
		}
	}
	return taken, 0
}

// flush sends all of batch and clears it. If it fails, what was not sent counts as dropped.
func (l *link) flush(stream grpc.BidiStreamingClient[peerpb.Frame, peerpb.Frame], f *frame, batch []packet) error {
	defer clear(batch)
	defer f.clear()
	if len(batch) > 0 && l.cut() {
		bytes := int64(0)
		for _, p := range batch {
			bytes += p.bytes
		}
		l.release(bytes)
		l.net.metrics.dropped(l.label, dropFault, len(batch))
		return nil
	}
	for rest := batch; len(rest) > 0; {
		n, bytes := f.fill(rest)
		if err := stream.Send(&f.wire); err != nil {
			for _, p := range rest[n:] {
				bytes += p.bytes
			}
			l.release(bytes)
			l.net.metrics.dropped(l.label, dropDisconnected, len(rest))
			return err
		}
		l.release(bytes)
		l.net.metrics.sent(l.label, n, bytes)
		rest = rest[n:]
	}
	return nil
}

func (l *link) release(bytes int64) {
	l.mu.Lock()
	l.mu.bytes -= bytes
	l.mu.Unlock()
}

// frame is a wire frame that is filled again and again. gRPC has encoded it when Send returns.
type frame struct {
	wire    peerpb.Frame
	batches []*peerpb.Batch // every batch ever needed; wire.Batches is the part in use
}

// fill puts the first packets into the frame, at least one and at most frameBytes, one batch for each
// run of packets of a group. It returns how many and what they cost.
func (f *frame) fill(packets []packet) (n int, bytes int64) {
	f.clear()
	used := 0
	for _, p := range packets {
		if n > 0 && bytes+p.bytes > frameBytes {
			break
		}
		if n == 0 || f.batches[used-1].Group != uint32(p.group) {
			if used == len(f.batches) {
				f.batches = append(f.batches, &peerpb.Batch{})
			}
			f.batches[used].Group = uint32(p.group)
			used++
		}
		b := f.batches[used-1]
		b.Messages = append(b.Messages, p.msg)
		n++
		bytes += p.bytes
	}
	f.wire.Batches = f.batches[:used]
	return n, bytes
}

// clear lets the messages be collected.
func (f *frame) clear() {
	for _, b := range f.wire.Batches {
		clear(b.Messages)
		b.Messages = b.Messages[:0]
	}
	f.wire.Batches = nil
}

// up records a handshake.
func (l *link) up(hello Hello) {
	l.mu.Lock()
	s := &l.mu.status
	s.Connected, s.Hello, s.Failure, s.Detail, s.Refusal, s.RTT = true, &hello, FailureNone, "", nil, 0
	l.mu.Unlock()
	l.heard()
	l.net.metrics.connected.WithLabelValues(l.label).Set(1)
	if held, ok := l.got.allow(time.Now()); ok {
		l.net.opts.Logger.Info("peer connected", slog.Any("peer", l.peer.ID), slog.String("name", hello.Name),
			slog.String("addr", l.peer.Addr), slog.Int("held_back", held))
	}
	l.net.opts.OnStatus(l.snapshot())
}

// down records a failed attempt or a lost stream; nil: the link ends.
func (l *link) down(err *ConnectError) {
	l.mu.Lock()
	s := &l.mu.status
	s.Connected = false
	if err != nil {
		s.Failure, s.Detail = err.Failure, err.Err.Error()
		if err.Refusal != nil {
			s.Refusal = err.Refusal
		}
	}
	l.trimLocked()
	l.mu.Unlock()
	l.net.metrics.connected.WithLabelValues(l.label).Set(0)
	if err == nil {
		return
	}
	l.net.metrics.failures.WithLabelValues(l.label, string(err.Failure)).Inc()
	if err.Refusal != nil {
		l.net.metrics.refusals.WithLabelValues("received", reasonLabel(err.Refusal.Reason)).Inc()
	}
	if held, ok := l.lost.allow(time.Now()); ok {
		l.net.opts.Logger.Warn("peer not connected", slog.Any("peer", l.peer.ID), slog.String("addr", l.peer.Addr),
			slog.String("failure", string(err.Failure)), slog.Any("err", err.Err), slog.Int("held_back", held))
	}
	l.net.opts.OnStatus(l.snapshot())
}

// heard notes that the peer spoke now.
func (l *link) heard() { l.heardAt.Store(int64(l.net.elapsed())) }

func (l *link) snapshot() PeerStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.mu.status
	s.QueueBytes = l.mu.bytes
	if at := l.heardAt.Load(); at != 0 {
		s.LastHeard = l.net.start.Add(time.Duration(at))
	}
	return s
}

// elapsed is monotonic time since New, never 0.
func (n *Network) elapsed() time.Duration { return max(time.Since(n.start), 1) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
