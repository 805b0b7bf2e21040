package outbox

import "github.com/prometheus/client_golang/prometheus"

// metrics are the numbers of an outbox, in reg as long as it is open.
type metrics struct {
	taken, merged, delivered, full prometheus.Counter
	sync                           prometheus.Histogram

	reg  prometheus.Registerer
	mine []prometheus.Collector
}

func newMetrics(reg prometheus.Registerer, b *Box) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string, value func(Status) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(b.Status()) })
	}
	m := &metrics{
		reg:       reg,
		taken:     counter("tidal_outbox_taken_total", "Writes that this member took by itself (ack=local)."),
		merged:    counter("tidal_outbox_merged_total", "Operations that came from other members by an exchange."),
		delivered: counter("tidal_outbox_delivered_total", "Operations that are not held any more because the log has them."),
		full:      counter("tidal_outbox_full_total", "Writes and exchanges refused for want of room."),
		sync: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tidal_outbox_sync_seconds", Help: "Time to make queued operations durable.",
			Buckets: prometheus.ExponentialBuckets(1e-4, 2, 16), // 0.1 ms to 3.3 s
		}),
	}
	m.mine = []prometheus.Collector{m.taken, m.merged, m.delivered, m.full, m.sync,
		gauge("tidal_outbox_pending", "Operations that the log has not taken over yet.", func(s Status) float64 { return float64(s.Pending) }),
		gauge("tidal_outbox_bytes", "Memory of the operations that are held.", func(s Status) float64 { return float64(s.Bytes) }),
		gauge("tidal_outbox_forked", "Chains that cannot be delivered.", func(s Status) float64 { return float64(len(s.Forked)) }),
		gauge("tidal_outbox_failed", "1 if nothing is taken because of the disk.", func(s Status) float64 {
			if s.Failed != nil {
				return 1
			}
			return 0
		}),
	}
	if reg != nil {
		reg.MustRegister(m.mine...)
	}
	return m
}

func (m *metrics) unregister() {
	if m.reg == nil {
		return
	}
	for _, c := range m.mine {
		m.reg.Unregister(c)
	}
}
