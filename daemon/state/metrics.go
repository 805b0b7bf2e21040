package state

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	committed prometheus.Counter
	flush     prometheus.Histogram

	reg        prometheus.Registerer // nil: not exported
	registered []prometheus.Collector
}

// newMetrics registers the metrics of s.
func newMetrics(reg prometheus.Registerer, s *Store) (*metrics, error) {
	m := &metrics{
		reg: reg,
		committed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidal_state_committed_bytes_total",
			Help: "Bytes of batches committed to the store.",
		}),
		flush: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "tidal_state_flush_seconds",
			Help:    "Time to write one set of memtables to the disk.",
			Buckets: prometheus.ExponentialBuckets(1e-3, 2, 14), // 1 ms to 8 s
		}),
	}
	flushed := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidal_state_flushed_index",
		Help: "Applied index that is durable in the store.",
	}, func() float64 { return float64(s.FlushedIndex()) })
	failed := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidal_state_failed",
		Help: "1 if the store failed closed.",
	}, func() float64 {
		if s.fuse.error() != nil {
			return 1
		}
		return 0
	})
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.committed, m.flush, flushed, failed} {
		if err := reg.Register(c); err != nil {
			m.unregister()
			return nil, fmt.Errorf("register metrics of state: %w", err)
		}
		m.registered = append(m.registered, c)
	}
	return m, nil
}

// unregister makes room for the metrics of the store that is opened next.
func (m *metrics) unregister() {
	for _, c := range m.registered {
		m.reg.Unregister(c)
	}
}
