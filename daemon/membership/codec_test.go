package membership

import (
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/ident"
)

var rewrite = flag.Bool("rewrite", false, "write the fixtures anew")

func inc(b byte) (i ident.Incarnation) {
	for k := range i {
		i[k] = b
	}
	return i
}

func testGenesis() Genesis {
	g := Genesis{Topology: [32]byte{0: 0xaa, 31: 0xbb}}
	for i, name := range []string{"us-west", "eu-central", "ap-south"} {
		g.Members = append(g.Members, Member{
			ID: ident.MemberID(i + 1), Incarnation: inc(byte(i + 1)), Name: name,
			GRPCAddr: name + ":7001", HTTPAddr: name + ":7000", Role: RoleVoter, Capabilities: ident.CapBase,
		})
	}
	return g
}

func testRoster() Roster {
	r := testGenesis().Roster()
	r.Version, r.NextID = 9, 7
	r.Members[1].Role, r.Members[1].BootEpoch = RoleLearner, 4
	r.Tombstones = []Tombstone{
		{ID: 4, Incarnation: inc(4), Name: "sa-east", RemovedAt: 1_700_000_000_123, Told: true, Acked: true},
		{ID: 6, Incarnation: inc(6), Name: "ap-south", RemovedAt: -1, Told: true},
	}
	return r
}

func recoveredRoster() Roster {
	r := testRoster()
	r.History = ident.History{Epoch: 2, Nonce: 0x0123456789abcdef}
	return r
}

// A record of a released version is read for ever: the fixtures are not rewritten when the encoder
// changes, a new version gets a new file.
func TestCodec_Fixtures(t *testing.T) {
	for _, tc := range []struct {
		file   string
		record []byte
		decode func([]byte) (any, error)
		want   any
	}{
		{"roster-v1.hex", testRoster().Encode(), func(b []byte) (any, error) { return DecodeRoster(b) }, testRoster()},
		{"roster-v2.hex", recoveredRoster().Encode(), func(b []byte) (any, error) { return DecodeRoster(b) }, recoveredRoster()},
		{"genesis-v1.hex", testGenesis().Encode(), func(b []byte) (any, error) { return DecodeGenesis(b) }, testGenesis()},
	} {
		t.Run(tc.file, func(t *testing.T) {
			path := filepath.Join("testdata", tc.file)
			if *rewrite {
				writeHex(t, path, tc.record)
			}
			fixture := readHex(t, path)
			if got, want := hex.EncodeToString(tc.record), hex.EncodeToString(fixture); got != want {
				t.Errorf("Encode = %s, want %s", got, want)
			}
			got, err := tc.decode(fixture)
			if err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("decode = %+v, %v, want %+v", got, err, tc.want)
			}
			for n := range len(fixture) { // cut anywhere, it is an error
				if _, err := tc.decode(fixture[:n]); !isFormatError(err) {
					t.Fatalf("decode of the first %d of %d bytes: %v, want a FormatError", n, len(fixture), err)
				}
			}
			if _, err := tc.decode(append(fixture, 0)); !isFormatError(err) {
				t.Errorf("decode with a byte more: %v, want a FormatError", err)
			}
		})
	}
}

func isFormatError(err error) bool {
	_, ok := errors.AsType[*FormatError](err)
	return ok
}

func TestDecodeRoster_RefusesWhatBreaksARule(t *testing.T) {
	for _, tc := range []struct {
		name    string
		breakIt func(*Roster)
		want    string
	}{
		{"unsorted members", func(r *Roster) { r.Members[0].ID = 5 }, "member id 2 follows 5"},
		{"id 0", func(r *Roster) { r.Members[0].ID = 0 }, "member id 0 follows 0"},
		{"id at next id", func(r *Roster) { r.NextID = 3 }, "member id 3 is not below next id 3"},
		{"a name twice", func(r *Roster) { r.Members[2].Name = "us-west" }, `members 1 and 3 are both named "us-west"`},
		{"no name", func(r *Roster) { r.Members[2].Name = "" }, "member 3 has no name"},
		{"no incarnation", func(r *Roster) { r.Members[2].Incarnation = ident.Incarnation{} }, "member 3 has no incarnation"},
		{"unknown role", func(r *Roster) { r.Members[2].Role = 4 }, "member 3 has unknown role 4"},
		{"tombstone of a member", func(r *Roster) { r.Tombstones[0].ID = 3 }, "id 3 is a member and has a tombstone"},
		{"tombstone above next id", func(r *Roster) { r.Tombstones[1].ID = 7 }, "tombstone 7 is not below next id 7"},
		{"unsorted tombstones", func(r *Roster) { r.Tombstones[1].ID = 4 }, "tombstone 4 follows 4"},
		{"acked, not told", func(r *Roster) { r.Tombstones[0].Told = false }, "tombstone 4 is acked and was not told"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := testRoster()
			tc.breakIt(&r)
			if _, err := DecodeRoster(r.Encode()); err == nil || !strings.HasSuffix(err.Error(), tc.want) {
				t.Errorf("DecodeRoster: %v, want %q", err, tc.want)
			}
		})
	}
}

func TestDecodeGenesis_RefusesWhatBreaksARule(t *testing.T) {
	for _, tc := range []struct {
		name    string
		breakIt func(*Genesis)
		want    string
	}{
		{"empty", func(g *Genesis) { g.Members = nil }, "no members"},
		{"a gap", func(g *Genesis) { g.Members[2].ID = 4 }, "member 3 of the record has id 4"},
		{"a learner", func(g *Genesis) { g.Members[0].Role = RoleLearner }, "member 1 is a learner, want a voter"},
		{"a name twice", func(g *Genesis) { g.Members[0].Name = "ap-south" }, `members 1 and 3 are both named "ap-south"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := testGenesis()
			tc.breakIt(&g)
			if _, err := DecodeGenesis(g.Encode()); err == nil || !strings.HasSuffix(err.Error(), tc.want) {
				t.Errorf("DecodeGenesis: %v, want %q", err, tc.want)
			}
		})
	}
}

func TestRoster_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRoster(t)
		got, err := DecodeRoster(r.Encode())
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Fatalf("round trip = %+v, %v, want %+v", got, err, r)
		}
	})
}

func drawRoster(t *rapid.T) Roster {
	r := Roster{Version: rapid.Uint64().Draw(t, "version"), NextID: 1}
	for range rapid.IntRange(0, 6).Draw(t, "ids") {
		id := ident.MemberID(r.NextID)
		r.NextID += uint64(rapid.IntRange(1, 3).Draw(t, "step"))
		i := inc(rapid.ByteRange(1, 255).Draw(t, "incarnation"))
		if rapid.Bool().Draw(t, "removed") {
			told := rapid.Bool().Draw(t, "told")
			r.Tombstones = append(r.Tombstones, Tombstone{ID: id, Incarnation: i, Name: rapid.String().Draw(t, "name"),
				RemovedAt: rapid.Int64().Draw(t, "at"), Told: told, Acked: told && rapid.Bool().Draw(t, "acked")})
			continue
		}
		r.Members = append(r.Members, Member{ID: id, Incarnation: i, Name: id.String() + rapid.String().Draw(t, "name"),
			GRPCAddr: rapid.String().Draw(t, "grpc"), HTTPAddr: rapid.String().Draw(t, "http"),
			Role:      rapid.SampledFrom([]Role{RoleVoter, RoleLearner}).Draw(t, "role"),
			BootEpoch: rapid.Uint64().Draw(t, "epoch"), Capabilities: ident.Capabilities(rapid.Uint64().Draw(t, "caps"))})
	}
	return r
}

func FuzzDecodeRoster(f *testing.F) {
	f.Add(testRoster().Encode())
	f.Add([]byte{rosterVersion})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeRoster(b)
		if err != nil {
			return
		}
		if got := r.Encode(); string(got) != string(b) {
			t.Errorf("Encode(DecodeRoster(b)) = %x, want %x", got, b)
		}
	})
}

func FuzzDecodeGenesis(f *testing.F) {
	f.Add(testGenesis().Encode())
	f.Add([]byte{genesisVersion})
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := DecodeGenesis(b)
		if err != nil {
			return
		}
		if got := g.Encode(); string(got) != string(b) {
			t.Errorf("Encode(DecodeGenesis(b)) = %x, want %x", got, b)
		}
	})
}

// writeHex writes 32 bytes a line.
func writeHex(t *testing.T, path string, b []byte) {
	t.Helper()
	var text strings.Builder
	for s := hex.EncodeToString(b); s != ""; {
		n := min(64, len(s))
		text.WriteString(s[:n] + "\n")
		s = s[n:]
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readHex(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return b
}
