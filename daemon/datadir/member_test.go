package datadir

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/tidaldb/tidal/daemon/durable"
	"github.com/tidaldb/tidal/daemon/ident"
)

func admitted() Member {
	return Member{
		Cluster: ident.ClusterID{0xc1}, ID: 2, Incarnation: incarnation(), Name: "eu-west", BootEpoch: 3,
		Groups: []ident.GroupID{0, 7}, Genesis: []byte("genesis"), File: FileID{Inode: 4, Birth: -5, Device: 6},
	}
}

func fresh() Member {
	return Member{Incarnation: incarnation(), Name: "n", BootEpoch: 1}
}

func TestMember_Golden(t *testing.T) {
	t.Parallel()
	golden(t, "member-v1.hex", dump(admitted().encode()))
}

func TestMember_RoundTrip(t *testing.T) {
	t.Parallel()
	for _, want := range []Member{admitted(), fresh()} {
		got, err := decodeMember("member", want.encode())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("decode(encode(%+v)) = %+v, %v", want, got, err)
		}
	}
}

func TestMember_RefusesEveryFlippedByte(t *testing.T) {
	t.Parallel()
	sound := admitted().encode()
	for i := range sound {
		b := bytes.Clone(sound)
		b[i] ^= 0x20
		_, err := decodeMember("member", b)
		if e, ok := errors.AsType[*durable.CorruptError](err); !ok || e.File != "member" {
			t.Errorf("byte %d: %v, want a *CorruptError of member", i, err)
		}
	}
}

// What bears a right checksum may still be what this package never writes.
func TestMember_RefusesWhatNobodyWrites(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*Member){
		"no name":             func(m *Member) { m.Name = "" },
		"a long name":         func(m *Member) { m.Name = strings.Repeat("n", maxNameBytes+1) },
		"no incarnation":      func(m *Member) { m.Incarnation = ident.Incarnation{} },
		"never opened":        func(m *Member) { m.BootEpoch = 0 },
		"an id, no cluster":   func(m *Member) { m.Cluster = ident.ClusterID{} },
		"groups, no cluster":  func(m *Member) { m.ID, m.Cluster, m.Genesis = 0, ident.ClusterID{}, nil },
		"genesis, no cluster": func(m *Member) { m.ID, m.Cluster, m.Groups = 0, ident.ClusterID{}, nil },
		"groups out of order": func(m *Member) { m.Groups = []ident.GroupID{7, 0} },
		"a group twice":       func(m *Member) { m.Groups = []ident.GroupID{7, 7} },
		"too many groups":     func(m *Member) { m.Groups = make([]ident.GroupID, maxGroups+1) },
	} {
		m := admitted()
		spoil(&m)
		if _, err := decodeMember("member", m.encode()); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	payload, err := memberFormat().Decode("member", admitted().encode())
	if err != nil {
		t.Fatal(err)
	}
	for n := range payload {
		if _, err := decodeMember("member", memberFormat().Encode(payload[:n])); err == nil {
			t.Errorf("%d bytes of %d: taken", n, len(payload))
		}
	}
	if _, err := decodeMember("member", memberFormat().Encode(append(payload, 0))); err == nil {
		t.Error("one byte more: taken")
	}
}

func FuzzMember_Decode(f *testing.F) {
	for _, m := range []Member{admitted(), fresh()} {
		payload, err := memberFormat().Decode("member", m.encode())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		content := memberFormat().Encode(payload) // so that the checksum does not stop every try
		m, err := decodeMember("member", content)
		if err == nil && !bytes.Equal(m.encode(), content) {
			t.Errorf("decodeMember(%x) took what encode does not write", payload)
		}
	})
}
