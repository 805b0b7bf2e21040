package peer

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/peer/peerpb"
)

// Snapshots serves artifacts to peers, and is told what peers say about theirs. Its methods are called
// from many goroutines.
type Snapshots interface {
	// FetchSnapshot answers r through s, and may take as long as that takes. A *Refusal is told as one;
	// with any other error the caller may ask again.
	FetchSnapshot(ctx context.Context, r SnapshotRequest, s SnapshotSender) error

	// Barrier answers r. Errors as of FetchSnapshot.
	Barrier(ctx context.Context, r BarrierRequest) (BarrierReply, error)

	// Permit answers r. Errors as of FetchSnapshot.
	Permit(ctx context.Context, r PermitRequest) (PermitReply, error)

	// Opened takes the positions of replicas that a peer opened anew. It must not block.
	Opened(from ident.MemberID, groups []GroupPosition)

	// Pinned takes what a peer keeps its log for. It must not block.
	Pinned(from ident.MemberID, pins []Pin)

	// Durable takes how far the replicas of a peer are durable. It must not block.
	Durable(from ident.MemberID, groups []GroupPosition)

	// Digested takes what a peer's states added up to after their last checks, all that it says of them. It
	// must not block.
	Digested(from ident.MemberID, digests []DigestReport)
}

// SnapshotSender takes the answer to a SnapshotRequest: one header, then chunks.
type SnapshotSender interface {
	Header(SnapshotHeader) error
	Chunk(SnapshotChunk) error
}

// SnapshotRequest asks for an artifact of a group; see snapshot.Request, which it is on the wire.
type SnapshotRequest struct {
	Hello  Hello
	Group  ident.GroupID
	From   uint64
	Always bool
	Least  uint64
	Have   [16]byte
	Resume SnapshotCursor
}

// SnapshotCursor is a place in an artifact.
type SnapshotCursor struct {
	File   int
	Offset int64
}

// SnapshotHeader begins the answer to a SnapshotRequest.
type SnapshotHeader struct {
	Needed   bool
	Term     uint64
	Manifest []byte
	From     SnapshotCursor
}

// SnapshotChunk is a piece of an artifact.
type SnapshotChunk struct {
	At   SnapshotCursor
	Data []byte // belongs to the sender again once SnapshotSender.Chunk has returned
	Sum  uint32 // CRC32C of Data
	Term uint64
}

// BarrierRequest asks from which index on an artifact holds everything that the caller, whose replica
// is closed, can have acknowledged.
type BarrierRequest struct {
	Hello Hello
	Group ident.GroupID
	Term  uint64 // of the caller's votes
}

// BarrierReply is a leader's answer.
type BarrierReply struct{ Term, Index uint64 }

// PermitRequest asks the leader of a group whether a voter may close its replica to have its data
// replaced.
type PermitRequest struct {
	Hello Hello
	Group ident.GroupID
}

// PermitReply is a leader's answer.
type PermitReply struct {
	Granted bool
	Refused string // why not; empty: granted
	// The permit ends with the term, or after Window.
	Term   uint64
	Window time.Duration
}

// Pin says from which index on the leader of a group keeps its log; 0: nothing is pinned.
type Pin struct {
	Group       ident.GroupID
	Term, Index uint64
}

// FetchSnapshot asks the member at addr. The stream has a connection of its own; Close it, unless the
// header says that no artifact is needed. There is no time limit: keepalive finds a source that is
// gone. Errors are *ConnectError.
func (n *Network) FetchSnapshot(ctx context.Context, addr string, r SnapshotRequest) (SnapshotHeader, *SnapshotStream, error) {
	c, failed := n.connect(ctx, addr)
	if failed != nil {
		return SnapshotHeader{}, nil, failed
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &SnapshotStream{ctx: ctx, conn: c, cancel: cancel, faults: n.opts.Faults}
	h, err := s.open(n.outgoing(ctx), r)
	if err != nil {
		s.Close()
		return SnapshotHeader{}, nil, err
	}
	if !h.Needed {
		s.Close()
		return h, nil, nil
	}
	return h, s, nil
}

// SnapshotStream is an artifact on its way. It belongs to one goroutine.
type SnapshotStream struct {
	next func() (SnapshotChunk, error) // nil: from the connection

	ctx    context.Context
	conn   *conn
	cancel context.CancelFunc
	faults *Faults
	stream grpc.ServerStreamingClient[peerpb.SnapshotFrame]
	frame  snapshotFrame // that came last
}

// NewSnapshotStream returns a stream whose chunks come from next, which returns io.EOF after the last.
// For the simulator, which has no connections.
func NewSnapshotStream(next func() (SnapshotChunk, error)) *SnapshotStream {
	return &SnapshotStream{next: next}
}

func (s *SnapshotStream) open(ctx context.Context, r SnapshotRequest) (SnapshotHeader, error) {
	var err error
	s.stream, err = peerpb.NewPeerClient(s.conn).FetchSnapshot(ctx, encodeSnapshotRequest(r), grpc.MaxCallRecvMsgSize(maxFrameBytes), grpc.ForceCodecV2(newCodec()))
	if err != nil {
		return SnapshotHeader{}, s.conn.explain(s.ctx, err, nil)
	}
	if err := s.receive(); err != nil {
		return SnapshotHeader{}, err
	}
	h := s.frame.header
	if h == nil {
		return SnapshotHeader{}, s.broken("the first frame is no header")
	}
	return SnapshotHeader{Needed: h.GetNeeded(), Term: h.GetTerm(), Manifest: h.GetManifest(), From: decodeCursor(h.GetFrom())}, nil
}

// Next returns the next chunk, whose data is valid until it is called again, or io.EOF after the last one.
func (s *SnapshotStream) Next() (SnapshotChunk, error) {
	if s.next != nil {
		return s.next()
	}
	if err := s.receive(); err != nil {
		return SnapshotChunk{}, err
	}
	if v := s.faults.Judge(Party{Addr: s.conn.addr}, Both); v.Drop {
		return SnapshotChunk{}, &ConnectError{Addr: s.conn.addr, Failure: FailureFault, Err: &CutError{v.Lease, time.Until(v.Until)}}
	}
	if s.frame.empty {
		return SnapshotChunk{}, s.broken("a frame without a chunk")
	}
	return s.frame.chunk, nil
}

// receive puts what comes next into s.frame.
func (s *SnapshotStream) receive() error {
	err := s.stream.RecvMsg(&s.frame)
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return s.conn.explain(s.ctx, err, s.stream.Trailer())
}

func (s *SnapshotStream) broken(detail string) error {
	return &ConnectError{Addr: s.conn.addr, Failure: FailureError, Err: errors.New(detail)}
}

// Close ends the stream and its connection.
func (s *SnapshotStream) Close() {
	if s.conn == nil {
		return
	}
	s.cancel()
	s.conn.Close()
}

// Barrier asks the member at addr. Errors are *ConnectError.
func (n *Network) Barrier(ctx context.Context, addr string, r BarrierRequest) (BarrierReply, error) {
	c, failed := n.connect(ctx, addr)
	if failed != nil {
		return BarrierReply{}, failed
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	var trailer metadata.MD
	p, err := peerpb.NewPeerClient(c).Barrier(n.outgoing(ctx),
		&peerpb.BarrierRequest{Hello: encodeHello(r.Hello), Group: uint32(r.Group), Term: r.Term}, grpc.Trailer(&trailer))
	if err != nil {
		return BarrierReply{}, c.explain(ctx, err, trailer)
	}
	return BarrierReply{Term: p.GetTerm(), Index: p.GetIndex()}, nil
}

// Opened tells a connected peer that replicas were opened anew. One that is not connected learns it
// from the hello of the next stream.
func (n *Network) Opened(to ident.MemberID, groups []GroupPosition) {
	l := n.link(to)
	if l == nil {
		return
	}
	l.mu.Lock()
	if l.mu.status.Connected {
		l.mu.opened = append(l.mu.opened, groups...)
	}
	l.mu.Unlock()
	signal(l.wake)
}

// takeOpened returns what Opened left to be said.
func (l *link) takeOpened() []GroupPosition {
	l.mu.Lock()
	defer l.mu.Unlock()
	opened := l.mu.opened
	l.mu.opened = nil
	return opened
}

// FetchSnapshot hands a request of a peer to whoever serves artifacts.
func (s *server) FetchSnapshot(p *peerpb.SnapshotRequest, stream grpc.ServerStreamingServer[peerpb.SnapshotFrame]) error {
	if err := s.authorise(stream.Context()); err != nil {
		return err
	}
	r, err := decodeSnapshotRequest(p)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if s.net.opts.Snapshots == nil {
		return status.Error(codes.Unimplemented, "no artifacts are served here")
	}
	to := Party{ID: r.Hello.Member, Name: r.Hello.Name}
	err = s.net.opts.Snapshots.FetchSnapshot(stream.Context(), r, snapshotSender{stream, s.net.opts.Faults, to, s.buffers})
	return explainAnswer(err, func(refusal *Refusal) error { return s.refuse(stream, r.Hello, refusal) })
}

// Barrier hands a request of a peer to whoever serves artifacts.
func (s *server) Barrier(ctx context.Context, p *peerpb.BarrierRequest) (*peerpb.BarrierReply, error) {
	if err := s.authorise(ctx); err != nil {
		return nil, err
	}
	hello, err := decodeHello(p.GetHello())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if s.net.opts.Snapshots == nil {
		return nil, status.Error(codes.Unimplemented, "no artifacts are served here")
	}
	reply, err := s.net.opts.Snapshots.Barrier(ctx, BarrierRequest{Hello: hello, Group: ident.GroupID(p.GetGroup()), Term: p.GetTerm()})
	if err != nil {
		return nil, explainAnswer(err, func(refusal *Refusal) error {
			_ = grpc.SetTrailer(ctx, metadata.Pairs(refusalTrailer, refusal.Reason)) // the status says it too
			return status.Error(codes.FailedPrecondition, refusal.Detail)
		})
	}
	return &peerpb.BarrierReply{Term: reply.Term, Index: reply.Index}, nil
}

// explainAnswer tells a refusal as one and everything else as "ask again".
func explainAnswer(err error, refuse func(*Refusal) error) error {
	if err == nil {
		return nil
	}
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return refuse(refusal)
	}
	return status.Error(codes.Unavailable, err.Error())
}

// snapshotSender puts an answer on the wire.
type snapshotSender struct {
	stream grpc.ServerStreamingServer[peerpb.SnapshotFrame]
	faults *Faults
	to     Party

	buffers frameBuffers
}

func (s snapshotSender) Header(h SnapshotHeader) error {
	return s.stream.Send(&peerpb.SnapshotFrame{Header: &peerpb.SnapshotHeader{
		Needed: h.Needed, Term: h.Term, Manifest: h.Manifest, From: encodeCursor(h.From),
	}})
}

func (s snapshotSender) Chunk(c SnapshotChunk) error {
	if v := s.faults.Judge(s.to, Both); v.Drop {
		return &CutError{v.Lease, time.Until(v.Until)}
	}
	return s.stream.SendMsg(sentFrame{&peerpb.SnapshotFrame{Chunk: &peerpb.SnapshotChunk{
		At: encodeCursor(c.At), Data: c.Data, Checksum: c.Sum, Term: c.Term,
	}}, s.buffers})
}

func encodeCursor(c SnapshotCursor) *peerpb.SnapshotCursor {
	return &peerpb.SnapshotCursor{File: uint32(c.File), Offset: uint64(c.Offset)}
}

func decodeCursor(p *peerpb.SnapshotCursor) SnapshotCursor {
	return SnapshotCursor{File: int(p.GetFile()), Offset: int64(p.GetOffset())}
}

func encodeSnapshotRequest(r SnapshotRequest) *peerpb.SnapshotRequest {
	return &peerpb.SnapshotRequest{
		Hello: encodeHello(r.Hello), Group: uint32(r.Group), FromIndex: r.From, Always: r.Always, LeastIndex: r.Least,
		Have: r.Have[:], Resume: encodeCursor(r.Resume),
	}
}

func decodeSnapshotRequest(p *peerpb.SnapshotRequest) (SnapshotRequest, error) {
	hello, err := decodeHello(p.GetHello())
	r := SnapshotRequest{
		Hello: hello, Group: ident.GroupID(p.GetGroup()), From: p.GetFromIndex(), Always: p.GetAlways(), Least: p.GetLeastIndex(),
		Resume: decodeCursor(p.GetResume()),
	}
	return r, errors.Join(err, fill(r.Have[:], "snapshot request: artifact", p.GetHave()))
}

func encodePositions(groups []GroupPosition) []*peerpb.GroupPosition {
	var all []*peerpb.GroupPosition
	for _, g := range groups {
		all = append(all, &peerpb.GroupPosition{
			Group: uint32(g.Group), DurableTerm: g.LastDurable.Term, DurableIndex: g.LastDurable.Index, Term: g.Term,
		})
	}
	return all
}

func decodePositions(p []*peerpb.GroupPosition) []GroupPosition {
	var all []GroupPosition
	for _, g := range p {
		all = append(all, GroupPosition{
			Group:       ident.GroupID(g.GetGroup()),
			LastDurable: ident.EntryID{Term: g.GetDurableTerm(), Index: g.GetDurableIndex()},
			Term:        g.GetTerm(),
		})
	}
	return all
}

// pins is what this member pins, for a ping.
func (n *Network) pins() []*peerpb.Pin {
	if n.opts.Pins == nil {
		return nil
	}
	var all []*peerpb.Pin
	for _, p := range n.opts.Pins() {
		all = append(all, &peerpb.Pin{Group: uint32(p.Group), Term: p.Term, Index: p.Index})
	}
	return all
}

// notices hands on what a frame says beside its messages.
func (s *server) notices(from ident.MemberID, f *peerpb.Frame) {
	s.reported(from, f)
	h := s.net.opts.Snapshots
	if h == nil {
		return
	}
	if opened := f.GetOpened(); len(opened) > 0 {
		h.Opened(from, decodePositions(opened))
	}
	if at := f.GetAt(); len(at) > 0 {
		h.Durable(from, decodePositions(at))
	}
	if pins := f.GetPins(); len(pins) > 0 {
		all := make([]Pin, 0, len(pins))
		for _, p := range pins {
			all = append(all, Pin{Group: ident.GroupID(p.GetGroup()), Term: p.GetTerm(), Index: p.GetIndex()})
		}
		h.Pinned(from, all)
	}
	if f.GetPing() != 0 { // none is an answer too
		h.Digested(from, decodeDigests(f.GetDigests()))
	}
}
