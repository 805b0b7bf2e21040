package sim

import (
	"context"
	"errors"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/peer"
)

// FetchSnapshot, Barrier and Opened are not asked for: no log is compacted beyond what another member
// needs.
func (p port) FetchSnapshot(context.Context, string, peer.SnapshotRequest) (peer.SnapshotHeader, *peer.SnapshotStream, error) {
	return peer.SnapshotHeader{}, nil, errors.ErrUnsupported
}

func (p port) Barrier(context.Context, string, peer.BarrierRequest) (peer.BarrierReply, error) {
	return peer.BarrierReply{}, errors.ErrUnsupported
}

func (p port) Opened(ident.MemberID, []peer.GroupPosition) {}
