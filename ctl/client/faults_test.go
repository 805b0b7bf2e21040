package client_test

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidaldb/tidal/ctl/client"
	"github.com/tidaldb/tidal/daemon/api"
)

// A member that takes connections and is silent, as a stopped process is, costs one wait where all are asked,
// whether it is an endpoint or not.
func TestClient_ASilentMemberCostsOneWait(t *testing.T) {
	t.Parallel()
	const heals = 2 * time.Second // how long a member waits for the others
	at := func(name string) func(*http.Request) (*http.Response, error) {
		return func(r *http.Request) (*http.Response, error) {
			h := http.Header{}
			h.Set(api.HeaderMember, name)
			switch r.URL.Path {
			case "/healthz":
				return answer(200, h, `{}`), nil
			case "/cluster/members":
				return teller{name: name, roster: []string{"a", "b", "c"}}.answer(r)
			case "/cluster/ops":
				return answer(200, h, `{"operations":[{"op":"`+name+`"}]}`), nil
			case "/cluster/heal":
				time.Sleep(heals)
				return answer(200, h, `{"acked":["a","b"],"failed":["c"],"errors":[{"member":"c","code":"member_unreached"}]}`), nil
			}
			return nil, errors.New("nobody asks for " + r.URL.Path)
		}
	}
	n := network{"a": at("a"), "b": at("b"), "c": hung}
	for _, endpoints := range [][]string{{"a"}, {"a", "b", "c"}, {"c", "a"}} {
		synctest.Test(t, func(t *testing.T) {
			asleep := time.Duration(0)
			if endpoints[0] == "c" {
				asleep = time.Second // until another one is asked who is there
			}
			places := time.Duration(0)
			if slices.Contains(endpoints, "c") {
				places = 500 * time.Millisecond
			}
			c := newClient(t, n, endpoints...)
			start := time.Now()
			found, silent, err := c.Operations(t.Context())
			if err != nil || len(found) != 2 || len(silent) != 1 || silent[0].Endpoint != "http://c" || silent[0].Code != "timeout" {
				t.Errorf("%q: Operations = %+v, %+v, %v", endpoints, found, silent, err)
			}
			if took, want := time.Since(start), places+client.EndpointTimeout; took > want+50*time.Millisecond {
				t.Errorf("%q: Operations took %s, want %s", endpoints, took, want)
			}
			start = time.Now()
			done, _, err := c.Heal(t.Context(), api.HealRequest{OperationID: "x"})
			if err != nil || done.OK || !slices.Equal(done.Failed, []string{"c"}) {
				t.Errorf("%q: Heal = %+v, %v", endpoints, done, err)
			}
			if took, want := time.Since(start), asleep+heals+places+time.Second; took > want+50*time.Millisecond {
				t.Errorf("%q: Heal took %s, want %s", endpoints, took, want)
			}
		})
	}
}
