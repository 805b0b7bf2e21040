package config

import (
	"reflect"
	"strings"
	"testing"
)

// A member that the file does not declare says itself where it is; the file's settings hold, its list
// of members does not.
func TestParse_JoiningMember(t *testing.T) {
	text := three + "replication: {ack: leader}\nauth: {peer_key_file: /k}\n"
	flags := Flags{Name: "eu", Seeds: []string{"http://127.0.0.1:9501/", "http://a.example:1"}, AdvertiseGRPC: "127.0.0.1:7", AdvertiseHTTP: "127.0.0.1:8"}
	c, err := Parse("t.yaml", []byte(text), flags, none)
	if err != nil {
		t.Fatal(err)
	}
	self := Member{Name: "eu", GRPCAddr: "127.0.0.1:7", HTTPAddr: "127.0.0.1:8"}
	if c.Declared || len(c.Members) != 1 || c.Self() != self || c.HTTPBind != "127.0.0.1:8" || c.GRPCBind != "127.0.0.1:7" || c.Replication.Ack != "leader" {
		t.Errorf("Parse = %+v", c)
	}
	if want := (Join{Seeds: []string{"http://127.0.0.1:9501", "http://a.example:1"}}); !reflect.DeepEqual(c.Join, want) {
		t.Errorf("Join = %+v, want %+v", c.Join, want)
	}

	// The same from the environment, without a member in the file.
	e := env("TIDAL_NAME", "eu", "TIDAL_SEED", "http://127.0.0.1:9501, http://a.example:1", "TIDAL_ADVERTISE_GRPC", "127.0.0.1:7",
		"TIDAL_ADVERTISE_HTTP", "127.0.0.1:8", "TIDAL_AWAIT_JOIN", "1", "TIDAL_REJOIN", "true")
	c, err = Parse("t.yaml", []byte("auth: {peer_key_file: /k}\n"), Flags{}, e)
	if err != nil {
		t.Fatal(err)
	}
	if c.Declared || c.Self() != self || len(c.Join.Seeds) != 2 || !c.Join.Await || !c.Join.Rejoin {
		t.Errorf("Parse = %+v", c)
	}

	// After the first start the addresses are enough.
	c, err = Parse("t.yaml", []byte(text), Flags{Name: "eu", AdvertiseGRPC: "127.0.0.1:7", AdvertiseHTTP: "127.0.0.1:8"}, none)
	if err != nil || c.Declared || len(c.Join.Seeds) != 0 {
		t.Errorf("Parse without a seed = %+v, %v", c, err)
	}
}

// A seed beside a name that the file declares is a cold start that may ask it too.
func TestParse_SeedBesideADeclaredName(t *testing.T) {
	flags := Flags{Name: "us-west", Seeds: []string{"http://127.0.0.1:9501"}}
	c, err := Parse("t.yaml", []byte(three), flags, none)
	if err != nil {
		t.Fatal(err)
	}
	if !c.Declared || len(c.Members) != 3 || len(c.Join.Seeds) != 1 || c.Self().GRPCAddr != "127.0.0.1:9602" {
		t.Errorf("Parse = %+v", c)
	}
	plain := c.Topology
	flags.AdvertiseGRPC = "127.0.0.1:7"
	if c, err = Parse("t.yaml", []byte(three), flags, none); err != nil || c.Self().GRPCAddr != "127.0.0.1:7" || c.Topology != plain {
		t.Errorf("advertised elsewhere = %+v, %v; the digest is of the file", c, err)
	}
}

func TestParse_RefusesJoining(t *testing.T) {
	advertised := func(f Flags) Flags {
		f.AdvertiseGRPC, f.AdvertiseHTTP = "127.0.0.1:7", "127.0.0.1:8"
		return f
	}
	for _, tc := range []struct {
		name, file, text string
		flags            Flags
		want             string
	}{
		{"no file", "", "", advertised(Flags{Name: "eu", Seeds: []string{"http://a:1"}}), "--config: is required with --seed"},
		{"no file, awaiting", "", "", Flags{AwaitJoin: true}, "--config: is required with --await-join"},
		{"no address", "t.yaml", three, Flags{Name: "eu", Seeds: []string{"http://a:1"}}, "--advertise-grpc: is required: t.yaml declares no member \"eu\""},
		{"an address without a host", "t.yaml", three, Flags{Name: "eu", AdvertiseGRPC: ":7", AdvertiseHTTP: "a:1"}, "--advertise-grpc: \":7\" has no host"},
		{"a seed that is no URL", "t.yaml", three, advertised(Flags{Name: "eu", Seeds: []string{"127.0.0.1:9501"}}), "--seed: \"127.0.0.1:9501\" is no URL"},
		{"a seed with a key", "t.yaml", three, advertised(Flags{Name: "eu", Seeds: []string{"http://u:secret@a:1"}}), "credentials do not belong in a URL"},
		{"no such member", "t.yaml", three, Flags{Name: "eu"}, "A further member joins with --seed"},
		{"reached by others without a key", "t.yaml", three, Flags{Name: "eu", Seeds: []string{"http://a:1"}, AdvertiseGRPC: "eu.example:7", AdvertiseHTTP: "127.0.0.1:8"}, "without a peer key"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse(tc.file, []byte(tc.text), tc.flags, none)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("Parse = %v, want %q", err, tc.want)
			}
		})
	}
}
