package entity

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestAttributeOf(t *testing.T) {
	t.Parallel()
	const object = `{"a":"x,\"}","a\"b":[1,"]"],"b":{"a":1,"z":[{}]},"c":null,"é":-1.5}`
	for _, tc := range []struct{ name, want string }{
		{"a", `"x,\"}"`}, {`a"b`, `[1,"]"]`}, {"b", `{"a":1,"z":[{}]}`}, {"c", `null`}, {"é", `-1.5`}, {"z", ""}, {"", ""},
	} {
		got, ok := AttributeOf([]byte(object), AppendString(nil, tc.name))
		if string(got) != tc.want || ok != (tc.want != "") {
			t.Errorf("AttributeOf(%q) = %s, %t, want %s", tc.name, got, ok, tc.want)
		}
	}
	for _, other := range []string{"", "{}", "{", `{"a`, `{"a"`, `{"a":`, `{"a":1`, `[1]`, `{"a":}`} {
		if got, ok := AttributeOf([]byte(other), []byte(`"a"`)); ok {
			t.Errorf("AttributeOf(%s) = %s", other, got)
		}
	}
}

func TestElements(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		value string
		want  []string
	}{
		{`[]`, nil}, {`"a"`, []string{`"a"`}}, {`7`, []string{`7`}}, {`["a","b,]",[1,2],{"x":[]},null]`, []string{`"a"`, `"b,]"`, `[1,2]`, `{"x":[]}`, `null`}}, {"", nil}, {`[`, nil},
	} {
		var got []string
		for v := range Elements([]byte(tc.value)) {
			got = append(got, string(v))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("Elements(%s) = %q, want %q", tc.value, got, tc.want)
		}
	}
}

func TestSchema_CheckAttributes(t *testing.T) {
	t.Parallel()
	s := Schema{Attributes: []Attribute{{"b", AttributeBool}, {"l", AttributeStrings}, {"n", AttributeNumber}, {"s", AttributeString}}}
	for attrs, want := range map[string]string{
		`{}`: "",
		`{"b":true,"l":["x"],"n":-1,"other":{},"s":"x"}`: "",
		`{"b":false,"l":[],"n":0,"s":""}`:                "",
		`{"b":null,"l":null,"n":null,"s":null}`:          "",
		`{"b":1}`:                                        `attribute "b" is no bool`,
		`{"l":"x"}`:                                      `attribute "l" is no strings`,
		`{"l":["x",1]}`:                                  `attribute "l" is no strings`,
		`{"n":"1"}`:                                      `attribute "n" is no number`,
		`{"s":["a"]}`:                                    `attribute "s" is no string`,
		`{"s":{"s":"a"}}`:                                `attribute "s" is no string`,
	} {
		got := ""
		if err := s.CheckAttributes([]byte(attrs)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("CheckAttributes(%s) = %q, want %q", attrs, got, want)
		}
	}
}

// Of an object in the canonical form, every member is found; of other bytes, nothing panics.
func FuzzAttributeOf(f *testing.F) {
	f.Add([]byte(`{"a":"x,\"}","b":{"a":1,"z":[{}]},"c":null}`))
	f.Add([]byte(`{"a":["b`))
	f.Fuzz(func(t *testing.T, b []byte) {
		for range Elements(b) {
		}
		AttributeOf(b, []byte(`"a"`))
		var members map[string]json.RawMessage
		if json.Unmarshal(b, &members) != nil || members == nil {
			return
		}
		object := []byte{'{'}
		for k, v := range members {
			if len(object) > 1 {
				object = append(object, ',')
			}
			compact, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			members[k] = compact
			object = append(append(AppendString(object, k), ':'), compact...)
		}
		object = append(object, '}')
		for k, v := range members {
			if got, ok := AttributeOf(object, AppendString(nil, k)); !ok || string(got) != string(v) {
				t.Fatalf("AttributeOf(%s, %q) = %s, %t, want %s", object, k, got, ok, v)
			}
		}
	})
}
