package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// document is the topology file as it is written.
type document struct {
	Members     []declared `yaml:"members"`
	Replication struct {
		Ack           setting[string]        `yaml:"ack"`
		QuorumTimeout setting[time.Duration] `yaml:"quorum_timeout"`
		LogKeep       setting[size]          `yaml:"log_keep"`
		PinCap        setting[size]          `yaml:"pin_cap"`
		PinAge        setting[time.Duration] `yaml:"pin_age"`
		ArtifactTTL   setting[time.Duration] `yaml:"artifact_ttl"`
		SnapshotRate  setting[size]          `yaml:"snapshot_rate"`
		LogSegment    setting[size]          `yaml:"log_segment"`
		PromoteLag    setting[int]           `yaml:"learner_promote_lag"`
		PromoteRounds setting[int]           `yaml:"learner_promote_rounds"`
		Reseed        setting[string]        `yaml:"reseed"`
		ReseedWindow  setting[time.Duration] `yaml:"reseed_window"`
		ScrubEvery    setting[time.Duration] `yaml:"scrub_every"`
		ScrubRate     setting[size]          `yaml:"scrub_rate"`
	} `yaml:"replication"`
	Membership struct {
		JoinWait      setting[time.Duration] `yaml:"join_wait"`
		LearnerTTL    setting[time.Duration] `yaml:"learner_ttl"`
		ReplaceLost   setting[string]        `yaml:"replace_lost"`
		ReplaceGrace  setting[time.Duration] `yaml:"replace_grace"`
		RemovalGiveup setting[time.Duration] `yaml:"removal_giveup"`
	} `yaml:"membership"`
	Election struct {
		Tick           setting[time.Duration] `yaml:"tick"`
		HeartbeatTicks setting[int]           `yaml:"heartbeat_ticks"`
		ElectionTicks  setting[int]           `yaml:"election_ticks"`
	} `yaml:"election"`
	Forward struct {
		Connect setting[time.Duration] `yaml:"connect"`
		Request setting[time.Duration] `yaml:"request"`
		FanOut  setting[time.Duration] `yaml:"fan_out"`
	} `yaml:"forward"`
	Status struct {
		Member setting[time.Duration] `yaml:"member"`
	} `yaml:"status"`
	Clock struct {
		MaxDrift setting[time.Duration] `yaml:"max_drift"`
	} `yaml:"clock"`
	Outbox struct {
		MaxBytes  setting[size]          `yaml:"max_bytes"`
		Retention setting[time.Duration] `yaml:"retention"`
	} `yaml:"outbox"`
	Drills struct {
		Enabled     setting[bool]          `yaml:"enabled"`
		MaxDuration setting[time.Duration] `yaml:"max_duration"`
	} `yaml:"drills"`
	Auth struct {
		PeerKeyFile setting[string] `yaml:"peer_key_file"`
		KeyFile     setting[string] `yaml:"key_file"`
	} `yaml:"auth"`
	TLS struct {
		CertFile          setting[string] `yaml:"cert_file"`
		KeyFile           setting[string] `yaml:"key_file"`
		CAFile            setting[string] `yaml:"ca_file"`
		ClientCAFile      setting[string] `yaml:"client_ca_file"`
		RequireClientCert setting[bool]   `yaml:"require_client_cert"`
	} `yaml:"tls"`
	Metrics struct {
		Bind setting[string] `yaml:"bind"`
	} `yaml:"metrics"`
}

type declared struct {
	Name     setting[string] `yaml:"name"`
	GRPCAddr setting[string] `yaml:"grpc_addr"`
	HTTPAddr setting[string] `yaml:"http_addr"`
	GRPCBind setting[string] `yaml:"grpc_bind"`
	HTTPBind setting[string] `yaml:"http_bind"`
}

// setting is a value of the file and where it stands. The zero setting was not given: a key without
// a value counts as absent.
type setting[T any] struct {
	value T
	line  int // from 1; 0: not given
}

// UnmarshalYAML remembers the line. A duration needs its unit: yaml alone would take 3 for 3 ns.
func (s *setting[T]) UnmarshalYAML(n *yaml.Node) error {
	if b, ok := any(&s.value).(*size); ok {
		var err error
		if *b, err = parseSize(n.Value); err != nil {
			return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %v", n.Line, err)}}
		}
	} else if d, ok := any(&s.value).(*time.Duration); ok {
		var err error
		if *d, err = time.ParseDuration(n.Value); err != nil || n.Value == "0" {
			return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %q is no duration: want a number with its unit, like 500ms or 3s", n.Line, n.Value)}}
		}
	} else if err := n.Decode(&s.value); err != nil {
		return err
	}
	s.line = n.Line
	return nil
}

func (s setting[T]) or(fallback T) T {
	if s.line == 0 {
		return fallback
	}
	return s.value
}

// within returns the value, or the fallback if none was given. It must be in [low, high].
func (s setting[T]) within(ps *problems, key string, fallback, low, high T) T {
	v := s.or(fallback)
	var below, above bool
	switch v := any(v).(type) {
	case time.Duration:
		below, above = v < any(low).(time.Duration), v > any(high).(time.Duration)
	case int:
		below, above = v < any(low).(int), v > any(high).(int)
	case size:
		below, above = v < any(low).(size), v > any(high).(size)
	}
	if below || above {
		ps.add(s.line, key, "is %v; want %v to %v", v, low, high)
		return fallback // so that nothing else is said of a value that is out of range anyway
	}
	return v
}

// problems gathers what is wrong with the file and with what was given beside it.
type problems struct {
	file string
	all  []Problem
}

// add notes a problem of the file. Without a line, a default is part of it.
func (p *problems) add(line int, key, format string, args ...any) {
	p.all = append(p.all, Problem{File: p.file, Line: line, Key: key, Detail: fmt.Sprintf(format, args...)})
}

// sorted returns them by line, those without one last.
func (p *problems) sorted() []Problem {
	slices.SortStableFunc(p.all, func(a, b Problem) int {
		if (a.Line == 0) != (b.Line == 0) {
			return cmp.Compare(b.Line, a.Line)
		}
		return cmp.Compare(a.Line, b.Line)
	})
	return p.all
}

// decode reads the file. What cannot be read is a problem, and left out of the document.
func decode(text []byte, ps *problems) *document {
	doc := &document{}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	err := d.Decode(doc)
	if err == nil {
		if err := d.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
			ps.add(0, "", "the file holds more than one document")
		}
		return doc
	}
	if errors.Is(err, io.EOF) {
		return doc // empty
	}
	messages := []string{strings.TrimPrefix(err.Error(), "yaml: ")}
	if e, ok := errors.AsType[*yaml.TypeError](err); ok {
		messages = e.Errors
	}
	for _, m := range messages {
		line, detail := 0, m
		if parts := atLine.FindStringSubmatch(m); parts != nil {
			line, _ = strconv.Atoi(parts[1])
			detail = parts[2]
		}
		if parts := unknownKey.FindStringSubmatch(detail); parts != nil {
			detail = fmt.Sprintf("unknown key %q", parts[1])
			if near := nearest(parts[1], keys()); near != "" {
				detail += fmt.Sprintf(": is %q meant?", near)
			}
		}
		if parts := wrongType.FindStringSubmatch(detail); parts != nil {
			detail = fmt.Sprintf("%s is no %s", cmp.Or(parts[2], "a "+parts[1]), parts[3])
			if strings.Contains(parts[3], ".") {
				detail = fmt.Sprintf("%s stands where several keys belong", cmp.Or(parts[2], "a "+parts[1]))
			}
		}
		ps.add(line, "", "%s", detail)
	}
	return doc
}

// How yaml words its errors.
var (
	atLine     = regexp.MustCompile(`(?s)^line (\d+): (.*)$`)
	unknownKey = regexp.MustCompile(`^field (.+) not found in type .*$`)
	wrongType  = regexp.MustCompile("^cannot unmarshal !!(\\w+)(?: (`.*`))? into (.*)$")
)

// keys lists every key of the file, for suggestions.
func keys() []string {
	return []string{
		"members", "name", "grpc_addr", "http_addr", "grpc_bind", "http_bind",
		"replication", "ack", "quorum_timeout", "log_keep", "pin_cap", "pin_age", "artifact_ttl", "snapshot_rate", "log_segment",
		"learner_promote_lag", "learner_promote_rounds",
		"membership", "join_wait", "learner_ttl", "replace_lost", "replace_grace", "removal_giveup",
		"reseed", "reseed_window", "scrub_every", "scrub_rate",
		"election", "tick", "heartbeat_ticks", "election_ticks",
		"forward", "connect", "request", "fan_out",
		"status", "member", "clock", "max_drift", "outbox", "max_bytes", "retention", "drills", "enabled", "max_duration",
		"auth", "peer_key_file", "key_file", "metrics", "bind",
		"tls", "cert_file", "ca_file", "client_ca_file", "require_client_cert",
	}
}

func (d *document) replication(ps *problems) Replication {
	r := d.Replication
	ack := r.Ack.or("quorum")
	if ack != "quorum" && ack != "leader" {
		ps.add(r.Ack.line, "replication.ack", "is %q; want quorum or leader", ack)
	}
	reseed := r.Reseed.or("auto")
	if reseed != "auto" && reseed != "manual" {
		ps.add(r.Reseed.line, "replication.reseed", "is %q; want auto or manual", reseed)
	}
	return Replication{
		Ack:           ack,
		QuorumTimeout: r.QuorumTimeout.within(ps, "replication.quorum_timeout", 3*time.Second, 10*time.Millisecond, 10*time.Minute),
		LogKeep:       int64(r.LogKeep.within(ps, "replication.log_keep", 256<<20, 64<<10, 1<<40)),
		PinCap:        int64(r.PinCap.within(ps, "replication.pin_cap", 4<<30, 64<<10, 1<<44)),
		PinAge:        r.PinAge.within(ps, "replication.pin_age", 30*time.Minute, time.Second, 24*time.Hour),
		ArtifactTTL:   r.ArtifactTTL.within(ps, "replication.artifact_ttl", 10*time.Minute, time.Second, 24*time.Hour),
		SnapshotRate:  int64(r.SnapshotRate.within(ps, "replication.snapshot_rate", 0, 0, 1<<40)),
		LogSegment:    int64(r.LogSegment.within(ps, "replication.log_segment", 0, 0, 1<<30)),
		PromoteLag:    r.PromoteLag.within(ps, "replication.learner_promote_lag", 1024, 0, 1<<30),
		PromoteRounds: r.PromoteRounds.within(ps, "replication.learner_promote_rounds", 3, 1, 1000),
		Reseed:        reseed,
		ReseedWindow:  r.ReseedWindow.within(ps, "replication.reseed_window", 30*time.Second, time.Second, time.Hour),
		ScrubEvery:    r.ScrubEvery.within(ps, "replication.scrub_every", 24*time.Hour, 0, 366*24*time.Hour),
		ScrubRate:     int64(r.ScrubRate.within(ps, "replication.scrub_rate", 20<<20, 0, 1<<40)),
	}
}

func (d *document) membership(ps *problems) Membership {
	m := d.Membership
	lost := m.ReplaceLost.or("auto")
	if lost != "auto" && lost != "manual" {
		ps.add(m.ReplaceLost.line, "membership.replace_lost", "is %q; want auto or manual", lost)
	}
	return Membership{
		JoinWait:      m.JoinWait.within(ps, "membership.join_wait", 4*time.Second, 100*time.Millisecond, 10*time.Minute),
		LearnerTTL:    m.LearnerTTL.within(ps, "membership.learner_ttl", 15*time.Minute, time.Second, 30*24*time.Hour),
		ReplaceLost:   lost,
		ReplaceGrace:  m.ReplaceGrace.within(ps, "membership.replace_grace", 10*time.Second, time.Second, time.Hour),
		RemovalGiveup: m.RemovalGiveup.within(ps, "membership.removal_giveup", 10*time.Minute, time.Second, 30*24*time.Hour),
	}
}

func (d *document) election(ps *problems) Election {
	e := d.Election
	return Election{
		Tick:           e.Tick.within(ps, "election.tick", 100*time.Millisecond, time.Millisecond, 10*time.Second),
		HeartbeatTicks: e.HeartbeatTicks.within(ps, "election.heartbeat_ticks", 1, 1, 1000),
		ElectionTicks:  e.ElectionTicks.within(ps, "election.election_ticks", 10, 2, 10000),
	}
}

func (d *document) forward(ps *problems) Forward {
	f := d.Forward
	return Forward{
		Connect: f.Connect.within(ps, "forward.connect", time.Second, time.Millisecond, time.Minute),
		Request: f.Request.within(ps, "forward.request", 5*time.Second, 10*time.Millisecond, 11*time.Minute),
		FanOut:  f.FanOut.within(ps, "forward.fan_out", 2*time.Second, time.Millisecond, time.Minute),
	}
}

// tls checks what goes together. Paths are as the file says them.
func (d *document) tls(ps *problems) TLS {
	t := d.TLS
	cert, key := t.CertFile.value != "", t.KeyFile.value != ""
	switch {
	case cert && !key:
		ps.add(t.CertFile.line, "tls.key_file", "is required with tls.cert_file, which is %s", t.CertFile.value)
	case key && !cert:
		ps.add(t.KeyFile.line, "tls.cert_file", "is required with tls.key_file, which is %s", t.KeyFile.value)
	}
	for _, s := range []struct {
		key   string
		line  int
		given bool
	}{
		{"ca_file", t.CAFile.line, t.CAFile.value != ""},
		{"client_ca_file", t.ClientCAFile.line, t.ClientCAFile.value != ""},
		{"require_client_cert", t.RequireClientCert.line, t.RequireClientCert.value},
	} {
		if s.given && !cert && !key {
			ps.add(s.line, "tls."+s.key, "has no effect without tls.cert_file and tls.key_file")
		}
	}
	if t.RequireClientCert.value && t.CAFile.value == "" && t.ClientCAFile.value == "" {
		ps.add(t.RequireClientCert.line, "tls.require_client_cert", "needs an authority that signs the clients: tls.client_ca_file")
	}
	return TLS{
		CertFile: beside(ps.file, t.CertFile.value), KeyFile: beside(ps.file, t.KeyFile.value), CAFile: beside(ps.file, t.CAFile.value),
		ClientCAFile: beside(ps.file, t.ClientCAFile.value), RequireClientCert: t.RequireClientCert.value,
	}
}

// members checks the declared members and returns them.
func (d *document) members(ps *problems) []Member {
	if len(d.Members) == 0 && len(ps.all) == 0 { // else the file could not be read
		ps.add(0, "members", "none is declared")
	}
	names, addrs := map[string]int{}, map[string]int{} // to the line that has it
	once := func(seen map[string]int, key string, s setting[string], what string) {
		folded := strings.ToLower(s.value)
		if line, taken := seen[folded]; taken {
			ps.add(s.line, key, "%s is taken on line %d: %s", s.value, line, what)
			return
		}
		seen[folded] = s.line
	}
	var members []Member
	for i, m := range d.Members {
		key := func(field string) string { return fmt.Sprintf("members[%d].%s", i, field) }
		if checkName(m.Name.value, Problem{File: ps.file, Line: m.line(), Key: key("name")}, ps) {
			once(names, key("name"), m.Name, "a name belongs to one member")
		}
		for _, a := range []struct {
			field string
			setting[string]
		}{{"grpc_addr", m.GRPCAddr}, {"http_addr", m.HTTPAddr}} {
			if err := checkAddr(a.value, toDial); err != nil {
				ps.add(max(a.line, m.line()), key(a.field), "%v", err)
				continue
			}
			once(addrs, key(a.field), a.setting, "an address belongs to one listener of one member")
		}
		for _, b := range []struct {
			field string
			setting[string]
		}{{"grpc_bind", m.GRPCBind}, {"http_bind", m.HTTPBind}} {
			if b.line == 0 {
				continue
			}
			if err := checkAddr(b.value, toListen); err != nil {
				ps.add(b.line, key(b.field), "%v", err)
			}
		}
		members = append(members, Member{m.Name.value, m.GRPCAddr.value, m.HTTPAddr.value, m.GRPCBind.value, m.HTTPBind.value})
	}
	return members
}

// line is where a member without the key in question can be found.
func (m declared) line() int {
	line := 0
	for _, l := range []int{m.HTTPBind.line, m.GRPCBind.line, m.HTTPAddr.line, m.GRPCAddr.line, m.Name.line} {
		if l > 0 {
			line = l
		}
	}
	return line
}

// choose returns the name that this member goes by, and its line; -1: there is no such member. A
// single member need not be told its name.
func (d *document) choose(name string, ps *problems) (string, int) {
	var names []string
	for _, m := range d.Members {
		if m.Name.value == name {
			return name, m.line()
		}
		names = append(names, m.Name.value)
	}
	switch {
	case name == "" && len(names) == 1:
		return names[0], d.Members[0].line()
	case name == "" && len(names) > 1:
		ps.all = append(ps.all, Problem{Key: "--name", Detail: fmt.Sprintf("is required: which member of %s is this? It has %s", ps.file, strings.Join(names, ", "))})
	case name != "" && len(names) > 0:
		detail := fmt.Sprintf("%s declares no member %q", ps.file, name)
		if near := nearest(name, names); near != "" {
			detail += fmt.Sprintf(": is %q meant?", near)
		} else {
			detail += "."
		}
		ps.all = append(ps.all, Problem{Key: "--name", Detail: detail + " It has " + strings.Join(names, ", ") +
			". A further member joins with --seed, --advertise-grpc and --advertise-http"})
	}
	return name, -1
}

// declares reports whether the file lists a member of this name.
func (d *document) declares(name string) bool {
	return slices.ContainsFunc(d.Members, func(m declared) bool { return m.Name.value == name })
}

// nearest returns the candidate that is fewest edits away from s; empty: none is near.
func nearest(s string, candidates []string) string {
	best, at := "", max(2, len(s)/3)+1
	for _, c := range candidates {
		if d := edits(strings.ToLower(s), c); d < at {
			best, at = c, d
		}
	}
	return best
}

// edits is the Levenshtein distance between a and b, in bytes.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
