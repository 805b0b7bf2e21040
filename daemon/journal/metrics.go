package journal

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	events    *prometheus.CounterVec // {kind}
	followers prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidal_journal_events_total",
			Help: "Events that this member recorded, by kind.",
		}, []string{"kind"}),
		followers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tidal_journal_followers",
			Help: "Readers that follow the events now.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.events, m.followers)
	}
	return m
}
