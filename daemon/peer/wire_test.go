package peer

import (
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/peer/peerpb"
)

var rewrite = flag.Bool("rewrite", false, "write the fixtures anew")

// A frame of a released version is read for ever.
func TestWire_Fixtures(t *testing.T) {
	hello := (&member{id: 2}).self()
	heartbeat := &pb.Message{Type: pb.MsgHeartbeat.Enum(), From: proto.Uint64(1), To: proto.Uint64(2), Term: proto.Uint64(3), Commit: proto.Uint64(9)}
	for _, tc := range []struct {
		file  string
		frame *peerpb.Frame
	}{
		{"hello-v1.hex", &peerpb.Frame{Hello: encodeHello(hello)}},
		{"batches-v1.hex", &peerpb.Frame{Ping: 77, Batches: []*peerpb.Batch{
			{Messages: []*pb.Message{heartbeat, message(1, 2, 300, 3)}}, {Group: 6, Messages: []*pb.Message{heartbeat}}}}},
	} {
		t.Run(tc.file, func(t *testing.T) {
			path := filepath.Join("testdata", tc.file)
			if *rewrite {
				b, err := proto.MarshalOptions{Deterministic: true}.Marshal(tc.frame)
				if err == nil {
					err = os.WriteFile(path, []byte(hex.EncodeToString(b)+"\n"), 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b, err := hex.DecodeString(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			var got peerpb.Frame
			if err := proto.Unmarshal(b, &got); err != nil || !proto.Equal(&got, tc.frame) {
				t.Errorf("frame = %v, %v, want %v", &got, err, tc.frame)
			}
			if len(got.ProtoReflect().GetUnknown()) != 0 {
				t.Error("the fixture has fields that this binary does not know")
			}
		})
	}
}

func TestWire_HelloAndProbeRoundTrip(t *testing.T) {
	hello := (&member{id: 2}).self()
	if got, err := decodeHello(encodeHello(hello)); err != nil || !reflect.DeepEqual(got, hello) {
		t.Errorf("hello = %+v, %v, want %+v", got, err, hello)
	}
	for _, tc := range []struct {
		name  string
		hello *peerpb.Hello
		want  string
	}{
		{"none", nil, "the first frame is no hello"},
		{"no member", &peerpb.Hello{Cluster: make([]byte, 16), Incarnation: make([]byte, 16)}, "hello: no member id"},
		{"short cluster", &peerpb.Hello{Member: 1, Cluster: make([]byte, 15), Incarnation: make([]byte, 16)}, "hello: cluster: want 16 bytes, got 15"},
		{"no incarnation", &peerpb.Hello{Member: 1, Cluster: make([]byte, 16)}, "hello: incarnation: want 16 bytes, got 0"},
	} {
		if _, err := decodeHello(tc.hello); err == nil || err.Error() != tc.want {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	if _, err := decodeProbeReply(&peerpb.ProbeReply{}); err == nil {
		t.Error("an empty probe reply is taken")
	}
	if _, err := decodeProbeRequest(nil); err == nil {
		t.Error("an empty probe request is taken")
	}
}

func TestParseRefusal_BoundsWhatAPeerSays(t *testing.T) {
	long := strings.Repeat("é", maxDetailBytes)
	for _, tc := range []struct{ reason, detail, want string }{
		{"removed", "by an operator", "removed: by an operator"},
		{"from_the_future", "", "from_the_future"},
		{"", "", "other"},
		{"Not a reason\n", "x", "other: x"},
		{strings.Repeat("a", maxReasonBytes+1), "", "other"},
		{"expired", long, "expired: " + long[:maxDetailBytes]},
	} {
		if got := parseRefusal(tc.reason, tc.detail).Error(); got != tc.want {
			t.Errorf("parseRefusal(%.20q, %.20q) = %.40q, want %.40q", tc.reason, tc.detail, got, tc.want)
		}
	}
	if got := reasonLabel("from_the_future"); got != "other" {
		t.Errorf("reasonLabel = %q, want other", got)
	}
}

func FuzzAccept(f *testing.F) {
	good, _ := proto.Marshal(&peerpb.Frame{Batches: []*peerpb.Batch{{Group: 3, Messages: []*pb.Message{message(1, 2, 5, 4), message(3, 2, 6, 0)}}}})
	f.Add(good)
	f.Add([]byte{0x12, 0x02, 0x12, 0x00}) // an empty message: MsgHup, which raft says only to itself
	f.Fuzz(func(t *testing.T, b []byte) {
		var frame peerpb.Frame
		if proto.Unmarshal(b, &frame) != nil {
			return
		}
		total, kept := 0, 0
		for _, batch := range frame.GetBatches() {
			total += len(batch.GetMessages())
		}
		dropped := accept(frame.GetBatches(), 1, 2, func(_ ident.GroupID, msgs []*pb.Message) {
			for _, m := range msgs {
				if m.GetFrom() != 1 || m.GetTo() != 2 || m.GetType() == pb.MsgHup {
					t.Errorf("accepted %v", m)
				}
			}
			kept += len(msgs)
		})
		if kept+dropped != total {
			t.Errorf("kept %d and dropped %d of %d", kept, dropped, total)
		}
	})
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string                       { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }

// rawStream opens a stream to m that sends whatever it is told.
func rawStream(t *testing.T, m *member) grpc.ClientStream {
	t.Helper()
	ctx := testContext(t)
	c, failed := m.Network.connect(ctx, m.addr)
	if failed != nil {
		t.Fatal(failed)
	}
	t.Cleanup(c.Close)
	stream, err := c.NewStream(m.outgoing(ctx), &peerpb.Peer_ServiceDesc.Streams[0], peerpb.Peer_Stream_FullMethodName, grpc.ForceCodec(rawCodec{}))
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func sendFrame(t *testing.T, s grpc.ClientStream, f *peerpb.Frame) {
	t.Helper()
	b, err := proto.Marshal(f)
	if err == nil {
		err = s.SendMsg(&b)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func recvFrame(s grpc.ClientStream) (*peerpb.Frame, error) {
	var b []byte
	if err := s.RecvMsg(&b); err != nil {
		return nil, err
	}
	f := new(peerpb.Frame)
	return f, proto.Unmarshal(b, f)
}

func TestServer_SurvivesMalformedStreams(t *testing.T) {
	m := startMember(t, 2, anyPort)
	garbage := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	hello := &peerpb.Frame{Hello: encodeHello((&member{id: 1}).self())}
	for _, tc := range []struct {
		name string
		send func(grpc.ClientStream)
		want codes.Code
	}{
		{"garbage at once", func(s grpc.ClientStream) { _ = s.SendMsg(&garbage) }, codes.Internal},
		{"no hello", func(s grpc.ClientStream) { sendFrame(t, s, &peerpb.Frame{Ping: 1}) }, codes.InvalidArgument},
		{"hello of nobody", func(s grpc.ClientStream) { sendFrame(t, s, &peerpb.Frame{Hello: &peerpb.Hello{}}) }, codes.InvalidArgument},
		{"garbage after the hello", func(s grpc.ClientStream) {
			sendFrame(t, s, hello)
			if f, err := recvFrame(s); err != nil || f.GetHello().GetMember() != 2 {
				t.Errorf("handshake: %v, %v", f, err)
			}
			_ = s.SendMsg(&garbage)
		}, codes.Internal},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := rawStream(t, m)
			tc.send(s)
			if _, err := recvFrame(s); status.Code(err) != tc.want {
				t.Errorf("stream ended with %v, want %s", err, tc.want)
			}
		})
	}
	if got := count(t, m.metrics.receiveDropped.WithLabelValues(dropMalformed)); got != 4 {
		t.Errorf("%v malformed, want 4", got)
	}
	if len(m.delivered) != 0 {
		t.Error("a malformed stream delivered something")
	}
}

func TestServer_DeliversOnlyWhatTheSenderMaySay(t *testing.T) {
	m := startMember(t, 2, anyPort)
	s := rawStream(t, m)
	sendFrame(t, s, &peerpb.Frame{Hello: encodeHello((&member{id: 1}).self())})
	if _, err := recvFrame(s); err != nil {
		t.Fatal(err)
	}
	local := message(1, 2, 4, 0)
	local.Type = pb.MsgStorageApplyResp.Enum()
	sendFrame(t, s, &peerpb.Frame{Ping: 42, Batches: []*peerpb.Batch{
		{Group: 1, Messages: []*pb.Message{message(3, 2, 1, 0), message(1, 2, 2, 0), message(1, 3, 3, 0), local, {}}},
		{Group: 2, Messages: []*pb.Message{message(3, 2, 5, 0)}},
		{Group: 3},
	}})
	if f, err := recvFrame(s); err != nil || f.GetPong() != 42 {
		t.Errorf("answer to a ping of 42: %v, %v", f, err)
	}
	d := receive(t, m.delivered, "the good message")
	if d.from != 1 || d.group != 1 || len(d.msgs) != 1 || d.msgs[0].GetIndex() != 2 {
		t.Errorf("delivered %+v, want message 2 of group 1", d)
	}
	if len(m.delivered) != 0 {
		t.Error("more was delivered than the good message")
	}
	if got := count(t, m.metrics.receiveDropped.WithLabelValues(dropMisaddressed)); got != 5 {
		t.Errorf("%v dropped, want 5", got)
	}
}
