package peer

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/peer/peerpb"
)

const (
	// digestBytes is the size of a digest.
	digestBytes = 32
	// maxDigests bounds what is taken of one ping.
	maxDigests = 4096
)

// DigestReport is what a member's state of a group added up to right after a check.
type DigestReport struct {
	Group   ident.GroupID
	Index   uint64 // of the check
	Version uint16 // of the digest
	Sum     [digestBytes]byte
}

// digests is what this member reports, for a ping.
func (n *Network) digests() []*peerpb.DigestReport {
	if n.opts.Digests == nil {
		return nil
	}
	var all []*peerpb.DigestReport
	for _, d := range n.opts.Digests() {
		all = append(all, &peerpb.DigestReport{Group: uint32(d.Group), Index: d.Index, Version: uint32(d.Version), Sum: d.Sum[:]})
	}
	return all
}

// decodeDigests leaves out what is no report.
func decodeDigests(p []*peerpb.DigestReport) []DigestReport {
	all := make([]DigestReport, 0, min(len(p), maxDigests))
	for _, d := range p[:min(len(p), maxDigests)] {
		if len(d.GetSum()) != digestBytes || d.GetVersion() == 0 || d.GetVersion() > 1<<16-1 {
			continue
		}
		all = append(all, DigestReport{
			Group: ident.GroupID(d.GetGroup()), Index: d.GetIndex(), Version: uint16(d.GetVersion()), Sum: [digestBytes]byte(d.GetSum()),
		})
	}
	return all
}

// Permit asks the member at addr. Errors are *ConnectError; a permit that is refused is none.
func (n *Network) Permit(ctx context.Context, addr string, r PermitRequest) (PermitReply, error) {
	c, failed := n.connect(ctx, addr)
	if failed != nil {
		return PermitReply{}, failed
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	var trailer metadata.MD
	p, err := peerpb.NewPeerClient(c).Permit(n.outgoing(ctx), &peerpb.PermitRequest{Hello: encodeHello(r.Hello), Group: uint32(r.Group)}, grpc.Trailer(&trailer))
	if err != nil {
		return PermitReply{}, c.explain(ctx, err, trailer)
	}
	return PermitReply{Granted: p.GetGranted(), Refused: p.GetRefused(), Term: p.GetTerm(), Window: time.Duration(p.GetWindowMs()) * time.Millisecond}, nil
}

// Permit hands a request of a peer to whoever leads the group.
func (s *server) Permit(ctx context.Context, p *peerpb.PermitRequest) (*peerpb.PermitReply, error) {
	if err := s.authorise(ctx); err != nil {
		return nil, err
	}
	hello, err := decodeHello(p.GetHello())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if s.net.opts.Snapshots == nil {
		return nil, status.Error(codes.Unimplemented, "no permits are given here")
	}
	reply, err := s.net.opts.Snapshots.Permit(ctx, PermitRequest{Hello: hello, Group: ident.GroupID(p.GetGroup())})
	if err != nil {
		return nil, explainAnswer(err, func(refusal *Refusal) error {
			_ = grpc.SetTrailer(ctx, metadata.Pairs(refusalTrailer, refusal.Reason)) // the status says it too
			return status.Error(codes.FailedPrecondition, refusal.Detail)
		})
	}
	return &peerpb.PermitReply{Granted: reply.Granted, Refused: reply.Refused, Term: reply.Term, WindowMs: uint64(reply.Window.Milliseconds())}, nil
}
