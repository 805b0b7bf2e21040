package config

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Bind returns where a member listens: at bind, if that is given; else at the advertised address, if
// its host is an IP; else at its port on all interfaces, for a host name says nothing of them.
func Bind(bind, advertised string) (string, error) {
	if bind != "" {
		return bind, checkAddr(bind, toListen)
	}
	if err := checkAddr(advertised, toDial); err != nil {
		return "", err
	}
	host, port, err := net.SplitHostPort(advertised)
	if err != nil {
		return "", err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return advertised, nil
	}
	return net.JoinHostPort("0.0.0.0", port), nil
}

// addrUse says what an address is for.
type addrUse uint8

const (
	toDial   addrUse = iota // others connect to it, so it has a host and a port
	toListen                // no host means all interfaces, port 0 any free one
)

// checkAddr checks an address for its syntax. Whether a name can be resolved is asked at every dial.
func checkAddr(addr string, use addrUse) error {
	if addr == "" {
		return fmt.Errorf("is required: HOST:PORT")
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q is no address: want HOST:PORT", addr)
	}
	low := 1
	if use == toListen {
		low = 0
	}
	if n, err := strconv.Atoi(port); err != nil || n < low || n > 65535 || strconv.Itoa(n) != port {
		return fmt.Errorf("%q: the port is %q; want %d to 65535", addr, port, low)
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "" && use == toListen:
	case host == "":
		return fmt.Errorf("%q has no host: others could not find it", addr)
	case err == nil && ip.IsUnspecified() && use != toListen:
		return fmt.Errorf("%q: others cannot connect to %s; advertise a host name or an IP, and listen there with the _bind key", addr, host)
	case err != nil && !hostName(host):
		return fmt.Errorf("%q: %q is neither a host name nor an IP", addr, host)
	}
	return nil
}

// hostName reports whether s looks like one (RFC 1123; underscores, which some resolvers serve, are
// let be).
func hostName(s string) bool {
	s = strings.TrimSuffix(s, ".")
	if len(s) == 0 || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if len(label) == 0 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		if strings.Trim(strings.ToLower(label), "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}

// loopback reports whether only this machine reaches a listener at addr.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.IsLoopback()
}

const maxNameBytes = 63

var nameShape = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// checkName reports whether name may be a member's; if not, it adds the problem.
func checkName(name string, at Problem, ps *problems) bool {
	switch {
	case name == "":
		at.Detail = "is required"
	case len(name) > maxNameBytes:
		at.Detail = fmt.Sprintf("has %d bytes; want up to %d", len(name), maxNameBytes)
	case !nameShape.MatchString(name):
		at.Detail = fmt.Sprintf("is %q; want letters, digits, dashes, dots and underscores, like us-east", name)
	default:
		return true
	}
	ps.all = append(ps.all, at)
	return false
}

// bindAll settles where this member listens, and that nobody without a key reaches it from outside.
func bindAll(c *Config, doc *document, listen listeners, line int, ps *problems) {
	self := c.Self()
	settle := func(o option, fileBind, addr string) string {
		if o.value != "" {
			if err := checkAddr(o.value, toListen); err != nil {
				ps.all = append(ps.all, Problem{Key: o.key, Detail: err.Error()})
			}
			return o.value
		}
		b, err := Bind(fileBind, addr)
		if err != nil {
			return "" // the file's problem, noted where the members were checked
		}
		return b
	}
	c.HTTPBind = settle(listen.http, self.HTTPBind, self.HTTPAddr)
	c.GRPCBind = settle(listen.grpc, self.GRPCBind, self.GRPCAddr)
	if c.HTTPBind != "" && !loopback(c.HTTPBind) && c.Auth.KeyFile == "" && c.Auth.APIKey == "" && !c.TLS.RequireClientCert {
		ps.add(line, "auth.key_file", "HTTP would listen at %s, which others reach, without an API key: "+
			"name a file of keys here, set TIDAL_API_KEY, ask for certificates (tls.require_client_cert), or listen at 127.0.0.1 (http_bind, --http)", c.HTTPBind)
	}
	if c.GRPCBind != "" && !loopback(c.GRPCBind) && c.Auth.PeerKeyFile == "" && c.TLS.CAFile == "" {
		ps.add(line, "auth.peer_key_file", "peers would be served at %s, which others reach, without a peer key: "+
			"name the file of the key here, give the members certificates (tls.ca_file), or listen at 127.0.0.1 (grpc_bind, --grpc)", c.GRPCBind)
	}
	if (len(c.Members) > 1 || !c.Declared) && (c.Auth.KeyFile != "" || c.Auth.APIKey != "") && c.Auth.PeerKeyFile == "" && c.TLS.CAFile == "" {
		ps.add(max(doc.Auth.KeyFile.line, line), "auth.peer_key_file", "is required where the API asks for keys: it is what members show when they ask each other (or a certificate: tls.ca_file)")
	}
	if c.MetricsBind = listen.metrics.value; c.MetricsBind != "" {
		if err := checkAddr(c.MetricsBind, toListen); err != nil {
			ps.all = append(ps.all, Problem{Key: listen.metrics.key, Detail: err.Error()})
		}
	} else if m := doc.Metrics.Bind; m.line > 0 {
		if err := checkAddr(m.value, toListen); err != nil {
			ps.add(m.line, "metrics.bind", "%v", err)
		}
		c.MetricsBind = m.value
	}
}
