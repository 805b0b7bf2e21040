package sweep

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/datadir"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/member"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/peer"
	"github.com/tidaldb/tidal/daemon/replica"
	"github.com/tidaldb/tidal/testenv/simfs"
)

const dataDir = "/srv/tidal"

// segmentBytes has the log of a short script rotate.
const segmentBytes = 2 << 10

// patience bounds every wait for something that must happen.
const patience = 20 * time.Second

// room is where the members of one cluster hear each other. Nothing leaves a member whose power is
// off.
type room struct {
	declared []membership.Declared

	// tick of the raft clock: longer where members wait for each other.
	tick time.Duration

	// witness is called with every message that leaves, before it does; nil: not.
	witness func(n *node, m *pb.Message)

	mu    sync.Mutex
	nodes map[string]*node // running, by name
}

func newRoom(members int) *room {
	r := &room{nodes: map[string]*node{}, tick: 2 * time.Millisecond}
	if members > 1 {
		r.tick = 5 * time.Millisecond
	}
	for i := range members {
		name := fmt.Sprintf("m%d", i+1)
		r.declared = append(r.declared, membership.Declared{Name: name, GRPCAddr: name + ":7001", HTTPAddr: name + ":7000"})
	}
	return r
}

// node is one running member.
type node struct {
	room *room
	name string
	fs   *simfs.FS
	dir  *datadir.Dir
	// reached are the members, by id, that have taken this one's hello: as soon as they have something
	// to say to it.
	reached sync.Map
	*member.Member
}

// boot starts the member called name on what fs holds. An error is what makes the process exit.
func (r *room) boot(name string, fs *simfs.FS) (*node, error) {
	dir, err := openDir(name, fs)
	if err != nil {
		return nil, err
	}
	n := &node{room: r, name: name, fs: fs, dir: dir}
	n.Member = member.New(member.Options{
		Dir: dir, DataDir: dataDir, FS: fs, Name: name, GRPCAddr: name + ":7001", HTTPAddr: name + ":7000",
		Declared: r.declared, Tick: r.tick, HeartbeatTicks: 1, ElectionTicks: 10, Now: time.Now,
		SegmentBytes: segmentBytes, FirstSegmentBytes: segmentBytes,
	})
	r.mu.Lock()
	r.nodes[name] = n
	r.mu.Unlock()
	if err := n.Start(n); err != nil {
		n.stop()
		return nil, err
	}
	return n, nil
}

func openDir(name string, fs *simfs.FS) (*datadir.Dir, error) {
	return datadir.Open(datadir.Options{Path: dataDir, Name: name, FS: fs, FileID: func(path string) (datadir.FileID, error) {
		inode, err := fs.Inode(path)
		return datadir.FileID{Inode: inode}, err
	}})
}

// stop ends the process in good order, as far as its disk lets it.
func (n *node) stop() {
	n.room.mu.Lock()
	delete(n.room.nodes, n.name)
	n.room.mu.Unlock()
	_ = n.Stop()
	_ = n.dir.Close()
}

// FetchSnapshot, Barrier and Opened are of no use in a room: nobody in it falls that far behind.
func (n *node) FetchSnapshot(context.Context, string, peer.SnapshotRequest) (peer.SnapshotHeader, *peer.SnapshotStream, error) {
	return peer.SnapshotHeader{}, nil, errors.ErrUnsupported
}

func (n *node) Barrier(context.Context, string, peer.BarrierRequest) (peer.BarrierReply, error) {
	return peer.BarrierReply{}, errors.ErrUnsupported
}

func (n *node) Permit(context.Context, string, peer.PermitRequest) (peer.PermitReply, error) {
	return peer.PermitReply{}, errors.ErrUnsupported
}

// SendOutbox hands a delivery on as a call.
func (n *node) SendOutbox(ctx context.Context, addr string, r peer.OutboxRequest) error {
	n.room.mu.Lock()
	to := n.room.nodes[addr[:len(addr)-len(":7001")]]
	n.room.mu.Unlock()
	if to == nil || to.fs.Off() || n.fs.Off() {
		return errors.New("connection refused")
	}
	return to.Member.TakeOutbox(ctx, r)
}

func (n *node) Opened(ident.MemberID, []peer.GroupPosition) {}

func (n *node) Report() {}

func (n *node) Farewell(context.Context, string, peer.FarewellRequest) error {
	return errors.New("nobody is removed")
}

// SetPeers does nothing: the room knows everybody.
func (n *node) SetPeers([]peer.Peer) {}

// Send carries messages as bytes.
func (n *node) Send(g ident.GroupID, msgs []*pb.Message) {
	if n.fs.Off() {
		return
	}
	for _, m := range msgs {
		if n.room.witness != nil {
			n.room.witness(n, m)
		}
		b, err := proto.Marshal(m)
		if err != nil {
			panic(err)
		}
		copied := &pb.Message{}
		if err := proto.Unmarshal(b, copied); err != nil {
			panic(err)
		}
		if to := n.room.byID(ident.MemberID(m.GetTo())); to != nil {
			if _, before := to.reached.LoadOrStore(n.dir.Member().ID, true); !before {
				to.PeerChanged(peer.PeerStatus{Peer: peer.Peer{ID: n.dir.Member().ID}, Connected: true})
			}
			to.Deliver(ident.MemberID(m.GetFrom()), g, []*pb.Message{copied})
		}
	}
}

func (r *room) byID(id ident.MemberID) *node {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.nodes {
		if n.dir.Member().ID == id {
			return n
		}
	}
	return nil
}

// Probe asks the member at addr, which is up if it runs.
func (n *node) Probe(_ context.Context, addr string, req peer.ProbeRequest) (peer.ProbeReply, error) {
	n.room.mu.Lock()
	to := n.room.nodes[addr[:len(addr)-len(":7001")]]
	n.room.mu.Unlock()
	if to == nil || to.fs.Off() {
		return peer.ProbeReply{}, errors.New("connection refused")
	}
	return to.Member.Probe(req), nil
}

func signal(item string) []byte {
	return command.EncodeWrite(command.Write{Records: []command.Record{command.Signal{Item: item, Type: "view", Milli: 1000}}})
}

// count returns how often item was signalled in n's state.
func (n *node) count(item string) (uint64, error) {
	r, err := n.Replica(0)
	if err != nil {
		return 0, err
	}
	view := r.View()
	defer view.Close()
	b, ok, err := view.Get(entity.AppendRowKey(nil, entity.DefaultCollection().ID, item))
	if err != nil || !ok {
		return 0, err
	}
	var row entity.Row
	err = row.Decode(b)
	return row.Total(0).Count, err
}

var errNobody = errors.New("no leader in time")

// write writes item once through whoever of nodes leads.
func write(ctx context.Context, item string, nodes ...*node) error {
	for ctx.Err() == nil {
		for _, n := range nodes {
			r, err := n.Replica(0)
			if err != nil {
				if len(nodes) == 1 {
					return err
				}
				continue
			}
			_, err = r.Write(ctx, signal(item))
			if _, elsewhere := errors.AsType[*replica.NotLeaderError](err); !elsewhere {
				return err
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
	return errNobody
}
