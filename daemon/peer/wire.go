package peer

import (
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/peer/peerpb"
)

// Hello is what each side says of itself when a stream opens.
type Hello struct {
	Cluster       ident.ClusterID
	Member        ident.MemberID // never 0: a fresh member opens no stream
	Incarnation   ident.Incarnation
	Name          string
	BootEpoch     uint64
	Groups        []GroupPosition
	RosterVersion uint64
	Capabilities  ident.Capabilities
	Version       string // of the binary
	// GRPCAddr and HTTPAddr are advertised; empty: an older binary, which does not say.
	GRPCAddr, HTTPAddr string

	Life uint64 // drawn at every start of the process; 0: an older binary
	// Booted is how far the groups were when this process opened them first: before anybody could tell it
	// anything. Empty: an older binary.
	Booted  []GroupPosition
	History ident.History
}

// Report says how far a replica is.
type Report struct {
	Group       ident.GroupID
	Applied     uint64 // what its state reflects
	AppliedTerm uint64 // of that entry; 0: an older binary
	Committed   uint64 // up to where its disk knows the log to be committed
}

// FarewellRequest tells a member that it belongs to the cluster no more.
type FarewellRequest struct {
	Cluster       ident.ClusterID
	Member        ident.MemberID // who is told
	Incarnation   ident.Incarnation
	Expired       bool   // it was never heard of, and may join again
	RosterVersion uint64 // of the caller, which does not name it
}

// GroupPosition is how far a group is durable on the member that says so: the last entry, and the term.
type GroupPosition struct {
	Group       ident.GroupID
	LastDurable ident.EntryID
	Term        uint64 // that is durable: the member will not go back below it; 0: not said
}

// ProbeRequest says who asks.
type ProbeRequest struct {
	Name           string
	Incarnation    ident.Incarnation
	TopologyDigest [32]byte
}

// ProbeReply says who answers. It is given before and after birth.
type ProbeReply struct {
	Cluster        ident.ClusterID
	ID             ident.MemberID // 0: never admitted to a cluster
	Name           string
	Incarnation    ident.Incarnation
	Fresh          bool
	TopologyDigest [32]byte
	Genesis        []byte // encoded genesis record; nil while fresh
	RosterVersion  uint64
	Version        string
	Leader         ident.MemberID // 0: none known
	Term           uint64
	DiskFull       bool // client writes are refused for want of room
	Quarantined    bool // its replica of group 0 is in quarantine
	Reseeds        bool // its replica of group 0 waits to be installed again
}

// Reasons of a Refusal. They are part of the wire.
const (
	ReasonWrongCluster       = "wrong_cluster"
	ReasonIncarnationChanged = "incarnation_changed"
	ReasonRemoved            = "removed"
	ReasonExpired            = "expired"
	ReasonUnknownMember      = "unknown_member"
	ReasonAmnesia            = "amnesia"
	ReasonSnapshotRequired   = "snapshot_required"
	ReasonRejoin             = "rejoin"
	ReasonSteppingDown       = "stepping_down"
	ReasonUpgradeRequired    = "upgrade_required"
	ReasonNotBorn            = "not_born" // it belongs to no cluster yet: ask again
	ReasonDuplicate          = "duplicate_identity"
	ReasonFormerHistory      = "former_history" // the cluster was recovered without it
	ReasonOtherHistory       = "other_history"  // the cluster was recovered twice
)

// reasonLabel bounds the values of a metric label: a reason of a newer binary counts as "other".
func reasonLabel(reason string) string {
	switch reason {
	case ReasonWrongCluster, ReasonIncarnationChanged, ReasonRemoved, ReasonExpired, ReasonUnknownMember,
		ReasonAmnesia, ReasonSnapshotRequired, ReasonRejoin, ReasonSteppingDown, ReasonUpgradeRequired, ReasonNotBorn,
		ReasonDuplicate, ReasonFormerHistory, ReasonOtherHistory:
		return reason
	}
	return "other"
}

// Refusal is a typed no to a handshake.
type Refusal struct {
	Reason string // one of the constants, or what a newer binary says
	Detail string // for people
}

func (r *Refusal) Error() string {
	if r.Detail == "" {
		return r.Reason
	}
	return r.Reason + ": " + r.Detail
}

const (
	refusalTrailer = "tidal-refusal"

	maxReasonBytes = 64
	maxDetailBytes = 1 << 10
)

// parseRefusal reads what a peer put into the trailer and the status message.
func parseRefusal(reason, detail string) *Refusal {
	bad := func(c rune) bool { return c != '_' && (c < 'a' || c > 'z') }
	if reason == "" || len(reason) > maxReasonBytes || strings.ContainsFunc(reason, bad) {
		reason = "other"
	}
	if len(detail) > maxDetailBytes {
		detail = strings.ToValidUTF8(detail[:maxDetailBytes], "")
	}
	return &Refusal{Reason: reason, Detail: detail}
}

func encodeHello(h Hello) *peerpb.Hello {
	return &peerpb.Hello{
		Cluster: h.Cluster[:], Member: uint64(h.Member), Incarnation: h.Incarnation[:], Name: h.Name,
		BootEpoch: h.BootEpoch, Groups: encodePositions(h.Groups),
		RosterVersion: h.RosterVersion, Capabilities: uint64(h.Capabilities), Version: h.Version,
		GrpcAddr: h.GRPCAddr, HttpAddr: h.HTTPAddr,
		Life: h.Life, Booted: encodePositions(h.Booted), History: encodeHistory(h.History),
	}
}

func encodeHistory(h ident.History) *peerpb.History {
	if h == (ident.History{}) {
		return nil
	}
	return &peerpb.History{Epoch: h.Epoch, Nonce: h.Nonce}
}

func decodeHello(p *peerpb.Hello) (Hello, error) {
	if p == nil {
		return Hello{}, errors.New("the first frame is no hello")
	}
	h := Hello{
		Member: ident.MemberID(p.GetMember()), Name: p.GetName(), BootEpoch: p.GetBootEpoch(), Groups: decodePositions(p.GetGroups()),
		RosterVersion: p.GetRosterVersion(), Capabilities: ident.Capabilities(p.GetCapabilities()), Version: p.GetVersion(),
		GRPCAddr: p.GetGrpcAddr(), HTTPAddr: p.GetHttpAddr(),
		Life: p.GetLife(), Booted: decodePositions(p.GetBooted()), History: ident.History{Epoch: p.GetHistory().GetEpoch(), Nonce: p.GetHistory().GetNonce()},
	}
	if h.Member == 0 {
		return Hello{}, errors.New("hello: no member id")
	}
	return h, errors.Join(
		fill(h.Cluster[:], "hello: cluster", p.GetCluster()),
		fill(h.Incarnation[:], "hello: incarnation", p.GetIncarnation()))
}

func encodeProbeRequest(r ProbeRequest) *peerpb.ProbeRequest {
	return &peerpb.ProbeRequest{Name: r.Name, Incarnation: r.Incarnation[:], TopologyDigest: r.TopologyDigest[:]}
}

func decodeProbeRequest(p *peerpb.ProbeRequest) (ProbeRequest, error) {
	r := ProbeRequest{Name: p.GetName()}
	return r, errors.Join(
		fill(r.Incarnation[:], "probe: incarnation", p.GetIncarnation()),
		fill(r.TopologyDigest[:], "probe: topology digest", p.GetTopologyDigest()))
}

func encodeProbeReply(r ProbeReply) *peerpb.ProbeReply {
	return &peerpb.ProbeReply{
		Cluster: r.Cluster[:], Member: uint64(r.ID), Name: r.Name, Incarnation: r.Incarnation[:], Fresh: r.Fresh,
		TopologyDigest: r.TopologyDigest[:], Genesis: r.Genesis, RosterVersion: r.RosterVersion, Version: r.Version,
		Leader: uint64(r.Leader), Term: r.Term, DiskFull: r.DiskFull,
		Quarantined: r.Quarantined, Reseeds: r.Reseeds,
	}
}

func decodeProbeReply(p *peerpb.ProbeReply) (ProbeReply, error) {
	r := ProbeReply{
		ID: ident.MemberID(p.GetMember()), Name: p.GetName(), Fresh: p.GetFresh(), Genesis: p.GetGenesis(),
		RosterVersion: p.GetRosterVersion(), Version: p.GetVersion(), Leader: ident.MemberID(p.GetLeader()), Term: p.GetTerm(),
		DiskFull: p.GetDiskFull(), Quarantined: p.GetQuarantined(), Reseeds: p.GetReseeds(),
	}
	return r, errors.Join(
		fill(r.Cluster[:], "probe reply: cluster", p.GetCluster()),
		fill(r.Incarnation[:], "probe reply: incarnation", p.GetIncarnation()),
		fill(r.TopologyDigest[:], "probe reply: topology digest", p.GetTopologyDigest()))
}

// fill copies b, which must be as long as dst.
func fill(dst []byte, what string, b []byte) error {
	if len(b) != len(dst) {
		return fmt.Errorf("%s: want %d bytes, got %d", what, len(dst), len(b))
	}
	copy(dst, b)
	return nil
}

// accept hands the messages of one frame on, a call of deliver a batch, and returns how many it
// dropped: those that the member from did not send, that are not for self, or of a type that raft
// only says to itself.
func accept(batches []*peerpb.Batch, from, self ident.MemberID, deliver func(ident.GroupID, []*pb.Message)) (dropped int) {
	for _, b := range batches {
		msgs := b.GetMessages()
		kept := msgs[:0]
		for _, m := range msgs {
			if m.GetFrom() == uint64(from) && m.GetTo() == uint64(self) && !raft.IsLocalMsg(m.GetType()) {
				kept = append(kept, m)
			}
		}
		dropped += len(msgs) - len(kept)
		if len(kept) > 0 {
			deliver(ident.GroupID(b.GetGroup()), kept)
		}
	}
	return dropped
}
