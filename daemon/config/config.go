// Package config turns a topology file, flags and the environment into one validated Config.
//
// A flag goes before its twin in the environment, that before the file, that before the default.
// What is wrong is reported all at once, each with file, line, key and both values where two do not
// go together; a key that this release does not know is refused, never ignored.
//
// Callers: daemon and cmd/tidald. Nobody else reads the file, a flag or the environment. The files
// with keys are read by auth; here they are paths.
package config

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/zeebo/blake3"
)

// What a member without a topology file is: a cluster of its own, on loopback, where tidalctl looks
// first.
const (
	defaultName     = "tidal"
	defaultDataDir  = "tidal-data"
	defaultHTTPAddr = "127.0.0.1:9501"
	defaultGRPCAddr = "127.0.0.1:9601"
)

// maxFileBytes bounds the topology file.
const maxFileBytes = 1 << 20

// Flags are the flags of serve. Empty: not given.
type Flags struct {
	Config  string // path of the topology file
	Name    string
	DataDir string
	HTTP    string // listen here for HTTP, whatever the file says
	GRPC    string // listen here for peers, whatever the file says
	Metrics string // listen here for /metrics

	// A member that the file does not declare joins a cluster that exists: see join.go.
	Seeds         []string // URLs of its members, any
	AdvertiseGRPC string   // where the others reach this member
	AdvertiseHTTP string
	AwaitJoin     bool // wait to be told the seeds
	Rejoin        bool // join although a member of this name was removed
}

// Config is everything that a member is told from outside. Load makes it, nothing changes it.
type Config struct {
	File    string // path; empty: there is none
	Name    string
	DataDir string

	// Members are those of the file, in its order, this one among them; of a member that the file does
	// not declare, itself alone.
	Members []Member
	// Declared: the file declares this member, or there is none. Without, it never makes a cluster.
	Declared bool
	// Topology identifies the list of the file.
	Topology [32]byte
	// Join says how an empty directory finds a cluster that exists.
	Join Join

	HTTPBind, GRPCBind string // where this member listens
	MetricsBind        string // empty: nowhere

	Replication Replication
	Membership  Membership
	Election    Election
	Forward     Forward
	Status      Status
	Clock       Clock
	Outbox      Outbox
	Drills      Drills
	Auth        Auth
	TLS         TLS
}

// Member is a declared member. The addresses are what others use: host or IP, and port.
type Member struct {
	Name     string
	GRPCAddr string
	HTTPAddr string
	GRPCBind string // empty: by Bind
	HTTPBind string // empty: by Bind
}

// Replication says what an acknowledged write has gone through.
type Replication struct {
	Ack           string        // what a write waits for that does not say: quorum or leader
	QuorumTimeout time.Duration // how long a write waits for its quorum

	LogKeep      int64         // bytes of log that are kept for members that are behind
	PinCap       int64         // bytes of log that are kept at most for one that fetches a snapshot
	PinAge       time.Duration // likewise
	ArtifactTTL  time.Duration // how long a staged snapshot is offered again
	SnapshotRate int64         // bytes of snapshots sent a second; 0: unlimited
	LogSegment   int64         // bytes of one file of the log; 0: by the size of the disk

	Reseed       string        // auto, or manual: what is latched waits for an operator, or for a start
	ReseedWindow time.Duration // how long a voter may stay closed while its data is replaced
	ScrubEvery   time.Duration // how often everything in the state is read again; 0: never
	ScrubRate    int64         // bytes of that a second; 0: unlimited

	PromoteLag    int // entries that a learner may be behind to become a voter
	PromoteRounds int // or rounds in a row that it kept up
}

// Membership says how members come and go.
type Membership struct {
	JoinWait      time.Duration // how long the leader takes to answer a join
	LearnerTTL    time.Duration // a learner that was never heard of expires
	ReplaceLost   string        // auto: a member with an empty disk replaces its old self; manual: when an operator says so
	ReplaceGrace  time.Duration // a member heard of within it is not lost
	RemovalGiveup time.Duration // a removed member that does not acknowledge is told no longer
}

// Election is raft's clock.
type Election struct {
	Tick           time.Duration
	HeartbeatTicks int
	ElectionTicks  int // at least 5 heartbeats
}

// Forward bounds what a member asks of another one for a client.
type Forward struct {
	Connect time.Duration
	Request time.Duration // longer than Replication.QuorumTimeout
	FanOut  time.Duration // a question to all members
}

// Status bounds the rows of GET /cluster/status.
type Status struct {
	Member time.Duration // how long one member may take to answer for its row
}

// Clock bounds what a remote clock may say.
type Clock struct {
	MaxDrift time.Duration
}

// Outbox bounds what a member takes by itself (ack=local).
type Outbox struct {
	MaxBytes  int64         // of memory that may wait for a leader
	Retention time.Duration // how long it is remembered what was taken over of a member that was removed
}

// Drills says whether faults may be injected.
type Drills struct {
	Enabled     bool
	MaxDuration time.Duration
}

// Auth says where keys are.
type Auth struct {
	PeerKeyFile string // empty: members have no key
	KeyFile     string // of API keys; empty: none
	APIKey      string // from the environment; empty: none. Never printed
}

// TLS says where the member's certificate and the authorities that it trusts are. The files are read
// again when they change.
type TLS struct {
	CertFile, KeyFile string // empty: plain text
	CAFile            string // signs the members, which then show each other certificates; empty: the system's authorities, and they do not
	ClientCAFile      string // signs clients of the API; empty: they are not asked
	RequireClientCert bool   // of clients of the API
}

// Enabled reports whether there is TLS.
func (t TLS) Enabled() bool { return t.CertFile != "" }

// String leaves the key out.
func (a Auth) String() string {
	return fmt.Sprintf("{peer_key_file:%s key_file:%s api_key:%t}", a.PeerKeyFile, a.KeyFile, a.APIKey != "")
}

// Self returns the declared member that this one is.
func (c *Config) Self() Member {
	i := slices.IndexFunc(c.Members, func(m Member) bool { return m.Name == c.Name })
	return c.Members[i]
}

// Problem is one thing that is wrong.
type Problem struct {
	File   string // empty: it is not the file that is wrong
	Line   int    // from 1; 0: none
	Key    string // as the file, the flag or the environment calls it; may be empty
	Detail string
}

func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		b.WriteString(": ")
	}
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	return b.String() + p.Detail
}

// InvalidError lists everything that was found wrong, at least one.
type InvalidError struct{ Problems []Problem }

func (e *InvalidError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Load reads the topology file, if flags or the environment name one, and returns the whole
// configuration of this member, or an *InvalidError. getenv is os.Getenv.
func Load(flags Flags, getenv func(string) string) (*Config, error) {
	file := cmp.Or(flags.Config, getenv("TIDAL_CONFIG"))
	if file == "" {
		return Parse("", nil, flags, getenv)
	}
	text, err := readFile(file)
	if err != nil {
		return nil, &InvalidError{[]Problem{{File: file, Detail: err.Error()}}}
	}
	return Parse(file, text, flags, getenv)
}

func readFile(path string) (_ []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(text) > maxFileBytes {
		err = fmt.Errorf("the file is larger than %d bytes", maxFileBytes)
	}
	return text, err
}

// Parse is Load with the file already read: text is what the file of this name holds. An empty name
// stands for no file.
func Parse(file string, text []byte, flags Flags, getenv func(string) string) (*Config, error) {
	ps := &problems{file: file}
	doc := decode(text, ps)
	c := &Config{
		File:        file,
		DataDir:     cmp.Or(flags.DataDir, getenv("TIDAL_DATA_DIR"), defaultDataDir),
		Replication: doc.replication(ps),
		Membership:  doc.membership(ps),
		Election:    doc.election(ps),
		Forward:     doc.forward(ps),
		Status:      Status{Member: doc.Status.Member.within(ps, "status.member", 500*time.Millisecond, time.Millisecond, time.Minute)},
		Clock:       Clock{MaxDrift: doc.Clock.MaxDrift.within(ps, "clock.max_drift", 500*time.Millisecond, time.Millisecond, time.Minute)},
		Outbox: Outbox{
			MaxBytes:  int64(doc.Outbox.MaxBytes.within(ps, "outbox.max_bytes", 64<<20, 1<<20, 1<<30)),
			Retention: doc.Outbox.Retention.within(ps, "outbox.retention", 7*24*time.Hour, time.Hour, 10*365*24*time.Hour),
		},
		Drills: Drills{
			Enabled:     doc.Drills.Enabled.or(false),
			MaxDuration: doc.Drills.MaxDuration.within(ps, "drills.max_duration", 15*time.Minute, time.Second, 24*time.Hour),
		},
		Auth: Auth{
			PeerKeyFile: beside(file, doc.Auth.PeerKeyFile.value),
			KeyFile:     beside(file, doc.Auth.KeyFile.value),
			APIKey:      getenv("TIDAL_API_KEY"),
		},
	}
	c.TLS = doc.tls(ps)
	checkTimings(c, doc, ps)
	checkRetention(c.Replication, doc, ps)
	c.Name = cmp.Or(flags.Name, getenv("TIDAL_NAME"), getenv("TIDAL_REGION"))
	listen := listeners{
		http:    given("--http", flags.HTTP, "TIDAL_HTTP", getenv),
		grpc:    given("--grpc", flags.GRPC, "TIDAL_GRPC", getenv),
		metrics: given("--metrics", flags.Metrics, "TIDAL_METRICS", getenv),
	}
	var self int // line of this member in the file
	joins := joinOptions(flags, getenv, ps)
	c.Join, c.Declared = joins.Join, true
	switch {
	case file == "" && joins.asked():
		ps.all = append(ps.all, Problem{Key: "--config", Detail: "is required with " + joins.key() + ": keys, timings and TLS come from the file; the members that it lists are ignored"})
		self = -1
	case file == "":
		c.Name = cmp.Or(c.Name, defaultName)
		checkName(c.Name, Problem{Key: "--name"}, ps)
		c.Members = []Member{alone(c.Name, listen)}
	case joins.asked() && c.Name != "" && !doc.declares(c.Name):
		c.Declared = false
		c.Members = []Member{joins.self(c.Name, file, ps)}
	default:
		c.Members = doc.members(ps)
		c.Name, self = doc.choose(c.Name, ps)
	}
	c.Topology = TopologyDigest(c.Members)
	if c.Declared && self >= 0 {
		joins.advertise(c) // after the digest, which is of the file
	}
	if self >= 0 {
		bindAll(c, doc, listen, self, ps)
	}
	if len(ps.all) > 0 {
		return nil, &InvalidError{ps.sorted()}
	}
	return c, nil
}

// beside returns a path that file names: relative ones start where the file is.
func beside(file, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}

// option is a flag or its twin in the environment; value is empty where neither was given.
type option struct{ key, value string }

func given(flag, value, env string, getenv func(string) string) option {
	if value != "" {
		return option{flag, value}
	}
	return option{env, getenv(env)}
}

// listeners are the addresses given outside the file.
type listeners struct{ http, grpc, metrics option }

// alone is the one member of a cluster without a file: it says of itself where it listens.
func alone(name string, listen listeners) Member {
	advertised := func(o option, fallback string) string {
		host, port, err := net.SplitHostPort(o.value)
		if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
			return net.JoinHostPort("127.0.0.1", port)
		}
		return cmp.Or(o.value, fallback)
	}
	return Member{Name: name, HTTPAddr: advertised(listen.http, defaultHTTPAddr), GRPCAddr: advertised(listen.grpc, defaultGRPCAddr)}
}

// checkTimings holds the rules that join two settings. Both are named, with their values.
func checkTimings(c *Config, doc *document, ps *problems) {
	e := c.Election
	switch at := max(doc.Election.ElectionTicks.line, doc.Election.HeartbeatTicks.line); {
	case e.ElectionTicks <= e.HeartbeatTicks:
		ps.add(at, "election.election_ticks", "is %d; it must be above election.heartbeat_ticks, which is %d", e.ElectionTicks, e.HeartbeatTicks)
	case e.ElectionTicks < 5*e.HeartbeatTicks:
		ps.add(at, "election.election_ticks", "is %d; it must be at least 5 times election.heartbeat_ticks, which is %d", e.ElectionTicks, e.HeartbeatTicks)
	}
	if request, quorum := c.Forward.Request, c.Replication.QuorumTimeout; request <= quorum {
		ps.add(max(doc.Forward.Request.line, doc.Replication.QuorumTimeout.line), "forward.request",
			"is %s; it must be above replication.quorum_timeout, which is %s", request, quorum)
	}
}

// checkRetention holds the rules that join two sizes of the log.
func checkRetention(r Replication, doc *document, ps *problems) {
	if r.PinCap < r.LogKeep {
		ps.add(max(doc.Replication.PinCap.line, doc.Replication.LogKeep.line), "replication.pin_cap",
			"is %s; it must be at least replication.log_keep, which is %s", size(r.PinCap), size(r.LogKeep))
	}
}

// TopologyDigest identifies a list of members: BLAKE3 over names and advertised addresses, in the
// order of the file, for the order gives the ids. Where members listen is each one's own affair.
func TopologyDigest(members []Member) [32]byte {
	h := blake3.New()
	put := func(s string) {
		_, _ = h.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) // a hash does not fail
		_, _ = h.WriteString(s)
	}
	put("tidal topology 1")
	for _, m := range members {
		put(m.Name)
		put(strings.ToLower(m.GRPCAddr))
		put(strings.ToLower(m.HTTPAddr))
	}
	return [32]byte(h.Sum(nil))
}
