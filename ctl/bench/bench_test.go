package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidaldb/tidal/daemon/api"
)

func TestHistogram_QuantilesAreWithinABucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h histogram
		d := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "duration"))
		h.observe(d)
		if got := h.quantile(0.5); got != d {
			t.Fatalf("quantile of one observation %v = %v", d, got)
		}
		if u := upper(bucketOf(d)); u < d || float64(u) > float64(d)*1.04+1 {
			t.Fatalf("upper(bucketOf(%v)) = %v", d, u)
		}
		if next := bucketOf(upper(bucketOf(d)) + 1); next != bucketOf(d)+1 {
			t.Fatalf("the bucket after that of %v is %d, want %d", d, next, bucketOf(d)+1)
		}
	})
	var h histogram
	for i := range 1000 {
		h.observe(time.Duration(i+1) * time.Millisecond)
	}
	if p := h.quantile(0.99); p < 990*time.Millisecond || p > 1021*time.Millisecond {
		t.Errorf("p99 of 1 to 1000 ms = %v", p)
	}
}

func run(t *testing.T, o Options, handler http.HandlerFunc) Report {
	t.Helper()
	s := httptest.NewServer(handler)
	defer s.Close()
	o.Endpoints = []string{s.URL, s.URL + "/"}
	o.Clients, o.For, o.Ack, o.Space = 4, 200*time.Millisecond, "quorum", 10
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatalf("Run = %v", err)
	}
	if len(r.Rows) != 3 || r.Rows[2].Endpoint != "all" || r.Rows[0].Operations+r.Rows[1].Operations != r.Rows[2].Operations {
		t.Fatalf("rows = %+v, want one an endpoint and their sum", r.Rows)
	}
	return r
}

func TestRun_CountsWhatWasAnswered(t *testing.T) {
	var served atomic.Uint64
	r := run(t, Options{Op: OpSignals, Keys: "zipf", Size: 16}, func(w http.ResponseWriter, r *http.Request) {
		var s api.Signal
		if err := json.NewDecoder(r.Body).Decode(&s); err != nil || s.Signal != "view" || len(s.User) != 16 {
			t.Errorf("got %+v, %v", s, err)
		}
		served.Add(1)
		w.WriteHeader(http.StatusNoContent)
	})
	all := r.Rows[2]
	if all.Operations == 0 || all.Operations > served.Load() || all.Errors != 0 || all.P99MS < all.P50MS {
		t.Errorf("row = %+v of %d served", all, served.Load())
	}
}

func TestRun_CountsProblemsByCode(t *testing.T) {
	r := run(t, Options{Op: OpItems, Keys: "uniform"}, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTooManyRequests)
		_ = json.NewEncoder(w).Encode(api.NewProblem(api.CodeOverloaded, "full"))
	})
	if all := r.Rows[2]; all.Operations != 0 || all.ByError["overloaded"] == 0 || all.Errors != all.ByError["overloaded"] {
		t.Errorf("row = %+v, want only overloaded", all)
	}
}

func TestRun_FollowsCumulativeAcknowledgements(t *testing.T) {
	r := run(t, Options{Op: OpIngest, Keys: "uniform", Size: 8}, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if err := rc.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		sc := bufio.NewScanner(r.Body)
		for n := 1; sc.Scan(); n++ {
			if n%10 == 0 {
				fmt.Fprintf(w, `{"acked":%d,"index":%d}`+"\n", n, n)
				_ = rc.Flush()
			}
		}
	})
	if all := r.Rows[2]; all.Operations == 0 || all.Operations%10 != 0 || all.Errors != 0 {
		t.Errorf("row = %+v, want tens of lines and no error", all)
	}
}

func TestOptions_NameTheFlag(t *testing.T) {
	good := Options{Op: OpFeed, Clients: 1, For: time.Second, Ack: "quorum", Keys: "uniform", Space: 1}
	if err := good.Validate(); err != nil {
		t.Fatalf("Validate = %v", err)
	}
	for name, spoil := range map[string]func(*Options){
		"--op": func(o *Options) { o.Op = "x" }, "--clients": func(o *Options) { o.Clients = 0 }, "--size": func(o *Options) { o.Op, o.Size = OpSignals, 257 },
		"--for": func(o *Options) { o.For = 0 }, "--ack": func(o *Options) { o.Ack = "local" }, "--keys": func(o *Options) { o.Keys = "" }, "--items": func(o *Options) { o.Space = 0 },
	} {
		bad := good
		spoil(&bad)
		if _, err := Run(context.Background(), bad); err == nil || err.Error()[:len(name)] != name {
			t.Errorf("Run with a bad %s = %v", name, err)
		}
	}
}
