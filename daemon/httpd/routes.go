package httpd

import (
	"net/http"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/ops"
)

// class says where a request runs.
type class uint8

const (
	// here: on the member that got it, whoever leads.
	here class = iota
	// onLeader: on the leader. Another member forwards it once; with the marker it is refused there
	// with not_leader.
	onLeader
	// handedOver: on the leader. Another member decodes it and hands the write over, together with
	// others.
	handedOver
	// inRegion: on the member that the parameter region names, or else as here. Another member forwards it
	// once; with the marker it is refused there with not_leader.
	inRegion
	// verb: on the leader, and it may take long. The handler finds it.
	verb
	// elects: on the leader, or, where none is known, on the member that the body names. The handler
	// finds it.
	elects
	// named: on the member that the body names. Another one forwards it once. The handler finds it.
	named
)

// String returns the word of ROUTES.md.
func (c class) String() string {
	switch c {
	case here:
		return "here"
	case inRegion:
		return "region"
	case named:
		return "the member named"
	}
	return "leader"
}

// handler decodes, calls ops and encodes. An error becomes a problem; nothing was written then.
type handler func(w http.ResponseWriter, r *request) error

// route is one row of the HTTP surface.
type route struct {
	method, path string
	class        class
	params       []string // query parameters it knows; any other is refused
	maxBody      int64    // bytes; 0: it has no body; aStream: the handler reads it as it comes
	open         bool     // asks for no key
	answers      string   // for ROUTES.md
	handle       handler
}

// forCandidates reports whether a route is what a member asks that is about to join: it shows the peer
// credential without the marker, for the member that it asks may forward the request.
func (rt route) forCandidates() bool {
	return rt.path == "/cluster/join" || rt.path == "/cluster/status/local"
}

// pathIngest is where records come in as a stream.
const pathIngest = "/ingest"

// aStream is the maxBody of a route whose body has no bound.
const aStream = -1

// readParams choose what state a read must reflect, and whose.
var readParams = []string{"consistency", "min_index", "region"}

// writeParams choose what a write waits for.
var writeParams = []string{"ack"}

// routes is the whole HTTP surface. ROUTES.md is its document; a test compares them.
func (s *Server) routes() []route {
	return []route{
		{"POST", "/items", handedOver, writeParams, api.MaxBodyBytes, false, "one item: 201 made, 200 replaced, 202 with ack=leader; an array: 200", s.records((*decoder).item, replaced)},
		{"GET", "/items/{id}", inRegion, append([]string{"collection"}, readParams...), 0, false, "200", s.getItem},
		{"DELETE", "/items/{id}", handedOver, append([]string{"collection"}, writeParams...), 0, false, "204, also if there was none", s.deleteItem},
		{"POST", "/signals", handedOver, writeParams, api.MaxBodyBytes, false, "one signal: 204; an array: 200; 202 with ack=local", s.orLocal((*decoder).signal, s.records((*decoder).signal, noContent))},
		{"POST", "/embeddings", handedOver, writeParams, api.MaxBodyBytes, false, "one embedding: 204; an array: 200", s.records((*decoder).embedding, noContent)},
		{"POST", "/hardnegs", handedOver, writeParams, api.MaxBodyBytes, false, "one: 204; an array: 200; 202 with ack=local", s.orLocal((*decoder).hardNeg, s.records((*decoder).hardNeg, noContent))},
		{"POST", pathIngest, handedOver, writeParams, aStream, false, "200, a stream of acknowledgements", s.ingest},
		{"PUT", "/collections/{name}", handedOver, writeParams, 64 << 10, false, "201 made, 200 the same or changed, 202 with ack=leader", s.putCollection},
		{"GET", "/collections/{name}", inRegion, readParams, 0, false, "200", s.getCollection},
		{"GET", "/feed", inRegion, append([]string{"user", "collection", "limit", "diversity"}, readParams...), 0, false, "200", s.getFeed},
		{"POST", pathWrites, here, nil, maxWritesBytes, false, "200; for members alone", s.writes},
		{"GET", "/cluster/status", here, nil, 0, false, "200", s.clusterStatus},
		{"GET", "/cluster/status/local", here, nil, 0, false, "200", s.localStatus},
		{"GET", "/cluster/members", here, nil, 0, false, "200", s.members},
		{"POST", "/cluster/join", onLeader, nil, api.MaxVerbBytes, false, "200", s.join},
		{"POST", "/cluster/seeds", here, nil, api.MaxVerbBytes, false, "200", s.seeds},
		{"POST", "/cluster/members/promote", verb, nil, api.MaxVerbBytes, false, "200; 202 with no_wait", s.memberVerb(ops.VerbPromote)},
		{"POST", "/cluster/members/remove", verb, nil, api.MaxVerbBytes, false, "200; 202 with no_wait", s.memberVerb(ops.VerbRemove)},
		{"POST", "/cluster/members/replace", verb, nil, api.MaxVerbBytes, false, "200; 202 with no_wait", s.memberVerb(ops.VerbReplace)},
		{"GET", "/cluster/why/{member}", here, nil, 0, false, "200", s.getWhy},
		{"GET", "/cluster/history", here, nil, 0, false, "200", s.getHistory},
		{"POST", "/cluster/promote", elects, nil, api.MaxVerbBytes, false, "200; 202 with no_wait", s.postPromote},
		{"POST", "/cluster/partition", here, nil, api.MaxVerbBytes, false, "200", s.postPartition},
		{"POST", "/cluster/heal", here, nil, api.MaxVerbBytes, false, "200", s.postHeal},
		{"GET", "/cluster/faults", here, nil, 0, false, "200", s.getFaults},
		{"GET", "/cluster/ops", here, nil, 0, false, "200", s.getOperations},
		{"POST", "/cluster/reseed", named, nil, api.MaxVerbBytes, false, "200; 202 with no_wait", s.postReseed},
		{"POST", "/cluster/verify", elects, nil, api.MaxVerbBytes, false, "200", s.postVerify},
		{"POST", "/cluster/quarantine/clear", named, nil, api.MaxVerbBytes, false, "200", s.postClear},
		{"POST", "/cluster/reconcile", here, nil, api.MaxVerbBytes, false, "200", s.postReconcile},
		{"POST", pathExchange, here, []string{"dry_run"}, aStream, false, "200; for members alone", s.exchange},
		{"GET", "/cluster/ops/{id}", here, nil, 0, false, "200", s.getOperation},
		{"GET", "/cluster/recover", here, nil, 0, false, "200", s.getRecover},
		{"POST", "/cluster/recover", here, nil, api.MaxRecoverPlanBytes, false, "200", s.postRecover},
		{"GET", "/cluster/events", here, []string{"after", "limit", "follow"}, 0, false, "200, one event a line", s.events},
		{"GET", "/openapi.json", here, nil, 0, true, "200", s.getOpenAPI},
		{"GET", "/healthz", here, nil, 0, true, "200", s.healthz},
		{"GET", "/readyz", here, nil, 0, true, "200 ready, 503 not ready", s.readyz},
	}
}
