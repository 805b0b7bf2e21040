package verbs_test

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidaldb/tidal/ctl"
	"github.com/tidaldb/tidal/ctl/iostreams"
	"github.com/tidaldb/tidal/ctl/verbs"
	"github.com/tidaldb/tidal/daemon/api"
)

// schemas reads the schema of every kind, as the verb prints it.
func schemas(t *testing.T) map[string]map[string]any {
	t.Helper()
	_, out, _ := run(t, nil, "schema", "-o", "name")
	all := map[string]map[string]any{}
	for _, kind := range strings.Fields(out) {
		exit, out, errs := run(t, nil, "schema", kind)
		if exit != 0 || errs != "" {
			t.Fatalf("schema %s: exit %d, %s", kind, exit, errs)
		}
		var s map[string]any
		if err := json.Unmarshal([]byte(out), &s); err != nil {
			t.Fatalf("schema %s: %v", kind, err)
		}
		all[s["$id"].(string)] = s
	}
	return all
}

// A schema is a promise: what is in the golden file may be added to, and nothing else.
func TestSchema_EveryKind(t *testing.T) {
	t.Parallel()
	for id := range schemas(t) {
		kind := strings.TrimSuffix(strings.TrimPrefix(id, "tidalctl."), "/v1")
		_, out, _ := run(t, nil, "schema", kind)
		golden(t, "schema/"+kind+".json.golden", out)
	}
	_, out, _ := run(t, nil, "schema")
	golden(t, "schema/list.table.golden", out)
	if exit, out, errs := run(t, nil, "schema", "statsu"); exit != 5 || out != "" || !strings.Contains(errs, "close to it: status") {
		t.Errorf("schema statsu: exit %d, %s%s", exit, out, errs)
	}
	if exit, out, _ := run(t, nil, "schema", "tidalctl.events/v1", "-o", "yaml"); exit != 0 || !strings.HasPrefix(out, "$schema: ") {
		t.Errorf("schema -o yaml: exit %d, %s", exit, out)
	}
}

// What every verb prints, well or not, is as its schema says. A verb that prints no document says so
// here.
func TestSchema_OfWhatEveryVerbPrints(t *testing.T) {
	t.Parallel()
	all := schemas(t)
	cluster := threeTell(t, time.Now())
	lines := map[string][]string{
		"tidalctl status":           {"status"},
		"tidalctl top":              {"top --once"},
		"tidalctl members list":     {"members list"},
		"tidalctl members show":     {"members show us-west", "members show ap-south", "members show nobody"},
		"tidalctl members promote":  {"members promote ap-south --yes --timeout 4s", "members promote ap-south --dry-run --timeout 4s"},
		"tidalctl members remove":   {"members remove ap-south --confirm=ap-south --timeout 4s", "members remove ap-south --confirm=ap-south --no-wait --timeout 4s"},
		"tidalctl members replace":  {"members replace ap-south --confirm=ap-south --timeout 4s"},
		"tidalctl join":             {"join --seed http://a:1 --yes --stall-timeout 1ms", "join --seed http://a:1 --yes --no-wait --stall-timeout 2s"},
		"tidalctl why":              {"why eu-west", "why nobody"},
		"tidalctl history":          {"history"},
		"tidalctl wait":             {"wait --for=leader --timeout 10ms", "wait --for=healthy --timeout=10ms"},
		"tidalctl promote":          {"promote us-west --yes --timeout 1s", "promote us-west --dry-run --timeout 1s", "promote us-west --yes --no-wait --timeout 1s"},
		"tidalctl leader transfer":  {"leader transfer us-west --yes --timeout 1s"},
		"tidalctl ops show":         {"ops show 5f0c2a9e7b1d4c33a8e6f901"},
		"tidalctl ops wait":         {"ops wait 5f0c2a9e7b1d4c33a8e6f901 --timeout 10ms"},
		"tidalctl ops list":         {"ops list"},
		"tidalctl partition":        {"partition --isolate us-west --for 20s --confirm us-west", "partition --isolate us-west --for 20s --dry-run", "partition --isolate us-west"},
		"tidalctl heal":             {"heal --all", "heal f-1", "heal"},
		"tidalctl faults list":      {"faults list"},
		"tidalctl reconcile":        {"reconcile us-west --timeout 1s", "reconcile us-west --dry-run --timeout 1s"},
		"tidalctl version":          {"version"},
		"tidalctl bench":            {"bench --clients 1 --for 20ms"},
		"tidalctl reseed":           {"reseed ap-south --confirm=ap-south --stall-timeout 1s", "reseed ap-south --dry-run", "reseed ap-south --no-wait --confirm=ap-south"},
		"tidalctl verify":           {"verify --timeout 1s"},
		"tidalctl quarantine show":  {"quarantine show", "quarantine show nobody"},
		"tidalctl quarantine clear": {"quarantine clear us-west --confirm=us-west", "quarantine clear us-west --dry-run"},
		"tidalctl events":           {"events", "events nobody"},
		"tidalctl schema":           {"schema", "schema nothing"},
		"tidalctl explain":          {"explain", "explain amnesia", "explain amnseia"},
		"tidalctl recover plan":     {"recover plan --out " + filepath.Join(t.TempDir(), "plan.json")},
		"tidalctl recover apply":    {"recover apply --confirm us-west " + survivorPlan(t, "127.0.0.1:1"), "recover apply --confirm us-west " + survivorPlan(t, survivor(t).addr)},
	}
	moving := (&promoting{op: &api.Operation{State: api.OperationDone}}).start(t)
	faulted := (&faulty{faults: api.Faults{Faults: west, Acked: []string{"us-west"}, Failed: []string{}, Errors: []api.MemberError{}}}).start(t)
	exchanging := (&reconciling{answer: brings(2, 1, "0a0b")}).start(t)
	endpoints := []string{exchanging, faulted, survivor(t).url, member(t, "ok"), member(t, "degraded"), member(t, "unknown"), refusing(t, api.CodeOverloaded), cluster.members[0].url, moving, (&changing{steps: joining()[5:]}).start(t), (&mending{verified: api.Verified{Members: []api.VerifiedRow{}}}).start(t), dead(t)}
	without := []string{"tidalctl", "tidalctl completion", "tidalctl docs man"}
	io, _, _ := iostreams.Test()
	root := ctl.NewRoot(newFactory(t, io, nil), verbs.All)
	walk(root, func(_ []string, cmd *cobra.Command) {
		name := cmd.CommandPath()
		if !cmd.Runnable() || cmd.HasSubCommands() || slices.Contains(without, name) || strings.HasPrefix(name, "tidalctl help") {
			return
		}
		if len(lines[name]) == 0 {
			t.Errorf("no line of %s is checked against its schema", name)
		}
		for _, line := range lines[name] {
			for _, endpoint := range endpoints {
				_, out, errs := run(t, []string{endpoint}, append(strings.Fields(line), "-o", "json")...)
				checkDocuments(t, all, line, out)
				for words := range strings.Lines(errs) { // progress and an error
					if strings.HasPrefix(words, "{") {
						checkDocuments(t, all, line, words)
					}
				}
			}
		}
	})
}

// checkDocuments checks one document after the other.
func checkDocuments(t *testing.T, all map[string]map[string]any, line, documents string) {
	t.Helper()
	for dec := json.NewDecoder(strings.NewReader(documents)); dec.More(); {
		var document map[string]any
		if err := dec.Decode(&document); err != nil {
			t.Errorf("tidalctl %s: %v in\n%s", line, err, documents)
			return
		}
		id, _ := document["schema"].(string)
		if all[id] == nil {
			t.Errorf("tidalctl %s prints a document of kind %q, which has no schema", line, id)
		} else if err := check(all[id], document); err != nil {
			t.Errorf("tidalctl %s: %s: %v", line, id, err)
		}
	}
}

// check checks a value against a schema. It knows what our schemas say, refuses to go on where one
// says more, and is stricter where it matters here: a field that the schema does not know is an error.
func check(schema map[string]any, value any) error {
	for word, s := range schema {
		switch word {
		case "$schema", "$id", "description", "required", "additionalProperties":
		case "const":
			if value != s {
				return fmt.Errorf("%v, want %v", value, s)
			}
		case "type":
			names, several := s.([]any)
			if !several {
				names = []any{s}
			}
			if have := typeOf(value); !slices.Contains(names, any(have)) && !(have == "integer" && slices.Contains(names, any("number"))) {
				return fmt.Errorf("%v is %s, want %v", value, have, names)
			}
		case "format":
			if text, ok := value.(string); ok {
				if _, err := time.Parse(time.RFC3339Nano, text); s != "date-time" || err != nil {
					return fmt.Errorf("%q is no %v: %v", text, s, err)
				}
			}
		case "minimum":
			if n, ok := value.(float64); ok && n < s.(float64) {
				return fmt.Errorf("%v is below %v", n, s)
			}
		case "items":
			list, _ := value.([]any)
			for i, v := range list {
				if err := check(s.(map[string]any), v); err != nil {
					return fmt.Errorf("[%d]: %w", i, err)
				}
			}
		case "properties":
			object, ok := value.(map[string]any)
			if !ok {
				continue // null
			}
			known := s.(map[string]any)
			for name, v := range object {
				if known[name] == nil {
					return fmt.Errorf("field %q is not in the schema", name)
				}
				if err := check(known[name].(map[string]any), v); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
			required, _ := schema["required"].([]any)
			for _, name := range required {
				if _, there := object[name.(string)]; !there {
					return fmt.Errorf("field %q is missing", name)
				}
			}
		default:
			return fmt.Errorf("the schema says %q, which this test does not know", word)
		}
	}
	return nil
}

func typeOf(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case float64:
		if v == math.Trunc(v) {
			return "integer"
		}
		return "number"
	}
	return "object"
}

// The check finds what it should: a schema that admits everything would prove nothing.
func TestSchema_TheCheckBites(t *testing.T) {
	t.Parallel()
	status := schemas(t)["tidalctl.status/v1"]
	_, out, _ := run(t, []string{member(t, "ok")}, "status", "-o", "json")
	for name, spoil := range map[string]func(map[string]any){
		"a field that is missing":  func(d map[string]any) { delete(d, "quorum") },
		"a field of another type":  func(d map[string]any) { d["term"] = "7" },
		"a number below 0":         func(d map[string]any) { d["term"] = -1.0 },
		"a field nobody knows":     func(d map[string]any) { d["extra"] = 1.0 },
		"null where there is none": func(d map[string]any) { d["observer"] = nil },
		"a time that is none":      func(d map[string]any) { d["at"] = "yesterday" },
		"deep inside":              func(d map[string]any) { d["regions"].([]any)[0].(map[string]any)["name"] = 5.0 },
	} {
		var document map[string]any
		if err := json.Unmarshal([]byte(out), &document); err != nil {
			t.Fatal(err)
		}
		if err := check(status, document); err != nil {
			t.Fatalf("unbroken: %v", err)
		}
		spoil(document)
		if check(status, document) == nil {
			t.Errorf("%s is not found", name)
		}
	}
}
