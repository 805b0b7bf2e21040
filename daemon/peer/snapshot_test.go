package peer

import (
	"context"
	"errors"
	"io"
	"reflect"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/ident"
)

// shelf serves one artifact, and remembers what it was told.
type shelf struct {
	header SnapshotHeader
	chunks []SnapshotChunk
	err    error // after the chunks

	asked  chan SnapshotRequest
	opened chan []GroupPosition
	pinned chan []Pin

	reported chan []DigestReport
}

func newShelf() *shelf {
	return &shelf{asked: make(chan SnapshotRequest, 10), opened: make(chan []GroupPosition, 10), pinned: make(chan []Pin, 100), reported: make(chan []DigestReport, 100)}
}

func (s *shelf) FetchSnapshot(_ context.Context, r SnapshotRequest, to SnapshotSender) error {
	s.asked <- r
	if err := to.Header(s.header); err != nil {
		return err
	}
	for _, c := range s.chunks {
		if err := to.Chunk(c); err != nil {
			return err
		}
	}
	return s.err
}

func (s *shelf) Barrier(_ context.Context, r BarrierRequest) (BarrierReply, error) {
	return BarrierReply{Term: r.Term + 1, Index: 99}, s.err
}

func (s *shelf) Permit(_ context.Context, r PermitRequest) (PermitReply, error) {
	return PermitReply{Granted: r.Group == 3, Refused: "one at a time", Term: 9, Window: time.Second}, s.err
}

func (s *shelf) Digested(_ ident.MemberID, d []DigestReport) {
	select {
	case s.reported <- d:
	default: // with every ping, and not every test looks
	}
}

func (s *shelf) Opened(_ ident.MemberID, g []GroupPosition) { s.opened <- g }
func (s *shelf) Durable(ident.MemberID, []GroupPosition)    {}

func (s *shelf) Pinned(_ ident.MemberID, p []Pin) { s.pinned <- p }

// An artifact comes as it was sent, on a connection of its own; a refusal comes as one, and any other
// error as one after which to ask again.
func TestNetwork_FetchesSnapshots(t *testing.T) {
	s := newShelf()
	s.header = SnapshotHeader{Needed: true, Term: 7, Manifest: make([]byte, 5<<20), From: SnapshotCursor{File: 1, Offset: 5}} // more than gRPC's own limit
	s.chunks = []SnapshotChunk{
		{At: SnapshotCursor{File: 1, Offset: 5}, Data: []byte("abc"), Sum: 17, Term: 7},
		{At: SnapshotCursor{File: 2}, Data: []byte("d"), Sum: 18, Term: 7},
	}
	source := startMember(t, 1, anyPort, func(o *Options) { o.Snapshots = s })
	m := startMember(t, 2, anyPort)
	want := SnapshotRequest{Hello: m.self(), Group: 3, From: 12, Always: true, Least: 9, Have: [16]byte{1}, Resume: SnapshotCursor{File: 1, Offset: 5}}
	h, stream, err := m.FetchSnapshot(t.Context(), source.addr, want)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if got := receive(t, s.asked, "the request"); !reflect.DeepEqual(got, want) {
		t.Errorf("asked %+v, want %+v", got, want)
	}
	if !reflect.DeepEqual(h, s.header) {
		t.Errorf("header of term %d from %v, want %v", h.Term, h.From, s.header.From)
	}
	for _, want := range s.chunks {
		if got, err := stream.Next(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Next = %+v, %v, want %+v", got, err, want)
		}
	}
	if _, err := stream.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last chunk: %v", err)
	}

	s.err = &Refusal{Reason: ReasonRemoved, Detail: "gone"}
	_, stream, err = m.FetchSnapshot(t.Context(), source.addr, want)
	for err == nil {
		_, err = stream.Next()
	}
	stream.Close()
	if e, ok := errors.AsType[*ConnectError](err); !ok || e.Refusal == nil || e.Refusal.Reason != ReasonRemoved {
		t.Errorf("a refusal came as %v", err)
	}
	if _, err := m.Barrier(t.Context(), source.addr, BarrierRequest{Hello: m.self(), Term: 4}); err == nil {
		t.Error("a refused barrier came as none")
	} else if e, ok := errors.AsType[*ConnectError](err); !ok || e.Refusal == nil || e.Refusal.Reason != ReasonRemoved {
		t.Errorf("a refused barrier came as %v", err)
	}

	s.err, s.header = nil, SnapshotHeader{Term: 7}
	if h, stream, err := m.FetchSnapshot(t.Context(), source.addr, want); err != nil || stream != nil || h.Needed {
		t.Errorf("not needed: %+v, %v, %v", h, stream, err)
	}
	if b, err := m.Barrier(t.Context(), source.addr, BarrierRequest{Hello: m.self(), Term: 4}); err != nil || b != (BarrierReply{5, 99}) {
		t.Errorf("Barrier = %v, %v", b, err)
	}
	if _, _, err := startMember(t, 3, anyPort, func(o *Options) { o.Key = []byte("another key") }).FetchSnapshot(t.Context(), source.addr, want); err == nil {
		t.Error("an artifact was given to somebody with another key")
	}
	if _, _, err := m.FetchSnapshot(t.Context(), m.addr, want); err == nil {
		t.Error("an artifact came from somebody who serves none")
	}
}

// Pings tell what is pinned, and a replica that was opened anew is told at once.
func TestNetwork_TellsPinsAndOpenings(t *testing.T) {
	s := newShelf()
	follower := startMember(t, 2, anyPort, func(o *Options) { o.Snapshots = s })
	pins := []Pin{{Group: 0, Term: 4, Index: 17}, {Group: 5, Term: 1}}
	leader := startMember(t, 1, anyPort, func(o *Options) {
		o.PingEvery, o.Pins = 10*time.Millisecond, func() []Pin { return pins }
	})
	leader.SetPeers([]Peer{{ID: 2, Addr: follower.addr}})
	if got := receive(t, s.pinned, "the pins"); !reflect.DeepEqual(got, pins) {
		t.Errorf("pinned %v, want %v", got, pins)
	}
	opened := []GroupPosition{{Group: 5, LastDurable: ident.EntryID{Term: 3, Index: 8}}}
	leader.Opened(2, opened)
	if got := receive(t, s.opened, "the opening"); !reflect.DeepEqual(got, opened) {
		t.Errorf("opened %v, want %v", got, opened)
	}
	leader.Opened(9, opened) // nobody
}
