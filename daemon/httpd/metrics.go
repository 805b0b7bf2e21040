package httpd

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// What became of a forwarded request.
const (
	forwardAnswered  = "answered"
	forwardNotLeader = "not_leader"
	forwardUnreached = "unreached"
	forwardLost      = "lost"
)

type metrics struct {
	seconds  *prometheus.HistogramVec // {route}
	requests *prometheus.CounterVec   // {route, status}
	forwards *prometheus.CounterVec   // {outcome}
	gathered prometheus.Histogram
	panics   prometheus.Counter
	open     prometheus.Gauge
	turned   prometheus.Counter

	lines, refusedLines prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, gathering func() float64) *metrics {
	m := &metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "tidal_httpd_request_seconds",
			Help:    "Time from the header of a request to the end of its answer, by route.",
			Buckets: prometheus.ExponentialBuckets(1e-4, 2, 16), // 0.1 ms to 3.3 s
		}, []string{"route"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidal_httpd_requests_total",
			Help: "Requests answered, by route and HTTP status; route none is no route.",
		}, []string{"route", "status"}),
		forwards: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidal_httpd_forwards_total",
			Help: "Requests forwarded to the leader, by outcome.",
		}, []string{"outcome"}),
		gathered: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "tidal_httpd_gathered_writes",
			Help:    "Writes handed over to the leader in one request.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 7), // 1 to 4,096
		}),
		lines: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidal_httpd_ingest_lines_total",
			Help: "Lines of streams that were settled on this member.",
		}),
		refusedLines: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidal_httpd_ingest_refused_lines_total",
			Help: "Lines of streams that were settled on this member and not taken.",
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidal_httpd_panics_total",
			Help: "Handlers that panicked. Every one is a bug.",
		}),
	}
	m.open = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tidal_httpd_connections",
		Help: "Connections of clients that are open.",
	})
	m.turned = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tidal_httpd_connections_refused_total",
		Help: "Connections closed at once because too many were open.",
	})
	if reg != nil {
		reg.MustRegister(m.open, m.turned, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tidal_httpd_gathering_writes",
			Help: "Writes that wait for the next request to the leader.",
		}, gathering))
		reg.MustRegister(m.seconds, m.requests, m.forwards, m.gathered, m.lines, m.refusedLines, m.panics)
	}
	return m
}

// routeMetrics are those of one route; a known path with a wrong method shares its path's.
type routeMetrics struct {
	seconds  prometheus.Observer
	requests *prometheus.CounterVec // {status}
}

func (m *metrics) route(rt route) routeMetrics {
	name := rt.path
	if rt.method != "" {
		name = rt.method + " " + rt.path
	}
	return routeMetrics{
		seconds:  m.seconds.WithLabelValues(name),
		requests: m.requests.MustCurryWith(prometheus.Labels{"route": name}),
	}
}

func (m routeMetrics) observe(status int, took time.Duration) {
	m.seconds.Observe(took.Seconds())
	m.requests.WithLabelValues(strconv.Itoa(status)).Inc()
}

func (m *metrics) forwarded(a *answer, err error) {
	outcome := forwardAnswered
	if err != nil {
		outcome = forwardLost
		if _, ok := errors.AsType[*unreachedError](err); ok {
			outcome = forwardUnreached
		}
	} else if a.status == http.StatusMisdirectedRequest {
		outcome = forwardNotLeader
	}
	m.forwards.WithLabelValues(outcome).Inc()
}

// MetricsHandler serves everything in g in Prometheus' text format. It is for a listener of its own.
func MetricsHandler(g prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{})
}
