package httpd_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing"
)

// BenchmarkIngest sends lines over one stream to a member that applies them in memory, and waits for
// the last acknowledgement of each round.
func BenchmarkIngest(b *testing.B) {
	for _, through := range []string{"leader", "follower"} {
		b.Run(through, func(b *testing.B) {
			nodes := start(b, options{}, "a", "b")
			n := nodes[0]
			if through == "follower" {
				n = nodes[1]
			}
			c, err := net.Dial("tcp", n.addr)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			const round = 20_000
			var lines strings.Builder
			for i := range round {
				fmt.Fprintf(&lines, "{\"kind\":\"signal\",\"item\":\"it%06d\",\"signal\":\"view\",\"user\":\"u1234\"}\n", i%1000)
			}
			fmt.Fprintf(c, "POST /ingest HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || resp.StatusCode != 200 {
				b.Fatal(resp, err)
			}
			acks, to := bufio.NewScanner(resp.Body), httputil.NewChunkedWriter(c)
			sent := 0
			b.ReportAllocs()
			for b.Loop() {
				go io.WriteString(to, lines.String())
				sent += round
				for last := fmt.Sprintf(`{"acked":%d,`, sent); acks.Scan() && !strings.HasPrefix(acks.Text(), last); {
				}
			}
			b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "lines/s")
		})
	}
}
