//go:build soak

package cluster

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/tidaldb/tidal/daemon/api"
)

// The addresses of the test: a bridge in this namespace, where the names are served, and two namespaces
// behind it.
const (
	bridgeIP  = "10.211.77.1"
	homeIP    = "10.211.77.2" // of the three first members
	firstIP   = "10.211.77.10"
	movedName = "moved.tidal.test"
	apiKey    = "soak-soak-soak-soak"
)

// A member lives in a network namespace that is deleted and made again with another address, under the
// same name. The others stream to it again, and none of them is restarted. Then it is removed while it is
// cut off.
func TestSoak_JoinInANamespaceThatMoves(t *testing.T) {
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Skip("network namespaces need Linux and root")
	}
	run := func(args ...string) error {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %v: %s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	must := func(args ...string) {
		t.Helper()
		if err := run(args...); err != nil {
			t.Skipf("network namespaces do not work here: %v", err)
		}
	}
	id := fmt.Sprint(os.Getpid() % 10000)
	bridge, home, away := "tb"+id, "th"+id, "ta"+id
	must("ip", "link", "add", bridge, "type", "bridge")
	t.Cleanup(func() { _ = run("ip", "link", "del", bridge) })
	must("ip", "addr", "add", bridgeIP+"/24", "dev", bridge)
	must("ip", "link", "set", bridge, "up")
	space := func(name, ip string) {
		t.Helper()
		must("ip", "netns", "add", name)
		must("ip", "link", "add", "v"+name, "type", "veth", "peer", "name", "eth0", "netns", name)
		must("ip", "link", "set", "v"+name, "master", bridge, "up")
		must("ip", "netns", "exec", name, "ip", "addr", "add", ip+"/24", "dev", "eth0")
		must("ip", "netns", "exec", name, "ip", "link", "set", "eth0", "up")
		must("ip", "netns", "exec", name, "ip", "link", "set", "lo", "up")
	}
	for _, name := range []string{home, away} {
		etc := filepath.Join("/etc/netns", name)
		if err := os.MkdirAll(etc, 0o755); err != nil {
			t.Skipf("network namespaces do not work here: %v", err)
		}
		t.Cleanup(func() { _ = run("ip", "netns", "del", name); _ = os.RemoveAll(etc) })
		if err := os.WriteFile(filepath.Join(etc, "resolv.conf"), []byte("nameserver "+bridgeIP+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	space(home, homeIP)
	space(away, firstIP)
	names := serveNames(t)
	names.set(firstIP)

	binary := Binary(t)
	c := &Cluster{Dir: t.TempDir(), t: t, words: &lockedBuffer{}, http: &http.Client{Timeout: 10 * time.Second, Transport: bearer{}}}
	c.writeTopology(home, binary)
	c.item("i")
	in := func(space string) []string { return []string{"ip", "netns", "exec", space} }
	e := c.extraAt(binary, "moved", filepath.Join(c.Dir, "moved"), 9501, 9601, "--seed", c.Members[1].HTTP,
		"--advertise-http", movedName+":9501", "--advertise-grpc", movedName+":9601")
	e.within, e.HTTP, e.GRPC = in(away), "http://"+firstIP+":9501", movedName+":9601"
	e.Start()
	c.WaitRole("moved", api.RoleVoter)
	pids := map[string]int{}
	for _, m := range c.Members {
		pids[m.Name] = c.pid(m.Name)
	}
	var took []time.Duration
	// Each time another address: one that is used again waits for the neighbour entries of its old owner.
	for i, ip := range []string{"10.211.77.11", "10.211.77.12", "10.211.77.13"} {
		e.Kill()
		must("ip", "link", "del", "v"+away) // the namespace itself may linger
		must("ip", "netns", "del", away)
		space(away, ip)
		names.set(ip)
		e.HTTP = "http://" + ip + ":9501"
		e.Start()
		start := time.Now()
		c.view(c.Members[i%3])
		index := group(c, c.Members[0].Name).LastIndex
		c.Until("the moved member has what was written since", func() error {
			var s api.LocalStatus
			if err := c.Get(e.DevMember, "/cluster/status/local", &s); err != nil {
				return err
			}
			if len(s.Groups) == 0 || s.Groups[0].AppliedIndex < index {
				return fmt.Errorf("it stands at %+v, want %d", s.Groups, index)
			}
			return nil
		})
		took = append(took, time.Since(start).Round(10*time.Millisecond))
	}
	slices.Sort(took)
	t.Logf("changed address to streaming again: median %s, all %v", took[len(took)/2], took)

	// Cut off, it looks for a majority again and again while it is removed. Back, it is told, and the term
	// of the others does not move.
	term := termOf(c)
	must("ip", "link", "set", "v"+away, "down")
	c.MustRemove("moved")
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); { // six election timeouts
		c.view(c.Members[1])
	}
	must("ip", "link", "set", "v"+away, "up")
	c.waitTold(e.DevMember)
	for range 100 {
		c.view(c.Members[2])
	}
	if now := termOf(c); now != term {
		t.Errorf("term %d, was %d before the removal of the member that was cut off", now, term)
	}
	for name, pid := range pids {
		if now := c.pid(name); now != pid {
			t.Errorf("%s was restarted", name)
		}
	}
}

// writeTopology starts three members in a namespace, with keys.
func (c *Cluster) writeTopology(space, binary string) {
	c.t.Helper()
	text := "members:\n"
	for i := range 3 {
		text += fmt.Sprintf("  - {name: home-%d, grpc_addr: \"%s:%d\", http_addr: \"%[2]s:%[4]d\"}\n", i, homeIP, 9601+i, 9501+i)
	}
	text += "election: {tick: 20ms, heartbeat_ticks: 1, election_ticks: 15}\nauth: {peer_key_file: peer.key, key_file: api.keys}\n"
	for name, content := range map[string]string{"tidal.yaml": text, "peer.key": strings.Repeat("k", 32), "api.keys": apiKey + "\n"} {
		if err := os.WriteFile(filepath.Join(c.Dir, name), []byte(content), 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	for i := range 3 {
		name := fmt.Sprintf("home-%d", i)
		e := c.extraAt(binary, name, filepath.Join(c.Dir, name), 9501+i, 9601+i)
		e.within = []string{"ip", "netns", "exec", space}
		e.HTTP, e.GRPC = fmt.Sprintf("http://%s:%d", homeIP, 9501+i), fmt.Sprintf("%s:%d", homeIP, 9601+i)
		e.Start()
		c.Members = append(c.Members, e.DevMember)
	}
}

// bearer shows the API key.
type bearer struct{}

func (bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer "+apiKey)
	return http.DefaultTransport.RoundTrip(r)
}

// nameServer serves one name, with no time to live.
type nameServer struct{ ip atomic.Value }

func (n *nameServer) set(ip string) { n.ip.Store(ip) }

func serveNames(t *testing.T) *nameServer {
	n := &nameServer{}
	conn, err := net.ListenPacket("udp", bridgeIP+":53")
	if err != nil {
		t.Skipf("names cannot be served here: %v", err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	go func() {
		defer close(done)
		b := make([]byte, 1<<12)
		for {
			size, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			if answer, err := n.answer(b[:size]); err == nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	return n
}

func (n *nameServer) answer(question []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil {
		return nil, err
	}
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	ip, _ := n.ip.Load().(string)
	for _, q := range m.Questions {
		switch {
		case q.Name.String() != movedName+".":
			m.RCode = dnsmessage.RCodeNameError
		case q.Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}, Body: &dnsmessage.AResource{A: [4]byte(net.ParseIP(ip).To4())},
			})
		}
	}
	return m.Pack()
}
