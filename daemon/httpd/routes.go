package httpd

import (
	"net/http"

	"github.com/tidaldb/tidal/daemon/api"
)

// class says where a request runs.
type class uint8

const (
	// here: on the member that got it, whoever leads.
	here class = iota
	// onLeader: on the leader. Another member forwards it once; with the marker it is refused there
	// with not_leader.
	onLeader
)

// String returns the word of ROUTES.md.
func (c class) String() string {
	if c == onLeader {
		return "leader"
	}
	return "here"
}

// handler decodes, calls ops and encodes. An error becomes a problem; nothing was written then.
type handler func(w http.ResponseWriter, r *request) error

// route is one row of the HTTP surface.
type route struct {
	method, path string
	class        class
	params       []string // query parameters it knows; any other is refused
	maxBody      int64    // bytes; 0: it has no body
	open         bool     // asks for no key
	answers      string   // for ROUTES.md
	handle       handler
}

// readParams choose what state a read must reflect.
var readParams = []string{"consistency", "min_index"}

// routes is the whole HTTP surface. ROUTES.md is its document; a test compares them.
func (s *Server) routes() []route {
	return []route{
		{"POST", "/items", onLeader, []string{"ack"}, api.MaxBodyBytes, false, "one item: 201 made, 200 replaced; an array: 200", s.postItems},
		{"GET", "/items/{id}", here, append([]string{"collection"}, readParams...), 0, false, "200", s.getItem},
		{"POST", "/signals", onLeader, []string{"ack"}, api.MaxBodyBytes, false, "204", s.postSignals},
		{"GET", "/feed", here, append([]string{"user", "collection", "limit"}, readParams...), 0, false, "200", s.getFeed},
		{"GET", "/cluster/status", here, nil, 0, false, "200", s.clusterStatus},
		{"GET", "/cluster/status/local", here, nil, 0, false, "200", s.localStatus},
		{"GET", "/cluster/members", here, nil, 0, false, "200", s.members},
		{"POST", "/cluster/promote", here, nil, api.MaxVerbBytes, false, "200; 202 with no_wait", s.postPromote},
		{"GET", "/cluster/ops/{id}", here, nil, 0, false, "200", s.getOperation},
		{"GET", "/cluster/events", here, []string{"after", "limit", "follow"}, 0, false, "200, one event a line", s.events},
		{"GET", "/healthz", here, nil, 0, true, "200", s.healthz},
		{"GET", "/readyz", here, nil, 0, true, "200 ready, 503 not ready", s.readyz},
	}
}
