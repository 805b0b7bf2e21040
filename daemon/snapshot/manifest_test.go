package snapshot

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/ident"
	"github.com/tidaldb/tidal/daemon/membership"
	"github.com/tidaldb/tidal/daemon/state"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testCluster = ident.ClusterID{0xc1}

// sample is a manifest with everything in it.
func sample() *Manifest {
	roster := membership.Roster{Version: 3, NextID: 4, Members: []membership.Member{
		{ID: 1, Incarnation: ident.Incarnation{1}, Name: "a", GRPCAddr: "a:1", HTTPAddr: "a:2", Role: membership.RoleVoter},
	}}
	return &Manifest{
		Cluster: testCluster, Group: 5, Source: 2, PebbleFormat: state.Format, StateFormat: StateFormat,
		Position: state.Position{
			Applied: ident.EntryID{Term: 7, Index: 1234},
			Conf:    &pb.ConfState{Voters: []uint64{1, 2}, VotersOutgoing: []uint64{1}, Learners: []uint64{3}, AutoLeave: proto.Bool(true)},
		},
		Roster: roster.Encode(),
		Files: []File{
			{Name: "000012.sst", Bytes: 4096, Sum: [32]byte{1}},
			{Name: "MANIFEST-000005", Bytes: 77, Sum: [32]byte{2}},
			{Name: "OPTIONS-000007", Bytes: 1000, Sum: [32]byte{3}},
			{Name: "marker.format-version.000001.021", Bytes: 0, Sum: [32]byte{4}},
			{Name: "marker.manifest.000002.MANIFEST-000005", Bytes: 0, Sum: [32]byte{5}},
		},
	}
}

func TestManifest_Golden(t *testing.T) {
	const file = "testdata/manifest-v1.hex"
	got := fmt.Sprintf("%x\n", sample().Encode())
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || got != string(want) {
		t.Errorf("Encode = %swant %s%v", got, want, err)
	}
	m, err := DecodeManifest(sample().Encode())
	if err != nil || !proto.Equal(m.Position.Conf, sample().Position.Conf) {
		t.Fatalf("decode(encode) = %+v, %v", m, err)
	}
	m.Position.Conf = sample().Position.Conf // protobuf keeps notes in it
	want2 := sample()
	want2.Position.Conf = m.Position.Conf
	if !reflect.DeepEqual(m, want2) {
		t.Errorf("decode(encode) = %+v, want %+v", m, want2)
	}
}

// No bit of a manifest can change, nor can it be cut short, without being noticed.
func TestManifest_EveryBitCounts(t *testing.T) {
	sound := sample().Encode()
	for i := range sound {
		for bit := range 8 {
			b := bytes.Clone(sound)
			b[i] ^= 1 << bit
			if _, err := DecodeManifest(b); err == nil {
				t.Fatalf("byte %d, bit %d: the manifest was taken", i, bit)
			}
		}
		if _, err := DecodeManifest(sound[:i]); err == nil {
			t.Fatalf("the first %d bytes were taken", i)
		}
	}
}

// What a manifest says is refused even where its checksum is right: it comes from the network.
func TestDecodeManifest_RefusesHarm(t *testing.T) {
	file := func(name string, size int64) func(*Manifest) {
		return func(m *Manifest) { m.Files = []File{{Name: name, Bytes: size}} }
	}
	for name, spoil := range map[string]func(*Manifest){
		"an absolute path":     file("/etc/passwd", 1),
		"a path upwards":       file("../000001.sst", 1),
		"a path downwards":     file("below/000001.sst", 1),
		"the directory":        file(".", 1),
		"the directory above":  file("..", 1),
		"nothing":              file("", 1),
		"NUL":                  file("000001.sst\x00", 1),
		"a backslash":          file("..\\000001.sst", 1),
		"a digit of elsewhere": file("٠٠٠٠٠١.sst", 1),
		"a votes file":         file("votes", 1),
		"a member file":        file("member", 1),
		"a lock":               file("LOCK", 0),
		"a journal":            file("000007.log", 11),
		"a segment":            file("0000000001-00000000000000000002.wal", 1),
		"a name too long":      file(strings.Repeat("1", 200)+".sst", 1),
		"a negative size":      file("000001.sst", -1),
		"an absurd size":       file("000001.sst", 1<<62),
		"absurd sizes": func(m *Manifest) {
			m.Files = nil
			for i := range 20 {
				m.Files = append(m.Files, File{Name: fmt.Sprintf("%06d.sst", i), Bytes: maxFileBytes})
			}
		},
		"a duplicate":          func(m *Manifest) { m.Files[1] = m.Files[0] },
		"another order":        func(m *Manifest) { m.Files[0], m.Files[1] = m.Files[1], m.Files[0] },
		"no file":              func(m *Manifest) { m.Files = nil },
		"no voter":             func(m *Manifest) { m.Position.Conf = &pb.ConfState{Learners: []uint64{1}} },
		"no position":          func(m *Manifest) { m.Position.Applied = ident.EntryID{} },
		"no source":            func(m *Manifest) { m.Source = 0 },
		"no cluster":           func(m *Manifest) { m.Cluster = ident.ClusterID{} },
		"a roster that is not": func(m *Manifest) { m.Roster = []byte("roster") },
		"a million files": func(m *Manifest) {
			m.Files = nil
			for i := range 1_000_000 {
				m.Files = append(m.Files, File{Name: fmt.Sprintf("%07d.sst", i)})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := sample()
			spoil(m)
			if _, err := DecodeManifest(m.Encode()); !isManifestError(err) {
				t.Errorf("DecodeManifest = %v, want a *ManifestError", err)
			}
		})
	}
}

func isManifestError(err error) bool {
	_, ok := errors.AsType[*ManifestError](err)
	return ok
}

// A file that differs from another one in case only would replace it on some file systems. No name of
// Pebble's has such a twin, so that the rule has to be asked directly.
func TestManifest_CaseTwins(t *testing.T) {
	m := sample()
	m.Files = []File{{Name: "MANIFEST-000005"}, {Name: "manifest-000005"}}
	if detail := m.flaw(); detail == "" {
		t.Error("manifest-000005 beside MANIFEST-000005 was taken")
	}
}

func TestManifest_OfANewerBinary(t *testing.T) {
	m := sample()
	m.PebbleFormat++
	if _, err := DecodeManifest(m.Encode()); !errors.As(err, new(*FormatError)) {
		t.Errorf("a newer format of Pebble's: %v, want a *FormatError", err)
	}
	// Whatever follows the features belongs to one that is lacking here, which is what is said.
	m = sample()
	m.Features = ident.Supported | 1<<40 | 1<<41
	b, err := manifestFormat().Decode("a manifest", m.Encode())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{b, append(b, "more than this binary knows"...)} {
		_, err := DecodeManifest(manifestFormat().Encode(b))
		if e, ok := errors.AsType[*FormatError](err); !ok || !strings.Contains(e.Error(), "upgrade_required: the artifact makes use of bit40,bit41, which") {
			t.Errorf("with features that are lacking: %v", err)
		}
	}
	m.Features = ident.Supported
	if got, err := DecodeManifest(m.Encode()); err != nil || got.Features != ident.Supported {
		t.Errorf("with features that are not: %v, %v", got, err)
	}
	if _, err := DecodeManifest(manifestFormat().Encode(append(b[:len(b)-8:len(b)-8], make([]byte, 8)...))); !errors.As(err, new(*ManifestError)) {
		t.Errorf("with features that are none: %v, want a *ManifestError", err)
	}
	newer := durable.Format{Magic: manifestFormat().Magic, Version: 2}
	if _, err := DecodeManifest(newer.Encode([]byte("what will be"))); !errors.As(err, new(*durable.VersionError)) {
		t.Errorf("version 2: %v, want a *durable.VersionError", err)
	}
}

func FuzzDecodeManifest(f *testing.F) {
	f.Add(sample().Encode()[durable.EnvelopeBytes:])
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeManifest(manifestFormat().Encode(b)) // past the checksum
		if err == nil && !bytes.Equal(m.Encode(), manifestFormat().Encode(b)) {
			t.Errorf("took what Encode does not write: %x", b)
		}
	})
}
