package httpd_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// A partition is asked for anywhere, held where it is enforced, and seen everywhere; so is its end.
func TestPartition_IsHeldByWhoIsCutOff(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{drills: true, peerKey: []byte("k")}, "a", "b", "c")
	for _, n := range nodes {
		n.member.Lead(2, 0) // it needs no leader
	}
	g := nodes[0].do("POST", "/cluster/partition", `{"region":"c","duration_ms":30000,"operation_id":"f-1"}`)
	p := decode[api.Partitioned](t, g)
	if g.status != 200 || !p.OK || p.ID != "f-1" || fmt.Sprint(p.Acked, p.Failed, p.Errors) != "[c] [] []" || p.ExpiresAt == nil {
		t.Fatalf("partition = %d %s", g.status, g.body)
	}
	if a, c := nodes[0].faults.Leases(), nodes[2].faults.Leases(); a != nil || len(c) != 1 || c[0].ID != "f-1" || len(c[0].Faults) != 2 {
		t.Errorf("a holds %v, c holds %v", a, c)
	}
	if again := decode[api.Partitioned](t, nodes[0].do("POST", "/cluster/partition", `{"region":"c","duration_ms":30000,"operation_id":"f-1"}`)); !again.ExpiresAt.Equal(*p.ExpiresAt) {
		t.Errorf("the same operation again ends at %s, want %s", again.ExpiresAt, p.ExpiresAt)
	}
	for _, n := range nodes {
		l := decode[api.Faults](t, n.get("/cluster/faults"))
		if len(l.Faults) != 2 || len(l.Failed) != 0 || l.Faults[0].Member != "c" || l.Faults[0].Direction != "both" || l.Faults[0].Effect != "drop" || l.Faults[0].LeftMS <= 0 {
			t.Errorf("faults, as %s sees them: %+v", n.addr, l)
		}
		s := decode[api.Status](t, n.get("/cluster/status"))
		if r := s.Regions[2]; !r.Reachable || len(r.Faults) != 2 || s.Regions[0].Faults == nil || len(s.Regions[0].Faults) != 0 {
			t.Errorf("status of %s: row of c %+v", s.Observer, r)
		}
	}
	if l := decode[api.Faults](t, nodes[1].get("/cluster/faults", api.HeaderInternal, "1", api.HeaderPeerKey, "k")); len(l.Faults) != 0 || !slices.Equal(l.Acked, []string{"b"}) {
		t.Errorf("b's own faults: %+v", l)
	}
	dry := decode[api.Healed](t, nodes[1].do("POST", "/cluster/heal", `{"dry_run":true}`))
	if len(dry.Healed) != 2 || nodes[2].faults.Leases() == nil {
		t.Errorf("a dry heal: %+v", dry)
	}
	if h := decode[api.Healed](t, nodes[1].do("POST", "/cluster/heal", `{"id":"f-2"}`)); !h.OK || len(h.Healed) != 0 || nodes[2].faults.Leases() == nil {
		t.Errorf("heal of another: %+v", h)
	}
	h := decode[api.Healed](t, nodes[1].do("POST", "/cluster/heal", ``))
	if !h.OK || len(h.Healed) != 2 || fmt.Sprint(h.Acked, h.Failed) != "[a b c] []" || h.FaultsUntil != nil || nodes[2].faults.Leases() != nil {
		t.Errorf("heal: %+v", h)
	}
	var verbs []string
	for _, op := range decode[api.Operations](t, nodes[1].get("/cluster/ops")).Operations {
		verbs = append(verbs, op.Verb+" "+op.State)
	}
	if want := []string{"heal done", "heal done", "heal done"}; !slices.Equal(verbs, want) {
		t.Errorf("operations of b: %q, want %q", verbs, want)
	}
}

func TestPartition_AMemberThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{drills: true}, "a", "b")
	g := addGone(t, nodes)
	answer := nodes[0].do("POST", "/cluster/partition", `{"split":[["a"],["b"],["`+g+`"]],"duration_ms":30000}`)
	p := decode[api.Partitioned](t, answer)
	if answer.status != 200 || p.OK || fmt.Sprint(p.Acked, p.Failed) != "[a b] ["+g+"]" || p.Errors[0].Code != api.CodeMemberUnreached || p.ExpiresAt == nil {
		t.Errorf("partition = %d %s", answer.status, answer.body)
	}
	answer = nodes[0].do("POST", "/cluster/partition", `{"region":"`+g+`","duration_ms":30000}`)
	wantProblem(t, answer, api.CodeMemberUnreached)

	// Nothing listens there: nothing can be kept up there either.
	h := decode[api.Healed](t, nodes[1].do("POST", "/cluster/heal", `{}`))
	if !h.OK || fmt.Sprint(h.Acked, h.Failed) != "[a b] ["+g+"]" || h.FaultsUntil != nil {
		t.Errorf("heal where a process is gone: %+v", h)
	}
}

// addGone adds a member to the roster at whose address nothing listens, and returns its name.
func addGone(t *testing.T, nodes []*node) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		m := n.member.Genesis.Members[1]
		m.ID, m.Name, m.HTTPAddr = 3, "gone", gone
		n.member.Genesis.Members = append(slices.Clone(n.member.Genesis.Members), m)
	}
	return "gone"
}

func TestPartition_WithoutDrills(t *testing.T) {
	t.Parallel()
	n := start(t, options{}, "a", "b")[0]
	p := wantProblem(t, n.do("POST", "/cluster/partition", `{"region":"b","duration_ms":1000}`), api.CodeDrillsDisabled)
	if !strings.Contains(p.Detail, "drills.enabled: true") {
		t.Errorf("detail %q", p.Detail)
	}
	if h := decode[api.Healed](t, n.do("POST", "/cluster/heal", `{}`)); !h.OK || fmt.Sprint(h.Acked) != "[a b]" {
		t.Errorf("heal: %+v", h)
	}
}

func TestPartition_Problems(t *testing.T) {
	t.Parallel()
	n := start(t, options{drills: true}, "a", "b", "c")[0]
	for body, field := range map[string]string{
		`{}`: "members",
		`{"region":"b","members":["c"],"duration_ms":1000}`: "members",
		`{"region":"b"}`:                                               "duration_ms",
		`{"region":"b","duration_ms":99}`:                              "duration_ms",
		`{"region":"b","duration_ms":60001}`:                           "duration_ms", // drills.max_duration
		`{"region":"b","duration_ms":1000,"direction":"up"}`:           "direction",
		`{"region":"b","duration_ms":1000,"delay_ms":-1}`:              "delay_ms",
		`{"region":"b","duration_ms":1000,"quorum_loss":"perhaps"}`:    "quorum_loss",
		`{"members":[],"duration_ms":1000}`:                            "members",
		`{"members":["b","b"],"duration_ms":1000}`:                     "members",
		`{"members":["a","b","c"],"duration_ms":1000}`:                 "members",
		`{"split":[["a"]],"duration_ms":1000}`:                         "split",
		`{"split":[["a"],[]],"duration_ms":1000}`:                      "split[1]",
		`{"split":[["a"],["a"]],"duration_ms":1000}`:                   "split[1]",
		`{"region":"b","duration_ms":1000,"until":"noon"}`:             "until",
		`{"region":"b","duration_ms":1000,"operation_id":"not an id"}`: "operation_id",
	} {
		if p := wantProblem(t, n.do("POST", "/cluster/partition", body), api.CodeBadRequest); p.Field != field {
			t.Errorf("%s: field %q, want %q: %s", body, p.Field, field, p.Detail)
		}
	}
	wantProblem(t, n.do("POST", "/cluster/partition", `{"region":"nobody","duration_ms":1000}`), api.CodeNotFound)
	p := wantProblem(t, n.do("POST", "/cluster/partition", `{"split":[["a"],["b"],["c"]],"duration_ms":1000,"quorum_loss":"forbid"}`), api.CodeQuorumAtStake)
	if *p.Measured != 1 || *p.Threshold != 2 || len(p.Checks) != 1 {
		t.Errorf("problem %+v", p)
	}
	dry := decode[api.Partitioned](t, n.do("POST", "/cluster/partition", `{"split":[["a"],["b"],["c"]],"duration_ms":1000,"quorum_loss":"forbid","dry_run":true}`))
	if dry.OK || dry.Checks[0].OK || !dry.Checks[1].OK || dry.ExpiresAt != nil || n.faults.Leases() != nil {
		t.Errorf("dry run %+v", dry)
	}
}

// What members say to each other is cut, whoever asks; what tells of the cluster, and what ends the
// fault, is not.
func TestFaults_CutRequestsBetweenMembers(t *testing.T) {
	t.Parallel()
	nodes := start(t, options{drills: true, leaderWait: 50 * time.Millisecond, request: 300 * time.Millisecond}, "a", "b", "c")
	a, b := nodes[0], nodes[1]
	for _, path := range []string{"/items/x?region=b", "/feed?region=b"} {
		if g := a.get(path); g.header.Get(api.HeaderMember) != "b" {
			t.Errorf("GET %s before the fault was answered by %s", path, g.header.Get(api.HeaderMember))
		}
	}
	partition := func(n *node, body string) {
		t.Helper()
		if p := decode[api.Partitioned](t, n.do("POST", "/cluster/partition", body)); !p.OK {
			t.Fatalf("partition %s: %+v", body, p)
		}
	}
	partition(a, `{"region":"b","duration_ms":30000,"direction":"out"}`)

	// b holds the fault: it sends nothing, and says why at once.
	p := wantProblem(t, b.do("POST", "/signals", `{"item":"i","signal":"view"}`), api.CodeLeaderUnreached)
	if p.Leader != "a" || !strings.Contains(p.Detail, "fault ") {
		t.Errorf("a write by b: %+v", p)
	}
	wantProblem(t, b.get("/feed?region=a"), api.CodeMemberUnreached)
	// It does not hear others either.
	wantProblem(t, a.get("/feed?region=b"), api.CodeMemberUnreached)
	if s := decode[api.Status](t, a.get("/cluster/status")); !s.Regions[1].Reachable || !s.Regions[1].Partitioned {
		t.Errorf("row of b: %+v", s.Regions[1])
	}
	// Clients still reach it.
	if g := b.get("/feed"); g.status != 200 {
		t.Errorf("GET /feed of b = %d %s", g.status, g.body)
	}
	if h := decode[api.Healed](t, nodes[2].do("POST", "/cluster/heal", `{}`)); !h.OK || len(h.Healed) != 2 {
		t.Errorf("heal: %+v", h)
	}
	if g := b.do("POST", "/signals", `{"item":"i","signal":"view"}`); g.status != 204 {
		t.Errorf("a write by b after the heal = %d %s", g.status, g.body)
	}

	partition(a, `{"split":[["a"],["b"]],"duration_ms":30000,"delay_ms":100}`)
	began := time.Now()
	if g := b.do("POST", "/signals", `{"item":"i","signal":"view"}`); g.status != 204 || time.Since(began) < 100*time.Millisecond {
		t.Errorf("a delayed write = %d after %s", g.status, time.Since(began))
	}
}
