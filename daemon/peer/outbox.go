package peer

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/peer/peerpb"
)

// OutboxRequest hands a delivery of an outbox to the leader of a group. That it was taken says no more
// than that the leader will propose it: what the log has taken over stands in the state.
type OutboxRequest struct {
	Hello Hello
	Group ident.GroupID
	Write []byte // of command.EncodeWrite: one delivery
}

// Outboxes takes what peers deliver. It is called from many goroutines.
type Outboxes interface {
	// TakeOutbox answers r. A *Refusal is told as one; with any other error the caller may try again.
	TakeOutbox(ctx context.Context, r OutboxRequest) error
}

// SendOutbox hands a delivery to the member at addr. Errors are *ConnectError.
func (n *Network) SendOutbox(ctx context.Context, addr string, r OutboxRequest) error {
	c, failed := n.connect(ctx, addr)
	if failed != nil {
		return failed
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	var trailer metadata.MD
	_, err := peerpb.NewPeerClient(c).TakeOutbox(n.outgoing(ctx),
		&peerpb.OutboxRequest{Hello: encodeHello(r.Hello), Group: uint32(r.Group), Write: r.Write}, grpc.Trailer(&trailer))
	if err != nil {
		return c.explain(ctx, err, trailer)
	}
	return nil
}

// TakeOutbox hands a delivery of a peer on.
func (s *server) TakeOutbox(ctx context.Context, p *peerpb.OutboxRequest) (*peerpb.OutboxReply, error) {
	if err := s.authorise(ctx); err != nil {
		return nil, err
	}
	hello, err := decodeHello(p.GetHello())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if s.net.opts.Outboxes == nil {
		return nil, status.Error(codes.Unimplemented, "no outboxes are taken here")
	}
	err = s.net.opts.Outboxes.TakeOutbox(ctx, OutboxRequest{Hello: hello, Group: ident.GroupID(p.GetGroup()), Write: p.GetWrite()})
	if err != nil {
		return nil, explainAnswer(err, func(refusal *Refusal) error {
			_ = grpc.SetTrailer(ctx, metadata.Pairs(refusalTrailer, refusal.Reason)) // the status says it too
			return status.Error(codes.FailedPrecondition, refusal.Detail)
		})
	}
	return &peerpb.OutboxReply{}, nil
}
