package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/config"
)

// untilNil waits until f returns nil.
func untilNil(t *testing.T, what string, f func() error) {
	t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	deadline := time.After(30 * time.Second)
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("after 30 s not %s: %v", what, err)
		}
	}
}

// ask sends a request and decodes the answer to it, whose status must be want.
func ask(t *testing.T, c *config.Config, method, path, body string, want int, into any) {
	t.Helper()
	st, answer := request(t, method, "http://"+c.HTTPBind+path, body)
	if st != want {
		t.Fatalf("%s %s %s = %d %s, want %d", method, path, body, st, answer, want)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(answer), into); err != nil {
			t.Fatalf("%s %s: %s: %v", method, path, answer, err)
		}
	}
}

// settled waits until a member shows n views of item a, hides b from u, and holds nothing.
func settled(t *testing.T, c *config.Config, n uint64) {
	t.Helper()
	untilNil(t, fmt.Sprintf("%d views and nothing pending on %s", n, c.Name), func() error {
		var item api.ItemAnswer
		ask(t, c, "GET", "/items/a", "", http.StatusOK, &item)
		var feed api.FeedAnswer
		ask(t, c, "GET", "/feed?user=u", "", http.StatusOK, &feed)
		var s api.LocalStatus
		ask(t, c, "GET", "/cluster/status/local", "", http.StatusOK, &s)
		if got := item.Signals["view"].Count; got != n || len(feed.Results) != 1 || s.Outbox.Pending > 0 {
			return fmt.Errorf("it shows %d views, a feed of %d, %d pending", got, len(feed.Results), s.Outbox.Pending)
		}
		return nil
	})
}

// What a member takes while it is alone survives its process, is delivered once there is a leader, and
// counts once everywhere.
func TestOutbox_DeliversAfterASplit(t *testing.T) {
	cs, stops := three(t)
	local(t, cs[0], "led", func(g api.GroupStatus) bool { return g.Leader != nil })
	ask(t, cs[0], "POST", "/items", `[{"id":"a"},{"id":"b"}]`, http.StatusOK, nil)
	for _, c := range cs[1:] {
		local(t, c, "caught up", func(g api.GroupStatus) bool { return g.AppliedIndex >= 2 })
	}

	// Member 2 is alone, and ends and starts again.
	stops[0]()
	stops[1]()
	for range 20 {
		ask(t, cs[2], "POST", "/signals?ack=local", `{"item":"a","signal":"view"}`, http.StatusAccepted, nil)
	}
	ask(t, cs[2], "POST", "/hardnegs?ack=local", `{"user":"u","item":"b","op":"hide"}`, http.StatusAccepted, nil)
	stops[2]()
	stops[2] = run(t, cs[2])
	for range 10 {
		ask(t, cs[2], "POST", "/signals?ack=local", `{"item":"a","signal":"view"}`, http.StatusAccepted, nil)
	}
	var item api.ItemAnswer
	ask(t, cs[2], "GET", "/items/a", "", http.StatusOK, &item)
	if n := item.Signals["view"].Count; n != 30 {
		t.Errorf("alone it shows %d views, want 30", n)
	}
	stops[0], stops[1] = run(t, cs[0]), run(t, cs[1])
	for _, c := range cs {
		settled(t, c, 30)
	}

	var done api.Reconciled
	ask(t, cs[0], "POST", "/cluster/reconcile", `{"region":"c"}`, http.StatusOK, &done)
	if !done.OK || done.OpsApplied != 0 {
		t.Errorf("a reconcile of what is delivered: %+v", done)
	}
	for _, stop := range stops {
		stop()
	}
}
