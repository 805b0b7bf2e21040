package wal

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidaldb/tidal/daemon/ident"
)

type metrics struct {
	appended  prometheus.Counter
	fsync     prometheus.Histogram
	rotations *prometheus.CounterVec
	torn      prometheus.Counter
	segments  prometheus.Gauge
}

func newMetrics(group ident.GroupID) *metrics {
	labels := prometheus.Labels{"group": group.String()}
	return &metrics{
		appended: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidal_wal_appended_bytes_total", ConstLabels: labels,
			Help: "Bytes of frames made durable.",
		}),
		fsync: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tidal_wal_fsync_seconds", ConstLabels: labels,
			Help:    "Time of one sync of the log.",
			Buckets: prometheus.ExponentialBuckets(1e-4, 2, 16), // 0.1 ms to 3.3 s
		}),
		rotations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidal_wal_rotations_total", ConstLabels: labels,
			Help: "Segments begun, by whether their file had been prepared (spare) or not (fresh).",
		}, []string{"file"}),
		torn: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidal_wal_torn_tails_total", ConstLabels: labels,
			Help: "Openings that found a write cut short by a crash, and left it out.",
		}),
		segments: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tidal_wal_segments", ConstLabels: labels,
			Help: "Segment files of the log.",
		}),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.appended, m.fsync, m.rotations, m.torn, m.segments}
}

// register returns what takes the metrics back, so that a log may be opened again.
func (m *metrics) register(reg prometheus.Registerer) (unregister func(), err error) {
	if reg == nil {
		return func() {}, nil
	}
	var done []prometheus.Collector
	unregister = func() {
		for _, c := range done {
			reg.Unregister(c)
		}
	}
	for _, c := range m.all() {
		if err := reg.Register(c); err != nil {
			unregister()
			return nil, err
		}
		done = append(done, c)
	}
	return unregister, nil
}
