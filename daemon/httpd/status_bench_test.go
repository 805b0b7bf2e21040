package httpd_test

import (
	"io"
	"net/http"
	"slices"
	"testing"
	"time"
)

// BenchmarkStatus_FiveMembersTwoSilent asks for the status of five members of which two take connections
// and never answer: 500 ms each, at once.
func BenchmarkStatus_FiveMembersTwoSilent(b *testing.B) {
	nodes := start(b, options{}, "a", "b", "c", "d", "e")
	n := nodes[0]
	n.member.Genesis.Members[3].HTTPAddr, n.member.Genesis.Members[4].HTTPAddr = blackhole(b), blackhole(b)
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		resp, err := http.Get("http://" + n.addr + "/cluster/status")
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
