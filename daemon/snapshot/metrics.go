package snapshot

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidaldb/tidal/daemon/ident"
)

// metrics are a stager's numbers. The label group is bounded by the groups of the cluster.
type metrics struct {
	staged        prometheus.Counter
	stageFailures prometheus.Counter
	sent          prometheus.Counter
	capHits       prometheus.Counter

	unregister func() // so that the group can be opened again
}

func newMetrics(reg prometheus.Registerer, group ident.GroupID, s *Stager) (*metrics, error) {
	labels := prometheus.Labels{"group": group.String()}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels})
	}
	m := &metrics{
		staged:        counter("tidal_snapshot_staged_total", "Artifacts staged."),
		stageFailures: counter("tidal_snapshot_stage_failures_total", "Artifacts that could not be staged."),
		sent:          counter("tidal_snapshot_sent_bytes_total", "Bytes of artifacts sent to others."),
		capHits:       counter("tidal_snapshot_pin_cap_hits_total", "Pins of the log that ended by their cap: a consumer may have to fetch again."),
		unregister:    func() {},
	}
	transfers := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidal_snapshot_transfers", Help: "Artifacts being sent.", ConstLabels: labels,
	}, func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(s.mu.transfers)
	})
	pinned := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidal_snapshot_pinned_index", Help: "Lowest log index kept for consumers of artifacts; 0: none.", ConstLabels: labels,
	}, func() float64 { return float64(s.Announce()) })
	if reg == nil {
		return m, nil
	}
	var done []prometheus.Collector
	m.unregister = func() {
		for _, c := range done {
			reg.Unregister(c)
		}
	}
	for _, c := range []prometheus.Collector{m.staged, m.stageFailures, m.sent, m.capHits, transfers, pinned} {
		if err := reg.Register(c); err != nil {
			m.unregister()
			return nil, fmt.Errorf("register metrics of snapshots: %w", err)
		}
		done = append(done, c)
	}
	return m, nil
}
