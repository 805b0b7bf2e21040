package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/peer"
)

// port is what a process sees of the network.
type port struct{ m *member }

func (p port) Send(_ ident.GroupID, msgs []*pb.Message) {
	for _, msg := range msgs {
		p.m.mayLeave(msg)
		p.m.c.net.send(p.m, msg)
	}
}

// reach returns the member at addr if it answers now.
func (p port) reach(addr string) (*member, error) {
	c := p.m.c
	for _, o := range c.members {
		if o.addr == addr && o.up() && c.now >= o.pausedUntil && c.net.open(p.m.id, o.id) && c.net.open(o.id, p.m.id) {
			return o, nil
		}
	}
	return nil, fmt.Errorf("%s does not answer", addr)
}

// Probe is answered at once or not at all. It is called from several goroutines while the thread of the
// simulator waits for them, so it only looks.
func (p port) Probe(_ context.Context, addr string, req peer.ProbeRequest) (peer.ProbeReply, error) {
	o, err := p.reach(addr)
	if err != nil {
		return peer.ProbeReply{}, err
	}
	return o.process.Probe(req), nil
}

// FetchSnapshot brings an artifact in one moment, or a part of it.
func (p port) FetchSnapshot(ctx context.Context, addr string, r peer.SnapshotRequest) (peer.SnapshotHeader, *peer.SnapshotStream, error) {
	c := p.m.c
	o, err := p.reach(addr)
	if err != nil {
		return peer.SnapshotHeader{}, nil, err
	}
	t := &transfer{left: -1}
	if c.chance(0.4) {
		t.left = c.rng.IntN(6)
	}
	if o.divergent && o.bereft == nil {
		return peer.SnapshotHeader{}, nil, errBroken // what would be made from it: see divergent.go
	}
	p.m.tainted = o.damaged
	err = o.process.FetchSnapshot(ctx, r, t)
	c.note(o.id, "serves", p.m.id, uint64(len(t.chunks)), r.From)
	if o.dark() && err == nil {
		err = errBroken
	}
	if errors.Is(err, errBroken) {
		c.sometimes("transfer broken")
	}
	if t.header == nil {
		if err == nil {
			err = errBroken
		}
		return peer.SnapshotHeader{}, nil, err
	}
	if t.header.From != (peer.SnapshotCursor{}) {
		c.sometimes("transfer resumed")
	}
	if !t.header.Needed {
		c.sometimes("artifact not needed")
		o.look()
		return *t.header, nil, nil
	}
	next := func() (peer.SnapshotChunk, error) {
		if len(t.chunks) == 0 {
			if err == nil {
				return peer.SnapshotChunk{}, io.EOF
			}
			return peer.SnapshotChunk{}, err
		}
		x := t.chunks[0]
		t.chunks = t.chunks[1:]
		return x, nil
	}
	return *t.header, peer.NewSnapshotStream(next), nil
}

var errBroken = errors.New("the connection broke")

// transfer gathers what a source sends, until the connection breaks.
type transfer struct {
	header *peer.SnapshotHeader
	chunks []peer.SnapshotChunk
	left   int // chunks until the connection breaks; negative: it does not
}

func (t *transfer) Header(h peer.SnapshotHeader) error {
	t.header = &h
	return nil
}

func (t *transfer) Chunk(x peer.SnapshotChunk) error {
	if t.left == 0 {
		return errBroken
	}
	t.left--
	x.Data = bytes.Clone(x.Data)
	t.chunks = append(t.chunks, x)
	return nil
}

// Barrier asks for a barrier and says that there is none yet, until there is: nothing waits here. The
// caller's replica is closed meanwhile, or what was asked for is void.
func (p port) Barrier(_ context.Context, addr string, r peer.BarrierRequest) (peer.BarrierReply, error) {
	m := p.m
	o, err := p.reach(addr)
	if err != nil {
		return peer.BarrierReply{}, err
	}
	if !o.serving() {
		return peer.BarrierReply{}, errors.New("it has no open replica")
	}
	if _, refusal := o.process.Hello(r.Hello); refusal != nil {
		return peer.BarrierReply{}, refusal
	}
	if b := &m.barrier; b.answer == nil || b.life != m.life || b.of != o || b.ofLife != o.life {
		answer, err := o.driver.Barrier(r.Term)
		if err != nil {
			return peer.BarrierReply{}, err
		}
		*b = pendingBarrier{answer: answer, life: m.life, of: o, ofLife: o.life}
		o.look()
	}
	id, done, err := m.barrier.answer()
	if done {
		m.barrier = pendingBarrier{}
		if m.barred = err == nil; m.barred {
			m.c.sometimes("barrier given")
		}
		return peer.BarrierReply{Term: id.Term, Index: id.Index}, err
	}
	return peer.BarrierReply{}, errors.New("no answer yet")
}

// SendOutbox hands a delivery over at once, or not at all.
func (p port) SendOutbox(ctx context.Context, addr string, r peer.OutboxRequest) error {
	o, err := p.reach(addr)
	if err != nil {
		return err
	}
	defer o.look()
	return o.process.TakeOutbox(ctx, r)
}

// pendingBarrier is a barrier that was asked for.
type pendingBarrier struct {
	answer func() (ident.EntryID, bool, error)
	life   uint64 // of who asked
	of     *member
	ofLife uint64
}

// Permit is answered at once or not at all.
func (p port) Permit(ctx context.Context, addr string, r peer.PermitRequest) (peer.PermitReply, error) {
	o, err := p.reach(addr)
	if err != nil {
		return peer.PermitReply{}, err
	}
	reply, err := o.process.Permit(ctx, r)
	p.m.c.note(o.id, "permits", p.m.id)
	return reply, err
}

// Opened is told at once, or never: raft asks again.
func (p port) Opened(to ident.MemberID, groups []peer.GroupPosition) {
	o := p.m.c.byID(to)
	if o != nil && o.serving() && p.m.c.net.open(p.m.id, o.id) {
		o.process.Opened(p.m.as, groups)
		o.look()
	}
}
