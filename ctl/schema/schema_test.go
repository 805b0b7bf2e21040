package schema_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/tidaldb/tidal/ctl/schema"
)

type embedded struct {
	Term uint64 `json:"term"`
}

type part struct {
	Name string `json:"name"`
}

type effect string

type everything struct {
	embedded
	Part     part              `json:"part"`
	Maybe    *part             `json:"maybe"`
	Rarely   *string           `json:"rarely,omitempty"`
	List     []part            `json:"list"`
	Few      []int             `json:"few,omitempty"`
	By       map[string]uint64 `json:"by"`
	At       time.Time         `json:"at"`
	Since    *time.Time        `json:"since"`
	Score    float64           `json:"score"`
	ID       uint64            `json:"id,string"`
	Effect   effect            `json:"effect"`
	Raw      json.RawMessage   `json:"raw"`
	Any      any               `json:"any"`
	Flag     bool
	Internal int `json:"-"`
	hidden   int
}

func TestDocument(t *testing.T) {
	t.Parallel()
	got, err := json.Marshal(schema.Document("t.everything/v1", "It has everything.", everything{hidden: 1}))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"t.everything/v1","description":"It has everything.","type":"object","properties":{` +
		`"schema":{"const":"t.everything/v1"},` +
		`"term":{"type":"integer","minimum":0},` +
		`"part":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]},` +
		`"maybe":{"type":["object","null"],"properties":{"name":{"type":"string"}},"required":["name"]},` +
		`"rarely":{"type":"string"},` +
		`"list":{"type":["array","null"],"items":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}},` +
		`"few":{"type":"array","items":{"type":"integer"}},` +
		`"by":{"type":["object","null"],"additionalProperties":{"type":"integer","minimum":0}},` +
		`"at":{"type":"string","format":"date-time"},` +
		`"since":{"type":["string","null"],"format":"date-time"},` +
		`"score":{"type":"number"},` +
		`"id":{"type":"string"},` +
		`"effect":{"type":"string"},` +
		`"raw":{},"any":{},` +
		`"Flag":{"type":"boolean"}},` +
		`"required":["schema","term","part","maybe","list","by","at","since","score","id","effect","raw","any","Flag"]}`
	if string(got) != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// A type that no JSON comes of is a mistake of the caller.
func TestDocument_RefusesWhatIsNoData(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("a channel has a schema")
		}
	}()
	schema.Document("t.bad/v1", "", struct{ C chan int }{})
}
