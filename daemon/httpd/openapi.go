package httpd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tidaldb/tidal/daemon/api"
)

// described is what the OpenAPI document says of a route beyond the table of routes.
type described struct {
	summary string
	body    any         // a value of its type; nil: none
	array   bool        // an array of bodies is taken too
	answers map[int]any // by status, a value of its type; nil: no body
	lines   bool        // the answer is one JSON object a line
}

// anyItem is an item as it is written: an id, a collection, and attributes of any name.
type anyItem struct {
	ID         string   `json:"id" minLength:"1" maxLength:"256"`
	Collection string   `json:"collection,omitempty" minLength:"1" maxLength:"256"`
	_          struct{} `additionalProperties:"true"`
}

// anyLine is a line of a stream of records: a record, and its kind.
type anyLine struct {
	Kind string   `json:"kind" enum:"signal,item,embedding,hardneg"`
	Key  string   `json:"key,omitempty" minLength:"1" maxLength:"256"`
	_    struct{} `additionalProperties:"true"`
}

// oneOf is a body that has one of several shapes, values of their types.
type oneOf []any

// descriptions has one row for every route but those that members use among themselves; a test compares
// them both ways.
func descriptions() map[string]described {
	written := func(single int, value any) map[int]any {
		return map[int]any{single: value, http.StatusOK: api.Written{}, http.StatusAccepted: api.Written{}}
	}
	orTaken := func(single int, value any) map[int]any {
		all := written(single, value)
		all[http.StatusAccepted] = oneOf{api.Written{}, api.Taken{}}
		return all
	}
	return map[string]described{
		"POST /items":                    {"Write items, each whole", anyItem{}, true, written(http.StatusCreated, api.Written{}), false},
		"GET /items/{id}":                {"Read an item with its totals", nil, false, map[int]any{200: api.ItemAnswer{}}, false},
		"DELETE /items/{id}":             {"Delete an item with its totals and its embedding", nil, false, map[int]any{204: nil, 202: nil}, false},
		"POST /signals":                  {"Count signals", api.Signal{}, true, orTaken(http.StatusNoContent, nil), false},
		"POST /embeddings":               {"Write embeddings", api.Embedding{}, true, written(http.StatusNoContent, nil), false},
		"POST /hardnegs":                 {"Hide items from a user, or show them again", api.HardNeg{}, true, orTaken(http.StatusNoContent, nil), false},
		"POST /ingest":                   {"Write records, one a line, and be told as they are settled", anyLine{}, false, map[int]any{200: oneOf{api.Ack{}, api.StreamEnd{}}}, true},
		"PUT /collections/{name}":        {"Declare a collection", api.Schema{}, false, map[int]any{200: api.Declared{}, 201: api.Declared{}, 202: api.Declared{}}, false},
		"GET /collections/{name}":        {"Read the schema of a collection", nil, false, map[int]any{200: api.CollectionAnswer{}}, false},
		"GET /feed":                      {"Read the best ranked items", nil, false, map[int]any{200: api.FeedAnswer{}}, false},
		"GET /cluster/status":            {"See the cluster as this member does, a row for every member", nil, false, map[int]any{200: api.Status{}}, false},
		"GET /cluster/status/local":      {"See this member as it sees itself", nil, false, map[int]any{200: api.LocalStatus{}}, false},
		"GET /cluster/members":           {"Read the membership", nil, false, map[int]any{200: api.Members{}}, false},
		"POST /cluster/join":             {"Admit a member", api.JoinRequest{}, false, map[int]any{200: api.Joined{}}, false},
		"POST /cluster/seeds":            {"Tell this member which cluster to join", api.SeedRequest{}, false, map[int]any{200: api.Seeded{}}, false},
		"POST /cluster/members/promote":  {"Make a learner a voter", api.MemberRequest{}, false, map[int]any{200: api.MemberChanged{}, 202: api.Operation{}}, false},
		"POST /cluster/members/remove":   {"Remove a member for good", api.MemberRequest{}, false, map[int]any{200: api.MemberChanged{}, 202: api.Operation{}}, false},
		"POST /cluster/members/replace":  {"Let a member come back with an empty disk", api.MemberRequest{}, false, map[int]any{200: api.MemberChanged{}, 202: api.Operation{}}, false},
		"GET /cluster/why/{member}":      {"See which gates hold a member back", nil, false, map[int]any{200: api.Why{}}, false},
		"GET /cluster/history":           {"See changes of leadership and membership", nil, false, map[int]any{200: api.History{}}, false},
		"POST /cluster/promote":          {"Make a member the leader", api.PromoteRequest{}, false, map[int]any{200: api.Promoted{}, 202: api.Operation{}}, false},
		"POST /cluster/partition":        {"Cut members off from each other, for a time", api.PartitionRequest{}, false, map[int]any{200: api.Partitioned{}}, false},
		"POST /cluster/heal":             {"End faults before their time", api.HealRequest{}, false, map[int]any{200: api.Healed{}}, false},
		"GET /cluster/faults":            {"See the faults in force", nil, false, map[int]any{200: api.Faults{}}, false},
		"POST /cluster/reseed":           {"Replace a member's data by that of another one", api.ReseedRequest{}, false, map[int]any{200: api.Reseeded{}, 202: api.Operation{}}, false},
		"POST /cluster/verify":           {"Have the members compare their states", api.VerifyRequest{}, false, map[int]any{200: api.Verified{}}, false},
		"POST /cluster/quarantine/clear": {"Remove the replaced data that quarantines kept", api.ClearRequest{}, false, map[int]any{200: api.Cleared{}}, false},
		"POST /cluster/reconcile":        {"Exchange what waits in outboxes with another member", api.ReconcileRequest{}, false, map[int]any{200: api.Reconciled{}}, false},
		"POST " + pathExchange:           {"Take part in an exchange of outboxes, for members alone", api.Exchange{}, false, map[int]any{200: api.Exchange{}}, false},
		"GET /cluster/ops":               {"See the changes that this member began", nil, false, map[int]any{200: api.Operations{}}, false},
		"GET /cluster/ops/{id}":          {"See what became of a change", nil, false, map[int]any{200: api.Operation{}}, false},
		"GET /cluster/recover":           {"See how far this member's disk goes, where the majority is lost", nil, false, map[int]any{200: api.RecoverView{}}, false},
		"POST /cluster/recover":          {"Go on from this member's disk, without the members that are lost", api.RecoverPlan{}, false, map[int]any{200: api.RecoverAnswer{}}, false},
		"GET /cluster/events":            {"See what this member saw happen", nil, false, map[int]any{200: api.Event{}}, true},
		"GET /healthz":                   {"Ask whether the process answers", nil, false, map[int]any{200: api.Alive{}}, false},
		"GET /readyz":                    {"Ask whether this member should get traffic", nil, false, map[int]any{200: api.Ready{}, 503: api.Ready{}}, false},
		"GET /openapi.json":              {"Read this document", nil, false, map[int]any{200: map[string]any{}}, false},
	}
}

// parameters describes every query parameter of the surface, by name.
func parameters() map[string]object {
	text := func(description string) object {
		return object{"description": description, "schema": object{"type": "string"}}
	}
	number := func(description string, least, most uint64) object {
		return object{"description": description, "schema": object{"type": "integer", "minimum": least, "maximum": most}}
	}
	choice := func(description string, words ...string) object {
		return object{"description": description, "schema": object{"type": "string", "enum": words}}
	}
	return map[string]object{
		"ack":         choice("what an acknowledgement waits for", api.AckQuorum, api.AckLeader, api.AckLocal),
		"collection":  text("the collection; default: \"default\""),
		"user":        text("whose hidden items are left out"),
		"limit":       number("how many, at most", 0, api.MaxEventsLimit),
		"diversity":   text("ATTRIBUTE:N: at most N of the results share a value"),
		"consistency": choice("what state the answer must reflect", api.ConsistencyLocal, api.ConsistencyLinearizable),
		"region":      text("the member that answers; default: the one that is asked"),
		"min_index":   object{"description": "wait until this index is applied here", "schema": object{"type": "integer", "minimum": 0}},
		"after":       text("only what came after this id"),
		"dry_run":     choice("say what would be done, and change nothing", "true", "false"),
		"follow":      choice("go on with what comes", "true", "false"),
	}
}

// object is a JSON object of the document.
type object = map[string]any

// openAPI makes the document of the routes.
func openAPI(routes []route) ([]byte, error) {
	const prefix = "#/components/schemas/"
	reg := huma.NewMapRegistry(prefix, schemaName)
	described, params := descriptions(), parameters()
	paths := object{}
	for _, rt := range routes {
		if strings.HasPrefix(rt.path, "/internal/") {
			continue
		}
		d, ok := described[rt.method+" "+rt.path]
		if !ok {
			return nil, fmt.Errorf("route %s %s is not described", rt.method, rt.path)
		}
		path, ok := paths[rt.path].(object)
		if !ok {
			path = object{}
			paths[rt.path] = path
		}
		op, err := operationOf(reg, rt, d, params)
		if err != nil {
			return nil, err
		}
		path[strings.ToLower(rt.method)] = op
	}
	problem := reg.Schema(reflect.TypeFor[api.Problem](), true, "")
	schemas := reg.Map()
	schemas["Problem"].Properties["code"].Enum = codeWords()
	for name, s := range schemas {
		finish(s, reg.TypeFromRef(prefix+name))
	}
	header := func(description string) object {
		return object{"description": description, "schema": object{"type": "string"}}
	}
	return json.Marshal(object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Tidal", "version": "1",
			"description": "Any member answers for the whole cluster. Fields are only added; what is not known is null. Every error is a problem with one of the codes.",
			"license":     object{"name": "Apache 2.0", "identifier": "Apache-2.0"},
		},
		"paths": paths,
		"components": object{
			"schemas": schemas,
			"responses": object{"Problem": object{
				"description": "An error", "content": object{api.ProblemType: object{"schema": problem}},
			}},
			"parameters": object{
				"Cluster": object{"name": api.HeaderCluster, "in": "header", "description": "the cluster that the request is meant for", "schema": object{"type": "string"}},
				"Timeout": object{
					"name": api.HeaderTimeout, "in": "header", "description": "how long the caller waits, in milliseconds",
					"schema": object{"type": "integer", "minimum": 1, "maximum": maxGiven.Milliseconds()},
				},
			},
			"headers": object{
				"Member": header("who answered"), "Term": header("in which term"),
				"Index": header("the applied index that the answer reflects; of an acknowledged write, that of its entry"),
			},
			"securitySchemes": object{"key": object{"type": "http", "scheme": "bearer", "description": "where keys are configured"}},
		},
	})
}

var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// operationOf describes one route.
func operationOf(reg huma.Registry, rt route, d described, known map[string]object) (object, error) {
	op := object{"summary": d.summary, "operationId": operationID(rt)}
	list := []object{}
	for _, m := range pathParameter.FindAllStringSubmatch(rt.path, -1) {
		list = append(list, object{"name": m[1], "in": "path", "required": true, "schema": object{"type": "string", "minLength": 1, "maxLength": api.MaxIDBytes}})
	}
	for _, name := range rt.params {
		p, ok := known[name]
		if !ok {
			return nil, fmt.Errorf("parameter %s of %s %s is not described", name, rt.method, rt.path)
		}
		list = append(list, object{"name": name, "in": "query", "description": p["description"], "schema": p["schema"]})
	}
	if !rt.open {
		list = append(list, object{"$ref": "#/components/parameters/Cluster"}, object{"$ref": "#/components/parameters/Timeout"})
	}
	if len(list) > 0 {
		op["parameters"] = list
	}
	if d.body != nil {
		schema := any(reg.Schema(reflect.TypeOf(d.body), true, ""))
		if d.array {
			schema = object{"oneOf": []any{schema, object{"type": "array", "minItems": 1, "maxItems": api.MaxRecords, "items": schema}}}
		}
		media := "application/json"
		if rt.maxBody == aStream {
			media = api.NDJSONType
		}
		op["requestBody"] = object{"required": true, "content": object{media: object{"schema": schema}}}
	}
	if !rt.open {
		op["security"] = []object{{}, {"key": []string{}}}
	}
	answers := object{"default": object{"$ref": "#/components/responses/Problem"}}
	for status, value := range d.answers {
		a := object{"description": http.StatusText(status), "headers": object{
			api.HeaderMember: object{"$ref": "#/components/headers/Member"},
			api.HeaderTerm:   object{"$ref": "#/components/headers/Term"},
			api.HeaderIndex:  object{"$ref": "#/components/headers/Index"},
		}}
		if value != nil {
			media := "application/json"
			if d.lines {
				media = api.NDJSONType
			}
			a["content"] = object{media: object{"schema": schemaOf(reg, value)}}
		}
		answers[strconv.Itoa(status)] = a
	}
	op["responses"] = answers
	return op, nil
}

func schemaOf(reg huma.Registry, value any) any {
	shapes, ok := value.(oneOf)
	if !ok {
		return reg.Schema(reflect.TypeOf(value), true, "")
	}
	var all []any
	for _, shape := range shapes {
		all = append(all, reg.Schema(reflect.TypeOf(shape), true, ""))
	}
	return object{"oneOf": all}
}

// operationID is a name for generated clients: "getItem" of GET /items/{id}.
func operationID(rt route) string {
	words := strings.FieldsFunc(pathParameter.ReplaceAllString(rt.path, "By-$1"), func(r rune) bool { return r == '/' || r == '-' || r == '.' })
	id := strings.ToLower(rt.method)
	for _, w := range words {
		id += strings.ToUpper(w[:1]) + w[1:]
	}
	return id
}

// schemaName gives the types of this package a name for readers.
func schemaName(t reflect.Type, hint string) string {
	switch t {
	case reflect.TypeFor[anyItem]():
		return "Item"
	case reflect.TypeFor[anyLine]():
		return "Line"
	}
	return huma.DefaultSchemaNamer(t, hint)
}

func codeWords() []any {
	var words []any
	for _, c := range api.Codes() {
		words = append(words, string(c.Code))
	}
	return words
}

// finish says of a schema what the registry does not know: answers may get more fields, and a part that
// is a pointer may be null.
func finish(s *huma.Schema, t reflect.Type) {
	if !requestOf(t) {
		s.AdditionalProperties = nil
	}
	if t == nil || t.Kind() != reflect.Struct {
		return
	}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		p := s.Properties[name]
		if p != nil && p.Ref != "" && f.Type.Kind() == reflect.Pointer && !strings.Contains(options, "omitempty") {
			s.Properties[name] = &huma.Schema{AnyOf: []*huma.Schema{{Ref: p.Ref}, {Type: "null"}}}
		}
	}
}

// requestOf reports whether t is sent to a member, which takes no field that it does not know.
func requestOf(t reflect.Type) bool {
	for _, d := range descriptions() {
		if d.body != nil && reflect.TypeOf(d.body) == t {
			return true
		}
	}
	return t == reflect.TypeFor[api.SignalType]()
}

// document is the OpenAPI document, made when it is first asked for.
type document struct {
	once  sync.Once
	bytes []byte
	err   error
}

func (s *Server) getOpenAPI(w http.ResponseWriter, _ *request) error {
	d := &s.document
	d.once.Do(func() { d.bytes, d.err = openAPI(s.routes()) })
	if d.err != nil {
		return d.err
	}
	h := w.Header()
	h["Content-Type"] = []string{"application/json"}
	h["Content-Length"] = []string{strconv.Itoa(len(d.bytes))}
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(d.bytes) // an error means that the caller is gone
	return nil
}
