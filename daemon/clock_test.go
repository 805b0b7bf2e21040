package daemon

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
)

// A member whose clock is 10 s ahead shows in the status of every observer, whoever leads, and each of the
// others tells of it once. It changes nothing else: writes go on through it.
func TestClock_ASkewedMemberShows(t *testing.T) {
	cs, stops := threeBy(t, func(i int) func() time.Time {
		if i == 2 {
			return func() time.Time { return time.Now().Add(10 * time.Second) }
		}
		return time.Now
	})
	defer func() {
		for _, stop := range stops {
			stop()
		}
	}()
	for _, c := range cs {
		skew := map[string]int64{}
		eventually(t, "the skew of c to show on "+c.Name, func() bool {
			var s api.Status
			_, body := request(t, "GET", "http://"+c.HTTPBind+"/cluster/status", "")
			if err := json.Unmarshal([]byte(body), &s); err != nil {
				t.Fatal(err)
			}
			for _, r := range s.Regions {
				if r.ClockSkewMS != nil {
					skew[r.Name] = *r.ClockSkewMS
				}
			}
			var said []string
			for _, r := range s.Health.Reasons {
				if r.Code == "clock_skew" {
					said = append(said, r.Member+": "+r.Detail)
				}
			}
			return len(said) == 1 && strings.HasPrefix(said[0], "c: its clock is ") && strings.Contains(said[0], "ahead of most clocks")
		})
		if off := skew["c"]; off < 9_000 || off > 11_000 || skew["a"] > 500 || skew["a"] < -500 {
			t.Errorf("skews on %s: %v", c.Name, skew)
		}
	}
	for i := range 20 {
		if st, b := request(t, "POST", "http://"+cs[i%3].HTTPBind+"/items", `{"id":"x"}`); st != http.StatusOK && st != http.StatusCreated {
			t.Errorf("POST /items at %s = %d %s", cs[i%3].Name, st, b)
		}
	}
	for _, c := range cs[:2] {
		told := func() (n int) {
			_, body := request(t, "GET", "http://"+c.HTTPBind+"/cluster/events", "")
			all, _ := kinds(t, body)
			for _, kind := range all {
				if kind == "clock_skewed" {
					n++
				}
			}
			return n
		}
		eventually(t, c.Name+" to tell of a wrong clock", func() bool { return told() > 0 })
		if n := told(); n != 1 {
			t.Errorf("%s tells of a wrong clock %d times, want once", c.Name, n)
		}
	}
}

// eventually waits until f.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.After(30 * time.Second); !f(); {
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("waited 30 s for %s", what)
		}
	}
}
