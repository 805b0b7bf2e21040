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

// Members knows who belongs to the cluster. Its methods are called from many goroutines; only Farewell
// may block.
type Members interface {
	// Standing says why a peer may not go on with its stream; nil: it may. It is asked with every frame.
	Standing(Hello) *Refusal

	// Reports returns how far the replicas of this member are. Reported takes what a peer says of its own.
	Reports() []Report
	Reported(from ident.MemberID, reports []Report)

	// Farewell takes the word that this member belongs to the cluster no more, and returns nil once that
	// is durable here. An error says that it is not so, or could not be written down.
	Farewell(FarewellRequest) error
}

// Report has every connected peer told at once what Members.Reports returns.
func (n *Network) Report() {
	for _, l := range *n.links.Load() {
		l.mu.Lock()
		l.mu.report = true
		l.mu.Unlock()
		signal(l.wake)
	}
}

// takeReport reports whether reports are due, once.
func (l *link) takeReport() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	due := l.mu.report
	l.mu.report = false
	return due
}

func (n *Network) reports() []*peerpb.Report {
	if n.opts.Members == nil {
		return nil
	}
	var all []*peerpb.Report
	for _, r := range n.opts.Members.Reports() {
		all = append(all, &peerpb.Report{Group: uint32(r.Group), Applied: r.Applied, AppliedTerm: r.AppliedTerm, Committed: r.Committed})
	}
	return all
}

// Farewell tells the member at addr that it is removed, and returns nil once it has written that down.
// Errors are *ConnectError.
func (n *Network) Farewell(ctx context.Context, addr string, r FarewellRequest) error {
	c, failed := n.connect(ctx, addr)
	if failed != nil {
		return failed
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	var trailer metadata.MD
	_, err := peerpb.NewPeerClient(c).Farewell(n.outgoing(ctx), &peerpb.FarewellRequest{
		Cluster: r.Cluster[:], Member: uint64(r.Member), Incarnation: r.Incarnation[:], Expired: r.Expired, RosterVersion: r.RosterVersion,
	}, grpc.Trailer(&trailer))
	if err != nil {
		return c.explain(ctx, err, trailer)
	}
	return nil
}

// Farewell hands on that this member is removed.
func (s *server) Farewell(ctx context.Context, p *peerpb.FarewellRequest) (*peerpb.FarewellReply, error) {
	if err := s.authorise(ctx); err != nil {
		return nil, err
	}
	r := FarewellRequest{Member: ident.MemberID(p.GetMember()), Expired: p.GetExpired(), RosterVersion: p.GetRosterVersion()}
	for _, f := range []struct {
		dst  []byte
		what string
		from []byte
	}{{r.Cluster[:], "farewell: cluster", p.GetCluster()}, {r.Incarnation[:], "farewell: incarnation", p.GetIncarnation()}} {
		if err := fill(f.dst, f.what, f.from); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
	}
	if s.net.opts.Members == nil {
		return nil, status.Error(codes.Unimplemented, "this member is told nothing")
	}
	if err := s.net.opts.Members.Farewell(r); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &peerpb.FarewellReply{}, nil
}

// standing asks whether a peer may go on.
func (s *server) standing(h Hello) *Refusal {
	if s.net.opts.Members == nil {
		return nil
	}
	return s.net.opts.Members.Standing(h)
}

// reported hands on how far the replicas of a peer are.
func (s *server) reported(from ident.MemberID, f *peerpb.Frame) {
	if len(f.GetReports()) == 0 || s.net.opts.Members == nil {
		return
	}
	all := make([]Report, 0, len(f.GetReports()))
	for _, r := range f.GetReports() {
		all = append(all, Report{Group: ident.GroupID(r.GetGroup()), Applied: r.GetApplied(), AppliedTerm: r.GetAppliedTerm(), Committed: r.GetCommitted()})
	}
	s.net.opts.Members.Reported(from, all)
}
