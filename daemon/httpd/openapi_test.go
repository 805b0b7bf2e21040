package httpd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tidaldb/tidal/daemon/api"
)

// parsed returns the document as JSON values.
func parsed(t *testing.T) map[string]any {
	t.Helper()
	raw, err := openAPI((*Server)(nil).routes())
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return doc.(map[string]any)
}

// testdata/oas31-schema.json is the schema of OpenAPI 3.1 documents as their authors publish it, at
// spec.openapis.org/oas/3.1/schema/2022-10-07.
func TestOpenAPI_IsADocument(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/oas31-schema.json")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("oas31.json", schema); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("oas31.json")
	if err != nil {
		t.Fatal(err)
	}
	doc := parsed(t)
	if err := s.Validate(doc); err != nil {
		t.Errorf("%v", err)
	}
	doc["paths"].(map[string]any)["/feed"].(map[string]any)["get"].(map[string]any)["responses"] = "nothing"
	if s.Validate(doc) == nil {
		t.Error("a document that is none passes")
	}
}

// Routes and document are the same, both ways, down to parameters and bodies; the codes are the table's.
func TestOpenAPI_IsTheTableOfRoutes(t *testing.T) {
	t.Parallel()
	doc := parsed(t)
	paths := doc["paths"].(map[string]any)
	routes := map[string]bool{}
	for _, rt := range (*Server)(nil).routes() {
		if strings.HasPrefix(rt.path, "/internal/") {
			continue
		}
		routes[rt.method+" "+rt.path] = true
		path, _ := paths[rt.path].(map[string]any)
		op, ok := path[strings.ToLower(rt.method)].(map[string]any)
		if !ok {
			t.Errorf("%s %s is not in the document", rt.method, rt.path)
			continue
		}
		var names []string
		if list, ok := op["parameters"].([]any); ok {
			for _, p := range list {
				if p := p.(map[string]any); p["in"] == "query" {
					names = append(names, p["name"].(string))
				}
			}
		}
		if !slices.Equal(names, rt.params) {
			t.Errorf("%s %s has parameters %q, the document %q", rt.method, rt.path, rt.params, names)
		}
		if _, body := op["requestBody"]; body != (rt.maxBody != 0) {
			t.Errorf("%s %s: body %t in the document", rt.method, rt.path, body)
		}
		if _, key := op["security"]; key == rt.open {
			t.Errorf("%s %s: asks for a key %t in the document", rt.method, rt.path, key)
		}
	}
	for name, path := range paths {
		for method := range path.(map[string]any) {
			if r := strings.ToUpper(method) + " " + name; !routes[r] {
				t.Errorf("%s is in the document and no route", r)
			}
		}
	}
	for r := range descriptions() {
		if !routes[r] {
			t.Errorf("%s is described and no route", r)
		}
	}
	problem := doc["components"].(map[string]any)["schemas"].(map[string]any)["Problem"].(map[string]any)
	words := fmt.Sprint(problem["properties"].(map[string]any)["code"].(map[string]any)["enum"])
	if want := fmt.Sprint(codeWords()); words != want || !strings.Contains(words, string(api.CodeOutcomeUnknown)) {
		t.Errorf("codes %s, want %s", words, want)
	}
}

// Every schema stands by itself, and operations have names of their own.
func TestOpenAPI_Schemas(t *testing.T) {
	t.Parallel()
	doc := parsed(t)
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	for name := range doc["components"].(map[string]any)["schemas"].(map[string]any) {
		if _, err := c.Compile("openapi.json#/components/schemas/" + name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	seen := map[string]bool{}
	for _, rt := range (*Server)(nil).routes() {
		id := operationID(rt)
		if seen[id] {
			t.Errorf("two routes are called %s", id)
		}
		seen[id] = true
	}
}

// What a member answers and takes is what the document says.
func TestOpenAPI_DescribesTheAnswers(t *testing.T) {
	t.Parallel()
	doc := parsed(t)
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	check := func(schema string, v any) error {
		s, err := c.Compile("openapi.json#/components/schemas/" + schema)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		return s.Validate(value)
	}
	for schema, v := range map[string]any{
		"Status":        api.Status{Regions: []api.Region{{}, {LagEvents: new(uint64(3)), Quarantine: &api.Quarantine{}, Error: &api.RowError{}}}},
		"LocalStatus":   api.LocalStatus{Groups: []api.GroupStatus{{}}, Roster: &api.Roster{}},
		"Members":       api.Members{Leader: new("a")},
		"Promoted":      api.Promoted{Checks: []api.Check{{}, {Measured: new(1.5)}}, Transfer: &api.Transfer{}},
		"MemberChanged": api.MemberChanged{Checks: []api.Check{{}}},
		"Joined":        api.Joined{},
		"JoinRequest":   api.JoinRequest{Name: "a"},
		"Why":           api.Why{Questions: []api.Question{{Checks: []api.Check{{}}}}, Pending: &api.Pending{Lag: new(uint64(1))}},
		"History":       api.History{Events: []api.Event{{Fields: json.RawMessage(`{}`)}}, Missing: []string{"b"}},
		"Operation":     api.Operation{Result: json.RawMessage(`{"ok":true}`), Problem: api.NewProblem(api.CodeLagTooHigh, "d")},
		"ItemAnswer":    api.ItemAnswer{Attrs: json.RawMessage(`{}`), Signals: map[string]api.SignalTotals{"view": {}}},
		"FeedAnswer":    api.FeedAnswer{Results: []api.FeedItem{{Attrs: json.RawMessage(`{}`)}}},
		"Problem":       api.NewProblem(api.CodeInternal, "d"),
		"Item":          map[string]any{"id": "i", "genre": []string{"a"}},
		"Signal":        api.Signal{Item: "i", Signal: "view", TS: json.RawMessage(`"2026-01-01T00:00:00Z"`)},
	} {
		if err := check(schema, v); err != nil {
			t.Errorf("%s: %v", schema, err)
		}
	}
	for schema, v := range map[string]any{
		"Item":           map[string]any{"genre": "a"},
		"Signal":         map[string]any{"item": "i", "signal": "view", "colour": "red"},
		"Problem":        map[string]any{"code": "made_up"},
		"PromoteRequest": map[string]any{"region": 7},
		"Promoted":       map[string]any{},
	} {
		if check(schema, v) == nil {
			t.Errorf("%s takes %v", schema, v)
		}
	}
}
