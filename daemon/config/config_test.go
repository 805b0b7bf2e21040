package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

const three = `members:
  - name: us-east
    grpc_addr: 127.0.0.1:9601
    http_addr: 127.0.0.1:9501
  - name: us-west
    grpc_addr: 127.0.0.1:9602
    http_addr: 127.0.0.1:9502
  - {name: ap-south, grpc_addr: "127.0.0.1:9603", http_addr: "127.0.0.1:9503"}
`

func none(string) string { return "" }

func env(kv ...string) func(string) string {
	return func(key string) string {
		for i := 0; i < len(kv); i += 2 {
			if kv[i] == key {
				return kv[i+1]
			}
		}
		return ""
	}
}

func TestParse_Defaults(t *testing.T) {
	c, err := Parse("t.yaml", []byte(three), Flags{Name: "us-west"}, none)
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		File: "t.yaml", Name: "us-west", DataDir: "tidal-data",
		Members: []Member{
			{Name: "us-east", GRPCAddr: "127.0.0.1:9601", HTTPAddr: "127.0.0.1:9501"},
			{Name: "us-west", GRPCAddr: "127.0.0.1:9602", HTTPAddr: "127.0.0.1:9502"},
			{Name: "ap-south", GRPCAddr: "127.0.0.1:9603", HTTPAddr: "127.0.0.1:9503"},
		},
		Declared: true, Topology: c.Topology,
		HTTPBind: "127.0.0.1:9502", GRPCBind: "127.0.0.1:9602",
		Replication: Replication{
			Ack: "quorum", QuorumTimeout: 3 * time.Second,
			LogKeep: 256 << 20, PinCap: 4 << 30, PinAge: 30 * time.Minute, ArtifactTTL: 10 * time.Minute,
			PromoteLag: 1024, PromoteRounds: 3,
			Reseed: "auto", ReseedWindow: 30 * time.Second, ScrubEvery: 24 * time.Hour, ScrubRate: 20 << 20,
		},
		Membership: Membership{
			JoinWait: 4 * time.Second, LearnerTTL: 15 * time.Minute, ReplaceLost: "auto", ReplaceGrace: 10 * time.Second, RemovalGiveup: 10 * time.Minute,
		},
		Election: Election{Tick: 100 * time.Millisecond, HeartbeatTicks: 1, ElectionTicks: 10},
		Forward:  Forward{Connect: time.Second, Request: 5 * time.Second, FanOut: 2 * time.Second},
		Status:   Status{Member: 500 * time.Millisecond},
		Clock:    Clock{MaxDrift: 500 * time.Millisecond},
		Outbox:   Outbox{MaxBytes: 64 << 20, Retention: 7 * 24 * time.Hour},
		Drills:   Drills{MaxDuration: 15 * time.Minute},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got %+v\nwant %+v", c, want)
	}
	if c.Self() != want.Members[1] {
		t.Errorf("self is %+v", c.Self())
	}
}

func TestParse_Whole(t *testing.T) {
	text := `
members:
  - {name: a, grpc_addr: "a.example:1", http_addr: "a.example:2", grpc_bind: "10.0.0.1:3", http_bind: ":4"}
replication:
  {ack: leader, quorum_timeout: 1s, log_keep: 1MiB, pin_cap: 3GiB, pin_age: 1m, artifact_ttl: 2m, snapshot_rate: 64 KiB, log_segment: 8MiB,
   learner_promote_lag: 10, learner_promote_rounds: 5, reseed: manual, reseed_window: 1m, scrub_every: 1h, scrub_rate: 0}
membership: {join_wait: 2s, learner_ttl: 1h, replace_lost: manual, replace_grace: 20s, removal_giveup: 1m}
election: {tick: 20ms, heartbeat_ticks: 2, election_ticks: 15}
forward: {connect: 2s, request: 3s, fan_out: 4s}
status: {member: 1s}
clock: {max_drift: 1s}
outbox: {max_bytes: 2MiB, retention: 3h}
drills: {enabled: true, max_duration: 1m}
auth: {peer_key_file: peer.key, key_file: /etc/tidal/keys}
tls: {cert_file: c.pem, key_file: k.pem, ca_file: ca.pem, client_ca_file: /etc/clients.pem, require_client_cert: true}
metrics: {bind: "127.0.0.1:5"}
`
	c, err := Parse("/etc/tidal/t.yaml", []byte(text), Flags{}, none)
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		File: "/etc/tidal/t.yaml", Name: "a", DataDir: "tidal-data",
		Members:  []Member{{"a", "a.example:1", "a.example:2", "10.0.0.1:3", ":4"}},
		Declared: true, Topology: c.Topology,
		HTTPBind: ":4", GRPCBind: "10.0.0.1:3", MetricsBind: "127.0.0.1:5",
		Replication: Replication{
			Ack: "leader", QuorumTimeout: time.Second,
			LogKeep: 1 << 20, PinCap: 3 << 30, PinAge: time.Minute, ArtifactTTL: 2 * time.Minute, SnapshotRate: 64 << 10, LogSegment: 8 << 20,
			PromoteLag: 10, PromoteRounds: 5,
			Reseed: "manual", ReseedWindow: time.Minute, ScrubEvery: time.Hour,
		},
		Membership: Membership{JoinWait: 2 * time.Second, LearnerTTL: time.Hour, ReplaceLost: "manual", ReplaceGrace: 20 * time.Second, RemovalGiveup: time.Minute},
		Election:   Election{Tick: 20 * time.Millisecond, HeartbeatTicks: 2, ElectionTicks: 15},
		Forward:    Forward{Connect: 2 * time.Second, Request: 3 * time.Second, FanOut: 4 * time.Second},
		Status:     Status{Member: time.Second},
		Clock:      Clock{MaxDrift: time.Second},
		Outbox:     Outbox{MaxBytes: 2 << 20, Retention: 3 * time.Hour},
		Drills:     Drills{Enabled: true, MaxDuration: time.Minute},
		Auth:       Auth{PeerKeyFile: "/etc/tidal/peer.key", KeyFile: "/etc/tidal/keys"},
		TLS:        TLS{CertFile: "/etc/tidal/c.pem", KeyFile: "/etc/tidal/k.pem", CAFile: "/etc/tidal/ca.pem", ClientCAFile: "/etc/clients.pem", RequireClientCert: true},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got %+v\nwant %+v", c, want)
	}
}

// A flag goes before the environment, that before the file.
func TestParse_Precedence(t *testing.T) {
	text := three + "metrics: {bind: \"127.0.0.1:1\"}\n"
	all := env("TIDAL_NAME", "us-east", "TIDAL_REGION", "ap-south", "TIDAL_DATA_DIR", "/e", "TIDAL_HTTP", "127.0.0.1:2",
		"TIDAL_GRPC", "127.0.0.1:3", "TIDAL_METRICS", "127.0.0.1:4")
	for _, tc := range []struct {
		name                          string
		flags                         Flags
		env                           func(string) string
		who, dir, http, grpc, metrics string
	}{
		{"file", Flags{Name: "us-west"}, none, "us-west", "tidal-data", "127.0.0.1:9502", "127.0.0.1:9602", "127.0.0.1:1"},
		{"environment", Flags{}, all, "us-east", "/e", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:4"},
		{"region", Flags{}, env("TIDAL_REGION", "ap-south"), "ap-south", "tidal-data", "127.0.0.1:9503", "127.0.0.1:9603", "127.0.0.1:1"},
		{"flags", Flags{Name: "us-west", DataDir: "/f", HTTP: "127.0.0.1:5", GRPC: "127.0.0.1:6", Metrics: "127.0.0.1:7"}, all, "us-west", "/f", "127.0.0.1:5", "127.0.0.1:6", "127.0.0.1:7"},
	} {
		c, err := Parse("t.yaml", []byte(text), tc.flags, tc.env)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if c.Name != tc.who || c.DataDir != tc.dir || c.HTTPBind != tc.http || c.GRPCBind != tc.grpc || c.MetricsBind != tc.metrics {
			t.Errorf("%s: got %+v", tc.name, c)
		}
	}
}

func TestParse_Alone(t *testing.T) {
	for _, tc := range []struct {
		name       string
		flags      Flags
		env        func(string) string
		want       Member
		http, grpc string
	}{
		{"nothing said", Flags{}, none, Member{Name: "tidal", GRPCAddr: "127.0.0.1:9601", HTTPAddr: "127.0.0.1:9501"}, "127.0.0.1:9501", "127.0.0.1:9601"},
		{"named", Flags{Name: "n1", HTTP: "[::1]:80"}, none, Member{Name: "n1", GRPCAddr: "127.0.0.1:9601", HTTPAddr: "[::1]:80"}, "[::1]:80", "127.0.0.1:9601"},
		{"open to all", Flags{HTTP: "0.0.0.0:80"}, env("TIDAL_API_KEY", "secret"), Member{Name: "tidal", GRPCAddr: "127.0.0.1:9601", HTTPAddr: "127.0.0.1:80"}, "0.0.0.0:80", "127.0.0.1:9601"},
	} {
		c, err := Parse("", nil, tc.flags, tc.env)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if c.Self() != tc.want || c.HTTPBind != tc.http || c.GRPCBind != tc.grpc || c.File != "" {
			t.Errorf("%s: got %+v", tc.name, c)
		}
		if strings.Contains(fmt.Sprintf("%v %+v", c, c), "secret") {
			t.Errorf("%s: the key is printed", tc.name)
		}
	}
}

func TestParse_Refuses(t *testing.T) {
	named := func(more string) string { return three + more }
	for _, tc := range []struct {
		name  string
		text  string
		flags Flags
		env   func(string) string
		want  []string // one problem each
	}{
		{"no member", "drills: {enabled: true}", Flags{Name: "a"}, none, []string{"t.yaml: members: none is declared"}},
		{"empty", "", Flags{}, none, []string{"t.yaml: members: none is declared"}},
		{"no YAML", "members: [", Flags{}, none, []string{"t.yaml:1: "}},
		{"two documents", three + "---\nmembers: []\n", Flags{Name: "us-east"}, none, []string{"t.yaml: the file holds more than one document"}},
		{"which", three, Flags{}, none, []string{"--name: is required: which member of t.yaml is this? It has us-east, us-west, ap-south"}},
		{"unknown name that is near none", three, Flags{Name: "mars"}, none, []string{`--name: t.yaml declares no member "mars". It has us-east, us-west, ap-south. A further member joins with --seed, --advertise-grpc and --advertise-http`}},
		{"unknown name", three, Flags{Name: "us-eats"}, none, []string{`--name: t.yaml declares no member "us-eats": is "us-east" meant? It has us-east, us-west, ap-south. A further member joins with --seed, --advertise-grpc and --advertise-http`}},
		{"unknown keys", named("elections: {}\nelection:\n  tik: 1s\nshards: {}\n"), Flags{Name: "us-east"}, none, []string{
			`t.yaml:9: unknown key "elections": is "election" meant?`,
			`t.yaml:11: unknown key "tik": is "tick" meant?`,
			`t.yaml:12: unknown key "shards"`,
		}},
		{"key twice", named("drills: {enabled: true}\ndrills: {enabled: false}\n"), Flags{Name: "us-east"}, none, []string{`t.yaml:10: mapping key "drills" already defined at line 9`}},
		{"types", named("election: {tick: 20, heartbeat_ticks: x}\nclock: {max_drift: 1s5}\nforward: []\n"), Flags{Name: "us-east"}, none, []string{
			`t.yaml:9: "20" is no duration: want a number with its unit, like 500ms or 3s`,
			"t.yaml:9: `x` is no int",
			`t.yaml:10: "1s5" is no duration`,
			"t.yaml:11: a seq stands where several keys belong",
		}},
		{"ranges", named("election: {tick: 1h}\nclock: {max_drift: -1s}\nreplication: {ack: local}\n"), Flags{Name: "us-east"}, none, []string{
			"t.yaml:9: election.tick: is 1h0m0s; want 1ms to 10s",
			"t.yaml:10: clock.max_drift: is -1s; want 1ms to 1m0s",
			`t.yaml:11: replication.ack: is "local"; want quorum or leader`,
		}},
		{"heartbeat above election", named("election:\n  heartbeat_ticks: 20\n"), Flags{Name: "us-east"}, none, []string{
			"t.yaml:10: election.election_ticks: is 10; it must be above election.heartbeat_ticks, which is 20",
		}},
		{"heartbeat near election", named("election:\n  heartbeat_ticks: 3\n  election_ticks: 14\n"), Flags{Name: "us-east"}, none, []string{
			"t.yaml:11: election.election_ticks: is 14; it must be at least 5 times election.heartbeat_ticks, which is 3",
		}},
		{"forwarded request too short", named("replication:\n  quorum_timeout: 5s\n"), Flags{Name: "us-east"}, none, []string{
			"t.yaml:10: forward.request: is 5s; it must be above replication.quorum_timeout, which is 5s",
		}},
		{"twice", strings.NewReplacer("us-west", "us-EAST", "9602", "9601", "9503", "9501").Replace(three), Flags{Name: "us-east"}, none, []string{
			"t.yaml:5: members[1].name: us-EAST is taken on line 2",
			"t.yaml:6: members[1].grpc_addr: 127.0.0.1:9601 is taken on line 3",
			"t.yaml:8: members[2].http_addr: 127.0.0.1:9501 is taken on line 4",
		}},
		{"malformed", "members:\n  - name: a b\n    grpc_addr: host\n    http_addr: 0.0.0.0:80\n  - name: c\n    grpc_addr: c:0\n    http_bind: x_y:1\n", Flags{Name: "c"}, none, []string{
			`t.yaml:2: members[0].name: is "a b"; want letters`,
			`t.yaml:3: members[0].grpc_addr: "host" is no address: want HOST:PORT`,
			`t.yaml:4: members[0].http_addr: "0.0.0.0:80": others cannot connect to 0.0.0.0`,
			`t.yaml:5: members[1].http_addr: is required: HOST:PORT`,
			`t.yaml:6: members[1].grpc_addr: "c:0": the port is "0"; want 1 to 65535`,
			`t.yaml:5: auth.key_file: HTTP would listen at x_y:1`,
		}},
		{"open without keys", "members: [{name: a, grpc_addr: \"a:1\", http_addr: \"10.0.0.1:2\"}]", Flags{}, none, []string{
			"t.yaml:1: auth.key_file: HTTP would listen at 10.0.0.1:2, which others reach, without an API key: name a file of keys here, set TIDAL_API_KEY, ask for certificates (tls.require_client_cert), or listen at 127.0.0.1 (http_bind, --http)",
			"t.yaml:1: auth.peer_key_file: peers would be served at 0.0.0.0:1, which others reach, without a peer key: name the file",
		}},
		{"half of a pair", named("tls: {cert_file: c.pem}\n"), Flags{Name: "us-east"}, none, []string{"t.yaml:9: tls.key_file: is required with tls.cert_file, which is c.pem"}},
		{"the other half", named("tls: {key_file: k.pem}\n"), Flags{Name: "us-east"}, none, []string{"t.yaml:9: tls.cert_file: is required with tls.key_file, which is k.pem"}},
		{"certificates of clients alone", named("tls:\n  ca_file: ca.pem\n  require_client_cert: true\n"), Flags{Name: "us-east"}, none, []string{
			"t.yaml:10: tls.ca_file: has no effect without", "t.yaml:11: tls.require_client_cert: has no effect without",
		}},
		{"clients of nobody", named("tls: {cert_file: c, key_file: k, require_client_cert: true}\n"), Flags{Name: "us-east"}, none, []string{"t.yaml:9: tls.require_client_cert: needs an authority"}},
		{"API keys without a peer key", named("auth: {key_file: keys}\n"), Flags{Name: "us-east"}, none, []string{"t.yaml:9: auth.peer_key_file: is required where the API asks for keys"}},
		{"open by flag", three, Flags{Name: "us-east", HTTP: ":80"}, env("TIDAL_GRPC", "nonsense", "TIDAL_METRICS", "x"), []string{
			`TIDAL_GRPC: "nonsense" is no address`, `TIDAL_METRICS: "x" is no address`,
			"t.yaml:2: auth.key_file: HTTP would listen at :80", "t.yaml:2: auth.peer_key_file: peers would be served at nonsense",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := Parse("t.yaml", []byte(tc.text), tc.flags, tc.env)
			e, ok := errors.AsType[*InvalidError](err)
			if !ok {
				t.Fatalf("got %+v, %v; want an InvalidError", c, err)
			}
			if len(e.Problems) != len(tc.want) {
				t.Errorf("%d problems, want %d:\n%v", len(e.Problems), len(tc.want), err)
			}
			for _, want := range tc.want {
				if !strings.Contains("\n"+err.Error(), "\n"+want) {
					t.Errorf("no %q in\n%v", want, err)
				}
			}
		})
	}
}

func TestBind(t *testing.T) {
	for _, tc := range []struct{ bind, addr, want string }{
		{"10.0.0.1:5", "anything.example:1", "10.0.0.1:5"},
		{":5", "10.0.0.1:1", ":5"},
		{"", "10.0.0.1:1", "10.0.0.1:1"},
		{"", "127.0.0.1:1", "127.0.0.1:1"},
		{"", "[fd00::1]:1", "[fd00::1]:1"},
		{"", "a.example:1", "0.0.0.0:1"},
		{"", "localhost:1", "0.0.0.0:1"},
		{"", "pod-0.svc.cluster.local.:1", "0.0.0.0:1"},
	} {
		if got, err := Bind(tc.bind, tc.addr); got != tc.want || err != nil {
			t.Errorf("bind %q, advertised %q: %q, %v; want %q", tc.bind, tc.addr, got, err, tc.want)
		}
	}
	for _, bad := range []string{"", "a", "a:", ":1", "a:x", "a:65536", "a:01", "a:-1", "a b:1", "-a:1", "a..b:1", "::1:1", "0.0.0.0:1", "[::]:1"} {
		if got, err := Bind("", bad); err == nil {
			t.Errorf("%q: got %q, want an error", bad, got)
		}
	}
}

func TestTopologyDigest(t *testing.T) {
	ms := []Member{{Name: "a", GRPCAddr: "h:1", HTTPAddr: "h:2"}, {Name: "b", GRPCAddr: "h:3", HTTPAddr: "h:4"}}
	d := TopologyDigest(ms)
	if got := fmt.Sprintf("%x", d); got != "b8d8056ca55a8e8e2e1826784d17851a32f8b0f6a68be586651293288be1c166" {
		t.Errorf("digest is %s: members of two releases would not find together", got)
	}
	if TopologyDigest([]Member{ms[1], ms[0]}) == d {
		t.Error("the order does not count")
	}
	local := []Member{{"a", "H:1", "h:2", "0.0.0.0:1", ":2"}, ms[1]}
	if TopologyDigest(local) != d {
		t.Error("where a member listens counts, or how a host is written")
	}
	if TopologyDigest([]Member{{Name: "a", GRPCAddr: "h:1h", HTTPAddr: ":2"}, ms[1]}) == d {
		t.Error("fields run into each other")
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.yaml")
	if err := os.WriteFile(path, []byte(three), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(Flags{Name: "us-east"}, env("TIDAL_CONFIG", path)); err != nil || len(c.Members) != 3 {
		t.Errorf("got %+v, %v", c, err)
	}
	if c, err := Load(Flags{}, none); err != nil || c.Name != "tidal" {
		t.Errorf("got %+v, %v", c, err)
	}
	_, err := Load(Flags{Config: path + "x"}, none)
	if _, ok := errors.AsType[*InvalidError](err); !ok {
		t.Errorf("got %v, want an InvalidError", err)
	}
	if err := os.Truncate(path, maxFileBytes+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(Flags{Config: path}, none); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("got %v, want a size", err)
	}
}

// The list of keys that suggestions are made from is that of the file.
func TestKeys(t *testing.T) {
	want := map[string]bool{}
	var walk func(reflect.Type)
	walk = func(rt reflect.Type) {
		if reflect.PointerTo(rt).Implements(reflect.TypeFor[yaml.Unmarshaler]()) {
			return
		}
		switch rt.Kind() {
		case reflect.Slice:
			walk(rt.Elem())
		case reflect.Struct:
			for i := range rt.NumField() {
				want[rt.Field(i).Tag.Get("yaml")] = true
				walk(rt.Field(i).Type)
			}
		}
	}
	walk(reflect.TypeFor[document]())
	got := map[string]bool{}
	for _, k := range keys() {
		got[k] = true
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}
