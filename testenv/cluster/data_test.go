package cluster

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tidaldb/tidal/daemon/api"
)

// A keyed write is answered with the same index by every member, before and after the power cord of all
// three was pulled, and counted once; a stream of keyed lines too.
func TestCluster_KeyedWritesHappenOnce(t *testing.T) {
	c := Start(t, Binary(t), Options{})
	stream := func(m api.DevMember) (end api.StreamEnd, err error) {
		var lines strings.Builder
		for i := range 500 {
			fmt.Fprintf(&lines, "{\"kind\":\"signal\",\"item\":\"streamed\",\"signal\":\"view\",\"key\":\"line %d\"}\n", i)
		}
		resp, err := c.http.Post(m.HTTP+"/ingest", api.NDJSONType, strings.NewReader(lines.String()))
		if err != nil {
			return end, err
		}
		defer resp.Body.Close()
		for answer := bufio.NewScanner(resp.Body); answer.Scan(); {
			if err := json.Unmarshal(answer.Bytes(), &end); err != nil {
				return end, err
			}
		}
		if !end.Done {
			return end, fmt.Errorf("the stream ended after %d lines: %v", end.Acked, end.Problem)
		}
		return end, nil
	}
	once := ""
	for range 2 {
		for _, m := range c.Members {
			c.Until("the keyed writes through "+m.Name, func() error {
				h, err := c.Do(http.MethodPost, m, "/signals", api.Signal{Item: "single", Signal: "view", Key: "k"}, nil)
				if err != nil {
					return err
				}
				index := h.Get(api.HeaderIndex)
				if once == "" {
					once = index
				}
				if index != once {
					t.Errorf("through %s the write is at index %s, it was at %s", m.Name, index, once)
				}
				end, err := stream(m)
				if err == nil && (end.Acked != 500 || *end.Refused != 0) {
					t.Errorf("through %s %d lines are settled and %d refused, want 500 and 0", m.Name, end.Acked, *end.Refused)
				}
				return err
			})
		}
		c.KillAll()
	}
	for _, id := range []string{"single", "streamed"} {
		c.Until("item "+id, func() error {
			_, err := c.Do(http.MethodPost, c.Members[0], "/items", map[string]string{"id": id}, nil)
			return err
		})
	}
	for id, want := range map[string]uint64{"single": 1, "streamed": 500} {
		var i api.ItemAnswer
		c.Until("what is known of "+id, func() error { return c.Get(c.Members[1], "/items/"+id+"?consistency=linearizable", &i) })
		if i.Signals["view"].Count != want {
			t.Errorf("%s has %d views, want %d", id, i.Signals["view"].Count, want)
		}
	}
	c.Audit()
}
