package peer

import (
	"context"
	"crypto/subtle"
	"log/slog"
	"net"
	"sync"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/peer/peerpb"
)

// Headers of every call.
const (
	authorization = "authorization" // the peer key
	callerName    = "tidal-from"    // the name of who calls; the faults of a drill go by it
)

// server answers the calls of peers.
type server struct {
	peerpb.UnimplementedPeerServer
	net     *Network
	buffers frameBuffers
}

func newServer(n *Network) *grpc.Server {
	opts := []grpc.ServerOption{
		grpc.WaitForHandlers(true), // Stop joins them
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(maxFrameBytes),
		grpc.ConnectionTimeout(openTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.InitialWindowSize(windowBytes),
		grpc.InitialConnWindowSize(windowBytes),
		grpc.ReadBufferSize(bufferBytes),
		grpc.WriteBufferSize(bufferBytes),
	}
	if n.opts.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(n.opts.TLS)))
	}
	s := grpc.NewServer(opts...)
	peerpb.RegisterPeerServer(s, &server{net: n, buffers: frameBuffers{&sync.Pool{}}})
	return s
}

// Probe answers a caller that has the key.
func (s *server) Probe(ctx context.Context, p *peerpb.ProbeRequest) (*peerpb.ProbeReply, error) {
	if err := s.authorise(ctx); err != nil {
		return nil, err
	}
	r, err := decodeProbeRequest(p)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return encodeProbeReply(s.net.opts.Handler.Probe(r)), nil
}

// Stream answers the handshake, then delivers what arrives until the stream ends.
func (s *server) Stream(stream grpc.BidiStreamingServer[peerpb.Frame, peerpb.Frame]) error {
	if err := s.authorise(stream.Context()); err != nil {
		return err
	}
	first, err := s.receive(stream)
	if err != nil {
		return err
	}
	hello, err := decodeHello(first.GetHello())
	if err != nil {
		s.net.metrics.receiveDropped.WithLabelValues(dropMalformed).Inc()
		return status.Error(codes.InvalidArgument, err.Error())
	}
	from := Party{ID: hello.Member, Name: hello.Name}
	if refusal := s.contend(hello); refusal != nil {
		return s.refuse(stream, hello, refusal)
	}
	reply, refusal := s.net.opts.Handler.Hello(hello)
	if refusal != nil {
		return s.refuse(stream, hello, refusal)
	}
	here, ok := s.net.sessions.open(hello, stream)
	if !ok {
		return status.Error(codes.Unavailable, "another process of this identity came first: ask again")
	}
	defer s.net.sessions.end(here)
	if err := here.send(&peerpb.Frame{Hello: encodeHello(reply)}); err != nil {
		return err
	}
	if l := s.net.link(hello.Member); l != nil {
		signal(l.hint) // it is up: our own stream to it need not wait for its pause to end
	}
	deliver := func(g ident.GroupID, msgs []*pb.Message) { s.net.opts.Handler.Deliver(hello.Member, g, msgs) }
	missed := false // a fault dropped what is said only once
	for {
		f, err := s.receive(stream)
		if err != nil {
			return err
		}
		if s.net.opts.Faults.Judge(from, In).Drop {
			for _, b := range f.GetBatches() {
				s.net.metrics.receiveDropped.WithLabelValues(dropFault).Add(float64(len(b.GetMessages())))
			}
			missed = missed || len(f.GetOpened()) > 0
			continue
		}
		if missed { // a new stream begins with all of it
			return status.Error(codes.Unavailable, "a fault of a drill dropped what is said only once")
		}
		if refusal := here.takes(f); refusal != nil {
			return s.refuse(stream, hello, refusal)
		}
		if l := s.net.link(hello.Member); l != nil {
			l.heard()
		}
		if refusal := s.standing(hello); refusal != nil {
			return s.refuse(stream, hello, refusal)
		}
		if n := accept(f.GetBatches(), hello.Member, reply.Member, deliver); n > 0 {
			s.net.metrics.receiveDropped.WithLabelValues(dropMisaddressed).Add(float64(n))
		}
		s.notices(hello.Member, f)
		if ping := f.GetPing(); ping != 0 && !s.net.opts.Faults.Judge(from, Out).Drop {
			if err := here.send(&peerpb.Frame{Pong: ping, Clock: s.net.opts.Now().UnixMilli()}); err != nil {
				return err
			}
		}
	}
}

// receive takes the next frame and counts it.
func (s *server) receive(stream grpc.BidiStreamingServer[peerpb.Frame, peerpb.Frame]) (*peerpb.Frame, error) {
	f, err := stream.Recv()
	switch status.Code(err) {
	case codes.OK:
		s.net.metrics.receivedFrames.Inc()
		for _, b := range f.GetBatches() {
			s.net.metrics.receivedMessages.Add(float64(len(b.GetMessages())))
		}
	case codes.Internal, codes.ResourceExhausted: // gRPC could not decode it, or it is too large
		s.net.metrics.receiveDropped.WithLabelValues(dropMalformed).Inc()
	}
	return f, err
}

func (s *server) refuse(stream grpc.ServerStream, hello Hello, r *Refusal) error {
	s.net.metrics.refusals.WithLabelValues("given", reasonLabel(r.Reason)).Inc()
	if held, ok := s.net.refusals.allow(time.Now()); ok {
		s.net.opts.Logger.Warn("peer session refused", slog.Any("peer", hello.Member), slog.String("name", hello.Name),
			slog.String("reason", r.Reason), slog.String("detail", r.Detail), slog.Int("held_back", held))
	}
	stream.SetTrailer(metadata.Pairs(refusalTrailer, r.Reason))
	return status.Error(codes.FailedPrecondition, r.Detail)
}

// authorise asks for the peer key; without one it asks for a verified certificate or a caller on
// this host. A call that a fault drops stays without an answer for as long as the fault lasts.
func (s *server) authorise(ctx context.Context) error {
	if err := s.known(ctx); err != nil {
		return err
	}
	md, _ := metadata.FromIncomingContext(ctx)
	for _, name := range md.Get(callerName) {
		if err := s.net.opts.Faults.Silence(ctx, Party{Name: name}); err != nil {
			return status.Error(codes.Unavailable, err.Error())
		}
	}
	return nil
}

// known is authorise without the faults. The comparison takes the same time wherever the keys differ.
func (s *server) known(ctx context.Context) error {
	if s.net.bearer == "" {
		if p, ok := grpcpeer.FromContext(ctx); ok && (verified(p.AuthInfo) || onLoopback(p.Addr)) {
			return nil
		}
		return status.Error(codes.Unauthenticated, "without a peer key only this host may call")
	}
	md, _ := metadata.FromIncomingContext(ctx)
	for _, v := range md.Get(authorization) {
		if subtle.ConstantTimeCompare([]byte(v), []byte(s.net.bearer)) == 1 {
			return nil
		}
	}
	return status.Error(codes.Unauthenticated, "the peer key is missing or wrong")
}

func verified(info credentials.AuthInfo) bool {
	t, ok := info.(credentials.TLSInfo)
	return ok && len(t.State.VerifiedChains) > 0
}

func onLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
