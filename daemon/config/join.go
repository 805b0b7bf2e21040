package config

import (
	"fmt"
	"net/url"
	"strings"
)

// Join says how a member with an empty directory finds a cluster that exists already. A member that
// holds data needs none of it.
type Join struct {
	Seeds  []string // URLs, http://HOST:PORT, in the order to be asked
	Await  bool     // listen only, until tidalctl join says whom to ask
	Rejoin bool     // ask to be taken although a member of this name was removed
}

// joining is what flags and environment say about joining, each with the key that said it.
type joining struct {
	Join
	seeds, await, rejoin option
	grpc, http           option // advertised
}

// joinOptions reads and checks the options of a member that joins.
func joinOptions(f Flags, getenv func(string) string, ps *problems) joining {
	j := joining{
		seeds:  given("--seed", strings.Join(f.Seeds, ","), "TIDAL_SEED", getenv),
		grpc:   given("--advertise-grpc", f.AdvertiseGRPC, "TIDAL_ADVERTISE_GRPC", getenv),
		http:   given("--advertise-http", f.AdvertiseHTTP, "TIDAL_ADVERTISE_HTTP", getenv),
		await:  given("--await-join", yes(f.AwaitJoin), "TIDAL_AWAIT_JOIN", getenv),
		rejoin: given("--rejoin", yes(f.Rejoin), "TIDAL_REJOIN", getenv),
	}
	for seed := range strings.SplitSeq(j.seeds.value, ",") {
		if seed = strings.TrimSpace(seed); seed == "" {
			continue
		}
		url, err := ParseSeed(seed)
		if err != nil {
			ps.all = append(ps.all, Problem{Key: j.seeds.key, Detail: err.Error()})
			continue
		}
		j.Seeds = append(j.Seeds, url)
	}
	j.Await, j.Rejoin = j.await.isTrue(ps), j.rejoin.isTrue(ps)
	for _, a := range []option{j.grpc, j.http} {
		if a.value == "" {
			continue
		}
		if err := checkAddr(a.value, toDial); err != nil {
			ps.all = append(ps.all, Problem{Key: a.key, Detail: err.Error()})
		}
	}
	return j
}

// ParseSeed returns the URL of a member as it is asked, or says what is wrong with it.
func ParseSeed(s string) (string, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return "", fmt.Errorf("%q is no URL of a member: want http://HOST:PORT", s)
	case u.User != nil:
		return "", fmt.Errorf("%q: credentials do not belong in a URL; members show the peer key (auth.peer_key_file)", u.Redacted())
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("%q: a path, query or fragment does not belong here: want http://HOST:PORT", s)
	}
	return u.Scheme + "://" + u.Host, nil
}

func yes(b bool) string {
	if b {
		return "true"
	}
	return ""
}

// isTrue reads a switch.
func (o option) isTrue(ps *problems) bool {
	switch strings.ToLower(o.value) {
	case "", "0", "false", "no":
		return false
	case "1", "true", "yes":
		return true
	}
	ps.all = append(ps.all, Problem{Key: o.key, Detail: fmt.Sprintf("is %q; want true or false", o.value)})
	return false
}

// asked reports whether this member may be one that no file declares.
func (j joining) asked() bool { return j.key() != "" }

// key names the option that says so; empty: none does.
func (j joining) key() string {
	for _, o := range []option{j.seeds, j.await, j.grpc, j.http} {
		if o.value != "" {
			return o.key
		}
	}
	return ""
}

// self is the member that the file does not declare: it says of itself where it is reached.
func (j joining) self(name, file string, ps *problems) Member {
	checkName(name, Problem{Key: "--name"}, ps)
	for _, o := range []struct {
		option
		flag string
	}{{j.grpc, "--advertise-grpc"}, {j.http, "--advertise-http"}} {
		if o.value == "" {
			ps.all = append(ps.all, Problem{Key: o.flag, Detail: fmt.Sprintf("is required: %s declares no member %q, so it must say where the others reach it", file, name)})
		}
	}
	return Member{Name: name, GRPCAddr: j.grpc.value, HTTPAddr: j.http.value}
}

// advertise has a declared member say other addresses of itself than the file does.
func (j joining) advertise(c *Config) {
	for i := range c.Members {
		m := &c.Members[i]
		if m.Name != c.Name {
			continue
		}
		if j.grpc.value != "" {
			m.GRPCAddr = j.grpc.value
		}
		if j.http.value != "" {
			m.HTTPAddr = j.http.value
		}
	}
}
