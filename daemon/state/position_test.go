package state

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/ident"
)

func joint() Position {
	return Position{
		Applied: ident.EntryID{Term: 3, Index: 0x1122334455667788},
		Stamp:   0x99aabbccddeeff00,
		Conf: &pb.ConfState{
			Voters: []uint64{1, 2, 4}, Learners: []uint64{5}, VotersOutgoing: []uint64{1, 2, 3}, LearnersNext: []uint64{3},
			AutoLeave: proto.Bool(true),
		},
	}
}

func TestPosition_Golden(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("testdata/position-v1.hex")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%x\n", EncodePosition(joint())); got != string(want) {
		t.Errorf("EncodePosition = %s, want %s", got, want)
	}
}

func TestPosition_RoundTripsEveryAutoLeave(t *testing.T) {
	t.Parallel()
	for _, auto := range []*bool{nil, proto.Bool(false), proto.Bool(true)} {
		want := joint()
		want.Conf.AutoLeave = auto
		got, err := DecodePosition(EncodePosition(want))
		if err != nil || got.Applied != want.Applied || got.Stamp != want.Stamp || !proto.Equal(got.Conf, want.Conf) {
			t.Errorf("decode(encode(%v)) = %v, %v", want, got, err)
		}
	}
}

func TestPosition_RefusesWhatNobodyWrote(t *testing.T) {
	t.Parallel()
	sound := EncodePosition(joint())
	for n := range len(sound) {
		if _, err := DecodePosition(sound[:n]); err == nil {
			t.Errorf("%d bytes of %d were taken", n, len(sound))
		}
	}
	_, err := DecodePosition(append(bytes.Clone(sound), 0))
	if _, ok := errors.AsType[*durable.CorruptError](err); !ok {
		t.Errorf("one byte more: %v, want a *CorruptError", err)
	}
	sound[0] = 3
	_, err = DecodePosition(sound)
	if e, ok := errors.AsType[*durable.VersionError](err); !ok || e.Have != 3 || e.Max != 2 {
		t.Errorf("version 3: %v, want a *VersionError", err)
	}
}

func FuzzPosition_Decode(f *testing.F) {
	f.Add(EncodePosition(joint()))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := DecodePosition(b)
		if err == nil && !bytes.Equal(EncodePosition(p), b) {
			t.Errorf("DecodePosition(%x) took what EncodePosition does not write", b)
		}
	})
}
